"""The minimax constant, and the choice that comes close to it."""

import math

import numpy as np
import pytest

from ldp import KRR, InvalidInput, LocalHashing, UnaryEncoding
from ldp.planning.choice import choose, minimax_constant


@pytest.mark.parametrize(
    ("k", "epsilon", "expected"),
    [(8, 1, 22.6114), (16, 2, 10.1896), (64, 1, 228.4010), (1024, 1, 3763.7209), (1024, 4, 77.705)],
)
def test_minimax_constants_known_from_theory(k: int, epsilon: float, expected: float) -> None:
    assert minimax_constant(k, epsilon) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize("k", [2, 3, 4, 7, 50, 333])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 8.0])
def test_the_minimax_constant_is_the_least_over_all_subset_sizes(k: int, epsilon: float) -> None:
    e = math.exp(epsilon)
    least = min(
        (k - 1) ** 2 * (w * e + k - w) ** 2 / (k * w * (k - w) * (e - 1) ** 2) for w in range(1, k)
    )
    assert minimax_constant(k, epsilon) == pytest.approx(least, rel=1e-12)


@pytest.mark.parametrize(
    ("k", "epsilon", "ratios"),
    [
        (16, 1.0, (1.920, 1.172, 1.226, 1.179, 1.442)),
        (64, 1.0, (6.304, 1.041, 1.102, 1.044, 1.312)),
        (64, 4.0, (1.000, 1.446, 2.653, 1.447, 14.53)),
        (1024, 2.0, (35.11, 1.005, 1.275, 1.005, 2.386)),
    ],
)
def test_predicted_variances_over_the_minimax_constant(
    k: int, epsilon: float, ratios: tuple[float, ...]
) -> None:
    mechanisms = (
        KRR(k, epsilon),
        UnaryEncoding(k, epsilon),
        UnaryEncoding.symmetric(k, epsilon),
        LocalHashing.optimised(k, epsilon),
        LocalHashing.binary(k, epsilon),
    )
    for mechanism, ratio in zip(mechanisms, ratios, strict=True):
        total = float(mechanism.variance(np.full(k, 1 / k), 1).sum())
        # The buckets of a hash modulo a prime differ in size, which is worth 0.15% at k = 16.
        assert total / minimax_constant(k, epsilon) == pytest.approx(ratio, rel=2e-3)


@pytest.mark.parametrize("k", [2, 3, 4, 5, 8, 16, 31, 32, 100, 256, 257, 1000, 1024, 4096])
@pytest.mark.parametrize("epsilon", [0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 5.0])
def test_the_choice_is_within_two_per_cent_of_the_minimax_constant(k: int, epsilon: float) -> None:
    choice = choose(k, epsilon)
    assert 1 - 1e-9 <= choice.variance / minimax_constant(k, epsilon) <= 1.02
    assert choice.mechanism.epsilon == epsilon
    assert choice.mechanism.realised_epsilon <= epsilon


def test_krr_is_chosen_where_it_is_exactly_optimal() -> None:
    assert choose(4, math.log(2)).label == "krr"  # e**epsilon >= sqrt((k-1) (k-2) / 2)
    assert choose(64, 4.0).label == "krr"
    assert choose(64, 1.0).label != "krr"


def test_limits_leave_out_what_exceeds_them() -> None:
    assert choose(100, 1.0).mechanism.code_bytes > 1
    assert choose(100, 1.0, max_bytes=1).mechanism.code_bytes == 1
    large = choose(4096, 0.5, max_bytes=2)
    assert large.mechanism.code_bytes <= 2
    light = choose(4096, 5.0, max_decode=1)
    assert light.mechanism.code_bytes <= 4
    assert light.variance > choose(4096, 5.0).variance
    assert all(c.decode <= 1 for c in light.candidates if not c.refused)
    with pytest.raises(InvalidInput, match="stays within max_bytes = 0 and max_decode = None"):
        choose(16, 1.0, max_bytes=0)


def test_planned_frequencies_are_what_is_compared() -> None:
    skewed = np.array([0.97, 0.01, 0.01, 0.01])
    choice = choose(4, 1.0, frequencies=skewed)
    assert choice.variance == pytest.approx(float(choice.mechanism.variance(skewed, 1).sum()))
    assert choice.variance < choose(4, 1.0).variance
    for bad in ([0.5, 0.5], [0.5, 0.6, 0.0, 0.0], [1.5, -0.5, 0, 0], [math.nan] * 4):
        with pytest.raises(InvalidInput, match="frequencies must be 4 shares >= 0 that sum to one"):
            choose(4, 1.0, frequencies=bad)


def test_the_choice_explains_itself() -> None:
    choice = choose(1000, 1.0, max_bytes=64)
    text = str(choice)
    assert text.startswith(f"{choice.label} for 1000 categories at epsilon 1: the cheapest report")
    assert "3675.33" in text  # the minimax constant
    assert "oue: variance 3684.69, bytes 125, decode 1000: refused, more than 64 bytes" in text
    for candidate in choice.candidates:
        assert f"  {candidate.label}: " in text


def test_a_mechanism_that_cannot_be_built_is_named_with_the_reason() -> None:
    choice = choose(1 << 21, 1.0)
    assert "oue: unary: k must lie in 2..1048576, got 2097152" in str(choice)


@pytest.mark.parametrize("k", [1, 0, -3, 2.0, True])
def test_a_domain_out_of_range_is_refused(k) -> None:
    with pytest.raises(InvalidInput, match="k must be an integer of at least 2"):
        choose(k, 1.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_an_epsilon_out_of_range_is_refused(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="epsilon must be finite and > 0"):
        choose(4, epsilon)
