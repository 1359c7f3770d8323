"""What records that report several attributes tell of two of them together."""

import math
from dataclasses import dataclass
from itertools import combinations, islice

import numpy as np

from hearsay.plans import kinds as domains
from hearsay.plans.plan import Level, Plan
from ldp.core.exact import ONE
from ldp.core.mechanism import Categorical
from ldp.estimating.joint import MAX_CELLS
from ldp.estimating.marginals import table_variance

_MOST_PAIRS = 12
"""Pairs of a level that are shown, the first of the survey."""


@dataclass(frozen=True)
class Pair:
    """What records at one level tell of two attributes that have values.

    `error` is the root mean square error of a cell of the joint table, if all are equally frequent.
    `as_many` users asked without privacy would find a dependence as often, by a test of
    independence, if values are equally frequent.
    """

    level: str
    first: str
    second: str
    error: float
    as_many: float


def of(plan: Plan, users: int) -> list[Pair]:
    """Return for each level pairs of attributes that all of its records report together.

    Pairs with more values than a joint table has cells are left out.
    """
    found = []
    for level in plan.levels.values():
        for first, second in islice(combinations(_reported(plan, level), 2), _MOST_PAIRS):
            one, other = (level.mechanisms[name] for name in (first, second))
            assert isinstance(one, Categorical)
            assert isinstance(other, Categorical)
            if one.k * other.k > MAX_CELLS:
                continue
            variance = table_variance([one, other]) / (one.k * other.k * users)
            kept = users * _kept(one) * _kept(other)
            found.append(Pair(level.name, first, second, math.sqrt(variance), kept))
    return found


def _reported(plan: Plan, level: Level) -> list[str]:
    """Return the attributes with values that every record at a level reports, one by one."""
    each = zip(plan.questions, level.budget.chances, strict=True)
    return [
        name
        for name, chance in each
        if chance == ONE
        and name not in plan.views
        and isinstance(plan.attributes[name].domain, domains.Categorical)
    ]


def _kept(mechanism: Categorical) -> float:
    """Return the share of a record's worth that one report keeps in a test of independence.

    The noncentrality is n tr(S1**-1 C S2**-1 C'). On average over the directions of C, each S is
    its trace over k - 1, and 1 / k without privacy.
    """
    k = mechanism.k
    trace = float(np.sum(mechanism.variance(np.full(k, 1 / k), 1)))
    return (k - 1) / k / trace
