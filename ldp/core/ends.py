"""The ends of a pooled estimate's interval: of which form they are, and how they are found."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ldp.core.intervals import Ends, Interval, below, farther, holding, reach
from ldp.core.repeated import Repeats

if TYPE_CHECKING:
    from ldp.core.estimation import Cohorts
    from ldp.core.estimator import Estimator

_HALVINGS = 32  # far below the standard error of any survey


@dataclass(frozen=True, eq=False)
class Bias:
    """The greatest bias of an average, whose interval allows for it.

    `size`, shape (parameters,), is reached upwards where each cohort's parameters are `apart`,
    shape (cohorts, parameters), from those that are estimated, and downwards at -`apart`.
    """

    size: NDArray[np.float64]
    apart: NDArray[np.float64]


def ends_of(
    cohorts: "Cohorts",
    value: NDArray[np.float64],
    weights: NDArray[np.float64],
    weigh: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    apart: NDArray[np.float64],
    extra: NDArray[np.float64] | float,
    bias: Bias | None,
) -> Ends | None:
    """Return the ends of the estimate `value` of these weights; None where Wald's are as good.

    Where every cohort has `moments`, as frequency oracles have, the ends invert the score test.
    Where every cohort has a `spread`, as means have, one person is imagined at each end of the
    range. `weigh` gives the weights at other truths, of the variances there, (cohorts, 2,
    parameters). `apart`, (cohorts, parameters), is how far the cohorts' truths are from that of
    the estimate.
    """
    truth = np.clip(value, *cohorts.bounds)
    if all(mechanism.moments(truth, 1) is not None for mechanism, _ in cohorts):
        return partial(_invert_score_test, cohorts, weigh, apart, extra, bias)
    if all(mechanism.spread(0.0, tally) is not None for mechanism, tally in cohorts):
        return partial(_with_people_at_both_ends, cohorts, value, weights[:, 0], apart, extra, bias)
    return None


def _invert_score_test(
    cohorts: "Cohorts",
    weigh: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    apart: NDArray[np.float64],
    extra: NDArray[np.float64] | float,
    bias: Bias | None,
    z: float,
) -> Interval:
    """Return the ends of {f : |sum_g w_g (f_g - f)| <= z sqrt(sum_g w_g**2 V_g(f) + extra)}.

    The variances, and the weights made of them, are those at the hypothesis f, each cohort being
    `apart` from it, not at the estimate. With a `bias` the limit is `reach` in place of z standard
    errors, and the cohorts are where they have that bias, towards the estimate. That makes the
    test right where counts are small; one cohort's is the interval of Wilson (Journal of the
    American Statistical Association 22, 1927) for its supports. Where the statistic is skewed, the
    limit of its longer tail is put farther out, by skewness (z**2 - 1) / 6 standard errors
    (Cornish and Fisher): a single support where hardly any is expected is no great surprise.
    """
    values = np.array([[mechanism.debias(tally)] for mechanism, tally in cohorts])
    bounds = cohorts.bounds
    side = np.array([[1], [-1]])  # of the two ends on which the estimate is
    away = apart[:, np.newaxis] if bias is None else side * bias.apart[:, np.newaxis]

    def rejected(f: NDArray[np.float64]) -> NDArray[np.bool_]:
        each = zip(cohorts, cohorts.repeats, np.clip(f + away, *bounds), strict=True)
        moments = np.array([_moments(m, tally.n, once, own) for (m, tally), once, own in each])
        variances, third = moments[:, 0], moments[:, 1]
        weights = weigh(variances)
        variance = (weights**2 * variances).sum(axis=0) + extra
        excess = side * (weights * (values - f)).sum(axis=0)
        excess = np.minimum(excess, np.where(side == 1, bounds[1] - f, f - bounds[0]))
        skewed = side * (weights**3 * third).sum(axis=0) / variance
        excess -= np.maximum(skewed * (z**2 - 1) / 6, 0)
        error = np.sqrt(variance)
        surprising: NDArray[np.bool_] = excess > z * error
        if bias is not None:
            surprising = farther(excess, bias.size, error) < 2 * below(-z)
        return surprising

    low, high = (np.full((2, cohorts.parameters), bound) for bound in bounds)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        upwards = rejected(middle) == (side == 1)
        low, high = np.where(upwards, middle, low), np.where(upwards, high, middle)
    return low[0], high[1]


def _with_people_at_both_ends(
    cohorts: "Cohorts",
    value: NDArray[np.float64],
    weights: NDArray[np.float64],
    apart: NDArray[np.float64],
    extra: NDArray[np.float64] | float,
    bias: Bias | None,
    z: float,
) -> Interval:
    """Return the interval of a mean that allows for rare extremes which nobody reported.

    One imagined person at each end of the range, with as many reports as others have, joins the
    cohort whose reports weigh most, of several the one with the most reports. Each cohort's
    variance is that of its reports about the mean that follows, c, or about what is `apart` from
    it: as adding two successes and two failures does for a proportion (Agresti and Coull, The
    American Statistician 52, 1998). The interval c -+ z sqrt(variance), or `reach` of a `bias`,
    is widened to hold the estimate.
    """
    counts = cohorts.counts
    each = weights / counts
    joined = int(np.argmax(np.where(np.isclose(each, each.max()), counts, 0)))
    padded = np.zeros(counts.size)
    padded[joined] = 2 * cohorts.repeats[joined].factor
    scale = 1 / (1 + each @ padded)
    center = np.clip(value * scale, *cohorts.bounds)
    truths = np.clip(center + apart, *cohorts.bounds)
    own = []
    for (mechanism, tally), imagined, about in zip(
        cohorts, padded.tolist(), (center + apart)[:, 0].tolist(), strict=True
    ):
        spread = mechanism.spread(about, tally, imagined)
        assert spread is not None
        own.append([spread / (tally.n + imagined)])
    variances = cohorts.allowing(truths, own)[:, 0]
    moved = each * scale * (counts + padded)
    error = np.sqrt((moved**2 * variances).sum() + extra)
    half = z * error if bias is None else reach(bias.size, error, z)
    return holding(value, center - half, center + half)


def _moments(mechanism: "Estimator", n: int, repeats: Repeats, f: NDArray[np.float64]) -> Interval:
    """Return the second and third central moments of a frequency's estimate.

    Given the truths x, a report has a variance v(x); of a person with m reports the third
    cumulant is m E k(x) + 3 m**2 cov(x, v(x)) + m**3 k(x), k being those of the terms. It is that
    of people who all have `factor` reports.
    """
    second, third = _both(mechanism, f, n)
    more = repeats.factor - 1
    if not more:
        return second, third
    if repeats.codes:
        return second * repeats.factor, third * repeats.factor**2
    spread = f * (1 - f) / n
    change = _both(mechanism, np.ones_like(f), n)[0] - _both(mechanism, np.zeros_like(f), n)[0]
    skewed = (repeats.factor**2 - 1) * spread * (1 - 2 * f) / n
    return second + more * spread, third + 3 * more * spread * change + skewed


def _both(mechanism: "Estimator", f: NDArray[np.float64], n: int) -> Interval:
    moments = mechanism.moments(f, n)
    assert moments is not None
    return moments
