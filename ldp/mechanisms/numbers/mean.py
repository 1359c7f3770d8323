"""Base of the mechanisms for numbers in [-1, 1]: the grid, the scores, the mean."""

from abc import abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE
from ldp.core.mechanism import Codes, Counted, as_array
from ldp.core.tally import Tally
from ldp.errors import InvalidInput

MAX_CODES = 1 << 16
"""The most codes of a mean mechanism, because a tally counts every one."""

MAX_GRID = 2048
"""The most grid steps: rounding then adds less than 3e-7 of variance."""

MAX_POINTS = 513
"""Values of a number whose shares can be estimated (`ldp.estimating.points`): an estimate costs the
cube of how many there are, and takes half a second for so many."""

_BLOCK = 1 << 15  # numbers per block: as many as fit a core's cache
_MAX_CELLS = 1 << 20  # the most entries of a channel enumerated in rationals


class MeanMechanism(Counted):
    """A local randomizer of numbers in [-1, 1] whose estimate is the mean, shape (1,).

    A number is first rounded at random to a neighbour on the grid -1, -1 + 2 / steps, ..., 1,
    without bias; a finite channel from grid points to codes follows. Rounding happens before
    the channel, so the guarantee does not depend on it. Each code has an exact score with
    sum over codes of Q[i][code] * score[code] = the grid point i; a tally counts the codes.
    Batches round with 32-bit coins, which shifts a number by less than 2**-32 of a step.
    """

    @property
    @abstractmethod
    def steps(self) -> int:
        """The number of grid steps between -1 and 1; there is one grid point more."""

    @property
    @abstractmethod
    def scores(self) -> tuple[Fraction, ...]:
        """The exact unbiased estimate of the number from each code."""

    @abstractmethod
    def _table(self) -> tuple[tuple[Fraction, ...], NDArray[np.intp]]:
        """Return the distinct probabilities, and the index of one per grid point and code."""

    @abstractmethod
    def _report(self, point: int, coins: Coins) -> int:
        """Return the code of one grid point."""

    @abstractmethod
    def _report_many(self, points: NDArray[np.uint32], coins: Coins) -> NDArray[Any]:
        """Return one code per grid point, shape (n,)."""

    @property
    def codes(self) -> int:
        """The number of different codes."""
        return self.tally_size

    @property
    def parameters(self) -> int:
        return 1

    @property
    def bounds(self) -> tuple[float, float]:
        return -1.0, 1.0

    def randomize(self, value: float, coins: Coins) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise InvalidInput(f"{self.name}: a number is expected, got {value!r}")
        if not -1 <= value <= 1:
            raise InvalidInput(f"{self.name}: a number must lie in [-1, 1], got {value!r}")
        point, up = self._place(value)
        return self._report(point + coins.bernoulli(up), coins)

    def _place(self, value: float) -> tuple[int, int]:
        """Return the grid point at or below a number, and 2**64 times the chance of the next."""
        # (value + 1) / 2 * steps, exactly; a Fraction would take five times as long.
        numerator, denominator = float(value).as_integer_ratio()
        point, rest = divmod((numerator + denominator) * self.steps, 2 * denominator)
        return point, rest * ONE // (2 * denominator)

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = as_array(self.name, values)
        if array.ndim != 1 or array.dtype.kind not in "iuf":
            raise InvalidInput(
                f"{self.name}: numbers are a 1-d array, got {array.dtype} of shape {array.shape}"
            )
        # nan fails the comparison too
        if array.size and not (array.min() >= -1 and array.max() <= 1):
            raise InvalidInput(f"{self.name}: numbers must lie in [-1, 1]")
        result = np.empty(array.size, dtype=self.code_dtype)
        for start in range(0, array.size, _BLOCK):
            block = array[start : start + _BLOCK].astype(float)
            result[start : start + _BLOCK] = self._report_many(self._round(block, coins), coins)
        return result

    def _round(self, numbers: NDArray[np.float64], coins: Coins) -> NDArray[np.uint32]:
        positions = ((numbers + 1) * (self.steps * 2.0**31)).astype(np.int64)
        positions += coins.words(-(-numbers.size // 2)).view(np.uint32)[: numbers.size]
        positions >>= 32
        return positions.astype(np.uint32)

    @cached_property
    def _scores(self) -> NDArray[np.float64]:
        return np.array([float(score) for score in self.scores])

    @cached_property
    def _second_moments(self) -> NDArray[np.float64]:
        """The expected square of a report's score, by grid point."""
        moments: NDArray[np.float64] = self.matrix() @ self._scores**2
        return moments

    @cached_property
    def _least_variance(self) -> float:
        """The least variance of one report over all grid points."""
        return float(self.report_variance(np.linspace(-1, 1, self.steps + 1)).min())

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        return np.array([tally.counts @ self._scores / tally.n])

    def report_variance(self, values: ArrayLike) -> NDArray[np.float64]:
        """Return the variance of one report's score, rounding included, for each number."""
        numbers = np.asarray(values, dtype=float)
        grid = np.linspace(-1, 1, self.steps + 1)
        result: NDArray[np.float64] = np.interp(numbers, grid, self._second_moments) - numbers**2
        return result

    @property
    def largest_report_variance(self) -> float:
        """The largest variance of one report over 4097 evenly spaced numbers."""
        return float(self.report_variance(np.linspace(-1, 1, 2 * MAX_GRID + 1)).max())

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the largest variance of `debias` for n draws from a population of mean `truth`.

        It depends on the population beyond its mean, except for the one-bit mechanism;
        `tally_variance` is the estimate for the population at hand.
        """
        largest = float(self._second_moments.max())
        return (largest - np.asarray(truth, dtype=float) ** 2) / n

    def tally_variance(self, truth: ArrayLike, tally: Tally) -> NDArray[np.float64]:
        """Return the empirical variance of `debias`, for a population of mean `truth`.

        It is held between the mechanism's own least variance and `variance`, so that a
        handful of equal codes never claims an error of zero.
        """
        largest = self.variance(truth, 1)
        if tally.n == 1:
            return largest
        deviations = self._scores - tally.counts @ self._scores / tally.n
        spread = tally.counts @ deviations**2 / (tally.n - 1)
        return np.clip(spread, self._least_variance, largest) / tally.n

    def spread(self, center: float, tally: Tally, imagined: float = 0) -> float:
        squares = float(tally.counts @ (self._scores - center) ** 2)
        ends = np.array([-1.0, 1.0])
        at_ends = float(np.sum(self.report_variance(ends) + (ends - center) ** 2))
        mean = (squares + imagined / 2 * at_ends) / (tally.n + imagined)
        return max(mean, self._least_variance)

    def matrix(self) -> NDArray[np.float64]:
        """Return the channel in floats, shape (steps + 1, codes)."""
        probabilities, index = self._table()
        result: NDArray[np.float64] = np.array([float(p) for p in probabilities])[index]
        return result

    def channel(self) -> Channel:
        """Enumerate the channel from the grid points; other numbers are mixtures of rows."""
        if (self.steps + 1) * self.codes > _MAX_CELLS:
            raise InvalidInput(
                f"a channel of {self.steps + 1} x {self.codes} is too large to enumerate"
            )
        probabilities, index = self._table()
        rows = tuple(tuple(probabilities[cell] for cell in row) for row in index.tolist())
        return Channel(tuple(range(self.codes)), rows)


def check_size(name: str, grid: int, codes: int) -> None:
    """Raise `InvalidInput` unless 1 <= grid <= MAX_GRID and codes <= MAX_CODES."""
    if not 1 <= grid <= MAX_GRID:
        raise InvalidInput(f"{name}: grid must lie in 1..{MAX_GRID}, got {grid}")
    if codes > MAX_CODES:
        raise InvalidInput(f"{name}: there may be {MAX_CODES} different codes, got {codes}")
