"""Plan a survey: how many reports, how much epsilon, how small a change.

Everything follows from a mechanism's own `variance(truth, n)` of an estimate of
the population. It falls as 1/n, but for the sketches, whose collisions leave an error that no
number of reports removes. `truth` is the planned value of one parameter, the others being unknown
(see `Mechanism.variance`), or of all of them, an array of shape (parameters,). The
parameter of largest variance decides. For rare categories plan with 0.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from ldp.core.exact import MAX_EPSILON
from ldp.core.mechanism import Mechanism
from ldp.core.repeated import Repeats
from ldp.errors import InvalidInput

ALL_DIFFERENT = Repeats()
"""Reports that are all of different people."""

SAME_PEOPLE = Repeats(2.0)
"""Two waves of equal size in which the same people may answer, each time afresh."""

_NORMAL = NormalDist()

_MAX_N = 10**18
"""The largest number of reports that is tried."""


def half_width(
    mechanism: Mechanism,
    truth: ArrayLike,
    n: int,
    *,
    confidence: float = 0.95,
    simultaneous: bool = False,
) -> float:
    """Return the half-width of the confidence interval that n reports will give.

    With `simultaneous` the intervals of all parameters cover at once (Bonferroni). Raises
    `InvalidInput` unless n >= 1, 0 < confidence < 1 and the truth lies in the bounds.
    """
    return _reach(mechanism, confidence, simultaneous) * _error(mechanism, truth, n)


def sample_size(
    mechanism: Mechanism,
    truth: ArrayLike,
    target: float,
    *,
    confidence: float = 0.95,
    simultaneous: bool = False,
) -> int:
    """Return the least n whose half-width is at most `target`.

    Raises `InvalidInput` as `half_width` does, unless the target is finite and positive, and
    where no number of reports reaches it.
    """
    reach = _reach(mechanism, confidence, simultaneous)
    return _least_n(mechanism, truth, _check_positive(target, "target") / reach)


def least_epsilon(
    make: Callable[[float], Mechanism],
    truth: ArrayLike,
    n: int,
    target: float,
    *,
    confidence: float = 0.95,
    simultaneous: bool = False,
) -> float:
    """Return the least epsilon, to 1e-6 relative and rounded up, whose half-width is `target`.

    `make(epsilon)` builds the mechanism; its half-width must fall as epsilon grows. Raises
    `InvalidInput` where even epsilon = 32 is not enough, or 1e-4 is more than needed.
    """
    _check_positive(target, "target")

    def width(epsilon: float) -> float:
        return half_width(make(epsilon), truth, n, confidence=confidence, simultaneous=simultaneous)

    low, high = 1e-4, MAX_EPSILON
    if width(high) > target:
        raise InvalidInput(
            f"a half-width of {target:g} needs more than {n} reports at any epsilon: "
            f"at {high:g} it is {width(high):.3g}"
        )
    if width(low) <= target:
        raise InvalidInput(f"a half-width of {target:g} takes an epsilon below {low:g}")
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if width(middle) <= target else (middle, high)
    return high


def two_wave_sample_size(
    mechanism: Mechanism,
    truth: ArrayLike,
    change: float,
    *,
    confidence: float = 0.95,
    power: float = 0.8,
    repeats: Repeats = ALL_DIFFERENT,
) -> int:
    """Return the reports per wave that show a change of `change` with probability `power`.

    For two waves of equal size and the two-sided test at 1 - confidence, which
    `ldp.estimating.differences` performs: the least n with
    (z_{1 - alpha/2} + z_power) sqrt(2 variance(truth, n)) <= change. With `SAME_PEOPLE` the
    variance has what the test allows for where they may answer in both waves. Raises
    `InvalidInput` unless 1 - confidence < power < 1 and the change is positive, and where no
    number of reports shows it.
    """
    reach = _detection_reach(confidence, power) * math.sqrt(2)
    return _least_n(mechanism, truth, _check_positive(change, "change") / reach, repeats)


def two_wave_power(
    mechanism: Mechanism,
    truth: ArrayLike,
    change: float,
    n: int,
    *,
    confidence: float = 0.95,
    repeats: Repeats = ALL_DIFFERENT,
) -> float:
    """Return the probability that two waves of n reports each show a change of `change`.

    If waves do have people in common who keep their answers, it is at least as large.
    """
    spread = math.sqrt(2) * _error(mechanism, truth, n, repeats)
    shift = _check_positive(change, "change") / spread
    reach = _two_sided(confidence)
    return _NORMAL.cdf(shift - reach) + _NORMAL.cdf(-shift - reach)


def detectable_change(
    mechanism: Mechanism,
    truth: ArrayLike,
    n: int,
    *,
    confidence: float = 0.95,
    power: float = 0.8,
) -> float:
    """Return the least change that two waves of n reports each show with probability `power`."""
    spread = math.sqrt(2) * _error(mechanism, truth, n)
    return _detection_reach(confidence, power) * spread


def detectable_value(mechanism: Mechanism, n: int, *, confidence: float = 0.95) -> float:
    """Return the estimate above which a parameter is not zero, over all parameters at once.

    z_{1 - alpha/parameters} times the standard error at zero: with probability `confidence`
    no absent category exceeds it (Bonferroni), where the others share the population as evenly
    as `Mechanism.variance` takes them to.
    """
    miss = (1 - _check_share(confidence, "confidence")) / mechanism.parameters
    return _NORMAL.inv_cdf(1 - miss) * _error(mechanism, 0, n)


def _error(
    mechanism: Mechanism, truth: ArrayLike, n: int, repeats: Repeats = ALL_DIFFERENT
) -> float:
    """Return the largest standard error of an estimate from n reports."""
    if n < 1:
        raise InvalidInput(f"n must be at least 1, got {n}")
    array = np.asarray(truth, dtype=float)
    low, high = mechanism.bounds
    if not array.size or not np.all((array >= low) & (array <= high)):
        raise InvalidInput(f"the truth planned for must lie in [{low:g}, {high:g}], got {truth!r}")
    variance = mechanism.variance(array, n)
    truths = np.minimum(variance, (high - array) * (array - low) / n)
    return math.sqrt(np.max(variance + repeats.more(variance, truths)))


def _least_n(
    mechanism: Mechanism, truth: ArrayLike, error: float, repeats: Repeats = ALL_DIFFERENT
) -> int:
    """Return the least n whose standard error is at most `error`."""
    least = _error(mechanism, truth, _MAX_N, repeats)
    if least > error:
        raise InvalidInput(
            f"{mechanism.name}: a standard error of {error:.3g} is out of reach, "
            f"{_MAX_N:.0e} reports leave {least:.3g}"
        )
    return 1 + bisect_left(
        range(1, _MAX_N), True, key=lambda n: _error(mechanism, truth, n, repeats) <= error
    )


def _reach(mechanism: Mechanism, confidence: float, simultaneous: bool) -> float:
    return _two_sided(confidence, mechanism.parameters if simultaneous else 1)


def _two_sided(confidence: float, parameters: int = 1) -> float:
    miss = (1 - _check_share(confidence, "confidence")) / parameters
    return _NORMAL.inv_cdf(1 - miss / 2)


def _detection_reach(confidence: float, power: float) -> float:
    if not 1 - confidence < _check_share(power, "power"):
        raise InvalidInput(f"a power of {power} takes no reports at a confidence of {confidence}")
    return _two_sided(confidence) + _NORMAL.inv_cdf(power)


def _check_share(value: float, what: str) -> float:
    if not 0 < value < 1:
        raise InvalidInput(f"{what} must lie strictly between 0 and 1, got {value}")
    return value


def _check_positive(value: float, what: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{what} must be finite and > 0, got {value}")
    return value
