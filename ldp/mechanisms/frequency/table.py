"""An explicit channel: any policy over a small domain, as a table of integers."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, check_epsilon, exp_bounds
from ldp.core.mechanism import Categorical, Codes, Counted
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.tools.sampling import draw_many, thresholds

_MAX_WEIGHTS = 1 << 16  # a plan carries them all

_ROUNDING = 1 << 16
"""The most that rounding adds to a weight; floats miss a ratio of e**epsilon by less."""


@dataclass(frozen=True)
class ChannelTable(Counted, Categorical):
    """Report code y for category x with probability weights[m x + y] / 2**64.

    There are m = len(weights) / k codes. A tally counts them; the estimate is the linear one of
    least variance at uniform truth among the unbiased (generalised least squares; for m = k the
    inverse of the channel), and sums to one.
    Guarantee: epsilon-LDP for every pair of categories; e**realised_epsilon is the largest
    ratio within a column of the table, <= e**epsilon. There is nothing to calibrate: a table
    spends its `realised_epsilon`.
    Cost: one code of 1 or 2 bytes; k m integers in a plan; one search in a row for a report.
    Raises `InvalidInput` unless 2 <= k <= m, k m <= 2**16, all weights are positive, each row
    sums to 2**64, and the rows are linearly independent.
    Source: Kairouz, Oh and Viswanath, "Extremal mechanisms for local differential privacy",
    JMLR 17, 2016, for staircase tables; estimation is weighted least squares (Aitken 1935).
    """

    name: ClassVar[str] = "table"
    k: int
    epsilon: float
    weights: tuple[int, ...]

    @classmethod
    def from_rows(cls, epsilon: float, rows: Sequence[Sequence[Fraction | float]]) -> Self:
        """Return the table of a channel given in rationals or floats, rounded toward privacy.

        All rows are mixed with the uniform distribution, by less than 10**-9 where epsilon
        >= 0.01, which absorbs the effect of rounding on a ratio. Raises `InvalidInput`
        for rows that are no distributions (within 10**-9), and where the channel itself
        exceeds epsilon.
        """
        size = len(rows[0]) if rows else 0
        exact = []
        for x, row in enumerate(rows):
            if len(row) != size or not all(math.isfinite(p) and p >= 0 for p in row):
                raise InvalidInput(f"row {x} must have {size} probabilities, got {row!r}")
            total = sum((Fraction(p) for p in row), Fraction(0))
            if abs(total - 1) > Fraction(1, 10**9):
                raise InvalidInput(f"row {x} must sum to one, got {float(total)}")
            exact.append([Fraction(p) / total for p in row])
        gain = exp_bounds(Fraction(check_epsilon(epsilon)))[0] - 1
        floor = 2 + math.ceil((_ROUNDING + size) / gain)
        weights: list[int] = []
        for row in exact:
            rounded = [floor + math.floor(p * (ONE - floor * size)) for p in row]
            rounded[-1] += ONE - sum(rounded)
            weights += rounded
        return cls(len(rows), epsilon, tuple(weights))

    def _calibrate(self) -> None:
        self._check_k(1 << 8)
        if len(self.weights) % self.k or not self.k**2 <= len(self.weights) <= _MAX_WEIGHTS:
            raise InvalidInput(
                f"{self.name}: {self.k} rows of equally many weights, {self.k} or more and "
                f"{_MAX_WEIGHTS} in all, are expected, got {len(self.weights)} weights"
            )
        self._check_rows()
        if np.linalg.matrix_rank(self._matrix) < self.k:
            raise InvalidInput(f"{self.name}: the table does not tell all categories apart")

    def _check_rows(self) -> None:
        for row in self._rows:
            thresholds(self.name, row)

    @property
    def codes(self) -> int:
        """The number of codes."""
        return len(self.weights) // self.k

    @cached_property
    def _rows(self) -> tuple[tuple[int, ...], ...]:
        size = self.codes
        return tuple(self.weights[size * x : size * (x + 1)] for x in range(self.k))

    @cached_property
    def _thresholds(self) -> tuple[NDArray[np.uint64], ...]:
        return tuple(thresholds(self.name, row) for row in self._rows)

    @cached_property
    def _matrix(self) -> NDArray[np.float64]:
        return np.array(self._rows, dtype=float) / ONE

    @cached_property
    def _inverse(self) -> NDArray[np.float64]:
        """The matrix from shares of codes to frequencies of categories, shape (k, codes)."""
        weighted = self._matrix / self._matrix.mean(axis=0)
        return np.asarray(np.linalg.solve(weighted @ self._matrix.T, weighted))

    def _worst_ratio(self) -> Fraction:
        return worst_in_a_column(self._rows)

    @property
    def tally_size(self) -> int:
        return self.codes

    def randomize(self, value: int, coins: Coins) -> int:
        return int(self._draw(self._check_value(value), 1, coins)[0])

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values).astype(np.uint8)
        order = np.argsort(array, kind="stable")
        ends = np.cumsum(np.bincount(array, minlength=self.k))
        codes = np.empty(array.size, dtype=self.code_dtype)
        for value, where in enumerate(np.split(order, ends[:-1])):
            codes[where] = self._draw(value, where.size, coins)
        return codes

    def _draw(self, value: int, n: int, coins: Coins) -> NDArray[np.intp]:
        return draw_many(self._thresholds[value], n, coins)

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        values: NDArray[np.float64] = self._inverse @ (tally.counts / tally.n)
        return values

    def matrix(self) -> NDArray[np.float64]:
        return self._matrix

    def covariance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the covariance of `debias`, shape (k, k), for n draws from a population.

        `truth` broadcasts to shape (k,) and is scaled to sum to one; zeros count as uniform.
        """
        shares = np.broadcast_to(np.asarray(truth, dtype=float), (self.k,))
        shares = shares / shares.sum() if shares.any() else np.full(self.k, 1 / self.k)
        second = (self._inverse * (shares @ self._matrix)) @ self._inverse.T
        covariance: NDArray[np.float64] = (second - np.outer(shares, shares)) / n
        return covariance

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the variance of `debias`; `truth` of shape (k,) is taken as in `covariance`."""
        f = np.asarray(truth, dtype=float)
        if f.ndim:
            return np.diag(self.covariance(f, n))
        rest = (1 - f) / (self.k - 1)
        outputs = rest * self._matrix.sum(axis=0) + (f - rest) * self._matrix  # row v: v has f
        variance: NDArray[np.float64] = ((self._inverse**2 * outputs).sum(axis=1) - f**2) / n
        return variance

    def tally_variance(self, truth: ArrayLike, tally: Tally) -> NDArray[np.float64]:
        """Return the variance of `debias` under the shares of the codes in the tally.

        One more report, of each code as uniform truth gives it, is counted with them, so that a
        handful of equal codes never claims an error of zero.
        """
        outputs = (tally.counts + self._matrix.mean(axis=0)) / (tally.n + 1)
        deviations = self._inverse - (self._inverse @ outputs)[:, np.newaxis]
        variance: NDArray[np.float64] = deviations**2 @ outputs / tally.n
        return variance

    def channel(self) -> Channel:
        """Enumerate the k x m channel."""
        rows = tuple(tuple(Fraction(weight, ONE) for weight in row) for row in self._rows)
        return Channel(tuple(range(self.codes)), rows)


def worst_in_a_column(rows: Sequence[Sequence[int]]) -> Fraction:
    """Return the largest ratio of two weights of one column."""
    return max(Fraction(max(column), min(column)) for column in zip(*rows, strict=True))
