"""Sums of frequencies over sets of values, with the errors that their covariance gives.

The estimates of two values from the same reports depend on each other: where a report says one
value it does not say another, and the frequencies sum to one. So the variance of a sum is that of
the whole vector of estimates, 1' C 1 over the set, and not the sum of the values' variances.
"""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.estimation import Cohorts, Estimate, estimate
from ldp.core.estimator import Estimator, Frequencies
from ldp.core.intervals import Interval, reach, wilson
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.estimating import strata
from ldp.estimating.pooling import (
    MAX_CATEGORIES,
    Method,
    near_distribution,
    pool_with_covariance,
)

Floats = NDArray[np.float64]

_HALVINGS = 40
"""Halvings that find an interval's end to 12 digits."""


def sums(
    cohorts: Cohorts,
    sets: ArrayLike,
    method: Method | None = None,
    *,
    most: float = math.inf,
) -> Estimate:
    """Estimate the share of the population whose value is in each set, one parameter for each.

    `sets` has shape (sets, k) and is true where a value belongs to a set. `method` and `most` are
    those of `strata.answer`, and the sums are those of its estimates: stratified, or pooled by
    "mle" or "gls". Where cohorts are weighed by their errors ("inverse_variance", "scalar", a bound
    `most`), a sum has weights of its own, by its own errors, and may differ from the sum of the
    values' estimates. Errors allow for the cohorts' `repeats`.

    Intervals are Wilson's with noise, as of `PointDistribution.shares`: the shares at which the
    estimate is z standard errors away, the sampling of people being taken at the share in
    question, and the noise of randomisation at the estimate.

    Cost: O(cohorts k**2), for mle and gls O(cohorts k**3). Raises `InvalidInput` for another
    shape, an empty set, mechanisms of numbers, and more than 4096 values.
    """
    rows = _checked(sets, *(mechanism for mechanism, _ in cohorts))
    if len(cohorts) > 1 and most > 0:
        return _averaged(cohorts, rows, most)
    if len(cohorts) == 1 or method in (None, "mle", "gls"):
        return _pooled(cohorts, rows, method)
    values, variances = _each(cohorts, rows)
    weights = 1 / _shared(cohorts, rows)
    return _weighted(cohorts, values, variances, weights / weights.sum(axis=0), "inverse_variance")


class Summed(Estimator):
    """An estimator of the shares of people whose value is in each set, from one tally.

    `sets` is as of `sums`. The noise of a sum is that at the distribution which the tally tells of,
    with the covariance between values; that of people is share (1 - share) / n. Raises
    `InvalidInput` as `sums`.
    """

    name: ClassVar[str] = "sums"

    def __init__(self, mechanism: Estimator, sets: ArrayLike) -> None:
        self.sets = _checked(sets, mechanism)
        assert isinstance(mechanism, Frequencies)  # as was checked
        self.mechanism = mechanism

    @property
    def tally_size(self) -> int:
        return self.mechanism.tally_size

    @property
    def parameters(self) -> int:
        return len(self.sets)

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    def debias(self, tally: Tally) -> Floats:
        found: Floats = self.sets @ self.mechanism.debias(tally)
        return found

    def variance(self, truth: ArrayLike, n: int) -> Floats:
        """Return the variances for values that are all equally frequent, but for the sums."""
        return self._at(np.full(self.mechanism.k, 1 / self.mechanism.k), truth, n)

    def tally_variance(self, truth: ArrayLike, tally: Tally) -> Floats:
        own = near_distribution(Cohorts([(self.mechanism, tally)]))
        return self._at(own, truth, tally.n)

    def _at(self, distribution: Floats, truth: ArrayLike, n: int) -> Floats:
        shares, at = np.asarray(truth, dtype=float), self.sets @ distribution
        noise = self.mechanism.sum_variances(self.sets, distribution, n) - at * (1 - at) / n
        found: Floats = np.maximum(noise, 0) + shares * (1 - shares) / n
        return found


def _checked(sets: ArrayLike, *mechanisms: Estimator) -> Floats:
    """Return the sets as ones among zeros; raise `InvalidInput` for sets that cannot be summed."""
    rows = np.asarray(sets, dtype=np.float64)
    first = mechanisms[0]
    if not all(isinstance(m, Frequencies) and m.k <= MAX_CATEGORIES for m in mechanisms):
        raise InvalidInput(
            f"sums are of the frequencies of up to {MAX_CATEGORIES} values, "
            f"got {first.parameters} parameters of {first.name}"
        )
    if rows.ndim != 2 or rows.shape[1] != first.parameters or not rows.any(axis=1).all():
        raise InvalidInput(
            f"sets of {first.parameters} values have shape (sets, {first.parameters}), "
            f"each with a value, got shape {rows.shape}"
        )
    return rows


def _averaged(cohorts: Cohorts, rows: Floats, most: float) -> Estimate:
    """Return the mix of those who answered, or the estimate under a bound; as `strata` does."""
    w = (cohorts.counts / cohorts.n)[:, np.newaxis]
    values, variances = _each(cohorts, rows)
    if most == math.inf:
        spread = strata.spread(w, values, variances)
        return _weighted(
            cohorts,
            values,
            variances,
            w,
            "stratified",
            extra=cohorts.most_repeated * spread / cohorts.n,
        )
    weights, bias = strata.best_weights(w, _shared(cohorts, rows), most)
    extra = cohorts.most_repeated * most**2 / (4 * cohorts.n)
    return _weighted(
        cohorts, values, variances, weights, strata.bounded_name(most), extra=extra, bias=bias
    )


def _pooled(cohorts: Cohorts, rows: Floats, method: Method | None) -> Estimate:
    """Return the sums of one pooled estimate, with the variance that its covariance gives."""
    if method in ("inverse_variance", "scalar"):  # of one cohort, which needs no weights
        values, variances = _each(cohorts, rows)
        return _weighted(cohorts, values, variances, np.ones_like(values), "debias")
    found, covariance = pool_with_covariance(cohorts, "gls" if method == "gls" else "mle")
    pilot = rows @ near_distribution(cohorts)
    variance = np.einsum("ij,ij->i", rows @ covariance, rows)
    people = 1 / _sampling(cohorts, (cohorts.counts / cohorts.n)[:, np.newaxis])
    noise = np.maximum(0, people * variance - pilot * (1 - pilot))
    return _with_ends(rows @ found.value, variance, noise, people, cohorts.n, found.method)


def _each(cohorts: Cohorts, rows: Floats) -> tuple[Floats, Floats]:
    """Return the cohorts' own sums and the variances of those, shape (cohorts, sets)."""
    found = [_alone(one, rows) for one in cohorts.alone()]
    return np.array([value for value, _ in found]), np.array([variance for _, variance in found])


def _alone(one: Cohorts, rows: Floats) -> tuple[Floats, Floats]:
    """Return one cohort's sums and their variances, as `strata.stratified` takes its estimates."""
    own = estimate(one)
    if own.ends is None:
        own, covariance = pool_with_covariance(one, "mle")
        return rows @ own.value, np.einsum("ij,ij->i", rows @ covariance, rows)
    value = rows @ own.value
    # The noise at a distribution: clipped estimates could be of no population.
    return value, _variance(one, rows, near_distribution(one), np.clip(value, 0, 1))


def _variance(one: Cohorts, rows: Floats, truth: Floats, shares: Floats) -> Floats:
    """Return one cohort's variances: that of noise at `truth`, of sampling at the sums `shares`."""
    ((mechanism, tally),) = one
    assert isinstance(mechanism, Frequencies)
    at = rows @ truth
    noise = mechanism.sum_variances(rows, truth, tally.n) - at * (1 - at) / tally.n
    truths = shares * (1 - shares) / tally.n
    variance = np.maximum(noise, 0) + truths
    return variance + one.repeats[0].more(variance, truths)


def _shared(cohorts: Cohorts, rows: Floats) -> Floats:
    """Return the cohorts' variances at one truth, so that no weight depends on a cohort's luck."""
    truth = near_distribution(cohorts)
    return np.array([_variance(one, rows, truth, rows @ truth) for one in cohorts.alone()])


def _weighted(
    cohorts: Cohorts,
    values: Floats,
    variances: Floats,
    weights: Floats,
    method: str,
    *,
    extra: Floats | float = 0.0,
    bias: Floats | None = None,
) -> Estimate:
    """Return sum_g w_g s_g with its error; `extra` is variance beyond the cohorts' own."""
    value: Floats = (weights * values).sum(axis=0)
    variance: Floats = (weights**2 * variances).sum(axis=0) + extra
    people = 1 / _sampling(cohorts, weights)
    share = np.clip(value, 0, 1)
    noise = np.maximum(0, people * variance - share * (1 - share))
    return _with_ends(value, variance, noise, people, cohorts.n, method, bias)


def _sampling(cohorts: Cohorts, weights: Floats) -> Floats:
    """Return the part of the variance that is due to people's truths, by share (1 - share)."""
    each = zip(cohorts, cohorts.repeats, weights, strict=True)
    found: Floats = np.sum([w**2 * own.factor / tally.n for (_, tally), own, w in each], axis=0)
    return found


def _with_ends(
    value: Floats,
    variance: Floats,
    noise: Floats,
    people: Floats,
    n: int,
    method: str,
    bias: Floats | None = None,
) -> Estimate:
    error = np.sqrt(np.maximum(variance, 0))  # of all values it is 0, or less by rounding

    def ends(z: float) -> Interval:
        if bias is None:
            return wilson(value, noise, people, z)
        return _biased_ends(value, noise, people, bias, z)

    return Estimate(value, error, n, (0.0, 1.0), method, ends)


def _biased_ends(value: Floats, noise: Floats, people: Floats, bias: Floats, z: float) -> Interval:
    """Return the interval of Wilson where the estimate may have a bias of this size, too.

    Its ends are the shares farthest from the estimate that are no farther than `reach` of the bias
    and of the standard error at the share in question.
    """
    center = np.clip(value, 0, 1)

    def farthest(bound: float) -> Floats:
        inside, outside = center, np.full_like(center, bound)
        for _ in range(_HALVINGS):
            middle = (inside + outside) / 2
            error = np.sqrt((noise + middle * (1 - middle)) / people)
            holds = np.abs(center - middle) <= reach(bias, error, z)
            inside, outside = np.where(holds, middle, inside), np.where(holds, outside, middle)
        return np.asarray(inside)

    return farthest(0.0), farthest(1.0)
