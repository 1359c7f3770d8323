"""The discrete Laplace mechanism for the mean."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.core.exact import ONE, ceil_threshold, exp_bounds
from ldp.errors import InvalidInput
from ldp.mechanisms.numbers.mean import MeanMechanism, check_size
from ldp.mechanisms.tools.sampling import draw_many, thresholds


@dataclass(frozen=True)
class LaplaceMechanism(MeanMechanism):
    """Add two-sided geometric noise to the grid point and clamp the sum to the grid.

    `tails[j]` / 2**64 is the probability that the noise is at least j steps upward, and the
    same downward, for j = 0..grid. Clamping loses nothing: noise goes beyond an end of the
    grid by a geometric length that does not depend on the number, so the two end codes are
    scored with its expectation, and the variance is below that of unclamped noise, which
    approaches 8 / epsilon**2. The scores are unbiased up to the rounding of `tails`: less than
    2**-40 for epsilon <= 8.
    Guarantee: epsilon-LDP for every pair of numbers; e**realised_epsilon is the larger of
    tails[0] / tails[grid] (an end code) and the extreme ratio of the differences of `tails`.
    Cost: one code of 1 or 2 bytes. Raises `InvalidInput` unless 1 <= grid <= 2048 and the
    tails fall, with tails[0] + tails[1] = 2**64.
    Source: Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy
    mechanisms", STOC 2009 (the truncated geometric mechanism).
    """

    name: ClassVar[str] = "laplace"
    epsilon: float
    grid: int = 0
    tails: tuple[int, ...] = ()

    def _calibrate(self) -> None:
        if self.grid == 0:
            object.__setattr__(self, "grid", 64)
        check_size(self.name, self.grid, self.grid + 1)
        if not self.tails:
            object.__setattr__(self, "tails", self._geometric_tails())
        if len(self.tails) != self.grid + 1:
            raise InvalidInput(
                f"{self.name}: a grid of {self.grid} takes {self.grid + 1} tails, "
                f"got {len(self.tails)}"
            )
        thresholds(self.name, self._noise)

    def _geometric_tails(self) -> tuple[int, ...]:
        step = Fraction(self.epsilon) / self.grid
        first = exp_bounds(-step)[1]
        upper = [
            ceil_threshold(exp_bounds(-j * step)[1] / (1 + first)) for j in range(1, self.grid + 1)
        ]
        return (ONE - upper[0], *upper)

    @cached_property
    def _steps_down(self) -> tuple[int, ...]:
        """The weights of noise of exactly j = 0..grid - 1 steps in one direction."""
        return tuple(above - beyond for above, beyond in pairwise(self.tails))

    @property
    def _noise(self) -> tuple[int, ...]:
        """The weights of noise of -grid..grid steps; each end includes all noise beyond it."""
        side = (*self._steps_down[1:], self.tails[-1])
        return (*side[::-1], self._steps_down[0], *side)

    @cached_property
    def _limits(self) -> NDArray[np.uint64]:
        return thresholds(self.name, self._noise)

    def _worst_ratio(self) -> Fraction:
        # Code 1 is 0..grid - 1 steps away from the inputs, and no inner code is farther.
        inner = self._steps_down if self.grid > 1 else (1,)
        return max(
            Fraction(self.tails[0], self.tails[-1]),
            Fraction(max(inner), min(inner)),
        )

    @property
    def steps(self) -> int:
        return self.grid

    @property
    def tally_size(self) -> int:
        return self.grid + 1

    @property
    def scores(self) -> tuple[Fraction, ...]:
        # Beyond an end the noise goes on for r / (1 - r) steps on average, r = tails[1:] ratio.
        beyond = Fraction(self.tails[1], self.tails[0] - self.tails[1])
        end = 1 + 2 * beyond / self.grid
        inner = (Fraction(2 * point, self.grid) - 1 for point in range(1, self.grid))
        return (-end, *inner, end)

    def _report(self, point: int, coins: Coins) -> int:
        return int(self._report_many(np.array([point], dtype=np.uint32), coins)[0])

    def _report_many(self, points: NDArray[np.uint32], coins: Coins) -> NDArray[np.intp]:
        noisy = draw_many(self._limits, points.size, coins)
        noisy += points
        noisy -= self.grid
        return np.clip(noisy, 0, self.grid, out=noisy)

    def _table(self) -> tuple[tuple[Fraction, ...], NDArray[np.intp]]:
        codes = np.arange(self.grid + 1)
        index = abs(codes - codes[:, None])
        index[:, 0] = self.grid + codes
        index[:, -1] = self.grid + codes[::-1]
        weights = (*self._steps_down, *self.tails)
        return tuple(Fraction(weight, ONE) for weight in weights), index
