"""Planned sizes against published numbers, their own inverses and simulation."""

import math

import numpy as np
import pytest

from ldp import (
    KRR,
    CountMeanSketch,
    HadamardResponse,
    InvalidInput,
    Mechanism,
    OneBitMean,
    OrderedExponential,
    Tally,
    UnaryEncoding,
)
from ldp.planning.sizes import (
    detectable_change,
    detectable_value,
    half_width,
    least_epsilon,
    sample_size,
    two_wave_power,
    two_wave_sample_size,
)
from ldp.testing import SeededCoins


@pytest.mark.parametrize(
    ("mechanism", "pointwise", "simultaneous"),
    [
        (UnaryEncoding(10, 0.5), 609286, 1249741),
        (UnaryEncoding(10, 1.0), 148768, 305147),
        (KRR(10, 2.0), 22750, 46663),
        (KRR(10, 4.0), 4868, 9985),
    ],
    ids=repr,
)
def test_reports_for_one_point_at_a_tenth(
    mechanism: Mechanism, pointwise: int, simultaneous: int
) -> None:
    assert sample_size(mechanism, 0.1, 0.01) == pointwise
    # The reference figures are rounded to the nearest integer, ours always up.
    assert 0 <= sample_size(mechanism, 0.1, 0.01, simultaneous=True) - simultaneous <= 1


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        (UnaryEncoding(100, 0.5), 15.07e6),
        (UnaryEncoding(100, 1.0), 3.556e6),
        (UnaryEncoding(100, 2.0), 714e3),
        (KRR(100, 4.0), 78.1e3),
    ],
    ids=repr,
)
def test_reports_for_a_fifth_of_a_point_at_a_hundredth(
    mechanism: Mechanism, expected: float
) -> None:
    assert sample_size(mechanism, 0.01, 0.002) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("simultaneous", [False, True])
def test_the_sample_size_is_the_least_that_suffices(simultaneous: bool) -> None:
    mechanism = KRR(10, 1.0)
    n = sample_size(mechanism, 0.1, 0.01, simultaneous=simultaneous)
    assert half_width(mechanism, 0.1, n, simultaneous=simultaneous) <= 0.01
    assert half_width(mechanism, 0.1, n - 1, simultaneous=simultaneous) > 0.01


def test_the_planned_half_width_is_the_one_that_estimates_have(coins: SeededCoins) -> None:
    mechanism, n = KRR(4, 1.0), 200_000
    values = np.repeat(np.arange(4), n // 4)
    estimate = mechanism.estimate(mechanism.tally(mechanism.randomize_many(values, coins)))
    low, high = estimate.interval(0.9, simultaneous=True)
    planned = half_width(mechanism, 0.25, n, confidence=0.9, simultaneous=True)
    assert (high - low) / 2 == pytest.approx(planned, rel=0.01)


def test_of_several_parameters_the_worst_decides() -> None:
    mechanism = KRR(4, 1.0)
    truth = np.array([0.7, 0.1, 0.1, 0.1])
    widths = [half_width(mechanism, f, 1000) for f in truth]
    assert half_width(mechanism, truth, 1000) == max(widths)


@pytest.mark.parametrize(
    "mechanism", [HadamardResponse(1000, 4.0), OrderedExponential(16, 1.0)], ids=repr
)
def test_one_value_is_planned_with_the_noise_of_the_others(mechanism: Mechanism) -> None:
    uniform = np.full(mechanism.parameters, 1 / mechanism.parameters)
    n = sample_size(mechanism, uniform[0], 0.01)
    assert n == sample_size(mechanism, uniform, 0.01)
    if mechanism.name == "hadamard":
        assert n == 5843


def test_the_truth_planned_for_matters_to_tables() -> None:
    mechanism = OrderedExponential(8, 1.0)
    widths = [half_width(mechanism, f, 1000) for f in (0, 0.1, 0.5, 1)]
    assert len(set(widths)) == 4


def test_no_absent_category_is_detected() -> None:
    mechanism, n, runs = HadamardResponse(256, 4.0), 10_000, 400
    truth = np.full(256, 1 / 128)
    absent = np.random.default_rng(1).permutation(256)[:128]
    truth[absent] = 0
    tallies = np.random.default_rng(2).multinomial(n, truth @ mechanism.matrix(), size=runs)
    limit = detectable_value(mechanism, n)
    alarms = [(mechanism.debias(Tally(n, t))[absent] > limit).any() for t in tallies]
    assert np.mean(alarms) <= 0.05


def test_what_collisions_leave_is_planned_for() -> None:
    sketch = CountMeanSketch(100, 4.0, hashes=64, buckets=64)
    n = sample_size(sketch, 0.01, 0.035)
    assert half_width(sketch, 0.01, n) <= 0.035 < half_width(sketch, 0.01, n - 1)
    with pytest.raises(InvalidInput, match=r"out of reach, 1e\+18 reports leave 0.0156"):
        sample_size(sketch, 0.01, 0.03)
    with pytest.raises(InvalidInput, match="out of reach"):
        two_wave_sample_size(sketch, 0.01, 0.06)


def test_the_least_epsilon_for_rare_categories_has_its_closed_form() -> None:
    # OUE at f = 0: epsilon = 2 asinh(z / (h sqrt n)), rounded up by at most 1e-6.
    expected = 2 * math.asinh(1.959964 / (0.01 * math.sqrt(100_000)))
    found = least_epsilon(lambda epsilon: UnaryEncoding(10, epsilon), 0.0, 100_000, 0.01)
    assert found == pytest.approx(expected, rel=2e-6)
    assert half_width(UnaryEncoding(10, found), 0.0, 100_000) <= 0.01


def test_numbers_can_be_planned_too() -> None:
    n = sample_size(OneBitMean(1.0), 0.0, 0.01)
    assert n == pytest.approx(1.959964**2 * 4.683 / 0.01**2, rel=1e-3)


def test_reports_per_wave_for_a_change_of_one_point() -> None:
    """(1.960 + 0.842)**2 (V(.1) + V(.11)) / .01**2, with V of the optimized unary encoding."""
    mechanism = UnaryEncoding(10, 1.0)
    variances = mechanism.variance(0.1, 1) + mechanism.variance(0.11, 1)
    expected = (1.959964 + 0.841621) ** 2 * float(variances) / 0.01**2
    assert two_wave_sample_size(mechanism, 0.1, 0.01) == pytest.approx(expected, rel=1e-5)


def test_size_power_and_detectable_change_are_each_others_inverses() -> None:
    mechanism = KRR(10, 1.0)
    n = two_wave_sample_size(mechanism, 0.1, 0.02, power=0.9)
    assert two_wave_power(mechanism, 0.1, 0.02, n) == pytest.approx(0.9, abs=1e-4)
    assert detectable_change(mechanism, 0.1, n, power=0.9) == pytest.approx(0.02, rel=1e-4)


def test_the_planned_power_is_reached(coins: SeededCoins) -> None:
    mechanism, runs, z = KRR(2, 1.0), 4000, 1.959964
    n = two_wave_sample_size(mechanism, 0.3, 0.05)
    p, q = map(float, mechanism.support)
    rng = np.random.default_rng(1)
    seen = rng.binomial(n, np.array([[0.3], [0.35]]) * (p - q) + q, size=(2, runs)) / n
    error = np.sqrt((seen * (1 - seen)).sum(axis=0) / n)
    assert np.mean(np.abs(seen[1] - seen[0]) > z * error) == pytest.approx(0.8, abs=0.02)


def test_the_threshold_of_detection_of_a_thousand_categories() -> None:
    assert detectable_value(UnaryEncoding(1024, 1.0), 10**6) == pytest.approx(0.00748, abs=5e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: half_width(KRR(4, 1.0), 0.1, 0), "n must be at least 1, got 0"),
        (lambda: half_width(KRR(4, 1.0), 1.5, 9), r"must lie in \[0, 1\], got 1.5"),
        (lambda: half_width(KRR(4, 1.0), 0.1, 9, confidence=1.0), "confidence must lie strictly"),
        (lambda: sample_size(KRR(4, 1.0), 0.1, 0.0), "target must be finite and > 0, got 0.0"),
        (
            lambda: two_wave_sample_size(KRR(4, 1.0), 0.1, 0.01, power=0.01),
            "a power of 0.01 takes no reports",
        ),
        (
            lambda: least_epsilon(lambda e: KRR(4, e), 0.5, 100, 0.001),
            "needs more than 100 reports at any epsilon",
        ),
        (
            lambda: least_epsilon(lambda e: KRR(4, e), 0.5, 10**12, 1.0),
            "takes an epsilon below 0.0001",
        ),
    ],
)
def test_impossible_plans_are_refused(call: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()  # type: ignore[operator]
