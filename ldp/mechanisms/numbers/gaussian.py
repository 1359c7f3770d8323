"""The discrete Gaussian mechanism for the mean: (epsilon, delta), not pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.core.exact import ONE, check_epsilon, exp_bounds
from ldp.core.mechanism import check_threshold
from ldp.errors import InvalidInput
from ldp.mechanisms.numbers.mean import MeanMechanism, check_size
from ldp.mechanisms.tools.sampling import draw_many, thresholds

_GRID = 16  # the noise is far wider than a step, so a finer grid gains nothing


@dataclass(frozen=True)
class GaussianMechanism(MeanMechanism):
    """Add symmetric noise with the shape of a Gaussian to the grid point.

    `noise[j]` / 2**64 is the probability of j steps upward, and of j downward, j = 0..last; the
    noise is finite and symmetric, so debiasing is exact. Built without `noise`, its width is
    calibrated to (epsilon, delta / 2**64); built with it, the guarantee is verified exactly.
    Guarantee: (epsilon, delta / 2**64)-LDP for every pair of numbers, and NOT pure epsilon-LDP
    for any epsilon: `realised_epsilon` is infinite, `realised_delta` is the exact delta at
    `epsilon`. It is not among the mechanisms a plan can name, because a ledger of pure
    epsilons must not carry it. (Hybrid, Laplace and one-bit are pure and, for a single number,
    more accurate at every usual delta.)
    Cost: one code of 1 or 2 bytes. Raises `InvalidInput` for 0 < delta < 2**64 violated, a
    noise that exceeds the guarantee, and one of more than 2**16 codes (epsilon below 0.02).
    Source: Balle and Wang, "Improving the Gaussian mechanism for differential privacy", ICML
    2018, theorem 8; Canonne, Kamath and Steinke, "The discrete Gaussian for differential
    privacy", NeurIPS 2020.
    """

    name: ClassVar[str] = "gaussian"
    guarantee = "approximate"
    epsilon: float
    delta: int
    grid: int = 0
    noise: tuple[int, ...] = ()

    @classmethod
    def calibrated(cls, epsilon: float, delta: float) -> Self:
        """Return the mechanism for a delta given as a probability, in units of 2**-64."""
        if not 0 < delta < 1:
            raise InvalidInput(f"{cls.name}: delta must lie strictly between 0 and 1, got {delta}")
        return cls(epsilon, math.floor(Fraction(delta) * ONE))

    def _calibrate(self) -> None:
        check_threshold(f"{self.name}: delta", self.delta)
        if self.grid == 0:
            object.__setattr__(self, "grid", _GRID)
        if self.noise:
            check_size(self.name, self.grid, self.codes)
            thresholds(self.name, self._both_sides)
            return
        width = gaussian_width(self.epsilon, self.delta / ONE) * self.grid
        while True:
            check_size(self.name, self.grid, self.grid + math.ceil(12 * width))
            noise = _gaussian_weights(width)
            check_size(self.name, self.grid, self.grid + 2 * len(noise) - 1)
            if self._hockey_stick(noise) <= self.delta:
                break
            width *= 1 + 2.0**-10
        object.__setattr__(self, "noise", noise)

    def _check_privacy(self) -> None:
        realised = self._hockey_stick(self.noise)
        if realised > self.delta:
            raise InvalidInput(
                f"{self.name}: at epsilon {self.epsilon:g} the integers give delta "
                f"{float(realised) / ONE:.6g}, more than the {self.delta / ONE:.6g} "
                "they were meant for"
            )

    def _hockey_stick(self, noise: Sequence[int]) -> Fraction:
        """Return 2**64 times the largest sum of P - e**epsilon P' over all pairs of inputs.

        Inputs are told apart by their distance alone, and the noise is symmetric. e**epsilon
        is taken from below, which only makes delta larger.
        """
        low = exp_bounds(Fraction(self.epsilon))[0]
        both = (*noise[:0:-1], *noise)
        worst = Fraction(0)
        for distance in range(1, self.grid + 1):
            moved = (*both[distance:], *(0,) * min(distance, len(both)))
            excess = (
                low.denominator * a - low.numerator * b for a, b in zip(both, moved, strict=True)
            )
            worst = max(worst, Fraction(sum(e for e in excess if e > 0), low.denominator))
        return worst

    def _worst_ratio(self) -> Fraction:
        raise InvalidInput(f"{self.name}: its codes can rule a number out; it has no pure epsilon")

    @property
    def realised_epsilon(self) -> float:
        """Infinite: with probability up to delta a report may rule some numbers out."""
        return math.inf

    @property
    def realised_delta(self) -> float:
        """The smallest double certainly >= the delta of the exact integers at `epsilon`."""
        exact = self._hockey_stick(self.noise) / ONE
        nearest = float(exact)
        return math.nextafter(nearest, 1.0) if Fraction(nearest) < exact else nearest

    @property
    def _both_sides(self) -> tuple[int, ...]:
        return (*self.noise[:0:-1], *self.noise)

    @cached_property
    def _limits(self) -> NDArray[np.uint64]:
        return thresholds(self.name, self._both_sides)

    @property
    def steps(self) -> int:
        return self.grid

    @property
    def tally_size(self) -> int:
        return self.grid + 2 * len(self.noise) - 1

    @property
    def scores(self) -> tuple[Fraction, ...]:
        return tuple(Fraction(2 * code - self.codes + 1, self.grid) for code in range(self.codes))

    def _report(self, point: int, coins: Coins) -> int:
        return point + int(draw_many(self._limits, 1, coins)[0])

    def _report_many(self, points: NDArray[np.uint32], coins: Coins) -> NDArray[np.intp]:
        codes = draw_many(self._limits, points.size, coins)
        codes += points
        return codes

    def _table(self) -> tuple[tuple[Fraction, ...], NDArray[np.intp]]:
        last = len(self.noise)
        distance = abs(np.arange(self.codes) - np.arange(self.grid + 1)[:, None] - last + 1)
        levels = tuple(Fraction(weight, ONE) for weight in (*self.noise, 0))
        return levels, np.minimum(distance, last)


def gaussian_width(epsilon: float, delta: float) -> float:
    """Return the least standard deviation, in sensitivities, of (epsilon, delta) Gaussian noise.

    Source: Balle and Wang 2018, theorem 8: the least s with
    Phi(1 / (2 s) - epsilon s) - e**epsilon Phi(-1 / (2 s) - epsilon s) <= delta, by bisection.
    """
    check_epsilon(epsilon)

    def normal(x: float) -> float:
        return math.erfc(-x / math.sqrt(2)) / 2

    def needed_delta(s: float) -> float:
        less = math.exp(epsilon) * normal(-0.5 / s - epsilon * s)
        return normal(0.5 / s - epsilon * s) - less

    low, high = 0.0, 1.0
    while needed_delta(high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if needed_delta(middle) <= delta else (middle, high)
    return high


def _gaussian_weights(width: float) -> tuple[int, ...]:
    """Return integer weights of 0, 1, ... steps that sum to 2**64 over both directions."""
    reach = np.arange(math.ceil(12 * width))
    shape = np.exp(-0.5 * (reach / width) ** 2)
    side = [round(weight) for weight in (shape / (2 * shape.sum() - 1) * 2.0**64).tolist()]
    side = [weight for weight in side if weight]
    return (ONE - 2 * sum(side[1:]), *side[1:])
