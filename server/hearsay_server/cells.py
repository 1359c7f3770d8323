"""Tables of answers as people are shown them: numbers with their names, rounded, exact beside."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hearsay.asking.answer import Answer, Column, Table
from hearsay.asking.columns import MOST_ROWS

_HEADINGS = {
    "estimate": "estimate",
    "standard_error": "std. error",
    "p_value": "p",
    "adjusted_p_value": "p (Holm)",
    "pvalue": "p",
    "dof": "degrees of freedom",
    "effective_sample_size": "effective n",
    "shift_down": "forged down",
    "shift_up": "forged up",
    "alike": "pooled",
    "share": "who rated",
    "with_twice": "std. error with twice as many",
    "reports_for_goal": "reports for the goal",
    "independent": "if independent",
    "epsilon": "local epsilon",
    "shuffled_epsilon": "mixed epsilon",
    "first_group": "first group",
    "second_group": "second group",
}
_ENDS = {
    "low": ("high", "interval"),
    "alike_low": ("alike_high", "pooled interval"),
    "share_low": ("share_high", "interval"),
}
_LEFT_OUT = {"share_standard_error", "unweighted_standard_error"}
_FIRST = {"estimate": 0, "difference": 0, "slope": 0, "low": 1}
"""Columns that stand first, the interval right of what it is of; the others keep their order."""

_LESSER = {
    "standard_error",
    "effective_sample_size",
    "p_value",
    "mix",
    "z",
    "noncentrality",
    "detectable",
}
"""Columns that narrow screens leave out: others or the notes say as much, as of a p-value where a
corrected one is beside it."""

_COUNTED = {"effective_sample_size", "reports_for_goal", "records", "reports", "dof"}
"""Columns of numbers without decimals."""

_BOUNDS = {"epsilon", "shuffled_epsilon"}
"""Columns of numbers that hold as upper bounds."""

LABEL, NUMBER, LESSER = "", "number", "number lesser"
"""What a column is: labels, numbers, or numbers that narrow screens leave out."""


@dataclass(frozen=True)
class Cell:
    """A cell: text, or numbers as (exact, rounded)."""

    text: str = ""
    numbers: tuple[tuple[str, str], ...] = ()
    kind: str = NUMBER

    @property
    def plain(self) -> str:
        """The cell as a text: its numbers rounded."""
        return " to ".join(rounded for _, rounded in self.numbers) if self.numbers else self.text


@dataclass(frozen=True)
class Shown:
    """A table to be shown: headings with the kinds of their columns, rows, and how many are not
    shown."""

    headings: list[tuple[str, str]]
    rows: list[list[Cell]]
    more: int


def lesser(table: Table) -> set[str]:
    """Return the columns that narrow screens leave out: others say as much, or nearly."""
    return _LESSER if "adjusted_p_value" in table.names else _LESSER - {"p_value"}


def shown(
    answer: Answer, table: Table, most: int = MOST_ROWS, without: Collection[str] = ()
) -> Shown:
    """Return a table of an answer with `most` rows at most, those of the smallest p-values, or of
    the largest estimates, in their order, `without` the columns of these names."""
    places = _places(table, most)
    hidden = {high for high, _ in _ENDS.values()} | _LEFT_OUT | set(without)
    small = lesser(table)
    columns = {column.name: column for column in table.columns}
    shown = [column for column in table.columns if column.name not in hidden]
    shown.sort(key=lambda column: _FIRST.get(column.name, len(_FIRST)))
    interval = f"{100 * answer.confidence:g}% " if answer.confidence else ""
    interval = f"simultaneous {interval}" if answer.simultaneous else interval
    index = [(level.name, list(map(_label, level.labels))) for level in table.index]
    if [name for name, _ in index] == ["left", "right"]:
        index = [(answer.attribute, ranges(*(level.labels for level in table.index)))]
    headings = [(_HEADINGS.get(name, name), LABEL) for name, _ in index]
    for column in shown:
        heading = _HEADINGS.get(column.name, column.name.replace("_", " "))
        if column.name in _ENDS:
            heading = interval + _ENDS[column.name][1]
        elif column.name == "estimate":
            heading = table.statistic or answer.statistic or "estimate"
        headings.append((heading, LABEL if column.role == "text" else _kind(column, small)))
    rows = [
        [Cell(labels[place]) for _, labels in index]
        + [_cell(column, columns, place, small) for column in shown]
        for place in places
    ]
    return Shown(headings, rows, len(table) - len(places))


def ranges(left: Sequence[Any], right: Sequence[Any]) -> list[str]:
    """Return bins in words: "0 to under 5" where the next one begins at 5, and "0 to 4" where 4 is
    the last number of the bin."""
    found = []
    for place, (low, high) in enumerate(zip(left, right, strict=True)):
        under = place + 1 < len(left) and left[place + 1] == high
        found.append(
            number(low) if low == high else f"{number(low)} to {'under ' * under}{number(high)}"
        )
    return found


def _places(table: Table, most: int) -> list[int]:
    """Return the places of the rows that are shown, in their order."""
    if len(table) <= most:
        return list(range(len(table)))
    if "p_value" in table.names:
        order = np.asarray(table.column("p_value").values, dtype=float)
    elif "estimate" in table.names:
        order = -np.asarray(table.column("estimate").values, dtype=float)
    else:
        return list(range(most))
    return sorted(np.argsort(order, kind="stable")[:most].tolist())  # nan is last


def _cell(column: Column, columns: dict[str, Column], place: int, small: set[str]) -> Cell:
    value = column.values[place]
    if isinstance(value, str):
        return Cell(value)
    if column.name in _ENDS:
        ends = [float(value), float(columns[_ENDS[column.name][0]].values[place])]
        if all(map(math.isnan, ends)):
            ends = ends[:1]
        return Cell(numbers=tuple((repr(end), _rounded(end, column)) for end in ends))
    number = float(value)
    return Cell(numbers=((repr(number), _rounded(number, column)),), kind=_kind(column, small))


def _kind(column: Column, small: set[str]) -> str:
    return LESSER if column.name in small else NUMBER


def number(value: float) -> str:
    """Return the number of a label, as `hearsay.plans.points` writes it."""
    return f"{value:.10g}"


def _label(value: object) -> str:
    return number(value) if isinstance(value, float) else str(value)


def _rounded(value: float, column: Column) -> str:
    """Return a number with four decimals, a bound never below itself, a test's with four digits, a
    p-value with two; a dash for none."""
    if math.isnan(value):
        return "\u2013"
    if column.name in _COUNTED:
        return f"{value:,.0f}"
    if column.name in _BOUNDS:
        return f"{math.ceil(value * 1e4) / 1e4:.4f}"
    if column.role == "p":
        return f"{value:.2g}"
    if column.role == "statistic":
        return f"{value:.4g}"
    return f"{value:.4f}" if abs(value) < 10_000 else f"{value:,.1f}"
