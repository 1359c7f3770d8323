"""k-RR, unary and histogram encodings and tables: their estimates."""

import math

import numpy as np
import pytest

from ldp import (
    KRR,
    ChannelTable,
    InvalidInput,
    SummingHistogram,
    Tally,
    UnaryEncoding,
)
from ldp.testing import SeededCoins

STAIRCASE = [[0.4, 0.3, 0.2, 0.1], [0.1, 0.4, 0.3, 0.2], [0.2, 0.1, 0.4, 0.3]]


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


def test_codes_outside_the_domain_are_refused() -> None:
    with pytest.raises(InvalidInput, match="a unary code has a bit beyond its 3"):
        UnaryEncoding(3, 1.0).decode(b"\x08", 1)
    with pytest.raises(InvalidInput, match="a she code must be below 255, got 255"):
        SummingHistogram(2, 1.0).decode(b"\x00\xff", 1)


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
