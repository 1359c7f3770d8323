"""Weighted estimates: against a naive reference over single reports, and by simulation."""

import itertools
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import (
    KRR,
    InvalidInput,
    Mechanism,
    OneBitMean,
    PiecewiseMechanism,
    SetBits,
    SetSelection,
    SquareWave,
    Tally,
)
from ldp.core.estimation import Cohorts
from ldp.core.repeated import Repeats
from ldp.estimating.marginals import Marginal, Part
from ldp.estimating.points import channel_from_points, estimate_points
from ldp.estimating.raking import Margin, Values, Weights, rake
from ldp.estimating.ratings import RatedShares, mean_ratings
from ldp.estimating.weighting import weighted, weighted_points, weighted_ratings
from ldp.testing import SeededCoins

Floats = NDArray[np.float64]

PROPERTIES = ("platform", "country", "version")
SIZES = (3, 2, 2)
GROUPS: list[Values] = list(itertools.product("abc", "xy", "12"))
PLACES = np.array(list(itertools.product(*map(range, SIZES))))
K = 3


@cache
def population() -> tuple[Floats, Floats, Floats]:
    """Shares of the population and of the respondents, and the groups' frequencies."""
    rng = np.random.default_rng(4)
    shares = rng.dirichlet(np.full(12, 9.0))
    willing = np.prod([rng.lognormal(0, 0.5, size)[at] for size, at in _each()], axis=0)
    logits = sum(rng.normal(0, 1, (size, K))[at] for size, at in _each())
    frequencies = np.exp(logits + rng.normal(0, 0.7, (12, K)))
    asked = shares * willing
    return shares, asked / asked.sum(), frequencies / frequencies.sum(axis=1, keepdims=True)


def _each() -> list[tuple[int, NDArray[np.intp]]]:
    return list(zip(SIZES, PLACES.T, strict=True))


def margin(*names: str) -> Margin:
    """The population's margin of these properties."""
    at = [PROPERTIES.index(name) for name in names]
    found: dict[Values, float] = {}
    for group, share in zip(GROUPS, population()[0].tolist(), strict=True):
        key = tuple(group[place] for place in at)
        found[key] = found.get(key, 0) + share
    return Margin(names, list(found), np.array(list(found.values())))


MARGINS = {
    "cells": [margin(*PROPERTIES)],
    "three": [margin(name) for name in PROPERTIES],
    "two": [margin("platform", "country"), margin("version")],
}


def answers(rng: np.random.Generator, n: int, *mechanisms: KRR) -> list[Cohorts | None]:
    """Draw respondents of the groups and their reports, each level as likely."""
    _, asked, frequencies = population()
    found: list[Cohorts | None] = []
    for count, truth in zip(rng.multinomial(n, asked), frequencies, strict=True):
        split = rng.multinomial(count, np.full(len(mechanisms), 1 / len(mechanisms)))
        each = [
            (m, Tally(int(some), rng.multinomial(some, truth @ m.matrix())))
            for m, some in zip(mechanisms, split, strict=True)
        ]
        found.append(Cohorts(each) if count else None)
    return found


def weights_of(groups: list[Cohorts | None], margins: list[Margin]) -> Weights:
    counts = [group.n if group else 0 for group in groups]
    return rake(PROPERTIES, GROUPS, counts, margins)


def reports(groups: list[Cohorts | None], weights: Weights) -> tuple[Floats, Floats, Floats]:
    """Each report's unbiased estimate, weight and group, one row for each."""
    rows, each, own = [], [], []
    for place, group in enumerate(groups):
        for mechanism, tally in group or ():
            for code, count in enumerate(tally.counts.tolist()):
                unit = Tally(1, np.eye(K, dtype=np.int64)[code])
                rows += [mechanism.debias(unit)] * count
                each += [weights.each[place]] * count
                own += [place] * count
    return np.array(rows), np.array(each), np.array(own)


@pytest.mark.parametrize("how", MARGINS)
def test_value_and_error_are_those_of_the_reports_one_by_one(how: str) -> None:
    groups = answers(np.random.default_rng(1), 2000, KRR(K, 1.0), KRR(K, 3.0))
    weights = weights_of(groups, MARGINS[how])
    assert not weights.joined
    found = weighted(groups, weights)
    z, w, own = reports(groups, weights)
    u = w / w.sum()
    assert found.estimate.value == pytest.approx(u @ z)
    # The residual technique: weighted least squares on one column for each row of a margin.
    columns = [np.equal.outer(at[own], np.arange(at.max() + 1)) for at in weights.margins]
    design = np.hstack(columns).astype(float)
    slopes = np.linalg.lstsq(design * u[:, None] ** 0.5, z * u[:, None] ** 0.5, rcond=None)[0]
    leverage = sum(u / np.bincount(at[own], u)[at[own]] for at in weights.margins)
    naive = u**2 @ ((z - design @ slopes) ** 2 / (1 - leverage[:, None]))
    # Square roots of mean squares at the mean truth, within the rounding of probabilities.
    assert found.estimate.standard_error == pytest.approx(np.sqrt(naive), rel=2e-3)
    if how == "cells":
        assert found.given_counts == pytest.approx(found.estimate.standard_error)


def test_post_stratified_variance_is_that_of_the_strata() -> None:
    groups = answers(np.random.default_rng(2), 40000, KRR(K, 2.0))
    weights = weights_of(groups, MARGINS["cells"])
    found = weighted(groups, weights)
    each = [(group.each[0][0].debias(group.each[0][1]), group.n) for group in groups if group]
    shares = population()[0]
    assert found.estimate.value == pytest.approx(shares @ [value for value, _ in each])
    strata = [KRR(K, 2.0).variance(value, n) for value, n in each]
    assert found.estimate.standard_error**2 == pytest.approx(shares**2 @ strata, rel=0.02)
    assert found.estimate.method == "post-stratified"


def test_weights_of_one_give_the_raw_estimate_and_a_sum_of_all_values_has_no_error() -> None:
    groups = answers(np.random.default_rng(3), 2000, KRR(K, 1.0))
    counts = np.array([group.n if group else 0 for group in groups])
    own = Margin(PROPERTIES, GROUPS, counts / counts.sum())
    weights = weights_of(groups, [own])
    assert weights.design_effect == pytest.approx(1)
    codes = np.sum([group.each[0][1].counts for group in groups if group], axis=0)
    pooled = KRR(K, 1.0).debias(Tally(2000, codes))
    assert weighted(groups, weights).estimate.value == pytest.approx(pooled)
    sums = weighted(groups, weights, [[1, 1, 1], [0, 1, 1], [1, 0, 0]]).estimate
    assert sums.value[0] == pytest.approx(1)
    assert sums.standard_error[0] < 1e-4
    assert sums.standard_error[1] == pytest.approx(sums.standard_error[2], rel=1e-2)


def covered(how: str, n: int, runs: int, *mechanisms: KRR) -> tuple[float, float, Floats]:
    """The coverage of weighted intervals, that about the raked mix, and z of the mean estimate."""
    rng = np.random.default_rng(5)
    shares, _, frequencies = population()
    truth = shares @ frequencies
    inside, given, values = [], [], []
    for _ in range(runs):
        groups = answers(rng, n, *mechanisms)
        weights = weights_of(groups, MARGINS[how])
        found = weighted(groups, weights)
        low, high = found.estimate.interval()
        inside.append((low <= truth) & (truth <= high))
        mix = weights.shares @ frequencies
        given.append(np.abs(found.estimate.value - mix) < 1.96 * found.given_counts)
        values.append(found.estimate.value)
    array = np.array(values)
    z = (array.mean(axis=0) - truth) / array.std(axis=0) * runs**0.5
    return float(np.mean(inside)), float(np.mean(given)), z


def test_intervals_cover_the_population_where_raw_ones_do_not() -> None:
    within, given, z = covered("three", 3000, 150, KRR(K, 2.0))
    assert 0.91 < within < 0.985
    assert 0.91 < given < 0.985
    assert np.abs(z).max() < 4
    shares, asked, frequencies = population()
    raw = np.abs((asked - shares) @ frequencies).max()
    error = KRR(K, 2.0).variance(shares @ frequencies, 3000).max() ** 0.5
    assert raw > 2 * error  # a raw interval of 1.96 errors does not cover


@pytest.mark.parametrize(
    ("n", "share", "rare", "epsilon"), [(10, 0.5, 0.1, 6.0), (20, 0.3, 0.05, 4.0)]
)
def test_few_people_of_a_large_weight_and_a_rare_value_are_covered(
    n: int, share: float, rare: float, epsilon: float
) -> None:
    rng = np.random.default_rng(11)
    mechanism, counts = KRR(2, epsilon), (n, 5000)
    truths = np.array([[rare, 1 - rare], [0.4, 0.6]])
    shares = np.array([share, 1 - share])
    weights = rake(("platform",), TWO, counts, [Margin(("platform",), TWO, shares)])
    inside = []
    for _ in range(150):
        codes = [
            rng.multinomial(m, t @ mechanism.matrix()) for m, t in zip(counts, truths, strict=True)
        ]
        groups = [Cohorts([(mechanism, Tally(m, c))]) for m, c in zip(counts, codes, strict=True)]
        low, high = weighted(groups, weights).estimate.interval()
        inside.append(low[0] <= shares @ truths[:, 0] <= high[0])
    assert np.mean(inside) > 0.93  # Wilson's at an effective number: 0.6 and 0.8


def test_leverage_is_of_people() -> None:
    """Two people on thirty days: their truths' variance is divided by one, not by 59 / 60."""
    group = Cohorts([(KRR(2, 12.0), Tally(60, np.array([30, 30])))], [Repeats(30.0)])
    margin = Margin(("platform",), [("a",)], np.ones(1))
    weights = rake(("platform",), [("a",)], [60], [margin], least=2, people=[2])
    error = weighted([group], weights).estimate.standard_error
    assert error == pytest.approx(np.sqrt(0.25 / (2 - 1)), rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("how", MARGINS)
@pytest.mark.parametrize("epsilons", [(1.0,), (8.0,), (1.0, 4.0)])
def test_coverage_is_ninety_five_percent(how: str, epsilons: tuple[float, ...]) -> None:
    within, given, z = covered(how, 4000, 500, *(KRR(K, epsilon) for epsilon in epsilons))
    assert within == pytest.approx(0.95, abs=0.015)
    assert given == pytest.approx(0.95, abs=0.015)
    assert np.abs(z).max() < 4.5


# --- numbers, sets and ratings -----------------------------------------------------------------

TWO: list[Values] = [("a",), ("b",)]
HALVES = Margin(("platform",), TWO, np.array([0.5, 0.5]))


def two(first: Cohorts, second: Cohorts) -> Weights:
    return rake(("platform",), TWO, [first.n, second.n], [HALVES])


def counted(mechanism: Mechanism, values: Floats, seed: int) -> Cohorts:
    return Cohorts(
        [(mechanism, mechanism.tally(mechanism.randomize_many(values, SeededCoins(seed))))]
    )


@pytest.mark.parametrize("mechanism", [PiecewiseMechanism(2.0), OneBitMean(2.0)])
def test_weighted_means_are_those_of_the_groups(mechanism: PiecewiseMechanism) -> None:
    first = counted(mechanism, np.full(900, 0.5), 1)
    second = counted(mechanism, np.full(100, -0.3), 2)
    found = weighted([first, second], two(first, second)).estimate
    alone = [mechanism.estimate(cohorts.each[0][1]) for cohorts in (first, second)]
    assert found.value == pytest.approx((alone[0].value + alone[1].value) / 2)
    errors = np.array([one.standard_error for one in alone])
    assert found.standard_error == pytest.approx(np.sqrt((errors**2).sum(axis=0)) / 2, rel=0.02)
    low, high = found.interval()
    assert low < 0.1 < high


def test_an_item_that_nobody_in_a_small_group_was_asked_about_is_estimated_from_the_others() -> (
    None
):
    mechanism = SetBits(4, 3.0)
    first, second = (
        Tally(400, np.array([60, 40] * 4)),
        Tally(10, np.array([0, 0, 2, 2, 1, 1, 2, 2])),
    )
    groups = [Cohorts([(mechanism, tally)]) for tally in (first, second)]
    found = weighted(list(groups), two(*groups)).estimate
    assert found.value[0] == pytest.approx(mechanism.debias(first)[0])


def test_mean_ratings_are_of_the_weighted_shares() -> None:
    mechanism = RatedShares.of(SetSelection(4, 3.0, 2))
    tallies = [
        Tally(500, np.array([190, 40, 150, 60, 30, 30])),
        Tally(100, np.array([9, 37, 12, 35, 4, 3])),
    ]
    groups = [Cohorts([(mechanism, tally)]) for tally in tallies]
    found = weighted_ratings(list(groups), two(*groups))
    balance = np.mean([mechanism.balance(tally) for tally in tallies], axis=0)
    share = np.mean([mechanism.debias(tally) for tally in tallies], axis=0)
    assert found.value == pytest.approx(balance / share)
    alone = mean_ratings(groups[1])
    assert (found.standard_error < alone.standard_error).all()  # of half the weight
    low, high = found.ends(1.96)
    assert (low < found.value).all() and (found.value < high).all()


def numbers(rng: np.random.Generator, n: int, *waves: SquareWave) -> list[Cohorts | None]:
    """Draw respondents whose category is one of `K` points, and their reports."""
    _, asked, frequencies = population()
    channels = [channel_from_points(wave, K) for wave in waves]
    found: list[Cohorts | None] = []
    for count, truth in zip(rng.multinomial(n, asked), frequencies, strict=True):
        split = rng.multinomial(count, np.full(len(waves), 1 / len(waves)))
        each = [
            (wave, Tally(int(some), rng.multinomial(some, truth @ channel)))
            for wave, channel, some in zip(waves, channels, split, strict=True)
        ]
        found.append(Cohorts(each) if count else None)
    return found


def test_weighted_points_with_weights_of_one_are_those_of_all_reports() -> None:
    groups = numbers(np.random.default_rng(9), 4000, SquareWave(2.0, 2, 1))
    counts = np.array([group.n if group else 0 for group in groups])
    weights = weights_of(groups, [Margin(PROPERTIES, GROUPS, counts / counts.sum())])
    found = weighted_points(groups, weights, K)
    tallies = [group.each[0] for group in groups if group]
    codes = np.sum([tally.counts for _, tally in tallies], axis=0)
    alone = estimate_points(Cohorts([(tallies[0][0], Tally(4000, codes))]), K)
    assert found.unconstrained == pytest.approx(alone.unconstrained, abs=1e-6)
    assert found.likely == pytest.approx(alone.likely, abs=1e-3)
    # What the groups explain is no error, so that the covariance is a little smaller.
    ratio = np.diag(found.covariance) / np.diag(alone.covariance)
    assert (ratio > 0.8).all() and (ratio < 1.02).all()


@pytest.mark.slow
@pytest.mark.parametrize("how", MARGINS)
def test_weighted_ranges_and_quantiles_cover(how: str) -> None:
    rng = np.random.default_rng(10)
    shares, _, frequencies = population()
    below = np.cumsum(shares @ frequencies)[:-1]
    median = int(np.searchsorted(below, 0.5))
    inside, held = [], []
    for _ in range(150):
        groups = numbers(rng, 4000, SquareWave(1.0, 2, 1), SquareWave(4.0, 2, 1))
        found = weighted_points(groups, weights_of(groups, MARGINS[how]), K)
        cumulative = found.cumulative()
        inside.append((cumulative.low <= below) & (below <= cumulative.high))
        quantile = found.quantiles([0.5])
        held.append(quantile.low[0] <= median <= quantile.high[0])
    assert np.mean(inside) == pytest.approx(0.95, abs=0.03)
    assert np.mean(held) > 0.93


def test_attributes_in_views_have_the_error_of_each_groups_own_reports() -> None:
    """Two groups with other numbers of reports of two views."""
    view = KRR(6, 3.0)
    wanted = np.arange(6) // 2
    made = []
    for seed, sizes in enumerate([(300, 30), (20, 400)]):
        coins = SeededCoins(seed)
        values = [np.arange(size) % 6 for size in sizes]
        own = [view.tally(view.randomize_many(x, coins)) for x in values]
        marginal = Marginal([Part(view, tally, wanted) for tally in own], 3)
        made.append(Cohorts([(marginal, marginal.tally)]))
    found = weighted(made, two(*made)).estimate
    alone = [one.each[0][0].estimate(one.each[0][1]) for one in made]
    assert found.value == pytest.approx((alone[0].value + alone[1].value) / 2)
    errors = np.array([one.standard_error for one in alone])
    assert found.standard_error == pytest.approx(np.sqrt((errors**2).sum(axis=0)) / 2, rel=0.03)


def test_repeats_widen_the_errors() -> None:
    groups = answers(np.random.default_rng(6), 2000, KRR(K, 6.0))
    weights = weights_of(groups, MARGINS["three"])

    def error(repeats: Repeats) -> Floats:
        same: list[Cohorts | None] = [g and Cohorts(g.each, [repeats]) for g in groups]
        return weighted(same, weights).estimate.standard_error

    once = error(Repeats())
    assert error(Repeats(4, codes=True)) == pytest.approx(2 * once)
    assert (error(Repeats(4)) > once).all() and (error(Repeats(4)) < 2 * once).all()


def test_groups_that_are_not_the_weights_are_refused() -> None:
    groups = answers(np.random.default_rng(7), 2000, KRR(K, 1.0))
    weights = weights_of(groups, MARGINS["three"])
    with pytest.raises(InvalidInput, match="must have the reports that the weights count"):
        weighted(groups[1:], weights)
    with pytest.raises(InvalidInput, match="sets have shape"):
        weighted(groups, weights, [[1, 0]])
    number = counted(OneBitMean(1.0), np.zeros(50), 1)
    with pytest.raises(InvalidInput, match="sums are of frequencies"):
        weighted([number, number], two(number, number), [[1.0]])


@pytest.mark.slow
def test_a_hundred_thousand_groups_meet_five_margins_within_twenty_rounds() -> None:
    rng = np.random.default_rng(8)
    values = np.stack(np.unravel_index(np.arange(10**5), (10,) * 5), axis=1)
    groups = [tuple(map(str, row)) for row in values.tolist()]
    names = tuple("abcde")
    margins = [
        Margin((name,), [(str(v),) for v in range(10)], rng.dirichlet(np.full(10, 5.0)))
        for name in names
    ]
    found = rake(names, groups, rng.poisson(3, 10**5), margins)
    assert found.rounds < 20
    for place, wanted in enumerate(margins):
        now = np.bincount(values[:, place], found.shares)
        assert now == pytest.approx(wanted.shares, abs=1e-8)
