"""RAPPOR: noisy Bloom filters of strings."""

import math
from itertools import combinations

import numpy as np
import pytest
from longitudinal_checks import bit_rows, composed
from populations import tallies
from scipy.stats import chisquare

from ldp import RAPPOR, InvalidInput
from ldp.core.exact import ONE, certainly_at_most, log_upper
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
FILTERS = ((2, 1), (4, 1), (4, 2), (6, 3))


def small(epsilon: float, bits: int, hashes: int) -> RAPPOR:
    return RAPPOR.calibrate(epsilon, 2 * epsilon, bits=bits, hashes=hashes, cohorts=3)


def filters(mechanism: RAPPOR) -> list[int]:
    """Return every filter a string can have, as `channel` orders them."""
    subsets = combinations(range(mechanism.bits), mechanism.hashes)
    return [sum(1 << i for i in subset) for subset in subsets]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("bits", "hashes"), FILTERS)
def test_both_epsilons_are_met_whatever_the_number_of_hashes(
    epsilon: float, bits: int, hashes: int
) -> None:
    mechanism = small(epsilon, bits, hashes)
    channel = mechanism.channel()
    assert channel.satisfies(epsilon)
    assert 0.999 * epsilon <= channel.epsilon == mechanism.realised_epsilon <= epsilon
    memo = bit_rows(filters(mechanism), bits, *mechanism.permanent)
    worst = max(max(column) / min(column) for column in zip(*memo, strict=True))
    assert certainly_at_most(worst, 2 * epsilon)
    assert 0.999 * 2 * epsilon <= log_upper(worst) == mechanism.memo_epsilon


@pytest.mark.parametrize("hashes", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_epsilon_does_not_depend_on_the_number_of_bits(epsilon: float, hashes: int) -> None:
    # Two filters differ in 2 hashes bits wherever there are so many; each pair is independent.
    large = RAPPOR.calibrate(epsilon, 2 * epsilon, hashes=hashes)
    assert 0.999 * epsilon <= large.realised_epsilon <= epsilon
    assert 0.999 * 2 * epsilon <= large.memo_epsilon <= 2 * epsilon


def test_the_published_parameters_give_the_published_epsilons() -> None:
    mechanism = RAPPOR.published(0.5, 0.5, 0.75, hashes=2)
    assert mechanism.memo_epsilon == pytest.approx(4.39445, abs=5e-6)
    assert mechanism.memo_epsilon == pytest.approx(2 * 2 * math.log(0.75 / 0.25))
    assert mechanism.epsilon == pytest.approx(1.07429, abs=5e-6)
    with pytest.raises(InvalidInput, match="0 < f < 1 and 0 < p < q < 1"):
        RAPPOR.published(0.0, 0.5, 0.75)


def test_the_channel_of_a_report_is_the_two_rounds_composed() -> None:
    mechanism = small(1.0, 4, 2)
    permanent = bit_rows(filters(mechanism), 4, *mechanism.permanent)
    instantaneous = bit_rows(range(16), 4, *mechanism.instantaneous)
    assert [list(row) for row in mechanism.channel().rows] == composed(permanent, instantaneous)


def test_another_string_costs_another_memo() -> None:
    mechanism = small(1.0, 8, 2)
    assert mechanism.epsilon_of_same_changes(3) == pytest.approx(3 * mechanism.memo_epsilon)
    assert mechanism.epsilon_of_same_changes(1000) == mechanism.epsilon_of_same_changes(
        math.comb(8, 2)
    )


@pytest.mark.slow
def test_memos_and_reports_flip_true_bits_and_false_ones(coins: SeededCoins) -> None:
    mechanism = small(1.0, 6, 2)
    device = mechanism.enroll(coins)
    n = 1_000_000
    devices = np.broadcast_to(np.frombuffer(device, dtype=np.uint8), (n, 2))
    key = mechanism.memo_key(device, "yes")
    memos = mechanism.memoize_many(devices, ["yes"] * n, coins)
    fixed = np.broadcast_to(memos[0], memos.shape)
    (permanent,) = bit_rows([key], 6, *mechanism.permanent)
    (instantaneous,) = bit_rows([int(memos[0, 2])], 6, *mechanism.instantaneous)
    whole = mechanism.channel().rows[filters(mechanism).index(key)]
    for codes, row in (
        (memos, permanent),
        (mechanism.report_many(fixed, coins), instantaneous),
        (mechanism.report_many(memos, coins), whole),
    ):
        assert codes[:, :2].tobytes() == device * n
        seen = np.bincount(codes[:, 2], minlength=64)
        assert chisquare(seen, n * np.array(row, dtype=float)).pvalue > 1e-4


def test_a_fresh_device_joins_any_cohort(coins: SeededCoins) -> None:
    mechanism = small(1.0, 6, 2)
    codes = mechanism.randomize_many(["yes"] * 30_000, coins)
    reports, _ = mechanism.counts(mechanism.tally(codes))
    assert chisquare(reports).pvalue > 1e-4


def test_strings_of_any_length_make_memos_of_one_size(coins: SeededCoins) -> None:
    mechanism = RAPPOR.calibrate(1.0, 2.0)
    device = mechanism.enroll(coins)
    for value in ("", "a", "a" * 10_000, "été", "a\0"):
        assert len(mechanism.encode([mechanism.memoize(device, value, coins)])) == 18


def test_different_strings_have_different_filters() -> None:
    mechanism = RAPPOR.calibrate(1.0, 2.0, bits=1024, hashes=4)
    strings = ("", "a", "a\0", "\0", "A", "é", "e\u0301")
    assert len({mechanism.memo_key(bytes(2), value) for value in strings}) == len(strings)
    positions = mechanism.positions(0, "a")
    assert mechanism.memo_key(bytes(2), "a") == sum(1 << i for i in positions)


@pytest.mark.slow
def test_bit_shares_are_unbiased_with_the_stated_variance(coins: SeededCoins) -> None:
    mechanism = RAPPOR.calibrate(3.0, 6.0, bits=5, hashes=2, cohorts=2)
    names, frequencies = np.array(["a", "b", "c"], dtype=object), (0.5, 0.4, 0.1)
    truth = np.zeros((2, 5))
    for cohort in range(2):
        for name, frequency in zip(names, frequencies, strict=True):
            truth[cohort, list(mechanism.positions(cohort, name))] += frequency
    values = names[np.random.default_rng(5).choice(3, size=(8000, 50), p=frequencies)]
    drawn = tallies(mechanism, values, coins)
    error = np.array([mechanism.debias(tally) for tally in drawn]) - truth.ravel()
    variance = mechanism.variance(truth.ravel(), 50)
    np.testing.assert_array_less(abs(error.mean(axis=0)), 4 * np.sqrt(variance / len(error)))
    np.testing.assert_allclose((error**2).mean(axis=0) / variance, 1, atol=0.05)


def test_a_tally_counts_what_a_loop_counts(coins: SeededCoins) -> None:
    mechanism = RAPPOR.calibrate(1.0, 2.0, bits=13, cohorts=5)
    codes = mechanism.randomize_many([str(i % 7) for i in range(6000)], coins)
    reports, ones = np.zeros(5, dtype=int), np.zeros((5, 13), dtype=int)
    for code in codes.tolist():
        cohort = code[0] + 256 * code[1]
        reports[cohort] += 1
        for i in range(13):
            ones[cohort, i] += code[2 + i // 8] >> i % 8 & 1
    tally = mechanism.tally(codes)
    assert np.array_equal(mechanism.counts(tally)[0], reports)
    assert np.array_equal(mechanism.counts(tally)[1], ones)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"bits": 3}, "2 hashes <= bits <= 65536, got 2 and 3"),
        ({"hashes": 0}, r"hashes must lie in 1\.\.64, got 0"),
        ({"hashes": 65, "bits": 130}, r"hashes must lie in 1\.\.64, got 65"),
        ({"cohorts": 0}, "cohorts must lie in 1..65536"),
        ({"cohorts": 1 << 16, "bits": 1 << 12}, "cohorts times bits within 16777216"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change: dict[str, int], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        RAPPOR.calibrate(1.0, 2.0, **change)


@pytest.mark.parametrize("hashes", [65, 8192, 1 << 15, 10**18])
def test_too_many_hashes_are_refused_before_any_power(
    hashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def formed(*_: object) -> None:
        raise AssertionError("the odds of a bit were asked for, to be raised to a power")

    monkeypatch.setattr("ldp.mechanisms.lasting.rappor.odds_ratio", formed)
    pair = (3 * (ONE // 4), ONE // 4)
    with pytest.raises(InvalidInput, match=f"got {hashes}"):
        RAPPOR(1.0, 1 << 16, hashes, 1, pair, pair)
    with pytest.raises(InvalidInput, match=f"got {hashes}"):
        RAPPOR.published(0.5, 0.5, 0.75, bits=1 << 16, hashes=hashes)


def test_epsilons_and_rounds_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must be below memo_epsilon"):
        RAPPOR.calibrate(2.0, 2.0)
    with pytest.raises(InvalidInput, match="memo_epsilon must be finite and > 0, got inf"):
        RAPPOR.calibrate(2.0, math.inf)
    with pytest.raises(InvalidInput, match="permanent other must be below own"):
        RAPPOR(8.0, 8, 2, 1, (ONE // 4, ONE // 2), (ONE // 2, ONE // 4))


def test_a_device_that_cannot_be_is_refused(coins: SeededCoins) -> None:
    mechanism = RAPPOR.calibrate(1.0, 2.0, cohorts=4)
    with pytest.raises(InvalidInput, match="cohort must be below 4, got 4"):
        mechanism.memoize(b"\x04\x00", "a", coins)
    with pytest.raises(InvalidInput, match="a device keeps 2 bytes, got 0"):
        mechanism.memo_key(b"", "a")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x04\x00\x00\x00", "cohort must be below 4, got 4"),
        (b"\x00\x01\x00\x00", "cohort must be below 4, got 256"),
        (b"\x00\x00\x00\x20", "bit beyond its 13"),
    ],
)
def test_a_malformed_code_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    mechanism = RAPPOR.calibrate(1.0, 2.0, bits=13, cohorts=4)
    with pytest.raises(InvalidInput, match=reason):
        mechanism.decode(data, 1)
