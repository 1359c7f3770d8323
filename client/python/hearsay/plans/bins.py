"""Bins of a number: which of them a number is in, and the ranges that they make up."""

import math
from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hearsay.plans.points import NEAR, Points, check_range
from ldp.errors import InvalidInput
from ldp.mechanisms.ranges.waves import MAX_BINS


@dataclass(frozen=True)
class Bins:
    """The range from low to high in `count` bins: of equal width, or between `edges`.

    Each has its left end; the last has `high` too. Edges begin with `low` and end with `high`.
    Raises `InvalidInput` unless there are 2 to `MAX_BINS`, so wide that doubles tell their ends
    apart, and as many edges and one more, if any.
    """

    low: float
    high: float
    count: int
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 2 <= self.count <= MAX_BINS:
            raise InvalidInput(f"bins must lie in 2..{MAX_BINS}, got {self.count}")
        if self.edges and not (np.diff(self.edges) > 0).all():
            raise InvalidInput(f"edges must be rising numbers, got {list(self.edges)}")
        if not (np.diff(self._edges()) > 0).all():
            raise InvalidInput(
                f"doubles do not tell the ends of {self.count} bins from {self.low!r} to "
                f"{self.high!r} apart: take fewer bins"
            )

    def __len__(self) -> int:
        return self.count

    def edge(self, index: int) -> float:
        """Return where bin `index` begins, which is where the one before it ends."""
        if self.edges:
            return self.edges[index]
        share = index / self.count
        return self.high if index == self.count else self.low + share * (self.high - self.low)

    def _edges(self) -> NDArray[np.float64]:
        return np.array([self.edge(index) for index in range(self.count + 1)])

    def at_or_below(self, number: float) -> int:
        """Return the bin of a finite number; the first or the last one for a number outside."""
        inside = min(max(number, self.low), self.high)
        if self.edges:  # compared as they are: nothing is rounded
            return min(self.count, bisect_right(self.edges, inside)) - 1
        position = (inside - self.low) / (self.high - self.low) * self.count
        return min(self.count - 1, math.floor(position + NEAR))

    def lowest(self, index: int) -> float:
        """Return the least number of a bin."""
        return self.edge(index)

    def highest(self, index: int) -> float:
        """Return where a bin ends."""
        return self.edge(index + 1)

    def within(self, index: int, part: float) -> float:
        """Return the number below which there is so much of a bin's width."""
        left, right = self.edge(index), self.edge(index + 1)
        return min(right, max(left, left + part * (right - left)))

    def _places(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return how many bins lie below each number of the range, with the part of the last."""
        if self.edges:
            return np.interp(numbers, self.edges, np.arange(self.count + 1))
        return (numbers - self.low) / (self.high - self.low) * self.count

    def cuts(self, edges: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return how many bins lie below each edge, shape (edges,).

        Raises `InvalidInput` where the edges do not rise, leave the range, or are inside a bin.
        """
        if edges.size < 2 or not (np.diff(edges) > 0).all():
            raise InvalidInput(f"edges are two or more rising numbers, got {edges.tolist()}")
        if edges[0] < self.low or edges[-1] > self.high:
            raise InvalidInput(
                f"edges must lie in [{self.low:.10g}, {self.high:.10g}], got {edges.tolist()}"
            )
        places = self._places(edges)
        cuts = np.rint(places).astype(np.intp)
        if (wrong := np.abs(places - cuts) > NEAR).any():
            at = int(wrong.argmax())
            below = math.floor(places[at])
            raise InvalidInput(
                f"an edge at {edges[at]:.10g} is inside a bin of those that were collected: take "
                f"{self.edge(below):.10g} or {self.edge(below + 1):.10g}"
            )
        if (np.diff(cuts) < 1).any():
            raise InvalidInput(f"there must be a bin between two edges, got {edges.tolist()}")
        return cuts

    def inside(self, low: float, high: float) -> NDArray[np.bool_]:
        """Return which bins a range has, shape (bins,); raise `InvalidInput` where it cuts one."""
        first, last = self.cuts(np.array([low, high]))
        place = np.arange(self.count)
        inside: NDArray[np.bool_] = (first <= place) & (place < last)
        return inside

    def even_cuts(self, bins: int) -> NDArray[np.intp]:
        """Return the cuts of wider bins that are as nearly equal as can be, shape (bins + 1,).

        Raises `InvalidInput` unless there are 1 to as many as were collected.
        """
        if not 1 <= bins <= self.count:
            raise InvalidInput(f"{self.count} bins were collected, got {bins}")
        return np.rint(np.arange(bins + 1) * self.count / bins).astype(np.intp)

    def overlaps(self, low: float, high: float) -> NDArray[np.float64]:
        """Return which part of each bin's width is in the range from low to high, shape (bins,).

        Raises `InvalidInput` for a range that is empty, or has nothing of any bin.
        """
        check_range(low, high, self.low, self.high, strict=True)
        first, last = self._places(np.clip([low, high], self.low, self.high))
        nearest = np.rint([first, last])
        first, last = np.where(np.abs(nearest - [first, last]) <= NEAR, nearest, [first, last])
        place = np.arange(self.count)
        parts = np.clip(np.minimum(last, place + 1) - np.maximum(first, place), 0, 1)
        if not parts.any():
            raise InvalidInput(f"nothing lies between {low:.10g} and {high:.10g}")
        return np.asarray(parts, dtype=np.float64)

    def ends(self, first: int, last: int) -> tuple[float, float]:
        """Return where the bins first..last - 1 begin and end."""
        return self.edge(first), self.edge(last)

    def label(self, first: int, last: int) -> str:
        """Return the range of the bins first..last - 1 in words."""
        under = "" if last == self.count else "under "
        left, right = self.ends(first, last)
        return f"{left:.10g} to {under}{right:.10g}"

    def range_label(self, low: float, high: float) -> str:
        """Return a range in words."""
        under = "" if high >= self.high else "under "
        return f"{low:.10g} to {under}{high:.10g}"


def below_of(points: Points | Bins) -> list[float]:
    """Return the numbers that shares below are told of: each point or end of a bin but the last,
    without the last digit of a double, which is noise."""
    return [float(f"{points.highest(place):.15g}") for place in range(len(points) - 1)]
