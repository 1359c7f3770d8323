"""How plots tell things apart: colours that colour-blind people see, markers, and direct labels."""

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes

BLUE, VERMILLION, GREEN, ORANGE = "#0072B2", "#D55E00", "#009E73", "#E69F00"
SKY, PURPLE, BLACK = "#56B4E9", "#CC79A7", "#000000"

COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BLACK)
"""The colours of Okabe and Ito, "Color universal design" (2008), without their yellow."""

MARKERS = ("o", "s", "D", "^", "v", "P", "X")
"""Markers, so that no two of the first 49 things have both in common."""


def colour(number: int) -> str:
    """Return the colour of the thing of this number, from 0."""
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    """Return the marker of the thing of this number, from 0."""
    return MARKERS[(number + number // len(COLOURS)) % len(MARKERS)]


@dataclass(frozen=True)
class End:
    """An end of a line, in the units of the data, and what to write beside it."""

    x: float
    y: float
    label: str
    colour: str


def label(axis: Axes, ends: Sequence[End], *, gap: float = 0.06, left: bool = False) -> None:
    """Write beside the ends of lines, right or `left` of the axis, what each line is.

    Labels are kept apart by `gap`, as a share of the axis's height. The limits of the axis must
    have been set.
    """
    if not ends:
        return
    to_axis = axis.transData + axis.transAxes.inverted()
    axis.autoscale_view()
    wanted = [(float(to_axis.transform((end.x, end.y))[1]), end) for end in ends]
    wanted.sort(key=lambda each: each[0])
    heights: list[float] = []
    for height, _ in wanted:
        heights.append(max(height, heights[-1] + gap) if heights else height)
    # What was pushed above the top moves down again, and what is in its way with it.
    heights[-1] = min(heights[-1], max(1.0, wanted[-1][0]))
    for number in range(len(heights) - 2, -1, -1):
        heights[number] = min(heights[number], heights[number + 1] - gap)
    for height, (_, end) in zip(heights, wanted, strict=True):
        axis.annotate(
            end.label,
            (end.x, end.y),
            xytext=(-0.04 if left else 1.04, height),
            textcoords="axes fraction",
            fontsize="small",
            va="center",
            ha="right" if left else "left",
            arrowprops={
                "arrowstyle": "-",
                "color": end.colour,
                "relpos": (float(left), 0.5),
                "shrinkA": 2,
            },
        )
