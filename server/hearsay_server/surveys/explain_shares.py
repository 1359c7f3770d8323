"""How small a share may be and still be seen, before a survey is registered."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from hearsay.plans.kinds import (
    Binned,
    ByKind,
    Categorical,
    Domain,
    Grid,
    Numeric,
    Ratings,
    SetOf,
    Strings,
)
from hearsay_server.surveys.question import word_variance
from ldp import Mechanism, PrefixHashing
from ldp.core.intervals import critical_value
from ldp.estimating.discovery import smallest_shares
from ldp.estimating.ratings import RatedShares

Z = critical_value(0.95)
"""Standard errors of half a 95% interval."""

_MOST_VALUES = 256
"""Values that are looked at one by one where a mechanism protects them differently."""

_STEPS = 60

_Variances = list[Callable[[float], float]]


def smallest(domain: Domain | Grid, mechanism: Mechanism, reports: float) -> float:
    """Return the smallest share whose 95% interval lies above zero every second time.

    Of a value, of an item of a set, of those who rate a key, of a range of bins on average, or of a
    word of the longest length where words are found. Where values are protected differently, of the
    one that is seen worst. All other values are equally frequent. nan for a number, which has no
    shares, and where not even a share of one is seen.
    """
    if reports <= 0:
        return math.nan
    if isinstance(mechanism, PrefixHashing) and not domain.labels:  # of words that are found
        share = float(smallest_shares([(mechanism, reports)])[-1])
        return share if share < 1 else math.nan
    found = [_solved(variance, reports) for variance in _VARIANCES[domain](domain, mechanism)]
    return max(found, default=math.nan) if all(map(math.isfinite, found)) else math.nan


def _solved(variance: Callable[[float], float], reports: float) -> float:
    """Return the share f that is `Z` of its own standard errors, by bisection; nan for none."""
    low, high = 0.0, 1.0
    if Z * math.sqrt(variance(high) / reports) >= high:
        return math.nan
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if Z * math.sqrt(variance(middle) / reports) >= middle:
            low = middle
        else:
            high = middle
    return high


def _of_values(domain: Categorical, mechanism: Mechanism) -> _Variances:
    k = len(domain.labels)
    alike = getattr(mechanism, "promise", None) is None
    values = range(1 if alike else min(k, _MOST_VALUES))

    def of(value: int) -> Callable[[float], float]:
        def variance(share: float) -> float:
            truth = np.full(k, (1 - share) / (k - 1))
            truth[value] = share
            return float(mechanism.variance(truth, 1)[value])

        return variance

    return [of(value) for value in values]


def _of_number(domain: Numeric, mechanism: Mechanism) -> _Variances:
    return []


def _of_ranges(domain: Binned | Grid, mechanism: Mechanism) -> _Variances:
    return [lambda _: mechanism.range_variance]  # type: ignore[attr-defined]


def _of_items(domain: SetOf, mechanism: Mechanism) -> _Variances:
    return [lambda share: float(np.mean(mechanism.variance(share, 1)))]


def _of_keys(domain: Ratings, mechanism: Mechanism) -> _Variances:
    rated = RatedShares.of(mechanism)  # type: ignore[arg-type]
    return [lambda share: float(np.mean(rated.variance(share, 1)))]


def _of_words(domain: Strings, mechanism: Mechanism) -> _Variances:
    return [lambda _: word_variance(mechanism, domain.longest)]


_VARIANCES: ByKind[Callable[[Any, Mechanism], _Variances]] = ByKind(
    category=_of_values,
    number=_of_number,
    bins=_of_ranges,
    set=_of_items,
    ratings=_of_keys,
    words=_of_words,
    grid=_of_ranges,
)
"""The variances of one report of a share, as functions of it: one for each share that may differ.
"""


def half(domain: Domain | Grid, error: float) -> float:
    """Return half a 95% interval of a standard error, in parts of one: of a share, or of a
    number's range."""
    one = 2 * domain.units if domain.statistic == "mean" else 1.0
    return Z * error / one
