"""Estimates by simulation: unbiased, with the variance and the coverage that they claim."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from populations import tallies
from scipy.stats import binom

from ldp import (
    KRR,
    FrequencyOracle,
    HybridMechanism,
    InvalidInput,
    OneBitMean,
    PolicyUnary,
    Tally,
    UnaryEncoding,
    estimate,
)
from ldp.core.estimation import Cohorts, Estimate
from ldp.core.exact import ONE
from ldp.core.repeated import Repeats
from ldp.estimating.pooling import Method, pool
from ldp.estimating.strata import answer, stratified
from ldp.testing import SeededCoins

Z = 1.959964


def _coverage(
    oracles: Sequence[FrequencyOracle],
    n: int,
    f: float,
    make: Callable[[Cohorts], Estimate] = estimate,
) -> tuple[float, float]:
    """Return the exact coverage of a value of frequency f, and its expected supports.

    The supports are binomial. Each combination of counts is one category of a unary encoding
    with the oracle's p and q: an interval depends on nothing else.
    """
    chances, supports = [], []
    for p, q in (map(float, oracle.support) for oracle in oracles):
        chance = binom.pmf(np.arange(n + 1), n, f * p + (1 - f) * q)
        supports.append(np.flatnonzero(chance > 1e-7))
        chances.append(chance[supports[-1]])
    grids = [grid.ravel() for grid in np.meshgrid(*supports, indexing="ij")]
    chance = reduce(np.multiply.outer, chances).ravel()
    cohorts = []
    for oracle, counts in zip(oracles, grids, strict=True):
        own, other = (int(x * ONE) for x in oracle.support)
        same = UnaryEncoding(counts.size, 2 * oracle.epsilon, own, other)
        cohorts.append((same, Tally(n, counts)))
    low, high = make(Cohorts(cohorts)).interval()
    p, q = map(float, oracles[0].support)
    s = f * p + (1 - f) * q
    return float(chance @ ((low <= f) & (f <= high))), n * s * (1 - s)


# Near a bound of the domain half of the errors are impossible: 97.5% is right there.
@pytest.mark.parametrize("n", [1000, 20_000])
@pytest.mark.parametrize(
    "oracle",
    [
        *(KRR(k, epsilon) for k in (2, 16, 1024) for epsilon in (0.5, 1.0, 4.0, 8.0)),
        *(UnaryEncoding(16, epsilon) for epsilon in (1.0, 8.0)),
        UnaryEncoding.symmetric(16, 8.0),
    ],
    ids=lambda oracle: f"{oracle.name}-{oracle.k}-{oracle.epsilon}",
)
def test_intervals_cover_95_percent_exactly_computed(oracle: FrequencyOracle, n: int) -> None:
    for f in (0, 0.001, 0.003, 0.01, 0.1, 0.5, 0.9, 1):
        covered, expected = _coverage([oracle], n, f)
        assert covered >= 0.94
        if expected >= 20:  # so few supports are a coarse lattice
            reach = Z * math.sqrt(float(oracle.variance(f, n)))
            bounds_near = (f < reach) + (f > 1 - reach)
            assert covered <= (0.965, 0.985, 1)[bounds_near]


@pytest.mark.parametrize("epsilons", [(8.0, 1.0), (8.0, 4.0), (4.0, 0.5)])
@pytest.mark.parametrize("f", [0, 0.001, 0.003, 0.01, 0.1, 0.5, 1])
def test_pooled_intervals_cover_95_percent_exactly_computed(
    epsilons: tuple[float, float], f: float
) -> None:
    covered, _ = _coverage([KRR(2, epsilon) for epsilon in epsilons], 500, f)
    assert 0.94 <= covered <= 0.99


@pytest.mark.parametrize("f", [0, 0.003, 0.01, 0.1, 0.5, 1])
def test_stratified_intervals_cover_95_percent_exactly_computed(f: float) -> None:
    covered, _ = _coverage([KRR(2, 8.0), KRR(2, 1.0)], 500, f, stratified)
    assert 0.94 <= covered <= 0.99


@pytest.mark.parametrize("n", [20, 50])
@pytest.mark.parametrize("epsilon", [2.0, 4.0])
def test_the_answer_from_one_level_covers_as_its_estimate_does(epsilon: float, n: int) -> None:
    oracle, counts = KRR(2, epsilon), np.arange(n + 1)
    found = [answer(Cohorts([(oracle, Tally(n, np.array([c, n - c])))])) for c in counts]
    ends = np.array([one.estimate.interval() for one in found])[:, :, 0]
    p, q = map(float, oracle.support)
    for f in np.linspace(0, 1, 101):
        chance = binom.pmf(counts, n, f * p + (1 - f) * q)
        assert chance @ ((ends[:, 0] <= f) & (f <= ends[:, 1])) >= 0.929


def test_the_interval_of_one_cohort_is_that_of_wilson_but_for_the_longer_tail() -> None:
    oracle, n, z = UnaryEncoding(3, 2.0), 400, Z
    p, q = map(float, oracle.support)
    supports = np.array([60, 100, 150])
    share = supports / n
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    reach = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    wilson = (np.stack([middle - reach, middle + reach]) - q) / (p - q)
    low, high = oracle.estimate(Tally(n, supports)).interval()
    assert high == pytest.approx(wilson[1], abs=1e-6)
    assert ((wilson[0] - 0.01 < low) & (low < wilson[0]) | (low == 0)).all()


# Wang et al., USENIX Security 2017, Table 2: n times the variance for f near 0.
@pytest.mark.parametrize(
    ("epsilon", "grr2", "grr32", "grr1024", "sue", "oue"),
    [
        (0.5, 3.92, 75.20, 2432.40, 15.92, 15.67),
        (1.0, 0.92, 11.08, 347.07, 3.92, 3.68),
        (2.0, 0.18, 0.92, 25.22, 0.92, 0.72),
        (4.0, 0.02, 0.03, 0.37, 0.18, 0.08),
    ],
)
def test_variances_are_those_of_wang_et_al_table_2(
    epsilon: float, grr2: float, grr32: float, grr1024: float, sue: float, oue: float
) -> None:
    mechanisms = [KRR(2, epsilon), KRR(32, epsilon), KRR(1024, epsilon)]
    mechanisms += [UnaryEncoding.symmetric(9, epsilon), UnaryEncoding(9, epsilon)]
    for mechanism, printed in zip(mechanisms, (grr2, grr32, grr1024, sue, oue), strict=True):
        assert float(mechanism.variance(0, 1)) == pytest.approx(printed, abs=0.00501)


def test_the_variance_includes_the_spread_of_the_sample() -> None:
    # For the fixed sample Wang et al. (theorem 2) have q(1-q)/(p-q)^2 + f(1-p-q)/(p-q); the
    # population's is larger by exactly f(1-f).
    oracle = KRR(4, 1.0)
    p, q = (float(x) for x in oracle.support)
    for f in (0.0, 0.1, 0.5, 1.0):
        fixed = q * (1 - q) / (p - q) ** 2 + f * (1 - p - q) / (p - q)
        assert float(oracle.variance(f, 1)) == pytest.approx(fixed + f * (1 - f))


@pytest.mark.slow
def test_pooling_levels_beats_every_level_and_keeps_coverage(coins: SeededCoins) -> None:
    truth = np.array([0.6, 0.25, 0.1, 0.05])
    levels = [KRR(4, 0.5), KRR(4, 1.0), UnaryEncoding(4, 3.0)]
    generator = np.random.default_rng(3)
    runs, sizes = 3000, (400, 300, 200)
    drawn = [
        tallies(m, generator.choice(4, (runs, n), p=truth), coins)
        for m, n in zip(levels, sizes, strict=True)
    ]
    pooled = [
        estimate(Cohorts(list(zip(levels, run, strict=True)))) for run in zip(*drawn, strict=True)
    ]
    values = np.array([e.value for e in pooled])
    errors = np.array([e.standard_error for e in pooled])
    best = 1 / sum(1 / m.variance(truth, n) for m, n in zip(levels, sizes, strict=True))
    assert np.all(np.abs(values.mean(axis=0) - truth) < 4 * np.sqrt(best / runs))
    assert np.allclose(values.var(axis=0), best, rtol=0.105)
    assert np.mean(errors**2, axis=0) == pytest.approx(best, rel=0.02)
    low, high = np.array([e.interval() for e in pooled]).transpose(1, 0, 2)
    assert 0.94 <= np.mean((low <= truth) & (truth <= high)) <= 0.96


@pytest.mark.slow
def test_simultaneous_intervals_cover_all_values_at_once(coins: SeededCoins) -> None:
    oracle = UnaryEncoding(10, 1.0)
    truth = np.full(10, 0.1)
    values = np.random.default_rng(4).choice(10, (2000, 500))
    hits, pointwise = 0, 0
    estimates = [oracle.estimate(tally) for tally in tallies(oracle, values, coins)]
    for estimated in estimates:
        low, high = estimated.interval(simultaneous=True)
        hits += bool(np.all((low <= truth) & (truth <= high)))
    for estimated in estimates[:500]:
        low, high = estimated.interval()
        pointwise += bool(np.all((low <= truth) & (truth <= high)))
    assert hits / 2000 >= 0.94
    assert pointwise / 500 < 0.88  # one by one they do not cover together, near 0 or not


def test_empty_cohorts_do_not_count() -> None:
    mechanism = KRR(3, 1.0)
    some = Tally(10, np.array([5, 3, 2]))
    alone = mechanism.estimate(some)
    pooled = estimate(Cohorts([(mechanism, some), (KRR(3, 0.5), Tally.empty(3))]))
    assert np.array_equal(pooled.value, alone.value)
    assert pooled.n == 10


def test_a_category_that_no_report_supports_still_has_an_error() -> None:
    estimated = UnaryEncoding(3, 4.0).estimate(Tally(4, np.array([2, 1, 0])))
    assert np.all(estimated.standard_error > 0)


@pytest.mark.parametrize("method", ["mle", "gls", "inverse_variance", "scalar"])
@pytest.mark.parametrize("levels", [(1.0,), (1.0, 4.0)])
def test_an_ordinary_value_that_nobody_reported_is_estimated(
    method: Method, levels: tuple[float, ...], coins: SeededCoins
) -> None:
    """Only those who have it report it: its variance at the frequency 0 is 0."""
    mechanisms = [PolicyUnary.utility_optimised(4, [1], epsilon) for epsilon in levels]
    cohorts = Cohorts([(m, m.tally(m.randomize_many([0] * 200, coins))) for m in mechanisms])
    found = pool(cohorts, method)
    assert np.isfinite(found.value).all()
    assert np.isfinite(found.standard_error).all()
    assert np.abs(found.value - [1, 0, 0, 0]).max() < 0.4


def test_rescaling_keeps_the_estimate_in_step_with_its_interval() -> None:
    estimated = OneBitMean(1.0).estimate(Tally(1000, np.array([400, 600])))
    years = estimated.rescaled((20, 60))
    assert years.value == pytest.approx(40 + 20 * estimated.value)
    assert years.standard_error == pytest.approx(20 * estimated.standard_error)
    assert np.allclose(years.interval(), 40 + 20 * np.array(estimated.interval()))
    share = KRR(2, 1.0).estimate(Tally(9, np.array([4, 5])))
    assert np.allclose(share.rescaled((0, 100)).interval(), 100 * np.array(share.interval()))


def test_the_interval_of_a_mean_counts_a_person_at_each_end() -> None:
    class Given(OneBitMean):
        """Reports whose scores have these moments."""

        _scores = np.array([-0.98 - 0.198, -0.98 + 0.198])  # mean square about -0.98: 0.039
        _least_variance = 0.0081

        def report_variance(self, values: object) -> np.ndarray:
            return np.full(2, 0.0081)

    tally = Tally(200, np.array([100, 100]))
    found = estimate(Cohorts([(Given(1.0), tally)]))
    center = -0.98 * 200 / 202
    squares = 200 * (0.98**2 + 0.198**2) + 2 * (1 + 0.0081)
    reach = Z * math.sqrt((squares / 202 - center**2) / 202)
    assert found.interval()[1][0] == pytest.approx(center + reach, rel=1e-6)
    assert found.interval()[1][0] == pytest.approx(-0.9372, abs=3e-4)
    assert found.interval()[0][0] == -1


@pytest.mark.parametrize(
    ("levels", "middle", "least"),
    [
        # What Wald's intervals cover: 0.86, 0.88, 0.67, 0.94, 0.82.
        ([(8.0, 200)], 0.0, 0.97),
        ([(6.0, 50)], 0.0, 0.95),
        ([(8.0, 50)], 0.0, 0.97),
        ([(8.0, 200)], 0.99, 0.96),
        ([(1.0, 1000), (8.0, 200)], 0.0, 0.945),
    ],
)
def test_intervals_of_means_cover_rare_extremes(
    levels: list[tuple[float, int]], middle: float, least: float
) -> None:
    rare = 0.01 if levels[0][1] != 50 else 0.05 if levels[0][0] == 6.0 else 0.02
    population = np.zeros(257)
    population[[0, 128, 256]] = (1 - rare - middle if not middle else 0, middle, rare)
    truth = population @ np.linspace(-1, 1, 257)
    mechanisms = [HybridMechanism.optimal(epsilon, grid=256) for epsilon, _ in levels]
    chances = [population @ mechanism.matrix() for mechanism in mechanisms]
    rng, covered = np.random.default_rng(5), []
    for _ in range(600):
        each = [
            (mechanism, Tally(n, rng.multinomial(n, chance)))
            for mechanism, chance, (_, n) in zip(mechanisms, chances, levels, strict=True)
        ]
        low, high = estimate(Cohorts(each)).interval()
        covered.append(low[0] <= truth <= high[0])
    assert np.mean(covered) >= least - 2.5 * math.sqrt(least * (1 - least) / 600)


def test_imagined_people_join_the_larger_of_cohorts_whose_reports_weigh_the_same() -> None:
    joined = []

    class Recorded(OneBitMean):
        def spread(self, center: float, tally: Tally, imagined: float = 0) -> float:
            if imagined:
                joined.append(tally.n)
            return super().spread(center, tally, imagined)

    mechanism = Recorded(0.1)
    for few in range(1, 60):  # shares of the reports that rounding makes weigh differently
        each = [(mechanism, Tally(n, np.array([n // 2, n - n // 2]))) for n in (few, 1000)]
        stratified(Cohorts(each)).interval()
    assert joined == [1000] * 59


@pytest.mark.parametrize("reports", [6, 60])
def test_means_beyond_their_range_have_intervals_that_allow_for_repeats(reports: int) -> None:
    mechanism, repeats = OneBitMean(1.0), [Repeats(3.0)]
    for ones in (0, reports):
        each = [(mechanism, Tally(reports, np.array([reports - ones, ones])))]
        found = estimate(Cohorts(each, repeats))
        assert abs(found.value[0]) > 2
        low, high = found.interval()
        nearest = high if ones else -low
        assert nearest == 1
        assert 0.4 < high - low <= 2


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
@pytest.mark.parametrize("truth", [1.0, 0.9])
def test_means_of_people_who_answer_in_each_of_three_periods_are_covered(
    epsilon: float, truth: float
) -> None:
    rng, people, covered = np.random.default_rng(13), 20, []
    mechanism = OneBitMean(epsilon)
    kept = 1 - mechanism.flip / 2**64
    for _ in range(600):
        plus = rng.binomial(people, (1 + truth) / 2)
        ones = rng.binomial(3 * plus, kept) + rng.binomial(3 * (people - plus), 1 - kept)
        tally = Tally(3 * people, np.array([3 * people - ones, ones]))
        low, high = estimate(Cohorts([(mechanism, tally)], [Repeats(3.0)])).interval()
        covered.append(low[0] <= truth <= high[0])
    assert np.mean(covered) >= 0.93


def test_an_estimate_beyond_its_range_does_not_look_precise() -> None:
    for found in (
        KRR(2, 2.0).estimate(Tally(100, np.array([100, 0]))),
        OneBitMean(2.0).estimate(Tally(100, np.array([0, 100]))),
        replace(KRR(2, 2.0).estimate(Tally(100, np.array([100, 0]))), ends=None),
    ):
        beyond = found.value[0] - found.bounds[1]
        assert beyond > Z * found.standard_error[0]  # unbiased, so not clipped
        low, high = found.interval()
        assert high[0] == found.bounds[1]
        assert high[0] - low[0] > 0.8 * Z * found.standard_error[0]
        assert np.all(low >= found.bounds[0])


def test_limits_of_a_value_rise_with_the_reports_of_it() -> None:
    mechanism, n = UnaryEncoding(401, 0.5), 1000
    estimated = mechanism.estimate(Tally(n, np.arange(401)))
    assert estimated.value[0] < -8 * estimated.standard_error[0]
    low, high = estimated.interval()
    assert (np.diff(high) >= 0).all()
    assert (np.diff(low) >= 0).all()
    assert (high - low > 0.05).all()


def test_nothing_to_estimate_from_is_an_error() -> None:
    with pytest.raises(InvalidInput, match="no reports to estimate from"):
        KRR(3, 1.0).estimate(Tally.empty(3))


def test_different_parameters_are_not_pooled() -> None:
    some = Tally(10, np.array([5, 5]))
    with pytest.raises(InvalidInput, match="different parameters cannot be pooled"):
        Cohorts([(KRR(2, 1.0), some), (OneBitMean(1.0), some)])


def test_a_cohort_without_reports_goes_with_its_repeats() -> None:
    some = Tally(10, np.array([4, 6]))
    each = [(KRR(2, 1.0), Tally.empty(2)), (KRR(2, 2.0), some), (KRR(2, 3.0), some)]
    cohorts = Cohorts(each, [Repeats(2.0), Repeats(3.0), Repeats(4.0)])
    assert list(cohorts) == each[1:]
    assert cohorts.repeats == (Repeats(3.0), Repeats(4.0))
    assert (cohorts.n, cohorts.parameters, cohorts.bounds) == (20, 2, (0.0, 1.0))
    assert [(list(one), one.repeats) for one in cohorts.alone()] == [
        ([each[1]], (Repeats(3.0),)),
        ([each[2]], (Repeats(4.0),)),
    ]


def test_a_confidence_close_to_one_is_as_good_as_any() -> None:
    low, high = (
        OneBitMean(1.0).estimate(Tally(10**6, np.array([5 * 10**5] * 2))).interval(1 - 1e-16)
    )
    assert -1 < low < high < 1


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 95, float("nan")])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    estimated = KRR(2, 1.0).estimate(Tally(2, np.array([1, 1])))
    with pytest.raises(InvalidInput, match="confidence must lie strictly between 0 and 1"):
        estimated.interval(confidence)
