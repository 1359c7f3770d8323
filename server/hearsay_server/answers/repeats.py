"""What is known of the same people in several periods, of the tallies of a question."""

from collections.abc import Mapping

import numpy as np

from hearsay.plan import Plan
from hearsay_server.ingest.intake import Cohort
from ldp import Tally
from ldp.core.repeated import Repeats, factors


def of_levels(plan: Plan, attribute: str, tallies: Mapping[Cohort, Tally]) -> list[Repeats]:
    """Return what is known of each level, in the order in which the tallies have them.

    It is all that the numbers of reports allow: a device sends one report in a period, and
    nobody knows whether it is among those of another one. With memos it may send the same code.
    """
    levels = list(dict.fromkeys(cohort.level for cohort in tallies))
    periods = list(dict.fromkeys(cohort.period for cohort in tallies))
    reports = np.zeros((len(levels), len(periods)))
    for cohort, tally in tallies.items():
        reports[levels.index(cohort.level), periods.index(cohort.period)] += tally.n
    memo = bool(plan.attributes[attribute].memo)
    return [Repeats(factor, memo) for factor in factors(reports).tolist()]
