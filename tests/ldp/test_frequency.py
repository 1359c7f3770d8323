"""k-RR, unary and histogram encodings and tables: estimates, wire and tallies alike."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from ldp import (
    KRR,
    ChannelTable,
    Coins,
    InvalidInput,
    RandomizedResponse,
    SummingHistogram,
    Tally,
    UnaryEncoding,
    thresholding_histogram,
)
from ldp.mechanism import Categorical
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


@pytest.mark.parametrize(
    ("mechanism", "expected"),
    [
        (RandomizedResponse, (3.92, 0.92, 0.18, 0.02)),
        (lambda epsilon: KRR(32, epsilon), (75.20, 11.08, 0.92, 0.03)),
        (lambda epsilon: KRR(1024, epsilon), (2432.40, 347.07, 25.22, 0.37)),
        (lambda epsilon: UnaryEncoding.symmetric(32, epsilon), (15.92, 3.92, 0.92, 0.18)),
        (lambda epsilon: UnaryEncoding(32, epsilon), (15.67, 3.68, 0.72, 0.08)),
    ],
    ids=["k-RR 2", "k-RR 32", "k-RR 1024", "SUE", "OUE"],
)
def test_variances_are_those_of_wang_et_al_table_2(mechanism, expected) -> None:
    got = [float(mechanism(epsilon).variance(0.0, 1)) for epsilon in (0.5, 1.0, 2.0, 4.0)]
    assert [round(v + 1e-9, 2) for v in got] == list(expected)


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


def drawn_counts(mechanism: Categorical, truth: np.ndarray, n: int, runs: int) -> np.ndarray:
    """Draw the counts of `runs` tallies of n people from their distribution, without coins."""
    generator = np.random.default_rng(7)
    if isinstance(mechanism, UnaryEncoding):  # the first count's distribution is what matters
        p, q = map(float, mechanism.support)
        return generator.binomial(n, truth * p + (1 - truth) * q, (runs, mechanism.k))
    outputs = truth @ np.array(mechanism.channel().rows, dtype=float)
    return generator.multinomial(n, outputs / outputs.sum(), runs)


@pytest.mark.slow
@pytest.mark.parametrize("f", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(
    "mechanism",
    [m for m in MECHANISMS if not isinstance(m, SummingHistogram)],
    ids=lambda m: f"{m.name}-{m.k}",
)
def test_intervals_cover_at_their_stated_level(mechanism: Categorical, f: float) -> None:
    n, runs = 20_000, 6000
    truth = np.full(mechanism.k, (1 - f) / (mechanism.k - 1))
    truth[0] = f
    covered = 0
    for counts in drawn_counts(mechanism, truth, n, runs):
        low, high = mechanism.estimate(Tally(n, counts)).interval(0.95)
        covered += bool(low[0] <= f <= high[0])
    # At the edge of the range an interval is clipped to, it can miss on one side only.
    assert covered / runs == pytest.approx(0.95 if f else 0.975, abs=0.01)


@every_mechanism
def test_encode_then_decode_is_the_identity(mechanism: Categorical, coins: SeededCoins) -> None:
    codes = mechanism.randomize_many(np.arange(60) % mechanism.k, coins)
    data = mechanism.encode(codes)
    assert len(data) == 60 * mechanism.code_bytes
    assert np.array_equal(mechanism.decode(data, 60), codes)


@every_mechanism
@given(data=st.binary(max_size=60), n=st.integers(0, 4))
def test_any_bytes_decode_or_are_refused(mechanism: Categorical, data: bytes, n: int) -> None:
    try:
        codes = mechanism.decode(data, n)
    except InvalidInput:
        return
    assert mechanism.encode(codes) == data
    assert mechanism.tally(codes).n == n


@every_mechanism
def test_trailing_bytes_and_missing_bytes_are_refused(mechanism: Categorical) -> None:
    for length in (2 * mechanism.code_bytes - 1, 2 * mechanism.code_bytes + 1):
        with pytest.raises(InvalidInput, match=rf"2 {mechanism.name} codes take .*, got {length}"):
            mechanism.decode(bytes(length), 2)


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


@every_mechanism
def test_values_outside_the_domain_are_refused(mechanism: Categorical) -> None:
    k, coins = mechanism.k, Coins()
    for value in (-1, k, 2**70):
        with pytest.raises(InvalidInput, match=r"category must lie in 0\.\."):
            mechanism.randomize(value, coins)
    for value in (0.0, float("nan"), True, None, "0"):
        with pytest.raises(InvalidInput, match="a category is an integer"):
            mechanism.randomize(value, coins)
    for values in ([0, -1], [k, 0]):
        with pytest.raises(InvalidInput, match=r"categories must lie in 0\.\."):
            mechanism.randomize_many(values, coins)
    for values in ([], [0.5], [[0]], 0, ["a"], [True]):
        with pytest.raises(InvalidInput, match="categories are a 1-d integer array"):
            mechanism.randomize_many(values, coins)


@every_mechanism
def test_tallies_of_parts_add_up_to_the_tally_of_all(
    mechanism: Categorical, coins: SeededCoins
) -> None:
    codes = mechanism.randomize_many(np.arange(3000) % mechanism.k, coins)
    a, b, c = (mechanism.tally(part) for part in np.split(codes, [100, 2000]))
    assert (a + b) + c == a + (b + c) == mechanism.tally(codes)
    assert a + Tally.empty(mechanism.tally_size) == a


@every_mechanism
def test_a_plan_rebuilds_the_mechanism(mechanism: Categorical) -> None:
    assert type(mechanism).from_integers(mechanism.epsilon, mechanism.integers) == mechanism


@every_mechanism
def test_one_report_has_the_form_of_a_row_of_many(
    mechanism: Categorical, coins: SeededCoins
) -> None:
    for value in range(mechanism.k):
        code = np.asarray(mechanism.randomize(value, coins), dtype=mechanism.code_dtype)
        assert code.shape == mechanism.code_shape
        assert mechanism.decode(mechanism.encode([code]), 1).shape == (1, *mechanism.code_shape)


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


@pytest.mark.parametrize("epsilon", [0.0, -3.0, math.nan, math.inf, 33.0, "1", True])
def test_an_epsilon_out_of_range_is_refused(epsilon) -> None:
    for build in (KRR, UnaryEncoding, thresholding_histogram, SummingHistogram):
        with pytest.raises(InvalidInput, match="epsilon must be"):
            build(4, epsilon)


@pytest.mark.parametrize("k", [1, 0, 1 << 33])
def test_a_domain_out_of_range_is_refused(k: int) -> None:
    for build in (KRR, UnaryEncoding, thresholding_histogram, SummingHistogram):
        with pytest.raises(InvalidInput, match="k must"):
            build(k, 1.0)
