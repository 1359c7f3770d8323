"""The files of the tree by room, and how many lines and words they have."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

PYTHON: Mapping[str, str] = {
    "client": "client/python/hearsay",
    "server": "server/hearsay_server",
    "ldp": "ldp",
    "dpsgd": "dpsgd",
    "docs scripts": "docs",
}
"""Rooms of Python source by name; tests, examples and conformance vectors are none."""

GENERATED = "client/python/hearsay/v1"
"""What is made from the wire is no source."""

ANALYST = ROOT / "protos/hearsay/v1/analyst.proto"


def python(room: str) -> list[Path]:
    """Return the files of Python below a folder, without generated ones."""
    found = sorted((ROOT / room).rglob("*.py"))
    return [file for file in found if ROOT / GENERATED not in file.parents]


def sources() -> list[Path]:
    """Return all files of Python source."""
    return [file for room in PYTHON.values() for file in python(room)]


def typescript(folder: str) -> list[Path]:
    """Return the files of TypeScript and JavaScript in `src` or `test` of the web client."""
    found = (ROOT / "client/web" / folder).rglob("*")
    return sorted(file for file in found if file.suffix in (".ts", ".js", ".mjs"))


def tests() -> list[Path]:
    """Return the files of Python below `tests`: tests, what they share, and measures."""
    return python("tests")


def test_files() -> list[Path]:
    """Return the files that have tests of Python."""
    return [file for file in tests() if file.name.startswith("test_")]


def named_after_source() -> list[Path]:
    """Return the files of tests whose name is that of a source file: `test_krr.py` of `krr.py`."""
    stems = {file.stem.strip("_") for file in [*sources(), *python("examples")]}
    return [file for file in test_files() if file.stem.removeprefix("test_") in stems]


def pages() -> list[Path]:
    """Return the documentation: the README and all pages below `docs`."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def lines(files: Iterable[Path]) -> int:
    """Return the lines of some files, as `wc -l` counts them."""
    return sum(file.read_bytes().count(b"\n") for file in files)


def words(files: Iterable[Path]) -> int:
    """Return the words of some files, as `wc -w` counts them: what stands between spaces."""
    return sum(len(_written(file).split()) for file in files)


def _written(page: Path) -> str:
    """Return a page without the table of these measures, which must not count itself."""
    before, found, rest = page.read_text(encoding="utf-8").partition("<!-- measures -->\n")
    return before + rest.partition("<!-- end -->")[2] if found else before


def messages(proto: Path = ANALYST) -> list[str]:
    """Return the messages that a file of the wire declares, those inside others included."""
    return re.findall(r"^\s*message (\w+)", proto.read_text(encoding="utf-8"), re.M)


def responses(proto: Path = ANALYST) -> Sequence[str]:
    """Return what calls of a file of the wire answer with, each kind once."""
    found = re.findall(r"returns \((?:stream )?(\w+)\)", proto.read_text(encoding="utf-8"))
    return list(dict.fromkeys(found))


def naming(pattern: str, files: Iterable[Path]) -> Iterator[Path]:
    """Yield the files in whose text a regular expression is found."""
    wanted = re.compile(pattern)
    return (file for file in files if wanted.search(file.read_text(encoding="utf-8")))
