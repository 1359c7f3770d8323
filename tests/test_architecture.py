"""The arrows between the packages and between the folders of each, as docs/design.md draws them."""

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import dpsgd
import hearsay
import hearsay_server
import ldp

PACKAGES = {
    "ldp": (Path(ldp.__file__).parent, set()),
    "dpsgd": (Path(dpsgd.__file__).parent, {"ldp"}),
    "hearsay": (Path(hearsay.__file__).parent, {"ldp"}),
    "hearsay_server": (Path(hearsay_server.__file__).parent, {"ldp", "hearsay"}),
}

FLOORS = {
    "ldp": [
        {"errors", "version"},
        {"lazy"},
        {"core"},
        {"testing", "mechanisms.tools"},
        {"mechanisms.frequency"},
        {"mechanisms.lasting", "mechanisms.numbers"},
        {"mechanisms.policies"},
        {"mechanisms"},
        {"estimating", "planning", "assurance", "two_servers"},
    ],
    "dpsgd": [
        {"noise", "accounting", "auditing"},
        {"gradients", "release", "reports", "tuning", "whitening"},
        {"clipping", "pate"},
        {"layers"},
        {"training"},
        {"adpe", "estimators", "federated"},
    ],
    "hearsay": [
        {"environment", "files", "interrupts", "plain", "trouble", "v1"},
        {"attestation", "asking.cautions"},
        {"asking.answer", "asking.columns", "asking.palette"},
        {"asking.roles", "asking.wire"},
        {"plans", "storage"},
        {
            "agreement",
            "federated.declaration",
            "asking.formulas",
            "asking.plots",
            "asking.rows",
            "sealed",
            "tables",
        },
        {"choices", "federated.parsing"},
        {"recording"},
        {"sending"},
        {"asking.margins", "checking"},
        {"asking.selection", "lifetimes", "person"},
        {"federated"},
        {"asking.distributions", "asking.sets", "asking.together", "asking.words"},
        {"asking.changes", "asking.comparing"},
        {"asking", "client", "testing"},
        {"aio"},
    ],
    "hearsay_server": [
        {"printing", "spreadsheets"},
        {"at_rest", "build", "clock", "declared", "limits", "private", "tabular", "wrapping"},
        {"cells", "config"},
        {"ingest", "surveys", "trainings"},
        {"storage"},
        {"answers"},
        {"serving", "demo"},
        {"elsewhere"},
        {"helper", "shuffler"},
        {"pages"},
        {"commands"},
        {"cli"},
        {"__main__"},
    ],
}
"""From the ground up: a folder or file imports from itself and from lower floors alone."""

LAZY = {
    ("account.py", "dpsgd"),
    ("aggregation.py", "dpsgd"),
    ("canaries.py", "dpsgd"),
    ("figures.py", "dpsgd"),
    ("planning.py", "dpsgd"),
    ("simulating.py", "dpsgd"),
    ("train.py", "dpsgd"),
    ("training_run.py", "dpsgd"),
}
"""What a file may import inside its functions alone: its extra need not be installed."""

UP = {("answer.py", "hearsay.asking.plots")}
"""What a function of a file may import from above: a value that draws itself."""


@cache
def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _imported(file: Path, top_level: bool = False) -> Iterator[str]:
    tree = _parsed(file)
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _packages(file: Path, top_level: bool = False) -> set[str]:
    return {name.partition(".")[0] for name in _imported(file, top_level)}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_is_below_it(package: str) -> None:
    folder, allowed = PACKAGES[package]
    files = list(folder.rglob("*.py"))
    assert files
    for file in files:
        lazy = {other for name, other in LAZY if name == file.name} - _packages(
            file, top_level=True
        )
        others = (_packages(file) & set(PACKAGES)) - {package}
        assert others <= allowed | lazy, f"{file} imports {others - allowed}"


@pytest.mark.parametrize("package", FLOORS)
def test_within_a_package_imports_only_go_down(package: str) -> None:
    folder, _ = PACKAGES[package]
    floors = {room: level for level, rooms in enumerate(FLOORS[package]) for room in rooms}

    def room(name: str) -> str:
        """Return the longest known room that a dotted name lies in."""
        while name and name not in floors:
            name = name.rpartition(".")[0]
        return name

    arrows = 0
    for file in folder.rglob("*.py"):
        own = room(".".join(file.relative_to(folder).with_suffix("").parts))
        if file == folder / "__init__.py":
            continue  # the package's face shows what is inside
        assert own, f"{file} stands in no folder of FLOORS"
        for name in set(_imported(file)) - {up for by, up in UP if by == file.name}:
            other = room(name.removeprefix(f"{package}."))
            if name.startswith(f"{package}.") and other and other != own:
                arrows += 1
                assert floors[other] < floors[own], f"{file} imports {name}"
    assert arrows


def test_the_mathematics_does_no_input_or_output() -> None:
    world = {
        "socket",
        "grpc",
        "sqlite3",
        "sqlalchemy",
        "time",
        "timeit",
        "datetime",
        "pathlib",
        "io",
    }
    assert world <= set(sys.stdlib_module_names) | {"grpc", "sqlalchemy"}
    for file in PACKAGES["ldp"][0].rglob("*.py"):
        assert _packages(file) & world == set(), file


def test_what_becomes_of_a_survey_is_computed_without_a_terminal() -> None:
    for file in (PACKAGES["hearsay_server"][0] / "surveys").rglob("*.py"):
        assert _packages(file) & {"rich", "typer"} == set(), file
