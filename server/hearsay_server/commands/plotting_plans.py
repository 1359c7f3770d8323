"""Draw what is worked out before anything is collected: plans, mixing, audits, surveys."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hearsay_server.commands.plotting import save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_POINTS = 24
"""Points of a curve."""

_ROW = 0.3
"""Inches of a row."""

_LABEL = 40
"""Characters of a row's label."""


@dataclass(frozen=True)
class Axis:
    """What a number is, and how a point's is written."""

    name: str
    write: Callable[[float], str]


def curve(
    title: str,
    point: tuple[float, float],
    of: Callable[[float], float],
    axes: tuple[Axis, Axis],
    file: Path,
) -> None:
    """Draw a number by another one, both on logarithmic scales, with one point marked.

    The curve reaches from a hundredth of the point to a hundred times as much.
    """
    from matplotlib.figure import Figure

    from hearsay.asking.palette import BLUE, VERMILLION

    drawn = Figure(figsize=(7.0, 3.6), dpi=110, layout="constrained")
    axis = drawn.subplots()
    places = point[0] * np.logspace(-2, 2, _POINTS)
    found = [(at, y) for at in places if np.isfinite(y := of(float(at))) and y > 0]
    axis.loglog(*zip(*found, strict=True), color=BLUE)
    axis.plot(*point, "D", color=VERMILLION)
    axis.annotate(
        f"{axes[0].write(point[0])}: {axes[1].write(point[1])}",
        point,
        xytext=(8, 6),
        textcoords="offset points",
        color=VERMILLION,
    )
    axis.set_xlabel(axes[0].name)
    axis.set_ylabel(axes[1].name)
    axis.set_title(title.replace("$", r"\$"), fontsize="medium")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    save(drawn, file)


@dataclass(frozen=True)
class Bound:
    """What a mechanism claims, and the least that was measured of it."""

    label: str
    claimed: float
    measured: float
    violated: bool


def bounds(told: Sequence[Bound], file: Path) -> None:
    """Draw each mechanism's claimed epsilon, and the bound from below that its reports give."""
    from matplotlib.figure import Figure

    from hearsay.asking.palette import BLUE, VERMILLION

    drawn = Figure(figsize=(7.0, 1.4 + _ROW * len(told)), dpi=110, layout="constrained")
    axis = drawn.subplots()
    for place, each in enumerate(told):
        colour, marker = (VERMILLION, "D") if each.violated else (BLUE, "o")
        axis.hlines(place, 0, max(each.measured, 0), color=colour, linewidth=2)
        axis.plot([max(each.measured, 0)], [place], marker, color=colour)
        axis.plot([each.claimed], [place], "|", color="black", markersize=14)
    _rows(axis, [each.label for each in told])
    axis.set_xlim(0)
    axis.set_xlabel("epsilon: upright what is claimed, dots what is shown at least")
    axis.set_title("Do the mechanisms keep what they claim? Diamonds do not", fontsize="medium")
    save(drawn, file)


@dataclass(frozen=True)
class Half:
    """Half of a question's interval at a level, in parts of one: of a share, or of the range."""

    label: str
    level: str
    half: float


def halves(title: str, told: Sequence[Half], file: Path) -> None:
    """Draw the interval of each question, around nought, in the colour of its level."""
    from matplotlib.figure import Figure

    from hearsay.asking import palette

    drawn = Figure(figsize=(7.0, 1.4 + _ROW * len(told)), dpi=110, layout="constrained")
    axis = drawn.subplots()
    levels = list(dict.fromkeys(each.level for each in told))
    for place, each in enumerate(told):
        number = levels.index(each.level)
        colour = palette.colour(number)
        axis.hlines(place, -each.half, each.half, color=colour, linewidth=2)
        axis.plot([0], [place], palette.marker(number), color=colour, markersize=5)
        axis.annotate(
            f"+-{each.half:.3g}",
            (each.half, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize="small",
        )
    _rows(axis, [f"{each.level}: {each.label}" for each in told])
    axis.axvline(0, color="black", linewidth=0.8)
    axis.margins(x=0.2)
    axis.locator_params(axis="x", nbins=5)
    axis.set_xlabel("95% interval: of a share, or of a mean in parts of its range")
    axis.set_title(title.replace("$", r"\$"), fontsize="medium")
    save(drawn, file)


def _rows(axis: "Axes", labels: Sequence[str]) -> None:
    short = [each if len(each) <= _LABEL else f"{each[: _LABEL - 3]}..." for each in labels]
    axis.set_yticks(range(len(short)), short)
    axis.set_ylim(len(short) - 0.4, -0.6)
    axis.grid(axis="x", alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
