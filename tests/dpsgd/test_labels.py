"""RRWithPrior and the two stages."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dpsgd.reports.labels import RRWithPrior, two_stage
from ldp import KRR, Coins, InvalidInput
from ldp.testing import SeededCoins

PRIORS = {
    "uniform": [0.25, 0.25, 0.25, 0.25],
    "leaning": [0.4, 0.1, 0.35, 0.15],
    "sure": [0.97, 0.01, 0.01, 0.01],
    "two": [0.02, 0.48, 0.02, 0.48],
    "unnormalised": [3, 1, 2, 0],
}
EPSILONS = [0.05, 0.5, 1.0, 3.0, 8.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("prior", PRIORS)
def test_the_channel_keeps_epsilon_and_wastes_none(prior: str, epsilon: float) -> None:
    mechanism = RRWithPrior(4, epsilon)
    channel = mechanism.channel(PRIORS[prior])
    assert channel.satisfies(epsilon)
    if mechanism.sizes([PRIORS[prior]])[0] > 1:
        assert channel.epsilon >= 0.999 * epsilon
    else:
        assert channel.epsilon == 0


def test_a_uniform_prior_gives_krr() -> None:
    for k in (2, 4, 10):
        assert RRWithPrior(k, 1.0).channel([1 / k] * k).rows == KRR(k, 1.0).channel().rows


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_no_number_of_labels_keeps_the_truth_more_often(epsilon: float) -> None:
    source = np.random.default_rng(1)
    for prior in source.dirichlet([0.3] * 6, size=50):
        channel = RRWithPrior(6, epsilon).channel(prior)
        kept = sum(p * float(channel.rows[y][y]) for y, p in enumerate(prior))
        e, best = math.exp(epsilon), np.sort(prior)[::-1].cumsum()
        assert kept == pytest.approx(max(best[s - 1] * e / (e + s - 1) for s in range(1, 7)))


@pytest.mark.parametrize("prior", PRIORS)
def test_the_sampler_has_the_channel(prior: str, coins: SeededCoins) -> None:
    mechanism, n = RRWithPrior(4, 1.0), 40_000
    row = np.array(PRIORS[prior], dtype=float)
    for label, expected in enumerate(mechanism.channel(row).rows):
        priors = np.tile(row, (n, 1))
        seen = mechanism.randomize_many(np.full(n, label), priors, coins)
        shares = np.bincount(seen, minlength=4) / n
        p = np.array(expected, dtype=float)
        assert (np.abs(shares - p) <= 4.5 * np.sqrt(p * (1 - p) / n)).all()


def test_likelihoods_are_the_columns_of_each_rows_own_channel() -> None:
    mechanism, priors = RRWithPrior(4, 1.0), list(PRIORS.values())
    for reported in range(4):
        for prior in priors:
            column = [row[reported] for row in mechanism.channel(prior).rows]
            if any(column):
                rows = mechanism.likelihoods([reported], [prior])
                assert rows[0] == pytest.approx([float(p) for p in column])
    with pytest.raises(InvalidInput, match="its prior excludes"):
        mechanism.likelihoods([1], [PRIORS["sure"]])


def test_every_report_is_possible_under_its_own_likelihood(coins: SeededCoins) -> None:
    mechanism, source = RRWithPrior(5, 1.0), np.random.default_rng(3)
    priors = source.dirichlet([0.2] * 5, size=2000)
    labels = source.integers(5, size=2000)
    reported = mechanism.randomize_many(labels, priors, coins)
    rows = mechanism.likelihoods(reported, priors)
    assert (rows[np.arange(2000), labels] > 0).all()


def separable(n: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(5)
    labels = source.integers(4, size=n)
    return labels + source.normal(scale=0.3, size=n), labels


def nearest_mean(features: np.ndarray):
    """Train by the mean feature of each reported label, predict by a softmax of distances."""

    def train(rows, reported, likelihoods):
        posterior = likelihoods / likelihoods.sum(axis=1, keepdims=True)
        shares = posterior - 0.9 * posterior.mean(axis=0)
        means = (np.clip(shares, 0, None).T @ features[rows]) / np.clip(shares, 0, None).sum(axis=0)
        return lambda others: np.exp(-4 * np.abs(features[others, np.newaxis] - means))

    return train


def test_two_stages_report_each_label_once_from_halves_that_do_not_meet(
    coins: SeededCoins,
) -> None:
    features, labels = separable(4001)
    seen = []

    def train(rows, reported, likelihoods):
        seen.append((rows, reported))
        predict = nearest_mean(features)(rows, reported, likelihoods)

        def recorded(others):
            seen.append((others, None))
            return predict(others)

        return recorded

    stages = two_stage(labels, 4, 1.0, train, coins)
    (first, reported), (second, _) = seen
    assert sorted([*first.tolist(), *second.tolist()]) == list(range(4001))
    assert np.array_equal(np.flatnonzero(stages.first), first)
    assert np.array_equal(stages.reported[first], reported)
    uniform = KRR(4, 1.0).matrix()[:, reported].T
    assert np.array_equal(stages.likelihoods[first], uniform)


def test_the_second_stage_keeps_more_labels_than_the_first(coins: SeededCoins) -> None:
    features, labels = separable(20_000)
    stages = two_stage(labels, 4, 1.0, nearest_mean(features), coins)
    right = stages.reported == labels
    plain = math.e / (math.e + 3)
    assert right[stages.first].mean() == pytest.approx(plain, abs=0.02)
    assert right[~stages.first].mean() > plain + 0.1


def test_a_label_of_the_second_stage_never_reaches_its_own_prior() -> None:
    """The whole scheme, enumerated: two labels, coins replaced by every choice they can make."""
    mechanism = RRWithPrior(3, 1.0)
    first = KRR(3, 1.0).channel().rows

    def prior(reported: int) -> list[float]:  # any function of the first report
        return [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]][reported]

    def joint(one: int, two: int) -> dict[tuple[int, int], Fraction]:
        return {
            (a, b): first[one][a] * mechanism.channel(prior(a)).rows[two][b]
            for a in range(3)
            for b in range(3)
        }

    for one in range(3):
        for two in range(3):
            for other in range(3):
                for mine, theirs in (
                    (joint(one, two), joint(other, two)),
                    (joint(one, two), joint(one, other)),
                ):
                    for pair, chance in mine.items():
                        assert chance <= Fraction(math.nextafter(math.e, 3)) * theirs[pair]


@pytest.mark.parametrize(
    ("labels", "priors", "reason"),
    [
        ([0], [[0.5, 0.5]], r"priors have the shape \(n, 3\), got \(1, 2\)"),
        ([0], [[0.5, 0.6, -0.1]], "nowhere negative"),
        ([0], [[0, 0, 0]], "somewhere positive"),
        ([0], [[1, math.nan, 0]], "finite"),
        ([3], [[1, 1, 1]], r"labels must lie in 0\.\.2"),
        ([0.5], [[1, 1, 1]], "labels are 1-d integers"),
        ([0, 1], [[1, 1, 1]], "2 labels have as many priors, got 1"),
    ],
)
def test_bad_labels_and_priors_are_refused(labels, priors, reason) -> None:
    with pytest.raises(InvalidInput, match=reason):
        RRWithPrior(3, 1.0).randomize_many(labels, priors, Coins())


@pytest.mark.parametrize(("k", "epsilon"), [(1, 1.0), (3, 0.0), (3, math.nan)])
def test_bad_parameters_are_refused(k: int, epsilon: float) -> None:
    with pytest.raises(InvalidInput):
        RRWithPrior(k, epsilon)
    with pytest.raises(InvalidInput):
        two_stage([0, 0], k, epsilon, lambda *_: lambda _: np.ones((1, k)), Coins())


def test_one_label_has_no_second_stage() -> None:
    with pytest.raises(InvalidInput, match="two labels or more, got 1"):
        two_stage([0], 2, 1.0, lambda *_: lambda _: np.ones((1, 2)), Coins())
