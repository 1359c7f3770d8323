"""Answers that are numbers, of which the mean is estimated."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

from hearsay.plans import regions
from hearsay.plans.kinds.kind import Kind
from hearsay.plans.kinds.names import is_number
from hearsay.plans.points import Points
from hearsay.v1 import survey_pb2
from ldp import Coins, Estimate, InvalidInput, Mechanism
from ldp.core.policy import Policy

_GRID = 1 << 53
"""How many values, evenly spread over [-1, 1], may replace a number outside the domain."""


@dataclass(frozen=True)
class Numeric(Kind):
    """An answer that is a number in [low, high]; with `clamp`, others move to the nearer end.

    With a `step` a number counts as the last of the points low, low + step, ..., high that is not
    above it. Numbers in `sensitive` regions, (low, high) with both ends, are protected from every
    number; where there are any, a report may reveal the others. A `resolution`, (upto, within) in
    order, protects all numbers by their distance instead: two of them that are `within` apart by
    epsilon / cap, and all by epsilon at most.
    Raises `InvalidInput` for a range that is none, as `Points`, and for regions or a resolution
    that cannot be.
    """

    name: ClassVar[str] = "number"
    field: ClassVar[str] = "numeric"

    statistic: ClassVar[str] = "mean"
    """What is estimated of the answers, one number for each of `labels`."""

    low: float
    high: float
    clamp: bool
    step: float = 0.0
    sensitive: tuple[regions.Interval, ...] = ()
    resolution: tuple[tuple[float, float], ...] = ()
    cap: float = 0.0
    """How many times `within` apart numbers are protected by all of epsilon; 0 for 1."""

    @classmethod
    def of(cls, given: survey_pb2.Numeric) -> Self:
        """Return the kind that a survey describes; raise `InvalidInput` where it is none."""
        return cls(
            given.low,
            given.high,
            given.clamp,
            given.step,
            tuple((region.low, region.high) for region in given.sensitive),
            tuple((part.upto, part.within) for part in given.resolution),
            given.cap,
        )

    def __post_init__(self) -> None:
        check_scale(self.low, self.high)
        if self.step:
            _ = self.points  # refused here, where the place is known
        if self.sensitive and self.resolution:
            raise InvalidInput("give sensitive regions or a resolution, not both")
        regions.check_regions(self.sensitive, self.low, self.high)
        regions.check_bands(self.resolution, self.low, self.high, self.cap)

    def policy(self, epsilon: float, grid: int) -> Policy | None:
        """Return the policy to keep at `epsilon` on grid + 1 points; None where all numbers are
        protected alike.

        See `ldp.planning.graded` for why all numbers then keep it, on the grid or not.
        """
        from ldp.planning import graded

        if self.sensitive:
            found = [(self._place(first), self._place(last)) for first, last in self.sensitive]
            return graded.one_sided(grid, found, epsilon)
        if not self.resolution:
            return None
        low, width = Fraction(self.low), Fraction(self.high) - Fraction(self.low)
        bands = [
            ((Fraction(upto) - low) / width, Fraction(within) / width)
            for upto, within in self.resolution
        ]
        between = self.points is None or len(self.points) != grid + 1
        return graded.on_a_line(grid, bands, 1 / Fraction(self.cap or 1), epsilon, between=between)

    @property
    def is_graded(self) -> bool:
        """Whether numbers are protected by their value: by regions, or by a resolution."""
        return bool(self.sensitive or self.resolution)

    @cached_property
    def ordinary(self) -> tuple[str, ...]:
        """The ranges of numbers that a report may reveal, such as "0..800"."""
        return tuple(map(regions.in_words, self.ordinary_ranges))

    @property
    def ordinary_ranges(self) -> tuple[regions.Interval, ...]:
        """The ranges of numbers that a report may reveal, each with both ends."""
        return regions.ordinary(self.sensitive, self.low, self.high) if self.sensitive else ()

    def not_among(self, allowed: Collection[str]) -> list[str]:
        """Return the ordinary ranges that the allowed ones do not cover."""
        return list(map(regions.in_words, regions.uncovered(self.ordinary_ranges, allowed)))

    @cached_property
    def points(self) -> Points | None:
        """The points that answers take; None where they can be any number in the range."""
        return Points(self.low, self.high, self.step) if self.step else None

    def points_in(self, step: float | None = None) -> Points | None:
        if step is None:
            return self.points
        if self.step and step != self.step:
            raise InvalidInput(
                f"was collected in steps of {self.step:g}: leave the step out, got {step:g}"
            )
        return Points(self.low, self.high, step)

    def encode(self, answer: object) -> float:
        """Return `answer` on the scale [-1, 1] of the mechanisms; raise `InvalidInput`
        for an answer that is no number, not finite, or (without clamp) outside the range."""
        number = number_in(answer, self.low, self.high, self.clamp)
        return self._place(number)

    def _place(self, number: float) -> float:
        """Return a finite number on the scale [-1, 1]; it never falls as the number rises."""
        if self.points is not None:
            return self.points.place(self.points.at_or_below(number))
        share = (number - self.low) / (self.high - self.low)
        return min(1.0, max(-1.0, 2 * share - 1))

    def anything(self, coins: Coins) -> float:
        """Return a value drawn uniformly from the domain, as `encode` returns values."""
        if self.points is not None:
            return self.points.place(coins.below(len(self.points)))
        return 2 * coins.below(_GRID) / (_GRID - 1) - 1

    @property
    def own_range(self) -> tuple[float, float]:
        """The ends of the range."""
        return self.low, self.high

    @property
    def labels(self) -> tuple[str, ...]:
        """The name of the number that is estimated."""
        return ("mean",)

    @property
    def agreed(self) -> tuple[float, float]:
        """The ends of the range."""
        return self.low, self.high

    def places(self, between: str) -> tuple[str, ...]:
        """No names: a code stands for a number."""
        return ()

    @property
    def units(self) -> float:
        """By how much a mechanism's parameter is multiplied in an answer's units."""
        return (self.high - self.low) / 2

    @property
    def origin(self) -> float:
        """What a mechanism's parameter of 0 is in an answer's units: the middle of the range."""
        return self.low + self.units

    def in_units(self, estimate: Estimate) -> Estimate:
        """Return an estimate of a mechanism's parameters in the answers' units."""
        return estimate.rescaled((self.low, self.high))

    def __str__(self) -> str:
        steps = f" in steps of {self.step:g}" if self.step else ""
        return f"{self.low:g} to {self.high:g}{steps}"

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The base class of mechanisms that randomise numbers in [-1, 1]."""
        from ldp.mechanisms.numbers.mean import MeanMechanism

        return MeanMechanism

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for numbers, and protects these."""
        from ldp.mechanisms.numbers.mean import MeanMechanism

        if not isinstance(mechanism, MeanMechanism):
            raise InvalidInput(f"{mechanism.name} does not fit numbers")
        kept: Policy | None = getattr(mechanism, "promise", None)
        if kept is None and not self.resolution:
            return  # the mechanism has checked itself that all numbers are protected alike
        if kept is not None:
            uniform = Policy.uniform(kept.k, mechanism.epsilon)
            if kept.implies(self.policy(mechanism.epsilon, mechanism.steps) or uniform):
                return
        raise InvalidInput(f"{mechanism.name} keeps another policy than its numbers declare")


def number_in(answer: object, low: float, high: float, clamp: bool) -> float:
    """Return an answer as a finite float, in [low, high] unless `clamp`."""
    if not is_number(answer):
        raise InvalidInput(f"must be a number, got a {type(answer).__name__}")
    try:
        number = float(answer)
    except (ArithmeticError, ValueError):
        raise InvalidInput(f"must fit a float, got a {type(answer).__name__}") from None
    if not math.isfinite(number):
        raise InvalidInput("must be finite, got nan or an infinity")
    if not clamp and not low <= number <= high:
        raise InvalidInput(f"must lie in [{low:g}, {high:g}], got one outside")
    return number


def check_scale(low: float, high: float) -> None:
    """Raise `InvalidInput` unless these are the ends of a range."""
    if not (low < high and math.isfinite(high - low)):
        raise InvalidInput(f"low and high must be finite with low < high, got {low!r} and {high!r}")
