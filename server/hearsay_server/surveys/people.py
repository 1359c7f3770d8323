"""A table of people's answers: a CSV file with one person a row, read as a survey's devices would.

`hearsay survey init`, `check` and `explain --from`, `hearsay demo` and the page before registration
read tables here, so that they agree on what a cell is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hearsay import tables
from hearsay.plans.kinds import ByKind, Domain
from hearsay.tables import name_of as name_of
from ldp import InvalidInput

Answer = str | float | list[str] | dict[str, float]
"""An answer as an app gives it to the SDK."""

MOST_COLUMNS = 4096
"""The most columns of a table: a survey asks for at most 1,024."""


@dataclass(frozen=True)
class People:
    """A table: its columns by the name that an attribute of theirs has.

    `headings` are the columns' titles as the file has them, `columns` the cells as text, `rows` the
    lines of the file on which the rows begin, and `respelled` the cells of each column that the
    file has in another form of the same characters (`hearsay.tables.Table`).
    """

    source: str
    headings: Mapping[str, str]
    columns: Mapping[str, Sequence[str]]
    rows: Sequence[int]
    respelled: Mapping[str, frozenset[str]]

    def __len__(self) -> int:
        return len(self.rows)


def read(file: Path) -> People:
    """Read a CSV file, also one that gzip compressed (`.csv.gz`); raise `InvalidInput` as `parse`,
    and where the file cannot be read."""
    return _named(tables.read(file))


def parse(text: str, source: str) -> People:
    """Read the text of a CSV file, as `hearsay.tables.parse` does.

    A column called "Hours per week" has the name hours_per_week. Raises `InvalidInput` that starts
    with `source` also for two columns with one name.
    """
    return _named(tables.parse(text, source))


def _named(table: tables.Table) -> People:
    """Return a table with the names of its columns."""
    if len(table.headings) > MOST_COLUMNS:
        raise InvalidInput(
            f"{table.source} has {len(table.headings):,} columns: at most {MOST_COLUMNS:,} are read"
        )
    headings: dict[str, str] = {}
    for position, title in enumerate(table.headings, 1):
        name = name_of(title, position)
        if name in headings:
            raise InvalidInput(
                f"{table.source}: columns {headings[name]!r} and {title!r} (column {position}) "
                f"both have the name {name!r}: rename one of them"
            )
        headings[name] = title
    return People(
        table.source,
        headings,
        dict(zip(headings, table.columns, strict=True)),
        table.rows,
        dict(zip(headings, table.respelled, strict=True)),
    )


def answer(domain: Domain, cell: str) -> Answer:
    """Return a cell as an app would give it: of a set "mail;maps", of ratings "food=4;staff=2".

    Raises `ValueError` where a number should be and is none. Whether the answer is in the domain is
    for `domain.encode` to say.
    """
    return _READ[domain](cell)


def parts(cell: str) -> list[str]:
    """Return the items of a cell, which semicolons separate."""
    return [part.strip() for part in cell.split(";") if part.strip()]


def _rated(cell: str) -> dict[str, float]:
    rated = (part.rpartition("=") for part in parts(cell))
    return {key.strip(): tables.number(rating) for key, _, rating in rated}


_READ: ByKind[Callable[[str], Answer]] = ByKind.otherwise(
    str.strip, number=tables.number, bins=tables.number, set=parts, ratings=_rated
)
