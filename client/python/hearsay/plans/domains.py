"""What the answers to a question can be, and how mechanisms take them."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import Any, ClassVar

from hearsay.plans.points import Points
from hearsay.plans.sets import Ratings, SetOf, check_names, find
from ldp import Coins, Estimate, InvalidInput, Mechanism
from ldp.core.exact import float_below
from ldp.core.mechanism import Categorical as CategoricalMechanism
from ldp.core.policy import Policy

_GRID = 1 << 53
"""How many values, evenly spread over [-1, 1], may replace a number outside the domain."""

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


@dataclass(frozen=True)
class Categorical:
    """An answer that is one of `values`: at least two, all different, none empty.

    Where `sensitive` are given, the other values are ordinary: a report may reveal them.
    `classes` are (values, scale) that have a smaller epsilon.
    """

    statistic: ClassVar[str] = "frequency"
    """What is estimated of the answers, one number for each of `labels`."""

    values: tuple[str, ...]
    sensitive: tuple[str, ...] = ()
    classes: tuple[tuple[tuple[str, ...], float], ...] = ()

    def __post_init__(self) -> None:
        check_names("values", self.values, 2)
        if self.sensitive and self.classes:
            raise InvalidInput("give sensitive values or classes, not both")
        listed = [*self.sensitive, *(value for values, _ in self.classes for value in values)]
        if unknown := [value for value in listed if value not in self._categories]:
            raise InvalidInput(f"{unknown[0]!r} is sensitive or in a class, but no value")
        if len(set(listed)) < len(listed):
            (twice, _), *_ = Counter(listed).most_common(1)
            raise InvalidInput(f"{twice!r} is in two classes, or twice in one")
        for values, scale in self.classes:
            if not values:
                raise InvalidInput("a class needs values")
            if not 0 < scale <= 1:
                raise InvalidInput(f"the scale of a class must lie in (0, 1], got {scale!r}")
        if self.classes and len(listed) == len(self.values) and max(s for _, s in self.classes) < 1:
            raise InvalidInput("some values must have all of epsilon: give a class the scale 1")

    def policy(self, epsilon: float) -> Policy | None:
        """Return the policy to keep at `epsilon`; None where all pairs are protected alike."""
        k = len(self.values)
        if self.sensitive:
            return Policy.one_sided(k, [self._categories[v] for v in self.sensitive], epsilon)
        if not self.classes:
            return None
        of = dict.fromkeys(self.values, 1.0) | {v: s for values, s in self.classes for v in values}
        scales = sorted(set(of.values()))
        places = {scale: place for place, scale in enumerate(scales)}
        return Policy.input_discriminative(
            [places[of[value]] for value in self.values],
            [float_below(Fraction(epsilon) * Fraction(scale)) for scale in scales],
        )

    @cached_property
    def ordinary(self) -> tuple[str, ...]:
        """The values that a report may reveal."""
        sensitive = set(self.sensitive)  # a plan may have 100,000 of them
        return tuple(v for v in self.values if v not in sensitive) if sensitive else ()

    @cached_property
    def _categories(self) -> Mapping[str, int]:
        return {value: category for category, value in enumerate(self.values)}

    def encode(self, answer: object) -> int:
        """Return the category of `answer`: a value, or an integer that spells one.

        Raises `InvalidInput` for anything else.
        """
        category = find(self._categories, answer)
        if category is None:
            raise InvalidInput(f"must be one of {self}, got another {type(answer).__name__}")
        return category

    def anything(self, coins: Coins) -> int:
        """Return a value drawn uniformly from the domain, as `encode` returns values."""
        return coins.below(len(self.values))

    def settled(self, value: int, coins: Coins) -> int:
        """Return a value as a mechanism takes it: as it is."""
        return value

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers that are estimated."""
        return self.values

    units: ClassVar[float] = 1.0
    """By how much a mechanism's parameter is multiplied in an answer's units."""

    def in_units(self, estimate: Estimate) -> Estimate:
        """Return an estimate of a mechanism's parameters in the answers' units."""
        return estimate

    def __str__(self) -> str:
        shown = self.values if len(self.values) <= 8 else (*self.values[:7], "...")
        return ", ".join(shown)

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The base class of mechanisms that randomise categories."""
        return CategoricalMechanism

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these values and protects them."""
        if not isinstance(mechanism, CategoricalMechanism) or mechanism.k != len(self.values):
            raise InvalidInput(f"{mechanism.name} does not fit {len(self.values)} values")
        wanted = self.policy(mechanism.epsilon)
        kept: Policy | None = getattr(mechanism, "promise", None)
        if wanted is None and kept is None:
            return  # the mechanism has checked itself that all pairs are protected alike
        uniform = Policy.uniform(mechanism.k, mechanism.epsilon)
        if not (kept or uniform).implies(wanted or uniform):
            raise InvalidInput(f"{mechanism.name} keeps another policy than its values declare")


@dataclass(frozen=True)
class Numeric:
    """An answer that is a number in [low, high]; with `clamp`, others move to the nearer end.

    With a `step` a number counts as the last of the points low, low + step, ..., high that is not
    above it. Raises `InvalidInput` for a range that is none, and as `Points`.
    """

    statistic: ClassVar[str] = "mean"
    """What is estimated of the answers, one number for each of `labels`."""
    labels: ClassVar[tuple[str, ...]] = ("mean",)
    """The names of the numbers that are estimated."""

    low: float
    high: float
    clamp: bool
    step: float = 0.0

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidInput(
                f"low and high must be finite with low < high, got {self.low!r} and {self.high!r}"
            )
        if self.step:
            _ = self.points  # refused here, where the place is known

    @cached_property
    def points(self) -> Points | None:
        """The points that answers take; None where they can be any number in the range."""
        return Points(self.low, self.high, self.step) if self.step else None

    def encode(self, answer: object) -> float:
        """Return `answer` on the scale [-1, 1] of the mechanisms; raise `InvalidInput`
        for an answer that is no number, not finite, or (without clamp) outside the range."""
        # Not whatever has __float__: a numpy string has it too, and repeats itself in its error.
        if isinstance(answer, bool) or not isinstance(answer, Real | Decimal):
            raise InvalidInput(f"must be a number, got a {type(answer).__name__}")
        try:
            number = float(answer)
        except (ArithmeticError, ValueError):
            raise InvalidInput(f"must fit a float, got a {type(answer).__name__}") from None
        if not math.isfinite(number):
            raise InvalidInput("must be finite, got nan or an infinity")
        if not self.clamp and not self.low <= number <= self.high:
            raise InvalidInput(f"must lie in [{self.low:g}, {self.high:g}], got one outside")
        if self.points is not None:
            return self.points.place(self.points.at_or_below(number))
        share = (number - self.low) / (self.high - self.low)
        return min(1.0, max(-1.0, 2 * share - 1))

    def anything(self, coins: Coins) -> float:
        """Return a value drawn uniformly from the domain, as `encode` returns values."""
        if self.points is not None:
            return self.points.place(coins.below(len(self.points)))
        return 2 * coins.below(_GRID) / (_GRID - 1) - 1

    def settled(self, value: float, coins: Coins) -> float:
        """Return a value as a mechanism takes it: as it is."""
        return value

    @property
    def units(self) -> float:
        """By how much a mechanism's parameter is multiplied in an answer's units."""
        return (self.high - self.low) / 2

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
        """Raise `InvalidInput` unless the mechanism is for numbers in [-1, 1]."""
        if not isinstance(mechanism, self.mechanisms):
            raise InvalidInput(f"{mechanism.name} does not fit numbers")


Domain = Categorical | Numeric | SetOf | Ratings

Value = Any
"""An encoded answer: what a domain's `encode` and `anything` return."""
