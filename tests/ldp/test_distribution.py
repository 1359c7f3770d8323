"""The square wave, and the distributions reconstructed from it."""

from dataclasses import replace

import numpy as np
import pytest

from ldp import (
    KRR,
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


@pytest.mark.slow
def test_quantiles_histogram_and_mean_of_a_smooth_population_are_covered() -> None:
    # Limits: see the docstring of Distribution. 100 repeats resolve gross failures only.
    wave, n, repeats = SquareWave(2.0, 100), 20_000, 100
    sample = population(2_000_000, 1)
    truth = np.quantile(sample, LEVELS)
    shares = np.histogram(sample, EDGES)[0] / sample.size
    points = wave.steps + 1
    position = (sample + 1) / 2 * wave.grid
    low = position.astype(int)
    up = position - low
    masses = np.bincount(low, 1 - up, points) + np.bincount(low + 1, up, points)
    codes = masses @ wave.matrix() / masses.sum()
    generator = np.random.default_rng(2)
    covered: list[np.ndarray] = []
    for _ in range(repeats):
        found = reconstruct(wave, Tally(n, generator.multinomial(n, codes / codes.sum())))
        results = (found.quantiles(LEVELS), found.histogram(EDGES), found.mean())
        intervals = [result.interval() for result in results]
        hits = [
            (a <= t) & (t <= b)
            for t, (a, b) in zip((truth, shares, sample.mean()), intervals, strict=True)
        ]
        covered.append(np.concatenate(hits))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.03)
    assert np.mean(covered, axis=0).min() > 0.85


@pytest.mark.slow
def test_the_whole_way_from_numbers_to_quantiles(coins: SeededCoins) -> None:
    n = 200_000
    numbers = population(n, 3)
    wave = SquareWave(2.0)
    found = reconstruct(wave, wave.tally(wave.randomize_many(numbers, coins)))
    quantiles = found.quantiles(LEVELS)
    assert (abs(quantiles.value - np.quantile(numbers, LEVELS)) < 0.02).all()
    assert (quantiles.standard_error < 0.02).all()
    ages = quantiles.rescaled((17.0, 45.0))
    assert abs(ages.value[2] - (31 + 14 * np.median(numbers))) < 0.3
    assert found.probabilities.sum() == pytest.approx(1)


@pytest.mark.slow
def test_the_covariance_is_that_of_repeated_samples() -> None:
    wave, n = SquareWave(2.0, 64), 50_000
    truth = np.exp(-0.5 * ((np.arange(65) - 25) / 10) ** 2)
    truth /= truth.sum()
    generator = np.random.default_rng(4)
    tallies = [Tally(n, generator.multinomial(n, truth @ wave.matrix())) for _ in range(200)]
    found = [reconstruct(wave, tally) for tally in tallies]
    cumulative = [replace(d, bias=0 * d.bias).cumulative([-0.5, -0.2, 0.1]) for d in found]
    rows = np.stack([shares.value for shares in cumulative])
    errors = np.stack([shares.standard_error for shares in cumulative])
    assert np.sqrt((errors**2).mean(axis=0)) == pytest.approx(rows.std(axis=0), rel=0.15)


@pytest.mark.parametrize("family", [PiecewiseMechanism, LaplaceMechanism])
def test_reports_of_other_mean_mechanisms_give_a_distribution_too(
    family: type[PiecewiseMechanism] | type[LaplaceMechanism], coins: SeededCoins
) -> None:
    mechanism = family(4.0, 32)
    numbers = population(100_000, 5)
    tally = mechanism.tally(mechanism.randomize_many(numbers, coins))
    median = reconstruct(mechanism, tally).quantiles(0.5)
    assert abs(median.value[0] - np.median(numbers)) < 4 * median.standard_error[0] + 0.01


def known(masses: np.ndarray) -> Distribution:
    points = masses.size
    return Distribution(masses, np.zeros((points, points)), np.zeros(points), 10)


@pytest.mark.parametrize(
    "n", [1, 20, 1000, *(pytest.param(n, marks=pytest.mark.slow) for n in (5, 100))]
)
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_shares_are_covered_from_one_report_on(epsilon: float, n: int) -> None:
    wave, generator = SquareWave(epsilon, 48), np.random.default_rng(5)
    truth = np.exp(-0.5 * ((np.arange(49) - 15) / 7) ** 2)
    truth /= truth.sum()
    edges = [-1, -0.5, 0, 0.5, 1]
    shares = known(truth).histogram(edges).value
    covered = []
    for _ in range(40):
        tally = Tally(n, generator.multinomial(n, truth @ wave.matrix()))
        low, high = reconstruct(wave, tally).histogram(edges).interval()
        covered.append((low <= shares) & (shares <= high))
    assert np.mean(covered) > 0.9


@pytest.mark.parametrize("few", [1, 3, 30])
def test_a_few_reports_of_a_level_do_not_outweigh_many(few: int) -> None:
    strict, open_ = SquareWave(1.0, 32), SquareWave(2.0, 32)
    generator = np.random.default_rng(6)
    truth = np.full(33, 1 / 33)
    many = (strict, Tally(20_000, generator.multinomial(20_000, truth @ strict.matrix())))
    alone = pooled(Cohorts([many])).histogram(EDGES)
    assert np.abs(alone.value - 1 / 8).max() < 0.05
    for _ in range(5):
        other = Tally(few, generator.multinomial(few, truth @ open_.matrix()))
        both = pooled(Cohorts([many, (open_, other)])).histogram(EDGES)
        assert np.abs(both.value - alone.value).max() < 0.001 * few
        assert both.standard_error == pytest.approx(alone.standard_error, rel=0.1)


def test_cohorts_of_one_channel_are_one_cohort() -> None:
    wave, generator = SquareWave(2.0, 32), np.random.default_rng(7)
    truth = np.linspace(2, 1, 33) / np.linspace(2, 1, 33).sum()
    parts = [Tally(n, generator.multinomial(n, truth @ wave.matrix())) for n in (500, 9500)]
    whole = reconstruct(wave, parts[0] + parts[1])
    both = pooled(Cohorts([(wave, part) for part in parts]))
    assert both.probabilities == pytest.approx(whole.probabilities, abs=1e-6)
    assert both.histogram(EDGES).standard_error == pytest.approx(
        whole.histogram(EDGES).standard_error, rel=0.01
    )


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
    shares = known(fine).histogram(EDGES).value
    assert pooled(Cohorts(cohorts)).histogram(EDGES).value == pytest.approx(shares, abs=0.005)


def test_reports_that_are_of_no_number_have_no_distribution() -> None:
    with pytest.raises(InvalidInput, match="krr reports are of no number"):
        pooled(Cohorts([(KRR(3, 1.0), Tally(3, np.array([1, 1, 1])))]))


def test_smoothed_em_is_exact_for_a_uniform_population() -> None:
    wave = SquareWave(1.0, 32)
    uniform = np.full(33, 1 / 33)
    assert smoothed_em(wave.matrix(), uniform @ wave.matrix()) == pytest.approx(uniform, abs=1e-6)


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
    assert sure.cumulative([-1, -0.75, -0.5, 0.75, 1]).value == pytest.approx([0, 0, 0.25, 0.5, 1])
    assert sure.histogram([-1, -0.5, 1]).value == pytest.approx([0.25, 0.75])
    assert sure.mean().value == pytest.approx([0.25])
    assert sure.quantiles([0.25, 0.75]).value == pytest.approx([-0.5, 0.875])


def test_a_quantile_where_the_density_is_low_is_uncertain() -> None:
    sure = certain()
    noisy = Distribution(sure.probabilities, np.eye(5) * 1e-4, sure.bias, 10)
    low, middle = noisy.quantiles([0.25, 0.5]).standard_error
    assert middle > 0.4  # anything between the two lumps is a median
    assert low < 0.05


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
