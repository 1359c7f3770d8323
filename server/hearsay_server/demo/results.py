"""Estimates beside the truth, as a table and as a plot."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a file is drawn; no display is needed

import matplotlib.pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from rich.box import SIMPLE_HEAD
from rich.table import Table

from hearsay_server.printing import Console, headed

_ROW, _HEAD = 0.26, 0.9
"""Inches of a panel: for each value, and for its title and its axis."""

_LABEL = 28
"""Characters of a value's label; longer ones are cut."""

_TITLE = 47
"""Characters in a line of a panel's title; two lines at most."""

_ESTIMATE, _TRUTH = "#0072B2", "#D55E00"  # told apart also by those who are colour-blind


@dataclass(frozen=True)
class Comparison:
    """One estimate beside the truth it stands for."""

    attribute: str
    label: str
    estimate: float
    standard_error: float
    low: float
    high: float
    truth: float

    @property
    def covered(self) -> bool:
        """Whether the interval holds the truth."""
        return self.low <= self.truth <= self.high


def show(results: Sequence[Comparison], console: Console) -> None:
    """Print one row per estimate, below the name of its attribute."""
    table = Table(title="What the analyst learns, with 95% intervals", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True, ratio=1)  # a label is cut before a number is
    for heading in ("estimate", "error", "low", "high", "truth", "covers"):
        table.add_column(heading, justify="right", no_wrap=True)
    previous = ""
    for result in results:
        if result.attribute != previous:
            table.add_row(headed(result.attribute))
        table.add_row(
            f"  {result.label}",
            f"{result.estimate:.3f}",
            f"{result.standard_error:.3f}",
            f"{result.low:.3f}",
            f"{result.high:.3f}",
            f"{result.truth:.3f}",
            headed("yes", style="green") if result.covered else headed("NO", style="bold red"),
        )
        previous = result.attribute
    console.print(table)


def draw(results: Sequence[Comparison], title: str, file: Path, titles: Mapping[str, str]) -> None:
    """Save one panel per attribute: estimates with 95% intervals, and the truth beside them.

    `titles` are those of attributes, which also name what crosses them; one without a title is
    called by its name.
    """
    panels: dict[str, list[Comparison]] = {}
    for result in results:
        panels.setdefault(result.attribute, []).append(result)
    # Each panel goes below the others of the shortest column.
    columns: list[list[str]] = [[] for _ in range(min(3, len(panels)))]
    heights = [0.0] * len(columns)
    for attribute, mine in panels.items():
        shortest = heights.index(min(heights))
        columns[shortest].append(attribute)
        heights[shortest] += _HEAD + _ROW * len(mine)
    figure = plt.figure(
        figsize=(max(6.5, 4.6 * len(columns)), max(heights) + 0.9), layout="constrained"
    )
    legend: list[Artist] = []
    places = figure.add_gridspec(1, len(columns))
    for number, column in enumerate(columns):
        rows = [_HEAD + _ROW * len(panels[attribute]) for attribute in column]
        grid = places[0, number].subgridspec(len(column), 1, height_ratios=rows)
        for row, attribute in enumerate(column):
            axis = figure.add_subplot(grid[row, 0])
            legend = _draw_panel(axis, panels[attribute])
            axis.set_title(_titled(attribute, titles), fontsize="medium")
    figure.suptitle(f"{title}\nestimated from randomised answers alone")
    figure.legend(handles=legend, loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def _draw_panel(axis: Axes, results: Sequence[Comparison]) -> list[Artist]:
    """Draw a row for each estimate, the first one on top; return what a legend explains."""
    places = range(len(results))
    estimates = [result.estimate for result in results]
    axis.hlines(
        places,
        [result.low for result in results],
        [result.high for result in results],
        colors=_ESTIMATE,
        linewidth=2.5,
    )
    (dots,) = axis.plot(
        estimates, places, "o", color=_ESTIMATE, markersize=5, label="estimate, 95% interval"
    )
    (truths,) = axis.plot(
        [result.truth for result in results],
        places,
        "D",
        markerfacecolor="none",
        markeredgecolor=_TRUTH,
        markersize=7,
        label="truth",
    )
    axis.set_yticks(list(places), [_cut(result.label, _LABEL) for result in results])
    axis.set_ylim(len(results) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(left=False, labelsize="small")
    return [dots, truths]


def _titled(attribute: str, titles: Mapping[str, str]) -> str:
    """Return a panel's title: of "a+b" both titles, of "a: who rated" that of a and the rest."""
    name, *rest = attribute.split(": ", 1)
    title = " and ".join(titles.get(part) or part for part in name.split("+"))
    return textwrap.fill(": ".join([title, *rest]), _TITLE, max_lines=2, placeholder="…")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
