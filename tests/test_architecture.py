"""The arrows between the packages, as docs/design.md draws them."""

import ast
import sys
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

LAZY = {("account.py", "dpsgd")}
"""What a file may import inside its functions alone: its extra need not be installed."""


def _imports(file: Path, top_level: bool = False) -> set[str]:
    found = set()
    tree = ast.parse(file.read_text())
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.partition(".")[0])
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_is_below_it(package: str) -> None:
    folder, allowed = PACKAGES[package]
    files = list(folder.rglob("*.py"))
    assert files
    for file in files:
        lazy = {other for name, other in LAZY if name == file.name} - _imports(file, top_level=True)
        others = (_imports(file) & set(PACKAGES)) - {package}
        assert others <= allowed | lazy, f"{file} imports {others - allowed}"


def test_the_mathematics_does_no_input_or_output() -> None:
    world = {"socket", "grpc", "sqlite3", "sqlalchemy", "time", "datetime", "pathlib", "io"}
    assert world <= set(sys.stdlib_module_names) | {"grpc", "sqlalchemy"}
    for file in PACKAGES["ldp"][0].rglob("*.py"):
        assert _imports(file) & world == set(), file
