"""Histogram encodings: exact privacy, published variances, the noise that is meant."""

import math
from fractions import Fraction

import numpy as np
import pytest

from ldp import InvalidInput, SummingHistogram, UnaryEncoding, thresholding_histogram
from ldp.core.exact import ONE

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


@pytest.mark.parametrize(
    ("epsilon", "theta", "variance"),
    [(0.5, 0.562, 17.83), (1.0, 0.619, 4.81), (2.0, 0.710, 1.28), (4.0, 0.816, 0.285)],
)
def test_the_threshold_is_the_best_one(epsilon: float, theta: float, variance: float) -> None:
    mechanism = thresholding_histogram(8, epsilon)
    p, q = map(float, mechanism.support)
    assert -2 * math.log(2 * q) / epsilon == pytest.approx(theta, abs=5e-4)
    assert 1 - 0.5 * math.exp(epsilon * (theta - 1) / 2) == pytest.approx(p, abs=1e-3)
    assert float(mechanism.variance(0.0, 1)) == pytest.approx(variance, abs=0.005)
    for other in (theta - 0.02, theta + 0.02):
        q = 0.5 * math.exp(-epsilon * other / 2)
        p = 1 - 0.5 * math.exp(epsilon * (other - 1) / 2)
        assert q * (1 - q) / (p - q) ** 2 > float(mechanism.variance(0.0, 1))


@pytest.mark.parametrize(("epsilon", "unspent"), [(0.1, 0.01), (1.0, 0.10), (8.0, 0.38)])
def test_thresholded_bits_spend_less_than_their_noise(epsilon: float, unspent: float) -> None:
    spent = thresholding_histogram(4, epsilon).realised_epsilon / epsilon
    assert 1 - spent == pytest.approx(unspent, abs=0.005)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_thresholded_bits_that_spend_it_all_are_oue(epsilon: float) -> None:
    # Bits on the frontier (2a-1)(2b-1) = e**epsilon: the least variance is at a = 1, p = 1/2.
    best = min(
        (q * (1 - q) / (p - q) ** 2, p)
        for p in np.linspace(0.4, 0.9, 501)
        for q in [1 / (1 + math.exp(epsilon) * (1 - p) / p)]
    )
    assert best[1] == pytest.approx(0.5, abs=1e-9)
    assert best[0] == pytest.approx(float(UnaryEncoding(4, epsilon).variance(0.0, 1)))
    assert best[0] < float(thresholding_histogram(4, epsilon).variance(0.0, 1))


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_summing_on_its_own_grid_spends_epsilon(epsilon: float) -> None:
    # 255**k outputs are too many; two categories differ in two independent coordinates, so the
    # worst ratio is the square of a coordinate's, for every k >= 2.
    for k in (2, 3, 4, 5, 8, 16):
        mechanism = SummingHistogram(k, epsilon)
        rows = [[Fraction(w, ONE) for w in mechanism.weights]]
        rows.append(rows[0][::-1])
        assert sum(rows[0]) == 1
        worst = max(a / b for a, b in zip(*rows, strict=True))
        assert mechanism.realised_epsilon <= epsilon
        assert math.log(worst**2) == pytest.approx(mechanism.realised_epsilon, rel=1e-12)
        assert mechanism.realised_epsilon >= 0.999 * epsilon


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 20.0, 32.0])
@pytest.mark.parametrize(("steps", "reach"), [(1, 127), (253, 1), (16, 100)])
def test_extreme_grids_keep_epsilon(epsilon: float, steps: int, reach: int) -> None:
    mechanism = SummingHistogram.on_grid(4, epsilon, steps, reach)
    assert 0.999 * epsilon <= mechanism.realised_epsilon <= epsilon


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_summing_has_the_variance_of_wang_et_al_table_2(epsilon: float) -> None:
    expected = {0.5: 32.0, 1.0: 8.0, 2.0: 2.0, 4.0: 0.5}[epsilon]
    assert float(SummingHistogram(32, epsilon).variance(0.0, 1)) == pytest.approx(expected, 0.005)


def test_the_noise_is_discrete_laplace() -> None:
    mechanism = SummingHistogram.on_grid(4, 2.0, 8, 100)
    weights = np.array(mechanism.weights, dtype=float) / ONE
    decay = math.exp(-2.0 / 16)
    distance = np.abs(np.arange(209) - 100)
    assert weights[1:-1] == pytest.approx(((1 - decay) / (1 + decay) * decay**distance)[1:-1])
    assert weights[0] == pytest.approx(decay**100 / (1 + decay))


def test_weights_of_a_plan_are_checked() -> None:
    honest = SummingHistogram.on_grid(4, 1.0, 1, 1)
    up, *rest = honest.weights
    with pytest.raises(InvalidInput, match="she: the integers give epsilon"):
        SummingHistogram(4, 1.0, (up + 10**12, rest[0], rest[1], rest[2] - 10**12))
    with pytest.raises(InvalidInput, match=r"weights must be positive and sum to 2\*\*64"):
        SummingHistogram(4, 1.0, (up + 1, *rest))
    with pytest.raises(InvalidInput, match="must put other categories lower"):
        SummingHistogram(4, 1.0, honest.weights[::-1])
    with pytest.raises(InvalidInput, match=r"a grid has 2\.\.256 levels, got 1"):
        SummingHistogram(4, 1.0, (ONE,))
    with pytest.raises(InvalidInput, match=r"steps \+ 2 reach below 256, got 2 and 127"):
        SummingHistogram.on_grid(4, 1.0, 2, 127)
    with pytest.raises(InvalidInput, match=r"255\*\*4 codes is too large"):
        SummingHistogram(4, 1.0).channel()
