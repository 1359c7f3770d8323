"""Distributions of numbers that take a few values: estimates, and intervals that cover."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import (
    KRR,
    HybridMechanism,
    InvalidInput,
    OneBitMean,
    PiecewiseMechanism,
    SquareWave,
    Tally,
)
from ldp.core.estimation import Cohorts
from ldp.core.repeated import Repeats
from ldp.estimating.points import (
    PointDistribution,
    channel_from_points,
    estimate_points,
    even_cuts,
    precision,
    wilson,
)
from ldp.mechanisms.numbers.mean import MAX_POINTS, MeanMechanism
from ldp.testing import SeededCoins

Floats = NDArray[np.float64]

LEVELS = [0.1, 0.25, 0.5, 0.75, 0.9]
FOUR = [SquareWave(epsilon) for epsilon in (0.5, 1.0, 2.0, 4.0)]
OF_FOUR = (8000, 6000, 4000, 2000)


def shaped(weights: Sequence[float] | Floats) -> Floats:
    found: Floats = np.asarray(weights, dtype=float) / np.sum(weights)
    return found


_AGE = np.arange(26)
AGES = shaped(np.exp(-0.5 * ((_AGE - 8) / 6) ** 2) + 0.3 * np.exp(-0.3 * _AGE))
RATINGS = shaped([5, 1, 1, 2, 3, 6, 8, 14, 22, 18, 20])
THIRD_AT_ZERO = shaped([30, 1, 2, 3, 4, 5, 8, 12, 14, 11, 0])
FOUR_ATOMS = np.zeros(26)
FOUR_ATOMS[[0, 5, 13, 25]] = 0.4, 0.3, 0.2, 0.1
POPULATIONS = {
    "ages": AGES,
    "ratings": RATINGS,
    "a third at zero": THIRD_AT_ZERO,
    "four atoms": FOUR_ATOMS,
}


def drawn(
    mechanisms: Sequence[MeanMechanism],
    sizes: Sequence[int],
    truth: Floats,
    generator: np.random.Generator,
) -> Cohorts:
    """Return cohorts of reports of people drawn from a population."""
    each = []
    for mechanism, n in zip(mechanisms, sizes, strict=True):
        codes = truth @ channel_from_points(mechanism, truth.size)
        each.append((mechanism, Tally(n, generator.multinomial(n, codes / codes.sum()))))
    return Cohorts(each)


def expected(mechanism: MeanMechanism, n: int, truth: Floats) -> Cohorts:
    codes = np.rint(n * (truth @ channel_from_points(mechanism, truth.size))).astype(np.int64)
    return Cohorts([(mechanism, Tally(int(codes.sum()), codes))])


# --- formulas -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theta", "noise", "n", "low", "high"),
    [
        (0.3, 40, 20_000, 0.212165, 0.387912),
        (0.02, 1.5, 300, 0, 0.164810),
        (-0.01, 7.74, 20_000, 0, 0.038650),  # as if it were 0
        (-0.5, 7.74, 20_000, 0, 0.038650),
        (1.5, 7.74, 20_000, 1 - 0.038650, 1),
        (0, 0.2, 300, 0, 0.057002),
    ],
)
def test_the_ends_of_an_interval_are_those_worked_out_by_hand(
    theta: float, noise: float, n: int, low: float, high: float
) -> None:
    assert wilson(theta, noise, n, 1.96) == pytest.approx((low, high), abs=5e-6)


def test_without_noise_the_interval_is_wilsons() -> None:
    # Wilson's own formula for 3 of 50, as textbooks have it.
    p, n, z = 0.06, 50, 1.96
    middle = (p + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    assert wilson(p, 0, n, z) == pytest.approx((middle - half, middle + half))


@pytest.mark.parametrize(
    ("grid", "half", "fifth", "ranges"),
    [(256, 19.4293, 40.6487, 35.1658), (25, 18.9969, 40.9910, 36.6179)],
)
def test_variances_at_the_uniform_distribution(
    grid: int, half: float, fifth: float, ranges: float
) -> None:
    one = precision([(SquareWave(1.0, grid), 1, Repeats())], 26)
    assert one.middle**2 / 1.959964**2 == pytest.approx(half, abs=5e-4)
    cuts = even_cuts(26, 10)
    fifth_bin = (cuts[4] <= np.arange(26)) & (np.arange(26) < cuts[5])
    assert fifth_bin @ one.covariance @ fifth_bin == pytest.approx(fifth, abs=5e-4)
    assert one.range_variance == pytest.approx(ranges, abs=5e-4)


@pytest.mark.parametrize(
    ("epsilon", "points", "needed"),
    [
        (0.5, 26, 134_488),
        (1.0, 26, 29_856),
        (2.0, 26, 5_267),
        (4.0, 26, 704),
        (0.5, 64, 336_983),
        (1.0, 64, 74_004),
        (4.0, 64, 1_822),
    ],
)
def test_how_many_reports_a_distribution_needs(epsilon: float, points: int, needed: int) -> None:
    for n in (1, 1000):
        found = precision([(SquareWave(epsilon), n, Repeats())], points).needed
        assert found == pytest.approx(needed, rel=3e-5, abs=1)


@pytest.mark.parametrize(
    ("epsilon", "bins"), [(0.5, (1, 3, 11)), (1.0, (2, 8, 24)), (2.0, (6, 19, 26))]
)
def test_as_many_bins_as_reports_can_show(epsilon: float, bins: tuple[int, ...]) -> None:
    sizes = (1000, 10_000, 100_000)
    found = [precision([(SquareWave(epsilon), n, Repeats())], 26).bins() for n in sizes]
    assert tuple(found) == bins


def test_a_distribution_of_many_values_is_hopeless_for_few_reports() -> None:
    for epsilon, hopeless in ((0.5, True), (1.0, True), (2.0, False)):
        assert precision([(SquareWave(epsilon), 1000, Repeats())], 64).hopeless == hopeless


# --- the channel --------------------------------------------------------------------------------


def test_a_point_between_two_of_the_grid_is_a_mixture_of_them() -> None:
    wave = SquareWave(1.0, 8)
    rows, found = wave.matrix(), channel_from_points(wave, 6)  # at 0, 1.6, 3.2, 4.8, 6.4, 8
    assert found[1] == pytest.approx(0.4 * rows[1] + 0.6 * rows[2])
    assert found[5] == pytest.approx(rows[8])


@pytest.mark.parametrize(
    "mechanism", [SquareWave(2.0), PiecewiseMechanism(2.0), HybridMechanism(2.0), OneBitMean(2.0)]
)
def test_the_channel_is_that_of_numbers_randomised_one_by_one(mechanism: MeanMechanism) -> None:
    n, points = 40_000, 26
    number = 2 * 11 / 25 - 1
    reports = mechanism.randomize_many(np.full(n, number), SeededCoins(1))
    expected = channel_from_points(mechanism, points)[11]
    blocks = np.array_split(np.arange(expected.size), min(8, expected.size))
    counts = mechanism.tally(reports).counts
    for block in blocks:
        p = expected[block].sum()
        assert abs(counts[block].sum() / n - p) < 5 * math.sqrt(p * (1 - p) / n)


# --- estimates ----------------------------------------------------------------------------------


def test_the_scoring_step_is_that_of_a_plain_loop() -> None:
    generator = np.random.default_rng(1)
    cohorts = drawn([SquareWave(1.0, 12), SquareWave(3.0, 10)], [900, 400], RATINGS, generator)
    found = estimate_points(cohorts, 11)
    score, information = np.zeros(11), np.zeros((11, 11))
    for mechanism, tally in cohorts:
        q = channel_from_points(mechanism, 11)
        for code, count in enumerate(tally.counts):
            chance = found.pilot @ q[:, code]
            score += q[:, code] * count / chance
            information += tally.n * np.outer(q[:, code], q[:, code]) / chance
    tangent = np.linalg.svd(np.ones((1, 11)))[2][1:].T
    covariance = tangent @ np.linalg.inv(tangent.T @ information @ tangent) @ tangent.T
    assert found.covariance == pytest.approx(covariance)
    assert found.unconstrained == pytest.approx(found.pilot + covariance @ score)


def test_a_channel_with_as_many_codes_as_points_is_inverted() -> None:
    wave = SquareWave(4.0, 10, 1)
    (cohort,) = cohorts = drawn([wave], [500], THIRD_AT_ZERO, np.random.default_rng(2))
    found = estimate_points(cohorts, 11)
    inverted = cohort[1].counts / 500 @ np.linalg.inv(wave.matrix())
    assert found.unconstrained == pytest.approx(inverted)
    assert found.unconstrained.sum() == pytest.approx(1)


def test_nothing_is_smoothed_away() -> None:
    found = estimate_points(expected(SquareWave(1.0), 10**9, FOUR_ATOMS), 26)
    assert found.unconstrained == pytest.approx(FOUR_ATOMS, abs=1e-3)
    assert found.likely == pytest.approx(FOUR_ATOMS, abs=1e-3)


def test_what_is_shown_is_a_distribution_inside_its_intervals() -> None:
    generator = np.random.default_rng(3)
    for n in (1, 20, 1000):
        found = estimate_points(drawn([SquareWave(1.0)], [n], FOUR_ATOMS, generator), 26)
        bins = found.bins(even_cuts(26, 13))
        assert (bins.value >= 0).all()
        assert bins.value.sum() == pytest.approx(1)
        assert (bins.low <= bins.value).all()
        assert (bins.value <= bins.high).all()


def test_the_whole_range_has_no_error() -> None:
    found = estimate_points(expected(SquareWave(1.0), 1000, AGES), 26)
    whole = found.bins(np.array([0, 26]))
    assert (whole.value, whole.low, whole.high) == ([1.0], [1.0], [1.0])
    assert whole.standard_error == [0.0]
    assert found.shares(np.zeros((1, 26), dtype=np.bool_)).high == [0.0]


def test_quantiles_are_those_of_a_loop_over_the_cumulative_intervals() -> None:
    generator = np.random.default_rng(4)
    for n in (20, 300, 5000):
        found = estimate_points(drawn([SquareWave(2.0)], [n], AGES, generator), 26)
        below, quantiles = found.cumulative(), found.quantiles(LEVELS)
        high = [*below.high.tolist(), 1.0]
        low = [0.0, *below.low.tolist()]
        for level, least, most, value in zip(
            LEVELS, quantiles.low, quantiles.high, quantiles.value, strict=True
        ):
            assert least == min(value, *(x for x in range(26) if high[x] >= level))
            assert most == max(value, *(x for x in range(26) if low[x] < level))


def test_the_quantile_of_known_shares_is_the_least_point_that_reaches_it() -> None:
    found = estimate_points(expected(SquareWave(4.0, 10), 10**10, RATINGS), 11)
    cumulative = RATINGS.cumsum()
    levels = [0.02, 0.5, 0.7, 0.9]
    value = found.quantiles(levels).value
    assert value.tolist() == [int(np.argmax(cumulative >= level)) for level in levels]


# --- coverage -----------------------------------------------------------------------------------


def covered(
    mechanisms: Sequence[MeanMechanism], sizes: Sequence[int], truth: Floats, runs: int
) -> tuple[Floats, Floats, Floats]:
    """Return how often the intervals of ten bins, of the cumulative shares, and of quantiles
    covered, each by functional."""
    generator = np.random.default_rng(5)
    cuts = even_cuts(truth.size, 10)
    bins, below = np.add.reduceat(truth, cuts[:-1]), truth.cumsum()[:-1]
    quantiles = np.searchsorted(truth.cumsum(), np.array(LEVELS) - 1e-12)
    hits: list[list[NDArray[np.bool_]]] = [[], [], []]
    for _ in range(runs):
        found = estimate_points(drawn(mechanisms, sizes, truth, generator), truth.size)
        each = (found.bins(cuts), found.cumulative(), found.quantiles(LEVELS))
        for hit, one, true in zip(hits, each, (bins, below, quantiles), strict=True):
            hit.append((one.low <= true) & (true <= one.high))
    first, second, third = (np.mean(hit, axis=0) for hit in hits)
    return first, second, third


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_intervals_cover(population: str, epsilon: float) -> None:
    # 60 runs see gross failures alone: the intervals of smoothed curves covered 10 to 60%.
    bins, below, quantiles = covered([SquareWave(epsilon)], [20_000], POPULATIONS[population], 60)
    assert bins.mean() > 0.92
    assert below.mean() > 0.91
    assert min(bins.min(), below.min()) > 0.8
    assert quantiles.min() > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("epsilon", [1.0, 3.0, 4.0])
def test_coverage_is_what_it_says(population: str, epsilon: float) -> None:
    truth = POPULATIONS[population]
    bins, below, quantiles = covered([SquareWave(epsilon)], [20_000], truth, 500)
    check_coverage(bins, below, quantiles)


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
def test_coverage_with_four_levels(population: str) -> None:
    check_coverage(*covered(FOUR, OF_FOUR, POPULATIONS[population], 500))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mechanism", "n"),
    [
        (SquareWave(6.0), 300),
        (SquareWave(1.0, 25), 20_000),
        (PiecewiseMechanism(2.0), 20_000),
        (HybridMechanism(2.0), 20_000),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_coverage_of_other_mechanisms_and_few_reports(mechanism: MeanMechanism, n: int) -> None:
    check_coverage(*covered([mechanism], [n], AGES, 500))


@pytest.mark.slow
def test_coverage_of_atoms_at_a_large_epsilon() -> None:
    check_coverage(*covered([SquareWave(8.0)], [1000], FOUR_ATOMS, 1000))


@pytest.mark.slow
def test_reports_that_tell_next_to_nothing_miss_nothing() -> None:
    # All of [0, 1] is within an interval's reach of its ends.
    bins, below, quantiles = covered([SquareWave(1.0)], [30], AGES, 200)
    assert min(bins.min(), below.min(), quantiles.min()) > 0.98


def check_coverage(bins: Floats, below: Floats, quantiles: Floats) -> None:
    # A coverage of 500 runs has a standard error of 0.01: the least of 35 is near 0.93.
    assert 0.935 < bins.mean() < 0.975
    assert 0.935 < below.mean() < 0.98
    assert min(bins.min(), below.min()) > 0.915
    assert quantiles.min() > 0.93


@pytest.mark.parametrize("fresh", [True, False], ids=["fresh codes", "the same codes"])
def test_people_who_answer_in_five_periods_count_once(fresh: bool) -> None:
    wave, people, periods, runs = SquareWave(4.0, 10), 400, 5, 200
    generator = np.random.default_rng(6)
    channel = channel_from_points(wave, 11)
    cuts = even_cuts(11, 5)
    true = np.add.reduceat(THIRD_AT_ZERO, cuts[:-1])
    hits = []
    for _ in range(runs):
        answers = generator.multinomial(people, THIRD_AT_ZERO)
        one = [generator.multinomial(answers, channel).sum(axis=0) for _ in range(periods)]
        counts = np.sum(one, axis=0) if fresh else periods * one[0]
        tally = Tally(people * periods, counts)
        repeats = Repeats(float(periods), codes=not fresh)
        found = estimate_points(Cohorts([(wave, tally)], [repeats]), 11).bins(cuts)
        hits.append((found.low <= true) & (true <= found.high))
    assert np.mean(hits) == pytest.approx(0.955, abs=0.02)
    assert np.mean(hits, axis=0).min() > 0.9


def test_the_whole_way_from_numbers_to_shares(coins: SeededCoins) -> None:
    n = 50_000
    people = np.random.default_rng(7).choice(11, n, p=RATINGS)
    each = []
    for epsilon, part in ((1.0, people[:30_000]), (3.0, people[30_000:])):
        wave = SquareWave(epsilon)
        each.append((wave, wave.tally(wave.randomize_many(part / 5 - 1, coins))))
    found = estimate_points(Cohorts(each), 11)
    shares = np.bincount(people, minlength=11) / n
    error = np.sqrt(np.diag(found.covariance))
    assert (np.abs(found.unconstrained - shares) < 4 * error).all()


# --- refusals -----------------------------------------------------------------------------------


def simple() -> PointDistribution:
    return estimate_points(expected(SquareWave(2.0, 4), 1000, np.full(5, 0.2)), 5)


@pytest.mark.parametrize(
    "cuts", [[0], [2, 2], [3, 1], [-1, 2], [0, 6], [0.0, 2.5], [[0, 1]]], ids=str
)
def test_cuts_that_are_none_are_refused(cuts: object) -> None:
    with pytest.raises(InvalidInput, match=r"rising integers in 0\.\.5"):
        simple().bins(cuts)  # type: ignore[arg-type]


@pytest.mark.parametrize("levels", [0.0, 1.0, [0.5, np.nan], [[0.5]]])
def test_levels_that_are_none_are_refused(levels: object) -> None:
    with pytest.raises(InvalidInput, match="levels must lie strictly between 0 and 1"):
        simple().quantiles(levels)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [0.0, 1.0, math.nan])
def test_a_confidence_that_is_none_is_refused(confidence: float) -> None:
    with pytest.raises(InvalidInput, match="confidence must lie strictly between 0 and 1"):
        simple().cumulative(confidence)


def test_sets_of_other_points_are_refused() -> None:
    with pytest.raises(InvalidInput, match="sets of 5 points"):
        simple().shares(np.ones((1, 4), dtype=np.bool_))


@pytest.mark.parametrize(
    ("mechanism", "points", "message"),
    [
        (SquareWave(1.0, 8), 10, "on a grid of 9 numbers: they cannot tell 10 points apart"),
        (OneBitMean(1.0), 3, "on a grid of 2 numbers: they cannot tell 3 points apart"),
        (SquareWave(1.0), 1, "has 2 to 513 points, got 1"),
        (SquareWave(1.0, 2048), MAX_POINTS + 1, "has 2 to 513 points, got 514"),
        (KRR(3, 1.0), 4, "reports are of 3 bins, got 4 points"),
    ],
    ids=["grid", "one bit", "one point", "many points", "categories"],
)
def test_points_that_reports_cannot_tell_apart_are_refused(
    mechanism: MeanMechanism, points: int, message: str
) -> None:
    counts = np.ones(mechanism.tally_size, dtype=np.int64)
    cohorts = Cohorts([(mechanism, Tally(mechanism.tally_size, counts))])
    with pytest.raises(InvalidInput, match=message):
        estimate_points(cohorts, points)
    with pytest.raises(InvalidInput, match=message):
        precision([(mechanism, 1000, Repeats())], points)


def test_more_bins_than_points_are_refused() -> None:
    with pytest.raises(InvalidInput, match="5 values make at most 5 bins, got 6"):
        even_cuts(5, 6)
