"""What every mechanism for numbers in [-1, 1] must do."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from populations import tallies
from scipy.stats import chisquare

from ldp import (
    GaussianMechanism,
    HybridMechanism,
    InvalidInput,
    LaplaceMechanism,
    OneBitMean,
    PiecewiseMechanism,
    SquareWave,
    estimate,
)
from ldp.core.estimation import Cohorts
from ldp.mechanisms.numbers.hybrid import THRESHOLD
from ldp.mechanisms.numbers.mean import MAX_GRID, MeanMechanism
from ldp.planning import mean_design
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
ON_A_GRID: tuple[Callable[[float, int], MeanMechanism], ...] = (
    PiecewiseMechanism,
    HybridMechanism,
    SquareWave,
    LaplaceMechanism,
)
DEFAULTS: list[MeanMechanism] = [
    OneBitMean(1.0),
    PiecewiseMechanism(1.0),
    PiecewiseMechanism(4.0),
    HybridMechanism(0.7),
    HybridMechanism(2.0),
    SquareWave(1.0),
    LaplaceMechanism(1.0),
    GaussianMechanism.calibrated(2.0, 1e-6),
    mean_design.plain(1.0),
]
SMALL: list[MeanMechanism] = [
    OneBitMean(1.0),
    PiecewiseMechanism(1.0, 5),
    HybridMechanism(0.7, 4),
    HybridMechanism(2.0, 4),
    SquareWave(2.0, 6),
    LaplaceMechanism(1.0, 1),
    LaplaceMechanism(2.0, 5),
    GaussianMechanism.calibrated(8.0, 1e-2),
    mean_design.plain(2.0, 4),
]


def label(mechanism: MeanMechanism) -> str:
    return f"{mechanism.name}-{mechanism.epsilon:g}-{mechanism.steps}"


def numbers_on(mechanism: MeanMechanism) -> np.ndarray:
    return np.linspace(-1, 1, mechanism.steps + 1)


@pytest.mark.parametrize("family", ON_A_GRID)
def test_the_default_grid_wastes_no_epsilon_either(
    family: Callable[[float], MeanMechanism],
) -> None:
    for epsilon in (*EPSILONS, 32.0):
        if family is HybridMechanism and epsilon <= THRESHOLD:
            continue  # refused: see test_hybrid.py
        assert 0.999 * epsilon <= family(epsilon).realised_epsilon <= epsilon


@pytest.mark.parametrize("mechanism", [m for m in SMALL if m.name != "laplace"], ids=label)
def test_the_scores_are_unbiased_in_exact_rationals(mechanism: MeanMechanism) -> None:
    for point, row in enumerate(mechanism.channel().rows):
        expected = sum(p * score for p, score in zip(row, mechanism.scores, strict=True))
        assert expected == Fraction(2 * point, mechanism.steps) - 1


@pytest.mark.parametrize("mechanism", DEFAULTS, ids=label)
def test_the_matrix_is_the_channel_and_debiases_to_the_grid(mechanism: MeanMechanism) -> None:
    matrix = mechanism.matrix()
    assert np.allclose(matrix.sum(axis=1), 1, rtol=0, atol=1e-12)
    scores = np.array([float(score) for score in mechanism.scores])
    assert np.allclose(matrix @ scores, numbers_on(mechanism), rtol=0, atol=1e-10)


@pytest.mark.parametrize("mechanism", SMALL, ids=label)
def test_one_report_at_a_time_draws_from_the_same_channel(
    mechanism: MeanMechanism, coins: SeededCoins
) -> None:
    n = 10_000
    number = 0.3  # between two grid points: a mixture of two rows
    codes = np.array([mechanism.randomize(number, coins) for _ in range(n)])
    position = (number + 1) / 2 * mechanism.steps
    low = int(position)
    row = np.array([1 - position + low, position - low]) @ mechanism.matrix()[low : low + 2]
    seen, row = mechanism.tally(codes).counts, n * row
    common = row > 20
    both = [np.append(x[common], x[~common].sum()) for x in (seen, row)]
    seen, row = (x[both[1] > 0.5] for x in both)
    assert chisquare(seen, row * (seen.sum() / row.sum())).pvalue > 1e-4


def test_rounding_to_the_grid_is_unbiased_and_exact_at_grid_points(coins: SeededCoins) -> None:
    mechanism = PiecewiseMechanism(1.0, 10)
    n = 100_000
    assert (mechanism._round(np.full(n, 1.0), coins) == 10).all()
    assert (mechanism._round(np.full(n, -1.0), coins) == 0).all()
    rounded = mechanism._round(np.full(n, 0.25), coins)  # 6.25 steps up
    assert set(rounded.tolist()) == {6, 7}
    assert abs(rounded.mean() - 6.25) < 4 * np.sqrt(0.25 * 0.75 / n)


def test_values_are_handled_across_blocks_and_for_none(coins: SeededCoins) -> None:
    mechanism = PiecewiseMechanism(8.0, 100)
    values = np.linspace(-1, 1, 70_000)
    error = scores_of(mechanism, values, coins) - values
    assert abs(error.reshape(-1, 7).mean(axis=1)).max() < 1  # each stays with its own number
    assert mechanism.randomize_many(np.array([]), coins).size == 0


def scores_of(mechanism: MeanMechanism, numbers: np.ndarray, coins: SeededCoins) -> np.ndarray:
    scores = np.array([float(score) for score in mechanism.scores])
    return scores[mechanism.randomize_many(numbers, coins)]


@pytest.mark.parametrize("mechanism", DEFAULTS, ids=label)
def test_no_population_has_more_variance_than_is_planned_for(mechanism: MeanMechanism) -> None:
    for mean in (-1.0, -0.8, 0.0, 1.0):  # of numbers that are all at the ends of the range
        variance = mechanism.report_variance(1.0) + 1 - mean**2
        assert variance <= mechanism.variance(mean, 1) * (1 + 1e-12)


def test_debiasing_a_tally_averages_the_scores_of_its_codes(coins: SeededCoins) -> None:
    for mechanism in SMALL:
        codes = mechanism.randomize_many(np.linspace(-1, 0.5, 1000), coins)
        scores = mechanism.scores
        exact = float(sum(scores[code] for code in codes.tolist()) / len(codes))
        assert mechanism.debias(mechanism.tally(codes)) == pytest.approx([exact], rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0.0, 0.37])
@pytest.mark.parametrize("mechanism", DEFAULTS, ids=label)
def test_the_mean_squared_error_is_the_report_variance_within_5_percent(
    mechanism: MeanMechanism, number: float, coins: SeededCoins
) -> None:
    scores = scores_of(mechanism, np.full(400_000, number), coins)
    measured = np.mean((scores - number) ** 2)
    assert measured == pytest.approx(mechanism.report_variance(number), rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [OneBitMean(1.0), PiecewiseMechanism(2.0), HybridMechanism(4.0), LaplaceMechanism(1.0)],
    ids=label,
)
def test_intervals_cover_the_population_mean(mechanism: MeanMechanism, coins: SeededCoins) -> None:
    n, repeats = 300, 6000
    population = np.random.default_rng(8).beta(2, 5, (repeats, n)) * 2 - 1
    mean = 2 * 2 / 7 - 1
    covered = 0
    for tally in tallies(mechanism, population, coins):
        low, high = mechanism.estimate(tally).interval()
        covered += int(low[0] <= mean <= high[0])
    assert covered / repeats == pytest.approx(0.95, abs=0.01)


def test_the_standard_error_follows_the_population_and_not_the_mean_alone(
    coins: SeededCoins,
) -> None:
    mechanism = PiecewiseMechanism(4.0)
    n = 50_000
    middle = mechanism.tally(mechanism.randomize_many(np.zeros(n), coins))
    ends = mechanism.tally(mechanism.randomize_many(np.repeat([-1.0, 1.0], n // 2), coins))
    expected = np.sqrt([mechanism.report_variance(0.0), mechanism.report_variance(1.0) + 1])
    errors = [mechanism.estimate(tally).standard_error[0] for tally in (middle, ends)]
    assert errors == pytest.approx(expected / np.sqrt(n), rel=0.02)


@pytest.mark.parametrize("mechanism", DEFAULTS, ids=label)
def test_a_handful_of_equal_reports_never_claims_a_small_error(mechanism: MeanMechanism) -> None:
    least = mechanism.report_variance(numbers_on(mechanism)).min()
    for n in (1, 2, 3):
        middle = np.full(n, mechanism.codes // 2, dtype=mechanism.code_dtype)
        error = mechanism.estimate(mechanism.tally(middle)).standard_error[0]
        assert error**2 >= least / n * (1 - 1e-9)


@pytest.mark.slow
def test_pooling_cohorts_of_two_epsilons_covers_and_is_no_worse_than_either(
    coins: SeededCoins,
) -> None:
    weak, strong = PiecewiseMechanism(1.0), HybridMechanism(4.0)
    n, repeats = 200, 4000
    population = np.random.default_rng(9).beta(2, 5, (2, repeats, n)) * 2 - 1
    mean = 2 * 2 / 7 - 1
    drawn = (tallies(m, rows, coins) for m, rows in zip((weak, strong), population, strict=True))
    pooled = [estimate(Cohorts([(weak, a), (strong, b)])) for a, b in zip(*drawn, strict=True)]
    values = np.array([p.value[0] for p in pooled])
    errors = np.array([p.standard_error[0] for p in pooled])
    assert np.mean(abs(values - mean) < 1.96 * errors) == pytest.approx(0.95, abs=0.012)
    assert abs(values.mean() - mean) < 4 * values.std() / np.sqrt(repeats)
    spread = population.var()
    alone = (strong.report_variance(population[1]).mean() + spread) / n
    assert values.var() < alone * 1.05


@pytest.mark.parametrize("family", ON_A_GRID)
@pytest.mark.parametrize("grid", [-1, MAX_GRID + 1, 2.0, True])
def test_a_grid_that_is_no_grid_is_refused(
    family: Callable[[float, int], MeanMechanism], grid: int
) -> None:
    with pytest.raises(InvalidInput, match="grid"):
        family(1.0, grid)


def test_a_channel_too_large_to_enumerate_says_so() -> None:
    with pytest.raises(InvalidInput, match="a channel of 1025 x 1645 is too large to enumerate"):
        PiecewiseMechanism(1.0).channel()
