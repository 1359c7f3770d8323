"""Count the places that tell a kind of attribute by its class, by its field on the wire or by name.

`python tests/measuring/kinds.py` lists them, and how many there are.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("client/python/hearsay", "server/hearsay_server", "dpsgd")
CLASSES = {"Categorical", "Numeric", "Binned", "SetOf", "Ratings", "Strings", "Grid", "Domain"}
FIELDS = {"domain", "categorical", "numeric", "set", "ratings", "strings"}
NAMES = {"category", "number", "bins", "set", "ratings", "words", "grid"}
ROOM = ROOT / "client/python/hearsay/plans/kinds"


def sites() -> list[str]:
    """Return each place as `file:line: code`, but those in the room of the kinds itself.

    A check of a mechanism's class by a name that a kind has too, as `ldp.Categorical`, is none.
    Nor is `Kind.expected`, by which a place refuses all kinds but one: a new kind is refused there
    with words, and cannot be forgotten.
    """
    files = sorted(file for folder in SOURCES for file in (ROOT / folder).rglob("*.py"))
    return [
        f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}"
        for file in files
        if ROOM not in file.parents
        if "hearsay.plans" in (text := file.read_text())
        or "HasField" in text
        or "WhichOneof" in text
        for node in _sites(ast.parse(text))
    ]


def _sites(tree: ast.Module) -> Iterator[ast.expr]:
    classes = _imported(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, of]):
                if _named(of, classes):
                    yield node
            case ast.Compare(left=ast.Call(func=ast.Name(id="type")), comparators=[of]):
                if _named(of, classes):
                    yield node
            case ast.Dict(keys=keys) if any(key and _named(key, classes) for key in keys):
                yield node
            case ast.Call(func=ast.Attribute(attr="HasField" | "WhichOneof"), args=[of]):
                if isinstance(of, ast.Constant) and of.value in FIELDS:
                    yield node
            case ast.MatchClass(cls=of) if _named(of, classes):
                yield of
            case ast.Compare(left=ast.Attribute(value=ast.Name(id=name), attr="name")):
                texts = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
                if name in ("domain", "kind") and texts & NAMES:
                    yield node


def _imported(tree: ast.Module) -> set[str]:
    """Return what a file calls the classes of kinds: bare, or by the name of their module."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hearsay.plans"):
            for alias in node.names:
                name = alias.asname or alias.name
                if alias.name in CLASSES:
                    found.add(name)
                elif alias.name == "kinds":
                    found |= {f"{name}.{each}" for each in CLASSES}
    return found


def _named(of: ast.expr, classes: set[str]) -> bool:
    return any(
        ast.unparse(node) in classes
        for node in ast.walk(of)
        if isinstance(node, ast.Name | ast.Attribute)
    )


if __name__ == "__main__":
    found = sites()
    sys.stdout.write("\n".join([*found, f"{len(found)} places\n"]))
