"""k-RR, unary and histogram encodings and tables: their estimates."""

import math

import numpy as np
import pytest
from scipy.stats import norm

from ldp import (
    KRR,
    ChannelTable,
    InvalidInput,
    SummingHistogram,
    Tally,
    UnaryEncoding,
    thresholding_histogram,
)
from ldp.core.mechanism import Categorical
from ldp.testing import SeededCoins

STAIRCASE = [[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2], [0.2, 0.1, 0.4, 0.3]]

MECHANISMS: list[Categorical] = [
    KRR(3, 1.0),
    KRR(100, 2.0),
    UnaryEncoding(3, 1.0),
    UnaryEncoding.symmetric(10, 2.0),
    thresholding_histogram(5, 1.0),
    SummingHistogram(3, 1.0),
    SummingHistogram.on_grid(2, 2.0, 3, 4),
    ChannelTable.from_rows(1.5, STAIRCASE),
]
every_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: f"{m.name}-{m.k}")


def simulated(mechanism: Categorical, f: float, n: int, runs: int) -> np.ndarray:
    """Estimate `runs` times from n people who have category 0 with probability f."""
    seed = round(100 * f) + 1000 * mechanism.k
    generator, coins = np.random.default_rng(seed), SeededCoins(seed)
    others = generator.integers(1, mechanism.k, (runs, n))
    values = np.where(generator.random((runs, n)) < f, 0, others)
    codes = mechanism.randomize_many(values.ravel(), coins)
    codes = codes.reshape(runs, n, *mechanism.code_shape)
    return np.array([mechanism.debias(mechanism.tally(batch)) for batch in codes])


@pytest.mark.slow
@pytest.mark.parametrize("f", [0.0, 0.1, 0.5, 1.0])
@every_mechanism
def test_estimates_are_unbiased_with_the_predicted_variance_and_coverage(
    mechanism: Categorical, f: float
) -> None:
    n, runs = 200, 6000  # a variance is then known to 1.8%
    truth = np.full(mechanism.k, (1 - f) / (mechanism.k - 1))
    truth[0] = f
    variance = np.broadcast_to(mechanism.variance(truth, n), (mechanism.k,))
    error = simulated(mechanism, f, n, runs) - truth
    assert np.abs(error.mean(axis=0)[:3] / np.sqrt(variance / runs)[:3]).max() < 4
    assert (error[:, 0] ** 2).mean() == pytest.approx(variance[0], rel=0.05)
    covered = np.abs(error[:, 0]) < norm.ppf(0.975) * math.sqrt(variance[0])
    # Counts are discrete: with n = 200 a nominal 95% can be missed by a point.
    assert covered.mean() == pytest.approx(0.95, abs=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("f", [0.0, 0.1, 0.5])
def test_intervals_of_a_table_cover_at_their_stated_level(f: float) -> None:
    # Those of pure oracles are computed exactly in test_estimation.py.
    mechanism = ChannelTable.from_rows(1.5, STAIRCASE)
    n, runs = 20_000, 6000
    truth = np.array([f, (1 - f) / 2, (1 - f) / 2])
    outputs = truth @ np.array(mechanism.channel().rows, dtype=float)
    covered = 0
    for counts in np.random.default_rng(7).multinomial(n, outputs / outputs.sum(), runs):
        low, high = mechanism.estimate(Tally(n, counts)).interval(0.95)
        covered += bool(low[0] <= f <= high[0])
    # At the edge of the range an interval is clipped to, it can miss on one side only.
    assert covered / runs == pytest.approx(0.95 if f else 0.975, abs=0.01)


@pytest.mark.parametrize(
    ("mechanism", "code", "reason"),
    [
        (KRR(3, 1.0), b"\x03", "a krr code must be below 3, got 3"),
        (UnaryEncoding(3, 1.0), b"\x08", "a unary code has a bit beyond its 3"),
        (SummingHistogram(2, 1.0), b"\x00\xff", "a she code must be below 255, got 255"),
        (ChannelTable.from_rows(1.5, STAIRCASE), b"\x04", "a table code must be below 4, got 4"),
    ],
)
def test_codes_outside_the_domain_are_refused(
    mechanism: Categorical, code: bytes, reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        mechanism.decode(code, 1)


@pytest.mark.parametrize("k", [2, 300, 70_000])
def test_krr_in_blocks_keeps_and_resamples_as_often_as_it_says(k: int, coins: SeededCoins) -> None:
    mechanism = KRR(k, 3.0)
    n = (1 << 18) + 17  # three blocks, the last one short
    values = np.arange(n) % k
    codes = mechanism.randomize_many(values, coins)
    p = float(mechanism.support[0])
    assert codes.shape == (n,)
    kept = int((codes == values).sum())
    assert abs(kept - n * p) < 5 * math.sqrt(n * p * (1 - p))
    assert abs(int(codes.astype(np.int64).sum()) / n / (k - 1) - 0.5) < 0.01
    assert mechanism.tally(codes).counts.sum() == n


@pytest.mark.parametrize("k", [2, 9, 64, 1000])
def test_unary_bits_are_set_as_often_as_they_should_be(k: int, coins: SeededCoins) -> None:
    mechanism = UnaryEncoding(k, 1.0)
    n = 400_000 // k
    values = np.arange(n) % k
    bits = np.unpackbits(mechanism.randomize_many(values, coins), axis=1, bitorder="little")
    assert not bits[:, k:].any()
    p, q = map(float, mechanism.support)
    own = int(bits[np.arange(n), values].sum())
    other = int(bits.sum()) - own
    assert abs(own - n * p) < 5 * math.sqrt(n * p * (1 - p))
    assert abs(other - n * (k - 1) * q) < 5 * math.sqrt(n * (k - 1) * q * (1 - q))
