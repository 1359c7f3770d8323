"""Answers that are words: written in an alphabet, from no list."""

import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from hearsay.plans.kinds.kind import Kind
from hearsay.plans.texts import normal
from hearsay.v1 import survey_pb2
from ldp import RAPPOR, Coins, InvalidInput, Mechanism
from ldp.mechanisms.strings.prefix_hashing import PrefixHashing
from ldp.mechanisms.strings.spelling import LONGEST, MOST_LETTERS, Spelling

MOST_CANDIDATES = 1 << 12
"""The most words that a survey lists."""

MOST_COHORTS = 16
"""The most cohorts of RAPPOR. A device draws one for life, and sends it in the clear: 4 bits."""

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


@dataclass(frozen=True)
class Strings(Kind):
    """An answer that is a word: 1 to `longest` letters of `alphabet`.

    An answer is read in Unicode's normal form NFC, without spaces (U+0020) around it. A letter that
    the alphabet lacks counts as its lower case, or else its upper case, where the alphabet has
    that: with "a".."z" "You" is the word "you". `candidates` are words whose shares are asked for
    unless a question lists others.
    Raises `InvalidInput` unless there are 2 to 31 letters, all different, none a space or a
    combining mark, none that NFC joins with another; unless longest is 1 to 12; and for candidates
    that are not words, that are listed twice, and more than 4096 of them.
    """

    name: ClassVar[str] = "words"
    field: ClassVar[str] = "strings"

    alphabet: str
    longest: int
    candidates: tuple[str, ...] = ()

    @classmethod
    def of(cls, given: survey_pb2.Strings) -> Self:
        """Return the kind that a survey describes; raise `InvalidInput` where it is none."""
        return cls(given.alphabet, given.longest, tuple(given.candidates))

    def __post_init__(self) -> None:
        if not 2 <= len(self.alphabet) <= MOST_LETTERS:
            raise InvalidInput(
                f"alphabet must have 2 to {MOST_LETTERS} letters, got {len(self.alphabet)}"
            )
        (letter, times), *_ = Counter(self.alphabet).most_common(1)
        if times > 1:
            raise InvalidInput(f"the letters of alphabet must differ, got {letter!r} twice")
        for letter in self.alphabet:
            if letter == " " or unicodedata.category(letter).startswith("M"):
                raise InvalidInput(
                    "the letters of alphabet must be seen by themselves: neither spaces nor "
                    f"combining marks, got U+{ord(letter):04X}"
                )
        pairs = "".join(one + other for one in self.alphabet for other in self.alphabet)
        if not unicodedata.is_normalized("NFC", pairs):
            raise InvalidInput(
                f"alphabet has letters that Unicode's normal form NFC joins, got {self.alphabet!r}"
            )
        if not 1 <= self.longest <= LONGEST:
            raise InvalidInput(
                f"longest must lie in 1..{LONGEST}, the most letters of a word, got {self.longest}"
            )
        if len(self.candidates) > MOST_CANDIDATES:
            raise InvalidInput(
                f"there may be {MOST_CANDIDATES} candidates, got {len(self.candidates)}: ask for "
                "more in a question"
            )
        self.check_words("candidates", self.candidates)

    def check_words(self, what: str, words: Sequence[str]) -> None:
        """Raise `InvalidInput`, naming the first, unless all are different words as `encode`
        returns them."""
        for word in words:
            stray = next((letter for letter in word if letter not in self.alphabet), None)
            if stray is not None:
                raise InvalidInput(
                    f"{what} must be written in the alphabet {self.alphabet!r}, got {word!r} with "
                    f"{stray!r}"
                )
            if not 1 <= len(word) <= self.longest:
                raise InvalidInput(
                    f"{what} must have 1 to {self.longest} letters, got {word!r} of {len(word)}"
                )
        if len(set(words)) < len(words):
            (twice, _), *_ = Counter(words).most_common(1)
            raise InvalidInput(f"{what} must differ, got {twice!r} twice")

    @property
    def labels(self) -> tuple[str, ...]:
        """The words that the survey lists."""
        return self.candidates

    @property
    def agreed(self) -> tuple[str, ...]:
        """The alphabet, the longest length and the words that the survey lists."""
        return self.alphabet, f"{self.longest} at most", *self.candidates

    def places(self, between: str) -> tuple[str, ...]:
        """No names: a code stands for letters, or for bits of words."""
        return ()

    def encode(self, answer: object) -> str:
        """Return `answer` as a word of the domain; raise `InvalidInput` where it is none."""
        if not isinstance(answer, str):
            raise InvalidInput(f"must be a word, got a {type(answer).__name__}")
        word = "".join(map(self._letter, normal(answer).strip(" ")))
        if not 1 <= len(word) <= self.longest:
            raise InvalidInput(f"must have 1 to {self.longest} letters, got another number")
        return word

    def _letter(self, character: str) -> str:
        """Return the letter that a character counts as; raise `InvalidInput` without one."""
        for letter in (character, character.lower(), character.upper()):
            if len(letter) == 1 and letter in self.alphabet:
                return letter
        raise InvalidInput(f"must be written in {self.alphabet!r}, got another character")

    @cached_property
    def spelling(self) -> Spelling:
        """How words are written as the integers that `PrefixHashing` takes."""
        return Spelling(tuple(map(ord, self.alphabet)), self.longest)

    def anything(self, coins: Coins) -> str:
        """Return a word of the longest length, of letters drawn uniformly.

        Surveys that find words have so many of these that none gains, as short ones would.
        """
        drawn = (coins.below(len(self.alphabet)) for _ in range(self.longest))
        return "".join(self.alphabet[place] for place in drawn)

    def settled(self, value: str, coins: Coins) -> int:
        """Return a word as a mechanism without memos takes it: its number."""
        return self.spelling.number(value)

    def __str__(self) -> str:
        return f"words of at most {self.longest} of {self.alphabet}"

    def check_memo(self) -> None:
        """Take a memo of any word."""

    @property
    def mechanisms(self) -> tuple[type[Mechanism], ...]:
        """The classes of mechanisms that randomise words."""
        return PrefixHashing, RAPPOR

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these words."""
        if isinstance(mechanism, RAPPOR) and not self.candidates:
            raise InvalidInput("rappor tells of listed words alone: the survey needs candidates")
        if isinstance(mechanism, RAPPOR) and mechanism.cohorts > MOST_COHORTS:
            raise InvalidInput(
                f"rappor may have {MOST_COHORTS} cohorts, got {mechanism.cohorts}: a device's "
                "cohort is drawn once, and sent in the clear with each report"
            )
        if (
            isinstance(mechanism, RAPPOR)
            and len(self.candidates) >= mechanism.cohorts * mechanism.bits
        ):
            raise InvalidInput(
                f"rappor of {mechanism.cohorts} cohorts of {mechanism.bits} bits tells of fewer "
                f"than {mechanism.cohorts * mechanism.bits} words, got {len(self.candidates)} "
                "candidates"
            )
        if isinstance(mechanism, PrefixHashing) and mechanism.spelling.letters != self.alphabet:
            raise InvalidInput(f"{mechanism.name} does not fit the alphabet {self.alphabet!r}")
        if isinstance(mechanism, PrefixHashing) and mechanism.lengths[-1] != self.longest:
            raise InvalidInput(f"{mechanism.name} does not fit words of {self.longest} letters")
