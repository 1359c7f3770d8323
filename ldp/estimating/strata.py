"""Estimates for cohorts whose people may differ, such as those who chose different levels.

Pooling weighs cohorts by precision, so where their people differ it describes nobody, and a test
finds only differences that are large beside its error. So the estimand here is the mix of those
who answered, sum_g w_g f_g, w_g being the cohorts' shares of the reports:

- `stratified` assumes nothing. Its variance is the arithmetic mean of the cohorts' variances of
  one report, that of a pooled estimate their harmonic mean: the price of not assuming.
- `bounded` assumes that two cohorts' parameters differ by `most` at the most. Its interval
  allows for the greatest bias that this permits (Armstrong and Kolesar, "Optimal inference in a
  class of regression models", Econometrica 86, 2018), and lies between the other two.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtri, chndtrinc

from ldp.core.ends import Bias
from ldp.core.estimation import Cohorts, Estimate, averaged, estimate
from ldp.core.estimator import Estimator
from ldp.core.intervals import Interval, critical_value, reach
from ldp.core.repeated import Repeats
from ldp.errors import InvalidInput
from ldp.estimating.points import PointDistribution, Precision, estimate_points, precision
from ldp.estimating.pooling import Homogeneity, Method, can_be_tested, homogeneity, pool
from ldp.estimating.simplex import definite, maximize_quadratic, tangent_inverse

Floats = NDArray[np.float64]

SIGNIFICANCE = 0.01
"""Levels that are alike are found to differ with this probability."""

_POWER = 0.8
"""The probability with which a detectable difference is found."""

_TRIED = 17
"""Biases that are tried, first in all of their range, then around the best."""


Doubt = Literal["", "untested", "differ"]


@dataclass(frozen=True, eq=False)
class Answer:
    """The estimate for an analyst, with all that its assumptions are judged by.

    `estimate` is of the mix of those who answered, whatever the levels' people are like, or under
    the bound that was declared; its `method` says which. `alike` is the pooled estimate, for people
    of all levels who answer alike; None where `estimate` is that already, or there is one cohort.
    `detectable` is the smallest difference between two cohorts that the test would have found
    with probability 0.8, in the parameters' unit; None where there was no test. `doubt` says why a
    pooled estimate may describe nobody: the cohorts "differ", or were "untested". From one cohort,
    without a method, the estimate is that of `ldp.estimate` where its intervals have `ends`.
    """

    estimate: Estimate
    alike: Estimate | None
    homogeneity: Homogeneity | None
    detectable: float | None
    doubt: Doubt = ""


def answer(
    cohorts: Cohorts,
    method: Method | None = None,
    *,
    most: float = math.inf,
    tested: bool = True,
) -> Answer:
    """Estimate the parameters of the people who answered, with the pooled estimate beside it.

    `most` is a bound on the difference of two cohorts' parameters, in their unit: without one
    the estimate is stratified, with 0 it is pooled. `method` is that of `pool`. The cohorts are
    tested for homogeneity unless `tested` is false or they cannot be, and a pooled estimate of
    cohorts that differ is doubtful. Raises `InvalidInput` unless most >= 0, and as `pool` does.
    """
    if not most >= 0:
        raise InvalidInput(f"the most that cohorts may differ by must be >= 0, got {most}")
    if len(cohorts) < 2:
        alone = _alone(cohorts)[0] if method is None else pool(cohorts, method)
        return Answer(alone, None, None, None)
    pooled = pool(cohorts, method)
    test = homogeneity(cohorts) if tested and can_be_tested(cohorts) else None
    seen = detectable(cohorts, test.degrees) if test and test.degrees else None
    if most > 0:
        found = stratified(cohorts) if most == math.inf else bounded(cohorts, most)
        return Answer(found, pooled, test, seen)
    doubt: Doubt = ""
    if test is None:
        doubt = "untested"
    elif test.p_value < SIGNIFICANCE:
        doubt = "differ"
    return Answer(pooled, None, test, seen, doubt)


def stratified(
    cohorts: Cohorts, shares: ArrayLike | None = None, *, at: Floats | None = None
) -> Estimate:
    """Return sum_g w_g f_g, the population's parameters when the cohorts differ.

    `shares`, shape (cohorts,), are the strata's known shares of the population. Without them
    the cohorts' shares of the reports are used, which describes those who answered;
    the error then has the spread between the cohorts too, because who answers is a sample.
    With `at`, shape (parameters,), the error is that for a population of these parameters, whose
    cohorts are as far apart as they seem; where a mechanism's variance depends on more than its
    parameters, it is that at the estimate still.
    Raises `InvalidInput` for shares that are no distribution over the cohorts with reports.
    """
    counts = cohorts.counts
    weights = counts / cohorts.n if shares is None else np.asarray(shares, dtype=float)
    if weights.shape != counts.shape or not (weights >= 0).all() or abs(weights.sum() - 1) > 1e-9:
        raise InvalidInput(
            f"shares must be {counts.size} numbers >= 0 that sum to one, one for each "
            "cohort with reports"
        )
    alone = _alone(cohorts)
    values = np.array([one.value for one in alone])
    variances = np.array([one.standard_error**2 for one in alone])
    w = weights[:, np.newaxis]
    value = (w * values).sum(axis=0)
    extra: Floats = np.zeros_like(value)
    if shares is None:
        extra = cohorts.most_repeated * spread(w, values, variances) / cohorts.n
    if alone[0].ends:
        return averaged(cohorts, w, "stratified", extra=extra, at=at)
    error = np.sqrt((w**2 * variances).sum(axis=0) + extra)
    return Estimate(value, error, cohorts.n, cohorts.bounds, "stratified")


def bounded(cohorts: Cohorts, most: float) -> Estimate:
    """Return the estimate whose interval is the shortest if cohorts differ by `most` or less.

    The weight of cohort g in a parameter is a_g = min(max(w_g, b / V_g), t / V_g): half of the
    sum of |a_g - w_g|, times `most`, is the greatest bias, and b and t follow from it. The
    bias is that for which a 95% interval is the shortest. `standard_error` is without the bias;
    the interval has it: its half-width is the quantile of |N(bias / error, 1)| times the error.
    Raises `InvalidInput` unless 0 < most < infinity.
    """
    if not 0 < most < math.inf:
        raise InvalidInput(f"the most that cohorts may differ by must be > 0, got {most}")
    alone, method = _alone(cohorts), bounded_name(most)
    variances = _variances(cohorts, alone)
    shares = (cohorts.counts / cohorts.n)[:, np.newaxis]
    weights, size = best_weights(shares, variances, most)
    extra = cohorts.most_repeated * most**2 / (4 * cohorts.n)  # who answers is a sample
    if alone[0].ends:
        towards = np.sign(weights - shares) / 2
        bias = Bias(size, most * (towards - (shares * towards).sum(axis=0)))
        return averaged(cohorts, weights, method, extra=extra, bias=bias)
    value = (weights * np.array([one.value for one in alone])).sum(axis=0)
    error = np.sqrt((weights**2 * variances).sum(axis=0) + extra)
    center = np.clip(value, *cohorts.bounds)

    def ends(z: float) -> Interval:
        half = reach(size, error, z)
        return center - half, center + half

    return Estimate(value, error, cohorts.n, cohorts.bounds, method, ends)


def bounded_name(most: float) -> str:
    """Return the method's name of an estimate under a bound."""
    return f"levels differ by {most:g} at most"


def spread(w: Floats, values: Floats, variances: Floats) -> Floats:
    """Return the variance of the cohorts' parameters between the people who answered.

    `w`, shape (cohorts, 1), are the cohorts' shares; the cohorts' estimates and the variances of
    those have shape (cohorts, parameters). What their noise adds to the spread is taken out.
    """
    away = values - (w * values).sum(axis=0)
    found: Floats = np.maximum(0, (w * away**2 - w * (1 - w) * variances).sum(axis=0))
    return found


def detectable(cohorts: Cohorts, degrees: int) -> float:
    """Return the smallest difference between two cohorts that is found with probability 0.8.

    That is, by `homogeneity` of so many degrees of freedom, at `SIGNIFICANCE`, in the parameter
    that is the hardest to tell, between the two cohorts that are the easiest, wherever the others
    are. The statistic is then a noncentral chi-squared (Wald, Transactions of the American
    Mathematical Society 54, 1943) of d' (S_g + S_h)**-1 d, d being all differences and S_g the
    covariance of an estimate: x**2 / (V_g + V_h) at least where one difference is x.
    """
    variances = _variances(cohorts, _alone(cohorts)).max(axis=1)
    first, second = np.sort(variances)[:2]
    noncentrality = chndtrinc(chdtri(degrees, SIGNIFICANCE), degrees, 1 - _POWER)
    return float(np.sqrt(noncentrality * (first + second)))


def stratified_points(cohorts: Cohorts, points: int) -> PointDistribution:
    """Estimate the shares of `points` points among the people who answered.

    Each cohort's own estimate counts by its share of the reports, as in `stratified`; `likely` is
    the distribution nearest to that in the metric of its covariance, shape (points, points).
    Cost and errors: as `estimate_points`, for each cohort.
    """
    if len(cohorts) < 2:
        return estimate_points(cohorts, points)
    weights = cohorts.counts / cohorts.n
    alone = [estimate_points(one, points) for one in cohorts.alone()]
    value = np.sum([w * one.unconstrained for w, one in zip(weights, alone, strict=True)], axis=0)
    covariance = np.zeros((points, points))
    for w, one in zip(weights, alone, strict=True):
        away = one.unconstrained - value
        sampled = w * np.outer(away, away) / cohorts.n  # who answers is a sample
        covariance += w**2 * one.covariance + cohorts.most_repeated * sampled
    curvature = definite(tangent_inverse(covariance))
    nearest = maximize_quadratic(curvature, curvature @ value, value > 0)
    likely = nearest / nearest.sum()
    return PointDistribution(
        likely=likely,
        unconstrained=value,
        covariance=covariance,
        pilot=(cohorts.n * likely + 1 / points) / (cohorts.n + 1),
        n=cohorts.n,
        people=sum(one.people for one in alone),
    )


def stratified_precision(
    cohorts: Sequence[tuple[Estimator, int, Repeats]], points: int
) -> Precision:
    """Return how precisely `stratified_points` tells a distribution of so many points."""
    n = sum(count for _, count, _ in cohorts)
    each = [((one[1] / n) ** 2, precision([one], points)) for one in cohorts]
    return Precision(np.sum([w * one.covariance for w, one in each], axis=0), n)


def _alone(cohorts: Cohorts) -> list[Estimate]:
    """Return each cohort's own estimate, all of them with `ends` or none."""
    alone = [estimate(one) for one in cohorts.alone()]
    if all(one.ends for one in alone):
        return alone
    # `pool` knows that a value never revealed may be rare; the variance at zero would be none.
    return [pool(one) for one in cohorts.alone()]


def _variances(cohorts: Cohorts, alone: list[Estimate]) -> Floats:
    """Return the variances of the cohorts' own estimates, shape (cohorts, parameters)."""
    if not alone[0].ends:
        return np.array([one.standard_error**2 for one in alone])
    truth = np.clip(estimate(cohorts).value, *cohorts.bounds)
    return cohorts.allowing(truth, [m.tally_variance(truth, tally) for m, tally in cohorts])


def best_weights(w: Floats, variances: Floats, most: float) -> tuple[Floats, Floats]:
    """Return the weights of `bounded`, shape (cohorts, parameters), and the bias that they permit.

    `w`, shape (cohorts, 1), are the cohorts' shares of the reports, and `variances`, shape
    (cohorts, parameters), those of the cohorts' own estimates.
    """
    precise = 1 / variances
    largest = np.maximum(w - precise / precise.sum(axis=0), 0).sum(axis=0)
    z = critical_value(0.95)
    low, high = np.zeros_like(largest), largest
    for _ in range(2):
        tried = np.linspace(low, high, _TRIED)
        errors = [np.sqrt((_moved(w, variances, a) ** 2 * variances).sum(axis=0)) for a in tried]
        shortest = reach(most * tried, errors, z).argmin(axis=0)
        best = tried[shortest, np.arange(largest.size)]
        step = (high - low) / (_TRIED - 1)
        low, high = np.maximum(best - step, 0), np.minimum(best + step, largest)
    return _moved(w, variances, best), most * best


def _moved(w: Floats, variances: Floats, amount: Floats) -> Floats:
    """Return the weights of least variance of which `amount` is moved from where w has it.

    With a_g = max(w_g, b / V_g) the amount is gained, with min(w_g, t / V_g) it is lost.
    """
    w = np.broadcast_to(w, variances.shape)
    order = np.argsort(w * variances, axis=0)
    shares = np.take_along_axis(w, order, axis=0)
    precise = 1 / np.take_along_axis(variances, order, axis=0)
    bends = shares / precise
    rising = (amount + np.cumsum(shares, axis=0)) / np.cumsum(precise, axis=0)
    last = _last(rising >= bends)
    b = np.take_along_axis(rising, last, axis=0)
    shares, precise, bends = shares[::-1], precise[::-1], bends[::-1]
    falling = (np.cumsum(shares, axis=0) - amount) / np.cumsum(precise, axis=0)
    last = _last(falling <= bends)
    t = np.take_along_axis(falling, last, axis=0)
    found: Floats = np.minimum(np.maximum(w, b / variances), t / variances)
    return found


def _last(holds: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the last row that holds, by column, shape (1, columns); the first always does."""
    found: NDArray[np.intp] = (len(holds) - 1 - np.argmax(holds[::-1], axis=0))[np.newaxis]
    return found
