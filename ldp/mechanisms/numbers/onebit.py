"""The one-bit mean mechanism."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.core.exact import ONE, flip_threshold
from ldp.core.mechanism import check_flip
from ldp.mechanisms.numbers.mean import MeanMechanism


@dataclass(frozen=True)
class OneBitMean(MeanMechanism):
    """Round a number in [-1, 1] at random to -1 or 1, then flip it with flip / 2**64.

    A code is the bit (0 for -1, 1 for 1); a tally counts both; an estimate is the mean, shape
    (1,). Rounding happens before the channel, so the guarantee does not depend on it.
    Guarantee: epsilon-LDP for every pair of numbers, with
    e**realised_epsilon = (2**64 - flip) / flip <= e**epsilon.
    Cost: one byte. Source: Duchi, Jordan and Wainwright, "Minimax optimal procedures for
    locally private estimation", JASA 113(521), 2018, for d = 1; variance
    ((e**epsilon + 1) / (e**epsilon - 1))**2 - t**2 for one report. Microsoft's 1BitMean (Ding,
    Kulkarni and Yekhanin, "Collecting telemetry data privately", NIPS 2017, equations 1 and 2)
    is the same channel, for numbers in [0, m] mapped to [-1, 1].
    """

    name: ClassVar[str] = "onebit"
    epsilon: float
    flip: int = 0

    def _calibrate(self) -> None:
        if self.flip == 0:
            object.__setattr__(self, "flip", flip_threshold(Fraction(self.epsilon)))
        check_flip(self.name, self.flip)

    def _worst_ratio(self) -> Fraction:
        return Fraction(ONE - self.flip, self.flip)

    @property
    def variation(self) -> Fraction:
        return 1 - Fraction(2 * self.flip, ONE)

    @property
    def steps(self) -> int:
        return 1

    @property
    def tally_size(self) -> int:
        return 2

    @property
    def scores(self) -> tuple[Fraction, ...]:
        score = 1 / (1 - Fraction(2 * self.flip, ONE))
        return -score, score

    def _report(self, point: int, coins: Coins) -> int:
        return point ^ coins.bernoulli(self.flip)

    def _report_many(self, points: NDArray[np.uint32], coins: Coins) -> NDArray[Any]:
        bits = points.astype(np.uint8)
        bits ^= coins.bernoulli_many(self.flip, points.size).view(np.uint8)
        return bits

    def _table(self) -> tuple[tuple[Fraction, ...], NDArray[np.intp]]:
        flip = Fraction(self.flip, ONE)
        return (1 - flip, flip), np.array([[0, 1], [1, 0]])
