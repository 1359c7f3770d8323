"""How often one person may be among the reports of several periods, from their tallies."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from hearsay.plans.plan import Plan
from hearsay_server.ingest.intake import Cohort
from ldp import Tally
from ldp.core.repeated import Repeats, factors

_ENTRIES = 1 << 22
"""Pairs of periods, for each level of each group, that are compared at once."""


def of_levels(
    plan: Plan,
    tallies: Mapping[Cohort, Tally],
    others: Mapping[Cohort, Tally] | None = None,
) -> list[Repeats]:
    """Return the repeats of each level and map, in the order in which the tallies have them.

    They assume the largest overlap of people between periods that the numbers of reports permit,
    since nobody knows whether a device that reported in one period reported in another. With
    memos it may have sent the same code. Where one record may report several views, each of them is
    a period of its own. `others` are reports that an estimate from `tallies` is compared with: they
    may be of the same people.
    """
    rows = list(dict.fromkeys((cohort.level, cohort.map) for cohort in tallies))
    # The levels of the others are rows of their own: what they weigh in a comparison is another.
    others = others or {}
    views = any(level.budget.reported > 1 for level in plan.levels.values())

    def occasion(cohort: Cohort) -> tuple[str, str]:
        return cohort.period, cohort.attribute if views else ""

    periods = list(dict.fromkeys(map(occasion, (*tallies, *others))))
    reports = np.zeros((len(rows) + 1, len(periods)))
    for cohort, tally in tallies.items():  # one at a time: they are unpacked as they are looked at
        place = periods.index(occasion(cohort))
        reports[rows.index((cohort.level, cohort.map)), place] += tally.n
    for cohort, tally in others.items():
        reports[len(rows), periods.index(occasion(cohort))] += tally.n
    memo = any(plan.questions[cohort.attribute].memo for cohort in tallies)
    return [Repeats(factor, memo) for factor in factors(reports).tolist()[: len(rows)]]


def of_groups(plan: Plan, groups: Mapping[str, Mapping[Cohort, Tally]]) -> dict[str, list[Repeats]]:
    """Return for each group what `of_levels` returns where all the other groups are `others`.

    A person's group may change between periods, as the version of an app does.
    """
    views = any(level.budget.reported > 1 for level in plan.levels.values())

    def occasion(cohort: Cohort) -> tuple[str, str]:
        return cohort.period, cohort.attribute if views else ""

    each = {
        name: list(dict.fromkeys((cohort.level, cohort.map) for cohort in tallies))
        for name, tallies in groups.items()
    }
    rows = {
        (name, *row): place
        for place, (name, row) in enumerate(
            (name, row) for name, own in each.items() for row in own
        )
    }
    periods = {
        when: place
        for place, when in enumerate(
            dict.fromkeys(occasion(cohort) for tallies in groups.values() for cohort in tallies)
        )
    }
    reports = np.zeros((len(rows), len(periods)))
    memo = False
    for name, tallies in groups.items():
        for cohort, tally in tallies.items():
            reports[rows[name, cohort.level, cohort.map], periods[occasion(cohort)]] += tally.n
            memo = memo or bool(plan.questions[cohort.attribute].memo)
    whole, found = reports.sum(axis=0), []
    step = max(1, _ENTRIES // len(periods) ** 2)
    for begin in range(0, len(rows), step):
        part = reports[begin : begin + step]
        found += factors(np.vstack([part, whole - part.sum(axis=0)]))[: len(part)].tolist()
    return {
        name: [Repeats(found[rows[name, *row]], memo) for row in own] for name, own in each.items()
    }


def people(plan: Plan, tallies: Mapping[Cohort, Tally]) -> int:
    """Return how many different people the reports of a group are of at least: those of the period,
    or of the view in a period, that has the most."""
    views = any(level.budget.reported > 1 for level in plan.levels.values())
    found: Counter[tuple[str, str]] = Counter()
    for cohort, tally in tallies.items():
        found[cohort.period, cohort.attribute if views else ""] += tally.n
    return max(found.values())
