"""The Gaussian mechanism: delta at an epsilon, epsilon at a delta, and the noise for both.

Noise is in units of the sensitivity: how far one neighbour moves the release.
"""

import math
from collections.abc import Sequence

from scipy.special import log_ndtr

from dpsgd.accounting.events import ROUNDED_UP, check_delta, check_epsilon, check_positive
from ldp import InvalidInput
from ldp.mechanisms.numbers.gaussian import gaussian_width


def analytic_noise(epsilon: float, delta: float) -> float:
    """Return the least noise that keeps (epsilon, delta)-DP, rounded up by 1e-9 of it.

    Raises `InvalidInput` unless epsilon is one that `ldp` mechanisms take and 0 < delta < 1.
    Source: Balle and Wang, "Improving the Gaussian mechanism", ICML 2018, theorem 8.
    """
    check_delta(delta)
    return gaussian_width(epsilon, delta) * ROUNDED_UP


def gaussian_delta(noise_multiplier: float, epsilon: float) -> float:
    """Return the exact delta of Gaussian noise at an epsilon, rounded up.

    Phi(m / 2 - epsilon / m) - e**epsilon Phi(-m / 2 - epsilon / m), m = 1 / noise. Raises
    `InvalidInput` unless the noise is finite and > 0 and epsilon finite and >= 0.
    Source: Balle and Wang 2018, theorem 8.
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_epsilon(epsilon)
    return delta_of_mean(1 / noise_multiplier, epsilon)


def gaussian_epsilon(noise_multiplier: float, delta: float) -> float:
    """Return the least epsilon that Gaussian noise keeps at a delta, rounded up.

    Raises `InvalidInput` unless the noise is finite and > 0 and 0 < delta < 1.
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_delta(delta)
    return epsilon_of_mean(1 / noise_multiplier, delta)


def delta_of_mean(mean: float, epsilon: float) -> float:
    """Return delta at epsilon of telling N(mean, 1) from N(0, 1), rounded up; mean >= 0."""
    if math.isinf(mean):
        return 1.0
    most = mean / math.sqrt(2 * math.pi) * ROUNDED_UP + math.ulp(0.0)  # total variation
    if mean < 1e-100:
        return most
    first = float(log_ndtr(mean / 2 - epsilon / mean))
    second = float(log_ndtr(-mean / 2 - epsilon / mean))
    if math.isinf(first):
        return math.ulp(0.0)
    error = 1e-15 * (1 + epsilon - first - (0 if math.isinf(second) else second))
    gap = min(0.0, epsilon + second - first)
    exact = -math.exp(first) * math.expm1(gap - error) * ROUNDED_UP
    return min(1.0, most, exact + math.ulp(0.0))


def epsilon_of_mean(mean: float, delta: float) -> float:
    """Return the least epsilon of telling N(mean, 1) from N(0, 1) at delta, rounded up."""
    if delta_of_mean(mean, 0.0) <= delta:
        return 0.0
    half = mean * mean / 2
    low, high = 0.0, half + 2 * math.sqrt(half * math.log(1 / delta))  # as zCDP
    if math.isinf(high):
        return high
    high *= ROUNDED_UP
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of_mean(mean, middle) <= delta else (middle, high)
    return high


def combined_noise_multiplier(noise_multipliers: Sequence[float]) -> float:
    """Return (sum z_m**-2)**-1/2, for groups that are clipped to C_m and get noise of z_m C_m.

    Raises `InvalidInput` where there is no group or a bad multiplier.
    Source: McMahan et al., "A general approach to adding differential privacy to iterative
    training procedures", arXiv 1812.06210, theorem 1.
    """
    if not noise_multipliers:
        raise InvalidInput("groups of parameters: at least one noise multiplier is needed")
    return 1 / math.hypot(*(1 / check_positive("noise_multiplier", z) for z in noise_multipliers))
