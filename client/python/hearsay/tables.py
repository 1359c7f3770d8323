"""A table that somebody brings, as CSV: all commands that take one read it here.

What can be read in one way only is read, however a spreadsheet writes it. All else is refused with
its place in the file.
"""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hearsay import files
from hearsay.plans.texts import normal
from ldp.errors import InvalidInput

_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}

_DECLARED = re.compile(r'"?sep=(.)\1*"?[ \t]*(?:\r\n|\r|\n|\Z)', re.IGNORECASE)
"""The first line by which spreadsheets say, or are told, what separates the columns."""


@dataclass(frozen=True)
class Table:
    """A table of one row or more: its columns' headings, and their cells as text.

    Cells and headings have no blanks at their ends, and characters in Unicode's form NFC.
    `rows` are the lines of the file on which the rows begin; its first line is 1. `respelled` are
    the cells of each column that the file has in another form of the same characters.
    """

    source: str
    headings: tuple[str, ...]
    columns: tuple[Sequence[str], ...]
    rows: Sequence[int]
    respelled: tuple[frozenset[str], ...]


def read(file: Path) -> Table:
    """Read a CSV file, also one that gzip compressed; raise `InvalidInput` as `parse` does."""
    return parse(files.read(file), str(file))


def parse(text: str, source: str) -> Table:
    """Read CSV: columns separated by commas or as a first line "sep=;" says, then the headings.

    Blank lines are left out. Raises `InvalidInput` that starts with `source` and has the row, for
    quotes that do not end, a row with more or fewer cells than the heading, two columns with one
    heading, and a table without rows.
    """
    separator, text, first = _separator(text, source)
    lines = _rows(text, separator, first, source)
    place, headings = next(((at, line) for at, line in lines if any(line)), (0, []))
    if not headings:
        raise InvalidInput(f"{source} is empty: the first row of a table names its columns")
    _check_headings(headings, separator, f"{source}, row {place}")
    rows, cells = [], []
    for row, line in lines:
        if len(line) != len(headings):
            if line == [""]:
                continue
            raise InvalidInput(f"{source}, row {row} {_ragged(line, headings)}")
        rows.append(row)
        cells.append(line)
    if not rows:
        raise InvalidInput(f"{source} has no rows below its heading")
    columns = tuple(zip(*cells, strict=True))
    respelled = tuple(frozenset[str]() for _ in headings)
    if not text.isascii():
        respelled = tuple(
            frozenset(normal(cell) for cell in {*column} if normal(cell) != cell)
            for column in columns
        )
        columns = tuple(tuple(map(normal, column)) for column in columns)
    return Table(source, tuple(map(normal, headings)), columns, rows, respelled)


def find(headings: Sequence[str], name: str, source: str) -> int | None:
    """Return the place of a heading that is `name` but for case and blanks; None without one.

    Raises `InvalidInput` where there are two.
    """
    found = [place for place, heading in enumerate(headings) if _alike(heading, name)]
    if len(found) > 1:
        listed = " and ".join(repr(headings[place]) for place in found)
        raise InvalidInput(f"{source}: {listed} may both be {name!r}: rename all but one of them")
    return found[0] if found else None


def name_of(heading: str, position: int) -> str:
    """Return the name of the attribute or property that a column is for, by its heading.

    A column without a letter of a to z or a digit is called by its position, from 1 on.
    """
    name = re.sub("[^a-z0-9]+", "_", heading.lower()).strip("_")
    if not name:
        return f"column_{position}"
    return (name if name[0].isalpha() else f"q_{name}")[:64].rstrip("_")


def number(cell: str) -> float:
    """Return the number that a cell says; raise `ValueError` for none.

    "1_000" is one in Python alone: in a table it is a code.
    """
    if "_" in cell:
        raise ValueError("a number has no underscores")
    return float(cell)


def declares_separator(line: str) -> bool:
    """Whether the first line of a text says what separates a table's columns, as "sep=;"."""
    return _DECLARED.match(line) is not None


def _alike(one: str, other: str) -> bool:
    first, second = ("".join(normal(text).casefold().split()) for text in (one, other))
    return first == second


def _separator(text: str, source: str) -> tuple[str, str, int]:
    """Return what separates columns, the text from the heading on, and the number of its line."""
    declared = _DECLARED.match(text)
    if declared is None:
        return ",", text, 1
    if declared[1] not in _SEPARATORS:
        raise InvalidInput(
            f"{source}, line 1: columns are separated by {', '.join(_SEPARATORS.values())}, got "
            f"{declared[0].strip()!r}"
        )
    return declared[1], text[declared.end() :], 2


def _rows(text: str, separator: str, first: int, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row after the line on which it begins; a blank line is a row of one blank cell."""
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=separator, skipinitialspace=True, strict=True
    )
    while True:
        row = first + reader.line_num
        try:
            line = next(reader, None)
        except csv.Error as error:
            raise InvalidInput(f"{source}, row {row}: {_quotes(error)}") from None
        if line is None:
            return
        if line:
            yield row, [cell.strip() for cell in line]


def _quotes(error: csv.Error) -> str:
    limit = csv.field_size_limit()
    if "limit" in str(error):
        return f'a cell has more than {limit:,} characters: perhaps a quote (") does not end'
    return f'{error}: a quote within a quoted cell is written twice ("")'


def _check_headings(headings: Sequence[str], separator: str, place: str) -> None:
    for other, words in _SEPARATORS.items():
        if len(headings) == 1 and other in headings[0]:
            raise InvalidInput(
                f"{place}: the heading has one column, {headings[0]!r}: save the table with "
                f"columns separated by {_SEPARATORS[separator]}, not by {words}"
            )
    counts = Counter(normal(heading) for heading in headings if heading)
    if twice := next((heading for heading, count in counts.items() if count > 1), None):
        raise InvalidInput(f"{place}: two columns are called {twice!r}: rename one of them")


def _ragged(line: Sequence[str], headings: Sequence[str]) -> str:
    """Say at which column a row has a cell too many or too few."""
    cells = "1 cell" if len(line) == 1 else f"{len(line):,} cells"
    given = f"has {cells}, the heading has {len(headings):,}"
    if len(line) < len(headings):
        return f"{given}: {headings[len(line)]!r} (column {len(line) + 1}) is missing"
    return (
        f"{given}: {line[len(headings)]!r} is in column {len(headings) + 1}; write a cell with a "
        'comma in quotes, as "one, two"'
    )
