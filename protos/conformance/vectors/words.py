"""Vectors of answers that are words, on their way to a mechanism."""

from typing import Any

from hearsay.plans.kinds import Strings
from ldp import InvalidInput
from vectors.notation import Script, Seeds

Case = dict[str, Any]

_LATIN = "abcdefghijklmnopqrstuvwxyz'"

_ANSWERS = (  # alphabet, longest, answers
    (
        _LATIN,
        12,
        (
            *("you", "You", " YOU  ", "don't", "don\u2019t", "na\u00efve", "", " ", "a b", "\ta"),
            *("a\n", "abcdefghijkl", "abcdefghijklm", "\u212a", "\ufb01", "\u00e9"),
        ),
    ),
    ("aé", 3, ("é", "e\u0301", "É", "E\u0301a", "e", "é\u0301")),
    ("ABC", 2, ("abc", "ab", "Cb", "ç")),
    ("aAb", 2, ("aA", "AB", "Bb")),
    ("i\u0131", 2, ("I", "\u0130", "\u0131i")),
    ("\u00dfs\u03c3\u03c2", 3, ("\u1e9e", "SS", "\u03a3\u03c3\u03c2", "\u017f")),
    ("\U0001f600\U0001f601", 2, ("\U0001f601\U0001f600", "\U0001f600", "\U0001f602", "\ud83d")),
    ("가나", 2, ("가", "\u1100\u1161", "각")),
)

_REFUSED = (  # alphabet, longest, candidates
    ("", 3, ()),
    ("a", 3, ()),
    ("aa", 3, ()),
    ("ab ", 3, ()),
    ("ae\u0301", 3, ()),
    ("a\u0363", 3, ()),
    ("\u1100\u1161", 3, ()),
    ("".join(map(chr, range(0x41, 0x61))), 3, ()),
    ("ab", 0, ()),
    ("ab", 13, ()),
    ("ab", 3, ("a", "a")),
    ("ab", 3, ("abc",)),
    ("ab", 3, ("abab",)),
    ("ab", 3, ("",)),
)


def words() -> dict[str, list[Case]]:
    """Return words.json."""
    seeds = Seeds("words")
    found = []
    for alphabet, longest, answers in _ANSWERS:
        domain = Strings(alphabet, longest)
        listed = []
        for answer in answers:
            try:
                word = domain.encode(answer)
            except InvalidInput:
                listed.append([list(map(ord, answer)), None, None])
                continue
            places = [alphabet.index(letter) + 1 for letter in word]
            listed.append([list(map(ord, answer)), word, places])
        anything = []
        for _ in range(4):
            seed = seeds.next()
            coins = Script(seed)
            anything.append([seed.hex(), domain.anything(coins), coins.used])
        case = {"alphabet": alphabet, "longest": longest}
        found.append(case | {"answers": listed, "anything": anything})
    refused = []
    for alphabet, longest, candidates in _REFUSED:
        try:
            Strings(alphabet, longest, candidates)
        except InvalidInput:
            case = {"alphabet": alphabet, "longest": longest, "candidates": list(candidates)}
            refused.append(case)
    assert len(refused) == len(_REFUSED)
    return {"words": found, "refused": refused}
