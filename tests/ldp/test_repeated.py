"""The same people in several periods: the bound on what they add, and the intervals it gives."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import KRR, InvalidInput, Mechanism, OneBitMean, SquareWave, Tally, UnaryEncoding
from ldp.assurance.poisoning import largest_shift
from ldp.core.estimation import Cohorts, Estimate
from ldp.core.repeated import Repeated, Repeats, factors
from ldp.estimating.points import estimate_points, even_cuts
from ldp.estimating.pooling import Method, homogeneity, pool
from ldp.estimating.strata import stratified
from ldp.testing import SeededCoins

METHODS: tuple[Method, ...] = ("mle", "gls", "inverse_variance", "scalar")
DAYS, PEOPLE = 20, 300


def participation(source: np.random.Generator) -> NDArray[np.int64]:
    """Who of 6 people answered in each of 4 periods at which of 2 levels: 0 for nobody's."""
    return source.integers(0, 3, (4, 6))


def counted(levels: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.array([(levels == level).sum(axis=1) for level in (1, 2)])


@pytest.mark.parametrize("seed", range(50))
def test_no_participation_has_more_variance_than_the_bound(seed: int) -> None:
    source = np.random.default_rng(seed)
    levels = participation(source)
    reports = counted(levels)
    weights = np.array([0.0, *source.random(2)])
    # A truth of variance 1 that a person keeps: it counts with the sum of the reports' weights.
    variance = (weights[levels].sum(axis=0) ** 2).sum()
    bound = (weights[1:] ** 2 * reports.sum(axis=1) * factors(reports)).sum()
    assert variance <= bound + 1e-9


def test_the_bound_is_exact_where_the_fewer_people_are_among_the_more() -> None:
    sizes = np.array([5, 2, 9, 9])
    answered = np.arange(9)[None, :] < sizes[:, None]
    people = (answered.sum(axis=0) ** 2).sum() / sizes.sum()
    assert factors(sizes[None, :]) == pytest.approx([people])
    assert factors([[7, 7, 7]]) == pytest.approx([3])
    assert factors([[7], [3], [0]]).tolist() == [1, 1, 1]


MECHANISMS = {
    "krr": (KRR(5, 2.0), KRR(5, 4.0)),
    "oue": (UnaryEncoding(5, 2.0), UnaryEncoding(5, 4.0)),
}


def cohorts(name: str, levels: int = 2, repeats: Repeated = ()) -> Cohorts:
    source = np.random.default_rng(3)
    f = np.array([0.4, 0.3, 0.2, 0.08, 0.02])
    each = [
        (m, m.tally(m.randomize_many(source.choice(5, 4000, p=f), coins)))
        for m, coins in zip(MECHANISMS[name][:levels], map(SeededCoins, (1, 2)), strict=False)
    ]
    return Cohorts(each, repeats)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_repeated_truths_add_their_variance_and_no_noise(name: str, method: Method) -> None:
    usual = pool(cohorts(name, 1), method)
    found = pool(cohorts(name, 1, [Repeats(7.0)]), method)
    assert found.value == pytest.approx(usual.value, abs=1e-3)
    added = found.standard_error**2 - usual.standard_error**2
    f = usual.value
    assert added == pytest.approx(6 * f * (1 - f) / 4000, rel=0.12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MECHANISMS)
def test_repeated_codes_repeat_the_whole_error(name: str, method: Method) -> None:
    usual = pool(cohorts(name), method)
    found = pool(cohorts(name, 2, [Repeats(9.0, codes=True)] * 2), method)
    assert found.value == pytest.approx(usual.value, abs=2e-3)
    assert found.standard_error == pytest.approx(3 * usual.standard_error, rel=0.02)
    wide, narrow = (np.subtract(*e.interval()[::-1]) for e in (found, usual))
    assert wide[:3] == pytest.approx(3 * narrow[:3], rel=0.05)


def test_a_repeated_level_has_less_weight() -> None:
    both = cohorts("krr")
    exact = pool(both.alone()[1], "mle").value
    usual = np.abs(pool(both, "mle").value - exact).sum()
    repeated = cohorts("krr", 2, [Repeats(1.0), Repeats(500.0)])
    found = np.abs(pool(repeated, "mle").value - exact).sum()
    assert found > 3 * usual


def test_strata_have_the_errors_of_repeats_too() -> None:
    usual = stratified(cohorts("krr"))
    found = stratified(cohorts("krr", 2, [Repeats(9.0, codes=True)] * 2))
    assert found.standard_error == pytest.approx(3 * usual.standard_error, rel=0.05)


def test_forged_reports_weigh_as_the_pooling_weighs() -> None:
    usual = largest_shift(cohorts("krr"), 100)
    found = largest_shift(cohorts("krr", 2, [Repeats(1.0), Repeats(500.0)]), 100)
    # Few reports of the strict level were enough before, and less so where it weighs more.
    assert found.up[0] > usual.up[0]


def counts(
    mechanism: Mechanism, truths: NDArray[np.float64], source: np.random.Generator, same: bool
) -> Tally:
    """Tally the reports of all days; `truths` are the chances of each grid point or category."""
    matrix = mechanism.matrix()  # type: ignore[attr-defined]
    people = source.multinomial(PEOPLE, truths, size=1 if same else DAYS)
    daily = np.broadcast_to(people, (DAYS, len(truths)))
    codes = source.multinomial(daily, matrix / matrix.sum(axis=1, keepdims=True))
    return Tally(DAYS * PEOPLE, codes.sum(axis=(0, 1)))


def covered(estimate: Estimate, truth: NDArray[np.float64]) -> NDArray[np.bool_]:
    low, high = estimate.interval()
    inside: NDArray[np.bool_] = (low <= truth) & (truth <= high)
    return inside


@pytest.mark.slow
@pytest.mark.parametrize("same", [True, False], ids=["same", "fresh"])
@pytest.mark.parametrize("method", ["mle", "inverse_variance"])
@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_intervals_cover_whether_or_not_people_are_the_same_every_day(
    epsilon: float, method: Method, same: bool
) -> None:
    source = np.random.default_rng(5)
    f = np.array([0.3, 0.65, 0.05])
    levels = [KRR(3, epsilon), KRR(3, epsilon / 2)]
    repeats = [Repeats(DAYS), Repeats(DAYS)]
    hits = [
        covered(
            pool(Cohorts([(m, counts(m, f, source, same)) for m in levels], repeats), method), f
        )
        for _ in range(150)
    ]
    assert np.mean(hits) > 0.91
    if same:  # and are no wider than they must be
        assert np.mean(hits) < 0.975


@pytest.mark.parametrize("same", [True, False], ids=["same", "fresh"])
def test_intervals_of_a_mean_cover_too(same: bool) -> None:
    source = np.random.default_rng(6)
    onebit = OneBitMean(4.0)
    truths = np.zeros(onebit.steps + 1)
    truths[[0, -1]] = 0.4, 0.6
    hits = [
        covered(pool(Cohorts([(onebit, counts(onebit, truths, source, same))], [Repeats(DAYS)])),
                np.array([0.2]))
        for _ in range(200)
    ]  # fmt: skip
    assert np.mean(hits) > 0.92


@pytest.mark.parametrize("same", [True, False], ids=["same", "fresh"])
def test_intervals_of_a_distribution_cover_too(same: bool) -> None:
    source = np.random.default_rng(7)
    wave = SquareWave(4.0, 24)
    truths = np.exp(-0.5 * ((np.arange(25) - 10) / 5) ** 2)
    truths /= truths.sum()
    cuts = even_cuts(25, 5)
    shares = np.add.reduceat(truths, cuts[:-1])
    hits = []
    for _ in range(100):
        cohorts = Cohorts([(wave, counts(wave, truths, source, same))], [Repeats(DAYS)])
        found = estimate_points(cohorts, 25).bins(cuts)
        hits.append((found.low <= shares) & (shares <= found.high))
    assert np.mean(hits) > 0.91


def test_levels_of_the_same_people_every_day_are_found_different_as_rarely_as_stated() -> None:
    source = np.random.default_rng(8)
    f = np.array([0.3, 0.7])
    levels = [KRR(2, 1.0), KRR(2, 4.0)]
    p_values = [
        homogeneity(
            Cohorts([(m, counts(m, f, source, True)) for m in levels], [Repeats(DAYS)] * 2)
        ).p_value
        for _ in range(200)
    ]
    assert np.mean(np.array(p_values) < 0.05) < 0.1
    assert np.mean(np.array(p_values) < 0.5) > 0.3  # and the test is not blind


def test_repeats_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"must be >= 1, got 0\.5"):
        Repeats(0.5)
    with pytest.raises(InvalidInput, match="2 cohorts, but 1 repeats"):
        cohorts("krr", 2, [Repeats(2.0)])
    with pytest.raises(InvalidInput, match=r"shape \(levels, periods\), got \(3,\)"):
        factors([1, 2, 3])
