"""Answers that are words, on a device."""

from typing import Any

import pytest

from hearsay import Agreement, InvalidInput
from hearsay.plans.kinds import Strings
from hearsay.plans.plan import Plan, message, parse
from hearsay.testing import RecordingTransport
from hearsay_server.surveys import survey as surveys
from ldp import RAPPOR, Coins
from ldp.testing import SeededCoins
from support import device

LATIN = "abcdefghijklmnopqrstuvwxyz'"
WORDS = Strings(LATIN, 6)
TOML = """
name = "terms"
period = "P1D"
[levels]
strict = 2.0
[[attributes]]
name = "word"
[attributes.strings]
alphabet = "abc"
longest = 9
[[attributes]]
name = "kept"
memo = 2
[attributes.strings]
alphabet = "abc"
longest = 3
candidates = ["ab", "c"]
"""


@pytest.fixture(scope="module")
def frozen() -> bytes:
    return surveys.resolve(surveys.from_toml(TOML, "test"))


def rappor(plan: Any, **integers: int) -> None:
    for parameter in plan.levels[0].mechanisms[1].parameters:
        if parameter.name in integers:
            parameter.values[0] = integers[parameter.name]


# --- the domain --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "word"),
    [("you", "you"), ("You", "you"), ("  YOU ", "you"), ("don't", "don't"), ("\u212aey", "key")],
)
def test_a_word_is_read_as_an_app_gives_it(answer: str, word: str) -> None:
    assert WORDS.encode(answer) == word
    assert WORDS.settled(word, SeededCoins(1)) == WORDS.spelling.number(word)


def test_an_alphabet_with_both_cases_tells_them_apart() -> None:
    assert Strings("aAb", 3).encode("aAB") == "aAb"
    assert Strings("ABC", 3).encode("abc") == "ABC"
    assert Strings("a\u00e9", 2).encode("e\u0301") == "\u00e9"


@pytest.mark.parametrize(
    "answer", ["", " ", "sevenly", "don\u2019t", "na\u00efve", "a b", "a\n", 7, None, ["a"], b"a"]
)
def test_an_answer_that_is_no_word_is_refused_without_being_told(answer: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        WORDS.encode(answer)
    told = str(refused.value).replace(repr(LATIN), "")
    assert len(str(answer)) < 5 or str(answer) not in told


@pytest.mark.parametrize(
    ("alphabet", "longest", "candidates", "reason"),
    [
        ("a", 3, (), "alphabet must have 2 to 31 letters, got 1"),
        ("abcdefghijklmnopqrstuvwxyzABCDEF", 3, (), "alphabet must have 2 to 31 letters, got 32"),
        ("aba", 3, (), "the letters of alphabet must differ, got 'a' twice"),
        ("ab c", 3, (), r"neither spaces nor combining marks, got U\+0020"),
        ("ab\u0301", 3, (), r"neither spaces nor combining marks, got U\+0301"),
        ("\u1100\u1161", 3, (), "normal form NFC joins"),
        ("ab", 0, (), r"longest must lie in 1\.\.12, the most letters of a word, got 0"),
        ("ab", 13, (), r"longest must lie in 1\.\.12, the most letters of a word, got 13"),
        ("ab", 3, ("abc",), "must be written in the alphabet 'ab', got 'abc' with 'c'"),
        ("ab", 3, ("abab",), "candidates must have 1 to 3 letters, got 'abab' of 4"),
        ("ab", 3, ("",), "candidates must have 1 to 3 letters, got '' of 0"),
        ("ab", 3, ("a", "b", "a"), "candidates must differ, got 'a' twice"),
        ("ab", 12, tuple(f"{i:012b}".translate({48: 97, 49: 98}) for i in range(4097)), "4096"),
    ],
)
def test_what_is_no_domain_is_refused(
    alphabet: str, longest: int, candidates: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Strings(alphabet, longest, candidates)


# --- a device ----------------------------------------------------------------------------------


def test_an_answer_outside_the_domain_is_replaced_and_counted(frozen: bytes) -> None:
    transport = RecordingTransport(frozen)
    with device(transport, "terms", strict=False, may_tell_changes=["kept"]) as client:
        done = client.record(word="ABBA", kept="secret")
        assert done.taken == ("word", "kept")
        assert done.invalid == ("kept",)
        assert client.flush()
    (batch,) = transport.batches
    assert {each.attribute: len(each.codes) for each in batch.columns} == {"word": 6, "kept": 18}
    with (
        device(RecordingTransport(frozen), "terms", may_tell_changes=["kept"]) as client,
        pytest.raises(InvalidInput, match=r"^word must ") as refused,
    ):
        client.record(word="secret")
    assert "secret" not in str(refused.value)


def test_a_memo_of_a_word_is_kept_and_reported_again(frozen: bytes) -> None:
    plan: Plan = parse(frozen)
    memoizer = plan.memoizer("strict", "kept")
    assert memoizer is not None
    assert isinstance(memoizer.mechanism, RAPPOR)
    assert memoizer.epsilon <= 2 * memoizer.mechanism.epsilon
    coins = SeededCoins(3)
    own = memoizer.enroll(coins)
    assert memoizer.key(own, "ab") == memoizer.key(own, "ab") != memoizer.key(own, "c")
    memo = memoizer.memoize(own, "ab", coins)
    assert len(memoizer.report(memo, coins)) == len(memo)
    with pytest.raises(InvalidInput, match="a string is expected"):
        memoizer.key(own, 7)


def test_an_app_agrees_to_alphabet_and_candidates(frozen: bytes) -> None:
    assert Agreement.on(frozen).domains == {
        "word": ("abc", "9 at most"),
        "kept": ("abc", "3 at most", "ab", "c"),
    }


def test_any_word_is_one_of_the_longest_and_all_are_as_likely() -> None:
    drawn = [Strings("ab", 2).anything(SeededCoins(seed)) for seed in range(400)]
    counts = [drawn.count(word) for word in ("aa", "ab", "ba", "bb")]
    assert sum(counts) == 400
    assert min(counts) > 60
    assert len(WORDS.anything(Coins())) == 6


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("longest = 9", "longest = 13", r"attributes\[0\] \(word\): longest must lie in 1"),
        ('alphabet = "abc"', 'alphabet = "a"', r"attributes\[0\] \(word\): alphabet must have 2"),
        ('alphabet = "abc"', 'alphabet = "a\u200bc"', "alphabet: .* a format character"),
        ('"c"]', '"d"]', r"attributes\[1\] \(kept\): candidates must be written in the alphabet"),
        ("longest = 9", "longest = 8", "3 letters make only 6,561 words of 8: .* categorical"),
        ("memo = 2", "memo = 1", "declare a memo above 1"),
        ("memo = 2", 'mechanism = "rappor"', "declare a memo above 1"),
        ("memo = 2", 'memo = 2\nmechanism = "prefix_hashing"', "a memo takes rappor"),
        ('candidates = ["ab", "c"]', "", "rappor tells of listed words alone"),
        ("memo = 2", 'mechanism = "krr"', "must be one of auto, prefix_hashing, rappor, got 'krr'"),
        ('"ab", "c"]', '"ab"]\nsensitive = ["ab"]', "unknown key 'sensitive'"),
        ('name = "terms"', 'name = "terms"\nviews = [["word", "kept"]]', "neither a list of"),
    ],
)
def test_a_survey_that_cannot_be_is_refused(old: str, new: str, reason: str) -> None:
    assert old in TOML
    with pytest.raises(InvalidInput, match=reason):
        surveys.resolve(surveys.from_toml(TOML.replace(old, new, 1), "test"))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda plan: plan.survey.attributes[0].ClearField("memo"), ""),
        (lambda plan: setattr(plan.survey.attributes[1], "memo", 0), "a memo of words goes with"),
        (lambda plan: plan.survey.attributes[1].strings.ClearField("candidates"), "listed words"),
        (lambda plan: rappor(plan, cohorts=17), "may have 16 cohorts, got 17: a device's"),
        (lambda plan: rappor(plan, cohorts=1, bits=2), "tells of fewer than 2 words, got 2 cand"),
    ],
)
def test_a_client_checks_what_goes_with_rappor(frozen: bytes, change: Any, reason: str) -> None:
    plan = message(frozen)
    change(plan)
    data = plan.SerializeToString(deterministic=True)
    if not reason:
        parse(data)
        return
    with pytest.raises(InvalidInput, match=reason):
        parse(data)
