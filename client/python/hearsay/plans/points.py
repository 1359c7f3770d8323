"""The points that a number's answers take, and the ranges between them."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp.errors import InvalidInput
from ldp.mechanisms.numbers.mean import MAX_POINTS

NEAR = 1e-6
"""What part of a step a number may miss a point by and still be it: floats are inexact."""


@dataclass(frozen=True)
class Points:
    """Evenly spaced numbers: low, low + step, ..., high.

    An answer between two of them counts as the lower one. Raises `InvalidInput` unless 1 to
    `MAX_POINTS` - 1 whole steps lead from low to high.
    """

    low: float
    high: float
    step: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.step) and self.step > 0):
            raise InvalidInput(f"step must be finite and > 0, got {self.step!r}")
        steps = (self.high - self.low) / self.step
        if steps > MAX_POINTS - 0.5:  # infinity is: of a subnormal step, say
            raise InvalidInput(
                f"there may be {MAX_POINTS} points, got {steps + 1:.10g}: take a step of "
                f"{(self.high - self.low) / (MAX_POINTS - 1):.10g} or more"
            )
        if not (steps > NEAR and abs(steps - round(steps)) <= NEAR):
            raise InvalidInput(
                f"whole steps must lead from {self.low:.10g} to {self.high:.10g}, "
                f"got a step of {self.step:.10g}"
            )

    def __len__(self) -> int:
        return round((self.high - self.low) / self.step) + 1

    @property
    def whole(self) -> bool:
        """Whether the points are consecutive whole numbers."""
        return self.step == 1 and self.low == math.floor(self.low)

    def value(self, index: int) -> float:
        """Return the number of a point."""
        share = index / (len(self) - 1)
        return self.high if index == len(self) - 1 else self.low + share * (self.high - self.low)

    def lowest(self, index: int) -> float:
        """Return a point's number; a `Bins` has another one at each end."""
        return self.value(index)

    def highest(self, index: int) -> float:
        """Return a point's number, as `lowest`."""
        return self.value(index)

    def within(self, index: int, part: float) -> float:
        """Return a point's number: all of its share is there."""
        return self.value(index)

    def overlaps(self, low: float, high: float) -> NDArray[np.float64]:
        """Return which part of each point is in the range from low to high, shape (points,).

        Of whole numbers the range has both ends, and each number is in it or not. Otherwise a
        point stands for what lies between it and the next one, of which the range has a part; but
        for `high`, the last. Raises `InvalidInput` for a range that has nothing of any point.
        """
        check_range(low, high, self.low, self.high, strict=not self.whole)
        ends = (np.clip([low, high], self.low, self.high) - self.low) / self.step
        nearest = np.rint(ends)
        first, last = np.where(np.abs(nearest - ends) <= NEAR, nearest, ends)
        place = np.arange(len(self))
        if self.whole:
            parts = ((first <= place) & (place <= last)).astype(np.float64)
        else:
            parts = np.clip(np.minimum(last, place + 1) - np.maximum(first, place), 0, 1)
            parts[-1] = float(high >= self.high)
        if not parts.any():
            raise InvalidInput(f"no value lies between {low:.10g} and {high:.10g}")
        return np.asarray(parts, dtype=np.float64)

    def place(self, index: int) -> float:
        """Return where a point lies on the scale [-1, 1] of the mechanisms."""
        return 2 * index / (len(self) - 1) - 1

    def at_or_below(self, number: float) -> int:
        """Return the index of the last point that is not above a finite number.

        That is the first or the last point where the number is outside the range.
        """
        inside = min(max(number, self.low), self.high)
        position = (inside - self.low) / (self.high - self.low) * (len(self) - 1)
        return min(len(self) - 1, math.floor(position + NEAR))

    def cuts(self, edges: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return how many points lie below each edge, shape (edges,); all of them below the last
        edge where that is `high`.

        Raises `InvalidInput` where the edges do not rise, leave the range, or cut a point: what
        lies between two points counts as the lower one, so an edge is a point; but whole numbers
        it must lie between, such as 17.5, or nobody could tell on which side the number is.
        """
        if edges.size < 2 or not (np.diff(edges) > 0).all():
            raise InvalidInput(f"edges are two or more rising numbers, got {edges.tolist()}")
        margin = self.step * (1 - NEAR) if self.whole else 0.0
        if edges[0] < self.low - margin or edges[-1] > self.high + margin:
            raise InvalidInput(
                f"edges must lie in [{self.low:.10g}, {self.high:.10g}], got {edges.tolist()}"
            )
        places = (edges - self.low) / (self.high - self.low) * (len(self) - 1)
        on_point = np.abs(places - np.rint(places)) <= NEAR
        on_point[(places <= 0) | (places >= len(self) - 1)] = not self.whole
        if (wrong := on_point == self.whole).any():
            edge = float(edges[wrong.argmax()])
            near = round((edge - self.low) / self.step)
            hint = (
                f"{edge - 0.5:.10g} or {edge + 0.5:.10g}"
                if self.whole
                else f"{self.value(min(max(near, 0), len(self) - 1)):.10g}"
            )
            raise InvalidInput(
                f"an edge at {edge:.10g} cuts a point, of which there is one every "
                f"{self.step:.10g} from {self.low:.10g}: take {hint}"
            )
        cuts = np.clip(np.ceil(places - NEAR), 0, len(self)).astype(np.intp)
        cuts[-1] = len(self) if places[-1] >= len(self) - 1 - NEAR else cuts[-1]
        return cuts

    def even_cuts(self, bins: int) -> NDArray[np.intp]:
        """Return the cuts of bins that are as nearly equal as can be, shape (bins + 1,).

        Of whole numbers each has equally many; of others each has the same width, with `high` in
        the last, where the number of steps allows it. Raises `InvalidInput` unless there are 1 to
        as many bins as points.
        """
        if not 1 <= bins <= len(self):
            raise InvalidInput(f"{len(self)} values make at most {len(self)} bins, got {bins}")
        if not self.whole and (len(self) - 1) % bins == 0:
            cuts = np.arange(bins + 1) * ((len(self) - 1) // bins)
            cuts[-1] = len(self)
            return cuts.astype(np.intp)
        return np.rint(np.arange(bins + 1) * len(self) / bins).astype(np.intp)

    def range_label(self, low: float, high: float) -> str:
        """Return a range in words."""
        under = "" if self.whole or high >= self.high else "under "
        return f"{low:.10g} to {under}{high:.10g}"

    def ends(self, first: int, last: int) -> tuple[float, float]:
        """Return where the bin of the points first..last - 1 begins and ends.

        Of whole numbers, and at `high`, the end belongs to the bin; elsewhere to the next one.
        """
        inside = self.whole or last == len(self)
        return self.value(first), self.value(last - 1 if inside else last)

    def label(self, first: int, last: int) -> str:
        """Return the range of the points first..last - 1 in words."""
        left, right = self.ends(first, last)
        if left == right:
            return f"{left:.10g}"
        under = "" if self.whole or last == len(self) else "under "
        return f"{left:.10g} to {under}{right:.10g}"


def check_range(low: float, high: float, least: float, greatest: float, *, strict: bool) -> None:
    """Raise `InvalidInput` unless low <= high, or low < high, and the range has some number."""
    if not (math.isfinite(low) and math.isfinite(high)) or low > high or (strict and low == high):
        order = "low < high" if strict else "low <= high"
        raise InvalidInput(f"a range has {order}, both finite, got {low:.10g} to {high:.10g}")
    if high < least or low > greatest or (strict and high == least):
        raise InvalidInput(
            f"the range {low:.10g} to {high:.10g} has no number of {least:.10g} to {greatest:.10g}"
        )
