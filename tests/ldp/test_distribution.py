"""The square wave, and the curves reconstructed from it."""

import time

import numpy as np
import pytest

from ldp import (
    KRR,
    HybridMechanism,
    InvalidInput,
    LaplaceMechanism,
    PiecewiseMechanism,
    SquareWave,
    Tally,
)
from ldp.core.estimation import Cohorts
from ldp.estimating.distribution import Distribution, pooled, reconstruct, smoothed_em
from ldp.estimating.likelihood import Cohort, iterative_bayesian_update
from ldp.mechanisms.numbers.square_wave import half_width
from ldp.testing import SeededCoins

LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9])
EDGES = np.linspace(-1, 1, 9)


@pytest.mark.parametrize(
    ("epsilon", "b"), [(0.5, 0.3582), (1.0, 0.2561), (2.0, 0.1293), (4.0, 0.0304)]
)
def test_the_half_width_is_the_published_one(epsilon: float, b: float) -> None:
    assert half_width(epsilon) == pytest.approx(b, abs=5e-5)
    wave = SquareWave(epsilon, 2048)
    assert wave.window / wave.grid / 2 == pytest.approx(b, rel=0.01)


def test_the_half_width_tends_to_a_half_without_a_jump() -> None:
    assert half_width(1e-9) == pytest.approx(0.5)
    assert half_width(1.001e-4) == pytest.approx(half_width(0.999e-4), abs=1e-7)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_its_probabilities_approach_the_continuous_densities(epsilon: float) -> None:
    wave, b, e = SquareWave(epsilon, 2048), half_width(epsilon), np.exp(epsilon)
    far, near = (float(p) * wave.grid for p in wave._probabilities)
    assert near == pytest.approx(e / (2 * b * e + 1), rel=0.01)
    assert far == pytest.approx(1 / (2 * b * e + 1), rel=0.01)


def population(n: int, seed: int) -> np.ndarray:
    return 2 * np.random.default_rng(seed).beta(2, 5, n) - 1


def test_the_whole_way_from_numbers_to_quantiles(coins: SeededCoins) -> None:
    n = 200_000
    numbers = population(n, 3)
    wave = SquareWave(2.0)
    found = reconstruct(wave, wave.tally(wave.randomize_many(numbers, coins)))
    assert (abs(found.quantiles(LEVELS) - np.quantile(numbers, LEVELS)) < 0.02).all()
    shares = np.histogram(numbers, EDGES)[0] / n
    assert found.histogram(EDGES) == pytest.approx(shares, abs=0.02)
    assert found.probabilities.sum() == pytest.approx(1)


@pytest.mark.parametrize("family", [PiecewiseMechanism, LaplaceMechanism])
def test_reports_of_other_mean_mechanisms_give_a_distribution_too(
    family: type[PiecewiseMechanism] | type[LaplaceMechanism], coins: SeededCoins
) -> None:
    mechanism = family(4.0, 32)
    numbers = population(100_000, 5)
    tally = mechanism.tally(mechanism.randomize_many(numbers, coins))
    median = reconstruct(mechanism, tally).quantiles(0.5)
    assert abs(median[0] - np.median(numbers)) < 0.03


def known(masses: np.ndarray) -> Distribution:
    return Distribution(masses, 10)


@pytest.mark.parametrize("few", [1, 3, 30])
def test_a_few_reports_of_a_level_do_not_outweigh_many(few: int) -> None:
    strict, open_ = SquareWave(1.0, 32), SquareWave(2.0, 32)
    generator = np.random.default_rng(6)
    truth = np.full(33, 1 / 33)
    many = (strict, Tally(20_000, generator.multinomial(20_000, truth @ strict.matrix())))
    alone = pooled(Cohorts([many])).histogram(EDGES)
    assert np.abs(alone - 1 / 8).max() < 0.05
    for _ in range(5):
        other = Tally(few, generator.multinomial(few, truth @ open_.matrix()))
        both = pooled(Cohorts([many, (open_, other)])).histogram(EDGES)
        assert np.abs(both - alone).max() < 0.001 * few


def test_cohorts_of_one_channel_are_one_cohort() -> None:
    wave, generator = SquareWave(2.0, 32), np.random.default_rng(7)
    truth = np.linspace(2, 1, 33) / np.linspace(2, 1, 33).sum()
    parts = [Tally(n, generator.multinomial(n, truth @ wave.matrix())) for n in (500, 9500)]
    whole = reconstruct(wave, parts[0] + parts[1])
    both = pooled(Cohorts([(wave, part) for part in parts]))
    assert both.probabilities == pytest.approx(whole.probabilities, abs=1e-5)


def test_cohorts_of_different_grids_are_pooled_on_the_finest() -> None:
    n = 10**8
    numbers = np.linspace(-1, 1, 25)
    fine = np.exp(-numbers) / np.exp(-numbers).sum()
    position = (numbers + 1) * 4  # on the grid of 8 steps, to which a number is rounded at random
    low = np.minimum(position.astype(int), 7)
    coarse = np.bincount(low, fine * (1 - position + low), 9)
    coarse += np.bincount(low + 1, fine * (position - low), 9)
    cohorts = [
        (wave, Tally(n, np.rint(n * (masses @ wave.matrix())).astype(np.int64)))
        for wave, masses in ((SquareWave(4.0, 8), coarse), (SquareWave(2.0, 24), fine))
    ]
    cohorts = [(w, Tally(int(t.counts.sum()), t.counts)) for w, t in cohorts]
    shares = known(fine).histogram(EDGES)
    assert pooled(Cohorts(cohorts)).histogram(EDGES) == pytest.approx(shares, abs=0.005)


def test_reports_that_are_of_no_number_have_no_distribution() -> None:
    with pytest.raises(InvalidInput, match="krr reports are of no number"):
        pooled(Cohorts([(KRR(3, 1.0), Tally(3, np.array([1, 1, 1])))]))


def test_smoothed_em_is_exact_for_a_uniform_population() -> None:
    wave = SquareWave(1.0, 32)
    uniform = np.full(33, 1 / 33)
    assert smoothed_em(wave.matrix(), uniform @ wave.matrix()) == pytest.approx(uniform, abs=1e-6)


@pytest.mark.parametrize("wave", [SquareWave(1.0, 32), SquareWave(4.0, 64)])
def test_leaps_reach_the_fixed_point_of_a_plain_loop(wave: SquareWave) -> None:
    points = wave.steps + 1
    truth = np.zeros(points)
    truth[[0, points // 3, points // 2]] = 0.3, 0.5, 0.2
    counts = np.random.default_rng(8).multinomial(500, truth @ wave.matrix())
    kernel = np.zeros((points, points))
    for point in range(points):
        for neighbour, weight in ((point - 1, 0.25), (point, 0.5), (point + 1, 0.25)):
            kernel[min(max(neighbour, 0), points - 1), point] += weight
    plain, matrix = np.full(points, 1 / points), wave.matrix()
    for _ in range(10_000):
        plain = kernel @ (plain * (matrix @ (counts / 500 / (plain @ matrix))))
    found = smoothed_em(matrix, counts / 500)
    assert np.abs(found.cumsum() - plain.cumsum()).max() < 1e-3


def test_a_curve_of_a_fine_grid_takes_no_minute() -> None:
    # 400 people took 76 s of processor time with as many points as the grid has, 1025.
    generator = np.random.default_rng(9)
    mechanisms = [HybridMechanism(epsilon) for epsilon in (0.7, 1.0, 2.0, 4.0)]
    each = [(m, Tally(100, generator.multinomial(100, m.matrix()[300]))) for m in mechanisms]
    began = time.process_time()
    found = pooled(Cohorts(each))
    assert time.process_time() - began < 3
    assert found.probabilities.size == 257


def test_em_without_smoothing_is_the_iterative_bayesian_update() -> None:
    wave = SquareWave(2.0, 4)
    truth = np.array([0.1, 0.4, 0.2, 0.25, 0.05])
    cohort = Cohort(wave.matrix(), np.rint(1e6 * (truth @ wave.matrix())).astype(np.int64))
    found = iterative_bayesian_update([cohort], gap=1e-3).value
    assert found == pytest.approx(truth, abs=1e-3)


def certain() -> Distribution:
    return known(np.array([0.0, 0.5, 0.0, 0.0, 0.5]))


def test_mass_is_spread_over_the_cells_around_the_grid_points() -> None:
    # cells: [-1, -0.75], [-0.75, -0.25], ..., [0.75, 1]
    sure = certain()
    assert sure.cumulative([-1, -0.75, -0.5, 0.75, 1]) == pytest.approx([0, 0, 0.25, 0.5, 1])
    assert sure.histogram([-1, -0.5, 1]) == pytest.approx([0.25, 0.75])
    assert sure.quantiles([0.25, 0.75]) == pytest.approx([-0.5, 0.875])


def test_levels_edges_and_numbers_that_are_none_are_refused() -> None:
    for levels in (0.0, 1.0, [0.5, np.nan], [[0.5]]):
        with pytest.raises(InvalidInput, match="levels must lie strictly between 0 and 1"):
            certain().quantiles(levels)
    for edges in ([0.0], [0.5, 0.5], [1.0, -1.0], [[0.0, 1.0]], [-1.0, np.nan]):
        with pytest.raises(InvalidInput, match="two or more rising numbers"):
            certain().histogram(edges)
    with pytest.raises(InvalidInput, match=r"the numbers of a distribution lie in \[-1, 1\]"):
        certain().cumulative([0.0, 1.5])


def test_no_reports_give_no_distribution() -> None:
    wave = SquareWave(1.0, 8)
    with pytest.raises(InvalidInput, match="no reports"):
        reconstruct(wave, Tally.empty(wave.tally_size))
