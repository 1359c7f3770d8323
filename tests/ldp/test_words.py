"""Shares of listed words: counts of supports, pooling over groups, levels and periods."""

import numpy as np
import pytest

from ldp import InvalidInput, PrefixHashing
from ldp.core.mechanism import Codes
from ldp.core.repeated import Repeats
from ldp.estimating.words import WordShares, count_supports, estimate_words, sees
from ldp.testing import SeededCoins

ONCE = Repeats()
WORDS = ["a", "by", "abb", "baby", "abbey", "ababab", "yy", "bay"]
SHARES = np.array([0.3, 0.2, 0.15, 0.12, 0.1, 0.08, 0.05, 0.0])


def made(epsilon: float) -> PrefixHashing:
    return PrefixHashing(tuple(map(ord, "abey")), (2, 4, 6), epsilon)


def reports(mechanism: PrefixHashing, n: int, seed: int, shares: np.ndarray = SHARES) -> Codes:
    numbers = mechanism.spelling.numbers(WORDS)
    people = np.random.default_rng(seed).choice(len(WORDS), n, p=shares)
    return mechanism.randomize_many(numbers[people], SeededCoins(seed))


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("n", [1, 63, 64, 1000])
def test_supports_are_those_that_each_code_has(epsilon: float, n: int) -> None:
    mechanism = made(epsilon)
    codes = reports(mechanism, n, 1)
    numbers = mechanism.spelling.numbers(WORDS)
    counts = count_supports(mechanism, codes, numbers)
    for i, word in enumerate(WORDS):
        groups = [g for g in range(3) if sees(mechanism, g, len(word))]
        assert groups == [g for g in range(3) if g == 2 or len(word) < mechanism.lengths[g]]
        whole = np.isin(codes["group"], groups)
        assert counts.seeing[i] == whole.sum()
        assert counts.supporting[i] == mechanism.evidence(codes[whole], int(numbers[i])).sum()


def test_an_estimate_is_that_of_the_reports_which_see_the_word_whole() -> None:
    mechanism = made(2.0)
    codes = reports(mechanism, 5000, 2)
    found = estimate_words([(mechanism, codes, ONCE)], WORDS)
    counts = count_supports(mechanism, codes, mechanism.spelling.numbers(WORDS))
    p, q = map(float, mechanism.support)
    supported = counts.supporting / counts.seeing
    value = (supported - q) / (p - q)
    assert found.value == pytest.approx(value)
    supported = np.clip(value, 0, 1) * (p - q) + q
    error = np.sqrt(supported * (1 - supported) / counts.seeing) / (p - q)
    assert found.standard_error == pytest.approx(error)
    assert (found.n, found.bounds) == (5000, (0.0, 1.0))


@pytest.mark.slow
def test_intervals_of_pooled_levels_and_periods_cover() -> None:
    levels, covered, values = (made(1.0), made(3.0)), [], []
    for run in range(250):
        cohorts = [
            (levels[0], reports(levels[0], 1500, 3 * run), ONCE),
            (levels[1], reports(levels[1], 400, 3 * run + 1), ONCE),
            (levels[1], reports(levels[1], 300, 3 * run + 2), ONCE),
        ]
        found = estimate_words(cohorts, WORDS)
        low, high = found.interval()
        values.append((found.value - SHARES) / found.standard_error)
        covered.append((low <= SHARES) & (high >= SHARES))
    assert np.mean(covered) == pytest.approx(0.95, abs=0.02)
    assert np.abs(np.mean(values, axis=0)).max() < 4 / 250**0.5
    assert np.std(values) == pytest.approx(1, abs=0.05)


def test_repeats_widen_the_errors_of_frequent_words() -> None:
    mechanism = made(4.0)
    codes = reports(mechanism, 3000, 4)
    (fresh, same) = (
        estimate_words([(mechanism, codes, each)], WORDS).standard_error
        for each in (ONCE, Repeats(3.0))
    )
    assert (same[:-1] > 1.1 * fresh[:-1]).all()


def test_words_that_cannot_be_estimated_are_refused() -> None:
    mechanism = made(1.0)
    cohort = mechanism, reports(mechanism, 100, 5), ONCE
    for words, reason in (
        ([], "one or more different words"),
        ("ab", "one or more different words"),
        (["ab", "ab"], "one or more different words"),
        (["abc"], "letters of a word are among 'abey', got 'c'"),
        (["abababa"], "1 to 6 letters, got 7"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            estimate_words([cohort], words)
    with pytest.raises(InvalidInput, match="there are no reports"):
        estimate_words([(mechanism, cohort[1][:0], ONCE)], WORDS)
    other = PrefixHashing(tuple(map(ord, "abcd")), (2, 4, 6), 1.0)
    with pytest.raises(InvalidInput, match="different alphabets"):
        estimate_words([cohort, (other, cohort[1], ONCE)], ["ab"])
    first = cohort[1][cohort[1]["group"] == 0]
    with pytest.raises(InvalidInput, match="no report sees the whole of 'baby'"):
        estimate_words([(mechanism, first, ONCE)], ["baby", "abba"])


def test_a_word_that_no_report_sees_whole_leaves_the_others_estimated() -> None:
    mechanism = made(1.0)
    codes = reports(mechanism, 100, 5)
    first = [(mechanism, codes[codes["group"] == 0], ONCE)]
    found = estimate_words(first, ["a", "baby"])
    assert np.isnan(found.value[1])
    assert [end[1] for end in found.interval()] == [0, 1]
    assert found.value[0] == estimate_words(first, ["a"]).value[0]


def test_shares_of_words_have_the_moments_of_supports() -> None:
    shares = WordShares(made(1.0), 3)
    assert (shares.parameters, shares.tally_size, shares.bounds) == (3, 3, (0.0, 1.0))
