"""LOLOHA: local hashing for a life."""

import numpy as np
import pytest
from scipy.stats import chisquare

from ldp import LOLOHA, InvalidInput, LocalHashing
from ldp.core.exact import ONE
from ldp.mechanisms.lasting.loloha import best_buckets
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("k", [4, 8, 16, 100_000])
def test_both_epsilons_are_those_of_the_buckets_chain(epsilon: float, k: int) -> None:
    loloha = LOLOHA.calibrate(k, epsilon, 2 * epsilon)
    assert 0.999 * epsilon <= loloha.realised_epsilon <= epsilon
    assert 0.999 * 2 * epsilon <= loloha.memo_epsilon <= 2 * epsilon
    if loloha.buckets < 100:  # 2982 at epsilon 8
        assert loloha.realised_epsilon == loloha.chain.channel().epsilon
        memo = loloha.chain.permanent_round.channel()
        assert loloha.memo_epsilon == memo.epsilon


def test_a_device_uses_a_memo_per_bucket_however_many_values_it_has(coins: SeededCoins) -> None:
    loloha = LOLOHA.calibrate(1000, 1.0, 2.0, buckets=2)
    device = loloha.enroll(coins)
    assert {loloha.memo_key(device, value) for value in range(1000)} == {0, 1}
    assert loloha.memo_limit == 2
    assert loloha.epsilon_of_same_changes(1000) == loloha.epsilon_of_same_changes(2)
    assert loloha.epsilon_of_same_changes(2) == pytest.approx(4.0)
    assert LOLOHA.calibrate(3, 3.0, 4.0).memo_limit == 3  # of 21 buckets


@pytest.mark.parametrize("epsilon", [0.2, 0.5, 1.0, 2.0, 3.0, 5.0])
def test_the_best_number_of_buckets_has_the_least_variance(epsilon: float) -> None:
    for life in (1.5 * epsilon, 5 * epsilon):
        buckets = {best_buckets(epsilon), *range(2, 40), *range(40, 300, 5)}
        variances = {g: LOLOHA.calibrate(50, epsilon, life, g).variance(0.0, 1) for g in buckets}
        best = variances[best_buckets(epsilon)]
        assert best <= min(variances.values()) * (1 + 1e-3)  # buckets are even to a residue


def test_one_report_varies_as_that_of_local_hashing() -> None:
    truth = np.array([0.0, 0.1, 0.5, 1.0])
    ours, plain = LOLOHA.calibrate(50, 1.0, 2.0, 4), LocalHashing(50, 1.0, buckets=4)
    np.testing.assert_allclose(ours.variance(truth, 1), plain.variance(truth, 1), rtol=1e-9)


def test_the_server_takes_q_for_the_chance_of_a_collision() -> None:
    for buckets in (2, 5, 16):
        q = LOLOHA.calibrate(1000, 1.0, 2.0, buckets).support[1]
        assert float(q) == pytest.approx(1 / buckets, rel=2e-3)


def test_a_device_reports_from_its_memo(coins: SeededCoins) -> None:
    loloha = LOLOHA.calibrate(40, 1.0, 2.0, buckets=3)
    device = loloha.enroll(coins)
    bucket = loloha.memo_key(device, 7)
    n = 2000
    memos = np.array([loloha.memoize(device, 7, coins) for _ in range(n)])
    assert len(set(memos // 3)) == 1  # the device's own function
    keep, other = loloha.chain.permanent_round.support
    expected = [float(keep if y == bucket else other) * n for y in range(3)]
    assert chisquare(np.bincount(memos % 3, minlength=3), expected).pvalue > 1e-4
    (memo,) = loloha.decode(loloha.encode(memos[:1]), 1)
    reports = np.array([loloha.report(memo, coins) for _ in range(n)])
    assert set(reports // 3) == {memo // 3}
    keep, other = loloha.chain.instantaneous_round.support
    expected = [float(keep if y == memo % 3 else other) * n for y in range(3)]
    assert chisquare(np.bincount(reports % 3, minlength=3), expected).pvalue > 1e-4


def test_what_cannot_be_is_refused(coins: SeededCoins) -> None:
    loloha = LOLOHA.calibrate(40, 1.0, 2.0, buckets=3)
    with pytest.raises(InvalidInput, match="prime must be given"):
        LOLOHA(4, 1.0, 2, 0, ONE // 2, ONE // 2)
    with pytest.raises(InvalidInput, match="buckets must lie in 2"):
        LOLOHA(4, 1.0, 1, 37, ONE // 2, ONE // 2)
    with pytest.raises(InvalidInput, match="k must lie in 2"):
        LOLOHA.calibrate(1, 1.0, 2.0)
    with pytest.raises(InvalidInput, match="must be below memo_epsilon"):
        LOLOHA.calibrate(4, 2.0, 2.0)
    with pytest.raises(InvalidInput, match=f"a device keeps {loloha.device_bytes} bytes, got 3"):
        loloha.memoize(bytes(3), 1, coins)
    with pytest.raises(InvalidInput, match="a hash function is below"):
        loloha.memo_key(b"\xff" * loloha.device_bytes, 1)
    with pytest.raises(InvalidInput, match="must be below"):
        loloha.report(loloha.prime**2 * 3, coins)
