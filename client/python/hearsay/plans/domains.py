"""What the answers to a question can be, and how mechanisms take them."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

from hearsay.plans import regions
from hearsay.plans.bins import Bins
from hearsay.plans.points import Points
from hearsay.plans.sets import Ratings as Ratings
from hearsay.plans.sets import SetOf as SetOf
from hearsay.plans.sets import check_names, find, is_number
from hearsay.plans.strings import Strings as Strings
from ldp import Coins, Estimate, InvalidInput, Mechanism
from ldp.core.exact import float_below
from ldp.core.mechanism import Categorical as CategoricalMechanism
from ldp.core.policy import MAX_CLASSES, Policy
from ldp.mechanisms.ranges.waves import MAX_BINS, Waves

_GRID = 1 << 53
"""How many values, evenly spread over [-1, 1], may replace a number outside the domain."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What a map may be called."""

MOST_MAPS = 8
"""The most maps of one attribute: people at one level and map are one cohort of the estimate."""

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


@dataclass(frozen=True)
class Categorical:
    """An answer that is one of `values`: at least two, all different, none empty.

    Where `sensitive` are given, the other values are ordinary: a report may reveal them.
    `classes` are (values, scale) that have a smaller epsilon. `maps` are (name, sensitive values),
    by name: a person chooses one, which then holds as `sensitive`, or none (`chosen`).
    """

    statistic: ClassVar[str] = "frequency"
    """What is estimated of the answers, one number for each of `labels`."""

    values: tuple[str, ...]
    sensitive: tuple[str, ...] = ()
    classes: tuple[tuple[tuple[str, ...], float], ...] = ()
    maps: tuple[tuple[str, tuple[str, ...]], ...] = ()

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
        self._check_maps()

    def _check_maps(self) -> None:
        if self.maps and (self.sensitive or self.classes):
            raise InvalidInput("give sensitive values, classes or maps, one of them")
        if len(self.maps) > MOST_MAPS:
            raise InvalidInput(f"there may be {MOST_MAPS} maps, got {len(self.maps)}")
        known: dict[frozenset[str], str] = {}
        for name, sensitive in self.maps:
            # An empty one would stand for no map.
            if not _NAME.fullmatch(name):
                raise InvalidInput(
                    'the name of a map is a lower-case letter, then letters, digits or "_", '
                    f"at most 64 in all, got {name!r}"
                )
            if not sensitive:
                raise InvalidInput(f"map {name!r} needs sensitive values: it would protect nothing")
            try:
                replace(self, sensitive=sensitive, maps=())
            except InvalidInput as error:
                raise InvalidInput(f"map {name!r}: {error}") from None
            if len(sensitive) == len(self.values):
                raise InvalidInput(
                    f"map {name!r} lists all values: that holds for those who choose no map"
                )
            same = known.setdefault(frozenset(sensitive), name)
            if same != name:
                raise InvalidInput(
                    f"maps {same!r} and {name!r} list the same values: the choice between them "
                    "would tell something of a person, and protect nothing"
                )

    @property
    def map_names(self) -> tuple[str, ...]:
        """The names of the maps that a person may choose from, in order."""
        return tuple(name for name, _ in self.maps)

    def chosen(self, name: str) -> "Categorical":
        """Return the domain as those have it who chose a map; "" stands for none.

        Raises `InvalidInput` where there is no such map.
        """
        if not self.maps and not name:
            return self
        if name not in ("", *self.map_names):
            raise InvalidInput(f"map must be one of {', '.join(self.map_names)}, got {name!r}")
        found = replace(self, sensitive=dict(self.maps).get(name, ()), maps=())
        vars(found)["_categories"] = self._categories  # the same, and there may be 100,000
        return found

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

    def not_among(self, allowed: Collection[str]) -> list[str]:
        """Return the ordinary values that are not allowed."""
        return [value for value in self.ordinary if value not in allowed]

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
        """The base class of mechanisms that randomise categories, of which `Waves` are for bins."""
        return CategoricalMechanism

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these values and protects them."""
        if (
            not isinstance(mechanism, CategoricalMechanism)
            or isinstance(mechanism, Waves)  # of bins alone
            or mechanism.k != len(self.values)
        ):
            raise InvalidInput(f"{mechanism.name} does not fit {len(self.values)} values")
        kept: Policy | None = getattr(mechanism, "promise", None)
        if kept is None:
            # The mechanism has checked itself that all pairs are protected alike: enough for
            # sensitive values, and of classes the best protected one decides. A server must not
            # choose how often all values are looked at.
            if not self.classes:
                return
            epsilon = mechanism.epsilon
            least = float_below(Fraction(epsilon) * Fraction(self._least_scale))
            holds = Policy.uniform(2, epsilon).implies(Policy.uniform(2, least))
        else:
            uniform = Policy.uniform(mechanism.k, mechanism.epsilon)
            holds = kept.implies(self.policy(mechanism.epsilon) or uniform)
        if not holds:
            raise InvalidInput(f"{mechanism.name} keeps another policy than its values declare")

    @cached_property
    def _least_scale(self) -> float:
        scales = {scale for _, scale in self.classes}
        if sum(len(values) for values, _ in self.classes) < len(self.values):
            scales.add(1.0)
        if len(scales) > MAX_CLASSES:
            raise InvalidInput(f"a policy has at most {MAX_CLASSES} classes, got {len(scales)}")
        return min(scales)


@dataclass(frozen=True)
class Numeric:
    """An answer that is a number in [low, high]; with `clamp`, others move to the nearer end.

    With a `step` a number counts as the last of the points low, low + step, ..., high that is not
    above it. Numbers in `sensitive` regions, (low, high) with both ends, are protected from every
    number; where there are any, a report may reveal the others. A `resolution`, (upto, within) in
    order, protects all numbers by their distance instead: two of them that are `within` apart by
    epsilon / cap, and all by epsilon at most.
    Raises `InvalidInput` for a range that is none, as `Points`, and for regions or a resolution
    that cannot be.
    """

    statistic: ClassVar[str] = "mean"
    """What is estimated of the answers, one number for each of `labels`."""
    labels: ClassVar[tuple[str, ...]] = ("mean",)
    """The names of the numbers that are estimated."""

    low: float
    high: float
    clamp: bool
    step: float = 0.0
    sensitive: tuple[regions.Interval, ...] = ()
    resolution: tuple[tuple[float, float], ...] = ()
    cap: float = 0.0
    """How many times `within` apart numbers are protected by all of epsilon; 0 for 1."""

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
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

    def encode(self, answer: object) -> float:
        """Return `answer` on the scale [-1, 1] of the mechanisms; raise `InvalidInput`
        for an answer that is no number, not finite, or (without clamp) outside the range."""
        number = _number(answer, self.low, self.high, self.clamp)
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


@dataclass(frozen=True)
class Binned:
    """An answer that is a number in [low, high], of which only its bin is collected.

    There are `count` bins, of equal width unless they have `edges`; with `clamp`, numbers outside
    move to the nearer end. Raises `InvalidInput` for a range that is none, and as `Bins`.
    """

    statistic: ClassVar[str] = "frequency"
    """What is estimated of the answers, one number for each of `labels`."""
    units: ClassVar[float] = 1.0
    """By how much a mechanism's parameter is multiplied in an answer's units."""
    step: ClassVar[float] = 0.0
    """There are no points."""

    low: float
    high: float
    clamp: bool
    count: int
    edges: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check_range(self.low, self.high)
        _ = self.points  # refused here, where the place is known

    @classmethod
    def between(cls, edges: tuple[float, ...], clamp: bool) -> "Binned":
        """Return the bins between these edges; raise `InvalidInput` where there are none."""
        return cls(edges[0], edges[-1], clamp, len(edges) - 1, edges)

    @cached_property
    def points(self) -> Bins:
        """The bins, which distributions are estimated over as over points."""
        return Bins(self.low, self.high, self.count, self.edges)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers that are estimated."""
        return tuple(self.points.label(index, index + 1) for index in range(self.count))

    @property
    def sides(self) -> tuple[int]:
        """The number of bins, as `Grid` has two."""
        return (self.count,)

    def encode(self, answer: object) -> int:
        """Return the bin of `answer`; raise `InvalidInput` as `Numeric.encode`."""
        return self.points.at_or_below(_number(answer, self.low, self.high, self.clamp))

    def anything(self, coins: Coins) -> int:
        """Return a value drawn uniformly from the domain, as `encode` returns values."""
        return coins.below(self.count)

    def settled(self, value: int, coins: Coins) -> int:
        """Return a value as a mechanism takes it: as it is."""
        return value

    def in_units(self, estimate: Estimate) -> Estimate:
        """Return an estimate of a mechanism's parameters in the answers' units."""
        return estimate

    def not_among(self, allowed: Collection[str]) -> list[str]:
        """Return what a report may reveal and is not allowed: nothing, of bins."""
        return []

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g} in {self.count} bins"

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The class of mechanisms that randomise bins."""
        return Waves

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these bins."""
        if not isinstance(mechanism, Waves) or mechanism.sides != (self.count,):
            raise InvalidInput(f"{mechanism.name} does not fit {self.count} bins")


@dataclass(frozen=True)
class Grid:
    """Two numbers of which only the bins are collected, as one of the rectangles that these make.

    A rectangle is numbered columns r + c for bin r of the first number and bin c of the second.
    Raises `InvalidInput` where there are more than `MAX_BINS`.
    """

    statistic: ClassVar[str] = "frequency"
    """What is estimated of the answers, one number for each of `labels`."""
    units: ClassVar[float] = 1.0
    """By how much a mechanism's parameter is multiplied in an answer's units."""

    first: Binned
    second: Binned

    def __post_init__(self) -> None:
        if self.first.count * self.second.count > MAX_BINS:
            raise InvalidInput(
                f"two numbers have at most {MAX_BINS} rectangles of bins together, got "
                f"{self.first.count} x {self.second.count} = {self.first.count * self.second.count}"
            )

    @property
    def sides(self) -> tuple[int, int]:
        """The numbers of bins."""
        return self.first.count, self.second.count

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers that are estimated."""
        return tuple(map(", ".join, product(self.first.labels, self.second.labels)))

    def anything(self, coins: Coins) -> int:
        """Return a rectangle drawn uniformly."""
        return coins.below(self.first.count * self.second.count)

    def settled(self, value: int, coins: Coins) -> int:
        """Return a value as a mechanism takes it: as it is."""
        return value

    def in_units(self, estimate: Estimate) -> Estimate:
        """Return an estimate of a mechanism's parameters in the answers' units."""
        return estimate

    def __str__(self) -> str:
        return f"{self.first} by {self.second}"

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The class of mechanisms that randomise rectangles."""
        return Waves

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these rectangles."""
        if not isinstance(mechanism, Waves) or mechanism.sides != self.sides:
            rows, columns = self.sides
            raise InvalidInput(f"{mechanism.name} does not fit {rows} x {columns} bins")


def _number(answer: object, low: float, high: float, clamp: bool) -> float:
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


def _check_range(low: float, high: float) -> None:
    if not (low < high and math.isfinite(high - low)):
        raise InvalidInput(f"low and high must be finite with low < high, got {low!r} and {high!r}")


Domain = Categorical | Numeric | Binned | SetOf | Ratings | Strings

Value = Any
"""An encoded answer: what a domain's `encode` and `anything` return."""
