"""Noise and norms that change from step to step.

A schedule is any function of the number of steps made so far, 0 before the first. It is public: it
must not depend on the data, nor on results of earlier steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

from dpsgd.accounting.events import check_integer

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class Exponential:
    """The schedule max(start * factor ** step, least)."""

    start: float
    factor: float
    least: float = 0.0

    def __call__(self, step: int) -> float:
        return max(self.start * self.factor**step, self.least)


@dataclass(frozen=True)
class Linear:
    """The schedule linear from `start` in the first step to `end` after `steps`, then `end`."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        check_integer("steps", self.steps, 1)

    def __call__(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(1.0, step / self.steps)
