"""Where a text may have characters that show nothing themselves, but change what is beside them.

They are U+200C and U+200D where UAX #31 of Unicode allows them (contexts A1, A2 and B), U+200D in
an emoji that is made of several, and U+FE0F behind an emoji that can be shown as text too.
"""

import re
from collections.abc import Mapping
from functools import cache
from itertools import accumulate

from hearsay.plans import unicode14

_ZWNJ, _ZWJ, _AS_EMOJI = "\u200c", "\u200d", "\ufe0f"
JOINERS = f"{_ZWNJ}{_ZWJ}{_AS_EMOJI}"
_COLOURS = "\U0001f3fb-\U0001f3ff"
_PICTURE = f"[^{JOINERS}](?:{_AS_EMOJI}|[{_COLOURS}])?"
_CHAIN = re.compile(f"{_PICTURE}(?:{_ZWJ}{_PICTURE})+", re.DOTALL)

_Kind = tuple[str, int]
"""A kind of `unicode14.KINDS`, and its script's number; the marks of all scripts have 0."""

_LETTERS, _LEFT, _RIGHT, _VOWELS = map(frozenset, ("ADLR", "DL", "DR", "UW"))
_MARKS, _WITH_CLASS, _TRANSPARENT = map(frozenset, ("MNWV", "MV", "MNWVT"))


def without_joiners(text: str) -> str:
    """Return a text without joiners: two names of which this is the same may look alike."""
    return text if text.isascii() else re.sub(f"[{JOINERS}]", "", text)


def misplaced(text: str) -> int | None:
    """Return the place of the first joiner that is not allowed where it is; None without one.

    Takes time linear in the length of the text.
    """
    known = _kinds()
    kinds = [("", 0), *(known.get(character, ("", 0)) for character in text), ("", 0)]
    in_emoji = _in_emoji(text)
    for at, character in enumerate(text):
        if character == _AS_EMOJI:
            allowed = _is_presented(text, at)
        elif character == _ZWJ:
            allowed = at in in_emoji or (
                _is_after_virama(kinds, at + 1) and kinds[at + 2][0] not in _VOWELS
            )
        elif character == _ZWNJ:
            allowed = _is_between(kinds, at + 1)
        else:
            continue
        if not allowed:
            return at
    return None


def _in_emoji(text: str) -> set[int]:
    """Return the places of U+200D in emoji that are made of several."""
    return {
        at
        for chain in _CHAIN.finditer(text)
        if re.sub(f"[{_AS_EMOJI}{_COLOURS}]", "", chain[0]) in _emoji()
        for at in range(*chain.span())
        if text[at] == _ZWJ
    }


def _is_presented(text: str, at: int) -> bool:
    """Whether U+FE0F is behind an emoji that may have it: behind a digit only in a keycap."""
    before = text[at - 1] if at else ""
    if before in set("#*0123456789"):
        return text[at + 1 : at + 2] == "\u20e3"
    return before in _presented()


def _is_between(kinds: list[_Kind], at: int) -> bool:
    """Whether U+200C parts letters of one script that would join (A1), or comes behind a virama and
    before a letter (A2)."""
    before, after = (kinds[_beyond(kinds, at, step, _TRANSPARENT)] for step in (-1, 1))
    if before[0] in _LEFT and after[0] in _RIGHT and before[1] == after[1]:
        return True
    after = kinds[_beyond(kinds, at, 1, _WITH_CLASS)]
    return after[0] in _LETTERS and _is_after_virama(kinds, at, after[1])


def _is_after_virama(kinds: list[_Kind], at: int, script: int | None = None) -> bool:
    """Whether there is a letter of the script, any by default, and its virama before a place."""
    letter = kinds[_beyond(kinds, at, -1, _MARKS)]
    viramas = kinds[_beyond(kinds, at, -1, _WITH_CLASS) + 1 : at]
    return letter[0] in _LETTERS and ("V", letter[1]) in viramas and script in (None, letter[1])


def _beyond(kinds: list[_Kind], at: int, step: int, passed: frozenset[str]) -> int:
    """Return the first place beside `at` whose kind is none of those to pass over."""
    at += step
    while kinds[at][0] in passed:
        at += step
    return at


@cache
def unseen() -> re.Pattern[str]:
    """Return the pattern of a character that no text may have, wherever it is."""
    ranges = "".join(
        f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in _ranges(unicode14.SEEN)
    )
    return re.compile(f"[^{ranges}{JOINERS}]")


@cache
def _presented() -> frozenset[str]:
    return frozenset(
        chr(code) for first, last in _ranges(unicode14.PRESENTED) for code in range(first, last + 1)
    )


@cache
def _emoji() -> frozenset[str]:
    lines = (line.split(" ") for line in unicode14.EMOJI.splitlines())
    return frozenset(
        f"{first}{_ZWJ}{rest.replace('~', _ZWJ)}"
        for firsts, *others in lines
        for first in firsts
        for rest in others
    )


@cache
def _kinds() -> Mapping[str, _Kind]:
    """Return the kind of each character that matters beside a joiner, and its script's number."""
    found = {}
    for script, table in enumerate(unicode14.KINDS.split("|")):
        code = 0
        for gap, kind, length in re.findall("([0-9a-z]*)([A-Z])([0-9a-z]*)", table):
            code += int(gap or "0", 36)
            for _ in range(int(length or "1", 36)):
                found[chr(code)] = (kind, script)
                code += 1
    return found


def _ranges(table: str) -> list[tuple[int, int]]:
    """Return the ranges of code points of a table, the first and the last of each."""
    ends = list(accumulate(int(number, 36) for number in table.split(" ")))
    return [(first, end - 1) for first, end in zip(ends[::2], ends[1::2], strict=True)]
