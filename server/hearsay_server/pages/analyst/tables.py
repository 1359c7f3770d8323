"""Tables of `Analyst` as a page shows them: numbers with their names, rounded, and exact beside."""

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from hearsay.asking.columns import MOST_ROWS
from hearsay_server import spreadsheets

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
    "first_group": "first group",
    "second_group": "second group",
}
_WHOLE = {"effective_sample_size", "reports_for_goal", "reports", "dof"}
_P = {"p_value", "adjusted_p_value", "pvalue"}
_ENDS = {
    "low": ("high", "interval"),
    "alike_low": ("alike_high", "pooled interval"),
    "share_low": ("share_high", "interval"),
}
_LEFT_OUT = {"share_standard_error", "unweighted_standard_error"}
_FIRST = {"estimate": 0, "difference": 0, "slope": 0, "low": 1}
"""Columns that stand first, the interval right of what it is of; the others keep their order."""

_LESSER = {"standard_error", "effective_sample_size"}
"""Columns that small screens leave out: the interval says as much."""


@dataclass(frozen=True)
class Cell:
    """A cell: text, or numbers as (exact, rounded)."""

    text: str = ""
    numbers: tuple[tuple[str, str], ...] = ()
    kind: str = "number"


@dataclass(frozen=True)
class Shown:
    """A table for a page: headings with the classes of their columns, rows, and how many are not
    shown."""

    headings: list[tuple[str, str]]
    rows: list[list[Cell]]
    more: int


def shown(table: pd.DataFrame) -> Shown:
    """Return a table for a page: of many rows those of the largest estimates."""
    more = max(0, len(table) - MOST_ROWS)
    order = "p_value" if "p_value" in table.columns else "estimate"
    if more and order in table.columns:
        least = table[order] if order == "p_value" else -table[order]
        places = sorted(least.reset_index(drop=True).nsmallest(MOST_ROWS).index)
        table = table.iloc[places]
    else:
        table = table.iloc[:MOST_ROWS]
    hidden = {high for high, _ in _ENDS.values()} | _LEFT_OUT
    columns = [name for name in table.columns if name not in hidden]
    columns.sort(key=lambda name: _FIRST.get(name, len(_FIRST)))
    confidence = f"{100 * table.attrs['confidence']:g}% " if "confidence" in table.attrs else ""
    names = [str(name or "") for name in table.index.names]
    statistic = str(table.attrs.get("statistic") or "estimate")
    headings = [(_HEADINGS.get(name, name), "") for name in names]
    for column in columns:
        title = _HEADINGS.get(column, column.replace("_", " "))
        if column in _ENDS:
            title = confidence + _ENDS[column][1]
        elif column == "estimate":
            title = statistic
        headings.append((title, "" if column == "period" else _kind(column)))
    rows = []
    for index, row in table.iterrows():
        labels = index if isinstance(index, tuple) else (index,)
        cells = [Cell(_label(each)) for each in labels]
        cells += [_cell(row, column) for column in columns]
        rows.append(cells)
    return Shown(headings, rows, more)


def _cell(row: "pd.Series[Any]", column: str) -> Cell:
    value = row[column]
    if isinstance(value, str):
        return Cell(value)
    if column in _ENDS:
        ends: tuple[float, ...] = (value, row[_ENDS[column][0]])
        if all(map(math.isnan, ends)):
            ends = ends[:1]
        return Cell(numbers=tuple((repr(float(end)), _rounded(end, column)) for end in ends))
    return Cell(numbers=((repr(float(value)), _rounded(value, column)),), kind=_kind(column))


def _kind(column: str) -> str:
    return "number lesser" if column in _LESSER else "number"


def _label(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _rounded(value: float, column: str) -> str:
    """Return a number with four decimals, or three digits of a p-value; a dash for none."""
    if math.isnan(value):
        return "\u2013"
    if column in _WHOLE:
        return f"{value:,.0f}"
    if column in _P:
        return f"{value:.2g}"
    return f"{value:.4f}" if abs(value) < 10_000 else f"{value:,.1f}"


def csv(table: pd.DataFrame) -> str:
    """Return a table with all its rows and digits, as CSV that a spreadsheet does not run."""
    return spreadsheets.rewritten(table.to_csv())
