"""Policies: limits on how well a report may tell any two values apart, in exact integers.

Plain epsilon-LDP protects all pairs of values alike. A policy gives every ordered pair its own
distance: x is protected from being told from x' by D[x, x'].
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self

from ldp.core.channel import Channel
from ldp.core.exact import MAX_EPSILON, check_epsilon, exp_bounds, log_upper
from ldp.errors import InvalidInput

UNIT = 1 << 58
"""The integer that stands for a distance of one: MAX_EPSILON fits 64 bits, and so do exactly
all doubles from 1/64 to it."""

MAX_CLASSES = 64
"""The most classes of a policy: closing it takes the cube of their number."""

UNLIMITED = (1 << 64) - 1
"""The integer that stands for an infinite distance: no protection."""

Ratios = tuple[tuple[Fraction | None, ...], ...]
"""By pair of classes: the largest Q(y | x) / Q(y | x'); None where Q(y | x') can be zero."""


@dataclass(frozen=True)
class Policy:
    """Classes of values, and limits on how well a report may tell two values apart.

    `classes` has each value's class, shape (k,), out of 0..C-1; `distances[a][b]` limits what
    may be learnt from a value of class a against another value, of class b, in units of
    1 / `UNIT`, or `UNLIMITED`. `distances[a][a]` is for two values of one class, and zero where
    it has only one.

    Guarantee of a channel Q that keeps a policy: Q(y | x) <= e**D[x, x'] Q(y | x') for every
    report y and every two values x, x'. D is directed: one infinite from x to x' lets a report
    rule x' out for a person who has x. A value whose distances to all others are infinite is
    `ordinary`: a report may reveal it. Finite distances are closed under shortest paths when a
    policy is made, because Q cannot but keep that too: x is no further from x' than by way of
    another value. So classes of epsilons of their own (MinID) protect each value at least twice
    as well as the best protected one: two loose values differ by at most twice the strictest
    epsilon.
    No policy promises anything about pairs at infinite distance, whatever their epsilon
    elsewhere, nor that a person's being among the sensitive values stays hidden from somebody
    who knows more than the report, such as that ordinary people would have said so.

    Raises `InvalidInput` for classes without values, distances of zero or beyond `MAX_EPSILON`,
    and where no pair of values is protected.
    Source: Chatzikokolakis et al., "Broadening the scope of differential privacy using
    metrics", PETS 2013; Acharya et al., "Context aware local differential privacy", ICML 2020.
    """

    classes: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        size = len(self.distances)
        _check_size(size)
        if len(self.classes) < 2:
            raise InvalidInput(f"a policy is for 2 values or more, got {len(self.classes)}")
        if set(self.classes) != set(range(size)):
            raise InvalidInput(
                f"{size} classes must be numbered 0..{size - 1} and all have values, "
                f"got {sorted(set(self.classes))}"
            )
        if any(len(row) != size for row in self.distances):
            raise InvalidInput(f"distances must be {size} rows of {size}")
        rows = [list(row) for row in self.distances]
        _close(rows, self.sizes)
        for a, row in enumerate(rows):
            for b, distance in enumerate(row):
                if a == b and self.sizes[a] == 1:
                    row[b] = 0
                elif not (0 < distance <= MAX_EPSILON * UNIT or distance == UNLIMITED):
                    raise InvalidInput(
                        f"the distance from class {a} to {b} must lie in (0, {MAX_EPSILON:g}] or "
                        f"be infinite, got {distance / UNIT:g}: values at distance zero cannot be "
                        "told apart, and are one value"
                    )
        object.__setattr__(self, "distances", tuple(tuple(row) for row in rows))
        if not self._finite:
            raise InvalidInput("the policy protects no value from being told from any other")

    # --- makers ----------------------------------------------------------------------------

    @classmethod
    def of(cls, classes: Sequence[int], distances: Sequence[Sequence[Fraction | float]]) -> Self:
        """Build a policy from distances in rationals or floats, rounded down to 1 / `UNIT`."""
        return cls(tuple(classes), tuple(tuple(map(_units, row)) for row in distances))

    @classmethod
    def uniform(cls, k: int, epsilon: float) -> Self:
        """Return the policy of epsilon-LDP: all pairs of the k values are protected alike."""
        return cls.of([0] * k, [[check_epsilon(epsilon)]])

    @classmethod
    def one_sided(cls, k: int, sensitive: Iterable[int], epsilon: float) -> Self:
        """Return one-sided LDP: the sensitive values are protected, the others are not.

        For a sensitive value s, any value v and any report, P(report | s) <= e**epsilon
        P(report | v). Nothing bounds P(report | v) for an ordinary value v: a report may reveal
        it. Where all values are sensitive this is epsilon-LDP. It is implied by
        utility-optimised LDP, which in addition bounds what protected reports say of ordinary
        values.
        Raises `InvalidInput` for no sensitive value, a repeated one, or one outside 0..k-1.
        Source: Murakami and Kawamoto, "Utility-optimized local differential privacy mechanisms
        for distribution estimation", USENIX Security 2019, definition 1.
        """
        chosen = _distinct(k, sensitive)
        if not chosen:
            raise InvalidInput("no value is sensitive: there would be nothing to protect")
        if len(chosen) == k:
            return cls.uniform(k, epsilon)
        limit, free = check_epsilon(epsilon), math.inf
        classes = [0 if value in chosen else 1 for value in range(k)]
        return cls.of(classes, [[limit, limit], [free, free]])

    @classmethod
    def input_discriminative(cls, classes: Sequence[int], epsilons: Sequence[float]) -> Self:
        """Return MinID-LDP: two values are protected by the smaller epsilon of their classes.

        `epsilons` has one per class and may be infinite. Raises `InvalidInput` where they
        cannot be, or are not as many as the classes.
        Source: Gu, Li, Xiong and Cao, "Providing input-discriminative protection for local
        differential privacy", ICDE 2020, definition 3.
        """
        _check_size(len(epsilons))
        limits = [e if e == math.inf else check_epsilon(e) for e in epsilons]
        return cls.of(classes, [[min(a, b) for b in limits] for a in limits])

    @classmethod
    def block(cls, classes: Sequence[int], epsilon: float) -> Self:
        """Return a block policy: a value is protected only from other values of its class.

        The class itself may be revealed. Raises `InvalidInput` for a class of one value, which
        would be protected from nothing.
        Source: Acharya, Bonawitz, Kairouz, Ramage and Sun, ICML 2020, section 4.
        """
        count = len(set(classes))
        for a in sorted(set(classes)):
            if list(classes).count(a) == 1:
                raise InvalidInput(
                    f"class {a} has one value, which a block policy protects from itself only: "
                    "give it company, or another policy"
                )
        limit = check_epsilon(epsilon)
        return cls.of(
            classes, [[limit if a == b else math.inf for b in range(count)] for a in range(count)]
        )

    def scaled(self, factor: Fraction | float) -> Self:
        """Return the policy with all distances multiplied by `factor` and rounded down.

        Raises `InvalidInput` unless the factor is finite and > 0, and keeps the
        distances within bounds.
        """
        if isinstance(factor, bool) or not math.isfinite(factor) or factor <= 0:
            raise InvalidInput(
                f"a policy's share of the budget must be finite and > 0, got {factor!r}: with "
                "none of it values could not be told apart"
            )
        share = Fraction(factor)
        rows = [
            [d if d == UNLIMITED else math.floor(d * share) for d in row] for row in self.distances
        ]
        return type(self)(self.classes, tuple(map(tuple, rows)))

    # --- reading ---------------------------------------------------------------------------

    @property
    def k(self) -> int:
        """The number of values."""
        return len(self.classes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of values in each class."""
        counts = [0] * len(self.distances)
        for c in self.classes:
            counts[c] += 1
        return tuple(counts)

    @cached_property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The values of each class, in order."""
        lists: list[list[int]] = [[] for _ in self.distances]
        for value, c in enumerate(self.classes):
            lists[c].append(value)
        return tuple(map(tuple, lists))

    @cached_property
    def ordinary(self) -> tuple[int, ...]:
        """The classes whose values a report may reveal: at infinite distance from all others."""
        return tuple(
            a
            for a, row in enumerate(self.distances)
            if all(d == UNLIMITED for b, d in enumerate(row) if b != a or self.sizes[a] > 1)
        )

    def distance(self, x: int, other: int) -> float:
        """Return the distance from value x to another, or to itself; perhaps infinite."""
        units = 0 if x == other else self.distances[self.classes[x]][self.classes[other]]
        return math.inf if units == UNLIMITED else units / UNIT

    @cached_property
    def is_mutual(self) -> bool:
        """Whether x is at finite distance from x' wherever x' is from x."""
        finite = [[d != UNLIMITED for d in row] for row in self.distances]
        return finite == [list(column) for column in zip(*finite, strict=True)]

    @cached_property
    def _finite(self) -> list[int]:
        return [d for row in self.distances for d in row if 0 < d < UNLIMITED]

    @property
    def epsilon(self) -> float:
        """The largest finite distance, rounded up to a double; a ledger charges it.

        It is epsilon-LDP only where no distance is infinite.
        """
        return _double_above(max(self._finite))

    @property
    def least(self) -> float:
        """The smallest distance, rounded down to a double."""
        return math.nextafter(min(self._finite) / UNIT, 0)

    def implies(self, other: "Policy") -> bool:
        """Tell whether no distance between two values exceeds the one of `other`."""
        if self.k != other.k:
            return False
        # Pairs of values fall into few pairs of classes, one of each policy.
        pairs = set(zip(self.classes, other.classes, strict=True))
        seen: dict[tuple[int, int], int] = {}
        for pair in zip(self.classes, other.classes, strict=True):
            seen[pair] = seen.get(pair, 0) + 1
        return all(
            self.distances[a][b] <= other.distances[c][d]
            for a, c in pairs
            for b, d in pairs
            if (a, c) != (b, d) or seen[a, c] > 1
        )

    # --- checking --------------------------------------------------------------------------

    def check(self, channel: Channel) -> None:
        """Raise `InvalidInput` unless the channel certainly keeps the policy, for every report
        and every two values, in exact rationals.
        """
        if len(channel.rows) != self.k:
            raise InvalidInput(f"the policy is for {self.k} values, got {len(channel.rows)} rows")
        self.check_ratios(self.ratios(channel.rows), "the channel")

    def ratios(self, rows: Sequence[Sequence[Fraction | int]]) -> Ratios:
        """Return the largest ratio between two different values of each pair of classes.

        `rows` are the channel's, up to one common factor.
        """
        worst: list[list[Fraction | None]] = [[Fraction(1)] * len(self.sizes) for _ in self.sizes]
        for column in zip(*rows, strict=True):
            high = [max(column[x] for x in values) for values in self.members]
            low = [min(column[x] for x in values) for values in self.members]
            raise_ratios(worst, high, low)
        return tuple(map(tuple, worst))

    def check_ratios(self, ratios: Ratios, what: str) -> None:
        """Raise `InvalidInput` unless the ratios of pairs of classes keep the policy."""
        for a, row in enumerate(self.distances):
            for b, limit in enumerate(row):
                if limit == UNLIMITED or (a == b and self.sizes[a] == 1):
                    continue
                ratio = ratios[a][b]
                if ratio is None or ratio > exp_bounds(Fraction(limit, UNIT))[0]:
                    given = math.inf if ratio is None else log_upper(ratio)
                    raise InvalidInput(
                        f"{what}: a value of class {a} can be told from one of class {b} by "
                        f"{given:.6g}, more than the {limit / UNIT:.6g} of the policy"
                    )

    def worst(self, ratios: Ratios) -> Fraction:
        """Return the largest ratio of pairs of classes at finite distance."""
        return max(
            ratio
            for row, given in zip(self.distances, ratios, strict=True)
            for limit, ratio in zip(row, given, strict=True)
            if 0 < limit < UNLIMITED and ratio is not None
        )

    # --- in a plan -------------------------------------------------------------------------

    @property
    def integers(self) -> tuple[int, ...]:
        """The number of classes, the class of each value, and the distances row by row."""
        return (len(self.distances), *self.classes, *(d for row in self.distances for d in row))

    @classmethod
    def from_integers(cls, integers: Sequence[int]) -> Self:
        """Build a policy from its `integers`; raise `InvalidInput` where they are no policy."""
        size = integers[0] if integers else 0
        _check_size(size)
        if size < 1 or len(integers) < 1 + size + size * size:
            raise InvalidInput(
                "a policy is its number of classes, every value's class and all distances, got "
                f"{len(integers)} integers for {size} classes"
            )
        classes, flat = integers[1 : -size * size], integers[-size * size :]
        rows = [tuple(flat[start : start + size]) for start in range(0, size * size, size)]
        return cls(tuple(classes), tuple(rows))


def raise_ratios(
    worst: list[list[Fraction | None]],
    high: Sequence[Fraction | int],
    low: Sequence[Fraction | int],
) -> None:
    """Update `worst` in place by one report's largest and smallest probability in each class."""
    for a, top in enumerate(high):
        for b, bottom in enumerate(low):
            best = worst[a][b]
            if not top or best is None:
                continue
            if not bottom:
                worst[a][b] = None
            elif top * best.denominator > best.numerator * bottom:  # no fraction to reduce
                worst[a][b] = Fraction(top) / bottom


def _check_size(classes: int) -> None:
    if classes > MAX_CLASSES:
        raise InvalidInput(f"a policy has at most {MAX_CLASSES} classes, got {classes}")


def _close(rows: list[list[int]], sizes: Sequence[int]) -> None:
    """Replace distances by the shortest paths between two different values (Floyd, 1962)."""
    order = range(len(rows))
    for via in order:
        for a in order:
            for b in order:
                if len({a, b, via}) == 3:
                    rows[a][b] = min(rows[a][b], rows[a][via] + rows[via][b])
    for a in order:  # within a class, the way leads out of it and back
        for via in order:
            if via != a and sizes[a] > 1:
                rows[a][a] = min(rows[a][a], rows[a][via] + rows[via][a])


def _units(distance: Fraction | float) -> int:
    if distance == math.inf:
        return UNLIMITED
    if isinstance(distance, bool) or not distance >= 0:  # nan too
        raise InvalidInput(f"a distance must be a number >= 0, or infinite, got {distance!r}")
    return math.floor(Fraction(distance) * UNIT)


def _double_above(units: int) -> float:
    result = units / UNIT
    return math.nextafter(result, math.inf) if Fraction(result) * UNIT < units else result


def _distinct(k: int, values: Iterable[int]) -> frozenset[int]:
    listed = list(values)
    for value in listed:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < k:
            raise InvalidInput(f"a sensitive value must lie in 0..{k - 1}, got {value!r}")
    if len(set(listed)) < len(listed):
        raise InvalidInput(f"a sensitive value is listed twice: {listed}")
    return frozenset(listed)
