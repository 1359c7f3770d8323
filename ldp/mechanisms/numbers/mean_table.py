"""An explicit channel for the mean of a number: plain, or under a policy."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.core.exact import ONE
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.table import worst_in_a_column
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.tools.sampling import draw_many, thresholds

MAX_TABLE_GRID = 63
"""The most grid steps: each grid point is a row of the table, and may be a class of a policy."""

MAX_PLACES = 256
"""The most codes: a code takes one byte."""

_FARTHEST = 1 << 16
"""The largest place of a code: scores are linear in it."""


def place_on(grid: int, value: float) -> tuple[int, int]:
    """Return the place of a number in [-1, 1]: the grid point below it, and 2**32 times the rest.

    The place is rounded to the nearest multiple of 2**-32 of a step, so that a number whose double
    is not quite its grid point's is never reported from another one. It never falls as the number
    rises.
    """
    numerator, denominator = float(value).as_integer_ratio()
    twice = (numerator + denominator) * grid << 32
    return divmod((twice + denominator) // (2 * denominator), 1 << 32)


@dataclass(frozen=True)
class MeanTable(MeanMechanism):
    """Report code y for grid point i with probability weights[m i + y] / 2**64.

    There are m = len(places) codes; the score of a code is linear in its place. The mean place of
    a report rises by the same integer from each grid point to the next, so the scores are unbiased
    exactly, not merely up to rounding. `ldp.planning.mean_design` finds the weights of least
    variance; there is nothing to calibrate: a table spends its `realised_epsilon`.
    Guarantee: epsilon-LDP for every pair of numbers; e**realised_epsilon is the largest ratio
    within a column of the table, <= e**epsilon.
    Cost: a code of one byte; (grid + 1) m integers in a plan; one search in a row for a report.
    Raises `InvalidInput` unless 1 <= grid <= 63, there are 2..256 places that start at 0, rise, and
    stay at or below 2**16, all weights are positive, each row sums to 2**64, and the rows' mean
    places rise evenly.
    Source: extremal channels as in Kairouz, Oh and Viswanath, "Extremal mechanisms for local
    differential privacy", JMLR 17, 2016; the linear program and the exact scores are ours.
    """

    name: ClassVar[str] = "mean_table"
    epsilon: float
    grid: int
    places: tuple[int, ...]
    weights: tuple[int, ...]

    def _calibrate(self) -> None:
        if not 1 <= self.grid <= MAX_TABLE_GRID:
            raise InvalidInput(
                f"{self.name}: grid must lie in 1..{MAX_TABLE_GRID}, got {self.grid}"
            )
        if (
            not 2 <= len(self.places) <= MAX_PLACES
            or self.places[0] != 0
            or self.places[-1] > _FARTHEST
            or any(after <= before for before, after in pairwise(self.places))
        ):
            raise InvalidInput(
                f"{self.name}: 2..{MAX_PLACES} places, rising from 0 to {_FARTHEST} at most, are "
                f"expected, got {self.places!r}"
            )
        if len(self.weights) != self.inputs * len(self.places):
            raise InvalidInput(
                f"{self.name}: {self.inputs} rows of {len(self.places)} weights are expected, "
                f"got {len(self.weights)} weights"
            )
        _ = self._limits  # refused here, where a row does not sum to one
        first, second, *_ = self._mean_places
        rise = second - first
        if rise <= 0 or any(b - a != rise for a, b in pairwise(self._mean_places)):
            raise InvalidInput(
                f"{self.name}: the mean place must rise by the same from each grid point to the "
                "next, or the mean would be biased"
            )

    @property
    def inputs(self) -> int:
        """The number of grid points: rows of the table."""
        return self.grid + 1

    @cached_property
    def _rows(self) -> tuple[tuple[int, ...], ...]:
        size = len(self.places)
        return tuple(self.weights[size * x : size * (x + 1)] for x in range(self.inputs))

    @cached_property
    def _limits(self) -> tuple[NDArray[np.uint64], ...]:
        return tuple(thresholds(self.name, row) for row in self._rows)

    @cached_property
    def _mean_places(self) -> tuple[int, ...]:
        """The mean place of a report from each grid point, times 2**64."""
        return tuple(
            sum(weight * place for weight, place in zip(row, self.places, strict=True))
            for row in self._rows
        )

    def _worst_ratio(self) -> Fraction:
        return worst_in_a_column(self._rows)

    @property
    def steps(self) -> int:
        return self.grid

    @property
    def tally_size(self) -> int:
        return len(self.places)

    @property
    def scores(self) -> tuple[Fraction, ...]:
        first, second, *_ = self._mean_places
        unit = self.grid * (second - first)
        return tuple(Fraction(2 * (place * ONE - first), unit) - 1 for place in self.places)

    def _place(self, value: float) -> tuple[int, int]:
        point, rest = place_on(self.grid, value)
        return point, rest << 32

    def _round(self, numbers: NDArray[np.float64], coins: Coins) -> NDArray[np.uint32]:
        places = np.rint((numbers + 1) * (self.grid * 2.0**31)).astype(np.int64)
        places += coins.words(-(-numbers.size // 2)).view(np.uint32)[: numbers.size]
        places >>= 32
        return places.astype(np.uint32)

    def _report(self, point: int, coins: Coins) -> int:
        return int(draw_many(self._limits[point], 1, coins)[0])

    def _report_many(self, points: NDArray[np.uint32], coins: Coins) -> NDArray[np.uint8]:
        small = points.astype(np.uint8)
        order = np.argsort(small, kind="stable")
        ends = np.cumsum(np.bincount(small, minlength=self.inputs))
        codes = np.empty(points.size, dtype=np.uint8)
        for point, where in enumerate(np.split(order, ends[:-1])):
            codes[where] = draw_many(self._limits[point], where.size, coins)
        return codes

    def _table(self) -> tuple[tuple[Fraction, ...], NDArray[np.intp]]:
        distinct = sorted(set(self.weights))
        position = {weight: index for index, weight in enumerate(distinct)}
        index = np.array([position[weight] for weight in self.weights], dtype=np.intp)
        shape = (self.inputs, len(self.places))
        return tuple(Fraction(weight, ONE) for weight in distinct), index.reshape(shape)
