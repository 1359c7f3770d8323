"""What every oracle with structured supports must keep: subset selection, local hashing,
Hadamard and projective geometry response, and the count-mean sketches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from ldp import (
    HRR,
    Coins,
    CountMeanSketch,
    HadamardCountMeanSketch,
    HadamardResponse,
    InvalidInput,
    LocalHashing,
    Mechanism,
    ProjectiveGeometry,
    SubsetSelection,
    Tally,
    build,
)
from ldp.finite_field import next_prime
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SIZES = (2, 3, 4, 5, 8, 16)


def enumerable(k: int, epsilon: float) -> list[Mechanism]:
    """One of each kind, hashes and sketches small enough for their channels."""
    return [
        SubsetSelection(k, epsilon),
        LocalHashing(k, epsilon, buckets=4, prime=next_prime(max(k, 5))),
        HRR(k, epsilon),
        HadamardResponse(k, epsilon),
        ProjectiveGeometry(k, epsilon),
        CountMeanSketch(k, epsilon, hashes=3, buckets=4, prime=next_prime(max(k, 5))),
        HadamardCountMeanSketch(k, epsilon, hashes=3, buckets=4),
    ]


# Unbiased whatever the seed is, which the sketches are not.
EXACT = [
    SubsetSelection(8, 1.0),
    SubsetSelection(20, 2.5),  # indices, where that of k = 8 is a mask
    LocalHashing(8, 1.0, buckets=2, prime=11),
    LocalHashing(8, 1.0, prime=11),
    HRR(8, 1.0),
    HadamardResponse(8, 1.0),
    HadamardResponse(8, 2.0),
    ProjectiveGeometry(8, 0.5),
    ProjectiveGeometry(8, 1.5),
]
ALL = [
    *EXACT,
    LocalHashing.binary(8, 1.0),
    LocalHashing.optimised(8, 1.0),
    CountMeanSketch(8, 1.0, hashes=5, buckets=12),
    HadamardCountMeanSketch(8, 1.0, hashes=5, buckets=12),
]
each = pytest.mark.parametrize("mechanism", ALL, ids=repr)


def columns(mechanism: Mechanism, codes: np.ndarray) -> np.ndarray:
    """Return the number of each code's column in the channel."""
    if isinstance(mechanism, CountMeanSketch):
        bits = codes["bits"].astype(np.int64) @ (256 ** np.arange(codes["bits"].shape[1]))
        return codes["function"].astype(np.int64) * 2**mechanism.buckets + bits
    if isinstance(mechanism, SubsetSelection):
        if mechanism.code_dtype == np.uint8 and mechanism.code_shape == (-(-mechanism.k // 8),):
            bits = np.unpackbits(codes, axis=1, count=mechanism.k, bitorder="little")
            masks = bits @ (1 << np.arange(mechanism.k))
        else:
            masks = (1 << codes.astype(np.int64)).sum(axis=1)
        number = np.zeros(1 << mechanism.k, dtype=np.int64)
        for i, members in enumerate(mechanism.channel().outputs):
            number[sum(1 << v for v in members)] = i
        return number[masks]
    return codes.astype(np.int64)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("k", SIZES)
def test_the_worst_log_ratio_is_epsilon_and_never_more(k: int, epsilon: float) -> None:
    for mechanism in enumerable(k, epsilon):
        channel = mechanism.channel()
        assert channel.satisfies(epsilon), mechanism
        assert 0.999 * epsilon <= channel.epsilon <= epsilon, mechanism
        assert channel.epsilon == mechanism.realised_epsilon, mechanism


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        SubsetSelection(9, 0.5),
        SubsetSelection(17, 2.5),
        LocalHashing(5, 1.0, prime=7),
        HRR(5, 1.0),
        HadamardResponse(5, 0.5),
        HadamardResponse(9, 2.0),
        ProjectiveGeometry(12, 1.0, order=3, dimension=3),
        ProjectiveGeometry(20, 2.0, order=4, dimension=3),
        CountMeanSketch(5, 1.0, hashes=2, buckets=4),
        HadamardCountMeanSketch(5, 1.0, hashes=3, buckets=4),
    ],
    ids=repr,
)
def test_the_samplers_draw_from_their_channel(mechanism: Mechanism, coins: SeededCoins) -> None:
    value = mechanism.parameters - 2
    expected = np.array(mechanism.channel().rows[value], dtype=float)
    many = mechanism.randomize_many(np.full(1_000_000, value), coins)
    single = [mechanism.randomize(value, coins) for _ in range(3_000)]
    for codes in (many, np.array(single, dtype=mechanism.code_dtype)):
        seen = np.bincount(columns(mechanism, codes), minlength=expected.size)
        assert chisquare(seen, len(codes) * expected).pvalue > 1e-3


def simulated(mechanism: Mechanism, truth: np.ndarray, trials: int, n: int) -> np.ndarray:
    """Return the estimates of independent populations of n reports, shape (trials, k).

    An estimate is the mean of the estimates from each report alone, so each code's is computed
    once and weighted by how often the code came up.
    """
    values = np.random.default_rng(7).choice(truth.size, trials * n, p=truth)
    codes = mechanism.randomize_many(values, SeededCoins(7))
    names, first, column = np.unique(
        columns(mechanism, codes), return_index=True, return_inverse=True
    )
    alone = [mechanism.debias(mechanism.tally(codes[i : i + 1])) for i in first]
    cell = np.repeat(np.arange(trials), n) * names.size + column.ravel()
    counts = np.bincount(cell, minlength=trials * names.size).reshape(trials, -1)
    return counts @ np.array(alone) / n


def test_an_estimate_is_the_mean_of_those_of_its_reports(coins: SeededCoins) -> None:
    for mechanism in EXACT:  # what `simulated` rests on
        codes = mechanism.randomize_many(np.arange(40) % mechanism.parameters, coins)
        alone = [mechanism.debias(mechanism.tally(codes[i : i + 1])) for i in range(40)]
        assert mechanism.debias(mechanism.tally(codes)) == pytest.approx(np.mean(alone, axis=0))


def padded(truth: list[float], k: int) -> np.ndarray:
    return np.array(truth + [0.0] * (k - len(truth)))


@pytest.mark.slow
@pytest.mark.parametrize("truth", [[0, 0.1, 0, 0.4, 0.5], [0, 1.0]], ids=["mixed", "certain"])
@pytest.mark.parametrize("mechanism", EXACT, ids=repr)
def test_estimates_are_unbiased_and_as_exact_as_predicted(
    mechanism: Mechanism, truth: list[float]
) -> None:
    trials, n = 15_000, 80
    frequencies = padded(truth, mechanism.parameters)
    error = simulated(mechanism, frequencies, trials, n) - frequencies
    assert np.all(abs(error.mean(axis=0)) <= 4 * error.std(axis=0) / trials**0.5)
    ratio = (error**2).mean(axis=0) / mechanism.variance(frequencies, n)
    for frequency in set(truth):
        assert ratio[frequencies == frequency].mean() == pytest.approx(1, abs=0.05), frequency


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", [m for m in EXACT if m.parameters == 8], ids=repr)
def test_intervals_cover_at_their_level(mechanism: Mechanism) -> None:
    # n is large because at a true zero an interval from an estimate above it is the wider:
    # coverage exceeds its level by about 1 / sqrt(q n).
    trials, n = 1000, 4000
    truth = padded([0, 0.1, 0, 0.4, 0.5], mechanism.parameters)
    estimates = simulated(mechanism, truth, trials, n)
    variances = [mechanism.variance(f, n) for f in np.clip(estimates, 0, 1)]
    covered = abs(estimates - truth) <= 1.959964 * np.sqrt(variances)
    assert covered.mean() == pytest.approx(0.95, abs=0.01)
    assert covered[:, truth == 0].mean() == pytest.approx(0.95, abs=0.01)


@each
def test_a_plans_integers_build_the_same_mechanism(mechanism: Mechanism) -> None:
    assert build(mechanism.name, mechanism.epsilon, mechanism.integers) == mechanism


@each
def test_integers_that_exceed_epsilon_are_refused(mechanism: Mechanism) -> None:
    with pytest.raises(InvalidInput, match="the integers give epsilon"):
        build(mechanism.name, mechanism.epsilon * 0.999, mechanism.integers)


@each
def test_codes_survive_the_wire_and_their_form_tells_nothing(
    mechanism: Mechanism, coins: SeededCoins
) -> None:
    codes = mechanism.randomize_many(np.arange(mechanism.parameters), coins)
    assert codes.dtype == mechanism.code_dtype
    assert codes.shape[1:] == mechanism.code_shape
    data = mechanism.encode(codes)
    assert len(data) == mechanism.parameters * mechanism.code_bytes
    assert np.array_equal(mechanism.decode(data, len(codes)), codes)
    for value in range(mechanism.parameters):
        assert len(mechanism.encode([mechanism.randomize(value, coins)])) == mechanism.code_bytes


@each
def test_a_wrong_length_is_refused(mechanism: Mechanism, coins: SeededCoins) -> None:
    data = mechanism.encode(mechanism.randomize_many([0, 1, 2], coins))
    size = mechanism.code_bytes
    for wrong in (data[:-1], data + b"\0", b""):
        with pytest.raises(
            InvalidInput, match=f"3 {mechanism.name} codes take {3 * size} bytes, got {len(wrong)}"
        ):
            mechanism.decode(wrong, 3)


@each
@given(data=st.data())
def test_any_bytes_decode_or_are_refused(mechanism: Mechanism, data: st.DataObject) -> None:
    size = 2 * mechanism.code_bytes
    received = data.draw(st.binary(min_size=size, max_size=size))
    try:
        codes = mechanism.decode(received, 2)
    except InvalidInput as error:
        assert str(error).startswith(f"a {mechanism.name}") or "unary" in str(error)
    else:
        assert mechanism.encode(codes) == received
        assert mechanism.tally(codes).n == 2


@each
def test_tallies_merge_in_any_order(mechanism: Mechanism, coins: SeededCoins) -> None:
    codes = mechanism.randomize_many(np.arange(60) % mechanism.parameters, coins)
    a, b, c = (mechanism.tally(part) for part in (codes[:7], codes[7:20], codes[20:]))
    assert (a + b) + c == a + (b + c) == c + b + a == mechanism.tally(codes)
    assert a.counts.size == mechanism.tally_size
    assert mechanism.tally(codes[:0]) == Tally.empty(mechanism.tally_size)


@each
@pytest.mark.parametrize("value", [-1, 100, 1.0, True, "1", None])
def test_a_value_outside_the_domain_is_refused(
    mechanism: Mechanism, value: object, coins: SeededCoins
) -> None:
    with pytest.raises(InvalidInput, match=f"{mechanism.name}: (a )?categor"):
        mechanism.randomize(value, coins)
    with pytest.raises(InvalidInput, match=f"{mechanism.name}: categories"):
        mechanism.randomize_many(np.array([value, value]), coins)


@pytest.mark.parametrize("kind", sorted({type(m) for m in ALL}, key=lambda kind: kind.name))
def test_a_domain_or_epsilon_that_cannot_be_is_refused(kind: type[Mechanism]) -> None:
    for k in (0, 1, 1 << 30):
        with pytest.raises(InvalidInput, match=rf"{kind.name}: k must lie in 2\.\.\d+, got {k}"):
            kind(k, 1.0)
    for epsilon in (0, -1.0, float("nan"), float("inf"), 33):
        with pytest.raises(InvalidInput, match="epsilon must be"):
            kind(4, epsilon)


@each
def test_true_randomness_gives_valid_codes(mechanism: Mechanism) -> None:
    codes = mechanism.randomize_many(np.arange(mechanism.parameters), Coins())
    assert len(mechanism.decode(mechanism.encode(codes), len(codes))) == mechanism.parameters
