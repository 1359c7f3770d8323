"""Discovery: exact scores, a list without false words, intervals of listed words, what is found."""

import gzip
from pathlib import Path
from string import ascii_lowercase

import numpy as np
import pytest
from scipy.stats import binom, norm

from ldp import InvalidInput, PrefixHashing
from ldp.core.mechanism import Codes
from ldp.core.repeated import Repeats
from ldp.estimating import decoding, discovery
from ldp.estimating.discovery import discover, smallest_shares
from ldp.estimating.words import SupportCounts, WordReports
from ldp.testing import SeededCoins

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
ONCE = Repeats()
POINTS = tuple(map(ord, "abcdefgh"))


def small(epsilon: float, lengths: tuple[int, ...] = (2, 4, 6)) -> PrefixHashing:
    return PrefixHashing(POINTS, lengths, epsilon)


def population(mechanism: PrefixHashing, n: int, seed: int, frequent: dict[str, float]) -> Codes:
    """Return reports of words of six letters that are all different, but for the frequent ones."""
    generator = np.random.default_rng(seed)
    letters = generator.integers(1, 9, (n, 6)).astype(np.uint64)
    words = (letters << np.arange(0, 30, 5, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    start = 0
    for word, share in frequent.items():
        words[start : start + round(share * n)] = mechanism.spelling.number(word)
        start += round(share * n)
    return mechanism.randomize_many(words, SeededCoins(seed))


# --- search --------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(("before", "length"), [(0, 2), (2, 4), (4, 6)])
def test_scores_are_those_of_each_continuation_by_itself(
    epsilon: float, before: int, length: int
) -> None:
    mechanism = small(epsilon)
    codes = population(mechanism, 700, 1, {"abbacd": 0.3})
    codes = codes[codes["group"] == before // 2]
    prefixes = np.array([mechanism.spelling.number(word) for word in ("abba", "hhhh")])
    prefixes = (prefixes & (1 << 5 * before) - 1).astype(np.uint64)
    scores = decoding._scores([(mechanism, codes)], before, length, prefixes)
    q = 1 / mechanism.buckets
    error = np.sqrt(len(codes) * q * (1 - q))
    for prefix, row in zip(prefixes, scores, strict=True):
        for place in (0, 1, 33, 67, 99, 1023):
            words = np.full(len(codes), prefix | np.uint64(place) << np.uint64(5 * before))
            supports = (mechanism.hashed(codes["seed"], words) == codes["bucket"]).sum()
            assert row[place] == pytest.approx((supports - len(codes) * q) / error, abs=1e-3)


def test_scores_do_not_depend_on_how_reports_are_taken_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    levels = small(1.0), small(3.0)
    every = [(m, population(m, 900, 2, {"abc": 0.2})) for m in levels]
    seen = [(m, codes[codes["group"] == 0]) for m, codes in every]
    prefixes = np.array([0], dtype=np.uint64)
    whole = decoding._scores(seen, 0, 2, prefixes)
    monkeypatch.setattr(decoding, "_ENTRIES", 1000)
    monkeypatch.setattr(decoding, "_BLOCK", 64)
    assert np.allclose(decoding._scores(seen, 0, 2, prefixes), whole, atol=1e-3)


def test_the_transform_is_the_product_with_the_signs() -> None:
    values = np.random.default_rng(3).integers(-9, 9, 1024).astype(np.float32)
    signs = [[1 - 2 * ((i & j).bit_count() & 1) for j in range(1024)] for i in range(1024)]
    assert np.allclose(decoding.walsh_hadamard(values), np.array(signs) @ values, atol=0.01)


@pytest.mark.parametrize(
    ("before", "length", "ended", "longer"),
    [(0, 2, 8, 64), (2, 4, 1 + 8, 64), (4, 6, 1 + 8 + 64, 0)],
)
def test_continuations_end_a_word_or_are_prefixes_of_longer_ones(
    before: int, length: int, ended: int, longer: int
) -> None:
    step = small(1.0).spelling, before, length
    kinds = decoding.continuations(*step)
    assert [int(kind.sum()) for kind in kinds] == [ended, longer] == list(decoding.how_many(*step))
    assert not (kinds[0] & kinds[1]).any()


# --- the list ------------------------------------------------------------------------------


def test_frequent_words_of_all_lengths_are_found_with_their_shares() -> None:
    mechanism = small(4.0)
    frequent = {"abc": 0.2, "h": 0.15, "abcdef": 0.12, "hgfe": 0.1, "ab": 0.08}
    cohorts = [(mechanism, population(mechanism, 8000, 4, frequent), ONCE)]
    found = discover(cohorts)
    assert set(found.words) == set(frequent)
    assert (np.diff(found.estimate.value) <= 0).all()
    assert (found.least < found.estimate.value).all()
    truth = np.array([frequent[word] for word in found.words])
    assert (np.abs(found.estimate.value - truth) < 4 * found.estimate.standard_error).all()
    assert found.looked_at >= 8 + 60 * 9


def test_levels_and_periods_find_together_what_none_finds_alone() -> None:
    levels = small(1.0), small(2.0)
    cohorts: list[WordReports] = [
        (levels[i % 2], population(levels[i % 2], 3000, i, {"abcd": 0.12}), Repeats(2.0))
        for i in range(4)
    ]
    assert "abcd" in discover(cohorts).words
    assert not any("abcd" in discover([cohort]).words for cohort in cohorts)


@pytest.mark.slow
@pytest.mark.parametrize(("epsilon", "n"), [(1.0, 20_000), (4.0, 1_000)])
def test_words_that_nobody_gave_are_hardly_ever_listed(epsilon: float, n: int) -> None:
    mechanism, false = small(epsilon), 0
    for run in range(60):
        codes = population(mechanism, n, run, {"abcdef": 0.3, "abccc": 0.05})
        words = discover([(mechanism, codes, ONCE)], error=0.5).words
        # Words of six letters may be somebody's: those steps that find others have 2/3 of the
        # error, and half of the third step's words are shorter, too.
        false += any(len(word) < 6 and word != "abccc" for word in words)
    assert false <= binom.isf(1e-3, 60, 0.5)


@pytest.mark.parametrize(("epsilon", "n"), [(1.0, 2_000), (2.0, 20_000), (4.0, 20_000)])
def test_intervals_of_listed_words_cover_however_they_were_selected(epsilon: float, n: int) -> None:
    mechanism = PrefixHashing.over(ascii_lowercase, 12, epsilon)
    (p, q), generator = map(float, mechanism.support), np.random.default_rng(6)
    cut = binom.isf(norm.sf(5.5), n, q) + 0.5 - n * q
    for away in (-1.0, 0.0, 1.0, 3.0):  # of the truth, in standard errors from the limit
        supported = q + (cut + away * np.sqrt(n * q * (1 - q))) / n
        truth = (supported - q) / (p - q)
        counts = generator.binomial(n, supported, 10_000)
        counts = counts[counts > n * q + cut]
        value = (counts / n - q) / (p - q)
        low, high = discovery._above_the_least(
            [(mechanism, np.empty(0), ONCE)],
            [SupportCounts(np.full(counts.size, n), counts)],
            value,
            np.full(counts.size, cut / n / (p - q)),
            1.959964,
        )
        missed = np.mean(low > truth), np.mean(high < truth)
        assert max(missed) < 0.025 + 4 * np.sqrt(0.025 / counts.size) + 0.004
        assert (low < high).all()


def test_the_limits_of_reports_of_one_mechanism_are_exact() -> None:
    mechanism, errors = small(3.0), np.array([1e-3, 1e-9, 1e-9])
    seeing, q = np.array([[400, 30, 0]]), 1 / mechanism.buckets
    score = discovery._limits([mechanism], seeing, errors) / discovery.weight_of(mechanism)
    most = np.floor(score + seeing[0] * q).astype(int)  # the supports that are not listed
    assert (binom.sf(most, seeing[0], q) <= errors).all()
    assert (binom.sf(most - 1, seeing[0], q) > errors)[:2].all()
    halves = discovery._limits([mechanism] * 2, np.array([[100, 10, 0], [300, 20, 0]]), errors)
    assert halves / discovery.weight_of(mechanism) == pytest.approx(score)


@pytest.mark.parametrize(
    ("strict", "loose"),
    [((1.0, 38_000), (6.0, 15)), ((1.0, 3_200), (4.0, 15)), ((1.0, 40_000), (4.0, 40_000))],
)
def test_pooled_levels_list_no_more_false_words_than_stated(
    strict: tuple[float, int], loose: tuple[float, int]
) -> None:
    mechanisms = [
        PrefixHashing.over(ascii_lowercase, 12, epsilon) for epsilon, _ in (strict, loose)
    ]
    n, error = np.array([[strict[1]], [loose[1]]]), 1e-8
    limit = discovery._limits(mechanisms, n, np.array([error, error])[:1])[0]
    (qa, wa), (qb, wb) = ((1 / m.buckets, discovery.weight_of(m)) for m in mechanisms)
    of_loose = np.arange(loose[1] + 1)
    needed = (limit - wb * (of_loose - loose[1] * qb)) / wa + strict[1] * qa
    tail = binom.pmf(of_loose, *(loose[1], qb)) @ binom.sf(np.floor(needed), strict[1], qa)
    assert error / 40 < tail <= error


def test_nothing_is_listed_where_no_word_is_frequent() -> None:
    mechanism = small(1.0)
    found = discover([(mechanism, population(mechanism, 500, 7, {}), ONCE)])
    assert found.words == ()
    assert found.estimate.value.shape == found.estimate.interval()[0].shape == (0,)


def test_reports_that_tell_of_no_words_are_refused() -> None:
    mechanism = small(1.0)
    codes = population(mechanism, 100, 8, {})
    cohort = mechanism, codes, ONCE
    for error in (0.0, 1.0, -1.0):
        with pytest.raises(InvalidInput, match="chance of an error must lie strictly between"):
            discover([cohort], error)
    with pytest.raises(InvalidInput, match="there are no reports"):
        discover([(mechanism, codes[:0], ONCE)])
    with pytest.raises(InvalidInput, match=r"memo.*in one period"):
        discover([(mechanism, codes, Repeats(2.0, codes=True))])
    other = small(1.0, (2, 3, 6))
    with pytest.raises(InvalidInput, match="see the same lengths"):
        discover([cohort, (other, codes, ONCE)])
    whole = PrefixHashing.whole(ascii_lowercase, 12, 1.0)
    with pytest.raises(InvalidInput, match="in steps of 4 letters at most"):
        discover([(whole, whole.randomize_many([1] * 9, SeededCoins(1)), ONCE)])


# --- before a survey -----------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_words_of_the_smallest_share_are_listed_half_of_the_time(epsilon: float) -> None:
    mechanism, n = small(epsilon), 3000
    shares = smallest_shares([(mechanism, n)])
    assert (np.diff(shares) >= 0).all()
    listed, runs = np.zeros(2), 12
    for run in range(runs):
        frequent = {"a": shares[0], "bbbbb": shares[4]}
        words = discover([(mechanism, population(mechanism, n, run, frequent), ONCE)]).words
        listed += [word in words for word in frequent]
    assert (np.abs(listed - runs / 2) <= 2.5 * np.sqrt(runs) / 2 + 1).all()


def test_the_smallest_shares_of_the_published_example() -> None:
    mechanism = PrefixHashing.over(ascii_lowercase + "'", 12, 1.0)
    shares = smallest_shares([(mechanism, 1e6)])
    assert shares[[0, 3, 11]] == pytest.approx([0.0092, 0.0131, 0.0204], abs=1e-4)
    assert smallest_shares([(mechanism, 4e6)]) == pytest.approx(shares / 2, rel=0.02)
    two = smallest_shares([(mechanism, 5e5), (mechanism, 5e5)])
    assert two == pytest.approx(shares, rel=1e-3)
    assert (smallest_shares([(mechanism, 1e6)], chance=0.9) > shares).all()
    assert (smallest_shares([(mechanism, 10)]) == 1).all()


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the data sets are not here")
def test_the_most_frequent_english_words_are_found() -> None:
    with gzip.open(DATA / "words-en50k" / "en_50k.txt.gz", "rt", encoding="utf-8") as file:
        counts = {word: int(count) for word, count in (line.split() for line in file)}
    letters = ascii_lowercase + "'"
    counts = {w: c for w, c in counts.items() if len(w) <= 12 and set(w) <= set(letters)}
    words, shares = list(counts), np.array(list(counts.values()), dtype=float)
    mechanism = PrefixHashing.over(letters, 12, 4.0)
    numbers = mechanism.spelling.numbers(words)
    people = np.random.default_rng(9).choice(numbers, 100_000, p=shares / shares.sum())
    cohort = mechanism, mechanism.randomize_many(people, SeededCoins(9)), ONCE
    found = discover([cohort]).words
    assert len(set(words[:20]) & set(found)) >= 19
    assert len(set(words) & set(found)) >= 0.95 * len(found)
