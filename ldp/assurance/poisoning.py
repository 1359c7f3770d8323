"""Data poisoning: the largest shift of an estimate that forged reports can cause.

An attacker with m devices can send any codes. Local privacy makes honest reports deniable, and so
gives forged ones much weight. The bound is exact for each mechanism: the greatest contribution of
one report to a value's debiased sum, over all codes.
Source: Cao, Jia and Gong, "Data poisoning attacks to local differential privacy protocols",
USENIX Security 2021; for one target of k-RR or OUE the shift is the gain of their maximal gain
attack.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp.core.estimation import Cohorts
from ldp.core.estimator import MAX_MATRIX, Estimator
from ldp.core.mechanism import Counted, Supporting
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.histogram import SummingHistogram
from ldp.mechanisms.lasting.dbitflip import DBitFlip
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.policies.subsets import PolicySubsets
from ldp.mechanisms.policies.unary import PolicyUnary

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Shift:
    """The largest shifts by m forged reports: `down` <= 0 <= `up`, each of shape (parameters,)."""

    down: Floats
    up: Floats


@lru_cache(maxsize=64)
def report_range(mechanism: Estimator) -> tuple[Floats, Floats]:
    """Return the least and the greatest `debias` of one report, each of shape (parameters,).

    Exact for every parameter by itself; one code need not attain several of them. Read-only.
    Raises `InvalidInput` for mechanisms that no survey offers, and where there are too many
    codes to try.
    """
    low, high = _range(mechanism)
    low.flags.writeable = high.flags.writeable = False
    return low, high


def largest_shift(cohorts: Cohorts, forged: int, method: str = "inverse_variance") -> Shift:
    """Return the largest shift of the cohorts' estimate that `forged` more reports can cause.

    The forger knows everything, also the reports that came, and chooses codes and cohort. One
    cohort of n reports with the estimate f goes to f + (c - f) m / (n + m), c being the end of
    `report_range`. Of several cohorts the forger takes the one whose reports weigh most: a
    report of cohort g has the weight u_g = 1 / V_g (inverse_variance) or 1 / sum V_g (scalar) in
    the pooled estimate, and the shift is the largest over g of
    m u_g (c_g - f) / (sum_h n_h u_h + m u_g), with the weights held fixed and V_g with the variance
    of `repeats`. Splitting the forged reports between cohorts gains nothing. If m of the n reports
    that came are forged, the estimate without them lies within the same formula with n - m for n.
    Raises `InvalidInput` for a negative number, for another method, and as `report_range`.
    """
    if forged < 0:
        raise InvalidInput(f"the number of forged reports must be >= 0, got {forged}")
    if method not in _WEIGHTS:
        raise InvalidInput(
            f"what forged reports can do is known for {', '.join(_WEIGHTS)}, not for {method!r}"
        )
    unweighted = np.full(cohorts.parameters, np.mean(cohorts.bounds))
    values = np.array([m.debias(tally) for m, tally in cohorts])
    counts = np.array([[tally.n] for _, tally in cohorts])

    def weights_at(truth: Floats) -> Floats:
        variances = [m.variance(truth, tally.n) for m, tally in cohorts]
        return _WEIGHTS[method](counts * cohorts.allowing(truth, variances))

    def pooled(weights: Floats) -> Floats:
        value: Floats = (counts * weights * values).sum(axis=0) / (counts * weights).sum(axis=0)
        return value

    weights = weights_at(np.clip(pooled(weights_at(unweighted)), *cohorts.bounds))
    reach = forged * weights / ((counts * weights).sum(axis=0) + forged * weights)
    ends = [report_range(mechanism) for mechanism, _ in cohorts]
    centre = pooled(weights)
    down = (reach * (np.array([low for low, _ in ends]) - centre)).min(axis=0)
    up = (reach * (np.array([high for _, high in ends]) - centre)).max(axis=0)
    return Shift(np.minimum(down, 0), np.maximum(up, 0))


_WEIGHTS: Mapping[str, Callable[[Floats], Floats]] = {
    "inverse_variance": lambda variances: 1 / variances,
    "scalar": lambda variances: np.ones_like(variances) / variances.sum(axis=1, keepdims=True),
}
"""The weight of one report from the variances, both of shape (cohorts, parameters)."""


def _range(mechanism: Estimator) -> tuple[Floats, Floats]:
    if isinstance(mechanism, Supporting):
        # In every mechanism some code supports a parameter and some other does not.
        p, q = mechanism.support
        ends = (float(-q / (p - q)), float((1 - q) / (p - q)))
        return np.full(mechanism.parameters, ends[0]), np.full(mechanism.parameters, ends[1])
    if isinstance(mechanism, MeanMechanism):
        return np.array([float(min(mechanism.scores))]), np.array([float(max(mechanism.scores))])
    if isinstance(mechanism, SummingHistogram):
        return _between(mechanism, len(mechanism.weights) - 1)
    if isinstance(mechanism, PolicyUnary):
        return _between(mechanism, 1)
    if isinstance(mechanism, DBitFlip):
        no, yes = np.tile([1, 0], mechanism.k), np.tile([0, 1], mechanism.k)
        return mechanism.debias(Tally(1, no)), mechanism.debias(Tally(1, yes))
    if isinstance(mechanism, PolicySubsets):
        return _over_types(mechanism)
    if isinstance(mechanism, Counted) and mechanism.tally_size * mechanism.parameters <= MAX_MATRIX:
        low = np.full(mechanism.parameters, np.inf)
        high = -low
        for code in range(mechanism.tally_size):
            unit = np.zeros(mechanism.tally_size, dtype=np.int64)
            unit[code] = 1
            value = mechanism.debias(Tally(1, unit))
            low, high = np.minimum(low, value), np.maximum(high, value)
        return low, high
    raise InvalidInput(
        f"what one forged {mechanism.name} report can do is not known "
        f"({mechanism.parameters} parameters)"
    )


def _between(mechanism: Estimator, most: int) -> tuple[Floats, Floats]:
    """Return `report_range` where a report adds 0..most to each count, one count per category."""
    size = mechanism.tally_size
    none, all_ = np.zeros(size, dtype=np.int64), np.full(size, most)
    return mechanism.debias(Tally(1, none)), mechanism.debias(Tally(1, all_))


def _over_types(mechanism: PolicySubsets) -> tuple[Floats, Floats]:
    """Return `report_range` over all types, each with a category in the subset and out of it."""
    ends = []
    classes = np.array(mechanism.promise.classes)
    members = np.array(mechanism.promise.sizes)
    sizes = np.array(mechanism.sizes).reshape(mechanism.types, members.size)
    for kind in range(mechanism.types):
        counts = np.zeros(mechanism.tally_size, dtype=np.int64)
        counts[kind] = 1
        outside = mechanism.debias(Tally(1, counts))
        start = mechanism.types + kind * mechanism.k
        counts[start : start + mechanism.k] = 1
        inside = mechanism.debias(Tally(1, counts))
        chosen = sizes[kind]
        ends.append(np.where((chosen < members)[classes], outside, inside))
        ends.append(np.where((chosen > 0)[classes], inside, outside))
    return np.min(ends, axis=0), np.max(ends, axis=0)
