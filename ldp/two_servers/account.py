"""What Skellam noise in integers promises: exact Renyi divergences, and bounds of them.

Two records are neighbours where they are any two that one person may have, the empty one among
them: the vector of zeros of a person who takes part and answers nothing. `records.Layout.distances`
bounds how far they are apart. Whether a device took part is not hidden.

The noise that counts is that of the honest devices. Where at least `least` devices are summed,
`colluding` of them tell one of the servers their noise, and each honest one adds variance v, it is
(least - colluding) v. Both servers together see the single records, with the noise of one device
each: nothing here holds against them.
"""

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp.core.exact import exp_bounds, float_below
from ldp.errors import InvalidInput

_BISECTIONS = 60

_MOST_VALUES = 1 << 16
"""Values of noise, on each side of zero, over which `exact_epsilon` sums."""

ORDERS = (*range(2, 65), 96, 128, 256, 512, 1024)
"""Integer orders for `epsilon_of`: the published bound is stated for integers."""

_MOST_EXPONENT = 128
"""The largest exponent of e in `keeps`: no delta that a plan may have needs more."""


def honest_variance(variance: Fraction, least: int, colluding: int) -> Fraction:
    """Return the variance of the noise that no colluding device knows.

    Raises `InvalidInput` unless variance > 0 and 0 <= colluding < least.
    """
    if not variance > 0 or not 0 <= colluding < least:
        raise InvalidInput(
            f"variance must be > 0 and 0 <= colluding < least, got variance {variance}, "
            f"colluding {colluding} and least {least}"
        )
    return variance * (least - colluding)


def published(order: int, l1: int, l2_squared: int, variance: Fraction) -> Fraction:
    """Return the published bound of the Renyi divergence at an integer order of at least 2.

    `l1` and `l2_squared` bound the L1 distance and the squared L2 distance of two records.
    Source: Agarwal, Kairouz and Liu, "The Skellam mechanism for differentially private federated
    learning", NeurIPS 2021.
    """
    if order < 2:
        raise InvalidInput(f"order must be at least 2, got {order}")
    _check(l1, l2_squared, variance)
    more = min(
        Fraction((2 * order - 1) * l2_squared + 6 * l1) / (4 * variance**2),
        Fraction(3 * l1) / (2 * variance),
    )
    return Fraction(order * l2_squared) / (2 * variance) + more


def rho(l1: int, l2_squared: int, variance: Fraction) -> Fraction:
    """Return rho such that the published bound is at most order * rho, for all orders >= 1.

    Proof: over a, the first of the published bound's two alternatives is
    D2**2 / 2v + ((2 - 1/a) D2**2 + 6 D1 / a) / 4v**2, and 2 - 1/a <= 2, 1/a <= 1. The least of the
    two is at most the first.
    """
    _check(l1, l2_squared, variance)
    return Fraction(l2_squared) / (2 * variance) + Fraction(l2_squared + 3 * l1) / (2 * variance**2)


def divergence(order: float, shift: int, variance: Fraction) -> float:
    """Return the Renyi divergence of Skellam noise from itself shifted by an integer.

    Exact to the accuracy of doubles, `order` > 1. The terms beyond the range that is summed are
    bounded and added, and so is an allowance for rounding. With r(k) = I(k+1) / I(k) at v,
    h(k+1/2) <= v / r(k) <= h(k+1), h(x) = x + sqrt(x**2 + v**2) (Amos, "Computation of modified
    Bessel functions and their ratios", Math. Comp. 28, 1974). Upward a term's ratio to the one
    before is r(k-s)**a r(k)**(1-a); its bound falls in k, because the derivative of log h falls.
    Downward it is r(k+s) (r(k+s) / r(k))**(a-1) <= r(k+s), because r falls. So geometric series
    bound both tails.
    Cost: O(sqrt(v) + shift) doubles.
    """
    if not 1 < order < math.inf:
        raise InvalidInput(f"order must be finite and > 1, got {order}")
    if shift == 0:
        return 0.0
    _check(abs(shift), shift * shift, variance)
    s, v = abs(shift), float(variance)
    # The terms are the largest about (1 - order) * shift and about order * shift.
    span = math.ceil(s * order + 12 * math.sqrt(v) + 60) + s
    while True:
        logs = _log_pmf(v, span + s)
        k = np.arange(-span, span + 1)
        terms = order * logs[np.abs(k - s)] + (1 - order) * logs[np.abs(k)]
        top = float(terms.max())
        total = math.fsum(np.exp(terms - top).tolist())
        # Upward the noise is at (k-s, k); downward, mirrored, at (k+s, k).
        ends = (
            order * _log_ratio(span - s + 0.5, v) + (1 - order) * _log_ratio(span + 1, v),
            _log_ratio(span + s + 0.5, v),
        )
        if max(ends) < -1e-3:
            tails = sum(
                math.exp(float(last) - top + ratio) / -math.expm1(ratio)
                for ratio, last in zip(ends, (terms[-1], terms[0]), strict=True)
            )
            if tails <= 1e-18 * total:
                weighty = np.abs(order * logs[np.abs(k - s)])[terms > top - 45]
                rounding = 16 * np.finfo(float).eps * (1 + float(weighty.max()))
                return (top + math.log(total + tails) + rounding) / (order - 1)
        span *= 2


def exact(order: float, l2_squared: int, variance: Fraction) -> float:
    """Bound the Renyi divergence for every integer vector of squared L2 norm at most l2_squared.

    The divergence of a vector is the sum over its coordinates, so it is at most l2_squared times
    the largest divergence(s) / s**2 over the shifts s that one coordinate can have.
    Cost: sqrt(l2_squared) one-dimensional divergences.
    """
    _check(1, l2_squared, variance)
    most = math.isqrt(l2_squared)
    worst = max(divergence(order, s, variance) / (s * s) for s in range(1, most + 1))
    return l2_squared * worst


def epsilon_of(rho: Fraction, delta: float) -> float:
    """Return the epsilon of (epsilon, delta)-DP where each integer order a has divergence <= a rho.

    Source: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS
    2020, proposition 12.
    """
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie in (0, 1), got {delta}")
    rate = float(rho)
    return epsilon_from({a: a * rate for a in ORDERS}, delta)


def keeps(rho: Fraction, epsilon: float, delta: float) -> bool:
    """Tell whether `epsilon_of(rho, delta)` is certainly at most epsilon, for delta >= 1e-50.

    Exact, so that every client decides alike. At an order a it is at most epsilon where
    (a - 1)**(a - 1) / (a**a delta) <= e**((a - 1) (epsilon - a rho)), and e to a power is bounded
    from below as everywhere (`ldp.core.exact.exp_bounds`); a power above 128 counts as 128.
    """
    rate = float(rho)

    def gain(a: int) -> float:
        """Return about the logarithm of the right side over the left one."""
        return (a - 1) * (epsilon - a * rate - math.log(a - 1)) + a * math.log(a) + math.log(delta)

    for a in sorted(filter(lambda a: gain(a) > -1, ORDERS), key=gain, reverse=True):
        power = min((a - 1) * (Fraction(epsilon) - a * rho), Fraction(_MOST_EXPONENT))
        ratio = Fraction((a - 1) ** (a - 1), a**a) / Fraction(delta)
        if power > 0 and ratio <= exp_bounds(power)[0]:
            return True
    return False


def exact_epsilon(cells: int, shift: int, variance: Fraction, delta: float) -> float | None:
    """Return the epsilon of (epsilon, delta)-DP by the exact divergence, for vectors that differ by
    at most `shift` in at most `cells` cells; None where it would take more than seconds.

    The farthest vectors differ by `shift` in each cell: the noise is log-concave, as a difference
    of two log-concave Poisson variables, so its likelihood ratio rises and a larger shift has a
    larger divergence. It is taken at the order at which the published bound is the best, and so is
    at most `epsilon_of` the `rho` of these distances, which is what devices charge.
    Cost: 50 us for each value of the noise that counts, at most 2**17 of them.
    """
    bound = rho(cells * shift, cells * shift**2, variance)
    order = min(ORDERS, key=lambda a: epsilon_from({a: a * float(bound)}, delta))
    if shift * order + 12 * math.sqrt(variance) > _MOST_VALUES:
        return None
    return float(epsilon_from({order: cells * divergence(order, shift, variance)}, delta))


def largest_rho(epsilon: float, delta: float) -> Fraction:
    """Return a rho that `keeps` to (epsilon, delta), and hardly any larger one does."""
    low, high = Fraction(0), Fraction(1)
    while epsilon_of(high, delta) <= epsilon:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if epsilon_of(middle, delta) <= epsilon:
            low = middle
        else:
            high = middle
    if not low:
        raise InvalidInput(f"no noise keeps epsilon {epsilon:g} at delta {delta:g}")
    while not keeps(low, epsilon, delta):  # the doubles may be off by their last digit
        low *= 1 - Fraction(1, 1 << 50)
    return Fraction(float_below(low))


def epsilon_from(divergences: dict[int, float], delta: float) -> float:
    """Return the least epsilon that Renyi divergences by order give at this delta."""
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie in (0, 1), got {delta}")
    return max(
        0.0,
        min(
            d + math.log1p(-1 / a) - (math.log(delta) + math.log(a)) / (a - 1)
            for a, d in divergences.items()
        ),
    )


def _check(l1: int, l2_squared: int, variance: Fraction) -> None:
    if l1 < 1 or l2_squared < 1 or not variance > 0:
        raise InvalidInput(
            "norms must be at least 1 and the variance > 0, got "
            f"L1 {l1}, squared L2 {l2_squared} and variance {variance}"
        )


def _log_ratio(x: float, v: float) -> float:
    return math.log(v / (x + math.hypot(x, v)))


@lru_cache(maxsize=8)
def _log_pmf(v: float, size: int) -> NDArray[np.float64]:
    """Return log P(k) of Skellam noise of variance v for k = 0..size, shape (size + 1,).

    The ratios I(k+1) / I(k) are taken downward, where errors shrink, from a bound of the last.
    """
    ends = size + math.ceil(12 * math.sqrt(v)) + 60
    ratios = np.empty(ends)
    ratio = v / (ends + 1 + math.hypot(ends + 1, v))
    for k in range(ends, 0, -1):
        ratio = 1 / (2 * k / v + ratio)
        ratios[k - 1] = ratio
    logs = np.concatenate(([0.0], np.cumsum(np.log(ratios))))
    logs -= math.log(1 + 2 * math.fsum(np.exp(logs[1:]).tolist()))
    return logs[: size + 1]
