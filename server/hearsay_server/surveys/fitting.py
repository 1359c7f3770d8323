"""Whether a table of people's answers fits a survey: `hearsay survey check`.

A device reports a random value in the place of an answer outside the domain, and what reads tables
(`people`) withholds it: either way the answer is lost, without an error.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from hearsay import tables
from hearsay.plans.kinds import Binned, ByKind, Categorical, Domain, Numeric, Ratings, SetOf
from hearsay.plans.plan import Plan
from hearsay_server.surveys.people import People, answer, parts
from ldp import InvalidInput

_SHOWN = 12
"""Values that a reason lists."""


@dataclass(frozen=True)
class Misfit:
    """A cell that is no answer to its question, and why not."""

    attribute: str
    row: int
    value: str
    reason: str


@dataclass(frozen=True)
class Column:
    """How one column fits: `answers` cells are in the domain, `blanks` are empty and no answer.

    `wrong` is the number of the others, and `misfits` are the first of them. Of the answers `moved`
    count as another one: as the nearer end of the range, or as `at_most` items.
    """

    attribute: str
    heading: str
    answers: int
    blanks: int
    wrong: int
    misfits: tuple[Misfit, ...]
    moved: int = 0


@dataclass(frozen=True)
class Fit:
    """How a table fits a survey. `missing` attributes have no column, `unused` columns no attribute
    and no property."""

    rows: int
    columns: tuple[Column, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]

    @property
    def wrong(self) -> int:
        """The number of cells that are neither an answer nor blank."""
        return sum(column.wrong for column in self.columns)

    @property
    def fits(self) -> bool:
        """Whether all attributes have a column, and all cells are answers or blank."""
        return not self.missing and not self.wrong


def fit(plan: Plan, people: People, most: int | None = None) -> Fit:
    """Compare each cell of a table with its attribute's domain; list `most` misfits of a column.

    A cell is an answer if and only if `people.answer` reads one that the domain encodes, as in
    `hearsay demo --csv`. Cost: each different cell of a column is encoded once.
    """
    asked = {**plan.attributes, **{each.name: each for each in plan.properties.declared}}
    return Fit(
        rows=len(people),
        columns=tuple(
            _column(name, attribute.domain, people, most)
            for name, attribute in plan.attributes.items()
            if name in people.columns
        ),
        missing=tuple(name for name in plan.attributes if name not in people.columns),
        unused=tuple(people.headings[name] for name in people.columns if name not in asked),
    )


def _column(name: str, domain: Domain, people: People, most: int | None) -> Column:
    known = cache(lambda cell: _judged(domain, cell))
    totals: Counter[str] = Counter()
    misfits: list[Misfit] = []
    for row, cell in zip(people.rows, people.columns[name], strict=True):
        kind, reason = known(cell)
        totals[kind] += 1
        if kind == "misfit" and (most is None or len(misfits) < most):
            misfits.append(Misfit(name, row, cell, reason))
    return Column(
        name,
        people.headings[name],
        totals["answer"] + totals["moved"],
        totals["blank"],
        totals["misfit"],
        tuple(misfits),
        totals["moved"],
    )


def _judged(domain: Domain, cell: str) -> tuple[str, str]:
    """Return what a cell is ("answer", "moved", "blank" or "misfit"), and why it is a misfit."""
    try:
        given = answer(domain, cell)
        domain.encode(given)
    except InvalidInput as error:
        reason = str(error).partition(", got ")[0]
    except ValueError:
        reason = f"must {_CELLS[domain].must}"
    else:
        return "moved" if _CELLS[domain].moves(domain, given) else "answer", ""
    if not cell.strip():
        return "blank", ""
    return "misfit", "; ".join([reason, *_CELLS[domain].hints(domain, cell)])


def _outside(domain: Numeric | Binned, given: float) -> bool:
    return not domain.low <= given <= domain.high


def _too_many(domain: SetOf | Ratings, given: Iterable[str]) -> bool:
    return len(set(given)) > domain.most


def _meant_item(domain: SetOf, cell: str) -> Iterator[str]:
    odd = next((part for part in parts(cell) if part not in domain.values), None)
    if odd is not None:
        yield f"{odd!r} is none of them"
        yield from _meant(domain.values, odd)


def _meant_value(domain: Categorical, cell: str) -> Iterator[str]:
    return _meant(domain.values, cell.strip())


def _meant(values: tuple[str, ...], text: str) -> Iterator[str]:
    try:
        whole = tables.number(text)
    except ValueError:
        pass
    else:
        if whole.is_integer() and str(int(whole)) in values:
            yield f"write {int(whole)}, without the decimal point"
    for value in values:
        if value != text and value.casefold() == text.casefold():
            yield f"the survey has {value!r}"


@dataclass(frozen=True)
class _Cells:
    """How cells of a kind are judged.

    `moves` is whether an answer of the domain counts as another one, `hints` are what a misfit may
    have been meant for, and `must` is what a cell lacks that cannot be read.
    """

    moves: Callable[[Any, Any], bool] = lambda domain, given: False
    hints: Callable[[Any, str], Iterable[str]] = lambda domain, cell: ()
    must: str = "be a number"


_CELLS = ByKind(
    category=_Cells(hints=_meant_value),
    number=_Cells(moves=_outside),
    bins=_Cells(moves=_outside),
    set=_Cells(moves=_too_many, hints=_meant_item),
    ratings=_Cells(moves=_too_many, must="have a number after each ="),
    words=_Cells(),
    grid=_Cells(),
)
