"""The window channel, which the piecewise mechanism and the square wave share."""

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.core.exact import ONE, ceil_threshold, exp_bounds
from ldp.core.mechanism import check_threshold
from ldp.mechanisms.numbers.mean import MeanMechanism, check_size


@dataclass(frozen=True)
class WindowMechanism(MeanMechanism):
    """Draw uniformly from a window that moves with the number, or from all codes.

    The codes are 0..grid + window - 1. From grid point i, with probability resample / 2**64
    the code is uniform on all of them, else on the window i..i + window - 1. The window moves
    by one code per grid step, so the expected code is linear in i, and debiasing is exact.
    Guarantee: epsilon-LDP for every pair of numbers, with e**realised_epsilon =
    1 + (2**64 - resample) (grid + window) / (resample window) <= e**epsilon.
    Cost: one code of 1 or 2 bytes. Raises `InvalidInput` unless 1 <= grid <= 2048 and
    1 <= window <= 2**16 - grid.
    """

    epsilon: float
    grid: int = 0
    window: int = 0
    resample: int = 0

    @property
    @abstractmethod
    def _default_grid(self) -> int:
        """The number of grid steps where `grid` is not given."""

    @property
    @abstractmethod
    def _relative_window(self) -> float:
        """The window's best width over the distance it moves."""

    def _calibrate(self) -> None:
        if self.grid == 0:
            object.__setattr__(self, "grid", self._default_grid)
        if self.window == 0:
            object.__setattr__(self, "window", max(1, round(self._relative_window * self.grid)))
        check_size(self.name, self.grid, self.codes)
        if self.resample == 0:
            gain = (exp_bounds(Fraction(self.epsilon))[0] - 1) * self.window
            object.__setattr__(self, "resample", ceil_threshold(self.codes / (self.codes + gain)))
        check_threshold(f"{self.name}: resample", self.resample)

    def _worst_ratio(self) -> Fraction:
        far, near = self._probabilities
        return near / far

    @property
    def _probabilities(self) -> tuple[Fraction, Fraction]:
        """A code's probability outside and inside the window."""
        anywhere = Fraction(self.resample, ONE)
        far = anywhere / self.codes
        return far, far + (1 - anywhere) / self.window

    @property
    def variation(self) -> Fraction:
        far, near = self._probabilities
        return min(self.window, self.grid) * (near - far)

    @property
    def steps(self) -> int:
        return self.grid

    @property
    def tally_size(self) -> int:
        return self.grid + self.window

    @property
    def scores(self) -> tuple[Fraction, ...]:
        kept = 1 - Fraction(self.resample, ONE)
        unit = 1 / (self.grid * kept)
        return tuple((2 * code - self.codes + 1) * unit for code in range(self.codes))

    def _report(self, point: int, coins: Coins) -> int:
        if coins.bernoulli(self.resample):
            return coins.below(self.codes)
        return point + coins.below(self.window)

    def _report_many(self, points: NDArray[np.uint32], coins: Coins) -> NDArray[np.uint32]:
        n = points.size
        anywhere = coins.below_many(self.codes, n)
        near = coins.below_many(self.window, n)
        near += points
        return np.where(coins.bernoulli_many(self.resample, n), anywhere, near)

    def _table(self) -> tuple[tuple[Fraction, ...], NDArray[np.intp]]:
        offset = np.arange(self.codes) - np.arange(self.grid + 1)[:, None]
        return self._probabilities, ((offset >= 0) & (offset < self.window)).astype(np.intp)
