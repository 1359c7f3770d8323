"""What a simulated training came to: its rounds, how quickly it learned and what it sent."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsgd.accounting.events import check_integer
from ldp import InvalidInput


@dataclass(frozen=True)
class Round:
    """One round of a training."""

    number: int
    """From 1."""
    clients: tuple[int, ...]
    """Who took part."""
    score: float | None
    """What `evaluate` said of the round's model, None without."""
    bytes_up: int
    """What all clients of the round sent: the updates' payloads."""
    bytes_down: int
    """What they fetched: one model each, in float32."""


@dataclass(frozen=True)
class History:
    """The rounds of a training, in order."""

    rounds: tuple[Round, ...]

    @property
    def scores(self) -> tuple[float, ...]:
        """What `evaluate` said after each round. Raises `InvalidInput` if there was none."""
        found = tuple(r.score for r in self.rounds if r.score is not None)
        if len(found) < len(self.rounds):
            raise InvalidInput("the training was not evaluated: give evaluate to fit")
        return found

    @property
    def bytes_up(self) -> int:
        """What all clients sent in all rounds."""
        return sum(r.bytes_up for r in self.rounds)

    @property
    def bytes_down(self) -> int:
        """What all clients fetched in all rounds."""
        return sum(r.bytes_down for r in self.rounds)

    def rounds_to(self, target: float) -> int | None:
        """Return the number of the first round with a score of at least `target`, or None."""
        return rounds_to(self.scores, target)

    def last(self, count: int = 10) -> tuple[float, float]:
        """Return mean and standard deviation of the scores of the last `count` rounds.

        Fewer are taken where there are fewer. The last score alone depends on luck where a
        training swings. Raises `InvalidInput` where there is none.
        """
        return last(self.scores, count)


def rounds_to(scores: Sequence[float], target: float) -> int | None:
    """Return the number, from 1, of the first score that is at least `target`, or None."""
    return next((i for i, score in enumerate(scores, 1) if score >= target), None)


def last(scores: Sequence[float], count: int = 10) -> tuple[float, float]:
    """Return mean and standard deviation (over `count`) of the last scores, as `History.last`."""
    check_integer("count", count, 1)
    if not scores:
        raise InvalidInput("the training has no rounds")
    return float(np.mean(scores[-count:])), float(np.std(scores[-count:]))
