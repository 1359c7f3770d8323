"""Levels, sensitivity maps and two attributes at once, estimated as well as can be.

6 x 3 values; epsilon 0.5, 1, 2 or 4 for a record, two thirds of it for the first attribute, of
which each half of the users minds other values.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import chdtrc

from ldp import Tally
from ldp.core.estimation import Cohorts
from ldp.core.mechanism import Categorical
from ldp.core.policy import Policy
from ldp.estimating import pooling
from ldp.estimating.likelihood import (
    Cohort,
    LikelihoodEstimate,
    channel_matrix,
    fisher_covariance,
    maximum_likelihood,
)
from ldp.mechanisms import KRR
from ldp.planning.design import design
from ldp.testing import SeededCoins

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

LEVELS = {0.5: 0.4, 1.0: 0.3, 2.0: 0.2, 4.0: 0.1}  # epsilon of a record: the share of its users
MAPS = ((0, 1), (0, 1, 2, 3))  # the sensitive values of the first attribute; half the users each
USERS = 40_000
RUNS = 2_000

TRUTH = np.outer([0.35, 0.25, 0.15, 0.1, 0.1, 0.05], [0.5, 0.3, 0.2])
TRUTH[0] = TRUTH[0, ::-1]  # the attributes are not independent


def first(epsilon: float, sensitive: Sequence[int]) -> Categorical:
    return design(Policy.one_sided(6, sensitive, epsilon * 2 / 3)).mechanism


def second(epsilon: float) -> Categorical:
    return KRR(3, epsilon / 3)


COHORTS = [
    (first(epsilon, sensitive), second(epsilon), round(USERS * share / len(MAPS)))
    for epsilon, share in LEVELS.items()
    for sensitive in MAPS
]


def of_record(one: Categorical, other: Categorical) -> Floats:
    """The channel of both attributes, shape (18, codes): given the record they are independent."""
    return np.kron(channel_matrix(one), channel_matrix(other))


def drawn(seed: int) -> list[list[Counts]]:
    """The pairs of codes that come in, by run and cohort, shapes (codes, codes of the second)."""
    source = np.random.default_rng(seed)
    runs: list[list[Counts]] = [[] for _ in range(RUNS)]
    for one, other, n in COHORTS:
        chances = channel_matrix(one).T @ TRUTH @ channel_matrix(other)
        counts = source.multinomial(n, chances.ravel() / chances.sum(), size=RUNS)
        for run, of_run in zip(runs, counts.reshape(RUNS, *chances.shape), strict=True):
            run.append(of_run)
    return runs


def joint(run: Sequence[Counts]) -> LikelihoodEstimate:
    return maximum_likelihood(
        [
            Cohort(of_record(one, other), counts.ravel())
            for (one, other, _), counts in zip(COHORTS, run, strict=True)
        ]
    )


def marginal(attribute: int, run: Sequence[Counts]) -> LikelihoodEstimate:
    each = [
        (cohort[attribute], Tally(cohort[2], counts.sum(axis=1 - attribute)))
        for cohort, counts in zip(COHORTS, run, strict=True)
    ]
    return pooling.fit(Cohorts(each))


def bound(channels: Sequence[Floats], truth: Floats) -> float:
    """The least summed variance of any unbiased estimate from these cohorts."""
    counts = [n for _, _, n in COHORTS]
    return float(np.trace(fisher_covariance(list(zip(channels, counts, strict=True)), truth)))


def check_runs(found: Sequence[LikelihoodEstimate], truth: Floats, best: float) -> None:
    """The summed error within 5% of the bound, and 94 to 96% of the 95% intervals cover."""
    errors = np.array([estimate.unconstrained.value for estimate in found]) - truth
    assert (errors**2).sum(axis=1).mean() == pytest.approx(best, rel=0.05)
    ends = np.array([estimate.interval() for estimate in found])
    covered = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
    assert 0.94 <= covered.mean() <= 0.96


@pytest.mark.slow
@pytest.mark.parametrize("attribute", [0, 1])
def test_marginals_attain_the_fisher_bound_and_their_intervals_cover(attribute: int) -> None:
    truth = TRUTH.sum(axis=1 - attribute)
    best = bound([channel_matrix(cohort[attribute]) for cohort in COHORTS], truth)
    check_runs([marginal(attribute, run) for run in drawn(1 + attribute)], truth, best)


@pytest.mark.slow
def test_the_joint_distribution_attains_the_fisher_bound_and_its_intervals_cover() -> None:
    best = bound([of_record(one, other) for one, other, _ in COHORTS], TRUTH.ravel())
    check_runs([joint(run) for run in drawn(3)], TRUTH.ravel(), best)


def test_the_joint_error_is_far_below_the_strictest_level_for_everyone() -> None:
    ours = bound([of_record(one, other) for one, other, _ in COHORTS], TRUTH.ravel())
    strict = of_record(KRR(6, 0.5 * 2 / 3), second(0.5))
    assert bound([strict] * len(COHORTS), TRUTH.ravel()) > 500 * ours
    # Even where the strictest level would spare the ordinary values as we do, by the maps.
    spared = [of_record(first(0.5, sensitive), second(0.5)) for sensitive in MAPS] * len(LEVELS)
    assert bound(spared, TRUTH.ravel()) > 150 * ours


def test_what_devices_send_is_what_the_simulation_draws() -> None:
    coins = SeededCoins(20260705)
    people = np.random.default_rng(4)
    run = []
    for one, other, n in COHORTS:
        answers = people.choice(TRUTH.size, size=n, p=TRUTH.ravel())
        codes = (
            mechanism.randomize_many(values, coins)
            for mechanism, values in zip((one, other), divmod(answers, 3), strict=True)
        )
        shape = one.tally_size, other.tally_size
        pairs = np.ravel_multi_index(tuple(codes), shape)
        run.append(np.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape))
    statistic, degrees = 0.0, 0
    for (one, other, n), counts in zip(COHORTS, run, strict=True):
        expected = n * channel_matrix(one).T @ TRUTH @ channel_matrix(other)
        rare = expected < 5  # together one code, so that the statistic is near chi-squared
        seen = np.append(counts[~rare], counts[rare].sum())
        meant = np.append(expected[~rare], expected[rare].sum())
        statistic += float(((seen - meant) ** 2 / meant).sum())
        degrees += seen.size - 1
    assert 0.001 < chdtrc(degrees, statistic) < 0.999
    low, high = joint(run).interval(0.999, simultaneous=True)
    assert (low <= TRUTH.ravel()).all()
    assert (TRUTH.ravel() <= high).all()
