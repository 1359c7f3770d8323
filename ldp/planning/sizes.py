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

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.estimation import LEAST_PANELS, LEAST_REPORTS
from ldp.core.exact import MAX_EPSILON
from ldp.core.intervals import below, check_confidence, critical_value, quantile
from ldp.core.mechanism import Mechanism
from ldp.errors import InvalidInput

_HALVINGS = 50
"""Halvings that find a change to 15 digits."""

Floats = NDArray[np.float64]

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
    same_people: bool = False,
    panels: int = 0,
) -> int:
    """Return the reports per wave that show a change of `change` with probability `power`.

    For two waves of equal size, the first of this truth, and the two-sided test at 1 - confidence:
    the least n with z_{1 - alpha/2} tested(n) + z_power error(n) <= change. The error is that of
    the difference between an estimate at the truth and one at truth + change or - change, whichever
    is noisier (of truths of all parameters, both at the truth); the test takes the larger one of
    this error and that of estimates at the mean of the two truths, so that changes of rare values
    are shown oftener than planned. With `same_people` it has the most that people could make who
    may answer in both waves, as `ldp.estimating.change.difference` allows for; with `panels` that
    test takes the error from so many panels, so that the quantiles are those of Student's
    distribution, and the error is that of different people: the same ones who mostly keep their
    answers have less, and n is at least `LEAST_REPORTS` for each panel. Raises `InvalidInput`
    unless 1 - confidence < power < 1 and the change is positive, for fewer than `LEAST_PANELS`
    panels, for both of the two, and where no number of reports shows it.
    """
    degrees = _degrees(panels, same_people)
    target = _check_positive(change, "change") / detection_reach(confidence, power, degrees)

    def error(n: int) -> float:
        return _weighed(mechanism, truth, change, n, same_people, degrees, confidence, power)

    return max(_least(mechanism, error, target), LEAST_REPORTS * panels)


def two_wave_power(
    mechanism: Mechanism,
    truth: ArrayLike,
    change: float,
    n: int,
    *,
    confidence: float = 0.95,
    same_people: bool = False,
    panels: int = 0,
) -> float:
    """Return the probability that two waves of n reports each show a change of `change`.

    Tests, options and errors are those of `two_wave_sample_size`. If waves do have people in common
    who keep their answers, the probability is at least as large. With fewer than `LEAST_REPORTS`
    reports for each panel the test is the one without panels, with `same_people`.
    """
    panels, same_people = _by_panels(panels, same_people, n)
    degrees = _degrees(panels, same_people)
    _check_positive(change, "change")
    errors = _errors(mechanism, truth, change, n, same_people, degrees)
    if degrees:
        from scipy.special import nctdtr

        shift = change / max(true for _, true in errors)
        reach = critical_value(confidence, degrees=degrees)
        return float(1 - nctdtr(degrees, shift, reach) + nctdtr(degrees, shift, -reach))
    z = critical_value(confidence)
    return min(
        below((change - z * told) / true) + below((-change - z * told) / true)
        for told, true in errors
    )


def detectable_change(
    mechanism: Mechanism,
    truth: ArrayLike,
    n: int,
    *,
    confidence: float = 0.95,
    power: float = 0.8,
    same_people: bool = False,
    panels: int = 0,
) -> float:
    """Return the least change that two waves of n reports each show with probability `power`.

    Tests, options and errors are those of `two_wave_power`; it is at most the range of the
    parameter.
    """
    panels, same_people = _by_panels(panels, same_people, n)
    degrees = _degrees(panels, same_people)
    reach = detection_reach(confidence, power, degrees)
    low, high = 0.0, mechanism.bounds[1] - mechanism.bounds[0]
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        error = _weighed(mechanism, truth, middle, n, same_people, degrees, confidence, power)
        low, high = (low, middle) if reach * error <= middle else (middle, high)
    return high


def detectable_value(mechanism: Mechanism, n: int, *, confidence: float = 0.95) -> float:
    """Return the estimate above which a parameter is not zero, over all parameters at once.

    z_{1 - alpha/parameters} times the standard error at zero: with probability `confidence`
    no absent category exceeds it (Bonferroni), where the others share the population as evenly
    as `Mechanism.variance` takes them to.
    """
    miss = (1 - check_confidence(confidence)) / mechanism.parameters
    return -quantile(miss) * _error(mechanism, 0, n)


def _error(mechanism: Mechanism, truth: ArrayLike, n: int) -> float:
    """Return the largest standard error of an estimate from n reports."""
    return math.sqrt(np.max(_variance(mechanism, _planned(mechanism, truth, n), n)))


def _planned(mechanism: Mechanism, truth: ArrayLike, n: int) -> Floats:
    if n < 1:
        raise InvalidInput(f"n must be at least 1, got {n}")
    array = np.asarray(truth, dtype=float)
    low, high = mechanism.bounds
    if not array.size or not np.all((array >= low) & (array <= high)):
        raise InvalidInput(f"the truth planned for must lie in [{low:g}, {high:g}], got {truth!r}")
    return array


def _variance(mechanism: Mechanism, truth: Floats, n: int) -> Floats:
    return np.asarray(mechanism.variance(truth, n))


def _weighed(
    mechanism: Mechanism,
    truth: ArrayLike,
    change: float,
    n: int,
    same_people: bool,
    degrees: int,
    confidence: float,
    power: float,
) -> float:
    """Return the error that, times `detection_reach`, is the change shown by n reports each.

    A change is shown where it is z_{1 - alpha/2} errors of the test and z_power true ones.
    """
    errors = _errors(mechanism, truth, change, n, same_people, degrees)
    test, chance = critical_value(confidence), quantile(power)
    return max((test * told + chance * true) / (test + chance) for told, true in errors)


def _errors(
    mechanism: Mechanism, truth: ArrayLike, change: float, n: int, same_people: bool, degrees: int
) -> list[tuple[float, float]]:
    """Return the standard errors of a difference that the test tells, and the true ones.

    One pair for a change up and one down. A test by panels tells the true one.
    """
    before = _planned(mechanism, truth, n)
    low, high = mechanism.bounds
    later = [before] if before.ndim else [before + change, before - change]
    found = []
    for after in (np.clip(each, low, high) for each in later):
        tested, true = (
            math.sqrt(np.max(each)) for each in _between(mechanism, before, after, n, same_people)
        )
        found.append((true if degrees else tested, true))
    return found


def _between(
    mechanism: Mechanism, before: Floats, after: Floats, n: int, same_people: bool
) -> tuple[Floats, Floats]:
    """Return the variances of differences that the test takes, and the true ones.

    The test of `ldp.estimating.differences` takes the larger one of the waves' own and of two at
    their mean; that of `ldp.estimating.change`, which allows for the same people, takes the larger
    ones of each wave's noise and truths.
    """
    low, high = mechanism.bounds
    spreads, noises = [], []
    for truth in (before, after, (before + after) / 2):
        whole = _variance(mechanism, truth, n)
        spreads.append(np.minimum(whole, (high - truth) * (truth - low) / n))
        noises.append(whole - spreads[-1])
    own = spreads[0] + noises[0] + spreads[1] + noises[1]
    if not same_people:
        return np.maximum(own, 2 * (spreads[2] + noises[2])), own
    largest = [np.maximum(each, spreads[2]) for each in spreads[:2]]
    tested = sum(largest) + sum(np.maximum(each, noises[2]) for each in noises[:2])
    if (low, high) == (0.0, 1.0):  # Frechet's bound of the covariance
        both = 2 * np.minimum(before * after, (1 - before) * (1 - after)) / n
        return np.asarray(tested + both), np.asarray(own + both)
    return (
        np.asarray(tested + 2 * np.sqrt(largest[0] * largest[1])),
        np.asarray(own + 2 * np.sqrt(spreads[0] * spreads[1])),
    )


def _least_n(mechanism: Mechanism, truth: ArrayLike, error: float) -> int:
    """Return the least n whose standard error is at most `error`."""
    return _least(mechanism, lambda n: _error(mechanism, truth, n), error)


def _least(mechanism: Mechanism, error: Callable[[int], float], most: float) -> int:
    """Return the least n of an error of at most `most`, which falls as n grows."""
    least = error(_MAX_N)
    if least > most:
        raise InvalidInput(
            f"{mechanism.name}: a standard error of {most:.3g} is out of reach, "
            f"{_MAX_N:.0e} reports leave {least:.3g}"
        )
    return 1 + bisect_left(range(1, _MAX_N), True, key=lambda n: error(n) <= most)


def _reach(mechanism: Mechanism, confidence: float, simultaneous: bool) -> float:
    return critical_value(confidence, mechanism.parameters if simultaneous else 1)


def _degrees(panels: int, same_people: bool) -> int:
    """Return the degrees of freedom of a test by panels; 0 of one without."""
    if panels < 0 or 0 < panels < LEAST_PANELS:
        raise InvalidInput(
            f"errors by panels take {LEAST_PANELS} panels at least, or 0 for none, got {panels}"
        )
    if panels and same_people:
        raise InvalidInput("panels tell the error, whoever answers: leave out same_people")
    return panels - 1 if panels else 0


def _by_panels(panels: int, same_people: bool, n: int) -> tuple[int, bool]:
    """Return the panels by which n reports are tested, and whether the same people may answer.

    With too few reports the test is the one without panels.
    """
    _degrees(panels, same_people)
    return (0, True) if n < LEAST_REPORTS * panels else (panels, same_people)


def detection_reach(confidence: float, power: float, degrees: int = 0) -> float:
    """Return how many standard errors a change must be to be found with probability `power`.

    By the two-sided test at 1 - confidence; with `degrees` of Student's distribution. Raises
    `InvalidInput` unless 1 - confidence < power < 1.
    """
    if not 1 - confidence < _check_share(power, "power"):
        raise InvalidInput(f"a power of {power} takes no reports at a confidence of {confidence}")
    if degrees:
        from scipy.special import nctdtrinc

        reach = critical_value(confidence, degrees=degrees)
        return float(nctdtrinc(degrees, 1 - power, reach))
    return critical_value(confidence) + quantile(power)


def _check_share(value: float, what: str) -> float:
    if not 0 < value < 1:
        raise InvalidInput(f"{what} must lie strictly between 0 and 1, got {value}")
    return value


def _check_positive(value: float, what: str) -> float:
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{what} must be finite and > 0, got {value}")
    return value
