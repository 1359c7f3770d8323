"""A round's updates become the next model: a function of its inputs alone, to the bit.

The mean is an exact sum of integers on a grid, and the noise comes from the training's seed and the
round's number. So it does not matter in which order updates came, nor which process made the model,
nor how often.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hearsay.federated import models
from hearsay.federated.declaration import Training
from ldp.errors import InvalidInput

Vector = NDArray[np.float32]

MOST_HELD = 1 << 30
"""Bytes of updates that a rule other than the mean may hold at once."""

_STATE = np.dtype("<f8")


def next_model(
    training: Training,
    number: int,
    file: bytes,
    updates: Iterator[Vector],
    *,
    seed: bytes | None,
    state: bytes | None,
) -> tuple[bytes, bytes | None]:
    """Return the safetensors file of the model after a round, and the optimizer's state then.

    `file` is the round's model, `updates` are vectors of shape (dimension,), of a norm of at most
    `max_update_norm`, in the order of their ids; `state` is what this returned for the last round
    that made a model, or None. `seed` are the 32 bytes that central noise is drawn from, else None.

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
    update = (
        _mean(training, number, updates, seed)
        if rule.rule == "mean"
        else _robust(training, updates)
    )
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
    if training.aggregation.rule != "mean" and held > MOST_HELD:
        raise InvalidInput(
            f"aggregation.rule: {training.aggregation.rule!r} holds all updates of a round, "
            f"{held:,} bytes here, and a server holds {MOST_HELD:,} at most: declare fewer "
            "updates_per_round"
        )


def _mean(
    training: Training, number: int, updates: Iterator[Vector], seed: bytes | None
) -> NDArray[np.float64]:
    """Return the exact sum, with the round's noise where there is one, over `updates_per_round`."""
    raise NotImplementedError


def _robust(training: Training, updates: Iterator[Vector]) -> NDArray[np.float64]:
    from dpsgd.federated import rules

    rule = rules.RULES[training.aggregation.rule]
    # Of some encodings a decoded update is a view of its payload, which is as large.
    return np.asarray(rule(list(updates), training.aggregation.hostile), np.float64)
