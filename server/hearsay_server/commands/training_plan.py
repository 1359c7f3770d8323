"""`hearsay training plan` and `explain`: figures of a training before it is registered."""

import json
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.filesize import decimal
from rich.table import Table

from hearsay_server import tabular
from hearsay_server.commands import plotting
from hearsay_server.commands.connect import AsJson, Delta
from hearsay_server.commands.plotting import Plot
from hearsay_server.printing import Console, headed, say, say_json
from hearsay_server.trainings import explain, figures, planning
from hearsay_server.trainings.planning import Noise, Pace, SplitNoise
from hearsay_server.trainings.training import from_file
from hearsay_server.wrapping import print_wrapped
from ldp import InvalidInput, SphereCodebook
from ldp.core.exact import float_below
from ldp.mechanisms.vectors.sphere_codebook import MAX_DIMENSION
from ldp.planning import prefix_sums
from ldp.two_servers import account

_LOCAL_EPSILONS = (1.0, 2.0, 4.0, 8.0)
_RECORD_LEVEL = ("[training.record_level]", "noise_multiplier = 1.0", "max_grad_norm = 1.0")

Norm = Annotated[
    float, typer.Option(help="Of the mean update, as a share of max_update_norm, beside the noise.")
]


def plan_training(
    people: Annotated[int, typer.Option(help="How many people might take part.")],
    dimension: Annotated[int, typer.Option(help="How many parameters the model has.")],
    rounds: Annotated[int, typer.Option(help="How many rounds there are.")] = 100,
    updates_per_round: Annotated[int, typer.Option(help="How many updates a round takes.")] = 100,
    available: Annotated[
        float, typer.Option(help="The share of people whose device is there when it is asked.")
    ] = 0.5,
    epsilon: Annotated[
        float | None, typer.Option(help="The most that the whole training may spend, at --delta.")
    ] = None,
    delta: Delta = figures.DELTA,
    rho: Annotated[
        float | None, typer.Option(help="Instead of --epsilon: the same as zCDP.")
    ] = None,
    norm: Norm = explain.NORM,
    as_json: AsJson = False,
    plot: Plot = None,
) -> None:
    """Work out the noise of a training from a budget, and how often a device takes part.

    \b
      hearsay training plan --people 10000 --dimension 7850 --epsilon 3
      hearsay training plan --people 100000 --dimension 199210 --rounds 500 \\
          --updates-per-round 500 --rho 0.5
    """
    if (epsilon is None) == (rho is None):
        raise InvalidInput("give one of --epsilon and --rho")
    if dimension < 1:
        raise InvalidInput(f"--dimension must be at least 1, got {dimension:,}")
    figures.check_norm(norm)
    figures.check_delta(delta)
    if plot is not None:
        plotting.check(plot)
    if rho is not None and not 0 < rho < math.inf:
        raise InvalidInput(f"--rho must be finite and > 0, got {rho!r}")
    pace = planning.pace_of(people, available, updates_per_round, rounds)
    if epsilon is not None:
        budget = planning.rho_for(epsilon, delta)
        of_split = account.largest_rho(epsilon, delta)
    else:
        assert rho is not None
        budget = of_split = Fraction(str(rho))
    found = planning.mechanisms(rounds, pace, budget)
    split = planning.split(rounds, pace, of_split)
    scale = math.sqrt(dimension) / updates_per_round
    local = _local(dimension, norm)

    def needed(each: Noise) -> tuple[int, int]:
        return explain.central_needed(each.first, each.last, dimension, rounds, norm)

    if as_json:
        say(
            json.dumps(
                {
                    "people": people,
                    "available": available,
                    "rounds": rounds,
                    "updates_per_round": updates_per_round,
                    **vars(pace),
                    "dimension": dimension,
                    "delta": delta,
                    "central": [_row(each, scale, delta, needed(each)) for each in found],
                    "two_servers": {
                        "rho": float(split.rho),
                        "epsilon": account.epsilon_of(split.rho, delta),
                        "noise_round_1": split.first * scale,
                        "noise_all_rounds": split.last * scale,
                    },
                    "local": [
                        {"epsilon": each, "updates_needed": needed} for each, needed in local
                    ],
                    "bytes_down": 4 * dimension,
                    "bytes_up": 4 * dimension,
                },
                indent=2,
            )
        )
        _draw(found, split, rounds, scale, plot)
        return
    console = Console()
    print_wrapped(_kept(people, available, updates_per_round, rounds, pace), console)
    console.print(headed("\nNoise of the server", " (the server must be honest)"))
    tabular.show(_table(found, scale, delta))
    print_wrapped(
        "On the right: the L2 norm, over max_update_norm, of the noise in the mean update of round "
        "1, and in the sum of those of all rounds; one update has a norm of 1 at most.",
        console,
    )
    print_wrapped(
        f"{explain.in_words(needed(found[0]), rounds, norm)} That is for the first mechanism; "
        f"this plan has {updates_per_round:,}.",
        console,
    )
    print_wrapped("The first, to copy into the training's file:", console)
    console.print()
    _print_toml(_central(found[0]), pace, console)
    console.print(headed("\nNoise of the devices, two servers", " (one must be honest)"))
    print_wrapped(
        f"Neither server reads an update. With full rounds of honest devices, rho "
        f"{float(split.rho):.4g} and epsilon {account.epsilon_of(split.rho, delta):.4g}, the noise "
        f"has a norm of {split.first * scale:.3g} in round 1, and of {split.last * scale:.3g} in "
        "all rounds.",
        console,
    )
    print_wrapped("To copy, in the place of [training.central]:", console)
    console.print()
    lines = ["[training.two_servers]", 'helper_key = "..."', f"rho = {float_below(split.rho)}"]
    _print_toml(lines, pace, console)
    console.print(headed("\nNoise of the devices", " (nobody else must be honest)"))
    if local:
        table = Table()
        table.add_column("epsilon of an update", justify="right")
        table.add_column("updates needed in a round", justify="right")
        for each, count in local:
            table.add_row(f"{each:g}", f"{count:,}")
        tabular.show(table)
        print_wrapped(
            f"So many, for an error of a third of the mean update, if that has a norm of {norm:g} "
            f"times max_update_norm; this plan has {updates_per_round:,}.",
            console,
        )
        epsilon = next((e for e, count in local if count <= updates_per_round), local[-1][0])
        print_wrapped("To copy, in the place of [training.central]:", console)
        console.print()
        _print_toml(["[training.local_noise]", f"epsilon = {epsilon:g}"], pace, console)
    else:
        print_wrapped(
            f"Not for models of more than {MAX_DIMENSION:,} parameters: noise would be all.",
            console,
        )
    console.print(headed("\nNoise in the devices' steps", " (protects records, not people)"))
    print_wrapped(
        "What it promises depends on how many records a device has: hearsay training run "
        "--simulate says it. To begin with:",
        console,
    )
    console.print()
    _print_toml(_RECORD_LEVEL, pace, console)
    console.print(headed("\nBytes"))
    print_wrapped(
        f"A device receives and sends {decimal(4 * dimension)} in each round that it takes part "
        f"in, as float32; {decimal(dimension)} up with encoding.bits = 8.",
        console,
    )
    _draw(found, split, rounds, scale, plot)


def _draw(
    found: Sequence[Noise], split: SplitNoise, rounds: int, scale: float, plot: Path | None
) -> None:
    """Draw the noise in the sum of the rounds so far, if that was asked for."""
    if plot is None:
        return
    curves = [
        (
            f"server, {each.mechanism}",
            each.noise_multiplier * scale * prefix_sums.errors(each.mechanism, rounds, each.bands),
        )
        for each in found
    ]
    of_split = split.first * scale * np.sqrt(np.arange(1, rounds + 1))
    drawn = [(name, norms.tolist()) for name, norms in (*curves, ("two servers", of_split))]
    plotting.training_noise("Noise in the sum of the rounds so far", drawn, plot)


def explain_training(
    file: Annotated[Path, typer.Argument(help="The training, as TOML.")],
    delta: Delta = figures.DELTA,
    norm: Norm = explain.NORM,
    as_json: AsJson = False,
) -> None:
    """Explain a training: who learns what, who must be honest, and what a person spends."""
    figures.check_delta(delta)
    figures.check_norm(norm)
    declared = from_file(file)
    if as_json:
        training = declared.training
        needed = {"updates_needed": list(explain.needed(training, norm))}
        say_json(explain.document(training, delta) | needed)
        return
    explain.explain(declared.training, len(declared.model), delta, norm, Console())


def _kept(people: int, available: float, updates_per_round: int, rounds: int, pace: Pace) -> str:
    apart = f", {pace.separation:,} rounds apart" if pace.participations > 1 else " in all rounds"
    often = "once" if pace.participations == 1 else f"{pace.participations:,} times"
    return (
        f"{rounds:,} rounds of {updates_per_round:,} updates take {rounds * updates_per_round:,}. "
        f"Where {available:.0%} of {people:,} people are there when they are asked, each takes "
        f"part {often} at most{apart}."
    )


def _table(found: Sequence[Noise], scale: float, delta: float) -> Table:
    table = Table("mechanism")
    for heading in ("bands", "multiplier", "rho", "epsilon", "round 1", "all rounds"):
        table.add_column(heading, justify="right")
    for each in found:
        table.add_row(
            each.mechanism,
            f"{each.bands:,}" if each.bands else "",
            f"{each.noise_multiplier:.4f}",
            f"{float(each.rho):.4g}",
            f"{figures.epsilon_of(each.rho, delta):.4g}",
            f"{each.first * scale:.3g}",
            f"{each.last * scale:.3g}",
        )
    return table


def _row(each: Noise, scale: float, delta: float, needed: tuple[int, int]) -> dict[str, object]:
    return {
        "mechanism": each.mechanism,
        "bands": each.bands or None,
        "noise_multiplier": each.noise_multiplier,
        "rho": float(each.rho),
        "epsilon": figures.epsilon_of(each.rho, delta),
        "noise_round_1": each.first * scale,
        "noise_all_rounds": each.last * scale,
        "updates_needed": list(needed),
    }


def _print_toml(protection: Sequence[str], pace: Pace, console: Console) -> None:
    """Print what a training's file has of a plan."""
    for line in (
        f"participations = {pace.participations}",
        f"separation = {pace.separation}",
        *protection,
    ):
        console.print(line, highlight=False)


def _central(each: Noise) -> list[str]:
    bands = [f"bands = {each.bands}"] if each.bands else []
    return [
        "[training.central]",
        f'mechanism = "{each.mechanism}"',
        *bands,
        f"noise_multiplier = {each.noise_multiplier}",
    ]


def _local(dimension: int, norm: float) -> list[tuple[float, int]]:
    """Return how many updates a round needs under local noise, by epsilon of an update; nothing
    where the model is too large for it."""
    if dimension > MAX_DIMENSION:
        return []
    return [
        (epsilon, SphereCodebook(dimension, epsilon).updates_needed(norm))
        for epsilon in _LOCAL_EPSILONS
    ]
