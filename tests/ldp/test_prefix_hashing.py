"""Prefix hashing: its guarantee whatever the rows, its supports, its integers, its letters."""

import math
from fractions import Fraction
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
from every_mechanism import FewSeeds
from hypothesis import given
from hypothesis import strategies as st

from ldp import Coins, InvalidInput, PrefixHashing
from ldp.core.exact import ONE
from ldp.mechanisms.strings import prefix_hashing
from ldp.mechanisms.strings.spelling import Spelling
from ldp.mechanisms.tools.bits import parity
from ldp.testing import SeededCoins

LETTERS = ascii_lowercase + "'"


def over(longest: int = 12, epsilon: float = 1.0) -> PrefixHashing:
    return PrefixHashing.over(LETTERS, longest, epsilon)


# --- the guarantee -------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [(0, 0), (1, 1), (0b11, 0b1100001), (0, 0b1000001)])
def test_the_guarantee_holds_whatever_the_rows_are(
    rows: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        PrefixHashing,
        "each_row",
        lambda self, seeds: (np.full(len(seeds), row, dtype=np.uint64) for row in rows),
    )
    channel = FewSeeds((97, 98), (1, 2), 1.0).channel()
    assert channel.satisfies(1.0)
    if not any(rows):
        assert channel.worst_ratio == 1  # all words share a bucket
        assert len(set(channel.rows)) == 1


def test_two_prefixes_share_a_bucket_with_one_chance_in_as_many_as_there_are() -> None:
    # Over all pairs of rows of 4 bits, dependent ones and zeros among them.
    rows = np.arange(16, dtype=np.uint64)
    for difference in range(1, 16):
        odd = parity(rows & np.uint64(difference))
        together = sum((a == 0) & (b == 0) for a in odd.tolist() for b in odd.tolist())
        assert Fraction(together, 256) == Fraction(1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_words_share_buckets_as_often_over_the_seeds(epsilon: float) -> None:
    mechanism, n = over(epsilon=epsilon), 1 << 18
    spelled = mechanism.spelling.number
    seeds = np.arange(0, 1 << 32, (1 << 32) // n, dtype=np.uint32)
    (p, q), expected = mechanism.support, n / mechanism.buckets
    assert p > q == Fraction(1, mechanism.buckets)
    for a, b in [("a", "b"), ("you", "your"), ("something", "somethings"), ("e", "''''''''''''")]:
        words = (np.full(n, spelled(word), dtype=np.uint64) for word in (a, b))
        first, second = (mechanism.hashed(seeds, word) for word in words)
        assert abs((first == second).sum() - expected) < 5 * math.sqrt(expected)


# --- supports ------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_reports_support_the_own_prefix_with_p_and_another_with_q(
    epsilon: float, coins: SeededCoins
) -> None:
    mechanism, n = over(epsilon=epsilon), 100_000
    p, q = map(float, mechanism.support)
    spelled = mechanism.spelling.number
    codes = mechanism.randomize_many([spelled("abbey")] * n, coins)
    for word, sharing in {"abbey": (0, 1, 2), "abbeys": (0,), "abacus": (), "zoo": ()}.items():
        supported = mechanism.evidence(codes, spelled(word))
        own = np.isin(codes["group"], sharing)
        for group, chance in ((own, p), (~own, q)):
            if group.any():
                error = math.sqrt(chance * (1 - chance) / group.sum())
                assert abs(supported[group].mean() - chance) < 5 * error


def test_one_report_hashes_as_many_do() -> None:
    mechanism = over(epsilon=3.0)
    for seed in (0, 1, 12345, (1 << 32) - 1):
        rows = [int(row[0]) for row in mechanism.each_row(np.array([seed], dtype=np.uint32))]
        assert rows == [prefix_hashing._row(seed, i) for i in range(mechanism.rows)]


def test_the_rows_are_those_of_the_published_generator() -> None:
    # The first outputs from the state 0, as those who published splitmix64 list them.
    assert [prefix_hashing._row(0, i) for i in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


def test_the_groups_are_drawn_without_regard_to_the_word(coins: SeededCoins) -> None:
    mechanism = over()
    codes = mechanism.randomize_many(mechanism.spelling.numbers(["a", "zoologist"] * 20_000), coins)
    for codes_of_one in (codes[::2], codes[1::2]):
        tally = mechanism.tally(codes_of_one)
        estimate = mechanism.estimate(tally)
        truth = np.array(mechanism.chances) / ONE
        assert tally.counts.sum() == tally.n == 20_000
        assert (np.abs(estimate.value - truth) < 5 * estimate.standard_error).all()
    assert np.array_equal(mechanism.each_counted(codes).sum(axis=0), mechanism.tally(codes).counts)


# --- integers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epsilon", "buckets"), [(0.1, 2), (0.5, 2), (1, 4), (2, 8), (3, 16), (4, 64), (20, 256)]
)
def test_the_buckets_are_those_of_least_variance(epsilon: float, buckets: int) -> None:
    def noise(g: int) -> float:
        p, q = PrefixHashing((97,), (1, 2), epsilon, buckets=g).support
        return float(q * (1 - q) / (p - q) ** 2)

    assert over(epsilon=epsilon).buckets == buckets
    assert min((1 << t for t in range(1, 9)), key=noise) == buckets


@pytest.mark.parametrize(
    ("longest", "lengths"), [(1, (1, 1)), (4, (4, 4)), (7, (4, 7)), (12, (4, 8, 12))]
)
def test_groups_see_four_letters_more_each(longest: int, lengths: tuple[int, ...]) -> None:
    mechanism = over(longest)
    assert mechanism.lengths == lengths
    assert sum(mechanism.chances) == ONE
    assert max(mechanism.chances) - min(mechanism.chances) <= 2
    assert PrefixHashing.whole(LETTERS, longest, 1.0).lengths == (longest, longest)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"alphabet": (97, 97)}, "different letters"),
        ({"alphabet": tuple(range(97, 129))}, "has 1 to 31 different letters"),
        ({"alphabet": (97, 0xD800)}, "code point of a character, got 55296"),
        ({"alphabet": (97, 0x110000)}, "code point of a character"),
        ({"lengths": (12,)}, "2 to 16 lengths"),
        ({"lengths": (8, 4, 12)}, "none below the one before"),
        ({"lengths": (0, 4, 12)}, "1 to 12 letters, got 0"),
        ({"lengths": (4, 8, 13)}, "1 to 12 letters, got 13"),
        ({"chances": (ONE // 2, ONE // 2)}, "3 lengths has one chance, got 2"),
        ({"chances": (1, 2, 3)}, r"sum to 2\*\*64"),
        ({"buckets": (6,)}, "power of two in 2..256, got 6"),
        ({"buckets": (512,)}, "power of two in 2..256, got 512"),
        ({"resample": (ONE - 1 >> 2,)}, "the integers give epsilon"),
    ],
)
def test_integers_out_of_range_are_refused(changed: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        PrefixHashing.from_integers(1.0, over().integers | changed)


# --- words ---------------------------------------------------------------------------------


@given(st.text(alphabet=LETTERS, min_size=1, max_size=12))
def test_a_word_is_spelled_and_read(word: str) -> None:
    spelling = over().spelling
    number = spelling.number(word)
    assert spelling.word(number) == word
    assert number == sum(LETTERS.index(c) + 1 << 5 * place for place, c in enumerate(word))
    assert spelling.check(number) == number


@pytest.mark.parametrize("word", ["", "abcdefghijklm", "Ab", "ä", "a b", b"ab", 3, None])
def test_what_is_no_word_is_refused(word: Any) -> None:
    with pytest.raises(InvalidInput, match=r"prefix_hashing: (a word|the letters of a word)"):
        over().spelling.number(word)


@given(st.integers(0, (1 << 64) - 1) | st.integers(0, 1 << 20))
def test_many_integers_are_checked_as_one_is(number: int) -> None:
    for alphabet, longest in ((LETTERS, 12), ("ab", 4), (LETTERS + "äöüß", 3)):
        spelling = Spelling(tuple(map(ord, alphabet)), longest)
        try:
            expected = [spelling.check(number)]
        except InvalidInput as refusal:
            with pytest.raises(InvalidInput, match=str(number)):
                spelling.check_many(np.array([1, number], dtype=np.uint64))
            assert str(number) in str(refusal)
        else:
            assert spelling.check_many(np.array([number], dtype=np.uint64)).tolist() == expected


def test_parities_are_the_same_where_numpy_counts_no_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    words = Coins().words(1000)
    expected = parity(words)
    assert expected.tolist() == [int(word).bit_count() & 1 for word in words]
    monkeypatch.delattr(np, "bitwise_count", raising=False)
    assert np.array_equal(parity(words), expected)
