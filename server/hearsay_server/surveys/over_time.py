"""What answering in many periods costs a person: by attribute, record and mechanism."""

from dataclasses import dataclass

import numpy as np

from hearsay.plans import kinds as domains
from hearsay.plans.plan import Level, Plan
from ldp import InvalidInput
from ldp.core.exact import ONE
from ldp.core.loss_sums import mixed
from ldp.core.losses import Losses, bounded, losses_of
from ldp.core.mechanism import Categorical, Mechanism
from ldp.planning.composition import of_channels
from ldp.planning.over_time import at_equal_error

A_YEAR = {"PT1H": 24 * 365, "P1D": 365, "P1W": 52, "P1M": 12, "P1Y": 10}
"""How many periods are explained, by the survey's period: a year of them, or ten years."""

_WORTH = 0.98
"""How much less than the survey's own mechanism another one must cost to be named."""


@dataclass(frozen=True)
class Cost:
    """What one question, or the whole record (""), costs over many periods, at one level.

    `reports` is how many are expected; `total` sums the epsilons of records that report the
    question every time; `composed` is the epsilon of all reports but for a probability of
    `DELTA`. A memoised attribute counts once, as for one value that stays.
    """

    level: str
    attribute: str
    reports: float
    total: float
    composed: float


def costs(plan: Plan, periods: int | None) -> tuple[int, list[Cost]]:
    """Return how many periods are explained, and what they cost at each level.

    `periods` is None for a year of them. A survey without a period has nothing to explain: 0.
    Raises `InvalidInput` unless periods lie in 1..10**6, or for a survey without a period.
    """
    if not plan.period:
        if periods is not None:
            raise InvalidInput("the survey has no period: nobody answers it twice")
        return 0, []
    if periods is not None and not 1 <= periods <= 10**6:
        raise InvalidInput(f"periods must lie in 1..10**6, got {periods}")
    times = periods or A_YEAR[plan.period]
    return times, [cost for level in plan.levels.values() for cost in _of_level(plan, level, times)]


def _of_level(plan: Plan, level: Level, times: int) -> list[Cost]:
    found, losses, memos = [], [], 0.0
    for (name, mechanism), chance in zip(
        level.mechanisms.items(), level.budget.chances, strict=True
    ):
        memoizer = plan.memoizer(level.name, name)
        if memoizer:
            found.append(Cost(level.name, name, 1, memoizer.epsilon, memoizer.epsilon))
            losses.append(mixed([(1, [])]))
            memos += memoizer.epsilon
            continue
        losses.append(_losses(mechanism))
        drawn = mixed([(chance, losses[-1:]), (ONE - chance, [])])
        composed = of_channels([(drawn, times)])
        share = chance / ONE
        found.append(Cost(level.name, name, times * share, mechanism.epsilon * times, composed))
    memoised = [plan.memoizer(level.name, name) is not None for name in level.mechanisms]
    positions = [j for j, kept in enumerate(memoised) if not kept]
    if not positions:
        return found
    choices = [
        (chance, [losses[j] for j in reported if j in positions])
        for chance, reported in level.budget.choices()
    ]
    total = level.budget.epsilon_of(positions) * times + memos
    if len(choices) == 1:
        composed = of_channels([(each, times) for each in choices[0][1]])
    else:
        composed = of_channels([(mixed(choices), times)])
    found.append(Cost(level.name, "", times, total, composed + memos))
    return found


def _losses(mechanism: Mechanism) -> Losses:
    """Return the losses of a report that is drawn afresh, also by a mechanism made for memos."""
    if mechanism.guarantee == "repeated":
        return bounded(mechanism.realised_epsilon)
    return losses_of(mechanism)


def best_mechanisms(plan: Plan, periods: int) -> list[str]:
    """Return a line on each attribute of categories for which another mechanism costs less.

    Compared are the frequency oracles at the epsilon that gives the error of the survey's own,
    at the default level, or else the first.
    """
    level = plan.levels[plan.default_level or next(iter(plan.levels))]
    chances = dict(zip(level.mechanisms, level.budget.chances, strict=True))
    lines = []
    for name, mechanism in level.mechanisms.items():
        if (
            not isinstance(mechanism, Categorical)
            or not isinstance(plan.questions[name].domain, domains.Categorical)
            or mechanism.guarantee != "pure"
            or plan.memoizer(level.name, name)
        ):
            continue
        variance = float(np.sum(mechanism.variance(np.full(mechanism.k, 1 / mechanism.k), 1)))
        chance = chances[name]
        (best, *_) = at_equal_error(mechanism.k, variance, periods, chance=chance)
        drawn = mixed([(chance, [losses_of(mechanism)]), (ONE - chance, [])])
        own = of_channels([(drawn, periods)])
        what = f"{name} ({level.name}): {mechanism.name} at epsilon {mechanism.epsilon:.3g} costs"
        if best.composed < _WORTH * own:
            more = "more" if best.mechanism.epsilon > mechanism.epsilon else "less"
            lines.append(
                f"{what} {own:.3g}; {best.label} at {best.mechanism.epsilon:.3g} has the same "
                f"error and costs {best.composed:.3g}, though each report by itself may tell {more}"
            )
        else:
            lines.append(f"{what} {own:.3g}, the least for this error")
    return lines
