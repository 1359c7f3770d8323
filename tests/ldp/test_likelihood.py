"""Maximum likelihood and EM against naive references, published bounds and simulation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from populations import LEVELS, revealing, zipf

from ldp import KRR, InvalidInput, OneBitMean, UnaryEncoding
from ldp.estimating.likelihood import (
    GAP,
    Cohort,
    channel_matrix,
    fisher_covariance,
    iterative_bayesian_update,
    maximum_likelihood,
)
from ldp.testing import SeededCoins

Floats = NDArray[np.float64]


def naive_em(cohorts: list[Cohort], steps: int) -> Floats:
    """Bayes' rule, report by report, as the papers write it."""
    k = len(cohorts[0].channel)
    f = [1 / k] * k
    n = sum(int(cohort.counts.sum()) for cohort in cohorts)
    for _ in range(steps):
        after = [0.0] * k
        for cohort in cohorts:
            for y, count in enumerate(cohort.counts):
                joint = [f[x] * cohort.channel[x, y] for x in range(k)]
                for x in range(k):
                    after[x] += count * joint[x] / sum(joint) / n
        f = after
    return np.array(f)


def log_likelihood(cohorts: list[Cohort], f: Floats) -> float:
    terms = [
        count * np.log(f @ cohort.channel[:, y])
        for cohort in cohorts
        for y, count in enumerate(cohort.counts)
        if count
    ]
    return float(np.sum(terms))


def random_channel(rng: np.random.Generator, k: int, codes: int) -> Floats:
    channel: Floats = rng.dirichlet(np.full(codes, 0.5), size=k)
    return channel


def sampled(rng: np.random.Generator, channel: Floats, f: Floats, n: int) -> Cohort:
    return Cohort(channel, rng.multinomial(n, f @ channel))


@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_no_distribution_is_likelier(seed: int, k: int, channels: int) -> None:
    rng = np.random.default_rng(seed)
    f = rng.dirichlet(np.full(k, 0.5))
    cohorts = [sampled(rng, random_channel(rng, k, k + 2), f, 200) for _ in range(channels)]
    found = maximum_likelihood(cohorts)
    assert found.gap <= GAP
    assert found.value.min() >= 0
    assert found.value.sum() == pytest.approx(1)
    best = log_likelihood(cohorts, found.value)
    for other in rng.dirichlet(np.full(k, 0.3), size=20):
        assert best >= log_likelihood(cohorts, 0.1 * other + 0.9 * found.value) - 1e-7


def test_the_maximum_meets_the_karush_kuhn_tucker_conditions() -> None:
    rng = np.random.default_rng(3)
    cohorts = [
        sampled(rng, channel_matrix(KRR(30, epsilon)), zipf(30, 2.0), 2000) for epsilon in LEVELS
    ]
    f = maximum_likelihood(cohorts).value
    score = sum(q.channel @ (q.counts / (f @ q.channel)) for q in cohorts)
    assert 5 < np.count_nonzero(f == 0) < 25
    assert score[f > 0] == pytest.approx(8000, rel=1e-6)
    assert np.all(score[f == 0] <= 8000 * (1 + 1e-9))


@pytest.mark.parametrize("structured", [True, False])
def test_em_is_bayes_rule_report_by_report(structured: bool) -> None:
    rng = np.random.default_rng(5)
    f = zipf(4, 1.0)
    channels = (
        [channel_matrix(KRR(4, epsilon)) for epsilon in (1.0, 3.0)]
        if structured
        else [random_channel(rng, 4, 5), random_channel(rng, 4, 6)]
    )
    cohorts = [sampled(rng, channel, f, 500) for channel in channels]
    ours = iterative_bayesian_update(cohorts, gap=0.0, iterations=25)
    assert ours.value == pytest.approx(naive_em(cohorts, 25), abs=1e-12)


def test_em_and_newton_meet() -> None:
    rng = np.random.default_rng(6)
    cohorts = [sampled(rng, random_channel(rng, 8, 10), zipf(8, 1.5), 5000) for _ in range(2)]
    em = iterative_bayesian_update(cohorts, gap=1e-6)
    newton = maximum_likelihood(cohorts)
    assert em.gap <= 1e-6
    assert em.value == pytest.approx(newton.value, abs=1e-4)
    assert 0 <= log_likelihood(cohorts, newton.value) - log_likelihood(cohorts, em.value) <= 1e-6


def test_em_says_where_it_stopped() -> None:
    rng = np.random.default_rng(6)
    cohorts = [sampled(rng, channel_matrix(KRR(8, 0.5)), zipf(8, 1.5), 5000)]
    found = iterative_bayesian_update(cohorts, iterations=3)
    maximum = maximum_likelihood(cohorts)
    lacks = log_likelihood(cohorts, maximum.value) - log_likelihood(cohorts, found.value)
    assert 0.01 < lacks <= found.gap


def test_the_diagonal_form_gives_what_the_dense_one_does() -> None:
    rng = np.random.default_rng(8)
    channels = [channel_matrix(KRR(12, epsilon)) for epsilon in LEVELS]
    cohorts = [sampled(rng, channel, zipf(12, 2.0), 3000) for channel in channels]
    # A thirteenth code that is the twelfth's copy half of the time hides the form, not the law.
    split = []
    for cohort in cohorts:
        channel = np.hstack([cohort.channel, cohort.channel[:, -1:] / 2])
        channel[:, -2] /= 2
        half = int(cohort.counts[-1]) // 2
        counts = np.append(cohort.counts, half)
        counts[-2] -= half
        split.append(Cohort(channel, counts))
    fast, dense = maximum_likelihood(cohorts), maximum_likelihood(split)
    assert fast.value == pytest.approx(dense.value, abs=1e-6)
    assert fast.covariance == pytest.approx(dense.covariance, rel=1e-3, abs=1e-7)


def test_one_invertible_channel_gives_the_debiased_estimate(coins: SeededCoins) -> None:
    mechanism = KRR(5, 1.0)
    tally = mechanism.tally(mechanism.randomize_many(np.repeat(np.arange(5), 2000), coins))
    found = maximum_likelihood([Cohort(channel_matrix(mechanism), tally.counts)])
    simple = mechanism.estimate(tally)
    assert found.unconstrained.value == pytest.approx(simple.value)
    assert found.standard_error == pytest.approx(simple.standard_error, rel=1e-6)


def test_the_bound_is_the_inverse_information_on_the_tangent_space() -> None:
    rng = np.random.default_rng(9)
    f = zipf(5, 1.0)
    channels = [(random_channel(rng, 5, 7), 300), (channel_matrix(KRR(5, 1.0)), 200)]
    information = sum(n * q @ np.diag(1 / (f @ q)) @ q.T for q, n in channels)
    basis = np.vstack([np.eye(4), -np.ones(4)])
    expected = basis @ np.linalg.inv(basis.T @ information @ basis) @ basis.T
    assert fisher_covariance(channels, f) == pytest.approx(expected, rel=1e-9)


Runs = tuple[Floats, Floats, Floats]


def simulate(channels: list[Floats], sizes: list[int], truth: Floats, runs: int) -> Runs:
    """Return the errors, whether unclipped 95% intervals cover, and the constrained errors."""
    rng = np.random.default_rng(12)
    errors, covered, constrained = [], [], []
    for _ in range(runs):
        found = maximum_likelihood(
            [sampled(rng, q, truth, n) for q, n in zip(channels, sizes, strict=True)]
        )
        errors.append(found.unconstrained.value - truth)
        covered.append(np.abs(errors[-1]) <= 1.959964 * found.standard_error)
        constrained.append(found.value - truth)
    return np.array(errors), np.array(covered, dtype=float), np.array(constrained)


@pytest.mark.slow
def test_different_maps_pool_without_bias_and_cover_true_zeros() -> None:
    truth = np.array([0.5, 0.3, 0.2, 0.0, 0.0, 0.0])
    other = random_channel(np.random.default_rng(2), 6, 8)
    channels = [channel_matrix(KRR(6, 1.0)), revealing(6, 1.0, (0, 1, 3)), other]
    errors, covered, constrained = simulate(channels, [1000] * 3, truth, 1500)
    bias = np.abs(errors.mean(axis=0)) / (errors.std(axis=0) / np.sqrt(len(errors)))
    assert bias.max() < 4
    coverage = covered.mean(axis=0)
    assert coverage[:4] == pytest.approx(0.955, abs=0.015)
    # The second map reveals the last two categories, and they never come: that is certainty.
    assert coverage[4:].min() > 0.94
    assert np.mean(constrained**2) < np.mean(errors**2)


@pytest.mark.slow
def test_many_categories_at_four_levels_are_certified_too() -> None:
    rng = np.random.default_rng(13)
    cohorts = [
        sampled(rng, channel_matrix(KRR(1024, epsilon)), zipf(1024, 1.2), 25_000)
        for epsilon in LEVELS
    ]
    assert maximum_likelihood(cohorts).gap <= 1e-7


def test_fewer_reports_than_categories_still_converge() -> None:
    rng = np.random.default_rng(14)
    cohorts = [sampled(rng, random_channel(rng, 60, 80), zipf(60, 1.0), 25)]
    assert maximum_likelihood(cohorts).gap <= GAP


def test_an_absent_category_that_would_reveal_itself_keeps_an_error() -> None:
    channel = revealing(4, 1.0, (0, 1))
    counts = np.array([600, 400, 0, 0])
    found = maximum_likelihood([Cohort(channel, counts)])
    assert found.value[2:] == pytest.approx([0.0, 0.0], abs=1e-9)
    high = found.interval()[1]
    assert 3 / 1000 < high[2] < 2 / 100  # the rule of three, over the chance to reveal itself


def test_a_channel_matrix_is_the_exact_channel_in_doubles() -> None:
    for mechanism in (KRR(5, 1.0), OneBitMean(2.0)):
        exact = np.array(mechanism.channel().rows, dtype=float)
        assert np.array_equal(channel_matrix(mechanism), exact)


def test_a_tally_of_bits_is_not_one_of_codes() -> None:
    with pytest.raises(InvalidInput, match="unary tallies 4 counts, not its 16 codes"):
        channel_matrix(UnaryEncoding(4, 1.0))


EYE = np.eye(3)


@pytest.mark.parametrize(
    ("channel", "counts", "message"),
    [
        (EYE, np.array([1, 2]), r"got \(3, 3\) and \(2,\)"),
        (EYE, np.array([1.0, 2.0, 3.0]), "counts must be integers >= 0"),
        (EYE, np.array([-1, 2, 3]), "counts must be integers >= 0"),
        (EYE, np.zeros(3, dtype=int), "at least one of them positive"),
        (2 * EYE, np.ones(3, dtype=int), "every row of a channel must be a distribution"),
        (np.full((3, 3), np.nan), np.ones(3, dtype=int), "must be a distribution"),
        (EYE[:, [0, 1, 2, 2]] * [1, 1, 1, 0], np.ones(4, dtype=int), "gives to no category"),
    ],
)
def test_a_malformed_cohort_is_refused(channel: Floats, counts: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Cohort(channel, counts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "channel", [np.full((3, 3), 1 / 3), np.array([[0.5, 0.5], [0.5, 0.5], [0.1, 0.9]])]
)
def test_channels_that_do_not_tell_categories_apart_are_refused(channel: Floats) -> None:
    counts = np.ones(channel.shape[1], dtype=int)
    with pytest.raises(InvalidInput, match="do not tell all categories apart"):
        maximum_likelihood([Cohort(channel, counts)])


def test_cohorts_that_cannot_be_pooled_are_refused() -> None:
    with pytest.raises(InvalidInput, match="there are no cohorts"):
        maximum_likelihood([])
    small, large = (Cohort(np.eye(k), np.ones(k, dtype=int)) for k in (2, 3))
    with pytest.raises(InvalidInput, match=r"different numbers of categories: \[2, 3\]"):
        maximum_likelihood([small, large])
