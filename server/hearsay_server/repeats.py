"""What an estimate from several periods is worth where devices repeat their memos."""

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from hearsay_server.intake import Cohort
from ldp import Tally
from ldp.estimation import Estimate, Interval


def overstatement(tallies: Mapping[Cohort, Tally]) -> float:
    """Return by what factor errors for independent reports may fall short, at most: >= 1.

    Within a period reports are of different devices, and independent. Across periods a device
    may send the same code, so nothing is assumed of how they depend. A pooled estimate is a sum
    over cohorts, at worst with its periods' parts perfectly correlated. Let level g contribute
    the share c_g of the variance if all were independent, a part s_gt of it in period t as its
    reports fall. The standard deviations of periods add up to at most
    sum_t sqrt(sum_g c_g s_gt) times the claimed one (Cauchy and Schwarz), which exceeds
    neither sum_t sqrt(max_g s_gt) nor the root of the number of periods.
    """
    reports: defaultdict[str, int] = defaultdict(int)
    for cohort, tally in tallies.items():
        reports[cohort.level] += tally.n
    shares: defaultdict[str, float] = defaultdict(float)
    for cohort, tally in tallies.items():
        if tally.n:
            shares[cohort.period] = max(shares[cohort.period], tally.n / reports[cohort.level])
    return max(1.0, min(sum(map(math.sqrt, shares.values())), math.sqrt(len(shares))))


def widened(estimate: Estimate, factor: float) -> Estimate:
    """Return the same estimate with errors and intervals for so many times the standard error."""
    inversion = estimate.test_inversion

    def inverted(z: float) -> Interval:
        assert inversion is not None
        return inversion(z * factor)

    return replace(
        estimate,
        standard_error=estimate.standard_error * factor,
        test_inversion=inverted if inversion else None,
    )
