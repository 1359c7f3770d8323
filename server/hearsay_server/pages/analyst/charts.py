"""What a page draws of a table of `Analyst`: plain values that `charts.js` reads.

A chart is of rows, each with a label, an estimate and the ends of its interval; None stands for a
number that there is none of.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import pandas as pd

from hearsay.asking.answer import Answer
from hearsay.asking.columns import MOST_ROWS, drawn_rows
from hearsay_server import cells
from hearsay_server.pages.words import shown

_GROUPS = 6
"""Groups beside each other; of more, such as the periods of a month, each value has a line."""

Chart = dict[str, Any]


def chart(answer: Answer) -> Chart | None:
    """Return what is drawn of an answer; None where the table says it all."""
    drawn = _DRAWN.get(answer.view)
    return drawn(answer.to_frame()) if drawn else None


def intervals(table: pd.DataFrame) -> Chart | None:
    """Return estimates with their intervals; beside them what was asked for besides."""
    more = {
        "alike": ("alike", "alike_low", "alike_high"),
        "unweighted": ("unweighted", None, None),
    }
    rows = []
    drawn = drawn_rows(table)
    for name, (_, row) in zip(_labels(drawn), drawn.iterrows(), strict=True):
        found = _row(name, row)
        for kind, (middle, low, high) in more.items():
            if middle in row and not math.isnan(row[middle]):
                found[kind] = [_number(row[middle]), *(_number(row[e]) for e in (low, high) if e)]
        if "shift_down" in row:
            found["shifted"] = [
                _number(row["low"] + row["shift_down"]),
                _number(row["high"] + row["shift_up"]),
            ]
        rows.append(found)
    return _chart("intervals", table, rows, zero=table.attrs.get("statistic") == "frequency")


def errors(table: pd.DataFrame) -> Chart | None:
    """Return estimates with one standard error to either side, now and with twice as many people.

    An interval is cut to what is possible: that of twice as many people cannot be told from it.
    """
    chart = intervals(table)
    if chart is not None:
        drawn = drawn_rows(table)
        found = dict(zip(_labels(drawn), drawn.to_dict("records"), strict=True))
        for row in chart["rows"]:
            estimate, now, twice = (
                found[row["label"]][name] for name in ("estimate", "standard_error", "with_twice")
            )
            row["low"], row["high"] = _number(estimate - now), _number(estimate + now)
            row["twice"] = [
                _number(each) for each in (estimate, estimate - twice, estimate + twice)
            ]
        chart["reach"] = "Lines reach one standard error to either side."
        chart["x"] += ", one standard error to either side"
    return chart


def quantiles(table: pd.DataFrame) -> Chart | None:
    """Return quantiles, on the axis of the number itself."""
    chart = intervals(table)
    if chart is not None:
        chart["x"] = shown(table.attrs["title"] or table.attrs["attribute"])
    return chart


def groups(table: pd.DataFrame) -> Chart | None:
    """Return the answers of groups: a panel for each value, or lines where there are many."""
    found = list(dict.fromkeys(table.index.get_level_values(0)))
    lines = len(found) > _GROUPS or table.index.names[0] == "period"
    values = table.index.get_level_values(1)
    kept = (
        table.groupby(level=1)["estimate"]
        .max()
        .nlargest(MOST_ROWS // max(1, len(found)) or 1)
        .index
    )
    rows = [
        {**_row(shown(index[1]), row), "group": shown(index[0])}
        for index, row in _indexed(table[values.isin(kept)])
    ]
    chart = _chart("lines" if lines else "groups", table, rows)
    if chart is not None:
        chart["groups"] = [shown(group) for group in found]
        chart["by"] = shown(table.index.names[0])
    return chart


def pairs(table: pd.DataFrame) -> Chart | None:
    """Return a table of two attributes: a panel for each value of the first."""
    rows = [
        {**_row(shown(index[-1]), row), "group": shown(" \u2013 ".join(map(str, index[:-1])))}
        for index, row in _indexed(table)
    ]
    chart = _chart("groups", table, rows[: 4 * MOST_ROWS])
    if chart is not None:
        chart["groups"] = list(dict.fromkeys(row["group"] for row in chart["rows"]))
        chart["by"] = shown(table.index.names[0])
    return chart


def differences(table: pd.DataFrame) -> Chart | None:
    """Return differences, or slopes, with their intervals."""
    column = "slope" if "slope" in table.columns else "difference"
    kept = drawn_rows(table)
    rows = [
        {**_row(name, row, column), "clear": bool(row["adjusted_p_value"] <= 0.05)}
        for name, (_, row) in zip(_labels(kept), kept.iterrows(), strict=True)
    ]
    chart = _chart("intervals", table, rows, zero=True)
    if chart is not None:
        chart["x"] = f"{column} of the {chart['x']}"
    return chart


def histogram(table: pd.DataFrame) -> Chart | None:
    """Return bins with their shares; the interval of a curve's bins is missing."""
    left, right = (table.index.get_level_values(name).to_numpy() for name in ("left", "right"))
    # Of whole numbers both ends belong to a bin: it reaches to where the next one begins.
    gap = float((left[1:] - right[:-1]).mean()) if len(left) > 1 else 0.0
    ends = [*left[1:], right[-1] + gap] if len(left) else []
    names = cells.ranges(left.tolist(), right.tolist())
    rows = [
        {**_row(name, row), "left": float(a), "right": float(e), "end": float(b)}
        for name, a, b, e, (_, row) in zip(names, left, right, ends, table.iterrows(), strict=True)
    ]
    chart = _chart("histogram", table, rows)
    if chart is not None:
        chart["x"] = shown(table.attrs["title"] or table.attrs["attribute"])
    return chart


def cumulative(table: pd.DataFrame) -> Chart | None:
    """Return the shares below points."""
    rows = [{**_row(cells.number(at), row), "at": float(at)} for at, row in table.iterrows()]  # type: ignore[arg-type]
    chart = _chart("cumulative", table, rows)
    if chart is not None:
        chart["x"] = shown(table.attrs["title"] or table.attrs["attribute"])
    return chart


_DRAWN: Mapping[str, Callable[[pd.DataFrame], Chart | None]] = {
    "estimate": intervals,
    "sums": intervals,
    "sizes": intervals,
    "pairs": intervals,
    "words": intervals,
    "between": intervals,
    "by": groups,
    "compare": differences,
    "change": differences,
    "trend": differences,
    "breaks": differences,
    "differences": differences,
    "joint": pairs,
    "given": pairs,
    "distribution": histogram,
    "quantiles": quantiles,
    "cdf": cumulative,
    "forecast": errors,
}
"""What is drawn, by the view of the answer."""


def _chart(
    kind: str, table: pd.DataFrame, rows: list[dict[str, Any]], *, zero: bool = False
) -> Chart | None:
    rows = [row for row in rows if row["estimate"] is not None]
    if not rows:
        return None
    attrs = table.attrs
    simultaneous = "simultaneous " if attrs.get("simultaneous") else ""
    return {
        "kind": kind,
        "title": shown(attrs.get("title") or attrs.get("attribute", "")),
        "x": shown(attrs.get("statistic") or "share"),
        "reach": f"Lines are {simultaneous}{100 * attrs['confidence']:g}% intervals.",
        "zero": zero,
        "rows": rows,
    }


def _indexed(table: pd.DataFrame) -> Iterator[tuple[tuple[Any, ...], "pd.Series[Any]"]]:
    """Yield the index and the row of each row of a table with several levels of an index."""
    for index, row in table.iterrows():
        yield cast(tuple[Any, ...], index), row


def _row(label: str, row: "pd.Series[Any]", column: str = "estimate") -> dict[str, Any]:
    return {
        "label": label,
        "estimate": _number(row[column]),
        "low": _number(row["low"]),
        "high": _number(row["high"]),
    }


def _labels(table: pd.DataFrame) -> list[str]:
    return [
        shown(" and ".join(map(str, label)) if isinstance(label, tuple) else label)
        for label in table.index
    ]


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
