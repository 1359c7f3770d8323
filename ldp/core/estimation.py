"""Estimates with standard errors, debiased from tallies and pooled over cohorts."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ldp.core.ends import Bias, ends_of
from ldp.core.intervals import Ends, Interval, interval
from ldp.core.repeated import Repeated, Repeats
from ldp.errors import InvalidInput

if TYPE_CHECKING:
    from ldp.core.estimator import Estimator
    from ldp.core.tally import Tally

LEAST_PANELS = 4
"""Panels from which errors of changes are estimated: fewer leave a Student distribution of long
tails."""

LEAST_REPORTS = 10
"""Reports of a panel in a period, on average, from which errors of changes are estimated: the mean
of fewer may be far from normal."""


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
    ends: "Ends | None" = None
    """The ends of the interval at z standard errors, by z; None where it is Wald's."""

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval:
        """Return confidence intervals (low, high), each of shape (parameters,).

        Each interval covers its own parameter with probability `confidence`; with
        `simultaneous` all cover at once (Bonferroni). Of pure frequency oracles they hold what
        the score test does not reject, and cover rare values of small cohorts too; of means they
        allow for rare extremes that nobody reported (`ends`). Otherwise, and where the method is
        mle or gls, they are Wald's, value -+ z standard_error, and need some ten expected reports
        on either side of every decision. They are clipped to `bounds`, and an estimate beyond a
        bound counts as that bound (`ldp.core.intervals`). Raises `InvalidInput` unless
        0 < confidence < 1.
        """
        together = self.value.size if simultaneous else 1
        return interval(
            self.value,
            self.standard_error,
            self.bounds,
            confidence,
            together=together,
            ends=self.ends,
        )

    def rescaled(self, bounds: tuple[float, float]) -> "Estimate":
        """Return the estimate mapped linearly from its range onto `bounds`."""
        factor = (bounds[1] - bounds[0]) / (self.bounds[1] - self.bounds[0])

        def moved(values: NDArray[np.float64]) -> NDArray[np.float64]:
            return bounds[0] + (values - self.bounds[0]) * factor

        def moved_ends(z: float) -> Interval:
            assert self.ends is not None
            low, high = self.ends(z)
            return moved(low), moved(high)

        ends = moved_ends if self.ends else None
        error = self.standard_error * factor
        return Estimate(moved(self.value), error, self.n, bounds, self.method, ends)


@dataclass(frozen=True, eq=False)
class Cohorts:
    """Cohorts that estimate the same parameters: mechanisms, each with the tally of its reports.

    Cohorts without reports are dropped. `repeats` has an entry for each cohort that is given, or
    none where all reports are of different people (`ldp.core.repeated`). Raises `InvalidInput`
    for another number of them, where there is no report, where a tally is not its mechanism's,
    or where the cohorts' parameters differ.
    """

    each: "Sequence[tuple[Estimator, Tally]]"
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

    def __iter__(self) -> "Iterator[tuple[Estimator, Tally]]":
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

    @property
    def counts(self) -> NDArray[np.float64]:
        """The number of reports of each cohort, shape (cohorts,)."""
        return np.array([tally.n for _, tally in self.each], dtype=float)

    @property
    def most_repeated(self) -> float:
        """The largest factor of the repeats: whoever answers may be the same in all periods."""
        return max(own.factor for own in self.repeats)

    def alone(self) -> "list[Cohorts]":
        """Return one `Cohorts` for each cohort."""
        return [Cohorts([one], [own]) for one, own in zip(self.each, self.repeats, strict=True)]

    def allowing(self, truth: NDArray[np.float64], variances: Sequence[Any]) -> NDArray[np.float64]:
        """Return the variances, shape (cohorts, parameters), plus the variance that repeats add.

        `truth` is that of the parameters, shape (parameters,), or (cohorts, parameters).
        """
        low, high = self.bounds
        spreads = np.broadcast_to((high - truth) * (truth - low), (len(self), truth.shape[-1]))
        each = zip(self.each, self.repeats, variances, spreads, strict=True)
        return np.array([v + r.more(v, np.minimum(v, s / t.n)) for (_, t), r, v, s in each])


def estimate(cohorts: Cohorts) -> Estimate:
    """Pool cohorts that estimate the same parameters, by inverse variance per coordinate.

    `ldp.estimating.pooling.pool` offers this and the methods that use more information.
    The weights of cohort g are n_g / V_g(f), V_g being the variance of one report at a first
    pooled estimate f (clipped to its range) that every cohort shares, not at the cohort's own:
    a weight then depends on the noise only through that f, which keeps the bias of order 1/n,
    and a count of zero never gets a variance of zero. Cohorts without reports do not count.
    Where every cohort has `moments`, as frequency oracles have, intervals invert the score test;
    those of means count one imagined person at each end of the range.

    Assumes that the cohorts are samples of one population, and their reports are of different
    people, except as the cohorts' `repeats` allow.
    Source: inverse-variance weighting; the variance is s(1 - s) / (n (p - q)**2) with
    s = f p + (1 - f) q, for a sample from a population, which exceeds the variance for the
    fixed sample (Wang et al. 2017, theorem 2) by f(1 - f) / n.
    """
    return _weighted(cohorts, "inverse_variance", lambda variances: 1 / variances)


def averaged(
    cohorts: Cohorts,
    weights: NDArray[np.float64],
    method: str,
    *,
    extra: NDArray[np.float64] | float = 0.0,
    at: NDArray[np.float64] | None = None,
    bias: Bias | None = None,
) -> Estimate:
    """Return sum_g w_g f_g of fixed weights, of shape (cohorts, parameters) or (cohorts, 1).

    `extra`, of shape (parameters,) or (), is variance that the estimate has beyond that of the
    cohorts' own estimates. The cohorts need not be of one population: where their parameters
    differ, the estimate is that of the weighted mean, and each variance that at a cohort's own,
    or with `at`, shape (parameters,), as if the weighted mean were that. Intervals with `ends`
    allow for `bias`; the standard error is without it.
    """
    values = np.array([mechanism.debias(tally) for mechanism, tally in cohorts])
    value = (values * weights).sum(axis=0)
    truths = np.clip(values if at is None else values - value + at, *cohorts.bounds)

    def weigh(variances: NDArray[np.float64]) -> NDArray[np.float64]:
        return weights[:, np.newaxis]

    apart = values - value
    return _with_error(cohorts, value, truths, weights, method, weigh, apart, extra, bias)


def _with_error(
    cohorts: Cohorts,
    value: NDArray[np.float64],
    truths: NDArray[np.float64],
    weights: NDArray[np.float64],
    method: str,
    weigh: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    apart: NDArray[np.float64],
    extra: NDArray[np.float64] | float = 0.0,
    bias: Bias | None = None,
) -> Estimate:
    """Return the estimate `value` of these weights, its standard error taken at `truths`.

    `weigh` gives the weights at other truths, of the variances there, (cohorts, 2, parameters).
    `apart`, (cohorts, parameters), is how far the cohorts' truths are from that of the estimate.
    """
    each = zip(cohorts, truths, strict=True)
    variances = cohorts.allowing(truths, [m.tally_variance(f, tally) for (m, tally), f in each])
    return Estimate(
        value=value,
        standard_error=np.sqrt((weights**2 * variances).sum(axis=0) + extra),
        n=cohorts.n,
        bounds=cohorts.bounds,
        method=method if len(cohorts) > 1 else "debias",
        ends=ends_of(cohorts, value, weights, weigh, apart, extra, bias),
    )


def scalar_weighted(cohorts: Cohorts) -> Estimate:
    """Pool with one weight per cohort, in inverse proportion to its total variance.

    The least total variance that one number per cohort allows; otherwise as `estimate`.
    Source: Nie et al., "A utility-optimized framework for personalized private histogram
    estimation", IEEE TKDE 31(4), 2019: their weights for cohorts of different epsilon.
    """
    return _weighted(
        cohorts,
        "scalar",
        lambda variances: np.ones_like(variances) / variances.sum(axis=-1, keepdims=True),
    )


def _weighted(
    cohorts: Cohorts,
    method: str,
    weigh: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> Estimate:
    """Average with weights in proportion to `weigh` of the cohorts' variances."""
    values = np.array([mechanism.debias(tally) for mechanism, tally in cohorts])

    def shares(variances: NDArray[np.float64]) -> NDArray[np.float64]:
        weights = weigh(variances)
        found: NDArray[np.float64] = weights / weights.sum(axis=0)
        return found

    def weights_at(truth: NDArray[np.float64]) -> NDArray[np.float64]:
        variances = at(truth)
        if not variances.all():
            # A value that only its own people can report has no variance where nobody did. Its
            # weights are those of one imagined person of two who has it, and so finite.
            low, high = cohorts.bounds
            one = (high - low) / (cohorts.counts.sum() + 2)
            variances = np.where(variances > 0, variances, at(truth.clip(low + one, high - one)))
        return shares(variances)

    def at(truth: NDArray[np.float64]) -> NDArray[np.float64]:
        return cohorts.allowing(truth, [m.variance(truth, tally.n) for m, tally in cohorts])

    first = (values * weights_at(np.full(cohorts.parameters, np.mean(cohorts.bounds)))).sum(axis=0)
    shared = np.clip(first, *cohorts.bounds)
    weights = weights_at(shared)
    value = (values * weights).sum(axis=0)
    alike = np.zeros_like(values)
    return _with_error(cohorts, value, alike + shared, weights, method, shares, alike)
