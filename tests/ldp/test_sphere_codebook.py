"""The sphere codebook: its channel in rationals, its calibration, its estimate, its directions."""

import hashlib
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.optimize import minimize_scalar
from scipy.special import gammaln, ndtri
from scipy.stats import beta, chisquare

from ldp import InvalidInput, SphereCodebook, build, build_vector
from ldp.core.exact import certainly_at_most
from ldp.mechanisms.vectors.caps import best_size, mean_of_best
from ldp.mechanisms.vectors.codewords import directions, quantiles
from ldp.testing import SeededCoins

EPSILONS = (0.1, 1.0, 2.0, 4.0, 8.0)
DIRECTIONS = [[2811, -314, 4435, 2277, 5509], [5641, -2350, -1278, -5488, -4011]]
VALUES: list[list[float]] = [
    [0, 0, 0],
    [1, 0, 0],
    [-1, 0, 0],
    [0.6, -0.8, 0],
    [0.1, 0.1, 0.1],
    [0, 0, -0.5],
]


class OneSeed(SeededCoins):
    """Coins whose seeds of codebooks are always the same; all else is drawn."""

    def words(self, n: int) -> Any:
        return np.full(n, 7, dtype=np.uint64)


def privunit(dimensions: int, epsilon: float) -> float:
    """Return the squared error of PrivUnit, the oracle: a uniform direction of the cap
    <u, v> >= gamma with the probability p, else one outside; p / (1 - p) = e^epsilon t / (1 - t)
    where t is the share of the cap."""
    constant = math.exp(gammaln(dimensions / 2) - gammaln((dimensions - 1) / 2)) / math.sqrt(
        math.pi
    )

    def agreement(log_share: float) -> float:
        share = math.exp(log_share)
        square = beta.isf(2 * share, 0.5, (dimensions - 1) / 2)
        first = constant * (1 - square) ** ((dimensions - 1) / 2) / (dimensions - 1)
        odds = math.exp(epsilon) * share / (1 - share)
        p = odds / (1 + odds)
        return float(-(p * first / share - (1 - p) * first / (1 - share)))

    found = minimize_scalar(
        agreement, bounds=(-20, math.log(0.4999)), method="bounded", options={"xatol": 1e-9}
    )
    return float(1 / found.fun**2 - 1)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("codes", "size"), [(2, 1), (9, 4), (16, 0)])
def test_the_channel_given_a_seed_keeps_epsilon_exactly(
    epsilon: float, codes: int, size: int
) -> None:
    mechanism = SphereCodebook(3, epsilon, codes, size)
    for seed in range(5):
        channel = mechanism.channel(seed.to_bytes(8, "little"), VALUES)
        assert channel.worst_ratio == mechanism._worst_ratio()
        assert channel.worst_ratio is not None
        assert certainly_at_most(channel.worst_ratio, epsilon)
        assert math.log(channel.worst_ratio) >= 0.999 * epsilon
        inside = Fraction(mechanism.include, 1 << 64) / mechanism.size
        assert all(row.count(inside) == mechanism.size for row in channel.rows)


@settings(max_examples=50)
@given(
    value=arrays.arrays(np.float64, 3, elements=st.floats(-0.577, 0.577, width=64)),
    seed=st.binary(min_size=8, max_size=8),
)
def test_whatever_the_vector_as_many_codes_are_likelier(value: Any, seed: bytes) -> None:
    mechanism = SphereCodebook(3, 1.0, codes=11, size=3)
    ((*row,),) = mechanism.channel(seed, [value]).rows
    assert sorted(row) == sorted(mechanism.channel(seed, [[0, 0, 0]]).rows[0])


def test_codes_are_drawn_as_the_channel_says() -> None:
    mechanism = SphereCodebook(3, 1.0, codes=10, size=3)
    coins = OneSeed(5)
    drawn = mechanism._numbers(
        np.array([mechanism.randomize(VALUES[3], coins) for _ in range(3_000)])
    )
    seed = (7).to_bytes(8, "little")
    (row,) = mechanism.channel(seed, [VALUES[3]]).rows
    expected = [3_000 * float(chance) for chance in row]
    assert chisquare(np.bincount(drawn, minlength=10), expected).pvalue > 1e-3


def test_the_oracle_has_its_known_values() -> None:
    for dimensions, known in {
        100: (629.35, 160.36, 42.82, 12.73),
        491: (3104.39, 792.48, 213.03, 64.70),
    }.items():
        for epsilon, value in zip((1, 2, 4, 8), known, strict=True):
            assert privunit(dimensions, epsilon) == pytest.approx(value, abs=0.006)


@pytest.mark.parametrize(
    ("codes", "ratios"),
    [(256, (1.0151, 1.0137, 1.0195, 1.1196)), (1024, (1.0094, 1.0068, 1.0057, 1.0408))],
)
def test_the_error_is_hardly_above_that_of_privunit(codes: int, ratios: tuple[float, ...]) -> None:
    """`ratios` are the errors of earlier calibrations, by approximate order statistics."""
    for epsilon, ratio in zip((1.0, 2.0, 4.0, 8.0), ratios, strict=True):
        found = SphereCodebook(490, epsilon, codes).squared_error / privunit(491, epsilon)
        assert ratio - 0.012 < found <= ratio
    # The same sizes as those have the same errors.
    assert SphereCodebook(99, 1.0, 1024, 323).squared_error == pytest.approx(635.4, rel=1e-3)
    assert SphereCodebook(99, 4.0, 1024, 64).squared_error == pytest.approx(43.07, rel=2e-3)


@pytest.mark.parametrize(("codes", "epsilon"), [(64, 1.0), (64, 3.0), (64, 6.0)])
def test_no_other_size_is_better(codes: int, epsilon: float) -> None:
    odds = math.exp(epsilon)
    gains = [
        w / (w * odds + codes - w) * mean_of_best(50, codes, w) for w in range(1, codes // 2 + 1)
    ]
    assert best_size(50, codes, odds) == 1 + int(np.argmax(gains))


@pytest.mark.parametrize("dimensions", [2, 3, 40])
def test_the_mean_of_the_best_directions_is_exact(dimensions: int) -> None:
    rng = np.random.default_rng(dimensions)
    drawn = rng.normal(size=(4_000, 20, dimensions))
    products = np.sort(drawn[:, :, 0] / np.linalg.norm(drawn, axis=2), axis=1)[:, ::-1]
    for size in (1, 4, 10, 19):
        means = products[:, :size].mean(axis=1)
        off = means.mean() - mean_of_best(dimensions, 20, size)
        assert abs(off) < 4 * means.std() / math.sqrt(len(means))


@pytest.mark.parametrize("norm", [0.0, 1.0])
def test_the_estimate_is_unbiased_with_the_error_it_states(norm: float) -> None:
    mechanism = SphereCodebook(9, 2.0, codes=32)
    value = norm * np.array([1.0] + [0.0] * 8)
    coins = SeededCoins(11)
    found = np.array([mechanism.debias(mechanism.randomize(value, coins)) for _ in range(2_500)])
    error = found.std(axis=0) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - value) < 4 * error).all()
    squared = float(((found - value) ** 2).sum(axis=1).mean())
    assert squared <= 1.05 * mechanism.squared_error
    # Without its last coordinate a direction is shorter, by 1 in 10 coordinates.
    assert squared >= 0.83 * mechanism.squared_error


@pytest.mark.slow
def test_the_error_at_a_hundred_dimensions_is_within_5_percent() -> None:
    mechanism = SphereCodebook(99, 4.0)
    value = np.full(99, 1 / math.sqrt(100))
    coins = SeededCoins(1)
    found = np.array([mechanism.debias(mechanism.randomize(value, coins)) for _ in range(1_500)])
    squared = float(((found - value) ** 2).sum(axis=1).mean())
    assert squared == pytest.approx(mechanism.squared_error, rel=0.05)
    assert squared == pytest.approx(43.09, rel=0.05)
    error = found.std(axis=0) / math.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - value) < 4.5 * error).all()


def test_the_directions_are_the_same_everywhere() -> None:
    table = quantiles()
    exact = 4096 * ndtri((np.arange(1 << 16) + 0.5) / (1 << 16))
    assert (np.round(exact) == table).all()
    assert np.abs(exact - np.floor(exact) - 0.5).min() > 1e-5
    assert (
        hashlib.sha256(table.astype("<i2").tobytes()).hexdigest()
        == "1ea009ce409dac97d6bd609266910f809c5fb912f78e16bd89145b08174d6fc5"
    )
    both = directions(b"8 bytes.", range(2), 5)
    assert both.tolist() == DIRECTIONS
    assert directions(b"8 bytes.", range(1, 2), 3).tolist() == [DIRECTIONS[1][:3]]


def test_codes_go_over_the_wire() -> None:
    for codes, width in ((256, 9), (257, 10), (1024, 10)):
        mechanism = SphereCodebook(5, 1.0, codes)
        code = mechanism.randomize([0.5, 0, 0, 0, 0], SeededCoins(2))
        assert mechanism.code_bytes == len(mechanism.encode_one(code)) == width
        (back,) = mechanism.decode(mechanism.encode_one(code), 1)
        assert (back == code).all()
        assert np.linalg.norm(mechanism.debias(back)) <= 1 / mechanism.gain
    with pytest.raises(InvalidInput, match="below 1000"):
        SphereCodebook(5, 1.0, 1000).decode(bytes(8) + (1000).to_bytes(2, "little"), 1)
    with pytest.raises(InvalidInput, match="10 bytes"):
        mechanism.decode(bytes(9), 1)


def test_a_training_s_integers_build_it_again() -> None:
    mechanism = SphereCodebook(490, 1.0)
    integers = mechanism.integers
    assert sorted(integers) == ["codes", "dimension", "include", "size"]
    assert build_vector("sphere_codebook", 1.0, integers) == mechanism
    assert 0.999 < mechanism.realised_epsilon <= 1
    with pytest.raises(InvalidInput, match="epsilon"):
        build_vector("sphere_codebook", 0.9, integers)
    with pytest.raises(InvalidInput, match="unknown"):
        build_vector("krr", 1.0, integers)


def test_no_survey_can_ask_for_it() -> None:
    with pytest.raises(InvalidInput, match="unknown"):
        build("sphere_codebook", 1.0, SphereCodebook(3, 1.0).integers)


def test_the_number_of_updates_that_a_training_needs() -> None:
    mechanism = SphereCodebook(490, 1.0)
    assert mechanism.updates_needed(0.3) == pytest.approx(310_000, rel=0.01)
    assert mechanism.updates_needed(1) == math.ceil(9 * mechanism.squared_error)
    for norm in (0.0, 1.1, math.nan):
        with pytest.raises(InvalidInput):
            mechanism.updates_needed(norm)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1.0), "dimension"),
        ((1 << 17, 1.0), "dimension"),
        ((1 << 16, 1.0, 1 << 12), "numbers for a report"),
        ((5, 1.0, 1), "codes"),
        ((5, 1.0, (1 << 16) + 1), "codes"),
        ((5, 1.0, 10, 6), "size"),
        ((5, 1.0, 10, 5, 1 << 63), "include"),
        ((5, 1.0, 10, 5, 1 << 64), "include"),
        ((5, 0.0), "epsilon"),
    ],
)
def test_a_codebook_that_makes_no_sense_is_refused(
    arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        SphereCodebook(*arguments)


@pytest.mark.parametrize(
    "value", [[0.0] * 4, [1.0] * 5, [math.nan] + [0.0] * 4, [math.inf] + [0.0] * 4, 0.0]
)
def test_a_vector_outside_the_unit_ball_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        SphereCodebook(5, 1.0, 16).randomize(value, SeededCoins(0))
