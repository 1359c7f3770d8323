"""The tree of exceptions, as `ldp.errors` draws it, is the one that the packages have."""

import ast
import builtins
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import dpsgd
import hearsay
import hearsay_server
import ldp
from hearsay_server import __main__ as command
from hearsay_server import cli
from ldp import errors
from ldp.errors import HearsayError, InvalidInput, MissingExtra, needs

BUILTIN = {
    name
    for name, found in vars(builtins).items()
    if isinstance(found, type) and issubclass(found, BaseException)
}

DRAWN = re.compile(r"^( *)- `(\w+)`(?: \((.*?)\))?: \S", re.MULTILINE)


def drawn() -> dict[str, tuple[str, str]]:
    """By name, the parent and the module that the docstring gives each class."""
    found: dict[str, tuple[str, str]] = {}
    above: list[str] = []
    for indent, name, note in DRAWN.findall(errors.__doc__ or ""):
        depth = len(indent) // 2
        assert name not in found
        module = re.search(r"`([a-z_.]+\.[a-z_]+)`", note)
        found[name] = (above[depth - 1] if depth else "", module[1] if module else "ldp.errors")
        above[depth:] = [name]
    return found


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    """Every class of the packages that is written in a file, with its module."""
    for package in (ldp, dpsgd, hearsay, hearsay_server):
        folder = Path(package.__file__ or "").parent
        for file in folder.rglob("*.py"):
            module = ".".join((package.__name__, *file.relative_to(folder).with_suffix("").parts))
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.ClassDef):
                    yield module.removesuffix(".__init__"), node


def exceptions() -> dict[str, str]:
    """By name, the module of every public exception class."""
    known, found, written = set(BUILTIN), {}, list(classes())
    while True:
        before = len(known)
        for module, node in written:
            if {ast.unparse(base).rpartition(".")[2] for base in node.bases} & known:
                known.add(node.name)
                if not node.name.startswith("_"):
                    assert found.get(node.name, module) == module, f"two are called {node.name}"
                    found[node.name] = module
        if len(known) == before:
            return found


def test_the_docstring_names_exactly_the_public_exceptions_of_the_packages() -> None:
    assert {name: module for name, (_, module) in drawn().items()} == exceptions()


def test_every_exception_stands_below_its_parent_and_below_the_root() -> None:
    tree = drawn()
    for name, (parent, module) in tree.items():
        kind = getattr(import_module(module), name)
        assert issubclass(kind, HearsayError)
        ours = [base.__name__ for base in kind.__bases__ if base.__name__ in tree]
        assert ours == ([parent] if parent else []), name


def test_the_standard_kinds_that_the_docstring_tells_of_hold() -> None:
    said = re.findall(r"- `(\w+)` \([^)]*\ban? `(\w+)`\)", errors.__doc__ or "")
    assert [name for name, _ in said] == ["InvalidInput", "Unreachable", "MissingExtra"]
    tree = drawn()
    for name, standard in said:
        kind = getattr(import_module(tree[name][1]), name)
        assert issubclass(kind, getattr(builtins, standard))


def test_an_app_finds_all_that_it_can_meet_in_hearsay() -> None:
    met = {name for name, (_, module) in drawn().items() if module == "ldp.errors"}
    met = met - {"ServerFailed"} | {"Unreachable"}
    assert met <= set(hearsay.__all__)
    for name in met - {"Unreachable"}:
        assert getattr(hearsay, name) is getattr(errors, name)


@pytest.mark.parametrize(
    "name", [n for n, (_, module) in drawn().items() if module == "ldp.errors"]
)
def test_the_command_prints_every_error_of_ours_in_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = getattr(errors, name)

    def fail(prog_name: str) -> None:
        raise kind("the log says:\n  the disk is full\n")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == "hearsay: the log says: the disk is full"  # and so the status is 1


def test_the_command_does_not_hide_a_fault_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(prog_name: str) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(cli, "app", fail)
    with pytest.raises(RuntimeError, match="a fault"):
        command.main()


def test_what_is_not_installed_is_named_with_the_extra_that_has_it() -> None:
    words = r"^reading needs nowhere: pip install 'hearsay-ldp\[export\]'$"
    with pytest.raises(MissingExtra, match=words), needs("reading", "export"):
        import nowhere  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(InvalidInput, match="too many"), needs("reading", "export"):
        raise InvalidInput("too many")


@pytest.mark.parametrize(
    ("without", "code", "extra"),
    [
        ("torch", "import dpsgd; dpsgd.PrivacyEngine", "train"),
        ("numba", "import dpsgd.noise.compiled", "train"),
        (
            "pandas",
            "import hearsay; hearsay.Analyst('127.0.0.1:1').surveys()",
            "analyst",
        ),
        ("pandas", "import hearsay_server.commands.demo", "demo"),
        ("matplotlib", "import hearsay_server.commands.demo", "demo"),
    ],
)
def test_a_package_that_is_missing_is_a_missing_extra(without: str, code: str, extra: str) -> None:
    lines = (
        f"import sys; sys.modules[{without!r}] = None",
        "import ldp.errors",
        f"try: exec({code!r})",
        "except ldp.errors.MissingExtra as error: print(error)",
    )
    run = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert run.stdout.endswith(f"needs {without}: pip install 'hearsay-ldp[{extra}]'\n")
