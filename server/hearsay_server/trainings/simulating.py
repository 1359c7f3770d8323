"""Try a training on one machine: devices' steps, updates as bytes, and the server's own code."""

import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hearsay.federated import encoding, models, splitting
from hearsay.federated.declaration import RecordLevel, SplitNoise, Training
from hearsay_server.trainings import figures
from hearsay_server.trainings.aggregation import next_model, noise_of
from hearsay_server.trainings.examples import Examples
from hearsay_server.trainings.training import Declared
from ldp import InvalidInput
from ldp.core.coins import Coins
from ldp.testing import SeededCoins

if TYPE_CHECKING:
    import torch

    from dpsgd.federated.local import LocalTrainer

Split = Sequence[NDArray[np.int64]]


@dataclass(frozen=True)
class TriedRound:
    """A simulated round; `accuracy` is the share of test examples that its model has right, and
    `rho` and `epsilon` are what a person spent at most by then. None where there is no such."""

    number: int
    dropped: bool
    updates: int
    bytes_up: int
    bytes_down: int
    accuracy: float
    rho: float | None
    epsilon: float | None


@dataclass(frozen=True)
class Trial:
    """A simulated training: the file of its last model, and its rounds.

    `record_epsilon` is the most that all updates tell of a single record, at the delta of the
    trial, where devices train with noise; else it is infinite.
    """

    model: bytes
    rounds: Sequence[TriedRound]
    record_epsilon: float


def split(how: str, examples: Examples, people: int, seed: int) -> Split:
    """Deal examples out to people: "iid", "shards" (or "shards:2"), "dirichlet" ("dirichlet:0.5").

    Examples that name their person are dealt out so, whatever `how` and `people` are. Raises
    `InvalidInput` for another way, and where it has too few examples.
    """
    from dpsgd.federated import splits

    if examples.person is not None:
        return [
            np.flatnonzero(examples.person == one) for one in range(int(examples.person.max()) + 1)
        ]
    kind, shards, alpha = _kind(how)
    if people < 1:
        raise InvalidInput(f"--people must be at least 1, got {people:,}")
    if (needed := people * shards) > (count := len(examples.labels)):
        raise InvalidInput(
            f"--split {how} of {people:,} people takes {needed:,} examples at least, and there are "
            f"{count:,}: give fewer --people"
        )
    rng = np.random.default_rng(seed)
    if kind == "iid":
        return splits.iid(examples.labels, people, rng=rng)
    if kind == "shards":
        return splits.shards(examples.labels, people, per_client=shards, rng=rng)
    try:
        return splits.dirichlet(examples.labels, people, alpha=alpha, least=1, rng=rng)
    except InvalidInput:  # all else was checked
        raise InvalidInput(
            f"--split {how} left some of {people:,} people without examples, however often it was "
            "drawn: give fewer --people or a larger ALPHA"
        ) from None


def _kind(how: str) -> tuple[str, int, float]:
    """Return how examples are dealt out, each person's shards, and Dirichlet's alpha."""
    kind, _, given = how.partition(":")
    try:
        shards = int(given or 2) if kind == "shards" else 1
        alpha = float(given or 0.5) if kind == "dirichlet" else 1.0
    except ValueError:
        shards, alpha = 0, 0.0
    known = kind in ("iid", "shards", "dirichlet") and not (kind == "iid" and given)
    if not known or shards < 1 or not 0 < alpha < math.inf:
        raise InvalidInput(
            "--split must be iid, shards, shards:COUNT, dirichlet or dirichlet:ALPHA, with a COUNT "
            f"of at least 1 and an ALPHA > 0, got {how!r}"
        )
    return kind, shards, alpha


def simulate(
    declared: Declared,
    data: Examples,
    test: Examples,
    people: Split,
    *,
    rounds: int,
    seed: int | None,
    delta: float = figures.DELTA,
    progress: Callable[[TriedRound], object] = lambda _: None,
) -> Trial:
    """Run the first rounds of a training.

    Each round takes people at random who may take part: at most so often, and so far apart, as the
    training says. A device trains as `[training.local]` says, and writes its update as a real one
    does; the server's code aggregates. `seed` None draws everything afresh, as a real training
    does; with a seed the noise can be repeated, so that what comes of it protects nobody.
    Raises `InvalidInput` where data and model do not fit, and for an architecture that
    `dpsgd.federated.architectures` does not have.
    """
    import torch

    from dpsgd.federated import Accuracy, architectures, flat
    from dpsgd.federated.drawing import KeptApart

    training = declared.training
    if not 1 <= rounds <= training.rounds:
        raise InvalidInput(f"--rounds must be 1 to {training.rounds:,}, got {rounds:,}")
    if len(people) < training.updates_per_round:
        raise InvalidInput(
            f"a round takes {training.updates_per_round:,} updates, and there are only "
            f"{len(people):,} people in the data: give more --people, or declare fewer updates"
        )
    model = architectures.from_tensors(training.architecture, models.read(declared.model))
    _check_fits(model, data, test)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    devices = _local(training).start(
        model, torch.from_numpy(data.features).to(device), torch.from_numpy(data.labels).to(device)
    )
    rows = [torch.from_numpy(each).to(device) for each in people]
    evaluate = Accuracy(test.features, test.labels)
    rng = np.random.default_rng(seed)
    coins = Coins() if seed is None else SeededCoins(seed)
    noise = noise_of(training, secrets.token_bytes(32) if seed is None else rng.bytes(32))
    drawing = KeptApart(
        len(people),
        training.updates_per_round,
        participations=training.participations,
        separation=training.separation,
    )
    file, state, since, told = declared.model, None, 0, []

    def moves(clients: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        before = flat.read(model)
        for client in clients.tolist():
            coin = int(rng.integers(1 << 62))
            yield devices.update(client, rows[client], before, coin).cpu().numpy()

    def updates(
        clients: NDArray[np.int64],
    ) -> Iterator[NDArray[np.float32]] | NDArray[np.float64]:
        """Return what the server has of a round: updates as it reads them, or their noisy sum."""
        if isinstance(training.protection, SplitNoise):
            integers = (splitting.randomized(training, each, coins) for each in moves(clients))
            return splitting.decode_sum(training, sum(integers, np.zeros(1, np.int64)))
        encoded = (encoding.encode(training, each, coins) for each in moves(clients))
        return (encoding.decode(training, each) for each in encoded)

    for number in range(1, rounds + 1):
        clients = drawing.draw(number, rng)
        dropped = len(clients) < training.min_updates
        if not dropped:
            file, state = next_model(
                training,
                number,
                file,
                updates(clients),
                since=since,
                noise=noise,
                state=state,
            )
            since = number
            vector = torch.from_numpy(models.to_vector(models.read(file))).to(device)
            flat.write(model, vector)
        model.eval()
        with torch.no_grad():
            accuracy = evaluate(model)
        rho = figures.spent_rho(training, since)
        told.append(
            TriedRound(
                number=number,
                dropped=dropped,
                updates=len(clients),
                bytes_up=len(clients) * encoding.size(training),
                bytes_down=len(clients) * len(declared.model),
                accuracy=accuracy,
                rho=None if rho is None else float(rho),
                epsilon=figures.spent_epsilon(training, since, delta),
            )
        )
        progress(told[-1])
    return Trial(file, told, devices.get_epsilon(delta))


def _local(training: Training) -> "LocalTrainer":
    from dpsgd.federated import LocalSGD

    local = training.local
    noise = training.protection
    if isinstance(noise, RecordLevel):
        from dpsgd.federated import record_level

        if local.proximal:
            raise InvalidInput("a simulation with record_level has no proximal term: leave it out")
        return record_level.RecordLevel(
            lr=local.learning_rate,
            noise_multiplier=float(noise.noise_multiplier),
            max_grad_norm=noise.max_grad_norm,
            epochs=local.epochs,
            batch_size=local.batch_size or 1 << 32,  # of fewer records all are taken
            momentum=local.momentum,
        )
    return LocalSGD(
        lr=local.learning_rate,
        epochs=local.epochs,
        batch_size=local.batch_size,
        momentum=local.momentum,
        proximal=local.proximal,
    )


def _check_fits(model: "torch.nn.Module", data: Examples, test: Examples) -> None:
    """Raise `InvalidInput` where the examples have other features or labels than the model."""
    shapes = [tuple(each.shape) for each in model.parameters() if each.ndim == 2]
    features, classes = shapes[0][1], shapes[-1][0]
    for each in (data, test):
        if each.features.shape[1] != features:
            raise InvalidInput(
                f"the model has {features} features, and the data has {each.features.shape[1]}"
            )
        if each.labels.max() >= classes:
            raise InvalidInput(
                f"the model has {classes} classes, and the data has the label {each.labels.max()}"
            )
