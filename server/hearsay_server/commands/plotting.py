"""Draw answers, pilots and trainings into a file: `--plot` of the commands that have it."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from numpy.typing import NDArray

from hearsay.asking.answer import Answer
from hearsay_server.printing import say
from ldp.core.intervals import critical_value
from ldp.errors import InvalidInput, StorageFailed, needs
from ldp.estimating.ranges import Range

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from hearsay_server.trainings.simulating import TriedRound

_ENDINGS = (".png", ".svg", ".pdf")

Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        help="Draw the answer, too: FILE.png, FILE.svg or FILE.pdf.",
    ),
]


def check(file: Path) -> None:
    """Raise `InvalidInput`, or `MissingExtra`, where nothing can be drawn into the file."""
    if file.suffix not in _ENDINGS:
        raise InvalidInput(
            f"--plot must name a file that ends in {', '.join(_ENDINGS)}, got {file}"
        )
    if not file.parent.is_dir():
        raise InvalidInput(f"--plot: there is no folder {file.parent}")
    with needs("a plot", "analyst"):
        import hearsay.asking.plots  # noqa: F401


def save(figure: "Figure", file: Path) -> None:
    """Write a figure and say so on stderr; a file that is there is replaced, which is said too.

    Raises `StorageFailed` where it cannot be written.
    """
    replaced = ", in the place of an earlier file" if file.exists() else ""
    try:
        figure.savefig(file, metadata={"Software": None} if file.suffix == ".png" else None)
    except OSError as error:
        raise StorageFailed(f"cannot save the plot as {file}: {error}") from None
    say(f"drawn into {file}{replaced}", err=True)


def draw(answers: Sequence[Answer], file: Path) -> None:
    """Draw answers below each other; raise `InvalidInput` where there is nothing to draw."""
    from hearsay.asking.plots import figure

    save(figure(*answers), file)


def training_noise(title: str, curves: Sequence[tuple[str, Sequence[float]]], file: Path) -> None:
    """Draw the noise in the sum of a training's rounds so far, by who adds it."""
    from matplotlib.figure import Figure

    from hearsay.asking import palette

    drawn = Figure(figsize=(7.0, 3.6), dpi=110, layout="constrained")
    axis = drawn.subplots()
    ends = []
    for number, (name, norms) in enumerate(curves):
        rounds = range(1, len(norms) + 1)
        colour, mark = palette.colour(number), palette.marker(number)
        every = max(1, len(norms) // 10)
        axis.plot(rounds, norms, color=colour, marker=mark, markevery=every, markersize=4)
        ends.append(palette.End(rounds[-1], norms[-1], name, colour))
    axis.set_xlabel("round")
    axis.set_ylabel("L2 norm of the noise so far,\nover max_update_norm")
    axis.set_ylim(0)
    axis.set_title(title, fontsize="medium")
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    palette.label(axis, ends, gap=0.13)
    save(drawn, file)


def rounds(title: str, told: Sequence["TriedRound"], delta: float, file: Path) -> None:
    """Draw the accuracy of a simulated training over its rounds, and what a person has spent."""
    from matplotlib.figure import Figure

    from hearsay.asking.palette import BLUE, VERMILLION

    drawn = Figure(figsize=(7.0, 3.6), dpi=110, layout="constrained")
    axis = drawn.subplots()
    numbers = [each.number for each in told]
    axis.plot(numbers, [each.accuracy for each in told], color=BLUE, marker="o", markersize=3)
    axis.set_xlabel("round")
    axis.set_ylabel("accuracy on examples held back (dots)", color=BLUE)
    axis.set_ylim(0, 1)
    axis.set_title(title.replace("$", r"\$"), fontsize="medium")
    axis.spines["top"].set_visible(False)
    if any(each.epsilon is not None for each in told):
        spent = axis.twinx()
        epsilons = [math.nan if each.epsilon is None else each.epsilon for each in told]
        spent.plot(numbers, epsilons, color=VERMILLION, linestyle="--")
        spent.set_ylabel(
            f"epsilon of a person so far, at delta {delta:g} (dashes)", color=VERMILLION
        )
        spent.set_ylim(0)
        spent.spines["top"].set_visible(False)
    save(drawn, file)


def pilot(
    attribute: str,
    edges: Sequence[float],
    estimate: NDArray[np.float64],
    errors: NDArray[np.float64],
    fitted: NDArray[np.float64],
    found: Range,
    file: Path,
) -> None:
    """Draw a pilot's bins with the distribution that is fitted to them, and the proposed range.

    `estimate`, its standard errors `errors` and the `fitted` shares have shape (bins,). All bins
    are drawn as wide as each other, because they grow.
    """
    from matplotlib.figure import Figure

    from hearsay.asking.palette import BLUE, SKY, VERMILLION

    drawn = Figure(figsize=(7.0, 3.6), dpi=110, layout="constrained")
    axis = drawn.subplots()
    places = np.arange(len(edges))
    axis.axhline(0, color="black", linewidth=0.8)
    axis.errorbar(
        places[:-1] + 0.5,
        estimate,
        yerr=critical_value(0.95) * errors,
        fmt="o",
        markersize=4,
        color=BLUE,
        capsize=2.5,
        label="reports, with 95% intervals",
    )
    axis.stairs(fitted, places, fill=True, color=SKY, label="fitted", zorder=0)
    for end, at in (("low", found.low), ("high", found.high)):
        (place,) = np.interp([at], edges, places)
        axis.axvline(place, color=VERMILLION, linestyle="--")
        axis.annotate(
            f"{end} {at:.10g}",
            (place, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -3),
            textcoords="offset points",
            va="top",
            color=VERMILLION,
            fontsize="small",
        )
    shown = places[:: -(-len(edges) // 12)]
    axis.set_xticks(shown, [f"{edges[place]:g}" for place in shown], rotation=30)
    axis.set_xlabel(attribute.replace("$", r"\$"))
    axis.set_ylabel("share of a bin")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize="small")
    save(drawn, file)
