"""Known shares of the population, by public properties, which answers are weighted to."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path

from hearsay import tables
from hearsay.tables import Table, name_of
from hearsay.v1 import analyst_pb2
from ldp.errors import InvalidInput

Names = str | tuple[str, ...]
"""One name or value, or a tuple of several."""

Margins = Mapping[Names, Mapping[Names, float]]
"""Margins by the property that they are of, or by a tuple of several; each has the share of the
population by value, or by a tuple of values: {"platform": {"ios": 0.3, "android": 0.7}}. A series
of pandas is such a mapping."""

_SHARE, _COUNT = "share", "count"


def messages(margins: Margins) -> list[analyst_pb2.Margin]:
    """Return margins as a request has them; raise `InvalidInput` for what is not one."""
    if not isinstance(margins, Mapping):
        raise InvalidInput(
            "margins are a mapping of a property, or a tuple of several, to the share of each "
            f"value, got {margins!r}"
        )
    found = []
    for names, shares in margins.items():
        properties = _several(names, "a margin's properties")
        what = f"the margin of {names!r}"
        if not hasattr(shares, "items"):
            raise InvalidInput(f"{what} must have a share by value, got {shares!r}")
        margin = analyst_pb2.Margin(properties=properties)
        for values, share in shares.items():
            own = _several(values, f"the values of a row of {what}")
            number = isinstance(share, Real) and not isinstance(share, bool)
            if not (number and math.isfinite(share) and share >= 0):
                raise InvalidInput(
                    f"{what} must have shares that are numbers >= 0, got {share!r} for {values!r}"
                )
            margin.rows.add(values=own, share=float(share))
        found.append(margin)
    return found


def read_margins(files: Sequence[Path | str]) -> Margins:
    """Read margins from CSV files, one from each.

    The columns are one property or several, whose combinations the rows are, and last "share", of
    the population, or "count", of its people, which is divided by the sum. An empty value stands
    for respondents whose app gave none. Raises `InvalidInput` as `hearsay.tables.parse`, and for
    another heading, what is no number >= 0, a row that is there twice, and a margin that two files
    have.
    """
    return _margins(tables.read(Path(file)) for file in files)


def parsed_margins(named: Sequence[tuple[str, str]]) -> Margins:
    """Return the margins of CSV texts, each after its name in errors; raise as `read_margins`."""
    return _margins(tables.parse(text, source) for source, text in named)


def _margins(given: Iterable[Table]) -> Margins:
    found: dict[Names, Mapping[Names, float]] = {}
    for table in given:
        names, shares = _margin(table)
        if names in found:
            raise InvalidInput(
                f"{table.source}: another table has the margin of {', '.join(names)} already"
            )
        found[names] = shares
    return found


def _margin(table: Table) -> tuple[tuple[str, ...], Mapping[Names, float]]:
    *titles, kind = table.headings
    names = tuple(name_of(title, place) for place, title in enumerate(titles, 1))
    kind = kind.casefold()
    if not names or kind not in (_SHARE, _COUNT):
        raise InvalidInput(
            f'{table.source}: the heading must be properties and then "{_SHARE}" or "{_COUNT}", '
            f"such as platform,{_SHARE}; got {','.join(table.headings)}"
        )
    shares: dict[Names, float] = {}
    for row, *values, number in zip(table.rows, *table.columns, strict=True):
        of = tuple(values)
        if of in shares:
            raise InvalidInput(f"{table.source}, row {row}: {', '.join(of)} is there twice")
        shares[of] = _number(number)
        if not 0 <= shares[of] < math.inf:
            raise InvalidInput(
                f"{table.source}, row {row}: {number!r} is no {kind}: expected a number >= 0, such "
                "as 0.31"
            )
    if kind == _COUNT:
        total = sum(shares.values())
        if not 0 < total < math.inf:
            raise InvalidInput(
                f"{table.source}: the counts must have a positive sum, got {total:g}"
            )
        shares = {values: number / total for values, number in shares.items()}
    return names, shares


def _number(text: str) -> float:
    """Return the number that a cell says; nan for none."""
    try:
        return tables.number(text)
    except ValueError:
        return math.nan


def _several(names: object, what: str) -> tuple[str, ...]:
    several = names if isinstance(names, tuple) else (names,)
    if not all(isinstance(name, str) for name in several):
        raise InvalidInput(f"{what} must be a string, or a tuple of strings, got {names!r}")
    return several
