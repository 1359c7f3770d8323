"""Permanent plus instantaneous chains."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from longitudinal_checks import (
    Matrix,
    bit_rows,
    composed,
    worst_joint_ratio,
)
from scipy.stats import chisquare

from ldp import KRR, InvalidInput, KRRChain, UnaryChain, UnaryEncoding
from ldp.core.exact import ONE, certainly_at_most, log_upper
from ldp.testing import SeededCoins

Chain = KRRChain | UnaryChain
Family = Callable[[int, float, float], Chain]

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
FAMILIES: tuple[Family, ...] = (
    KRRChain.calibrate,
    UnaryChain.l_sue,
    UnaryChain.l_oue,
    UnaryChain.l_osue,
)


def rounds(chain: Chain) -> tuple[Matrix, Matrix]:
    """Return the two rounds' channels, written out from the integers alone."""
    if isinstance(chain, UnaryChain):
        permanent = bit_rows([1 << v for v in range(chain.k)], chain.k, *chain.permanent)
        return permanent, bit_rows(range(1 << chain.k), chain.k, *chain.instantaneous)

    def matrix(resample: int) -> Matrix:
        drawn = Fraction(resample, ONE)
        return [
            [(1 - drawn) * (x == y) + drawn / chain.k for y in range(chain.k)]
            for x in range(chain.k)
        ]

    return matrix(chain.permanent), matrix(chain.instantaneous)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("more", [1.5, 4.0])
def test_one_report_meets_epsilon_and_a_memo_its_lifetime(
    family: Family, epsilon: float, more: float
) -> None:
    # Two categories differ in two of the independent bits, so the ratio of unary chains is the
    # same at every k: that of 2**16 outputs need not be enumerated.
    sizes = (2, 3, 4, 5, 8, 16) if family == KRRChain.calibrate else (2, 3, 4, 5)
    lifetime = min(more * epsilon, 32.0)
    if family == UnaryChain.l_oue and math.exp(epsilon) >= (2 * math.exp(lifetime) + 1) / 3:
        with pytest.raises(InvalidInput, match="epsilon must be below"):
            family(2, epsilon, lifetime)
        return
    for k in sizes:
        chain = family(k, epsilon, lifetime)
        channel = chain.channel()
        assert channel.satisfies(epsilon)
        assert 0.999 * epsilon <= channel.epsilon == chain.realised_epsilon <= epsilon
        memo = chain.permanent_round.channel()
        assert memo.satisfies(lifetime)
        assert 0.999 * lifetime <= memo.epsilon == chain.memo_epsilon <= lifetime


@pytest.mark.parametrize("family", [UnaryChain.l_sue, UnaryChain.l_oue, UnaryChain.l_osue])
def test_the_epsilon_of_a_unary_chain_is_the_same_at_every_size(family: Family) -> None:
    small = family(2, 1.0, 2.0)
    for k in (8, 16, 1024):
        large = family(k, 1.0, 2.0)
        assert large.realised_epsilon == small.realised_epsilon
        assert large.memo_epsilon == small.memo_epsilon
    assert family(8, 1.0, 2.0).channel().epsilon == small.realised_epsilon


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_channel_of_a_report_is_the_two_rounds_composed(family: Family, k: int) -> None:
    chain = family(k, 1.0, 2.0)
    assert [list(row) for row in chain.channel().rows] == composed(*rounds(chain))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("k", "reports"), [(2, 2), (2, 3), (3, 2), (3, 3), (4, 2)])
@pytest.mark.parametrize(("epsilon", "lifetime"), [(0.1, 1.0), (1.0, 2.0)])
def test_reports_of_one_memo_together_stay_within_its_lifetime(
    family: Family, k: int, reports: int, epsilon: float, lifetime: float
) -> None:
    chain = family(k, epsilon, lifetime)
    ratio = worst_joint_ratio(*rounds(chain), reports)
    assert certainly_at_most(ratio, lifetime)
    assert log_upper(ratio) > chain.realised_epsilon  # so a second report is not free


def test_two_reports_of_one_memo_may_cost_more_than_twice_one() -> None:
    chain = KRRChain.calibrate(3, 0.1, 1.0)
    assert log_upper(worst_joint_ratio(*rounds(chain), 2)) == pytest.approx(0.2027, abs=5e-5)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_two_lives_that_change_at_the_same_time_cost_two_memos(family: Family) -> None:
    chain = family(3, 1.0, 2.0)
    memo = chain.permanent_round.channel().rows
    pairs = [[a * b for a in memo[v] for b in memo[w]] for v, w in permutations(range(3), 2)]
    worst = max(max(column) / min(column) for column in zip(*pairs, strict=True))
    assert log_upper(worst) == pytest.approx(2 * chain.memo_epsilon, rel=1e-12)
    assert certainly_at_most(worst, chain.epsilon_of_same_changes(2))


def test_the_memos_are_bounded_by_the_number_of_categories() -> None:
    chain = UnaryChain.l_osue(5, 1.0, 2.0)
    one = chain.memo_epsilon
    assert chain.epsilon_of_same_changes(0) == 0
    assert chain.epsilon_of_same_changes(1) == one
    assert chain.epsilon_of_same_changes(3) == pytest.approx(3 * one)
    assert chain.epsilon_of_same_changes(50) == chain.epsilon_of_same_changes(5) >= 5 * one
    with pytest.raises(InvalidInput, match="must be >= 0, got -1"):
        chain.epsilon_of_same_changes(-1)


def test_the_published_l_grr_misses_its_epsilon_and_ours_does_not() -> None:
    k, one, life = 5, 1.0, 2.0
    # Arcolezi et al. 2022: (p1 p2 + q1 q2) / (p1 q2 + q1 p2) = e**one, which forgets that a
    # memo which is wrong has k - 1 ways to be wrong.
    a, b = math.exp(life), math.exp(one)
    p1, p2 = a / (a + k - 1), (a * b - 1) / (-k * b + (k - 1) * a + b + a * b - 1)
    q1 = (1 - p1) / (k - 1)
    q2 = (1 - p2) / (k - 1)
    assert (p1 * p2 + q1 * q2) / (p1 * q2 + q1 * p2) == pytest.approx(b)
    p = p1 * p2 + (k - 1) * q1 * q2
    q = (1 - p) / (k - 1)
    published = math.log(p / q)
    assert published == pytest.approx(0.860, abs=5e-4)
    ours = KRRChain.calibrate(k, one, life)
    assert ours.realised_epsilon == pytest.approx(one, rel=1e-12)
    wasted = q * (1 - q) / (p - q) ** 2 / float(ours.variance(0.0, 1))
    assert wasted == pytest.approx(1.49, abs=0.005)


def test_exact_calibration_agrees_with_the_closed_forms() -> None:
    k, one, life = 5, 1.0, 2.0
    p1, target = (math.exp(e) / (math.exp(e) + k - 1) for e in (life, one))
    p2 = ((k - 1) * target - (1 - p1)) / (k * p1 - 1)
    found = KRRChain.calibrate(k, one, life).instantaneous_round.support[0]
    assert float(found) == pytest.approx(p2, rel=1e-12)
    osue = UnaryChain.l_osue(k, one, life).instantaneous[0] / ONE
    assert osue == pytest.approx((1 + math.tanh(one / 2) / math.tanh(life / 2)) / 2, rel=1e-12)
    sue = UnaryChain.l_sue(k, one, life).instantaneous[0] / ONE
    assert sue == pytest.approx((1 + math.tanh(one / 4) / math.tanh(life / 4)) / 2, rel=1e-12)


@pytest.mark.parametrize("life", [1.5, 2.0, 8.0])
def test_a_memo_costs_no_accuracy(life: float) -> None:
    truth = np.array([0.0, 0.1, 0.5, 1.0])
    for chain, plain in (
        (KRRChain.calibrate(8, 1.0, life), KRR(8, 1.0)),
        (UnaryChain.l_sue(8, 1.0, life), UnaryEncoding.symmetric(8, 1.0)),
        (UnaryChain.l_osue(8, 1.0, life), UnaryEncoding(8, 1.0)),
    ):
        np.testing.assert_allclose(chain.variance(truth, 1), plain.variance(truth, 1), rtol=1e-9)


def test_l_osue_varies_as_the_population_demands() -> None:
    variance = UnaryChain.l_osue(4, 1.0, 2.0).variance([0.0, 0.3], 1)
    np.testing.assert_allclose(variance, [3.683, 4.193], atol=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_the_samplers_draw_from_their_rounds(family: Family, coins: SeededCoins) -> None:
    chain = family(3, 1.0, 2.0)
    n = 1_000_000
    permanent, instantaneous = rounds(chain)
    devices = chain.enroll_many(n, coins)
    value = np.full(n, 1)
    memos = chain.memoize_many(devices, value, coins)
    fixed = np.broadcast_to(memos[0], memos.shape)
    for drawn, row in (
        (memos, permanent[1]),
        (chain.report_many(fixed, coins), instantaneous[int(np.squeeze(memos[0]))]),
    ):
        seen = np.bincount(drawn.reshape(n), minlength=len(row))
        assert chisquare(seen, n * np.array(row, dtype=float)).pvalue > 1e-4


def test_a_device_that_reports_from_its_memo_draws_from_the_same_channel(
    coins: SeededCoins,
) -> None:
    for chain in (KRRChain.calibrate(3, 1.0, 2.0), UnaryChain.l_osue(3, 1.0, 2.0)):
        device = chain.enroll(coins)
        codes = [
            int(np.squeeze(chain.report(chain.memoize(device, 2, coins), coins)))
            for _ in range(1000)
        ]
        expected = 1000 * np.array(chain.channel().rows[2], dtype=float)
        assert chisquare(np.bincount(codes, minlength=expected.size), expected).pvalue > 1e-4


def test_values_share_a_memo_only_with_themselves() -> None:
    chain = KRRChain.calibrate(5, 1.0, 2.0)
    assert [chain.memo_key(b"", v) for v in range(5)] == list(range(5))
    assert chain.memo_limit == 5


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.__name__)
def test_one_report_must_cost_less_than_a_life(family: Family) -> None:
    with pytest.raises(InvalidInput, match="must be below memo_epsilon 1, got 1"):
        family(4, 1.0, 1.0)
    with pytest.raises(InvalidInput, match="memo_epsilon must be finite and > 0, got nan"):
        family(4, 1.0, math.nan)
    with pytest.raises(InvalidInput, match="k must lie in 2"):
        family(1, 1.0, 2.0)


def test_rounds_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidInput, match="permanent must lie strictly between 0 and"):
        KRRChain(4, 1.0, 0, 5)
    with pytest.raises(InvalidInput, match="instantaneous must lie strictly between 0 and"):
        KRRChain(4, 1.0, ONE // 2, ONE)
    with pytest.raises(InvalidInput, match=r"permanent is a pair \(own, other\), got \(3,\)"):
        UnaryChain(4, 1.0, (3,), (2, 1))
    with pytest.raises(InvalidInput, match="instantaneous other must be below own"):
        UnaryChain(4, 1.0, (ONE // 2, ONE // 4), (1, 2))
    with pytest.raises(InvalidInput, match="permanent must be made of integers >= 0"):
        UnaryChain(4, 1.0, (ONE // 2, -1), (2, 1))


def test_a_memo_or_device_that_cannot_be_is_refused(coins: SeededCoins) -> None:
    chain, bits = KRRChain.calibrate(5, 1.0, 2.0), UnaryChain.l_sue(5, 1.0, 2.0)
    for memo in (5, -1, 300):
        with pytest.raises(InvalidInput, match=r"category must lie in 0\.\.4, got"):
            chain.report(memo, coins)
    for bad in (1, [1, 2], [-1], [300], [1.0], "1"):
        with pytest.raises(InvalidInput, match=r"a memo is a code, uint8 of shape \(1,\), got"):
            bits.report(bad, coins)
    with pytest.raises(InvalidInput, match="bit beyond its 5"):
        bits.report(np.array([32], dtype=np.uint8), coins)
    for either in (chain, bits):
        with pytest.raises(InvalidInput, match="a device keeps 0 bytes, got 1"):
            either.memoize(b"x", 1, coins)


def test_foreign_codes_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match="bit beyond its 13"):
        UnaryChain.l_sue(13, 1.0, 2.0).decode(b"\x00\x20", 1)
