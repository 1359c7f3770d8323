"""Sizes of sets and pairs of items, from the reports of `SetSelection`."""

import math
from itertools import combinations

import numpy as np
import pytest

from ldp import Cohorts, InvalidInput, SetBits, SetSelection, Tally
from ldp.core.repeated import Repeats
from ldp.estimating.pairs import PairTally, count_pairs
from ldp.estimating.sets import MeanSize, SetSizes, can_pair, pairs
from ldp.estimating.strata import answer
from ldp.testing import SeededCoins

SIZES = [0, 0.031, 0.0656, 0.1629, 0.1877, 0.1986, 0.1544, 0.1051, 0.0946]
"""Of how many of 14 departments students have rated lecturers, at most 8 (InstEval)."""


def pair_tally(mechanism: SetSelection, codes: np.ndarray) -> PairTally:
    return count_pairs(mechanism, codes, mechanism, codes)


def population(mechanism: SetSelection, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a distribution over a mechanism's sets, and the distribution of their sizes."""
    sets = list(mechanism.sets())
    people = np.random.default_rng(seed).dirichlet(np.ones(len(sets)))
    sizes = np.bincount([len(own) for own in sets], people, mechanism.most + 1)
    return people, sizes


def moments(mechanism: SetSelection, people: np.ndarray, each: np.ndarray) -> tuple:
    """Return the exact mean and covariance of a report's estimate, given for each output."""
    chance = people @ np.array(mechanism.channel().rows, dtype=float)
    mean = chance @ each
    return mean, (each.T * chance) @ each - np.outer(mean, mean)


def counts(mechanism: SetSelection) -> np.ndarray:
    """Return the tally of each output by itself, shape (outputs, members)."""
    outputs = mechanism.channel().outputs
    return np.array([[v in y for v in range(mechanism.tally_size)] for y in outputs], dtype=int)


@pytest.mark.parametrize(
    "mechanism",
    [SetSelection(4, 1.0, 2, size=2, meet=1), SetSelection(3, 2.0, 3, size=2, meet=2)],
    ids=str,
)
def test_sizes_are_unbiased_with_the_covariance_of_the_formula(mechanism: SetSelection) -> None:
    sizes = SetSizes.of(mechanism)
    people, truth = population(mechanism, 1)
    each = np.array([sizes.debias(Tally(1, row)) for row in counts(mechanism)])
    assert each.sum(axis=1) == pytest.approx(1)
    mean, covariance = moments(mechanism, people, each)
    assert mean == pytest.approx(truth)
    assert sizes.covariance(truth, 1) == pytest.approx(covariance)
    assert sizes.variance(truth, 10) == pytest.approx(np.diag(covariance) / 10)
    size = np.arange(mechanism.most + 1)
    assert MeanSize(mechanism, mechanism.most)._of_sizes(truth, 1) == pytest.approx(
        size @ covariance @ size
    )


def test_the_sizes_of_departments_have_these_errors() -> None:
    found = SetSizes.of(SetSelection(14, 1.0, 8)).variance(SIZES, 1)
    simulated = [11.77, 24.86, 26.86, 31.60, 38.88, 46.92, 54.28, 59.69, 28.73]
    assert found == pytest.approx(simulated, rel=1e-3)
    item = SetSelection(14, 1.0, 8).variance(np.linspace(0.1, 0.5, 14), 20_000)
    assert np.sqrt(item.mean()) == pytest.approx(0.0303, rel=0.03)


def test_the_items_and_the_dummies_tell_one_mean_size(coins: SeededCoins) -> None:
    mechanism = SetSelection(6, 1.0, 3, size=2, meet=1)
    tally = mechanism.tally(mechanism.randomize_many([[0], [1, 2], [], [3, 4, 5]] * 50, coins))
    mean = MeanSize(mechanism, 3)
    told = SetSizes.of(mechanism).debias(tally)
    assert mean.debias(tally) == pytest.approx(np.arange(4) @ told)
    estimate = mean.estimate(tally)
    (low,), (high,) = estimate.interval()
    assert estimate.bounds == (0, 3)
    assert 0 <= low < estimate.value[0] < high <= 3


def test_bits_tell_the_mean_size_only(coins: SeededCoins) -> None:
    mechanism = SetBits(6, 2.0)
    with pytest.raises(InvalidInput, match="tells no sizes but their mean"):
        SetSizes.of(mechanism)
    sets = [[0], [1, 2], [], [3, 4, 5]] * 2000
    mean = MeanSize(mechanism, 3)
    estimate = mean.estimate(mechanism.tally(mechanism.randomize_many(sets, coins)))
    assert abs(estimate.value[0] - 1.5) < 4 * estimate.standard_error[0]
    assert 0.03 < estimate.standard_error[0] < 0.05


def test_shares_of_pairs_are_unbiased_with_their_variance(coins: SeededCoins) -> None:
    mechanism = SetSelection(4, 1.0, 3, size=2, meet=1)
    n = 60_000
    people, _ = population(mechanism, 2)
    sets = list(mechanism.sets())
    drawn = np.random.default_rng(3).choice(len(sets), n, p=people)
    padded = np.array([[*own, *[-1] * (3 - len(own))] for own in sets])
    codes = mechanism.randomize_many(padded[drawn], coins)
    found = pairs([(mechanism, pair_tally(mechanism, codes), Repeats())])
    truth = [
        sum(p for p, own in zip(people, sets, strict=True) if {u, v} <= {*own})
        for u, v in combinations(range(4), 2)
    ]
    assert (abs(found.value - truth) < 4 * found.standard_error).all()
    # A report's estimate has this variance exactly: by the channel, pair by pair.
    seen = counts(mechanism).astype(float)
    q, gain = mechanism._rounded_support
    none, one, two = mechanism.pair_support
    for place, (u, v) in enumerate(combinations(range(4), 2)):
        slope = (one - none) / gain
        each = seen[:, u] * seen[:, v] - none - slope * (seen[:, u] + seen[:, v] - 2 * q)
        mean, variance = moments(mechanism, people, each[:, np.newaxis] / (two - 2 * one + none))
        assert mean[0] == pytest.approx(truth[place])
        assert found.standard_error[place] ** 2 * n == pytest.approx(variance[0, 0], rel=0.03)


@pytest.mark.parametrize(
    ("truth", "own"), [((0.4, 0.3), 0.2), ((0.0, 0.0), 0.0), ((0.6, 0.5), 0.5)], ids=str
)
def test_errors_of_pairs_are_the_mechanisms_at_the_shares(
    truth: tuple[float, float], own: float
) -> None:
    """Of a tally that is as expected, against the channel's exact variance."""
    mechanism, n = SetSelection(3, 1.0, 2, size=2, meet=1), 10**6
    q, gain = mechanism._rounded_support
    none, one, two = mechanism.pair_support
    people = np.zeros(len(sets := list(mechanism.sets())))
    shares = {(0, 1): own, (0,): truth[0] - own, (1,): truth[1] - own}
    for each, share in shares.items():
        people[sets.index(each)] = share
    people[sets.index(())] = 1 - people.sum()
    seen = counts(mechanism).astype(float)
    chance = people @ np.array(mechanism.channel().rows, dtype=float)
    products = np.rint(n * (seen.T * chance) @ seen).astype(np.int64)
    tally = Tally(n, np.diag(products).copy())
    found = pairs([(mechanism, PairTally(tally, tally, products), Repeats())])
    slope = (one - none) / gain
    each = seen[:, 0] * seen[:, 1] - none - slope * (seen[:, 0] + seen[:, 1] - 2 * q)
    _, variance = moments(mechanism, people, each[:, np.newaxis] / (two - 2 * one + none))
    assert found.standard_error[0] ** 2 * n == pytest.approx(variance[0, 0], rel=1e-3)


@pytest.mark.parametrize("n", [1, 3, 300])
def test_a_pair_that_no_report_has_is_not_certain(n: int) -> None:
    mechanism = SetSelection(6, 1.0, 3, size=2, meet=1)
    seen = np.array([1, 1, *[0] * (mechanism.tally_size - 2)])
    tally = PairTally(Tally(n, n * seen), Tally(n, n * seen), n * np.outer(seen, seen))
    found = pairs([(mechanism, tally, Repeats())])
    assert found.standard_error.min() > 0.5 * found.standard_error.max()


def test_pairs_of_several_levels_count_by_their_reports(coins: SeededCoins) -> None:
    strict, loose = (SetSelection(4, e, 2, size=2, meet=1) for e in (1.0, 3.0))
    one, other = (
        pair_tally(m, m.randomize_many([[0, 1]] * n, coins))
        for m, n in ((strict, 3000), (loose, 1000))
    )
    alone = [pairs([(m, t, Repeats())]) for m, t in ((strict, one), (loose, other))]
    both = pairs([(strict, one, Repeats()), (loose, other, Repeats())])
    assert both.value == pytest.approx(0.75 * alone[0].value + 0.25 * alone[1].value)
    assert both.method == "stratified"
    repeated = pairs([(strict, one, Repeats(4.0)), (loose, other, Repeats(4.0))])
    assert (repeated.standard_error >= both.standard_error).all()


def test_reports_of_one_member_tell_no_pairs() -> None:
    single = SetSelection(4, 1.0, 2, size=1, meet=1)
    assert not can_pair(single)
    assert not can_pair(SetBits(4, 1.0))
    with pytest.raises(InvalidInput, match="no reports"):
        pairs([])
    pairing = SetSelection.pairing(14, 1.0, 8)
    assert (pairing.size, pairing.meet) == (3, 2)
    assert can_pair(pairing)
    with pytest.raises(InvalidInput, match="pairs are of two items"):
        SetSelection.pairing(14, 1.0, 1)


SMALL = [(items, most) for items in range(2, 7) for most in range(2, items + 1)]


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.0, 4.0])
def test_reports_that_are_to_tell_pairs_do(epsilon: float) -> None:
    for items, most in SMALL:
        mechanism = SetSelection.pairing(items, epsilon, most)
        assert can_pair(mechanism), (items, most)
        share = most / (2 * items)
        least = min(
            float(SetSelection(items, epsilon, most, size, meet).pair_variance(share, share, 0.1))
            for meet in (1, most)
            for size in range(max(meet, 2), items + meet)
        )
        assert mechanism.pair_variance(share, share, 0.1) < 12 * least, (items, most)


@pytest.mark.parametrize(("items", "most", "epsilon"), [(3, 2, 0.5), (4, 4, 1.0), (4, 3, 0.1)])
def test_a_pair_is_estimated_without_bias_from_what_is_asked_for(
    items: int, most: int, epsilon: float
) -> None:
    """Exactly, by the channel: every set's reports tell on average whether it has both items."""
    mechanism = SetSelection.pairing(items, epsilon, most)
    q, gain = mechanism._rounded_support
    none, one, _ = mechanism.pair_support
    seen, chances = counts(mechanism).astype(float), np.array(mechanism.channel().rows, dtype=float)
    for u, v in combinations(range(items), 2):
        each = seen[:, u] * seen[:, v] - none
        each -= (one - none) / gain * (seen[:, u] + seen[:, v] - 2 * q)
        found = chances @ each / mechanism.pair_gain
        has_both = [float({u, v} <= {*own}) for own in mechanism.sets()]
        assert found == pytest.approx(has_both, abs=1e-6)


def test_reports_of_some_sizes_tell_no_pairs_at_any_epsilon() -> None:
    """Half of a report of four about three items and sets of two: pi_1 is between the others."""
    for epsilon in (0.5, 1.0, 4.0):
        mechanism = SetSelection(3, epsilon, 2, size=4, meet=2)
        assert mechanism.pair_gain == 0 and not can_pair(mechanism)
        assert math.isinf(mechanism.pair_variance(0.3, 0.3, 0.1))
        tally = pair_tally(mechanism, mechanism.randomize_many([[0, 1]] * 9, SeededCoins(1)))
        with pytest.raises(InvalidInput, match="no reports whose pairs"):
            pairs([(mechanism, tally, Repeats())])


def test_levels_of_sizes_are_pooled(coins: SeededCoins) -> None:
    sets = [[0], [1, 2], [], [0, 3]] * 500
    cohorts = []
    for epsilon in (0.5, 2.0):
        mechanism = SetSelection(5, epsilon, 2)
        codes = mechanism.randomize_many(sets, coins)
        cohorts.append((SetSizes.of(mechanism), mechanism.tally(codes)))
    pooled = Cohorts(cohorts)
    found = answer(pooled, "inverse_variance", most=0.0, tested=False).estimate
    assert (abs(found.value - [0.25, 0.25, 0.5]) < 4 * found.standard_error).all()
    mixed = answer(pooled).estimate
    assert (mixed.standard_error > found.standard_error).all()


@pytest.mark.slow
def test_intervals_of_sizes_means_and_pairs_cover(coins: SeededCoins) -> None:
    mechanism = SetSelection(8, 2.0, 4, size=2, meet=1)
    rng = np.random.default_rng(4)
    kinds = np.full((30, 4), -1)
    for row in kinds:
        size = rng.integers(0, 5)
        row[:size] = rng.choice(8, size, replace=False)
    number = (kinds >= 0).sum(axis=1)
    has = np.array([[item in row for item in range(8)] for row in kinds], dtype=float)
    truths = {
        "sizes": np.bincount(number, minlength=5) / 30,
        "mean": np.array([number.mean()]),
        "pairs": (has.T @ has / 30)[np.triu_indices(8, 1)],
    }
    covered, runs = dict.fromkeys(truths, 0), 300
    for _ in range(runs):
        codes = mechanism.randomize_many(kinds[rng.integers(0, 30, 4000)], coins)
        tally = mechanism.tally(codes)
        found = {
            "sizes": SetSizes.of(mechanism).estimate(tally),
            "mean": MeanSize(mechanism, 4).estimate(tally),
            "pairs": pairs([(mechanism, pair_tally(mechanism, codes), Repeats())]),
        }
        for name, estimate in found.items():
            low, high = estimate.interval()
            inside = (low <= truths[name]) & (truths[name] <= high)
            covered[name] += int(np.count_nonzero(inside))
    for name, truth in truths.items():
        tolerance = 0.04 if name == "mean" else 0.02
        # Truths near 0 or 1 are covered more often: intervals are clipped.
        assert 0.95 - tolerance < covered[name] / (runs * truth.size) < 0.99, name


def test_levels_that_differ_in_one_item_are_found(coins: SeededCoins) -> None:
    strict, loose = (SetSelection(6, e, 2) for e in (1.0, 3.0))
    sets, others = [[0], [1, 2], [3, 4], []] * 1500, [[0, 5], [1, 2], [3, 4], []] * 1500

    def cohorts(second: list[list[int]]) -> Cohorts:
        each = ((strict, sets), (loose, second))
        return Cohorts([(m, m.tally(m.randomize_many(given, coins))) for m, given in each])

    same, differ = answer(cohorts(sets)), answer(cohorts(others))
    assert same.homogeneity is not None
    assert differ.homogeneity is not None
    assert same.homogeneity.p_value > 0.01
    assert differ.homogeneity.p_value < 1e-4
    assert differ.detectable is not None
    assert 0 < differ.detectable < 0.25
    pooled = answer(cohorts(others), most=0.0)
    assert pooled.doubt == "differ"
