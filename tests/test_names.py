"""Every public name of every package can be had, and what cannot be imported is named."""

import ast
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType

import pytest

import dpsgd
import hearsay
import hearsay_server
import ldp
from ldp.errors import MissingExtra, needs
from ldp.lazy import lazy


def _faces() -> dict[str, str]:
    """All packages of ours that say what is public in them, with the text that says it."""
    found = {}
    for root in (ldp, dpsgd, hearsay, hearsay_server):
        folders = [Path(root.__file__ or "").parent]
        names = [root.__name__]
        for module in walk_packages(root.__path__, f"{root.__name__}.", onerror=lambda _: None):
            if module.ispkg:
                names.append(module.name)
                folders.append(folders[0].joinpath(*module.name.split(".")[1:]))
        for name, folder in zip(names, folders, strict=True):
            text = (folder / "__init__.py").read_text(encoding="utf-8")
            if "__all__" in text:
                found[name] = text
    return found


FACES = _faces()


def _imported(face: str) -> ModuleType:
    try:
        return import_module(face)
    except MissingExtra as error:
        pytest.skip(str(error))


def _declared(module: ModuleType) -> dict[str, str]:
    """The names that type checkers see in a lazy package, each with the module that has it."""
    (block,) = [
        node
        for node in ast.parse(FACES[module.__name__]).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.name: node.module or ""
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name  # which is how a name is exported
    }


LAZY = [
    face
    for face in FACES
    if face in ("ldp", "dpsgd", "dpsgd.federated", "hearsay", "hearsay.asking")
]


def test_the_packages_are_found() -> None:
    assert {"ldp", "ldp.mechanisms", "dpsgd", "dpsgd.federated", "dpsgd.estimators"} < set(FACES)
    assert {"hearsay", "hearsay.federated", "hearsay.attestation"} < set(FACES)


def test_the_lazy_packages_are_these() -> None:
    assert [face for face, text in FACES.items() if "= lazy(" in text] == LAZY


@pytest.mark.parametrize("face", FACES)
def test_every_public_name_can_be_had(face: str) -> None:
    module = _imported(face)
    missing = []
    for name in module.__all__:
        try:
            getattr(module, name)
        except MissingExtra as error:
            missing.append(str(error))
    if missing:
        pytest.skip(missing[0])
    got: dict[str, object] = {}
    exec(f"from {face} import *", got)
    assert {name for name in got if name != "__builtins__"} == set(module.__all__)


@pytest.mark.parametrize("face", LAZY)
def test_type_checkers_see_the_names_of_a_lazy_package_and_no_others(face: str) -> None:
    module = import_module(face)
    declared = _declared(module)
    assert set(declared) == set(module.__all__) - set(vars(module))
    for name, home in declared.items():
        try:
            found = getattr(module, name)
        except MissingExtra as error:
            pytest.skip(str(error))
        assert found is getattr(import_module(home), name)


def test_an_unknown_name_of_a_lazy_package_is_an_attribute_error() -> None:
    for face in LAZY:
        with pytest.raises(AttributeError, match=f"^module '{face}' has no attribute 'Nothing'$"):
            import_module(face).Nothing  # noqa: B018


def test_a_missing_module_of_ours_is_named_and_no_extra_is_advised() -> None:
    _, _, get = lazy("dpsgd", {"dpsgd.renamed": "Thing", "nowhere": "Other"}, extra="train")
    with pytest.raises(ModuleNotFoundError, match=r"^No module named 'dpsgd\.renamed'$") as raised:
        get("Thing")
    assert not isinstance(raised.value, MissingExtra)
    with pytest.raises(MissingExtra, match=r"^dpsgd\.Other needs nowhere: pip install"):
        get("Other")
    words = r"^No module named 'hearsay_server\.nowhere'$"
    with pytest.raises(ModuleNotFoundError, match=words) as raised, needs("a feature", "train"):
        import_module("hearsay_server.nowhere")
    assert not isinstance(raised.value, MissingExtra)
