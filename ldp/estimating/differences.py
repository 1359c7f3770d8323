"""Differences between two populations, each with a test, and the correction for many tests.

Two parts of the reports, such as two periods or two levels, each have a stratified estimate. The
differences of these have the sum of their variances, where reports are of different people. Where
a person may be in both parts, `Cohorts.repeats` must have the factors of both parts together
(`ldp.core.repeated`): that bound holds for any weights of the reports, negative ones too, so the
sum of the variances that it gives is not too small, whether people keep their answers or change
them.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from ldp.core.estimation import Cohorts, Estimate
from ldp.core.intervals import Interval, around, critical_value
from ldp.errors import InvalidInput
from ldp.estimating.strata import stratified

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Differences:
    """The second estimate less the first; all arrays have shape (parameters,).

    `standard_error` is the larger of that at the two estimates and that where the two are of one
    population, so that tests and intervals agree, and a value that one part never reported has
    an error. `p_value` is of the two-sided test of each parameter by itself that there is no
    difference; `adjusted_p_value` allows for all of them (`holm`).
    """

    first: Estimate
    second: Estimate
    value: Floats
    standard_error: Floats
    p_value: Floats
    adjusted_p_value: Floats

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval:
        """Return intervals (low, high) of the differences, each of shape (parameters,).

        Each covers its own difference with probability `confidence`; with `simultaneous` all do
        at once (Bonferroni). Raises `InvalidInput` unless 0 < confidence < 1.
        """
        z = critical_value(confidence, self.value.size if simultaneous else 1)
        widest = self.first.bounds[1] - self.first.bounds[0]
        return around(self.value, z * self.standard_error, (-widest, widest))


def differences(first: Cohorts, second: Cohorts) -> Differences:
    """Compare two parts of the reports, which have no report in common.

    The test is that of two independent samples with a normal statistic, whose power
    `ldp.planning.sizes.two_wave_power` plans. It says "different" of two like parts with the
    probability of its significance where some ten reports are expected on either side of every
    decision, and no oftener where the parts have people in common. Raises `InvalidInput` where
    the parts' parameters differ.
    """
    if (first.parameters, first.bounds) != (second.parameters, second.bounds):
        raise InvalidInput(
            f"the parts estimate {first.parameters} and {second.parameters} parameters in "
            f"{first.bounds} and {second.bounds}: they must be the same"
        )
    one, other = stratified(first), stratified(second)
    shared = (one.value * one.n + other.value * other.n) / (one.n + other.n)
    v, w = _variances(first, second, shared)
    v, w = _variances(first, second, (one.value / v + other.value / w) / (1 / v + 1 / w))
    apart = one.standard_error**2 + other.standard_error**2
    error = np.sqrt(np.maximum(v + w, apart))
    value = other.value - one.value
    p_value: Floats = 2 * ndtr(-np.abs(value) / error)
    return Differences(one, other, value, error, p_value, holm(p_value))


def holm(p_values: ArrayLike) -> Floats:
    """Return p-values that allow for all tests together, shape (tests,).

    Whoever rejects the hypotheses whose adjusted p-value is at most alpha rejects a true one with
    probability alpha at most, however the tests depend on each other. Source: Holm, "A simple
    sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.
    """
    given = np.asarray(p_values, dtype=float)
    order = np.argsort(given, kind="stable")
    rising = np.maximum.accumulate(given[order] * np.arange(given.size, 0, -1))
    adjusted = np.empty_like(given)
    adjusted[order] = np.minimum(rising, 1)
    return adjusted


def _variances(first: Cohorts, second: Cohorts, truth: Floats) -> tuple[Floats, Floats]:
    """Return the variances of both parts' estimates if both are of populations with this truth."""
    one, other = (stratified(part, at=truth).standard_error ** 2 for part in (first, second))
    return one, other
