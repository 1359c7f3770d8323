"""From tallies to estimates that carry their error."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ldp.errors import InvalidInput

if TYPE_CHECKING:
    from ldp.mechanism import Mechanism
    from ldp.tally import Tally


@dataclass(frozen=True, eq=False)
class Estimate:
    """Unbiased values with their population standard errors.

    `value` and `standard_error` have shape (parameters,); `n` reports went in; `bounds` is the
    range the true parameter can have. Values are not clipped or made to sum to one.
    """

    value: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    n: int
    bounds: tuple[float, float]

    def interval(
        self, confidence: float = 0.95, *, simultaneous: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return (low, high), each of shape (parameters,).

        Each Wald interval covers its own parameter with probability `confidence`; with
        `simultaneous` all cover at once (Bonferroni). They are clipped to `bounds` after they
        were computed, which costs no coverage. Raises `InvalidInput` unless
        0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise InvalidInput(f"confidence must lie strictly between 0 and 1, got {confidence}")
        miss = (1 - confidence) / (self.value.size if simultaneous else 1)
        reach = -NormalDist().inv_cdf(miss / 2) * self.standard_error
        low, high = self.value - reach, self.value + reach
        return np.clip(low, *self.bounds), np.clip(high, *self.bounds)

    def rescaled(self, bounds: tuple[float, float]) -> "Estimate":
        """Return the same estimate in units in which the parameter's range is `bounds`."""
        factor = (bounds[1] - bounds[0]) / (self.bounds[1] - self.bounds[0])
        value = bounds[0] + (self.value - self.bounds[0]) * factor
        return Estimate(value, self.standard_error * factor, self.n, bounds)


def estimate(cohorts: Sequence[tuple["Mechanism", "Tally"]]) -> Estimate:
    """Pool cohorts that estimate the same parameters, by inverse variance per coordinate.

    The weights of cohort g are n_g / V_g(f), V_g being the variance of one report at a first
    pooled estimate f (clipped to its range) that every cohort shares, not at the cohort's own:
    a weight then depends on the noise only through that f, which keeps the bias of order 1/n,
    and a count of zero never gets a variance of zero. Cohorts without reports do not count.

    Assumes that the cohorts are samples of one population. Raises `InvalidInput` where no
    report is there, or where the cohorts' parameters differ.
    Source: inverse-variance weighting; the variance is s(1 - s) / (n (p - q)**2) with
    s = f p + (1 - f) q, that of a sample from a population, which exceeds the variance for the
    fixed sample (Wang et al. 2017, theorem 2) by f(1 - f) / n.
    """
    cohorts = [(mechanism, tally) for mechanism, tally in cohorts if tally.n]
    if not cohorts:
        raise InvalidInput("there are no reports to estimate from")
    shapes = {(mechanism.parameters, mechanism.bounds) for mechanism, _ in cohorts}
    if len(shapes) > 1:
        raise InvalidInput(f"cohorts of different parameters cannot be pooled: {sorted(shapes)}")
    ((parameters, bounds),) = shapes
    values = np.array([mechanism.debias(tally) for mechanism, tally in cohorts])

    def information(truth: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([1 / mechanism.variance(truth, tally.n) for mechanism, tally in cohorts])

    first = _weighted(values, information(np.full(parameters, np.mean(bounds))))
    shared = np.clip(first, *bounds)
    weights = information(shared)
    variances = np.array([m.tally_variance(shared, tally) for m, tally in cohorts])
    return Estimate(
        value=_weighted(values, weights),
        standard_error=np.sqrt((weights**2 * variances).sum(axis=0)) / weights.sum(axis=0),
        n=sum(tally.n for _, tally in cohorts),
        bounds=bounds,
    )


def _weighted(values: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = (values * weights).sum(axis=0) / weights.sum(axis=0)
    return result
