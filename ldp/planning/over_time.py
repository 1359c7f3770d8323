"""Which frequency oracle costs a person least over many reports, at equal error."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ldp.core.exact import MAX_EPSILON, ONE, float_above
from ldp.core.loss_sums import mixed
from ldp.core.losses import losses_of
from ldp.core.mechanism import Categorical, Mechanism
from ldp.errors import InvalidInput
from ldp.mechanisms import FREQUENCIES
from ldp.planning.composition import DELTA, of_channels

_LEAST = 1e-3
"""The smallest epsilon of a report that is tried."""
_STEPS = 22
"""Halvings of the range of epsilons, in logarithms: to 3e-6."""


@dataclass(frozen=True)
class Cost:
    """What reports of many periods cost by one mechanism; `label` is its name in a survey.

    `total` is the sum of the epsilons where the attribute is reported in every period, and
    `composed` the epsilon of all reports at delta.
    """

    label: str
    mechanism: Mechanism
    total: float
    composed: float


def cost(
    label: str, mechanism: Mechanism, periods: int, *, chance: int = ONE, delta: float = DELTA
) -> Cost:
    """Return what a report in each of `periods` periods costs, made with chance / 2**64 each.

    The draw is public and does not depend on answers. Raises `InvalidInput` as `losses_of`,
    unless 0 < chance <= 2**64, and for a negative number of periods.
    """
    if not 0 < chance <= ONE:
        raise InvalidInput(f"a chance lies in 1..2**64, got {chance}")
    losses = losses_of(mechanism)
    drawn = losses if chance == ONE else mixed([(chance, [losses]), (ONE - chance, [])])
    total = float_above(Fraction(mechanism.epsilon) * periods)
    return Cost(label, mechanism, total, of_channels([(drawn, periods)], delta))


def at_equal_error(
    k: int, variance: float, periods: int, *, chance: int = ONE, delta: float = DELTA
) -> tuple[Cost, ...]:
    """Return each frequency oracle at the least epsilon that gives this variance, cheapest first.

    `variance` is that of one report, summed over the k categories, for a population in which all
    are equally frequent, as `ldp.planning.choice.choose` compares. Oracles that cannot have k
    categories or the variance are left out. A mechanism that is best for one report need not be
    for many: an observer who sees all reports learns from their typical privacy loss, and
    epsilon is the largest. Raises `InvalidInput` as `cost`, and unless the variance is
    positive.
    """
    if not variance > 0:
        raise InvalidInput(f"a variance must be > 0, got {variance}")
    found = []
    for label, builder in FREQUENCIES.items():
        mechanism = _loosest(k, variance, builder)
        if mechanism is not None:
            found.append(cost(label, mechanism, periods, chance=chance, delta=delta))
    return tuple(sorted(found, key=lambda each: each.composed))


def _loosest(
    k: int, variance: float, builder: Callable[[int, float], Categorical]
) -> Categorical | None:
    """Return the mechanism of the least epsilon with this variance; None where there is none."""
    uniform = np.full(k, 1 / k)

    def built(log_epsilon: float) -> Categorical | None:
        mechanism = builder(k, math.exp(log_epsilon))
        total = float(np.sum(mechanism.variance(uniform, 1)))
        return mechanism if total <= variance * (1 + 1e-9) else None

    low, high = math.log(_LEAST), math.log(MAX_EPSILON)
    try:
        best = built(high)
    except InvalidInput:
        return None
    for _ in range(_STEPS if best else 0):
        middle = (low + high) / 2
        try:
            trial = built(middle)
        except InvalidInput:  # too little for this mechanism
            trial = None
        if trial is None:
            low = middle
        else:
            high, best = middle, trial
    return best
