"""Consistency: post-processing of estimated frequencies toward a distribution.

Source of every method: Wang, Lopuhaa-Zwakenberg, Li, Skoric and Li, "Locally differentially
private frequency estimation with consistency", NDSS 2020.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ldp.core.estimation import Estimate
from ldp.core.intervals import quantile
from ldp.errors import InvalidInput

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ConsistentEstimate:
    """Frequencies after consistency: `value`, shape (k,), by `method`, from the unbiased `raw`.

    A processed value is biased and nobody knows its standard error: the one here, and the
    intervals, are those of `raw`. They cover the true frequencies at their stated level, and a
    processed value may lie outside its interval.
    """

    value: Floats
    method: str
    raw: Estimate

    @property
    def standard_error(self) -> Floats:
        """The standard error of the raw values, shape (k,)."""
        return self.raw.standard_error

    @property
    def n(self) -> int:
        """The number of reports that went in."""
        return self.raw.n

    def interval(
        self, confidence: float = 0.95, *, simultaneous: bool = False
    ) -> tuple[Floats, Floats]:
        """Return the intervals of the raw estimate, as `Estimate.interval` does."""
        return self.raw.interval(confidence, simultaneous=simultaneous)


def make_consistent(
    raw: Estimate, method: str, *, expected_false: float = 0.05
) -> ConsistentEstimate:
    """Process frequency estimates of shape (k,) by one of `METHODS`.

    | method   | does                                                        | result        |
    |----------|-------------------------------------------------------------|---------------|
    | norm     | adds one constant                                           | sums to 1     |
    | norm-mul | clips at 0, rescales                                        | distribution  |
    | norm-cut | keeps the largest until they reach 1, rescales              | distribution  |
    | norm-sub | clips at 0 and subtracts a constant: nearest distribution   | distribution  |
    | base-cut | zeroes values that noise alone would explain                | unconstrained |
    | power    | posterior mean under a power law fitted to the mean 1/k     | in (0, 1]     |
    | power-ns | power, then norm-sub                                        | distribution  |

    Which to take: for a whole table, a set or a range of categories norm-sub, or power-ns where
    few categories hold most of the mass; for the most frequent values the raw estimate, which
    alone is unbiased; base-cut only to list the values present, never to sum; norm-mul never where
    the most frequent values matter.
    `expected_false` is base-cut's mean number of absent categories that it lets through; it
    uses each coordinate's standard error, which is as for an absent one or larger. Power takes
    the errors to be Gaussian.
    Cost: O(k log k); power O(512 k). Raises `InvalidInput` for an unknown method, estimates
    that are not frequencies, and where no value is positive though the method needs one.
    """
    if method not in METHODS:
        raise InvalidInput(f"unknown method {method!r}; the methods are {sorted(METHODS)}")
    if raw.bounds != (0.0, 1.0) or raw.value.size < 2:
        raise InvalidInput(
            "consistency is for the frequencies of 2 or more categories, "
            f"got {raw.value.size} values in {raw.bounds}"
        )
    if method == "base-cut":
        return ConsistentEstimate(_base_cut(raw, expected_false), method, raw)
    return ConsistentEstimate(METHODS[method](raw), method, raw)


def project(values: Floats) -> Floats:
    """Return the distribution nearest to `values`, shape (k,), in Euclidean distance.

    Cost: O(k log k). Source: Held, Wolfe and Crowder, "Validation of subgradient optimization",
    Mathematical Programming 6, 1974: clip after subtracting the one constant that gives sum 1.
    """
    descending = np.sort(values)[::-1]
    excess = (np.cumsum(descending) - 1) / np.arange(1, values.size + 1)
    kept = np.flatnonzero(descending > excess)[-1]
    nearest: Floats = np.maximum(values - excess[kept], 0)
    return nearest


def _norm(raw: Estimate) -> Floats:
    shifted: Floats = raw.value + (1 - raw.value.sum()) / raw.value.size
    return shifted


def _norm_mul(raw: Estimate) -> Floats:
    return _rescaled(np.maximum(raw.value, 0))


def _norm_cut(raw: Estimate) -> Floats:
    clipped = np.maximum(raw.value, 0)
    order = np.argsort(-clipped, kind="stable")
    reached = int(np.searchsorted(np.cumsum(clipped[order]), 1.0))
    clipped[order[reached + 1 :]] = 0
    return _rescaled(clipped)


def _rescaled(values: Floats) -> Floats:
    total = float(values.sum())
    if total <= 0:
        raise InvalidInput("no estimated frequency is positive: there is nothing to rescale")
    return values / total


def _norm_sub(raw: Estimate) -> Floats:
    return project(raw.value)


def _base_cut(raw: Estimate, expected_false: float = 0.05) -> Floats:
    k = raw.value.size
    if not 0 < expected_false < k:
        raise InvalidInput(
            f"expected_false must lie strictly between 0 and {k}, got {expected_false}"
        )
    threshold = -quantile(expected_false / k) * raw.standard_error
    return np.where(raw.value > threshold, raw.value, 0.0)


def _power(raw: Estimate) -> Floats:
    exponent = _power_law_exponent(raw.value.size, raw.n)
    rows = 2048
    parts = [
        _posterior_mean(
            raw.value[i : i + rows], raw.standard_error[i : i + rows], exponent, 1 / raw.n
        )
        for i in range(0, raw.value.size, rows)
    ]
    return np.concatenate(parts)


def _power_ns(raw: Estimate) -> Floats:
    return project(_power(raw))


def _power_law_exponent(k: int, n: int) -> float:
    """Return the a >= 0 for which the density x**-a on [1/n, 1] has the mean 1/k."""
    x = np.geomspace(1 / n, 1, 4096)
    low, high = 0.0, 64.0  # at 64 the mean is 1/n to 2%: k >= n, and the prior decides anyway
    for _ in range(50):
        a = (low + high) / 2
        weight = (x * n) ** (1 - a)  # the density per unit of log x, the grid's own spacing
        low, high = (a, high) if np.dot(weight, x) > weight.sum() / k else (low, a)
    return (low + high) / 2


def _posterior_mean(value: Floats, error: Floats, exponent: float, smallest: float) -> Floats:
    """Return posterior means, shape (rows,), by 512 points of log x within ten standard errors."""
    reach = 10 * error
    low = np.clip(value - reach, smallest, 1)
    high = np.maximum(np.minimum(np.maximum(value, 0) + reach, 1), low * (1 + 1e-9))
    step = np.linspace(0, 1, 512)
    x = low[:, None] * (high / low)[:, None] ** step
    distance = (value[:, None] - x) / error[:, None]
    log_weight = (1 - exponent) * np.log(x) - distance**2 / 2
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    result: Floats = (weight * x).sum(axis=1) / weight.sum(axis=1)
    return result


METHODS: Mapping[str, Callable[[Estimate], Floats]] = {
    "norm": _norm,
    "norm-mul": _norm_mul,
    "norm-cut": _norm_cut,
    "norm-sub": _norm_sub,
    "base-cut": _base_cut,
    "power": _power,
    "power-ns": _power_ns,
}
"""The consistency methods by name."""
