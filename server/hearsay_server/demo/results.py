"""Estimates beside the truth, as a table and as a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # a file is drawn; no display is needed

import matplotlib.pyplot as plt
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

_LEAST_WIDTH = 6.5
"""Inches: the labels of one attribute by itself need more than a column of many."""


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


_LABELS = 40
"""Characters that fit beside each other below a panel."""


def show(results: Sequence[Comparison], console: Console) -> None:
    """Print one row per estimate, below the name of its attribute."""
    table = Table(title="What the analyst learns, with 95% intervals", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True, ratio=1)  # a label is cut before a number is
    for heading in ("estimate", "error", "low", "high", "truth", "covers"):
        table.add_column(heading, justify="right", no_wrap=True)
    previous = ""
    for result in results:
        if result.attribute != previous:
            table.add_row(f"[bold]{escape(result.attribute)}[/bold]")
        table.add_row(
            f"  {escape(result.label)}",
            f"{result.estimate:.3f}",
            f"{result.standard_error:.3f}",
            f"{result.low:.3f}",
            f"{result.high:.3f}",
            f"{result.truth:.3f}",
            "[green]yes[/green]" if result.covered else "[bold red]NO[/bold red]",
        )
        previous = result.attribute
    console.print(table)


def draw(results: Sequence[Comparison], title: str, file: Path) -> None:
    """Save one panel per attribute: bars, 95% intervals, and the truth as a line."""
    attributes = list(dict.fromkeys(result.attribute for result in results))
    columns = min(3, len(attributes))
    rows = -(-len(attributes) // columns)
    figure, axes = plt.subplots(
        rows,
        columns,
        figsize=(max(_LEAST_WIDTH, 4.2 * columns), 3.2 * rows),
        squeeze=False,
        layout="constrained",
    )
    for axis in axes.flat[len(attributes) :]:
        axis.set_visible(False)
    for axis, attribute in zip(axes.flat, attributes, strict=False):
        mine = [result for result in results if result.attribute == attribute]
        places = range(len(mine))
        values = [result.estimate for result in mine]
        middles = [(result.low + result.high) / 2 for result in mine]
        reach = [(result.high - result.low) / 2 for result in mine]
        axis.bar(places, values, width=0.6, color="#9ecae1", label="estimate")
        axis.errorbar(
            places, middles, yerr=reach, fmt="none", ecolor="#08519c", capsize=4, label="95%"
        )
        axis.hlines(
            [result.truth for result in mine],
            [place - 0.4 for place in places],
            [place + 0.4 for place in places],
            colors="#d94801",
            linewidth=2,
            label="truth",
        )
        labels = [result.label for result in mine]
        axis.set_xticks(list(places), labels)
        if sum(map(len, labels)) > _LABELS:
            axis.tick_params(axis="x", labelrotation=90, labelsize="small")
        axis.set_xlim(-0.8, len(mine) - 0.2)
        axis.set_title(attribute)
        axis.spines[["top", "right"]].set_visible(False)
    axes.flat[0].legend(frameon=False, fontsize="small")
    figure.suptitle(f"{title}\nestimated from randomised answers alone")
    figure.savefig(file, dpi=120)
    plt.close(figure)
