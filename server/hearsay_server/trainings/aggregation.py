"""A round's updates become the next model: a function of its inputs alone, to the bit.

The mean is an exact sum of integers on a grid, and the noise comes from the training's seed and the
round's number. So it does not matter in which order updates came, nor which process made the model,
nor how often.
"""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hearsay.federated import models
from hearsay.federated.declaration import CentralNoise, LocalNoise, Training
from ldp.errors import InvalidInput

if TYPE_CHECKING:
    from dpsgd.federated.round_noise import RoundNoise

Vector = NDArray[np.float32]

MOST_HELD = 1 << 30
"""Bytes of updates that a rule other than the mean may hold at once."""

_MORE = 1 + 2.0**-10

_STATE = np.dtype("<f8")


def noise_of(training: Training, seed: bytes | None) -> "RoundNoise | None":
    """Return the noise of a training's rounds from its seed of 32 bytes; None where it has none.

    A round that follows the last one that was made is cheap, any other goes through all rounds
    before it, with the same result: whoever makes several models keeps this.
    """
    if not isinstance(training.protection, CentralNoise):
        return None
    from dpsgd.federated.round_noise import RoundNoise

    if seed is None:
        raise InvalidInput(f"{training.name!r} has no seed of its noise any more")
    return RoundNoise(
        training.protection.mechanism,
        rounds=training.rounds,
        bands=training.protection.bands,
        participations=training.participations,
        separation=training.separation,
        noise_multiplier=float(training.protection.noise_multiplier),
        max_update_norm=training.max_update_norm,
        dimension=training.dimension,
        seed=seed,
    )


class Noises:
    """The noise of several trainings, kept from one round to the next. One thread uses it."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[tuple[bytes, bytes | None], RoundNoise | None]] = {}

    def of(self, training: Training, seed: bytes | None) -> "RoundNoise | None":
        """Return `noise_of` a training."""
        key = training.revision, seed
        if training.name not in self._made or self._made[training.name][0] != key:
            self._made[training.name] = key, noise_of(training, seed)
        return self._made[training.name][1]

    def keep(self, names: Collection[str]) -> None:
        """Forget the noise of all other trainings."""
        self._made = {name: made for name, made in self._made.items() if name in names}


def next_model(
    training: Training,
    number: int,
    file: bytes,
    updates: Iterator[Vector] | NDArray[np.float64],
    *,
    since: int,
    noise: "RoundNoise | None",
    state: bytes | None,
) -> tuple[bytes, bytes | None]:
    """Return the safetensors file of the model after a round, and the optimizer's state then.

    `file` is the round's model, `updates` are vectors of shape (dimension,), of a norm of at most
    `max_update_norm`, in the order of their ids; or their sum with its noise, shape (dimension,),
    where two servers made it. `since` is the last round before it that made a
    model, or 0, and `state` what this returned for that round, or None. `noise` is `noise_of` the
    training.

    Guarantee: with central noise all models of a training together are `training.rho`-zCDP for one
    person's updates against zeros in their place, if the seed stays secret, each round is
    aggregated of one set of updates only, and devices keep participations and separation.
    Cost: O(updates * dimension) time; memory for a few vectors, and for all updates where the rule
    is not the mean. Raises `InvalidInput` where the model has numbers that are not finite.
    """
    from dpsgd.federated import server_optimizers

    rule = training.aggregation
    tensors = models.read(file, training.dimension)
    optimizer = server_optimizers.named(rule.optimizer, rule.learning_rate, rule.momentum)
    before = (
        optimizer.initial(training.dimension)
        if state is None
        else tuple(np.frombuffer(state, _STATE).reshape(-1, training.dimension))
    )
    if isinstance(updates, np.ndarray):
        update = updates / training.updates_per_round
    elif rule.rule == "mean":
        update = _mean(training, number, updates, since, noise)
    else:
        update = _robust(training, updates)
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        model, after = optimizer.step(models.to_vector(tensors), update, before)
    if not np.isfinite(model).all():
        raise InvalidInput(
            "the next model has numbers that are not finite: the updates, the noise or the "
            "learning rate are too large; close the training"
        )
    kept = b"".join(each.astype(_STATE).tobytes() for each in after)
    return models.write(models.from_vector(model, tensors)), kept or None


def check(training: Training) -> None:
    """Raise `InvalidInput` where a server cannot aggregate a training's rounds."""
    held = 4 * training.dimension * training.updates_per_round
    pairs = training.aggregation.rule in ("krum", "multi_krum")
    if pairs:
        held += 24 * training.updates_per_round**2  # distances of all pairs, and copies of them
    if training.aggregation.rule != "mean" and held > MOST_HELD:
        raise InvalidInput(
            f"aggregation.rule: {training.aggregation.rule!r} holds all updates of a round"
            f"{' and the distances of all pairs' * pairs}, {held:,} bytes here, and a server holds "
            f"{MOST_HELD:,} at most: declare fewer updates_per_round"
        )
    try:
        noise_of(training, bytes(32))
    except InvalidInput as error:
        raise InvalidInput(f"central: {error}") from None


def _mean(
    training: Training,
    number: int,
    updates: Iterator[Vector],
    since: int,
    noise: "RoundNoise | None",
) -> NDArray[np.float64]:
    """Return the exact sum, with the round's noise where there is one, over `updates_per_round`."""
    from dpsgd.federated.exact_sums import ExactSum

    if noise is not None:
        total = noise.release(number, noise.sum().add_all(updates), since=since)
    else:
        bound = training.max_update_norm
        if isinstance(training.protection, LocalNoise):
            bound /= training.protection.mechanism.gain  # an estimate's norm
        # A little more, so that the rounding of an estimate has none scaled down.
        total = ExactSum(training.dimension, bound * _MORE).add_all(updates).value()
    return total / training.updates_per_round


def _robust(training: Training, updates: Iterator[Vector]) -> NDArray[np.float64]:
    from dpsgd.federated import rules

    rule = rules.RULES[training.aggregation.rule]
    # Of some encodings a decoded update is a view of its payload, which is as large.
    return np.asarray(rule(list(updates), training.aggregation.hostile), np.float64)
