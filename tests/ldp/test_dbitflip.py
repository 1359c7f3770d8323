"""dBitFlip: a few bits for life."""

import math
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from scipy.stats import chisquare

from ldp import DBitFlip, InvalidInput
from ldp.core.exact import ONE, certainly_at_most, log_upper
from ldp.testing import SeededCoins

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)
SHAPES = ((2, 1), (2, 2), (3, 1), (3, 2), (4, 3), (5, 5), (8, 1), (8, 4), (16, 2))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize(("k", "d"), SHAPES)
def test_the_worst_log_ratio_is_epsilon_and_never_more(epsilon: float, k: int, d: int) -> None:
    mechanism = DBitFlip(k, epsilon, d)
    channel = mechanism.channel()
    assert channel.satisfies(epsilon)
    assert 0.999 * epsilon <= channel.epsilon == mechanism.realised_epsilon <= epsilon
    assert mechanism.memo_epsilon == mechanism.realised_epsilon


def test_one_asked_category_may_be_answered_more_truly_than_published() -> None:
    # Ding et al. flip each bit for epsilon / 2, as if two values always differed in two bits.
    published = ONE / (np.exp(0.5) + 1)
    assert DBitFlip(8, 1.0, 2).flip == pytest.approx(published)
    assert DBitFlip(8, 1.0, 1).flip < 0.72 * published


def test_categories_not_asked_share_a_memo(coins: SeededCoins) -> None:
    mechanism = DBitFlip(10, 1.0, 3)
    device = mechanism.enroll(coins)
    asked = np.frombuffer(device, dtype=np.uint8)
    keys = [mechanism.memo_key(device, value) for value in range(10)]
    assert keys == [value if value in asked else 10 for value in range(10)]
    assert len(set(keys)) == mechanism.memo_limit == 4
    assert DBitFlip(3, 1.0, 3).memo_limit == 3
    assert mechanism.epsilon_of_same_changes(10) == mechanism.epsilon_of_same_changes(4)
    assert mechanism.epsilon_of_same_changes(4) == pytest.approx(4.0)


def test_two_lives_that_change_at_the_same_time_cost_two_memos() -> None:
    channel = DBitFlip(3, 1.0, 2).channel()
    asked = [i for i, code in enumerate(channel.outputs) if [e >> 1 for e in code] == [0, 1]]
    rows = [[3 * row[i] for i in asked] for row in channel.rows]  # of one device's questions
    pairs = [[a * b for a in first for b in second] for first, second in permutations(rows, 2)]
    worst = max(max(column) / min(column) for column in zip(*pairs, strict=True))
    assert log_upper(worst) == pytest.approx(2.0)
    assert certainly_at_most(worst, DBitFlip(3, 1.0, 2).epsilon_of_same_changes(2))


def test_a_change_of_value_is_plain_to_see_in_two_reports(coins: SeededCoins) -> None:
    mechanism = DBitFlip(10, 1.0, 4)
    asked = mechanism.enroll(coins)
    own, other = asked[0], asked[1]
    seen = {
        tuple(mechanism.memoize(asked, own, coins)) == tuple(mechanism.memoize(asked, other, coins))
        for _ in range(50)
    }
    assert False in seen  # which no life without a change can bring about
    assert mechanism.epsilon_of_any_lives(1) == mechanism.realised_epsilon
    assert mechanism.epsilon_of_any_lives(2) == math.inf


def test_every_report_of_a_memo_is_the_same(coins: SeededCoins) -> None:
    mechanism = DBitFlip(10, 1.0, 4)
    memo = mechanism.memoize(mechanism.enroll(coins), 3, coins)
    for _ in range(20):
        assert np.array_equal(mechanism.report(memo, coins), memo)


def test_a_device_is_asked_every_set_of_categories_equally(coins: SeededCoins) -> None:
    mechanism = DBitFlip(300, 1.0, 3)
    devices = mechanism.enroll_many(20_000, coins)
    asked = devices.view(mechanism.code_dtype)
    assert (np.diff(asked.astype(int), axis=1) > 0).all()
    assert chisquare(np.bincount(asked.ravel(), minlength=300)).pvalue > 1e-4


def test_what_cannot_be_is_refused(coins: SeededCoins) -> None:
    mechanism = DBitFlip(5, 1.0, 2)
    with pytest.raises(InvalidInput, match=r"d must lie in 1\.\.5, got 6"):
        DBitFlip(5, 1.0, 6)
    with pytest.raises(InvalidInput, match="flip must be below"):
        DBitFlip(5, 1.0, 2, ONE // 2)
    for device in (b"\x01\x01", b"\x03\x02", b"\x01\x05"):
        with pytest.raises(InvalidInput, match="keeps 2 ascending categories"):
            mechanism.memoize(device, 1, coins)
    with pytest.raises(InvalidInput, match="a device keeps 2 bytes, got 1"):
        mechanism.memo_key(b"\x01", 1)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x0a", "must ask categories below 5, got 5"),
        (b"\x02\x03", "must ask each category once, in order"),
        (b"\x04\x02", "must ask each category once, in order"),
    ],
)
def test_a_malformed_code_is_refused_with_the_reason(data: bytes, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        DBitFlip(5, 1.0, 2).decode(data, 1)


def test_support_is_that_of_an_asked_category() -> None:
    p, q = DBitFlip(5, 1.0, 2).support
    assert p + q == Fraction(1)
