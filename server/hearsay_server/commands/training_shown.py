"""What `hearsay training list` and `show` print of trainings, and write of their rounds."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Group, RenderableType
from rich.filesize import decimal as size
from rich.table import Table

from hearsay.federated.declaration import Training
from hearsay.federated.parsing import parse
from hearsay.v1.admin_pb2 import (
    ShowTrainingResponse,
    TrainingRound,
    TrainingStatus,
)
from hearsay_server.printing import headed
from hearsay_server.trainings import explain, figures
from hearsay_server.trainings.progress import refused, state, why
from hearsay_server.wrapping import wrapped

SHOWN = 20
"""Rounds that are shown unless all are asked for."""

HISTORY = (
    "round",
    "state",
    "updates",
    "bytes",
    "model",
    "result",
    "opened",
    "deadline",
    "closed",
    "rho",
    "epsilon",
)


def table(trainings: Sequence[TrainingStatus]) -> Table:
    """Return the table of all trainings."""
    table = Table("training", "title", "revision", "state")
    for heading in ("round", "updates"):
        table.add_column(heading, justify="right")
    for each in trainings:
        table.add_row(
            each.training,
            each.title,
            each.revision.hex()[:12],
            state(each),
            f"{each.round:,}/{each.rounds:,}",
            f"{each.updates:,}",
        )
    return table


def page(shown: ShowTrainingResponse, delta: float, all_rounds: bool, width: int) -> Group:
    """Return what `show` prints, for a terminal of so many columns."""
    status, training = shown.status, parse(shown.training)
    lines: list[RenderableType] = [headed(training.name, f"  {training.title}")]
    for line in (
        f"revision {training.revision.hex()}",
        f"state    {state(status)}, round {status.round:,} of {status.rounds:,}: "
        f"{status.aggregated:,} made a model, {status.dropped:,} dropped",
        f"model    {training.architecture}, {training.dimension:,} parameters; newest "
        f"{status.model.hex()[:12]}",
        f"updates  {status.updates:,}, {size(status.update_bytes)}",
        f"spends   {_promise(training, delta)}",
    ):
        lines.append(wrapped(line, width, indent=9))
    lines.append(wrapped(training.trust, width))
    if status.trouble:
        lines.append(headed(wrapped(status.trouble, width), style="bold red"))
    table = Table()
    for heading in ("round", "updates", "bytes"):
        table.add_column(heading, justify="right")
    for heading in ("state", "model"):
        table.add_column(heading)
    spent = figures.spent_epsilon(training, 1, delta) is not None
    central = training.rho is not None
    if central:
        table.add_column("rho", justify="right")
    if spent:
        table.add_column("epsilon", justify="right")
    rounds = shown.rounds if all_rounds else shown.rounds[-SHOWN:]
    for each in rounds:
        rho, epsilon = _spent(training, each, delta)
        table.add_row(
            f"{each.round:,}",
            f"{each.updates:,}/{training.updates_per_round:,}",
            size(each.update_bytes),
            TrainingRound.State.Name(each.state).lower(),
            each.result.hex()[:8],
            *([f"{rho:.4g}" if rho is not None else ""] if central else []),
            *([f"{epsilon:.4g}" if epsilon is not None else ""] if spent else []),
        )
    if len(rounds) < len(shown.rounds):
        lines.append(f"The last {SHOWN} of {len(shown.rounds):,} rounds (all with --all):")
    below = [_meaning(training, delta)] if spent else []
    if status.state == TrainingStatus.RUNNING:
        below += _seen(shown, training.min_updates)
    return Group(*lines, table, *(wrapped(line, width) for line in below))


def _seen(shown: ShowTrainingResponse, needed: int) -> list[str]:
    """Return what the server saw of devices in the newest round: why nobody comes."""
    visits, number = shown.visits, shown.status.round
    lines = [] if shown.status.trouble else [why(shown, needed)]  # trouble is told above
    if visits.asked:
        times = "once" if visits.asked == 1 else f"{visits.asked:,} times"
        lines.append(
            f"Devices have asked this server {times} for round {number:,}, last at "
            f"{_time(visits.last_asked)}."
        )
    if visits.refused:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in refused(visits))
        lines.append(f"Updates that it refused meanwhile: {reasons}.")
    return lines


def _meaning(training: Training, delta: float) -> str:
    """Return what the columns `rho` and `epsilon` of the rounds are."""
    if training.rho is None:
        return (
            "epsilon: the most that a person has spent by the round, who took part as often as "
            "the training allows. It holds whoever reads the updates."
        )
    return (
        "rho: what all models up to the round tell of a person who took part as often as the "
        f"training allows. epsilon: the same at delta {delta:g}. A device charges all of it at the "
        "first participation."
    )


def _promise(training: Training, delta: float) -> str:
    """Return what a person spends in all of a training, for people."""
    if training.rho is not None:
        return (
            f"rho {float(training.rho):.4g} at the first participation, for all of them: epsilon "
            f"{figures.epsilon_of(training.rho, delta):.4g} at delta {delta:g}"
        )
    if training.epsilon_per_update is not None:
        return (
            f"epsilon {training.epsilon_per_update:.4g} with each update, of which there are "
            f"{training.participations:,} at most"
        )
    return "nothing that a ledger could count: single records are protected, people are not"


def _spent(
    training: Training, each: TrainingRound, delta: float
) -> tuple[float | None, float | None]:
    """Return rho and epsilon of the models up to a round; None of a round that made none."""
    if each.state != TrainingRound.AGGREGATED:
        return None, None
    rho = figures.spent_rho(training, each.round)
    epsilon = figures.spent_epsilon(training, each.round, delta)
    return None if rho is None else float(rho), epsilon


def history(shown: ShowTrainingResponse, delta: float) -> Iterator[dict[str, Any]]:
    """Yield the rounds as rows of `HISTORY`; None is empty in CSV, and null in JSON."""
    training = parse(shown.training)
    for each in shown.rounds:
        rho, epsilon = _spent(training, each, delta)
        yield {
            "round": each.round,
            "state": TrainingRound.State.Name(each.state).lower(),
            "updates": each.updates,
            "bytes": each.update_bytes,
            "model": each.model.hex(),
            "result": each.result.hex() or None,
            "opened": _time(each.opened),
            "deadline": _time(each.deadline),
            "closed": _time(each.closed),
            "rho": rho,
            "epsilon": epsilon,
        }


def document(shown: ShowTrainingResponse, delta: float) -> dict[str, Any]:
    return status(shown.status) | {
        "declaration": explain.document(parse(shown.training), delta),
        "delta": delta,
        "history": list(history(shown, delta)),
        "visits": {
            "asked": shown.visits.asked,
            "last_asked": _time(shown.visits.last_asked),
            "refused": dict(shown.visits.refused),
        },
    }


def status(status: TrainingStatus) -> dict[str, Any]:
    return {
        "training": status.training,
        "title": status.title,
        "revision": status.revision.hex(),
        "state": state(status),
        "round": status.round,
        "rounds": status.rounds,
        "aggregated": status.aggregated,
        "dropped": status.dropped,
        "updates": status.updates,
        "bytes": status.update_bytes,
        "model": status.model.hex(),
        "trouble": status.trouble or None,
        "created": _time(status.created),
    }


def _time(seconds: int) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat() if seconds else None
