"""Explain a training before it is registered: who learns what, and what one person spends."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.filesize import decimal
from rich.table import Table

from hearsay.federated.declaration import (
    CentralNoise,
    LocalNoise,
    RecordLevel,
    SplitNoise,
    Training,
)
from hearsay.federated.encoding import size as encoded_size
from hearsay_server import tabular
from hearsay_server.printing import Console, headed
from hearsay_server.trainings.figures import epsilon_at
from hearsay_server.wrapping import print_wrapped
from ldp.planning import prefix_sums

NORM = 0.3
"""The norm of the mean update over `max_update_norm` that is planned for where none is given."""


@dataclass(frozen=True)
class Seen:
    """What one party learns, and what protects a person from it."""

    who: str
    sees: str
    protection: str


def seen(training: Training, delta: float) -> Sequence[Seen]:
    """Return who learns what of a person who takes part."""
    match training.protection:
        case CentralNoise():
            assert training.rho is not None
            server = Seen("the server", "every update, until its round is over", "its honesty")
            models = (
                f"the server's noise: epsilon {epsilon_at(training, training.rho, delta):.4g} at "
                f"delta {delta:g}"
            )
        case SplitNoise():
            assert training.rho is not None
            server = Seen(
                "each server",
                f"shares, and sums of {training.min_updates:,} updates or more",
                "the other server, and the devices' noise",
            )
            models = (
                f"the devices' noise: epsilon {epsilon_at(training, training.rho, delta):.4g} at "
                f"delta {delta:g}"
            )
        case LocalNoise():
            each = f"epsilon {training.epsilon_per_update:.4g} for each update"
            server = Seen("the server", "one code for each update", f"noise of the device: {each}")
            models = "the same: what is made of codes tells no more than they do"
        case RecordLevel():
            said = "noise of the device hides single records, and not the person"
            server = Seen("the server", "every update, until its round is over", said)
            models = "the same noise, mixed with that of others in the round"
    return (
        server,
        Seen("who gets a model", "the models, and how many took part", models),
        Seen("the network", "that a device takes part, when, and its bytes", "TLS hides the rest"),
    )


def duties(training: Training) -> Sequence[str]:
    """Return lines on who must be honest for which promise."""
    match training.protection:
        case CentralNoise():
            return (
                "The server: it reads updates, draws the noise, and may show nobody either of the "
                "two. Against a dishonest server, or one that was broken into, a person has no "
                "protection at all.",
                "Not the other people, and not those who get the models.",
            )
        case SplitNoise(colluding=colluding):
            return (
                "One of the two servers: it may not give its key or its shares to the other one. "
                "Both together read every update, with the weak noise of one device.",
                f"{f'All but {colluding:,} of the' if colluding else 'All'} devices of each sum, "
                "as far as their noise is concerned: a forged device adds none, and the honest "
                "server cannot tell it.",
            )
        case LocalNoise():
            return (
                "Nobody but the app on the person's own device. The server, those who broke into "
                "it, and other people may be dishonest together.",
            )
        case RecordLevel():
            return (
                "Nobody but the app on the person's own device, for the promise about single "
                "records. There is no promise about the person.",
            )


def spending(training: Training, delta: float) -> Sequence[str]:
    """Return lines on what one person spends, and when."""
    if training.rho is not None:
        replaced = 4 * training.rho
        return (
            f"At the first participation rho {float(training.rho):.4g}, for the whole training, "
            f"and nothing later: epsilon {epsilon_at(training, training.rho, delta):.4g} at delta "
            f"{delta:g}. "
            "A person who never takes part spends nothing.",
            "That tells a person's updates from zeros in their place. Two people's updates are "
            f"told apart by four times as much: rho {float(replaced):.4g}, epsilon "
            f"{epsilon_at(training, replaced, delta):.4g}.",
            "The device keeps it apart from what answers to surveys spend, as it holds only if "
            f"{'one of both servers' if training.trusted != 'server' else 'the server'} is honest.",
        )
    if training.epsilon_per_update is not None:
        most = training.participations * training.epsilon_per_update
        return (
            f"Epsilon {training.epsilon_per_update:.4g} with each update, {most:.4g} with all "
            f"{training.participations:,}. It counts as answers to surveys do, under the person's "
            "caps.",
        )
    return (
        "Nothing that the device's ledger counts: the promise is about records. A person's epsilon "
        "has no bound.",
    )


def explain(training: Training, model: int, delta: float, norm: float, console: Console) -> None:
    """Print what a training means; `model` is the size of its file in bytes."""
    console.print(headed(training.name, f"  {training.title}"))
    console.print(f"revision {training.revision.hex()}")
    console.print(headed("\nWhat a device does"))
    for line in _device(training):
        print_wrapped(f"  {line}", console)
    console.print(headed("\nWhat the server does"))
    for line in _server(training):
        print_wrapped(f"  {line}", console)
    console.print(headed("\nWho learns what"))
    table = Table("who", "sees", "protected by")
    for each in seen(training, delta):
        table.add_row(each.who, each.sees, each.protection)
    tabular.show(table)
    print_wrapped("  How many people took part in a round is not protected.", console)
    console.print(headed("\nWho must be honest for that"))
    for line in duties(training):
        print_wrapped(f"  {line}", console)
    console.print(headed("\nWhat one person spends"))
    for line in spending(training, delta):
        print_wrapped(f"  {line}", console)
    console.print(headed("\nBytes"))
    for line in _bytes(training, model):
        print_wrapped(f"  {line}", console)
    console.print(headed("\nNoise beside the updates"))
    for line in noise(training, norm):
        print_wrapped(f"  {line}", console)


def document(training: Training, delta: float) -> dict[str, object]:
    """Return a training for JSON, with what a person spends."""
    told: dict[str, object] = {
        name: getattr(training, name)
        for name in (
            "name",
            "title",
            "architecture",
            "dimension",
            "rounds",
            "round_seconds",
            "updates_per_round",
            "min_updates",
            "participations",
            "separation",
            "max_update_norm",
        )
    }
    return told | {
        "revision": training.revision.hex(),
        "initial": training.initial.hex(),
        "local": vars(training.local),
        "aggregation": vars(training.aggregation),
        "encoding": None if training.encoding is None else vars(training.encoding),
        "protection": training.protection.kind,
        "noise_multiplier": None
        if isinstance(training.protection, LocalNoise | SplitNoise)
        else float(training.protection.noise_multiplier),
        "rho": None if training.rho is None else float(training.rho),
        "epsilon": None if training.rho is None else epsilon_at(training, training.rho, delta),
        "delta": delta,
        "epsilon_per_update": training.epsilon_per_update,
        "trusted": training.trusted,
        "bytes_up": encoded_size(training),
        "seconds_at_most": training.rounds * training.round_seconds,
    }


def _device(training: Training) -> Sequence[str]:
    local = training.local
    batches = f"batches of {local.batch_size:,}" if local.batch_size else "all records at once"
    extra = f", momentum {local.momentum:g}" * (local.momentum > 0)
    extra += f", FedProx's mu {local.proximal:g}" * (local.proximal > 0)
    epochs = "1 epoch" if local.epochs == 1 else f"{local.epochs:,} epochs"
    lines = [
        f"It trains {training.architecture}, {training.dimension:,} parameters, on its own data: "
        f"{epochs}, {batches}, rate {local.learning_rate:g}{extra}. It sends what changed, scaled "
        f"down to an L2 norm of {training.max_update_norm:g} where it is longer.",
    ]
    if isinstance(training.protection, RecordLevel):
        lines.append(
            f"It clips gradients to {training.protection.max_grad_norm:g} and adds noise of "
            f"{float(training.protection.noise_multiplier):g} times that to each step's sum."
        )
    rounds = f"{training.participations:,} of {training.rounds:,} rounds at most"
    apart = (
        f", each {training.separation:,} rounds or more after the one before"
        if training.participations > 1 and training.separation > 1
        else ""
    )
    return [*lines, f"It takes part in {rounds}{apart}. The device's own ledger sees to that."]


def _server(training: Training) -> Sequence[str]:
    given = training.aggregation
    rule = given.rule.replace("_", " ")
    hostile = f" against {given.hostile:,} hostile ones" if given.hostile else ""
    made = (
        f"The sum of the updates, divided by {training.updates_per_round:,} however many came,"
        if given.rule == "mean"
        else f"The {rule} of the updates{hostile}"
    )
    momentum = f", momentum {given.momentum:g}" * (given.momentum > 0)
    return (
        f"A round is open for {_duration(training.round_seconds)}, or until it has "
        f"{training.updates_per_round:,} updates. With fewer than {training.min_updates:,} it is "
        "dropped, and its updates are deleted unread.",
        f"For full rounds, {people_for_full_rounds(training):,} people or more must be there.",
        f"{made} goes through {given.optimizer} at rate {given.learning_rate:g}{momentum}.",
        end(training),
    )


def end(training: Training) -> str:
    """Return a line on when a training ends at the latest."""
    most = _duration(training.rounds * training.round_seconds)
    return (
        f"All {training.rounds:,} rounds are over after {most} at most, besides the time "
        "in which the server aggregates or does not run."
    )


def people_for_full_rounds(training: Training) -> int:
    """Return how many people must be there so that each round can have all of its updates."""
    by_separation = min(training.separation, training.rounds)
    by_participations = -(-training.rounds // training.participations)
    return training.updates_per_round * max(by_separation, by_participations)


def _bytes(training: Training, model: int) -> Sequence[str]:
    up = encoded_size(training)
    plain = 4 * training.dimension
    saved = f", where float32 would be {decimal(plain)}" if up != plain else ""
    return (
        f"A device receives {decimal(model)} and sends {decimal(up)}{saved} for each round that it "
        f"takes part in; the server takes in {decimal(up * training.updates_per_round)} for a full "
        "round.",
    )


def needed(training: Training, norm: float) -> Sequence[int]:
    """Return how many updates in a round make the noise a third of what it hides.

    The mean update has a norm of `norm` times `max_update_norm`. With noise of the server there
    are two numbers: for the mean update of round 1, and for the sum of those of all rounds where
    all point the same way. With noise of the devices there is one, for each round, and with
    neither none.
    """
    match training.protection:
        case CentralNoise() as central:
            errors = prefix_sums.errors(central.mechanism, training.rounds, central.bands)
            ends = float(central.noise_multiplier) * errors[[0, -1]]
            return central_needed(ends[0], ends[1], training.dimension, training.rounds, norm)
        case SplitNoise():
            # Each device brings its own, so it grows as the root of the updates.
            return (math.ceil((split_error(training, 1) * 3 / norm) ** 2),)
        case LocalNoise(mechanism):
            return (mechanism.updates_needed(norm),)
        case RecordLevel():
            return ()


def split_error(training: Training, updates: int) -> float:
    """Return the L2 norm of the noise in the mean of so many split updates, over
    `max_update_norm`."""
    deviation = math.sqrt(float(training.split.variance) * training.padded / updates)
    return deviation / (training.split.scale * training.max_update_norm)


def central_needed(
    first: float, last: float, dimension: int, rounds: int, norm: float
) -> tuple[int, int]:
    """Return the two numbers of `needed`, of the noise in the sums after round 1 and the last.

    `first` and `last` are its standard deviations in a coordinate over `max_update_norm`.
    """
    wanted = norm / (3 * math.sqrt(dimension))
    return math.ceil(first / wanted), math.ceil(last / (rounds * wanted))


def in_words(needed: Sequence[int], rounds: int, norm: float) -> str:
    """Return the two numbers of `needed` in words."""
    first, last = needed
    return (
        f"If the mean update of a round has a norm of {norm:g} times max_update_norm, noise of a "
        f"third of that takes {first:,} updates in a round. In the sum of all {rounds:,} rounds "
        f"noise of a third takes {last:,}, if their mean updates point the same way."
    )


def noise(training: Training, norm: float) -> Sequence[str]:
    """Return lines on the size of the noise beside that of the updates' mean.

    `norm` is that of the mean update, over `max_update_norm`.
    """
    per_round, root = training.updates_per_round, math.sqrt(training.dimension)
    match training.protection:
        case CentralNoise() as central:
            errors = prefix_sums.errors(central.mechanism, training.rounds, central.bands)
            scale = float(central.noise_multiplier) * training.max_update_norm * root / per_round
            return (
                "What the server adds to the mean update of a round, and to the sum of those of "
                f"all rounds, has an L2 norm of about {scale * errors[0]:.3g} after round 1 and of "
                f"{scale * errors[-1]:.3g} after round {training.rounds:,}. One update has a norm "
                f"of {training.max_update_norm:g} at most.",
                "Twice as many updates in a round halve that noise.",
                f"{in_words(needed(training, norm), training.rounds, norm)} This training has "
                f"{per_round:,}.",
            )
        case SplitNoise():
            size = split_error(training, per_round) * training.max_update_norm
            (few,) = needed(training, norm)
            return (
                f"The noise in the mean of a full round has an L2 norm of about {size:.3g}. If the "
                f"mean update has a norm of {norm * training.max_update_norm:g}, a third of that "
                f"takes {few:,} updates in a round; this training has {per_round:,}.",
            )
        case LocalNoise(mechanism):
            size = math.sqrt(mechanism.squared_error / per_round) * training.max_update_norm
            return (
                f"The noise in the mean of a full round has an L2 norm of about {size:.3g}. If the "
                f"mean update has a norm of {norm * training.max_update_norm:g}, a third of that "
                f"takes {mechanism.updates_needed(norm):,} updates in a round; this training has "
                f"{per_round:,}.",
            )
        case RecordLevel():
            return (
                "It is in the steps of each device, and depends on how many records it has: more "
                "records on a device, less noise in its update.",
            )


def _duration(seconds: int) -> str:
    parts = []
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1)):
        count, seconds = divmod(seconds, length)
        if count:
            parts.append(f"{count:,} {unit}{'s' * (count > 1)}")
    return " and ".join((", ".join(parts[:-1]), parts[-1])) if len(parts) > 1 else parts[0]
