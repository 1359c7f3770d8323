"""Maximum likelihood and EM; the floor is EM as the papers write it, over dense matrices."""

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from ldp import KRR
from ldp.estimating.likelihood import (
    Cohort,
    channel_matrix,
    iterative_bayesian_update,
    maximum_likelihood,
)

LEVELS = (0.5, 1.0, 2.0, 4.0)
STEPS = 200


def cohorts(k: int, levels: tuple[float, ...], *, hidden: bool = False) -> list[Cohort]:
    """Cohorts of 25,000 Zipf-distributed reports; `hidden` perturbs k-RR out of its form."""
    rng = np.random.default_rng(1)
    truth = np.arange(1, k + 1.0) ** -1.2
    truth /= truth.sum()
    result = []
    for epsilon in levels:
        channel = channel_matrix(KRR(k, epsilon))
        if hidden:
            channel *= 1 + 0.1 * rng.random((k, k))
            channel /= channel.sum(axis=1, keepdims=True)
        result.append(Cohort(channel, rng.multinomial(25_000, truth @ channel)))
    return result


def naive_em(channel: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """The posterior of every category for every code, averaged over the codes seen."""
    f = np.full(len(channel), 1 / len(channel))
    for _ in range(STEPS):
        joint = f[:, None] * channel
        f = (joint / joint.sum(axis=0)) @ counts / counts.sum()
    return f


@pytest.mark.benchmark(group="maximum likelihood, k = 1024, 4 levels")
@pytest.mark.parametrize("hidden", [False, True], ids=["k-rr", "any channel"])
def test_maximum_likelihood(benchmark: BenchmarkFixture, hidden: bool) -> None:
    data = cohorts(1024, LEVELS, hidden=hidden)
    benchmark(maximum_likelihood, data)


@pytest.mark.benchmark(group=f"EM, k = 1024, {STEPS} steps")
@pytest.mark.parametrize("hidden", [False, True], ids=["k-rr", "any channel"])
def test_em_ours(benchmark: BenchmarkFixture, hidden: bool) -> None:
    data = cohorts(1024, (1.0,), hidden=hidden)
    benchmark(iterative_bayesian_update, data, gap=0.0, iterations=STEPS)


@pytest.mark.benchmark(group=f"EM, k = 1024, {STEPS} steps")
def test_em_floor(benchmark: BenchmarkFixture) -> None:
    (cohort,) = cohorts(1024, (1.0,))
    benchmark(naive_em, cohort.channel, cohort.counts)
