"""The longest functions, from the line of `def` to the last one, docstring included.

`python -m measuring.functions` in the folder `tests` lists the twenty longest.
"""

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from measuring.files import ROOT, lines, sources


@dataclass(frozen=True, order=True)
class Function:
    """A function, or a method with its class: lines, name, and the file with its line."""

    lines: int
    name: str
    place: str


def longest(count: int) -> Sequence[Function]:
    """Return the longest functions of the packages, the longest first."""
    found: list[Function] = []
    sizes = sorted(((lines([file]), file) for file in sources()), reverse=True)
    for size, file in sizes:
        # No function is longer than its file: most files need not be parsed.
        if len(found) == count and size <= found[-1].lines:
            break
        found += _functions(ast.parse(file.read_text(encoding="utf-8")), file, "")
        found = sorted(found, reverse=True)[:count]
    return found


def _functions(tree: ast.AST, file: Path, within: str) -> Iterator[Function]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            place = f"{file.relative_to(ROOT)}:{node.lineno}"
            yield Function(node.end_lineno - node.lineno + 1, within + node.name, place)
        if isinstance(node, ast.stmt):  # expressions hold no functions with a name
            inner = f"{node.name}." if isinstance(node, ast.ClassDef) else within
            yield from _functions(node, file, inner)


if __name__ == "__main__":
    sys.stdout.writelines(f"{f.lines:4} {f.name} {f.place}\n" for f in longest(20))
