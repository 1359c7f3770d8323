"""Frequencies by maximum likelihood from any finite channels, several of them pooled.

A cohort is a channel and the counts of its codes; the cohorts are samples of one population.
The log-likelihood sum_g counts_g . log(Q_g^T f) is concave in the frequencies f, so that a
gap can be certified: nothing on the simplex beats f by more than max(gradient) - N nats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ldp.core.estimation import Estimate
from ldp.core.mechanism import Categorical, Mechanism
from ldp.errors import InvalidInput
from ldp.estimating.channels import ChannelProducts, products
from ldp.estimating.simplex import definite, maximize_quadratic, tangent_inverse

Floats = NDArray[np.float64]

Outputs = list[Floats]
"""Numbers per code, one array of shape (codes,) for each cohort."""

GAP = 1e-8
"""The largest gap to the maximum log-likelihood, in nats: far below the 1/2 that matters."""


@dataclass(frozen=True, eq=False)
class Cohort:
    """A channel Q[x][y] = Pr[code y | category x], shape (k, codes), and counts, shape (codes,).

    Raises `InvalidInput` unless Q's rows are distributions (to 1e-9), the counts integers >= 0,
    their sum at least 1, and no code was seen that the channel never gives.
    """

    channel: Floats
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        channel, counts = np.asarray(self.channel), np.asarray(self.counts)
        if channel.ndim != 2 or len(channel) < 2 or counts.shape != channel.shape[1:]:
            raise InvalidInput(
                "a cohort has a channel of shape (k, codes), k >= 2, and counts of shape "
                f"(codes,), got {channel.shape} and {counts.shape}"
            )
        if counts.dtype.kind not in "iu" or counts.min() < 0 or not counts.any():
            raise InvalidInput("counts must be integers >= 0, at least one of them positive")
        channel = channel.astype(np.float64, copy=False)
        # nan fails the comparisons too
        if not (channel.min() >= 0 and np.abs(channel.sum(axis=1) - 1).max() <= 1e-9):
            raise InvalidInput("every row of a channel must be a distribution")
        if counts[~channel.any(axis=0)].any():
            raise InvalidInput("a code was seen that the channel gives to no category")
        object.__setattr__(self, "channel", channel)
        object.__setattr__(self, "counts", counts.astype(np.int64))

    @property
    def n(self) -> int:
        """The number of reports."""
        return int(self.counts.sum())

    @cached_property
    def products(self) -> ChannelProducts:
        """Products with the channel."""
        return products(self.channel)


@dataclass(frozen=True, eq=False)
class StructuredCohort:
    """A channel that has its own way to multiply, and counts of its codes, shape (codes,)."""

    products: ChannelProducts
    counts: NDArray[np.int64]

    @property
    def n(self) -> int:
        """The number of reports."""
        return int(self.counts.sum())


AnyCohort = Cohort | StructuredCohort


@dataclass(frozen=True, eq=False)
class LikelihoodEstimate:
    """The most likely frequencies on the simplex, and the unconstrained estimate beside them.

    `value`, shape (k,), is a distribution, within `gap` nats of the maximum: certified, since
    the log-likelihood is concave (the Karush-Kuhn-Tucker conditions hold to gap / n).
    `unconstrained` sums to one, may be negative and is unbiased to order 1/n; it carries the
    standard errors and intervals, because those of a constrained value miss true zeros.
    `covariance`, shape (k, k), is that of `unconstrained`.
    """

    value: Floats
    gap: float
    unconstrained: Estimate
    covariance: Floats

    @property
    def n(self) -> int:
        """The number of reports that went in."""
        return self.unconstrained.n

    @property
    def standard_error(self) -> Floats:
        """The standard errors of `unconstrained`, shape (k,)."""
        return self.unconstrained.standard_error

    def interval(
        self, confidence: float = 0.95, *, simultaneous: bool = False
    ) -> tuple[Floats, Floats]:
        """Return Wald intervals around `unconstrained`, clipped to [0, 1] afterwards."""
        return self.unconstrained.interval(confidence, simultaneous=simultaneous)


def channel_matrix(mechanism: Mechanism) -> Floats:
    """Return the channel as doubles, shape (k, codes), in the order in which codes are counted.

    Only for mechanisms whose tally counts the codes one by one. Raises `InvalidInput` where
    the channel is too large, or the tally is not a count per code.
    """
    if isinstance(mechanism, Categorical) and (matrix := mechanism.matrix()) is not None:
        return matrix
    rows = np.array(mechanism.channel().rows, dtype=np.float64)
    if rows.shape[1] != mechanism.tally_size:
        raise InvalidInput(
            f"{mechanism.name} tallies {mechanism.tally_size} counts, not its {rows.shape[1]} codes"
        )
    return rows


def maximum_likelihood(cohorts: Sequence[Cohort]) -> LikelihoodEstimate:
    """Return the maximum-likelihood frequencies of the pooled cohorts, certified to `GAP`.

    A few EM steps, then Newton steps whose quadratic model is maximised on the simplex by an
    active set. Where every channel has constant columns but for its diagonal, as k-RR's, a
    step costs O(k); otherwise O(k**2 codes) once or twice and O(k**3 + k codes) after.
    Raises `InvalidInput` where there is no cohort, they differ in k, or they together do not
    tell all categories apart.
    Source: concave maximisation on a simplex; standard errors by Fisher's information on the
    simplex's tangent space, T (T' I T)**-1 T'.
    """
    pooled = CohortLikelihood(cohorts)
    return _with_error(pooled, *most_likely(pooled))


def most_likely(pooled: "CohortLikelihood", gap: float = GAP) -> tuple[Floats, float]:
    """Return the most likely frequencies, shape (k,), and by how many nats they may miss it.

    That is at most `gap`, or what a double resolves. The method and its cost are those of
    `maximum_likelihood`.
    """
    f = np.full(pooled.k, 1 / pooled.k)
    for _ in range(_EM_START):
        f = f * pooled.gradient(pooled.outputs(f)) / pooled.n
    return _newton(pooled, f, gap)


def iterative_bayesian_update(
    cohorts: Sequence[Cohort], *, gap: float = 1e-2, iterations: int = 100_000
) -> LikelihoodEstimate:
    """Return the frequencies that EM reaches from the uniform distribution.

    Stops at the certified `gap` in nats, or after `iterations`; the result's own `gap` says
    where. `maximum_likelihood` has the same limit and gets there much sooner; stopped early,
    this one stays nearer to uniform. Cost: O(k codes) per iteration. Raises `InvalidInput`
    as `maximum_likelihood` does.
    Source: Agrawal and Aggarwal, PODS 2001; ElSalamouny and Palamidessi,
    "Generalized iterative Bayesian update", EuroS&P 2020, for several channels.
    """
    pooled = CohortLikelihood(cohorts)
    f = np.full(pooled.k, 1 / pooled.k)
    gradient = pooled.gradient(pooled.outputs(f))
    for _ in range(iterations):
        if gradient.max() - pooled.n <= gap:
            break
        f = f * gradient / pooled.n
        gradient = pooled.gradient(pooled.outputs(f))
    return _with_error(pooled, f / f.sum(), float(gradient.max() - pooled.n))


def fisher_covariance(channels: Sequence[tuple[Floats, int]], frequencies: Floats) -> Floats:
    """Return the Cramer-Rao bound at `frequencies`, shape (k,), for n reports per channel.

    Shape (k, k), for pairs (channel of shape (k, codes), n): no unbiased estimate of
    frequencies that sum to one has a smaller covariance. Raises `InvalidInput` as
    `maximum_likelihood` does.
    """
    cohorts = [Cohort(q, np.eye(1, np.shape(q)[1], dtype=np.int64)[0] * n) for q, n in channels]
    pooled = CohortLikelihood(cohorts)
    outputs = pooled.outputs(np.asarray(frequencies, dtype=np.float64))
    if min(m.min() for m in outputs) <= 0:
        raise InvalidInput("a code has no probability at these frequencies: there is no bound")
    weights = [n / m for (_, n), m in zip(channels, outputs, strict=True)]
    return tangent_inverse(pooled.information(weights))


_EM_START = 3


class CohortLikelihood:
    """The cohorts' likelihood: gradients, and information as diagonal or as matrix.

    Where all channels are as k-RR's, `information` is diagonal (`DiagonalProducts`).
    """

    def __init__(self, cohorts: Sequence[AnyCohort]) -> None:
        if not cohorts:
            raise InvalidInput("there are no cohorts to estimate from")
        self._channels = [cohort.products for cohort in cohorts]
        sizes = sorted({channel.k for channel in self._channels})
        if len(sizes) > 1:
            raise InvalidInput(f"cohorts of different numbers of categories: {sizes}")
        self.k = sizes[0]
        self.n = sum(cohort.n for cohort in cohorts)
        self._counts = [cohort.counts.astype(np.float64) for cohort in cohorts]

    def outputs(self, f: Floats) -> Outputs:
        """Return every cohort's probabilities of its codes, shapes (codes,)."""
        return [channel.outputs(f) for channel in self._channels]

    def log_likelihood(self, outputs: Outputs) -> float:
        """Return sum_g counts_g . log(outputs_g); outputs of observed codes must be positive."""
        return sum(
            float(c[c > 0] @ np.log(m[c > 0])) for c, m in zip(self._counts, outputs, strict=True)
        )

    def keeps_seen(self, before: Outputs, after: Outputs) -> bool:
        """Tell whether every observed code keeps at least 1/100 of its probability in one step.

        The quadratic model of log(m) is blind to m = 0, and beside it no step leads back.
        """
        return all(
            bool((m[c > 0] >= was[c > 0] / 100).all())
            for c, was, m in zip(self._counts, before, after, strict=True)
        )

    def gradient(self, outputs: Outputs) -> Floats:
        """Return the score, shape (k,); f . score = n."""
        return self._pull([_ratio(c, m) for c, m in zip(self._counts, outputs, strict=True)])

    def residuals(self, outputs: Outputs, weights: Outputs) -> Floats:
        """Return sum_g Q_g diag(weights_g) (share of each code - its probability)."""
        return self._pull(
            [w * (c / c.sum() - m) for w, c, m in zip(weights, self._counts, outputs, strict=True)]
        )

    def _pull(self, values: Outputs) -> Floats:
        """Return sum_g Q_g values_g, shape (k,)."""
        total = np.zeros(self.k)
        for channel, r in zip(self._channels, values, strict=True):
            total += channel.pull(r)
        return total

    def expected_weights(self, outputs: Outputs) -> Outputs:
        """Return n_g / Pr[code], the weights of Fisher's information.

        A code may have a probability that the estimate puts at zero, or near it: its variance
        must not be zero too, so it counts as at least 4/n (cf. Agresti and Coull, The American
        Statistician 52, 1998), or its mean over the categories where that is less. This holds
        whether the code was seen or not: weights that ask for the count bias the estimate.
        """
        weights = []
        for channel, c, m in zip(self._channels, self._counts, outputs, strict=True):
            n = c.sum()
            least = np.minimum(4 / (n + 4), channel.mean)
            weights.append(_ratio(np.full(m.shape, n), np.maximum(m, least)))
        return weights

    def observed_weights(self, outputs: Outputs) -> Outputs:
        """Return counts / Pr[code]**2, the weights of minus the log-likelihood's Hessian.

        A code not seen has none; a hundredth of the expected one keeps the model bounded.
        """
        expected = self.expected_weights(outputs)
        return [
            np.maximum(_ratio(_ratio(c, m), m), e / 100)
            for c, m, e in zip(self._counts, outputs, expected, strict=True)
        ]

    def information(self, weights: Outputs, *, rough: bool = False) -> Floats:
        """Return sum_g Q_g diag(weights_g) Q_g': shape (k,) if diagonal, else (k, k).

        `rough` multiplies in single precision: enough to steer a step, in half the time.
        """
        diagonal = np.zeros(self.k)
        dense: Floats | None = None
        for channel, w in zip(self._channels, weights, strict=True):
            own = channel.information(w, rough=rough)
            if own.ndim == 1:
                diagonal += own
            else:
                dense = own if dense is None else dense + own
        return diagonal if dense is None else dense + np.diag(diagonal)


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Divide elementwise, with 0 where the denominator is 0: a code of probability zero."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def _newton(pooled: CohortLikelihood, f: Floats, enough: float) -> tuple[Floats, float]:
    """Maximise from an interior point; return the frequencies and their certified gap."""
    enough = max(enough, 1e-12 * pooled.n)  # below it a double does not resolve the gradient
    outputs = pooled.outputs(f)
    gradient = pooled.gradient(outputs)
    gap = float(gradient.max() - pooled.n)
    curvature: Floats | None = None
    renewals = 0
    for _ in range(100):
        if gap <= enough:
            break
        if curvature is None:
            # Far from the maximum the expected curvature is the safer one (Fisher scoring).
            scheme = pooled.observed_weights if renewals else pooled.expected_weights
            # Where channels are nearly alike, single precision does not see how.
            curvature = definite(pooled.information(scheme(outputs), rough=renewals < 4))
            renewals += 1
        pull = curvature * f if curvature.ndim == 1 else curvature @ f
        target = maximize_quadratic(curvature, gradient + pull, f > 0)
        f, outputs = _climb(pooled, f, outputs, target - f, float(gradient @ (target - f)))
        gradient = pooled.gradient(outputs)
        before, gap = gap, float(gradient.max() - pooled.n)
        # A dense curvature costs as much as five steps: renew it if more than that are left.
        if curvature.ndim == 1 or gap > enough * (before / max(gap, enough)) ** 5:
            curvature = None
    return f, gap


def _climb(
    pooled: CohortLikelihood, f: Floats, outputs: Outputs, step: Floats, slope: float
) -> tuple[Floats, Outputs]:
    """Go from f along `step`, halving it until the likelihood rises enough (Armijo)."""
    start = pooled.log_likelihood(outputs)
    for halvings in range(60):
        t = 0.5**halvings
        there = np.maximum(f + t * step, 0)
        there /= there.sum()
        reached = pooled.outputs(there)
        if not pooled.keeps_seen(outputs, reached):
            continue
        # The last term is the rounding error of a double.
        if pooled.log_likelihood(reached) - start >= 1e-4 * t * slope - 1e-12 * abs(start):
            return there, reached
    return f, outputs


def _with_error(pooled: CohortLikelihood, f: Floats, gap: float) -> LikelihoodEstimate:
    """Return the estimate, with errors from one scoring step without the constraint f >= 0.

    With the weights held fixed the step is generalised least squares, linear in the counts and
    so unbiased; for one invertible channel it is the inverse applied to the shares.
    """
    outputs = pooled.outputs(f)
    weights = pooled.expected_weights(outputs)
    covariance = tangent_inverse(pooled.information(weights))
    free = f + covariance @ pooled.residuals(outputs, weights)
    error = np.sqrt(np.diag(covariance))
    return LikelihoodEstimate(f, gap, Estimate(free, error, pooled.n, (0.0, 1.0)), covariance)
