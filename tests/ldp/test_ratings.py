"""Ratings as signed items: the share that rated, the mean, and Fieller's interval."""

import math

import numpy as np
import pytest

from ldp import Cohorts, InvalidInput, SetBits, SetSelection, Tally
from ldp.core.intervals import fieller
from ldp.core.repeated import Repeats
from ldp.estimating.ratings import RatedShares, mean_ratings
from ldp.testing import SeededCoins


@pytest.mark.parametrize(
    ("keys", "most", "epsilon", "share", "mean", "size"),
    [
        (15, 4, 1.0, 24.815, 1585.1, 2),
        (50, 5, 1.0, 37.217, 16442, 5),
        (100, 5, 1.0, 39.249, 68927, 10),
        (100, 5, 4.0, 0.546, 895.3, 1),
        (200, 10, 2.0, 14.143, 24599, 5),
        (1000, 10, 1.0, 83.11, 3.63e6, 51),
    ],
)
def test_shares_and_means_have_these_variances(
    keys: int, most: int, epsilon: float, share: float, mean: float, size: int
) -> None:
    mechanism = RatedShares.of(SetSelection(2 * keys, epsilon, most))
    assert mechanism.size == size
    f = np.array([most / (2 * keys)])
    assert mechanism.variance(f, 1) == pytest.approx(share, rel=1e-3)
    squares, covariance = mechanism.balance_moments(f, 0.3 * f, 1)
    ratio = (squares - 0.6 * covariance + 0.09 * mechanism.variance(f, 1)) / f**2
    assert ratio == pytest.approx(mean, rel=2e-3)


def test_shares_and_balances_are_unbiased_with_these_moments() -> None:
    mechanism = RatedShares.of(SetSelection(4, 1.0, 2, size=2, meet=1))  # two keys
    outputs, rows = mechanism.channel().outputs, np.array(mechanism.channel().rows, dtype=float)
    sets = list(mechanism.sets())
    lawful = [len({item // 2 for item in own}) == len(own) for own in sets]
    people = np.random.default_rng(1).dirichlet(np.ones(len(sets))) * lawful
    people /= people.sum()
    chance = people @ rows
    tallies = [Tally(1, np.array([int(v in y) for v in range(6)])) for y in outputs]
    shares = np.array([mechanism.debias(tally) for tally in tallies])
    balances = np.array([mechanism.balance(tally) for tally in tallies])
    f = np.array(
        [sum(p for p, own in zip(people, sets, strict=True) if {2 * c, 2 * c + 1} & {*own})
         for c in range(2)]
    )  # fmt: skip
    d = np.array(
        [sum(p * ((2 * c in own) - (2 * c + 1 in own)) for p, own in zip(people, sets, strict=True))
         for c in range(2)]
    )  # fmt: skip
    assert chance @ shares == pytest.approx(f)
    assert chance @ balances == pytest.approx(d)
    second, third = mechanism.moments(f, 1)
    assert second == pytest.approx(chance @ (shares - f) ** 2)
    assert third == pytest.approx(chance @ (shares - f) ** 3)
    squares, covariance = mechanism.balance_moments(f, d, 1)
    assert squares == pytest.approx(chance @ (balances - d) ** 2)
    assert covariance == pytest.approx(chance @ ((balances - d) * (shares - f)))


def test_fiellers_interval_holds_the_means_that_are_not_rejected() -> None:
    d, f, v_d, v_f, c = (np.array([x]) for x in (0.08, 0.25, 9e-4, 8e-4, 2e-4))
    (low,), (high,) = fieller(d, f, v_d, v_f, c, 1.96)
    for mean in (low, high):
        noise = v_d - 2 * mean * c + mean**2 * v_f
        assert (d - mean * f) ** 2 == pytest.approx(1.96**2 * noise)
    assert low < 0.08 / 0.25 < high
    all_of_it = fieller(d, f / 10, v_d, v_f, c, 1.96)
    assert [end.item() for end in all_of_it] == [-np.inf, np.inf]


def reports(mechanism: SetSelection, n: int, coins: SeededCoins, seed: int = 1) -> Tally:
    """Return the tally of people of whom 60% rate key 0 with a mean of 0.5, and 2% key 1."""
    rng = np.random.default_rng(seed)
    rated = rng.random((n, 2)) < [0.6, 0.02]
    signs = rng.random((n, 2)) >= [0.75, 0.5]
    sets = np.where(rated, 2 * np.arange(2) + signs, -1)
    return mechanism.tally(mechanism.randomize_many(sets, coins))


def test_the_mean_is_told_only_where_enough_rated(coins: SeededCoins) -> None:
    mechanism = RatedShares.of(SetSelection(4, 1.0, 2))
    found = mean_ratings(Cohorts([(mechanism, reports(mechanism, 4000, coins))]))
    assert found.known.tolist() == [True, False]
    assert abs(found.value[0] - 0.5) < 4 * found.standard_error[0]
    assert math.isnan(found.value[1])
    assert math.isnan(found.standard_error[1])
    low, high = found.ends(1.96)
    assert low[0] < found.value[0] < high[0]


def test_levels_and_repeats_count(coins: SeededCoins) -> None:
    cohorts = []
    for epsilon in (0.5, 2.0):
        mechanism = RatedShares.of(SetSelection(4, epsilon, 2))
        cohorts.append((mechanism, reports(mechanism, 20_000, coins)))
    apart, alike = mean_ratings(Cohorts(cohorts)), mean_ratings(Cohorts(cohorts), alike=True)
    for found in (apart, alike):
        assert abs(found.value[0] - 0.5) < 4 * found.standard_error[0]
    assert alike.standard_error[0] < apart.standard_error[0]
    again = mean_ratings(Cohorts(cohorts, [Repeats(9.0)] * 2))
    assert again.standard_error[0] > apart.standard_error[0]


def test_bits_and_odd_numbers_of_items_are_no_ratings() -> None:
    for mechanism in (SetBits(4, 1.0), SetSelection(3, 1.0, 1)):
        with pytest.raises(InvalidInput, match="no signed items"):
            RatedShares.of(mechanism)


@pytest.mark.slow
def test_fiellers_interval_covers(coins: SeededCoins) -> None:
    mechanism = RatedShares.of(SetSelection(4, 1.0, 2))
    covered, runs = 0, 1000
    for run in range(runs):
        found = mean_ratings(Cohorts([(mechanism, reports(mechanism, 400, coins, run))]))
        low, high = found.ends(1.96)
        covered += bool(low[0] <= 0.5 <= high[0])
    assert covered / runs == pytest.approx(0.95, abs=0.02)
