"""The smallest changes between two periods that reports will show."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hearsay.plans.kinds import ByKind, Domain, Grid
from hearsay.plans.plan import Level, Plan
from hearsay_server.surveys.question import half_as_many
from ldp import FrequencyOracle
from ldp.core.exact import ONE
from ldp.core.mechanism import Mechanism
from ldp.planning import sizes

PANELS = 16
"""Panels that are explained where the survey has none."""

_CHANGED = 0.1
"""The share of people who answer otherwise in the second period, where memos are explained."""

_MOST_VALUES = 4096
"""Values of a question up to which it is explained."""


@dataclass(frozen=True)
class Smallest:
    """The smallest change of a question, at one level, that is found with probability 0.8.

    By the test of one value at significance 0.05, in the answer's units: without panels, with
    panels, and with panels where devices repeat their codes; None of devices that do not.
    """

    level: str
    attribute: str
    alone: float
    by_panels: float
    memos: float | None


def of(plan: Plan, users: int) -> list[Smallest]:
    """Return the smallest changes of each question at each level; none without periods.

    All values are planned to be equally frequent, items of sets to be named by half as many people
    as may, and numbers to be in the middle.
    """
    if not plan.period:
        return []
    return [each for level in plan.levels.values() for each in _of_level(plan, level, users)]


def _of_level(plan: Plan, level: Level, users: int) -> list[Smallest]:
    found = []
    for (name, mechanism), chance in zip(
        level.mechanisms.items(), level.budget.chances, strict=True
    ):
        question = plan.questions[name]
        domain = question.domain
        reports = round(users * chance / ONE)
        truth = _TRUTHS[domain](domain)
        if truth is None or len(domain.labels) > _MOST_VALUES or not reports:
            continue
        alone = sizes.detectable_change(mechanism, truth, reports, same_people=True)
        panels = sizes.detectable_change(mechanism, truth, reports, panels=PANELS)
        memos = _memos(mechanism, truth, reports) if question.memo == 1 else None
        units = domain.units
        found.append(Smallest(level.name, name, units * alone, units * panels, memos))
    return found


def _even(domain: Domain | Grid) -> float | None:
    return 1 / len(domain.labels) if domain.labels else None  # of words that are found


_TRUTHS: ByKind[Callable[[Any], float | None]] = ByKind(
    category=_even,
    number=lambda _: 0.0,
    bins=_even,
    set=half_as_many,
    ratings=lambda _: None,
    words=_even,
    grid=_even,
)
"""What is estimated of a kind, as it is planned to be; None where no change is explained."""


def _memos(mechanism: Mechanism, truth: float, reports: int) -> float | None:
    """Return the change that panels show of codes which devices repeat as long as answers stay.

    Of the people who changed some came to the value, as many left it, and the others' two supports
    of it are independent.
    """
    if not isinstance(mechanism, FrequencyOracle):
        return None
    p, q = map(float, mechanism.support)
    moved = 2 * truth * _CHANGED
    rest = max(0.0, _CHANGED - moved)
    variance = moved * (p * (1 - q) + q * (1 - p)) + rest * 2 * q * (1 - q)
    reach = sizes.detection_reach(0.95, 0.8, PANELS - 1)
    return reach * math.sqrt(variance / reports) / (p - q)
