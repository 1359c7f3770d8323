"""Speed of waves beside plain numpy, in one process and one thread: what counts is the ratio.

The floor of a batch draws pattern, coin and bin with numpy's seeded generator: neither secure nor
exact. That of one report is the operating system's random bytes, of which each report has three
words. Estimates of 256 bins with the errors of all ranges are held to 50 ms in docs/benchmarks.md.
"""

import os

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import Coins, Tally, Waves
from ldp.core.estimation import Cohorts
from ldp.estimating.points import estimate_points
from ldp.mechanisms.ranges import wave_design

BINS = 256
REPORTS = 1_000_000
WAVES = Waves.over(BINS, 1.0)


def values() -> NDArray[np.int64]:
    return np.random.default_rng(1).integers(0, BINS, REPORTS)


@pytest.fixture(scope="module")
def tally() -> Tally:
    return WAVES.tally(WAVES.randomize_many(values(), Coins()))


@pytest.mark.benchmark(group="waves, batch of 1M reports")
def test_waves_batch_ours(benchmark) -> None:
    codes = benchmark(WAVES.randomize_many, values(), Coins())
    assert codes.shape == (REPORTS,)


@pytest.mark.benchmark(group="waves, batch of 1M reports")
def test_waves_batch_floor_insecure_numpy(benchmark) -> None:
    generator, given = np.random.default_rng(1), values()
    rows = WAVES.channel_of_shifts.rows
    masks = rows > rows.mean(axis=1, keepdims=True)
    order = np.argsort(~masks, axis=1, kind="stable")
    sizes, chances = masks.sum(axis=1), np.array(WAVES.chances, dtype=float)
    chances /= chances.sum()
    include = np.array(WAVES.include, dtype=float) / 2.0**64

    def floor() -> NDArray[np.int64]:
        pattern = generator.choice(WAVES.patterns, REPORTS, p=chances)
        inside = generator.random(REPORTS) < include[pattern]
        size, place = sizes[pattern], generator.random(REPORTS)
        at = np.where(inside, place * size, size + place * (BINS - size)).astype(np.intp)
        return BINS * pattern + (given - order[pattern, at]) % BINS

    assert benchmark(floor).shape == (REPORTS,)


@pytest.mark.benchmark(group="waves, one report")
def test_waves_one_report_ours(benchmark) -> None:
    coins = Coins()
    assert 0 <= benchmark(WAVES.randomize, 77, coins) < WAVES.tally_size


@pytest.mark.benchmark(group="waves, one report")
def test_waves_one_report_floor_random_bytes(benchmark) -> None:
    assert len(benchmark(lambda: [os.urandom(8) for _ in range(3)])) == 3


@pytest.mark.benchmark(group="waves, estimates of 256 bins")
def test_waves_estimate_with_the_errors_of_all_ranges(benchmark, tally: Tally) -> None:
    def ours() -> NDArray[np.float64]:
        values, covariance = WAVES.debias(tally), WAVES.tally_covariance(tally)
        assert values.shape == (BINS,)
        table = np.zeros((BINS + 1, BINS + 1))
        table[1:, 1:] = covariance.cumsum(axis=0).cumsum(axis=1)
        own = np.diag(table)
        return own[:, None] + own - 2 * table

    assert benchmark(ours).shape == (BINS + 1, BINS + 1)


@pytest.mark.benchmark(group="waves, estimates of 256 bins")
def test_waves_distribution_with_the_most_likely_shares(benchmark, tally: Tally) -> None:
    cohorts = Cohorts([(WAVES, tally)])
    assert benchmark(estimate_points, cohorts, BINS).points == BINS


@pytest.mark.benchmark(group="waves, estimates of 256 bins")
def test_waves_floor_one_dense_covariance(benchmark, tally: Tally) -> None:
    """The same covariance of codes by a dense product, given each code's value of each bin."""
    values = np.array([WAVES.debias(Tally(1, u)) for u in np.eye(500, WAVES.tally_size, dtype=int)])
    every = np.tile(values, (WAVES.tally_size // 500 + 1, 1))[: WAVES.tally_size]
    shares = tally.counts / tally.n
    assert benchmark(lambda: (every.T * shares) @ every).shape == (BINS, BINS)


@pytest.mark.benchmark(group="waves, design of 256 bins")
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_waves_design(benchmark, epsilon: float) -> None:
    made = wave_design.design.__wrapped__
    found = benchmark.pedantic(made, args=((BINS,), epsilon), rounds=1)
    assert len(found.masks) <= BINS // 2
