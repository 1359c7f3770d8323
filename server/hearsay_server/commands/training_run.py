"""`hearsay training run --simulate` and `hearsay training model`: a training on one machine."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.filesize import decimal
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from hearsay.federated import models
from hearsay_server import spreadsheets, tabular
from hearsay_server.commands import plotting
from hearsay_server.commands.connect import AsJson, Delta
from hearsay_server.commands.writing import check_new, opened_new
from hearsay_server.printing import Console, say, say_json
from hearsay_server.trainings import examples, figures
from hearsay_server.trainings.explain import people_for_full_rounds
from hearsay_server.trainings.training import from_file
from hearsay_server.wrapping import print_wrapped
from ldp.errors import InvalidInput, needs

if TYPE_CHECKING:
    from hearsay_server.trainings.simulating import TriedRound

_SHOWN = 10
"""Rounds that are printed, evenly spaced."""

_LAST = 10
"""Rounds whose accuracy is averaged."""

Seed = Annotated[
    int | None, typer.Option(help="Repeat the same coins: the result protects nobody.")
]


def run_training(
    file: Annotated[Path, typer.Argument(help="The training, as TOML.")],
    data: Annotated[
        Path, typer.Option(help="Examples: .npz with features and labels, or CSV with a header.")
    ],
    simulate: Annotated[
        bool, typer.Option("--simulate", help="On this machine, with the data of all people.")
    ] = False,
    label: Annotated[
        str, typer.Option(help="The array or column that is to be predicted.")
    ] = examples.LABELS,
    people: Annotated[int, typer.Option(help="How many people to deal the examples out to.")] = 100,
    split: Annotated[
        str, typer.Option(help="How: iid, shards:2 or dirichlet:0.5; unless the data has `person`.")
    ] = "iid",
    test: Annotated[
        Path | None, typer.Option(help="Examples to test on; otherwise a tenth of --data.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Only so many rounds; all that are declared if not given.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the last model, as safetensors.")
    ] = None,
    history: Annotated[Path | None, typer.Option(help="Where to write the rounds, as CSV.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw accuracy and epsilon over the rounds into this file.")
    ] = None,
    delta: Delta = figures.DELTA,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Try a training on one machine, with its own protection; nothing is sent anywhere.

    The architectures are softmax and 2nn. A person's examples are those of one value of the array
    or column `person`; without it they are dealt out as --split says.

    \b
      hearsay training run digits.toml --simulate --data digits.npz \\
          --people 200
      hearsay training run digits.toml --simulate --data digits.csv \\
          --label digit --split dirichlet:0.5 --plot digits.png
    """
    if not simulate:
        raise InvalidInput(
            "give --simulate: this command tries a training on one machine; over devices it runs "
            "after hearsay training create"
        )
    if plot is not None:
        plotting.check(plot)
    check_new(out, history)
    figures.check_delta(delta)
    declared = from_file(file)
    training = declared.training
    with needs("training run", "train"):
        from dpsgd.federated.history import last, rounds_to
        from hearsay_server.trainings import simulating
    found = examples.load(data, label)
    if test is not None:
        held = examples.load_like(test, label, found)
    else:
        found, held = _held_out(found, seed)
    if found.person is None:
        print_wrapped(
            f"{data} has no {examples.PERSON!r} that says whose an example is: --split deals the "
            f"examples out to {people:,} people who do not exist, and it is their epsilon that is "
            "told.",
            Console(stderr=as_json),
        )
    parts = simulating.split(split, found, people, seed or 0)
    console = Console(stderr=True)
    if training.updates_per_round <= len(parts) < (needed := people_for_full_rounds(training)):
        print_wrapped(
            f"{len(parts):,} people cannot fill all {training.rounds:,} rounds, as each takes part "
            f"{training.participations:,} times at most and {training.separation:,} rounds apart: "
            f"that takes {needed:,}. Rounds with fewer than {training.min_updates:,} updates are "
            "dropped.",
            console,
        )
    count = training.rounds if rounds is None else rounds
    with Progress(
        TextColumn("training"),
        BarColumn(),
        TextColumn("round {task.completed} of {task.total}, {task.description}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as shown:
        task = shown.add_task("", total=count)

        def progress(at: "TriedRound") -> None:
            said = f"accuracy {at.accuracy:.1%}"
            shown.update(task, completed=at.number, description=said)

        trial = simulating.simulate(
            declared,
            found,
            held,
            parts,
            rounds=count,
            seed=seed,
            delta=delta,
            progress=progress,
        )
    told = trial.rounds
    if out is not None:
        with opened_new(out, "xb") as written:
            written.write(trial.model)
    if history is not None:
        with opened_new(history) as written:
            rows = [list(_row(each).values()) for each in told]
            spreadsheets.write(written, [list(_row(told[0])), *rows], "\n")
    if plot is not None:
        plotting.rounds(training.title or training.name, told, delta, plot)
    accuracies = [each.accuracy for each in told]
    mean, spread = last(accuracies, _LAST)
    if as_json:
        document = {
            "training": training.name,
            "revision": training.revision.hex(),
            "people": len(parts),
            "delta": delta,
            "record_epsilon": (
                trial.record_epsilon if math.isfinite(trial.record_epsilon) else None
            ),
            "accuracy_of_last_ten": mean,
            "spread_of_last_ten": spread,
            "rounds": training.rounds,
            "history": [_row(each) for each in told],
        }
        say_json(document)
        return
    sizes = sorted({len(each) for each in parts})
    held_by_each = " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
    say(
        f"{training.name}: {len(parts):,} people with {held_by_each} examples, "
        f"tested on {len(held.labels):,}"
    )
    tabular.show(_table(told))
    say(
        f"accuracy {told[-1].accuracy:.1%} after {told[-1].number:,} rounds; {mean:.1%} on average "
        f"over the last {min(_LAST, len(told))}, standard deviation {spread:.1%}"
    )
    reached = [
        f"{share:.0%} in round {number:,}"
        for share in (0.5, 0.8, 0.9, 0.95, 0.97)
        if (number := rounds_to(accuracies, share)) is not None
    ]
    say(f"reached {', '.join(reached) or 'no 50%'}")
    dropped = sum(each.dropped for each in told)
    sent = sum(each.bytes_up for each in told)
    say(
        f"{sum(each.updates for each in told):,} updates, {decimal(sent)}; "
        f"{dropped:,} rounds were dropped"
    )
    print_wrapped(training.trust, Console())
    if math.isfinite(trial.record_epsilon):
        print_wrapped(
            f"Of a single record all updates tell epsilon {trial.record_epsilon:.4g} at most, at "
            f"delta {delta:g}.",
            Console(),
        )
    if seed is not None:
        say("With --seed the noise can be drawn again: these models protect nobody.")
    for place in (out, history, plot):
        if place is not None:
            say(f"written: {place}")


def first_model(
    architecture: Annotated[str, typer.Argument(help="softmax or 2nn.")],
    features: Annotated[int, typer.Option(help="How many numbers an example has.")],
    classes: Annotated[int, typer.Option(help="How many classes there are.")],
    out: Annotated[Path, typer.Option(help="Where to write it, as safetensors.")],
    seed: Annotated[int, typer.Option(help="Of the first weights.")] = 0,
) -> None:
    """Write the first model of a training, for the architectures of run --simulate."""
    with needs("training model", "train"):
        from dpsgd.federated import architectures
    model = architectures.build(architecture, features, classes, seed)
    tensors = architectures.to_tensors(model)
    with opened_new(out, "xb") as written:
        written.write(models.write(tensors))
    say(f"{out}: {architecture}, {sum(each.size for each in tensors.values()):,} parameters")


def _held_out(
    found: examples.Examples, seed: int | None
) -> tuple[examples.Examples, examples.Examples]:
    """Return the examples but for a tenth, and that tenth, drawn at random."""
    mixed = np.random.default_rng(seed).permutation(len(found.labels))
    held = max(1, len(mixed) // 10)
    return found.part(np.sort(mixed[held:])), found.part(np.sort(mixed[:held]))


def _row(each: "TriedRound") -> dict[str, object]:
    """Return a round by the names that `hearsay training export --history` has."""
    return {
        "round": each.number,
        "state": "dropped" if each.dropped else "aggregated",
        "updates": each.updates,
        "bytes": each.bytes_up,
        "bytes_down": each.bytes_down,
        "accuracy": each.accuracy,
        "rho": each.rho,
        "epsilon": each.epsilon,
    }


def _table(told: Sequence["TriedRound"]) -> Table:
    table = Table()
    for heading in ("round", "updates", "sent", "accuracy"):
        table.add_column(heading, justify="right")
    if told[-1].rho is not None:
        table.add_column("rho", justify="right")
    if told[-1].epsilon is not None:
        table.add_column("epsilon", justify="right")
    places = np.unique(np.linspace(0, len(told) - 1, min(_SHOWN, len(told))).round().astype(int))
    for each in (told[place] for place in places):
        table.add_row(
            f"{each.number:,}",
            f"{each.updates:,}" + ", dropped" * each.dropped,
            decimal(each.bytes_up),
            f"{each.accuracy:.1%}",
            *([] if each.rho is None else [f"{each.rho:.4g}"]),
            *([] if each.epsilon is None else [f"{each.epsilon:.4g}"]),
        )
    return table
