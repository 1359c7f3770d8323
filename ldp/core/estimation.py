"""From tallies to estimates that carry their error."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ldp.core.repeated import Repeated, Repeats
from ldp.errors import InvalidInput

if TYPE_CHECKING:
    from ldp.core.mechanism import Mechanism
    from ldp.core.tally import Tally

_HALVINGS = 32  # far below the standard error of any survey

Interval = tuple[NDArray[np.float64], NDArray[np.float64]]
"""The low ends and the high ones, each of shape (parameters,)."""


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
    method: str = "debias"
    """How cohorts were pooled; "debias" where there was nothing to pool."""
    test_inversion: "Callable[[float], Interval] | None" = None
    """The values that a score test does not reject at z standard errors, by z; None without."""

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval:
        """Return (low, high), each of shape (parameters,).

        Each interval covers its own parameter with probability `confidence`; with
        `simultaneous` all cover at once (Bonferroni). Where `test_inversion` is given, as for
        pure frequency oracles, they hold what the score test does not reject, and cover rare
        values of small cohorts too. Otherwise they are Wald's, value -+ z standard_error, and
        need some ten expected reports on either side of every decision. They are clipped to
        `bounds` after they were computed, which costs no coverage; where the truth is a bound,
        errors to that side are then none, and the coverage is (1 + confidence) / 2.
        Raises `InvalidInput` unless 0 < confidence < 1.
        """
        if not 0 < confidence < 1:
            raise InvalidInput(f"confidence must lie strictly between 0 and 1, got {confidence}")
        miss = (1 - confidence) / (self.value.size if simultaneous else 1)
        z = -NormalDist().inv_cdf(miss / 2)
        if self.test_inversion is None:
            reach = z * self.standard_error
            low, high = self.value - reach, self.value + reach
        else:
            low, high = self.test_inversion(z)
        return np.clip(low, *self.bounds), np.clip(high, *self.bounds)

    def rescaled(self, bounds: tuple[float, float]) -> "Estimate":
        """Return the same estimate in units in which the parameter's range is `bounds`."""
        factor = (bounds[1] - bounds[0]) / (self.bounds[1] - self.bounds[0])

        def moved(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return bounds[0] + (values - self.bounds[0]) * factor

        def inverted(z: float) -> Interval:
            assert self.test_inversion is not None
            low, high = self.test_inversion(z)
            return moved(low), moved(high)

        inversion = inverted if self.test_inversion else None
        error = self.standard_error * factor
        return Estimate(moved(self.value), error, self.n, bounds, self.method, inversion)


@dataclass(frozen=True, eq=False)
class Cohorts:
    """Cohorts that estimate the same parameters: mechanisms, each with the tally of its reports.

    Cohorts without reports are dropped. `repeats` has an entry for each cohort that is given, or
    none where all reports are of different people (`ldp.core.repeated`). Raises `InvalidInput`
    for another number of them, where there is no report, where a tally is not its mechanism's,
    or where the cohorts' parameters differ.
    """

    each: "Sequence[tuple[Mechanism, Tally]]"
    repeats: Repeated = ()

    def __post_init__(self) -> None:
        given, repeats = len(self.each), self.repeats or [Repeats()] * len(self.each)
        if len(repeats) != given:
            raise InvalidInput(f"there are {given} cohorts, but {len(repeats)} repeats")
        seen = [tally.n > 0 for _, tally in self.each]
        each = tuple(compress(self.each, seen))
        if not each:
            raise InvalidInput("there are no reports to estimate from")
        for mechanism, tally in each:
            if tally.counts.size != mechanism.tally_size:
                raise InvalidInput(
                    f"a {mechanism.name} tally has {mechanism.tally_size} counts, "
                    f"got {tally.counts.size}"
                )
        shapes = {(mechanism.parameters, mechanism.bounds) for mechanism, _ in each}
        if len(shapes) > 1:
            raise InvalidInput(
                f"cohorts of different parameters cannot be pooled: {sorted(shapes)}"
            )
        object.__setattr__(self, "each", each)
        object.__setattr__(self, "repeats", tuple(compress(repeats, seen)))

    def __iter__(self) -> "Iterator[tuple[Mechanism, Tally]]":
        return iter(self.each)

    def __len__(self) -> int:
        return len(self.each)

    @property
    def n(self) -> int:
        """The number of reports."""
        return sum(tally.n for _, tally in self.each)

    @property
    def parameters(self) -> int:
        """The number of parameters that each cohort estimates."""
        return self.each[0][0].parameters

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of each parameter."""
        return self.each[0][0].bounds

    def alone(self) -> "list[Cohorts]":
        """Return each cohort by itself."""
        return [Cohorts([one], [own]) for one, own in zip(self.each, self.repeats, strict=True)]

    def allowing(self, truth: NDArray[np.float64], variances: Sequence[Any]) -> NDArray[np.float64]:
        """Return the variances, shape (cohorts, parameters), with what repeats add.

        `truth` is that of the parameters, shape (parameters,).
        """
        low, high = self.bounds
        spread = (high - truth) * (truth - low)
        each = zip(self.each, self.repeats, variances, strict=True)
        return np.array([v + r.more(v, np.minimum(v, spread / t.n)) for (_, t), r, v in each])


def estimate(cohorts: Cohorts) -> Estimate:
    """Pool cohorts that estimate the same parameters, by inverse variance per coordinate.

    `ldp.estimating.pooling.pool` offers this and the methods that use more of what is known.
    The weights of cohort g are n_g / V_g(f), V_g being the variance of one report at a first
    pooled estimate f (clipped to its range) that every cohort shares, not at the cohort's own:
    a weight then depends on the noise only through that f, which keeps the bias of order 1/n,
    and a count of zero never gets a variance of zero. Cohorts without reports do not count.
    Where every cohort has `moments`, as frequency oracles have, intervals invert the score test.

    Assumes that the cohorts are samples of one population, and their reports those of different
    people, but for what the cohorts' `repeats` say.
    Source: inverse-variance weighting; the variance is s(1 - s) / (n (p - q)**2) with
    s = f p + (1 - f) q, that of a sample from a population, which exceeds the variance for the
    fixed sample (Wang et al. 2017, theorem 2) by f(1 - f) / n.
    """
    pooled = _weighted(cohorts, "inverse_variance", lambda variances: 1 / variances)
    truth = np.full(pooled.value.shape, np.mean(pooled.bounds))
    if any(mechanism.moments(truth, 1) is None for mechanism, _ in cohorts):
        return pooled
    return replace(pooled, test_inversion=partial(_invert_score_test, cohorts))


def _invert_score_test(cohorts: Cohorts, z: float) -> Interval:
    """Return the ends of {f : |sum_g w_g (f_g - f)| <= z sqrt(sum_g w_g)}, w_g = n_g / V_g(f).

    The variances are those at the hypothesis f, not at the estimate, which makes the test
    right where counts are small; one cohort's is the interval of Wilson (Journal of the
    American Statistical Association 22, 1927) for its supports. Where the statistic is skewed,
    the limit of its longer tail is put farther out, by skewness (z**2 - 1) / 6 standard errors
    (Cornish and Fisher): a single support where hardly any is expected is no great surprise.
    """
    values = np.array([[mechanism.debias(tally)] for mechanism, tally in cohorts])
    side = np.array([[1], [-1]])  # of the two ends on which the estimate is

    def rejected(f: NDArray[np.float64]) -> NDArray[np.bool_]:
        each = zip(cohorts, cohorts.repeats, strict=True)
        moments = np.array([_moments(m, tally.n, once, f) for (m, tally), once in each])
        weights = 1 / moments[:, 0]
        total = weights.sum(axis=0)
        excess = side * (weights * (values - f)).sum(axis=0)
        skewed = side * (weights**3 * moments[:, 1]).sum(axis=0) / total
        beyond = excess > z * np.sqrt(total) + np.maximum(skewed * (z**2 - 1) / 6, 0)
        return np.asarray(beyond)

    low, high = (np.full((2, cohorts.parameters), bound) for bound in cohorts.bounds)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        upwards = rejected(middle) == (side == 1)
        low, high = np.where(upwards, middle, low), np.where(upwards, high, middle)
    return low[0], high[1]


def _moments(mechanism: "Mechanism", n: int, repeats: Repeats, f: NDArray[np.float64]) -> Interval:
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


def _both(mechanism: "Mechanism", f: NDArray[np.float64], n: int) -> Interval:
    moments = mechanism.moments(f, n)
    assert moments is not None
    return moments


def scalar_weighted(cohorts: Cohorts) -> Estimate:
    """Pool with one weight per cohort, in inverse proportion to its total variance.

    The least total variance that one number per cohort allows; otherwise as `estimate`.
    Source: Nie et al., "A utility-optimized framework for personalized private histogram
    estimation", IEEE TKDE 31(4), 2019: their weights for cohorts of different epsilon.
    """
    return _weighted(
        cohorts,
        "scalar",
        lambda variances: np.ones_like(variances) / variances.sum(axis=1, keepdims=True),
    )


def _weighted(
    cohorts: Cohorts,
    method: str,
    weigh: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> Estimate:
    """Average with the weights that `weigh` makes of variances, both (cohorts, parameters)."""
    values = np.array([mechanism.debias(tally) for mechanism, tally in cohorts])

    def weights_at(truth: NDArray[np.float64]) -> NDArray[np.float64]:
        variances = [m.variance(truth, tally.n) for m, tally in cohorts]
        weights = weigh(cohorts.allowing(truth, variances))
        shares: NDArray[np.float64] = weights / weights.sum(axis=0)
        return shares

    first = (values * weights_at(np.full(cohorts.parameters, np.mean(cohorts.bounds)))).sum(axis=0)
    shared = np.clip(first, *cohorts.bounds)
    weights = weights_at(shared)
    seen = [m.tally_variance(shared, tally) for m, tally in cohorts]
    variances = cohorts.allowing(shared, seen)
    return Estimate(
        value=(values * weights).sum(axis=0),
        standard_error=np.sqrt((weights**2 * variances).sum(axis=0)),
        n=cohorts.n,
        bounds=cohorts.bounds,
        method=method if len(cohorts) > 1 else "debias",
    )
