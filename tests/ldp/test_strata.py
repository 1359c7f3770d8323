"""What to answer where the people of different cohorts may differ."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import KRR, InvalidInput, OneBitMean, SquareWave, Tally, UnaryEncoding
from ldp.core.estimation import Cohorts, Estimate
from ldp.core.exact import ONE
from ldp.core.intervals import reach
from ldp.core.policy import Policy
from ldp.estimating.points import estimate_points, even_cuts
from ldp.estimating.pooling import homogeneity, pool
from ldp.estimating.strata import (
    answer,
    bounded,
    detectable,
    stratified,
    stratified_points,
    stratified_precision,
)
from ldp.planning.design import design

Floats = NDArray[np.float64]

LEVELS = (0.5, 1.0, 2.0, 4.0)
COUNTS = (4000, 3000, 2000, 1000)
EVEN = np.full(4, 0.25)


def matrix(mechanism: KRR) -> Floats:
    found = mechanism.matrix()
    assert found is not None
    return found


def of(*each: tuple[float, int, Floats]) -> Cohorts:
    """The expected cohorts of k-RR with these epsilons, sizes and truths."""
    cohorts = []
    for epsilon, n, truth in each:
        mechanism = KRR(truth.size, epsilon)
        counts = np.round(n * truth @ matrix(mechanism)).astype(np.int64)
        cohorts.append((mechanism, Tally(int(counts.sum()), counts)))
    return Cohorts(cohorts)


ALIKE = of(*((epsilon, n, EVEN) for epsilon, n in zip(LEVELS, COUNTS, strict=True)))


def half_width(found: Estimate) -> float:
    low, high = found.interval()
    return float(high[0] - low[0]) / 2


def test_without_a_bound_the_answer_is_stratified_with_the_pooled_one_beside_it() -> None:
    found = answer(ALIKE)
    assert found.estimate.method == "stratified"
    assert half_width(found.estimate) == pytest.approx(0.04201, rel=3e-3)
    assert found.alike is not None
    assert found.alike.method == "mle"
    assert half_width(found.alike) == pytest.approx(0.01912, rel=1e-3)
    assert found.homogeneity == homogeneity(ALIKE)
    assert found.detectable == detectable(ALIKE, 9)
    assert found.doubt == ""


def test_a_bound_of_zero_pools_and_warns_of_levels_that_differ() -> None:
    found = answer(ALIKE, "inverse_variance", most=0.0)
    assert (found.estimate.method, found.alike, found.doubt) == ("inverse_variance", None, "")
    away = np.array([0.4, 0.2, 0.2, 0.2])
    differing = of((0.5, 40_000, EVEN), (3.0, 20_000, away))
    found = answer(differing, most=0.0)
    assert found.estimate.method == "mle"
    assert found.doubt == "differ"
    assert answer(differing).doubt == ""
    untested = answer(differing, most=0.0, tested=False)
    assert (untested.homogeneity, untested.detectable) == (None, None)
    assert untested.doubt == "untested"


@pytest.mark.parametrize(("most", "expected"), [(0.02, 0.02477), (0.05, 0.0326), (0.1, 0.03858)])
def test_a_bound_gives_an_interval_between_pooled_and_stratified(
    most: float, expected: float
) -> None:
    found = answer(ALIKE, most=most)
    assert found.estimate.method == f"levels differ by {most:g} at most"
    assert half_width(found.estimate) == pytest.approx(expected, rel=3e-3)
    assert found.alike is not None


@pytest.mark.slow
def test_no_other_weights_give_a_shorter_interval_under_the_bound() -> None:
    rng, z = np.random.default_rng(8), 1.959964
    found = bounded(ALIKE, 0.05)
    w = np.array(COUNTS) / 10_000
    variances = np.array([m.variance(0.25, t.n) for m, t in ALIKE])

    for _ in range(500):
        a = rng.dirichlet(rng.uniform(0.5, 200) * np.array([0.18, 0.3, 0.24, 0.28]))
        half = reach(0.05 * np.abs(a - w).sum() / 2, math.sqrt(a**2 @ variances), z)
        assert half >= 0.999 * half_width(found) - 1e-4


def test_quantiles_of_a_normal_with_a_bias_are_those_of_tables() -> None:
    bias = np.array([0, 0.25, 0.5, 1, 1.5, 2, 4])
    expected = [1.9600, 2.0197, 2.1815, 2.6461, 3.1449, 3.6449, 5.6449]
    assert reach(bias, 1.0, 1.959964) == pytest.approx(expected, abs=1e-4)
    assert reach(3 * bias, 3.0, 1.959964) == pytest.approx(3 * np.array(expected), abs=3e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("each", "k"),
    [
        ([(0.5, 4000), (3.0, 2000)], 2),
        ([(1.0, 20_000), (3.0, 10_000)], 4),
        ([(2.0, 20_000), (3.0, 20_000)], 16),
        ([(1.0, 20_000), (1.5, 20_000), (3.0, 10_000), (2.5, 10_000)], 16),
    ],
)
def test_a_detectable_difference_is_detected_four_times_in_five(
    each: list[tuple[float, int]], k: int
) -> None:
    rng, at = np.random.default_rng(9), np.full(k, 1 / k)
    degrees = (len(each) - 1) * (k - 1)
    alike = of(*((epsilon, n, at) for epsilon, n in each))
    assert homogeneity(alike).degrees == degrees
    # The two cohorts that tell most are apart in one value, the others are between them.
    away = np.where(np.arange(k) == 0, 1, -1 / (k - 1)) * detectable(alike, degrees)
    variances = np.array([float(m.variance(1 / k, t.n)) for m, t in alike])
    first, second = np.argsort(variances)[:2]
    share = variances[first] / (variances[first] + variances[second])
    truths = [at] * len(each)
    truths[first], truths[second] = at + share * away, at - (1 - share) * away
    chances = [f @ matrix(m) for f, (m, _) in zip(truths, alike, strict=True)]
    found = []
    for _ in range(400):
        drawn = [
            (m, Tally(tally.n, rng.multinomial(tally.n, chance)))
            for (m, tally), chance in zip(alike, chances, strict=True)
        ]
        found.append(homogeneity(Cohorts(drawn)).p_value < 0.01)
    assert np.mean(found) == pytest.approx(0.8, abs=0.07)


def coverage(
    each: list[tuple[float, int]],
    apart: float,
    make: Callable[[Cohorts], Estimate],
    runs: int = 400,
    maker: type[KRR] | type[UnaryEncoding] = KRR,
) -> float:
    """How often the interval of a value holds its share of those who answered.

    The strictest level's people differ by `apart`, the next ones' by less.
    """
    rng, covered = np.random.default_rng(3), []
    mechanisms = [maker(4, epsilon) for epsilon, _ in each]
    steps = np.linspace(1, 0, len(each))
    truths = [EVEN + step * apart * np.array([1, -1 / 3, -1 / 3, -1 / 3]) for step in steps]
    sizes = np.array([n for _, n in each])
    truth = sizes @ np.array(truths) / sizes.sum()
    for _ in range(runs):
        cohorts = []
        for mechanism, n, f in zip(mechanisms, sizes.tolist(), truths, strict=True):
            if isinstance(mechanism, KRR):
                counts = rng.multinomial(n, f @ matrix(mechanism))
            else:
                p, q = map(float, mechanism.support)
                counts = rng.binomial(n, f * p + (1 - f) * q)
            cohorts.append((mechanism, Tally(n, counts)))
        low, high = make(Cohorts(cohorts)).interval()
        covered += [low[i] <= truth[i] <= high[i] for i in (0, 1)]
    return float(np.mean(covered))


TWO, FOUR = [(0.5, 4000), (3.0, 2000)], list(zip(LEVELS, COUNTS, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("each", [TWO, FOUR], ids=["two levels", "four levels"])
@pytest.mark.parametrize("apart", [0.0, 0.05, 0.12])
def test_stratified_intervals_cover_whatever_the_levels_people_are_like(
    each: list[tuple[float, int]], apart: float
) -> None:
    assert 0.92 <= coverage(each, apart, stratified) <= 0.98
    if apart == 0.05:
        assert coverage(each, apart, pool) < 0.8  # what a pooled interval makes of it


@pytest.mark.slow
@pytest.mark.parametrize("maker", [KRR, UnaryEncoding])
@pytest.mark.parametrize("each", [TWO, FOUR, [(1.0, 2000), (2.0, 2000)]])
@pytest.mark.parametrize("apart", [0.0, 0.03, 0.12])
def test_stratified_intervals_cover_in_94_to_96_percent(
    each: list[tuple[float, int]], apart: float, maker: type[KRR] | type[UnaryEncoding]
) -> None:
    assert 0.94 <= coverage(each, apart, stratified, 2500, maker) <= 0.965


def bounded_coverage(
    each: list[tuple[float, int]], truths: list[float], most: float, runs: int
) -> float:
    """How often the interval of a share holds that of those who answered, by its truth in levels.

    Each run is one category of a unary encoding with the p and q of k-RR for two values: an
    interval depends on nothing else.
    """
    rng, cohorts = np.random.default_rng(14), []
    for (epsilon, n), f in zip(each, truths, strict=True):
        p, q = KRR(2, epsilon).support
        same = UnaryEncoding(runs, 2 * epsilon, int(p * ONE), int(q * ONE))
        counts = rng.binomial(n, f * float(p) + (1 - f) * float(q), runs)
        cohorts.append((same, Tally(n, counts)))
    sizes = np.array([n for _, n in each])
    truth = sizes @ np.array(truths) / sizes.sum()
    low, high = bounded(Cohorts(cohorts), most).interval()
    return float(np.mean((low <= truth) & (truth <= high)))


# Mostly the bound is exactly true, and the variance of the level that tells most depends on f.
@pytest.mark.parametrize(
    ("each", "truths", "most"),
    [
        ([(0.1, 9000), (8.0, 1000)], [0.01, 0.06], 0.05),
        ([(0.1, 9000), (8.0, 1000)], [0.0, 0.1], 0.1),
        ([(0.1, 9000), (8.0, 1000)], [0.1, 0.2], 0.1),
        ([(0.1, 9000), (8.0, 1000)], [0.06, 0.01], 0.05),
        ([(0.25, 9000), (4.0, 3000)], [0.0, 0.05], 0.05),
        ([(1.0, 4000), (3.0, 1000), (8.0, 500)], [0.05, 0.03, 0.0], 0.05),
        (TWO, [0.25, 0.25], 0.05),
        (TWO, [0.3, 0.25], 0.05),
        (FOUR, [0.3, 0.28, 0.27, 0.25], 0.05),
    ],
)
def test_intervals_under_a_bound_cover_where_the_bound_holds(
    each: list[tuple[float, int]], truths: list[float], most: float
) -> None:
    assert bounded_coverage(each, truths, most, 2000) >= 0.94


@pytest.mark.slow
@pytest.mark.parametrize(
    ("each", "most"),
    [
        ([(0.1, 9000), (8.0, 1000)], 0.05),
        ([(1.0, 500), (8.0, 100)], 0.05),
        ([(8.0, 150), (8.0, 50)], 0.05),
        (FOUR, 0.05),
    ],
)
def test_intervals_under_a_bound_cover_wherever_levels_are_within_it(
    each: list[tuple[float, int]], most: float
) -> None:
    covered = []
    for last in (0, 0.001, 0.004, 0.02, 0.05, 0.3, 0.99):
        for apart in (-1, -0.25, 0, 0.25, 0.75, 1):
            truths = np.linspace(last + apart * most, last, len(each))
            if truths.min() >= 0 and truths.max() <= 1:
                covered.append(bounded_coverage(each, truths.tolist(), most, 3000))
    assert min(covered) >= 0.935


def test_an_interval_under_a_bound_is_no_wider_than_one_without_where_the_bound_is_loose() -> None:
    each = [(KRR(2, 0.1), Tally(9000, np.array([4300, 4700])))]
    each.append((KRR(2, 8.0), Tally(1000, np.array([10, 990]))))
    cohorts = Cohorts(each)
    low, high = bounded(cohorts, 0.05).interval()
    # All that the strict level's people may add, 0.9 * 0.05, and chance.
    assert high[0] <= 0.01 + 0.045 + 0.015
    assert low[0] == 0


def test_means_are_stratified_and_bounded_as_shares_are() -> None:
    def ones(epsilon: float, n: int, mean: float) -> tuple[OneBitMean, Tally]:
        mechanism = OneBitMean(epsilon)
        share = (1 + mean * float(mechanism.channel().rows[1][1] * 2 - 1)) / 2
        return mechanism, Tally(n, np.array([n - round(n * share), round(n * share)]))

    cohorts = Cohorts([ones(1.0, 3000, 0.5), ones(4.0, 1000, -0.5)])
    found = answer(cohorts)
    assert found.estimate.value == pytest.approx([0.25], abs=0.01)
    low, high = bounded(cohorts, 0.1).interval()
    wide_low, wide_high = found.estimate.interval()
    assert high[0] - low[0] < wide_high[0] - wide_low[0]


def test_strata_are_weighted_by_their_shares() -> None:
    low, high = np.array([0.9, 0.1]), np.array([0.5, 0.5])
    cohorts = of((1.0, 3000, low), (3.0, 1000, high))
    found = stratified(cohorts)
    assert found.method == "stratified"
    assert found.value == pytest.approx(0.75 * low + 0.25 * high, abs=1e-3)
    assert stratified(cohorts, [0.5, 0.5]).value == pytest.approx((low + high) / 2, abs=1e-3)


@pytest.mark.parametrize("known", [pytest.param(True, marks=pytest.mark.slow), False])
def test_the_error_of_strata_covers_who_happens_to_answer(known: bool) -> None:
    rng = np.random.default_rng(11)
    shares, truths = np.array([0.6, 0.4]), np.array([[0.9, 0.05, 0.05], [0.1, 0.8, 0.1]])
    mechanisms = KRR(3, 6.0), KRR(3, 7.0)
    truth, runs, errors, stated = shares @ truths, 2000, [], []
    for _ in range(runs):
        sizes = [600, 400] if known else rng.multinomial(1000, shares)
        each = zip(mechanisms, sizes, truths, strict=True)
        cohorts = Cohorts(
            [(m, Tally(int(n), rng.multinomial(n, f @ matrix(m)))) for m, n, f in each]
        )
        found = stratified(cohorts, shares if known else None)
        errors.append(found.value - truth)
        stated.append(found.standard_error**2)
    assert np.mean(stated, axis=0) == pytest.approx(np.mean(np.square(errors), axis=0), rel=0.13)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [stratified, *(partial(bounded, most=most) for most in (0.01, 0.05))],
    ids=["stratified", "bounded by 0.01", "bounded by 0.05"],
)
@pytest.mark.parametrize(("epsilons", "rare"), [((0.5, 3.0), 0.005), ((1.0, 3.0), 0.02)])
def test_strata_cover_a_rare_value_that_no_report_revealed(
    make: Callable[[Cohorts], Estimate], epsilons: tuple[float, float], rare: float
) -> None:
    truth = np.array([rare, 0.6 - rare, 0.2, 0.2])
    mechanisms = [design(Policy.one_sided(4, (2, 3), e)).mechanism for e in epsilons]
    rng, covered = np.random.default_rng(12), []
    for _ in range(200):
        chances = [truth @ matrix(m) for m in mechanisms]  # type: ignore[arg-type]
        tallies = [Tally(150, rng.multinomial(150, c / c.sum())) for c in chances]
        low, high = make(Cohorts(list(zip(mechanisms, tallies, strict=True)))).interval()
        covered.append(low[0] <= truth[0] <= high[0])
    assert np.mean(covered) >= 0.925


def test_one_cohort_is_answered_without_a_test() -> None:
    found = answer(ALIKE.alone()[0])
    assert (found.homogeneity, found.alike, found.detectable, found.doubt) == (None,) * 3 + ("",)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([0.5, 0.6], "shares must be 2 numbers >= 0 that sum to one"),
        ([1.0], "shares must be 2 numbers"),
        ([1.5, -0.5], "shares must be 2 numbers >= 0"),
        ([0.2, 0.3, 0.5], "one for each cohort with reports"),
    ],
)
def test_shares_that_cannot_be_are_refused(shares: list[float], message: str) -> None:
    each = [(KRR(2, e), Tally(10, np.array([5, 5]))) for e in (1.0, 2.0)]
    cohorts = Cohorts([*each, (KRR(2, 3.0), Tally.empty(2))])
    with pytest.raises(InvalidInput, match=message):
        stratified(cohorts, shares)


@pytest.mark.parametrize("most", [-0.1, float("nan")])
def test_a_bound_that_is_none_is_refused(most: float) -> None:
    with pytest.raises(InvalidInput, match="the most that cohorts may differ by must be >= 0"):
        answer(ALIKE, most=most)
    with pytest.raises(InvalidInput, match="must be > 0"):
        bounded(ALIKE, most)


def drawn(truths: list[Floats], sizes: tuple[int, ...], rng: np.random.Generator) -> Cohorts:
    """Tallies of square waves at epsilon 1, 2, ... of people of these distributions of points."""
    each = []
    for number, (truth, n) in enumerate(zip(truths, sizes, strict=True), 1):
        wave = SquareWave(float(number), truth.size - 1)
        each.append((wave, Tally(n, rng.multinomial(n, truth @ wave.matrix()))))
    return Cohorts(each)


@pytest.mark.parametrize("runs", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_distributions_cover_the_mix_of_those_who_answered(runs: int) -> None:
    rng, sizes = np.random.default_rng(6), (20_000, 10_000)
    ages = np.exp(-0.5 * ((np.arange(26) - 9) / 5) ** 2)
    truths = [np.roll(ages, 1) / ages.sum(), ages / ages.sum()]  # strict people are a year older
    mix = (2 * truths[0] + truths[1]) / 3
    cuts = even_cuts(26, 8)
    bins, below = np.add.reduceat(mix, cuts[:-1]), mix.cumsum()[:-1]
    covered, pooled = [], []
    for _ in range(runs):
        cohorts = drawn(truths, sizes, rng)
        found = stratified_points(cohorts, 26)
        for one, true in ((found.bins(cuts), bins), (found.cumulative(), below)):
            covered.append(((one.low <= true) & (true <= one.high)).mean())
        alike = estimate_points(cohorts, 26).cumulative()
        pooled.append(((alike.low <= below) & (below <= alike.high)).mean())
    tolerance = 0.04 if runs < 100 else 0.015
    assert abs(np.mean(covered) - 0.955) <= tolerance
    assert np.mean(pooled) < 0.9


def test_a_stratified_distribution_is_the_weighted_mean_of_the_levels_own() -> None:
    rng = np.random.default_rng(7)
    truth = np.full(6, 1 / 6)
    cohorts = drawn([truth, truth], (3000, 1000), rng)
    found = stratified_points(cohorts, 6)
    first, second = (estimate_points(one, 6) for one in cohorts.alone())
    mean = 0.75 * first.unconstrained + 0.25 * second.unconstrained
    assert found.unconstrained == pytest.approx(mean)
    assert found.unconstrained.sum() == pytest.approx(1)
    assert found.likely.min() >= 0
    assert found.likely.sum() == pytest.approx(1)
    if mean.min() > 0:
        assert found.likely == pytest.approx(mean)
    planned = stratified_precision(
        [(m, t.n, own) for (m, t), own in zip(cohorts, cohorts.repeats, strict=True)], 6
    )
    assert planned.covariance == pytest.approx(found.covariance, rel=0.2, abs=2e-4)
    alone = stratified_points(cohorts.alone()[0], 6)
    assert alone.unconstrained == pytest.approx(first.unconstrained)
