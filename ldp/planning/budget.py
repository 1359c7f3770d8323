"""Budgets: one record's epsilon split over all attributes, or spent on a sampled few.

Splitting reports every attribute, each with its share of epsilon. Sampling reports a few
attributes, drawn for each record without regard to its answers, and spends all of epsilon on
them. A budget says both in the same integers: each attribute's chance to be reported.
"""

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.core.exact import MAX_EPSILON, ONE, check_epsilon, float_above, float_below
from ldp.errors import InvalidInput

Floats = NDArray[np.float64]

_STEPS = 60
_STRIDE = 0.5
"""The largest step, in log epsilon, from the point at which a power law was fitted."""


@dataclass(frozen=True)
class Attribute:
    """The predicted variance, importance and epsilon cap of one attribute.

    `variance(epsilon)` is the predicted variance of one report, falling with epsilon and
    convex; `importance` is the analyst's cost of a unit of it; `cap` is the most epsilon that
    the attribute may be reported with. Raises `InvalidInput` unless all are positive.
    """

    name: str
    variance: Callable[[float], float]
    importance: float = 1.0
    cap: float = MAX_EPSILON

    def __post_init__(self) -> None:
        if not (math.isfinite(self.importance) and self.importance > 0):
            raise InvalidInput(
                f"{self.name}: importance must be finite and > 0, got {self.importance}"
            )
        check_epsilon(self.cap, f"{self.name}: cap")


@dataclass(frozen=True)
class Budget:
    """The epsilon of each attribute's report, and the chance that a record reports it.

    Attribute j is reported with chances[j] / 2**64, the same number of attributes in every
    record, and then with epsilons[j]. Chances of 2**64 for all are a split budget. Two sampled
    attributes need not ever be reported together, so a joint distribution is for a split
    budget, or for pairs collected as one attribute.
    Guarantee: the record is `record_epsilon`-LDP as a whole, if each attribute's mechanism is
    epsilons[j]-LDP: for any two records, however many attributes they differ in.
    Raises `InvalidInput` unless there is one of each per attribute, the epsilons are valid (or 0
    where the chance is), and the chances are integers in 0..2**64 that sum to a multiple of it.
    Source: systematic sampling, Madow, "On the theory of systematic sampling, II", Annals of
    Mathematical Statistics 20, 1949.
    """

    epsilons: tuple[float, ...]
    chances: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.epsilons) != len(self.chances) or not self.chances:
            raise InvalidInput(
                "a budget has one epsilon and one chance per attribute, "
                f"got {len(self.epsilons)} and {len(self.chances)}"
            )
        for epsilon, chance in zip(self.epsilons, self.chances, strict=True):
            if type(chance) is not int or not 0 <= chance <= ONE:
                raise InvalidInput(f"a chance is an integer in 0..2**64, got {chance!r}")
            if chance or epsilon:
                check_epsilon(epsilon)
        if sum(self.chances) % ONE:
            raise InvalidInput("the chances must sum to a multiple of 2**64")

    @property
    def reported(self) -> int:
        """The number of attributes that each record reports."""
        return sum(self.chances) // ONE

    @property
    def record_epsilon(self) -> float:
        """The largest sum of epsilons over attributes that a record can report together.

        Exact, rounded up to a double: the sum for a split budget, the largest one where one
        attribute is sampled.
        """
        return self.epsilon_of(range(len(self.chances)))

    def epsilon_of(self, attributes: Collection[int]) -> float:
        """Return `record_epsilon` where only `attributes` are reported, and the others withheld.

        The choice must be made before the values are known. Withheld attributes are still
        drawn: the others are reported as often as by everybody, so that nobody counts more.
        Raises `InvalidInput` where an attribute does not exist. Cost: a sort of `attributes`.
        """
        self._check_exist(attributes)
        epsilons, over = self._exact
        now, changes = (
            0,
            dict[int, int](),
        )  # what is spent at the circle's end, and where it changes
        for j in set(attributes):
            start, chance, epsilon = self._starts[j], self.chances[j], epsilons[j]
            end = start + chance
            if end >= ONE:
                now += epsilon
            if chance < ONE:
                changes[start] = changes.get(start, 0) + epsilon
                changes[end % ONE] = changes.get(end % ONE, 0) - epsilon
        largest = now
        for place in sorted(changes):
            now += changes[place]
            largest = max(largest, now)
        return float_above(Fraction(largest, over)) if largest else 0.0

    def choices(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return the sets of attributes that a record may report, each with its chance / 2**64."""
        edges = sorted(set(self._starts))
        lengths = [after - edge for edge, after in pairwise([*edges, ONE])]
        found: dict[tuple[int, ...], int] = {}
        for edge, length in zip(edges, lengths, strict=True):
            reported = tuple(self._selected(edge))
            found[reported] = found.get(reported, 0) + length
        return [(chance, reported) for reported, chance in found.items()]

    def draw(self, coins: Coins) -> tuple[int, ...]:
        """Draw the attributes that one record reports; return their indices in order."""
        if self.reported == len(self.chances):
            return tuple(range(len(self.chances)))
        return tuple(self._selected(coins.below(ONE)))

    def draw_many(self, n: int, coins: Coins) -> NDArray[np.bool_]:
        """Draw the attributes that each of n records reports, as bools (n, attributes)."""
        words = coins.words(n)
        drawn = np.empty((n, len(self.chances)), dtype=np.bool_)
        for j, (start, chance) in enumerate(zip(self._starts, self.chances, strict=True)):
            drawn[:, j] = chance == ONE or words - np.uint64(start) < np.uint64(chance)
        return drawn

    def with_epsilon(self, attribute: int, epsilon: float) -> "Budget":
        """Return the budget with another epsilon for an attribute, as a level of its own.

        Raises `InvalidInput` where the attribute does not exist, or the epsilon is not valid.
        """
        self._check_exist([attribute])
        epsilons = list(self.epsilons)
        epsilons[attribute] = epsilon
        return replace(self, epsilons=tuple(epsilons))

    def _check_exist(self, attributes: Collection[int]) -> None:
        if not all(0 <= j < len(self.chances) for j in attributes):
            raise InvalidInput(
                f"attributes are 0..{len(self.chances) - 1}, got {sorted(attributes)}"
            )

    def variance(self, attributes: Sequence[Attribute]) -> float:
        """Return sum_j importance_j V_j(epsilon_j) / chance_j, n times the weighted variance."""
        return sum(
            a.importance * a.variance(epsilon) * ONE / chance
            for a, epsilon, chance in zip(attributes, self.epsilons, self.chances, strict=True)
            if chance
        )

    @cached_property
    def _exact(self) -> tuple[tuple[int, ...], int]:
        """The epsilons as integers, and the power of two that they are over."""
        exact = [epsilon.as_integer_ratio() for epsilon in self.epsilons]
        over = max(divisor for _, divisor in exact)
        return tuple(units * (over // divisor) for units, divisor in exact), over

    @cached_property
    def _starts(self) -> list[int]:
        """Start of each attribute's arc on a circle of length 2**64: the end of the last one."""
        return [end % ONE for end in accumulate(self.chances[:-1], initial=0)]

    def _selected(self, word: int) -> Iterator[int]:
        """Yield the attributes whose arcs hold the word."""
        for j, (start, chance) in enumerate(zip(self._starts, self.chances, strict=True)):
            if (word - start) % ONE < chance:
                yield j


@dataclass(frozen=True)
class Decision:
    """The budgets with the least predicted variance, `candidates[0]`, and the others.

    `candidates` are (label, predicted variance, budgets), by predicted variance, with one budget
    per level; `str()` lists them.
    """

    candidates: tuple[tuple[str, float, tuple[Budget, ...]], ...]

    @property
    def budgets(self) -> tuple[Budget, ...]:
        """The budgets chosen, one per level."""
        return self.candidates[0][2]


def split_by_weight(
    epsilon: float, weights: Sequence[float], caps: Sequence[float] | None = None
) -> Budget:
    """Return a split budget, with epsilon shared out in proportion to the weights.

    Epsilon kept by a cap from an attribute goes to the others, in proportion again. Exact: the sum
    never exceeds epsilon. Raises `InvalidInput` unless the weights are finite and positive and
    there are as many caps.
    """
    if not weights or not all(math.isfinite(w) and w > 0 for w in weights):
        raise InvalidInput(f"weights must be finite and > 0, got {list(weights)}")
    caps = [MAX_EPSILON] * len(weights) if caps is None else caps
    if len(caps) != len(weights):
        raise InvalidInput(f"{len(weights)} weights have as many caps, got {len(caps)}")
    limits = [Fraction(check_epsilon(cap, "cap")) for cap in caps]
    shares = _filled([Fraction(w) for w in weights], limits, Fraction(check_epsilon(epsilon)))
    return Budget(tuple(float_below(share) for share in shares), (ONE,) * len(shares))


def split(epsilon: float, attributes: Sequence[Attribute]) -> Budget:
    """Return the split budget of least weighted variance.

    Minimises sum_j importance_j V_j(eps_j) with sum_j eps_j = epsilon and eps_j <= cap_j: all
    attributes below their caps then gain alike from a little more. Each step takes V_j for a
    power of epsilon near where it is, and solves for the multiplier exactly; of all that were
    visited the best is taken, because where variances hardly fall with epsilon, as they do at
    large ones, steps do not settle. Raises `InvalidInput` where there are no attributes or a
    variance is not positive.
    """
    _check_attributes(attributes)
    caps = np.array([attribute.cap for attribute in attributes])
    even = split_by_weight(epsilon, [1.0] * len(attributes), caps.tolist())
    found = best = np.array(even.epsilons)
    least = even.variance(attributes)
    for _ in range(_STEPS if caps.sum() > epsilon else 0):
        gain, power = _gains(attributes, found)
        before, found = found, _level(found, gain, power, caps, epsilon)
        variance = sum(
            a.importance * _variance(a, e) for a, e in zip(attributes, found.tolist(), strict=True)
        )
        if variance < least:
            least, best = variance, found
        if np.abs(found / before - 1).max() < 1e-9:
            break
    found = best
    exact = [Fraction(value) for value in found.tolist()]
    scale = min(Fraction(1), Fraction(epsilon) / sum(exact))
    return Budget(tuple(float_below(value * scale) for value in exact), (ONE,) * len(exact))


def sample(
    epsilons: Sequence[float], attributes: Sequence[Attribute], size: int = 1
) -> tuple[Budget, ...]:
    """Return budgets that report `size` attributes, drawn per record, with epsilon / size each.

    `epsilons` has one for each level; there is a budget for each, and all have the same
    chances, so that every user's attributes count alike, and a user may have another level for
    one of them. The chances have the least weighted variance, on average over the levels: they
    are in proportion to sqrt(importance V), up to one. Raises `InvalidInput` unless
    1 <= size <= len(attributes), and where a variance is not positive, or an importance is so
    small that its attribute would never be reported.
    Source: for one attribute Neyman's allocation.
    """
    _check_attributes(attributes)
    if not 1 <= size <= len(attributes):
        raise InvalidInput(f"size must lie in 1..{len(attributes)}, got {size}")
    shares = [float_below(Fraction(check_epsilon(epsilon)) / size) for epsilon in epsilons]
    costs = []
    for attribute in attributes:
        variances = [_variance(attribute, min(share, attribute.cap)) for share in shares]
        costs.append(Fraction(math.sqrt(attribute.importance * sum(variances))))
    chances = _chances(costs, size)
    for attribute, chance in zip(attributes, chances, strict=True):
        if not chance:
            raise InvalidInput(
                f"{attribute.name}: its importance {attribute.importance:g} is so small beside "
                "the others' that it would never be reported"
            )
    return tuple(Budget(tuple(min(s, a.cap) for a in attributes), chances) for s in shares)


def decide(epsilons: Sequence[float], attributes: Sequence[Attribute]) -> Decision:
    """Compare splitting with sampling 1, 2, ... attributes, by predicted weighted variance.

    `epsilons` has one for each level; all levels get budgets of one kind, compared by their
    average variance. Raises `InvalidInput` as `split` and `sample` do. Cost:
    O(levels attributes**2) variances.
    """
    _check_attributes(attributes)
    d = len(attributes)
    candidates = [(f"all {d} attributes at once", tuple(split(e, attributes) for e in epsilons))]
    candidates += [
        (f"{size} of {d} attributes, drawn for each record", sample(epsilons, attributes, size))
        for size in range(1, d)
    ]
    return compared(candidates, attributes)


def compared(
    candidates: Sequence[tuple[str, tuple[Budget, ...]]], attributes: Sequence[Attribute]
) -> Decision:
    """Return labelled candidates in order of their predicted variance, averaged over levels."""
    rated = [
        (label, sum(budget.variance(attributes) for budget in levels) / len(levels), levels)
        for label, levels in candidates
    ]
    return Decision(tuple(sorted(rated, key=lambda candidate: candidate[1])))


def _check_attributes(attributes: Sequence[Attribute]) -> None:
    if not attributes:
        raise InvalidInput("a budget needs at least one attribute")


def _variance(attribute: Attribute, epsilon: float) -> float:
    variance = float(attribute.variance(epsilon))
    if not (math.isfinite(variance) and variance > 0):
        raise InvalidInput(
            f"{attribute.name}: a variance must be finite and > 0, got {variance} at {epsilon:g}"
        )
    return variance


def _gains(attributes: Sequence[Attribute], epsilons: Floats) -> tuple[Floats, Floats]:
    """Return -importance V' at the epsilons, and -d log V / d log epsilon."""
    step = 1e-4
    gain, power = [], []
    for attribute, epsilon in zip(attributes, epsilons.tolist(), strict=True):
        below = _variance(attribute, epsilon * (1 - step))
        above = _variance(attribute, epsilon * (1 + step))
        slope = max((below - above) / (2 * step), 1e-12 * below)  # per unit of log epsilon
        gain.append(attribute.importance * slope / epsilon)
        power.append(2 * slope / (below + above))
    return np.array(gain), np.array(power)


def _level(epsilons: Floats, gain: Floats, power: Floats, caps: Floats, total: float) -> Floats:
    """Return epsilons of sum `total` and equal marginal gain, for V_j ~ epsilon**-power_j."""
    log_gain = np.log(gain)

    def at(level: float) -> Floats:
        step = np.clip((log_gain - level) / (power + 1), -_STRIDE, _STRIDE)
        moved: Floats = np.minimum(epsilons * np.exp(step), caps)
        return moved

    low, high = log_gain.min() - 1, log_gain.max() + 1
    while at(low).sum() < total:
        low -= high - low
    while at(high).sum() > total:
        high += high - low
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle).sum() > total else (low, middle)
    return at(high)


def _chances(costs: Sequence[Fraction], size: int) -> tuple[int, ...]:
    """Return integers in 0..2**64 that sum to size 2**64, in proportion to the costs below it."""
    shares = _filled(costs, [Fraction(ONE)] * len(costs), Fraction(size * ONE))
    chances = [math.floor(share) for share in shares]
    # The units lost by rounding, less than one per attribute, go where most was lost.
    by_loss = sorted(range(len(costs)), key=lambda j: chances[j] - shares[j])
    for j in by_loss[: size * ONE - sum(chances)]:
        chances[j] += 1
    return tuple(chances)


def _filled(
    weights: Sequence[Fraction], limits: Sequence[Fraction], total: Fraction
) -> list[Fraction]:
    """Share out `total` by weight, with each share at most its limit."""
    shares = [Fraction(0)] * len(weights)
    open_ = [j for j, weight in enumerate(weights) if weight]
    while open_:
        unit = total / sum(weights[j] for j in open_)
        full = [j for j in open_ if weights[j] * unit >= limits[j]]
        for j in full or open_:
            shares[j] = limits[j] if full else weights[j] * unit
            total -= shares[j]
        open_ = [j for j in open_ if j not in full] if full else []
    return shares
