"""Waves: the guarantee, exact moments, the published figures, and both ways to randomise."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from populations import FLIGHTS
from test_coins import SeededCoins

from ldp import Cohorts, InvalidInput, Tally, Waves
from ldp.core.exact import ONE, include_threshold
from ldp.estimating.points import estimate_points
from ldp.mechanisms.ranges import wave_design
from ldp.mechanisms.ranges.wave_design import balance, range_weights, waves

SIDES = ((16,), (3, 4))

sides = pytest.mark.parametrize("sides", SIDES, ids=str)


@cache
def made(sides: tuple[int, ...], epsilon: float = 1.0) -> Waves:
    return Waves(sides, epsilon)


@cache
def enumerated(sides: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return the channel in doubles, and each code's value, from `channel` and one-code tallies."""
    mechanism = made(sides)
    units = np.eye(mechanism.tally_size, dtype=np.int64)
    values = np.array([mechanism.debias(Tally(1, unit)) for unit in units])
    return np.array(mechanism.channel().rows, dtype=float), values


def plain(side: int, width: int, epsilon: float) -> float:
    """Return the least average variance of waves of one width."""
    sides = (side,)
    return balance(waves(side, width), sides, math.exp(epsilon), range_weights(sides))[1]


def widths(side: int, epsilon: float) -> set[int]:
    return {round(side / (1 + math.exp(epsilon / each))) for each in (1, 2)}


# --- the guarantee ------------------------------------------------------------------------------


@sides
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_the_channel_spends_all_of_epsilon_and_no_more(
    sides: tuple[int, ...], epsilon: float
) -> None:
    channel = made(sides, epsilon).channel()
    assert channel.satisfies(epsilon)
    assert channel.epsilon >= 0.999 * epsilon


def changed(**integers: tuple[int, ...]) -> Waves:
    return Waves.from_integers(1.0, made((5,)).integers | integers)


def test_integers_that_keep_no_promise_are_refused() -> None:
    good = made((5,))
    count, include = good.patterns, good.include
    with pytest.raises(InvalidInput, match="more than the 1"):
        changed(include=(*include[:-1], include[-1] + 1))
    with pytest.raises(InvalidInput, match="more than the 1"):
        # The same include for a pattern of fewer bins gives each of them more.
        smaller = next(i for i, mask in enumerate(good.masks) if mask.bit_count() > 1)
        masks = list(good.masks)
        masks[smaller] &= masks[smaller] - 1
        changed(masks=tuple(masks))
    with pytest.raises(InvalidInput, match="sum to 2"):
        changed(chances=(good.chances[0] - 1, *good.chances[1:]))
    with pytest.raises(InvalidInput, match="must be positive"):
        changed(chances=(0, good.chances[0] + good.chances[1], *good.chances[2:]))
    for mask in (0, 0b11111, 0b100001):
        with pytest.raises(InvalidInput, match="a pattern has some of the 5 bins"):
            changed(masks=(mask, *good.masks[1:]))
    with pytest.raises(InvalidInput, match="one include each"):
        changed(masks=(*good.masks, 1))
    with pytest.raises(InvalidInput, match="2 to 6553 patterns"):
        changed(masks=(1,), chances=(ONE - 1,), include=include[:1])
    with pytest.raises(InvalidInput, match="include must exceed"):
        changed(include=(ONE // 5, *include[1:]))
    for wrong in ((257,), (1,), (2, 2, 2), (0, 5), (17, 16)):
        with pytest.raises(InvalidInput, match="sides must be one or two"):
            Waves(wrong, 1.0)
    assert count == len(include)


def test_patterns_that_do_not_tell_all_bins_apart_are_refused() -> None:
    alike = include_threshold(2, 2, 1.0)
    with pytest.raises(InvalidInput, match="tell all bins apart"):
        Waves((4,), 1.0, (0b0101, 0b1010), (ONE // 2, ONE // 2), (alike, alike))


# --- estimates ----------------------------------------------------------------------------------


@sides
def test_estimates_are_unbiased_and_their_moments_exact(sides: tuple[int, ...]) -> None:
    mechanism, (channel, values) = made(sides), enumerated(sides)
    np.testing.assert_allclose(channel @ values, np.eye(mechanism.k), atol=1e-12)
    np.testing.assert_allclose(channel, mechanism.matrix(), rtol=1e-12)
    truth = np.random.default_rng(1).dirichlet(np.ones(mechanism.k))
    covariance = (values.T * (truth @ channel)) @ values - np.outer(truth, truth)
    np.testing.assert_allclose(mechanism.covariance(truth, 7), covariance / 7, atol=1e-12)
    np.testing.assert_allclose(mechanism.variance(truth, 7), np.diag(covariance) / 7, atol=1e-12)
    alone = np.full(mechanism.k, 0.7 / (mechanism.k - 1))
    alone[2] = 0.3
    assert mechanism.variance(0.3, 1) == pytest.approx(mechanism.variance(alone, 1)[2])


@sides
def test_the_errors_of_a_tally_are_those_of_its_codes(sides: tuple[int, ...]) -> None:
    mechanism, (channel, values) = made(sides), enumerated(sides)
    counts = np.random.default_rng(2).multinomial(300, channel[1])
    outputs = (counts + channel.mean(axis=0)) / 301
    away = values - outputs @ values
    expected = (away.T * outputs) @ away / 300
    tally = Tally(300, counts)
    found = mechanism.tally_covariance(tally)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(
        mechanism.tally_variance(np.zeros(mechanism.k), tally), np.diag(expected), atol=1e-12
    )


@sides
def test_products_with_the_channel_are_those_with_its_matrix(sides: tuple[int, ...]) -> None:
    mechanism, (channel, _) = made(sides), enumerated(sides)
    source = np.random.default_rng(3)
    f, codes = source.dirichlet(np.ones(mechanism.k)), source.random(mechanism.tally_size)
    shifts = mechanism.channel_of_shifts
    np.testing.assert_allclose(shifts.outputs(f), f @ channel, rtol=1e-12)
    np.testing.assert_allclose(shifts.pull(codes), channel @ codes, rtol=1e-12)
    root = channel - channel.mean(axis=0)
    np.testing.assert_allclose(
        shifts.information(codes), (root * codes) @ root.T, rtol=1e-9, atol=1e-12
    )
    rough = shifts.information(codes, rough=True)
    np.testing.assert_allclose(rough, (root * codes) @ root.T, rtol=1e-4, atol=1e-5)


def test_the_average_variance_is_that_of_all_ranges() -> None:
    mechanism = made((16,))
    covariance = mechanism.covariance(np.full(16, 1 / 16), 1)
    ranges = [(a, b) for a in range(16) for b in range(a + 1, 17)]
    variances = [covariance[a:b, a:b].sum() for a, b in ranges]
    assert mechanism.range_variance == pytest.approx(np.mean(variances))


def test_the_average_variance_in_two_dimensions_is_that_of_all_rectangles() -> None:
    mechanism = made((3, 4))
    covariance = mechanism.covariance(np.full(12, 1 / 12), 1)
    found = []
    for rows in [(a, b) for a in range(3) for b in range(a + 1, 4)]:
        for columns in [(a, b) for a in range(4) for b in range(a + 1, 5)]:
            inside = np.zeros((3, 4))
            inside[slice(*rows), slice(*columns)] = 1
            found.append(inside.ravel() @ covariance @ inside.ravel())
    assert mechanism.range_variance == pytest.approx(np.mean(found))


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 2.0])
def test_the_error_of_real_ranges_is_the_predicted_one(epsilon: float) -> None:
    """Minutes of flights: within 5% over all ranges, and less where shares are not negative."""
    mechanism, truth, n = made((256,), epsilon), FLIGHTS / FLIGHTS.sum(), 100_000
    generator = np.random.default_rng(1)
    outputs = mechanism.channel_of_shifts.outputs(truth)

    def square(f: np.ndarray) -> float:
        below = np.concatenate([[0.0], np.cumsum(f - truth)])
        return float(np.mean((below - below[:, None])[np.triu_indices(257, 1)] ** 2))

    drawn = [Tally(n, generator.multinomial(n, outputs / outputs.sum())) for _ in range(40)]
    free = [square(mechanism.debias(tally)) for tally in drawn]
    likely = [
        square(estimate_points(Cohorts([(mechanism, tally)]), 256).likely) for tally in drawn[:2]
    ]
    predicted = math.sqrt(mechanism.range_variance / n)
    assert math.sqrt(np.mean(free)) == pytest.approx(predicted, rel=0.05)
    assert np.mean(likely) < np.mean(free[:2])


# --- the design ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "epsilon", "expected"),
    [
        (64, 0.5, 59.240),
        (64, 1.0, 13.988),
        (64, 2.0, 2.939),
        (64, 4.0, 0.765),
        (256, 0.5, 102.61),
        (256, 1.0, 24.131),
        (256, 2.0, 5.053),
        (256, 4.0, 0.847),
    ],
)
def test_waves_of_one_width_have_the_known_variance(
    side: int, epsilon: float, expected: float
) -> None:
    found = min(plain(side, width, epsilon) for width in widths(side, epsilon))
    assert found == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "known"), [(0.5, 59.240), (1.0, 13.912), (2.0, 2.739), (4.0, 0.449)]
)
def test_a_design_has_the_least_variance_known(epsilon: float, known: float) -> None:
    """Within 1% of patterns that were improved bit by bit, at each epsilon."""
    mechanism = made((64,), epsilon)
    assert mechanism.range_variance <= 1.01 * known
    assert mechanism.gap < 0.1


@pytest.mark.parametrize(
    ("sides", "epsilon", "known"),
    [((16, 16), 1.0, 38.8), ((16, 16), 2.0, 7.23), ((16, 16), 4.0, 0.905), ((8, 8), 1.0, 18.90)],
)
def test_rectangles_have_the_known_variance_already_at_the_start(
    sides: tuple[int, ...], epsilon: float, known: float
) -> None:
    assert wave_design.predicted_variance(sides, epsilon) <= known


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sides", "epsilon", "known"),
    [((256,), 1.0, 24.131), ((256,), 4.0, 0.667), ((16, 16), 4.0, 0.75)],
)
def test_a_large_design_has_the_least_variance_known(
    sides: tuple[int, ...], epsilon: float, known: float
) -> None:
    assert made(sides, epsilon).range_variance <= known


def test_levels_pool_by_frequency() -> None:
    levels = ((0.5, 0.4), (1.0, 0.3), (2.0, 0.2), (4.0, 0.1))
    eigenvalues, scalar = np.zeros(63), 0.0
    for epsilon, share in levels:
        e, weights = math.exp(epsilon), range_weights((64,))
        masks = waves(64, round(64 / (1 + e)))
        chances, variance, _ = balance(masks, (64,), e, weights)
        eigenvalues += share * (chances @ wave_design.gains(masks, (64,), e))
        scalar += share / variance
    assert (weights / eigenvalues).sum() == pytest.approx(3.7442, rel=2e-3)
    assert 1 / scalar == pytest.approx(4.5658, rel=2e-3)


def test_the_gap_bounds_every_other_choice_of_chances() -> None:
    mechanism = made((16,))
    masks = mechanism.channel_of_shifts.rows > mechanism.channel_of_shifts.rows.mean(
        axis=1, keepdims=True
    )
    every = np.concatenate([masks, *(waves(16, width) for width in range(1, 9))])
    best = balance(every, (16,), math.e, range_weights((16,)))[1]
    assert (
        mechanism.range_variance / (1 + mechanism.gap)
        <= best
        <= mechanism.range_variance * (1 + 1e-6)
    )


def test_no_channel_at_all_is_much_better() -> None:
    """Over all sets of 10 bins, and so over all channels that treat shifts alike: every such
    channel of least variance reports sets of bins (Kairouz, Oh and Viswanath, JMLR 17, 2016)."""
    mechanism = made((10,))
    bits = np.arange(1, (1 << 10) - 1)[:, np.newaxis] >> np.arange(10) & 1 > 0
    eigenvalues = mechanism._eigenvalues[1:]
    prices = wave_design.gains(bits, (10,), math.e) @ (range_weights((10,)) / eigenvalues**2)
    assert prices.max() <= 1.001 * mechanism.range_variance


@pytest.mark.parametrize(
    ("side", "epsilon", "part"), [(16, 1.0, 1e-4), (64, 0.5, 1e-4), (64, 1.0, 0.02)]
)
def test_designs_are_near_the_bound_for_all_channels(
    side: int, epsilon: float, part: float
) -> None:
    mechanism = made((side,), epsilon)
    least = mechanism.least_range_variance
    assert least <= mechanism.range_variance <= (1 + part) * least


# --- randomising --------------------------------------------------------------------------------


@sides
def test_batches_come_from_the_channel(sides: tuple[int, ...]) -> None:
    mechanism, (channel, _) = made(sides), enumerated(sides)
    n = 60_000
    source = np.random.default_rng(5)
    truth = source.dirichlet(np.ones(mechanism.k))
    codes = mechanism.randomize_many(source.choice(mechanism.k, n, p=truth), SeededCoins(6))
    counts, expected = mechanism.tally(codes).counts, n * (truth @ channel)
    statistic = ((counts - expected) ** 2 / expected).sum()
    degrees = mechanism.tally_size - 1
    assert abs(statistic - degrees) < 4 * math.sqrt(2 * degrees)


def test_a_word_at_the_edge_of_two_patterns_draws_the_later_one() -> None:
    """Also where the leading bits of the word do not tell which."""
    mechanism = made((5,))
    limits = np.cumsum(np.array(mechanism.chances, dtype=object))[:-1].tolist()
    words = np.array([w for limit in limits for w in (limit - 1, limit)], dtype=np.uint64)

    class Fixed(SeededCoins):
        def words(self, n: int) -> np.ndarray:
            return words[:n]

    drawn = mechanism._draw_patterns(words.size, Fixed(0)).tolist()
    assert drawn == [each for i in range(len(limits)) for each in (i, i + 1)]


def test_chances_are_exact() -> None:
    mechanism = made((16,))
    assert sum(mechanism.chances) == ONE
    row = mechanism.channel().rows[0]
    assert sum(row) == 1
    for pattern, chance in enumerate(mechanism.chances):
        assert sum(row[16 * pattern : 16 * (pattern + 1)]) == Fraction(chance, ONE)
