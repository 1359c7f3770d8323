"""Consistency: what each method gives, and what it does to the error."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from populations import zipf

from ldp import Estimate, InvalidInput
from ldp.estimating.consistency import METHODS, make_consistent, project

Floats = NDArray[np.float64]


def noisy(values: list[float], error: float = 0.05, n: int = 1000) -> Estimate:
    array = np.array(values)
    return Estimate(array, np.full(array.size, error), n, (0.0, 1.0))


RAW = noisy([0.7, 0.4, 0.1, -0.3])


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("norm", [0.725, 0.425, 0.125, -0.275]),
        ("norm-mul", [0.7 / 1.2, 0.4 / 1.2, 0.1 / 1.2, 0.0]),
        ("norm-cut", [0.7 / 1.1, 0.4 / 1.1, 0.0, 0.0]),
        ("norm-sub", [0.7 - 1 / 15, 0.4 - 1 / 15, 0.1 - 1 / 15, 0.0]),
        ("base-cut", [0.7, 0.4, 0.0, 0.0]),  # the threshold is 2.24 standard errors
    ],
)
def test_methods_on_an_example_done_by_hand(method: str, expected: list[float]) -> None:
    assert make_consistent(RAW, method).value == pytest.approx(expected)


def test_norm_cut_of_too_little_mass_fills_up() -> None:
    assert make_consistent(noisy([0.5, 0.3, -0.1]), "norm-cut").value == pytest.approx(
        [0.625, 0.375, 0.0]
    )


@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_method_the_raw_values_and_their_error_stay_attached(method: str) -> None:
    result = make_consistent(RAW, method)
    assert (result.method, result.raw, result.n) == (method, RAW, 1000)
    assert np.array_equal(result.standard_error, RAW.standard_error)
    for ours, raw in zip(result.interval(0.9), RAW.interval(0.9), strict=True):
        assert np.array_equal(ours, raw)


@pytest.mark.parametrize("method", ["norm-mul", "norm-cut", "norm-sub", "power-ns"])
@given(values=st.lists(st.floats(-0.5, 1.5), min_size=2, max_size=40))
def test_distributions_come_out(method: str, values: list[float]) -> None:
    if method in ("norm-mul", "norm-cut") and max(values) <= 0:
        with pytest.raises(InvalidInput, match="no estimated frequency is positive"):
            make_consistent(noisy(values), method)
        return
    result = make_consistent(noisy(values), method).value
    assert result.min() >= 0
    assert result.sum() == pytest.approx(1)


@given(values=st.lists(st.floats(-2, 2), min_size=2, max_size=12))
def test_norm_sub_is_the_nearest_distribution(values: list[float]) -> None:
    # At the projection x of v no vertex of the simplex lies in the direction v - x.
    array = np.array(values)
    nearest = project(array)
    pull = array - nearest
    assert pull.max() <= pull @ nearest + 1e-9


def test_power_keeps_what_is_certain() -> None:
    raw = noisy([0.6, 0.3, 0.0995, 0.0005], error=1e-5, n=10**9)
    assert make_consistent(raw, "power").value == pytest.approx(raw.value, abs=1e-5)


def test_power_shrinks_what_noise_explains() -> None:
    values = make_consistent(noisy([0.9] + [0.05] * 50, error=0.05), "power").value
    assert values[0] == pytest.approx(0.9, abs=0.02)
    assert 0 < values[1] < 0.03


def test_power_is_the_posterior_mean_of_its_prior() -> None:
    # An independent integral: counts 1..n one by one, with the prior's mean fitted to 1/k.
    k, n, error = 20, 1000, 0.02
    counts = np.arange(1, n + 1, dtype=float)
    exponents = np.linspace(0, 4, 40001)
    means = np.array([np.average(counts, weights=counts**-a) / n for a in exponents[::20]])
    exponent = exponents[::20][np.argmin(np.abs(means - 1 / k))]
    value = np.linspace(-0.05, 0.4, k)
    likelihood = np.exp(-(((value[:, None] - counts / n) / error) ** 2) / 2)
    weight = likelihood * counts**-exponent
    expected = (weight @ counts) / n / weight.sum(axis=1)
    ours = make_consistent(noisy(list(value), error, n), "power").value
    # The density is ours on an interval, theirs on integers: they differ near one count.
    assert ours == pytest.approx(expected, abs=0.1 * error)


def mse_ratios(truth: Floats, epsilon: float, method: str) -> tuple[float, float, float]:
    """MSE of a method over that of the raw estimate: all, the ten largest, random half sets."""
    rng = np.random.default_rng(7)
    k, n, p, q = truth.size, 100_000, 0.5, 1 / (np.exp(epsilon) + 1)
    sets = rng.random((50, k)) < 0.5
    ratios = []
    for _ in range(40):
        counts = rng.multinomial(n, truth)
        support = rng.binomial(counts, p) + rng.binomial(n - counts, q)
        value = (support / n - q) / (p - q)
        s = np.clip(value, 0, 1) * (p - q) + q
        raw = Estimate(value, np.sqrt(s * (1 - s) / n) / (p - q), n, (0.0, 1.0))
        errors = []
        for estimate in (make_consistent(raw, method).value, value):
            error = estimate - truth
            errors.append(
                [np.mean(error**2), np.mean(error[:10] ** 2), np.mean((sets @ error) ** 2)]
            )
        ratios.append(errors)
    ours, raw_error = np.mean(ratios, axis=0)
    full, top, half = ours / raw_error
    return float(full), float(top), float(half)


# Published to two digits for k = 256 without the seeds; sets of half the values vary most.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "full", "top", "half"),
    [
        ("norm", 1.00, 0.99, 0.66),
        ("norm-mul", 1.60, 38.9, 0.66),
        ("norm-sub", 0.25, 1.44, 0.11),
        ("base-cut", 0.25, 3.26, 6.45),
        ("power-ns", 0.16, 1.86, 0.10),
    ],
)
def test_errors_of_a_skewed_table(method: str, full: float, top: float, half: float) -> None:
    ours = mse_ratios(zipf(256, 1.3), 1.0, method)
    assert ours[0] == pytest.approx(full, rel=0.2)
    assert ours[1] == pytest.approx(top, rel=0.25)
    assert ours[2] == pytest.approx(half, rel=0.35)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "full"), [("norm-mul", 0.40), ("norm-sub", 0.52), ("power-ns", 0.06)]
)
def test_errors_of_a_flat_table(method: str, full: float) -> None:
    assert mse_ratios(np.full(256, 1 / 256), 1.0, method)[0] == pytest.approx(full, rel=0.15)


@pytest.mark.slow
def test_the_rule_holds_that_no_method_beats_the_raw_heads() -> None:
    assert all(mse_ratios(zipf(256, 1.3), 1.0, method)[1] > 0.95 for method in METHODS)


@pytest.mark.parametrize(
    ("raw", "method", "options", "message"),
    [
        (RAW, "clip", {}, "unknown method 'clip'; the methods are"),
        (Estimate(np.zeros(2), np.ones(2), 9, (-1.0, 1.0)), "norm", {}, "the frequencies of 2"),
        (RAW, "base-cut", {"expected_false": 4.0}, "expected_false must lie strictly between"),
    ],
)
def test_nonsense_is_refused(
    raw: Estimate, method: str, options: dict[str, float], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        make_consistent(raw, method, **options)
