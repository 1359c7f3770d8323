"""`hearsay account`: the epsilon of a private training run."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from hearsay_server import tabular
from hearsay_server.commands import plotting
from hearsay_server.commands.connect import AsJson
from hearsay_server.commands.plotting import Plot
from hearsay_server.printing import Console, headed, say_json
from ldp.errors import InvalidInput, needs

if TYPE_CHECKING:
    from dpsgd.accounting import Event, Relation
    from dpsgd.accounting.overview import Figure
_POINTS = 21

_NOTE = 6
"""Lines of what is said about an accountant."""


def account(
    sigma: Annotated[
        float | None,
        typer.Option(help="The noise multiplier: standard deviation over max_grad_norm."),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="The number of steps.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="The delta of the guarantee."),
    ] = None,
    q: Annotated[
        float | None, typer.Option(help="The rate of Poisson sampling; 1 uses every record.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Instead of --q: a fixed batch, drawn afresh each step...")
    ] = None,
    dataset: Annotated[int | None, typer.Option(help="...from so many records.")] = None,
    plot: Plot = None,
    as_json: AsJson = False,
) -> None:
    """Compare every accountant's epsilon for a training run with clipped gradients and noise.

    With --q neighbouring data sets differ by one record more or less; with --batch and --dataset
    one record is replaced by another. Such figures do not compare.

    \b
      hearsay account --q 0.01 --sigma 4 --steps 10000 --delta 1e-5
      hearsay account --batch 256 --dataset 60000 --sigma 2 --steps 10000 \\
        --delta 1e-5
    """
    if sigma is None or steps is None or delta is None:
        raise InvalidInput("give --sigma, --steps and --delta")
    with needs("account", "train"):
        from dpsgd.accounting.overview import compare

    event, relation = _event(sigma, steps, q, batch, dataset)
    figures = compare(event, relation, delta)
    if plot is not None:
        draw(event, relation, delta, plot)
    if as_json:
        run = {"relation": relation.value, "delta": delta, **event.to_dict()}
        rows = [
            {
                "accountant": figure.name,
                "epsilon": _finite(figure.epsilon),
                "is_guarantee": figure.is_guarantee,
                "note": figure.note,
            }
            for figure in figures
        ]
        say_json(run | {"accountants": rows})
        return
    Console().print(f"at delta {delta:g}, for neighbours by: {_words(relation)}")
    table = Table("accountant")
    table.add_column("epsilon", justify="right")
    table.add_column("is")
    for figure in figures:
        epsilon = "-" if figure.epsilon is None else f"{figure.epsilon:.5g}"
        table.add_row(figure.name, epsilon, _standing(figure))
    tabular.show(table, lines=_NOTE)


def draw(event: "Event", relation: "Relation", delta: float, file: Path) -> None:
    """Draw every accountant's epsilon over the steps, up to the event's.

    Raises `MissingExtra` without matplotlib, `InvalidInput` where nothing is released or the
    file's format is unknown, and `StorageFailed` where it cannot be written.
    """
    plotting.check(file)
    from matplotlib.figure import Figure

    from dpsgd.accounting import Event
    from dpsgd.accounting.overview import compare
    from hearsay.asking import palette

    if event.silent:
        raise InvalidInput("there is nothing to plot: the run releases nothing")
    grid = {round(event.steps ** (i / (_POINTS - 1))) for i in range(_POINTS)}
    curves: dict[str, list[tuple[int, float]]] = {}
    standing = {}
    for steps in sorted(grid):
        for figure in compare(
            Event(event.noise_multiplier, event.sampling, steps), relation, delta
        ):
            epsilon = _finite(figure.epsilon)
            if epsilon:
                curves.setdefault(figure.name, []).append((steps, epsilon))
                standing[figure.name] = figure.is_guarantee
    drawn = Figure(figsize=(9, 5), dpi=110, layout="constrained")
    axis = drawn.subplots()
    ends = []
    for number, (name, points) in enumerate(curves.items()):
        colour = palette.colour(number)
        style = "-" if standing[name] else "--"
        mark = palette.marker(number)
        axis.plot(*zip(*points, strict=True), style, color=colour, marker=mark, markevery=4)
        label = name if standing[name] else f"{name}\n(no guarantee)"
        ends.append(palette.End(*points[-1], label, colour))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_xlabel("steps")
    axis.set_ylabel(f"epsilon at delta {delta:g}")
    run = f"rate {event.sampling.rate:g}, noise multiplier {event.noise_multiplier:g}"
    axis.set_title(f"{run}, {_words(relation)}", fontsize=11)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
    palette.label(axis, ends, gap=0.085)
    plotting.save(drawn, file)


def _event(
    sigma: float, steps: int, q: float | None, batch: int | None, dataset: int | None
) -> "tuple[Event, Relation]":
    from dpsgd.accounting import Event, FixedSizeSampling, PoissonSampling, Relation

    if q is not None and batch is None and dataset is None:
        return Event(sigma, PoissonSampling(q), steps), Relation.ADD_REMOVE
    if q is None and batch is not None and dataset is not None:
        return Event(sigma, FixedSizeSampling(batch, dataset), steps), Relation.REPLACE_ONE
    raise InvalidInput("give --q, or --batch and --dataset")


def _words(relation: "Relation") -> str:
    return relation.name.lower().replace("_", " ")


def _standing(figure: "Figure") -> str | Text:
    if figure.epsilon is None:
        return figure.note
    return "a guarantee" if figure.is_guarantee else headed("NOT a guarantee", style="bold red")


def _finite(epsilon: float | None) -> float | None:
    return epsilon if epsilon is not None and math.isfinite(epsilon) else None
