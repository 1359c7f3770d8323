"""What a simulation asks of the privacy of a training, so that each kind of it fits one slot.

`Federation(..., privacy=value)` takes a `Protection`, starts it once, and then asks the `Protected`
training, in every round, who takes part and what the server gets to know.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Setting:
    """The public numbers of a training."""

    clients: int
    """How many people there are, each with the data of one client."""
    per_round: int
    """How many of them are to take part in a round: what a sum of updates is divided by."""
    rounds: int
    """How many rounds there are at most."""
    dimension: int
    """How many parameters the model has: the length of an update."""
    seed: int
    """Of the simulation's coins. A protection draws its own noise from it, and repeats it."""


class Protected(Protocol):
    """The protection of one training that is under way."""

    @property
    def bytes_up(self) -> int:
        """The bytes of one update on the wire."""
        ...

    def draw(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the ids of the clients that take part in a round, in increasing order.

        `number` is the round, from 1. Who takes part may depend on earlier rounds, and not on data.
        """
        ...

    def aggregate(
        self, number: int, clients: NDArray[np.int64], updates: Iterable[NDArray[np.float32]]
    ) -> NDArray[np.float64]:
        """Return the update of the model that a round makes, shape (dimension,).

        `updates` yields, in the order of `clients`, the difference between each client's model and
        the round's, as it was trained: neither clipped nor encoded, and with nan or inf where a
        client's training diverged. It can be read once, and an array of it may be overwritten.
        Called once in each round, in order, also where `clients` is empty.
        """
        ...

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon, at this delta, of the rounds that were aggregated so far."""
        ...


class Protection(Protocol):
    """A frozen value that says how a training is protected.

    With it the updates are averaged with equal weights, and no robust rule can be used.
    """

    def start(self, setting: Setting) -> Protected:
        """Return the protection of one training, and raise `InvalidInput` where it cannot be."""
        ...
