"""Intervals: quantiles of the normal distribution, the ends of an interval, and its clipping.

An interval reaches `critical_value` standard errors to both sides. `interval` decides of which form
it is: of an estimate that has `Ends` these, which invert a score test, allow for rare extremes or
are exact (`ldp.core.ends`); of any other Wald's.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.errors import InvalidInput, needs

Floats = NDArray[np.float64]

Interval = tuple[Floats, Floats]
"""Lower and upper ends, each of the estimates' shape."""

Ends = Callable[[float], Interval]
"""Intervals by their critical value."""

_NORMAL = NormalDist()

_HALVINGS = 32  # far below the standard error of any survey


def check_confidence(confidence: float) -> float:
    """Return how probably intervals cover; raise `InvalidInput` unless it is in (0, 1)."""
    if not 0 < confidence < 1:
        raise InvalidInput(f"confidence must lie strictly between 0 and 1, got {confidence}")
    return confidence


def quantile(p: float) -> float:
    """Return the x of P(N(0, 1) <= x) = p; of a p near 1 ask -quantile(1 - p), which is exact."""
    return _NORMAL.inv_cdf(p)


def below(x: float) -> float:
    """Return P(N(0, 1) <= x)."""
    return _NORMAL.cdf(x)


def critical_value(confidence: float, together: int = 1, degrees: float = math.inf) -> float:
    """Return how many standard errors an interval reaches to either side.

    `together` intervals cover at once with probability `confidence` (Bonferroni). With `degrees`
    of freedom the error is an estimate, and the distribution Student's. Raises `InvalidInput`
    unless 0 < confidence < 1.
    """
    beyond = (1 - check_confidence(confidence)) / together / 2
    if math.isinf(degrees):
        return -quantile(beyond)
    with needs("an interval by Student's distribution", "analyst"):
        from scipy.special import stdtrit

    return -float(stdtrit(degrees, beyond))


def statistic(p_value: ArrayLike) -> Floats:
    """Return the z >= 0 of P(|N(0, 1)| > z) = p_value, at most that of 1e-300; of its shape."""
    with needs("a statistic of p-values", "analyst"):
        from scipy.special import ndtri

    found: Floats = -ndtri(np.maximum(np.asarray(p_value, dtype=float) / 2, 1e-300))
    return found


def interval(
    value: Floats,
    standard_error: Floats,
    bounds: tuple[float, float],
    confidence: float,
    *,
    together: int = 1,
    ends: Ends | None = None,
) -> Interval:
    """Return the intervals (low, high) of estimates, clipped to `bounds`, of their shape.

    They are those of `ends`, and Wald's, value -+ z standard_error, where that is None. Of Wald's
    an estimate beyond a bound counts as that bound: an impossible estimate must not look like a
    precise one (Cowan, Cranmer, Gross and Vitells, "Power-constrained limits", arXiv:1105.3166,
    2011). Truths within z standard errors of a bound are then covered with (1 + confidence) / 2.
    `together` and `Raises` are as of `critical_value`.
    """
    z = critical_value(confidence, together)
    if ends is not None:
        return clipped(*ends(z), bounds)
    return around(np.clip(value, *bounds), z * standard_error, bounds)


def around(
    center: Floats, reach: Floats, bounds: tuple[float | Floats, float | Floats]
) -> Interval:
    """Return center -+ reach, clipped to `bounds`."""
    return clipped(center - reach, center + reach, bounds)


def clipped(low: Floats, high: Floats, bounds: tuple[float | Floats, float | Floats]) -> Interval:
    """Return both ends within `bounds`."""
    return np.clip(low, *bounds), np.clip(high, *bounds)


def holding(value: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the ends, moved outwards where the estimate is not between them."""
    return np.minimum(low, value), np.maximum(high, value)


def reach(bias: ArrayLike, error: ArrayLike, z: float) -> Floats:
    """Return the r of P(|N(bias, error**2)| <= r) = P(|N(0, 1)| <= z), of their shape.

    An interval of this half-width around an estimate of this greatest bias, and this standard
    error > 0, covers at the confidence of z (Armstrong and Kolesar, Econometrica 86, 2018).
    """
    bias, error = np.broadcast_arrays(np.asarray(bias, dtype=float), np.asarray(error, dtype=float))
    low, high = z * error, bias + z * error
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        short = farther(middle, bias, error) > 2 * below(-z)
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    found: Floats = (low + high) / 2
    return found


def farther(distance: Any, bias: Any, error: Any) -> Floats:
    """Return P(|N(bias, error**2)| > distance)."""
    with needs("an interval under a bound", "analyst"):
        from scipy.special import ndtr

    found: Floats = ndtr((bias - distance) / error) + ndtr((-bias - distance) / error)
    return found


def wilson(estimate: ArrayLike, noise: ArrayLike, n: float | Floats, z: float | Floats) -> Interval:
    """Return {t : n (estimate - t)**2 <= z**2 (t (1 - t) + noise)}, clipped to [0, 1].

    `noise` is n times the part of the variance that does not depend on t. An estimate outside of
    [0, 1] counts as its nearer end, as in `interval`. Without noise these are the ends of Wilson's
    interval (Journal of the American Statistical Association 22, 1927).
    """
    ends = wilson_ends(np.clip(estimate, 0.0, 1.0), np.asarray(noise, dtype=float), n, z)
    return clipped(*ends, (0, 1))


def wilson_ends(share: Floats, noise: Floats, n: float | Floats, z: float | Floats) -> Interval:
    """Return the ends of `wilson` before they are clipped: noise takes them beyond [0, 1]."""
    k = z * z / n
    middle = 2 * share + k
    root = np.sqrt(np.maximum(0, middle**2 - 4 * (1 + k) * (share**2 - k * noise)))
    scale = 2 + 2 * k
    return (middle - root) / scale, (middle + root) / scale


def fieller(
    d: Floats, f: Floats, v_d: Floats, v_f: Floats, covariance: Floats, z: float
) -> Interval:
    """Return the ends of {m : (d - m f)**2 <= z**2 (v_d - 2 m covariance + m**2 v_f)}.

    They are infinite where the set has no end: where `f` is within z standard errors of 0.
    """
    a = f**2 - z**2 * v_f
    b = d * f - z**2 * covariance
    c = d**2 - z**2 * v_d
    bounded = a > 0
    root = np.sqrt(np.maximum(b**2 - a * c, 0))
    low = np.divide(b - root, a, out=np.full_like(b, -math.inf), where=bounded)
    high = np.divide(b + root, a, out=np.full_like(b, math.inf), where=bounded)
    return low, high
