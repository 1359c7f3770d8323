"""A table of people's answers: a CSV file with one person a row, read as a survey's devices would.

`hearsay survey init`, `hearsay survey check`, `hearsay demo` and the page before registration read
tables here, so that they agree on what a cell is.
"""

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hearsay.plans.domains import Binned, Domain, Numeric, Ratings, SetOf
from ldp import InvalidInput

Answer = str | float | list[str] | dict[str, float]
"""An answer as an app gives it to the SDK."""

MOST_COLUMNS = 4096
"""The most columns of a table: a survey asks for at most 1,024."""

_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "bars"}


@dataclass(frozen=True)
class People:
    """A table: its columns by the name that an attribute of theirs has.

    `headings` are the columns' titles as the file has them. `columns` are the cells as text,
    without the spaces before them. `rows` are the numbers of the rows in the file, of which the
    heading is row 1.
    """

    source: str
    headings: Mapping[str, str]
    columns: Mapping[str, Sequence[str]]
    rows: Sequence[int]

    def __len__(self) -> int:
        return len(self.rows)


def read(file: Path) -> People:
    """Read a CSV file, also one that gzip compressed (`.csv.gz`).

    Raises `InvalidInput` as `parse`, and where the file cannot be read.
    """
    try:
        data = file.read_bytes()
        if file.suffix == ".gz":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidInput(f"cannot read {file}: {error}") from None
    return parse(data, str(file))


def parse(data: bytes, source: str) -> People:
    """Read the bytes of a CSV file: UTF-8, columns separated by commas, the first row names them.

    Empty rows are left out. A column called "Hours per week" has the name hours_per_week. Raises
    `InvalidInput` that starts with `source`, with the row and where there is one the column, for
    other bytes, quotes that do not end, a row with more or fewer cells than the heading, columns
    without a title or with one name, and a table without rows.
    """
    lines = _rows(_text(data, source), source)
    heading_row, heading = next(lines, (0, []))
    if not heading:
        raise InvalidInput(f"{source} is empty: the first row of a table names its columns")
    headings = _headings(heading, heading_row, source)
    rows: list[int] = []
    cells: list[list[str]] = []
    for row, line in lines:
        if len(line) != len(headings):
            raise InvalidInput(f"{source}, row {row}: {_ragged(line, list(headings.values()))}")
        rows.append(row)
        cells.append(line)
    if not rows:
        raise InvalidInput(f"{source} has no rows below its heading")
    columns = zip(*cells, strict=True)
    return People(source, headings, dict(zip(headings, columns, strict=True)), rows)


def name_of(heading: str, position: int) -> str:
    """Return the name of the attribute that a column is for, by its title.

    A column without a letter of a to z or a digit is called by its position, from 1 on.
    """
    name = re.sub("[^a-z0-9]+", "_", heading.lower()).strip("_")
    if not name:
        return f"column_{position}"
    return (name if name[0].isalpha() else f"q_{name}")[:64].rstrip("_")


def answer(domain: Domain, cell: str) -> Answer:
    """Return a cell as an app would give it: of a set "mail;maps", of ratings "food=4;staff=2".

    Raises `ValueError` where a number should be and is none. Whether the answer is in the domain is
    for `domain.encode` to say.
    """
    if isinstance(domain, Numeric | Binned):
        return float(cell)
    if isinstance(domain, SetOf):
        return parts(cell)
    if isinstance(domain, Ratings):
        rated = (part.rpartition("=") for part in parts(cell))
        return {key.strip(): float(rating) for key, _, rating in rated}
    return cell.strip()


def parts(cell: str) -> list[str]:
    """Return the items of a cell, which semicolons separate."""
    return [part.strip() for part in cell.split(";") if part.strip()]


def _text(data: bytes, source: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        lines = data[: error.start].decode("utf-8", "replace").split("\n")
        raise InvalidInput(
            f"{source}, line {len(lines)}, character {len(lines[-1]) + 1}: byte "
            f"0x{data[error.start]:02x} is no UTF-8: save the table as CSV in UTF-8"
        ) from None
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise InvalidInput(f"{source}, line {line}: has a zero byte: this is no CSV file")
    return text


def _rows(text: str, source: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each row that is not empty after its number."""
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    row = 0
    try:
        for line in reader:
            row += 1
            if line:
                yield row, line
    except csv.Error as error:
        raise InvalidInput(
            f"{source}, row {row + 1} (line {reader.line_num}): {error}: a quote within a quoted "
            'cell is written twice ("")'
        ) from None


def _headings(heading: Sequence[str], row: int, source: str) -> dict[str, str]:
    """Return the columns' titles by their names."""
    if len(heading) > MOST_COLUMNS:
        raise InvalidInput(
            f"{source} has {len(heading):,} columns: at most {MOST_COLUMNS:,} are read"
        )
    for separator, words in _OTHER_SEPARATORS.items():
        if len(heading) == 1 and separator in heading[0]:
            raise InvalidInput(
                f"{source}, row {row}: the heading has one column, {heading[0]!r}: save the table "
                f"with columns separated by commas, not by {words}"
            )
    headings: dict[str, str] = {}
    for position, title in enumerate(heading, 1):
        name = name_of(title, position)
        if name in headings:
            raise InvalidInput(
                f"{source}, row {row}: columns {headings[name]!r} and {title!r} (column "
                f"{position}) both have the name {name!r}: rename one of them"
            )
        headings[name] = title.strip()
    return headings


def _ragged(line: Sequence[str], headings: Sequence[str]) -> str:
    """Say at which column a row has a cell too many or too few."""
    given = f"has {len(line)} cells where the heading has {len(headings)} columns"
    if len(line) < len(headings):
        return f"{given}: {headings[len(line)]!r} (column {len(line) + 1}) is missing"
    return (
        f"{given}: {line[len(headings)]!r} is in column {len(headings) + 1}; write a cell with a "
        'comma in quotes, as "one, two"'
    )
