"""Rényi divergences of a step, of any real order, by quadrature and rounded up.

With P = N(1 / z, 1), Q = N(0, 1), z the noise over the distance of neighbouring sums, q the rate
and L = 1 - q + q P/Q, every divergence here is ln(1 + E_Q[g(L)]) / (order - 1) for a g >= 0 with
a double zero at L = 1: a sum of positive terms, in which nothing cancels, however small q is.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import (
    ROUNDED_UP,
    Event,
    FixedSizeSampling,
    NoSampling,
    Relation,
    Unsampled,
)

Floats = NDArray[np.float64]
LogIntegrand = Callable[[Floats, Floats, float], Floats]

_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(16)
_TAIL = 12.0
"""Standard deviations beyond which a Gaussian is neglected: less than 1e-32."""
_LEAST_NOISE = 1e-2
"""The least noise for quadrature; below, the unsampled divergence is hardly larger."""
_FARTHEST = 2e4
"""The most deviations integrated for noise above 1e3; beyond, the unsampled divergence."""


def divergence(event: Event | Unsampled, relation: Relation, excess: float) -> float:
    """Return the Rényi divergence of order 1 + `excess` of one step of the event, rounded up.

    `excess` > 0 is the order less one, which keeps its digits for orders near 1. Infinite where
    doubles end. Cost: 1e3 to 1e5 exponentials.

    - Unsampled: order / (2 z**2), exactly (Mironov, CSF 2017, proposition 7).
    - Poisson: E_Q[L**order] (Mironov, Talwar and Zhang, arXiv 1908.10530, theorem 4; the other
      direction is smaller, theorem 5); g(L) = L**order - 1 - order (L - 1).
    - Fixed size: neighbours' hockey-stick curve is H(L Q || Q) above 1 and its reflection below
      (Balle, Barthe and Gaboardi, NeurIPS 2018, theorem 10; Zhu, Dong and Wang, AISTATS 2022,
      theorem 11), and a bound on the curve bounds every f-divergence;
      g(L) = (L**(order - 1) - 1) (L - L**(1 - order)) where L > 1.

    Sampling never hurts (quasi-convexity), so the unsampled divergence bounds the others too.
    """
    if isinstance(event, Unsampled):
        return event.divergence(excess)
    if event.sampling.rate == 0:
        return 0.0
    z = event.noise_per_difference(relation)
    whole = (1 + excess) / (2 * z) / z
    if isinstance(event.sampling, NoSampling) or not math.isfinite(whole):
        return whole
    order, far, rate = 1 + excess, (1 + excess) / z, event.sampling.rate
    if z < _LEAST_NOISE or (z > 1e3 and far > _FARTHEST):
        return whole
    fixed = isinstance(event.sampling, FixedSizeSampling)
    start = 0.5 / z if fixed else -_TAIL
    # L**order has its peaks within 2 z of 0 and of order / z: where its logarithm's slope
    # w order / z equals x, a peak needs w (1 - w) order < z**2. Between the peaks it is at
    # most its value at the ends, and g(L) is at most L**order, or below L = 1 the order.
    reach = _TAIL + (max(2 * z, 4000.0) if z > 400 else 10 * z)
    windows, ends = [(start, far + _TAIL)], np.array([0.0, 0.0])
    if excess >= 1 and far > 2 * reach:
        ends = np.array([max(start, reach), far - reach])
        windows = [(start, reach)] if start < reach else []
        windows.append((max(start, far - reach), far + _TAIL))
    log_integrand = _log_fixed_size if fixed else _log_poisson
    parts = []
    for low, high in windows:
        x, weight = _nodes(low, high, 2 * min(1.0, z))
        u, log_ratio = _ratio(x, z, rate)
        with np.errstate(divide="ignore", invalid="ignore"):  # ln 0, and values that np.where drops
            log_value = log_integrand(u, log_ratio, excess)
        parts.append(log_value - x * x / 2 + np.log(weight))
    if (gap := float(ends[1] - ends[0])) > 0:
        most = np.logaddexp(order * _ratio(ends, z, rate)[1], math.log(order)) - ends * ends / 2
        parts.append(np.array([most.max() + math.log(gap)]))
    terms = np.concatenate(parts)
    top = float(terms.max())
    if top == -math.inf:  # a rate whose effect is no double
        return math.ulp(0.0)
    log_mean = top + math.log(float(np.exp(terms - top).sum())) - 0.5 * math.log(2 * math.pi)
    log_moment = math.log1p(math.exp(log_mean)) if log_mean < 30 else log_mean + 1e-12
    return min(whole, log_moment / excess * ROUNDED_UP)


def _nodes(low: float, high: float, width: float) -> tuple[Floats, Floats]:
    """Return Gauss-Legendre nodes and weights, 16 on each panel of about `width`."""
    panels = math.ceil((high - low) / width)
    half = (high - low) / panels / 2
    centres = low + half * (2 * np.arange(panels) + 1)
    x = (centres[:, None] + half * _POINTS).ravel()
    return x, np.tile(half * _WEIGHTS, panels)


def _ratio(x: Floats, z: float, rate: float) -> tuple[Floats, Floats]:
    """Return L - 1, cut off at e**50, and ln L at the points."""
    y = (x - 0.5 / z) / z
    u = rate * np.expm1(np.minimum(y, 50.0))
    return u, np.where(y < 50, np.log1p(u), math.log(rate) + y)


def _log_poisson(u: Floats, log_ratio: Floats, excess: float) -> Floats:
    """Return ln(L**a - 1 - a (L - 1)), a = 1 + excess."""
    order = 1 + excess
    v, grown = u[small := order * np.abs(u) < 0.1], excess * log_ratio
    # g / L = L**excess - 1 - excess (1 - 1 / L); where that cancels, the binomial series of g.
    rest = np.expm1(np.minimum(grown, 30.0)) + excess * np.expm1(-log_ratio)
    result = log_ratio + np.where(grown < 30, np.log(rest), grown)
    series = np.ones_like(v)
    for k in range(14, 2, -1):
        series = 1 + (order - k + 1) * v / k * series
    result[small] = np.log(order * excess / 2 * series) + 2 * np.log(np.abs(v))
    return np.asarray(result)


def _log_fixed_size(u: Floats, log_ratio: Floats, excess: float) -> Floats:
    """Return ln((L**e - 1) (L - L**-e)), e = excess, L > 1; never below."""
    order = 1 + excess
    grown = order * log_ratio
    growth = np.where(grown < 30, np.log(np.expm1(np.minimum(grown, 30.0))), grown)
    return np.log(-np.expm1(-excess * log_ratio)) + growth
