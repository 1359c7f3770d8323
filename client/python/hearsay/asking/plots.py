"""Answers as plots: estimates with their intervals."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hearsay.asking import palette
from hearsay.asking.answer import Answer
from hearsay.asking.columns import MOST_ROWS, drawn_rows
from hearsay.asking.palette import BLUE, SKY, VERMILLION
from ldp.errors import InvalidInput

_WIDTH = 7.0
"""Inches; a panel is as high as its rows need."""

_ROW, _LINE, _LEAST, _MARGIN = 0.26, 0.14, 1.2, 1.1
"""Inches of a row of values, of each more line in its label, of the least panel, and around it."""

_LABEL, _LINES = 36, 2
"""Characters of a label in a line, and its lines."""

_LABELLED = 0.4
"""Inches between direct labels, of two lines each."""
_TITLE = 70
"""Characters of a title in a line, where labels are short."""

_MOST_LINES = 10
"""Values over time that are labelled; of more the labels could not be read."""

_MOST_GROUPS = 6
"""Groups beside each other; of more, such as the periods of a month, each value is a line."""


_DRAWN = ("shares", "sums", "below", "differences")
"""Tables that are drawn in a panel of their own, besides an answer's first one."""


def figure(*answers: Answer) -> Figure:
    """Draw answers of `Analyst` into a figure of matplotlib, one panel each or more.

    Dots are estimates, shares or p-values; lines are their intervals; a histogram has bars, and the
    shares below are a line in the band of theirs. Raises `InvalidInput` for an answer without rows,
    and for one without intervals, as a test of independence.
    """
    if not answers:
        raise InvalidInput("give one answer at least, got none")
    drawn = [panel for answer in answers for panel in _panels(answer)]
    heights = [panel.height for panel in drawn]
    whole = Figure(figsize=(_WIDTH, sum(heights)), dpi=150, layout="constrained")
    axes = whole.subplots(len(drawn), 1, squeeze=False, height_ratios=heights)
    for panel, axis in zip(drawn, axes[:, 0], strict=True):
        panel.draw(axis)
    return whole


def draw(answer: Answer, ax: Axes) -> None:
    """Draw an answer's first panel into axes of matplotlib; raise as `figure`."""
    _panels(answer)[0].draw(ax)


def _panels(answer: Answer) -> "list[_Tests | _Panel]":
    kind = _Tests if answer.view == "suspicions" else _Panel
    return [kind(table) for table in _frames(answer)]


def over_time(periods: Answer, change: Answer) -> Answer:
    """Return the estimates of periods with what `change`, a trend or breaks, found to draw over
    them: for each value the heights at either end, and the period between, "" of a line."""
    table = change.table()
    names = [column.name for column in table.columns]
    ends = ("before", "after") if "period" in names else ("first", "second")
    at = table.column("period").values if "period" in names else [""] * len(table)
    heights = [table.column(end).plain() for end in ends]
    each = zip(table.index[0].labels, *heights, at, strict=True)
    drawn = {str(label): ends for label, *ends in each}
    return replace(periods, figures={**periods.figures, "drawn": drawn})


def _frames(answer: Answer) -> Iterator[pd.DataFrame]:
    """Yield the tables of an answer that have a panel, as frames."""
    first, *others = answer.tables
    wanted = [table for table in others if table.name in _DRAWN and len(table)]
    if answer.view == "by":
        wanted = []
    if len(first) or not wanted:
        yield answer.to_frame()
    for table in wanted:
        yield answer.to_frame(table.name)


class _Tests:
    """The p-values of tests whether reports look forged, each with its number beside."""

    _LEAST, _ALPHA = 1e-12, 0.05

    def __init__(self, table: pd.DataFrame) -> None:
        if table.empty:
            raise InvalidInput(f"there is no test to draw: {table.attrs['warning']}")
        self._table = table.iloc[:MOST_ROWS]

    @property
    def height(self) -> float:
        """The panel's height in inches."""
        return _MARGIN + max(_LEAST, _ROW * len(self._table))

    def draw(self, axis: Axes) -> None:
        """Draw the table: a p-value of 1 to the left, and smaller ones to the right of it."""
        places = np.arange(len(self._table))
        told = self._table["p_value"].to_numpy()
        drawn = np.clip(told, self._LEAST, 1)
        axis.set_xscale("log")
        axis.set_xlim(1.5, self._LEAST / 30)
        axis.set_title(_wrapped("Do the stored reports look forged?", _TITLE, 1))
        axis.spines[["top", "right"]].set_visible(False)
        axis.axvline(self._ALPHA, color="black", linestyle="--", linewidth=0.8)
        axis.annotate(
            f"{self._ALPHA:g}",
            (self._ALPHA, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -2),
            textcoords="offset points",
            va="top",
            fontsize="small",
        )
        for place, p_value, at in zip(places, told, drawn, strict=True):
            is_clear = p_value <= self._ALPHA
            colour, marker = (VERMILLION, "D") if is_clear else (BLUE, "o")
            axis.hlines(place, 1, at, color=colour, linewidth=2)
            axis.plot([at], [place], marker, color=colour, markersize=6)
            axis.annotate(
                f"{p_value:.2g}",
                (at, place),
                xytext=(7, 0),
                textcoords="offset points",
                va="center",
                fontsize="small",
            )
        labels = [_shortened(f"{level}: {test}", _LABEL) for level, test in self._table.index]
        axis.set_yticks(places, labels)
        axis.set_ylim(len(labels) - 0.3, -1.0)
        axis.set_xlabel("p-value: of honest reports rarely small; diamonds are beyond the dashes")


class _Panel:
    """One table, and how much room it takes."""

    def __init__(self, table: pd.DataFrame) -> None:
        if "attribute" not in table.attrs or "low" not in table.columns:
            raise InvalidInput("a plot is of an answer with intervals")
        if table.empty:
            raise InvalidInput(
                f"{table.attrs['attribute']!r} has nothing to draw: {table.attrs['warning']}"
            )
        two = "by" in table.attrs or "other" in table.attrs
        table = _of_two_attributes(table) if two else table
        self._table = table
        names = list(table.index.names)
        self._histogram = names == ["left", "right"]
        self._cumulative = names == ["below"]
        by_group = isinstance(table.attrs.get("reports"), dict)
        self._grouped = (two or by_group) and len(names) == 2
        self._joined = len(names) > 1 and not self._histogram and not self._grouped
        changed = [name for name in ("difference", "slope") if name in table.columns]
        self._difference = changed[0] if changed else ""
        groups = table.index.get_level_values(0).nunique()
        self._lines = "drawn" in table.attrs or (
            self._grouped and names[0] != "map" and groups > _MOST_GROUPS
        )
        self._left_out = 0
        whole = self._histogram or self._cumulative or self._grouped
        if not whole:
            self._table = drawn_rows(table)
            self._left_out = len(table) - len(self._table)

    @property
    def height(self) -> float:
        """The panel's height in inches."""
        if self._histogram or self._cumulative or self._lines:
            return 3.6
        groups = self._table.index.get_level_values(0).nunique() if self._grouped else 1
        rows = sum(
            max(_ROW * max(1.0, 0.6 * groups), _ROW + _LINE * label.count("\n"))
            for label in self._labels
        )
        return _MARGIN + max(_LEAST, rows)

    @property
    def _labels(self) -> list[str]:
        if self._joined:
            each = (" and ".join(map(str, labels)) for labels in self._table.index)
            return [_shortened(label, _LABEL) for label in each]
        last = self._table.index.get_level_values(-1)
        return [_shortened(str(value), _LABEL) for value in dict.fromkeys(last)]

    def draw(self, axis: Axes) -> None:
        """Draw the table."""
        attrs = self._table.attrs
        alone = self._histogram or self._cumulative or self._lines
        taken = 0 if alone else max(map(len, self._labels))
        width = _TITLE - min(taken, _LABEL)
        axis.set_title(_wrapped(attrs["title"], width, 4))
        axis.spines[["top", "right"]].set_visible(False)
        kind = "simultaneous " if attrs.get("simultaneous") else ""
        confidence = attrs["confidence"]
        interval = f", with {kind}{100 * confidence:g}% intervals" if confidence else ""
        if self._left_out:
            interval += f"; {self._left_out:,} more are left out"
        if self._histogram:
            self._draw_histogram(axis, interval)
        elif self._cumulative:
            self._draw_cumulative(axis, interval)
        elif self._lines:
            self._draw_lines(axis, interval)
        else:
            self._draw_dots(axis, interval)

    def _draw_dots(self, axis: Axes, interval: str) -> None:
        labels = self._labels
        column = self._difference or "estimate"
        groups: Sequence[Any] = [None]
        if self._grouped:
            groups = list(dict.fromkeys(self._table.index.get_level_values(0)))
        thick = 0.7 / len(groups)
        named: list[palette.End] = []
        for number, group in enumerate(groups):
            table = self._table if group is None else self._table.loc[group]
            places = np.arange(len(table)) + (number - (len(groups) - 1) / 2) * thick
            colour, marker = palette.colour(number), palette.marker(number)
            middle, reach = _ends(table)
            if "shift_down" in table.columns:
                moved = table["low"] + table["shift_down"], table["high"] + table["shift_up"]
                axis.hlines(places, *moved, color=VERMILLION, linewidth=0.8)
            axis.errorbar(middle, places, xerr=reach, fmt="none", ecolor=colour, linewidth=2)
            axis.plot(table[column], places, marker, color=colour, markersize=6)
            # Where an interval is cut to what is possible, its estimate may lie outside of it.
            nearest = table[column].clip(table["low"], table["high"])
            axis.hlines(places, table[column], nearest, color=colour, linestyle=":")
            if group is not None:
                name = _shortened(str(group), _LABEL // 2)
                named.append(palette.End(table["high"].iloc[0], places[0], name, colour))
            if "unweighted" in table.columns:
                axis.plot(table["unweighted"], places, "D", color=VERMILLION, markersize=4)
                if number == 0:
                    low = table["unweighted"].iloc[0]
                    _beside(axis, low, places[0] + 0.25, "without weights")
        axis.set_yticks(np.arange(len(labels)), labels)
        axis.set_ylim(len(labels) - 0.4, -0.6)
        axis.grid(axis="x", alpha=0.3)
        axis.tick_params(axis="y", length=0)
        statistic = self._table.attrs["statistic"]
        if self._difference or statistic not in ("rating", "mean"):
            axis.axvline(0, color="black", linewidth=0.8)
        palette.label(axis, named, gap=_LABELLED / self.height)
        kind = statistic
        if self._difference:
            slope = self._difference == "slope"
            kind = f"{statistic} per period" if slope else f"difference in {statistic}"
        groups_of = f", by {_plain(str(self._table.index.names[0]))}" if named else ""
        forged = "; thin: with forged reports" if "shift_down" in self._table.columns else ""
        axis.set_xlabel(f"{kind}{groups_of}{interval}{forged}")

    def _draw_lines(self, axis: Axes, interval: str) -> None:
        names = list(dict.fromkeys(self._table.index.get_level_values(0)))
        named: list[palette.End] = []
        by_value = self._table.swaplevel().sort_index(level=0, sort_remaining=False)
        for number, value in enumerate(dict.fromkeys(self._table.index.get_level_values(1))):
            table = by_value.loc[value].reindex(names)
            middle, reach = _ends(table)
            places = np.arange(len(names))
            colour, marker = palette.colour(number), palette.marker(number)
            axis.plot(places, table["estimate"], color=colour, marker=marker, markersize=4)
            axis.fill_between(places, middle - reach, middle + reach, color=colour, alpha=0.2)
            known = np.flatnonzero(table["estimate"].notna().to_numpy())
            if not known.size:
                continue
            last = int(known[-1])
            at = float(table["estimate"].iloc[last])
            short = _shortened(str(value), _LABEL // 2)
            named.append(palette.End(last, at, short, colour))
            if value in (drawn := self._table.attrs.get("drawn", {})):
                first, second, at = drawn[value]
                if at:
                    begin = names.index(at)
                    steps = [[0, begin - 0.5], [begin - 0.5, len(names) - 1]]
                    for ends, height in zip(steps, (first, second), strict=True):
                        axis.plot(ends, [height] * 2, "--", color=colour)
                else:
                    axis.plot(places[[0, -1]], [first, second], "--", color=colour)
        shown = np.unique(np.linspace(0, len(names) - 1, 6).round().astype(int))
        axis.set_xticks(
            shown, [_plain(str(names[place])) for place in shown], rotation=30, ha="right"
        )
        axis.set_ylabel(f"{self._table.attrs['statistic']}{interval}")
        if len(named) <= _MOST_LINES:
            palette.label(axis, named, gap=0.1)

    def _draw_histogram(self, axis: Axes, interval: str) -> None:
        left, right = (
            self._table.index.get_level_values(name).to_numpy() for name in ("left", "right")
        )
        # Of whole numbers both ends belong to a bin: it reaches to where the next one begins.
        ends = np.append(
            left[1:], right[-1] + (left[1:] - right[:-1]).mean() if left.size > 1 else right[-1]
        )
        estimate = self._table["estimate"].to_numpy()
        axis.bar(left, estimate, ends - left, align="edge", color=SKY, edgecolor="white")
        middle, reach = _ends(self._table)
        known = ~np.isnan(reach)
        if known.any():
            axis.errorbar(
                ((left + ends) / 2)[known],
                middle[known],
                yerr=reach[known],
                fmt="none",
                ecolor=BLUE,
                capsize=2.5,
            )
        axis.set_xlabel(_plain(self._table.attrs["attribute"]))
        axis.set_ylabel(f"share{interval}")

    def _draw_cumulative(self, axis: Axes, interval: str) -> None:
        places, table = self._table.index.to_numpy(), self._table
        axis.plot(places, table["estimate"], color=BLUE)
        axis.fill_between(places, table["low"], table["high"], color=SKY, alpha=0.5, linewidth=0)
        axis.set_ylim(0, 1)
        axis.set_xlabel(_plain(table.attrs["attribute"]))
        axis.set_ylabel(f"share below{interval}")


def _of_two_attributes(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of groups with one row for each group and value, or each difference.

    A few groups of several values stay groups; others are labelled by both, a mean by its group.
    """
    values = table.index.get_level_values(-1).unique()
    groups = [" - ".join(map(str, reversed(key[:-1]))) for key in table.index]
    if table.index.nlevels == 2 and len(values) > 1 and len(set(groups)) <= _MOST_GROUPS:
        return table
    labels = groups
    if len(values) > 1:
        last = map(str, table.index.get_level_values(-1))
        labels = [f"{group}: {value}" for group, value in zip(groups, last, strict=True)]
    return table.set_axis(pd.Index(labels, name=table.index.names[0]))


def _ends(table: pd.DataFrame) -> tuple[Any, Any]:
    """Return the middles of the intervals and how far they reach."""
    low, high = table["low"].to_numpy(), table["high"].to_numpy()
    return (low + high) / 2, (high - low) / 2


def _beside(axis: Axes, x: float, y: float, text: str) -> None:
    """Write right of a point what it is."""
    axis.annotate(
        text, (x, y), xytext=(5, 0), textcoords="offset points", fontsize="small", va="center"
    )


def _shortened(text: str, width: int) -> str:
    """Return a label of `_LINES` lines at most; what is left out is its middle, as labels of one
    question often begin alike."""
    kept = min(len(text), width * _LINES)
    lines = textwrap.wrap(text, width)
    while len(lines) > _LINES:
        kept -= 1
        short = f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"
        lines = textwrap.wrap(short, width)
    return _plain("\n".join(lines))


def _wrapped(text: str, width: int, lines: int) -> str:
    found = textwrap.wrap(text, width, max_lines=lines, placeholder=" ...")
    return _plain("\n".join(found))


def _plain(text: str) -> str:
    """Return text that matplotlib does not read as mathematics."""
    return text.replace("$", r"\$")
