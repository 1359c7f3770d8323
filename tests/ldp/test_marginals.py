"""Marginals of questions about several attributes, and what pairs cost against split reports."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import InvalidInput, Tally
from ldp.core.estimation import Cohorts
from ldp.core.mechanism import Categorical
from ldp.core.policy import Policy
from ldp.estimating.marginals import Marginal, Part, table_variance
from ldp.estimating.pooling import homogeneity, pool
from ldp.mechanisms.frequency.krr import KRR
from ldp.mechanisms.frequency.subset_selection import SubsetSelection
from ldp.mechanisms.frequency.unary import UnaryEncoding
from ldp.planning.choice import minimax_constant
from ldp.planning.design import design
from ldp.testing import SeededCoins

FIRST = np.array([0, 0, 1, 1, 2, 2])
"""The first attribute's category in the combinations of three values and two."""
JOINT = np.array([0.3, 0.1, 0.05, 0.25, 0.2, 0.1])

ONE_SIDED = design(Policy.one_sided(6, [0, 3], 1.0)).mechanism


def of_codes(mechanism: Categorical, joint: NDArray[np.float64], n: int) -> Tally:
    """Return the tally of n reports as the channel expects them, rounded."""
    channel = mechanism.matrix()
    assert channel is not None
    counts = np.rint(n * joint @ channel).astype(np.int64)
    return Tally(int(counts.sum()), counts)


@pytest.mark.parametrize("mechanism", [KRR(6, 1.0), ONE_SIDED], ids=["krr", "one-sided"])
def test_estimate_and_covariance_are_those_of_the_enumerated_channel(
    mechanism: Categorical,
) -> None:
    channel = mechanism.matrix()
    assert channel is not None
    marginal = Marginal([Part(mechanism, of_codes(mechanism, JOINT, 10**9), FIRST)], 3)
    units = np.eye(mechanism.tally_size, dtype=np.int64)
    sums = np.equal.outer(np.arange(3), FIRST) * 1.0
    values = np.array([sums @ mechanism.debias(Tally(1, unit)) for unit in units])
    chances = JOINT @ channel
    mean = chances @ values
    exact = (values.T * chances) @ values - np.outer(mean, mean)
    shares = sums @ JOINT
    np.testing.assert_allclose(mean, shares, atol=1e-9)
    np.testing.assert_allclose(marginal.debias(marginal.tally), shares, atol=1e-6)
    np.testing.assert_allclose(marginal.covariance(shares, 1), exact, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(marginal.variance(shares, 10), np.diag(exact) / 10, rtol=1e-5)


@pytest.mark.parametrize("make", [SubsetSelection, UnaryEncoding, KRR])
def test_simulated_errors_are_those_predicted(make: type[SubsetSelection]) -> None:
    mechanism, n, runs = make(6, 1.0), 2_000, 400
    answers = np.repeat(np.arange(6), np.rint(n * runs * JOINT).astype(int))
    np.random.default_rng(3).shuffle(answers)
    codes = mechanism.randomize_many(answers, SeededCoins(4))
    found = []
    for run in np.array_split(codes, runs):
        marginal = Marginal([Part(mechanism, mechanism.tally(run), FIRST)], 3)
        found.append(marginal.debias(marginal.tally))
    shares = np.bincount(FIRST, JOINT)
    predicted = marginal.variance(shares, n)
    error = np.sqrt(predicted / runs)
    assert (np.abs(np.mean(found, axis=0) - shares) < 4 * error).all()
    # Four standard errors of a variance of so many runs.
    assert np.var(found, axis=0) == pytest.approx(predicted, rel=4 * np.sqrt(2 / runs))


def test_questions_are_weighed_by_the_inverses_of_their_variances() -> None:
    precise, rough = KRR(6, 3.0), KRR(6, 0.5)
    parts = [
        Part(precise, of_codes(precise, JOINT, 1_000), FIRST),
        Part(rough, of_codes(rough, JOINT, 4_000), FIRST),
    ]
    both = Marginal(parts, 3)
    alone = [Marginal([part], 3) for part in parts]
    shares = np.bincount(FIRST, JOINT)
    each = [one.variance(shares, one.tally.n) for one in alone]
    best = 1 / (1 / each[0] + 1 / each[1])
    assert both.variance(shares, both.tally.n) == pytest.approx(best, rel=1e-3)
    assert both.debias(both.tally) == pytest.approx(shares, abs=1e-3)
    assert np.diag(both.covariance(shares, 5)) == pytest.approx(both.variance(shares, 5))


def test_levels_pool_and_are_tested_as_those_of_any_mechanism() -> None:
    cohorts = []
    for epsilon, joint in ((1.0, JOINT), (2.0, JOINT[::-1])):
        mechanism = SubsetSelection(6, epsilon)
        answers = np.random.default_rng(5).choice(6, 20_000, p=joint)
        tally = mechanism.tally(mechanism.randomize_many(answers, SeededCoins(6)))
        marginal = Marginal([Part(mechanism, tally, FIRST)], 3)
        cohorts.append((marginal, marginal.tally))
    alike = Cohorts([cohorts[0], cohorts[0]])
    shares = np.bincount(FIRST, JOINT)
    found = pool(alike)
    assert (np.abs(found.value - shares) < 6 * found.standard_error).all()
    assert homogeneity(alike).p_value == pytest.approx(1, abs=1e-6)
    assert homogeneity(Cohorts(cohorts)).p_value < 1e-6


def test_a_combination_without_a_category_is_refused() -> None:
    mechanism = KRR(6, 1.0)
    tally = of_codes(mechanism, JOINT, 100)
    for wanted in (FIRST[:-1], FIRST + 1, np.minimum(FIRST, 1)):
        with pytest.raises(InvalidInput, match="each of 6 combinations belongs to one of 3"):
            Marginal([Part(mechanism, tally, wanted)], 3)
    with pytest.raises(InvalidInput, match="no reports"):
        Marginal([Part(mechanism, Tally.empty(6), FIRST)], 3)


SPLIT_AND_PAIRS = [
    # attributes, values, epsilon, a pair from split reports and from pair views, an attribute's
    # frequencies from one question in d and from pair views: total variance of one record
    (3, 4, 1, 8619, 155.7, 24.9, 62.3),
    (3, 4, 2, 428, 30.6, None, None),
    (3, 4, 4, 21.9, 4.74, 2.60, 1.90),
    (5, 4, 1, 74476, 519.1, 41.5, 103.8),
    (5, 4, 2, 3945, 101.9, None, None),
    (5, 4, 4, 192.7, 15.8, 4.33, 3.16),
    (5, 2, 1, 2584, 83.1, 11.7, 13.8),
    (5, 2, 2, 177.6, 19.8, None, None),
    (5, 2, 4, 15.5, 8.7, 2.69, 1.44),
]


@pytest.mark.parametrize(("d", "k", "epsilon", "split", "pairs", "one", "views"), SPLIT_AND_PAIRS)
def test_pairs_against_split_reports(
    d: int,
    k: int,
    epsilon: float,
    split: float,
    pairs: float,
    one: float | None,
    views: float | None,
) -> None:
    share = KRR(k, epsilon / d)
    assert table_variance([share, share]) == pytest.approx(split, rel=0.005)
    count = d * (d - 1) // 2  # views, one drawn for each record
    limit = minimax_constant(k * k, epsilon)
    assert count * limit == pytest.approx(pairs, rel=0.006)
    if views is None or one is None:
        return
    assert d * minimax_constant(k, epsilon) == pytest.approx(one, rel=0.005)
    predicted = count / (d - 1) * k * (k - 1) * limit / (k * k - 1)
    assert predicted == pytest.approx(views, rel=0.006)
    # And the estimator attains it, with every question that tells the attribute.
    mechanism = SubsetSelection(k * k, epsilon)
    tally = mechanism.tally(mechanism.randomize_many(np.arange(k * k), SeededCoins(7)))
    wanted = np.arange(k * k) // k
    marginal = Marginal([Part(mechanism, tally, wanted)] * (d - 1), k)
    spread = marginal.variance(np.full(k, 1 / k), 1).sum() * d / 2  # 2 / d of the records tell it
    assert spread == pytest.approx(predicted, rel=0.001)


def test_the_share_of_an_attribute_in_a_view_of_sixteen_combinations() -> None:
    assert 4 * 3 * minimax_constant(16, 2.0) / 15 == pytest.approx(8.1517, abs=5e-5)


@pytest.mark.parametrize(("epsilon", "split", "pair"), [(1, 1502.54, 51.91), (2, 73.15, 10.19)])
def test_a_pair_of_four_values_each(epsilon: float, split: float, pair: float) -> None:
    half = KRR(4, epsilon / 2)
    assert table_variance([half, half]) == pytest.approx(split, abs=0.005)
    assert minimax_constant(16, epsilon) == pytest.approx(pair, abs=0.005)
