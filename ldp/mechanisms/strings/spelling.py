"""Words over a small alphabet as integers, five bits a symbol."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.mechanism import as_array
from ldp.errors import InvalidInput

Numbers = NDArray[np.uint64]

BITS = 5
"""The bits of a symbol: 0 is the end of a word, i + 1 the letter `alphabet[i]`."""

MOST_LETTERS = (1 << BITS) - 1
LONGEST = 12
"""The letters of the longest word: an integer of 64 bits holds so many."""

_BLOCK = 1 << 13
"""Integers that are checked together: as many as fit a core's cache."""

_SURROGATES = range(0xD800, 0xE000)
_CODE_POINTS = 0x110000


@dataclass(frozen=True)
class Spelling:
    """How words of 1 to `longest` letters of an alphabet are written as integers, and back.

    `alphabet` has the letters' code points. The first letter is in the lowest bits, and behind the
    last one all bits are 0. `name` is that of the mechanism, for errors.
    Raises `InvalidInput` unless there are 1 to 31 letters, all different and each a character that
    UTF-8 can write, and 1 <= longest <= 12.
    """

    alphabet: tuple[int, ...]
    longest: int
    name: str = "a spelling"

    def __post_init__(self) -> None:
        letters = self.alphabet
        if not 1 <= len(letters) <= MOST_LETTERS or len(set(letters)) < len(letters):
            raise InvalidInput(
                f"{self.name}: an alphabet has 1 to {MOST_LETTERS} different letters, "
                f"got {list(letters)}"
            )
        for letter in letters:
            if not 0 < letter < _CODE_POINTS or letter in _SURROGATES:
                raise InvalidInput(
                    f"{self.name}: a letter is the code point of a character, got {letter}"
                )
        if not 1 <= self.longest <= LONGEST:
            raise InvalidInput(
                f"{self.name}: the longest word has 1 to {LONGEST} letters, got {self.longest}"
            )

    @cached_property
    def letters(self) -> str:
        """The alphabet as a string, in order."""
        return "".join(map(chr, self.alphabet))

    @cached_property
    def _symbols(self) -> dict[str, int]:
        return {letter: i + 1 for i, letter in enumerate(self.letters)}

    def number(self, word: str) -> int:
        """Return a word's integer; raise `InvalidInput` unless it is a word of this spelling."""
        if not isinstance(word, str):
            raise InvalidInput(f"{self.name}: a word is a string, got {word!r}")
        if not 1 <= len(word) <= self.longest:
            raise InvalidInput(
                f"{self.name}: a word has 1 to {self.longest} letters, got {len(word)}: {word!r}"
            )
        number = 0
        for place, letter in enumerate(word):
            if letter not in self._symbols:
                raise InvalidInput(
                    f"{self.name}: the letters of a word are among {self.letters!r}, "
                    f"got {letter!r} in {word!r}"
                )
            number |= self._symbols[letter] << BITS * place
        return number

    def numbers(self, words: Iterable[str]) -> Numbers:
        """Return the integers of words, shape (n,); raise `InvalidInput` as `number`."""
        if isinstance(words, str):
            raise InvalidInput(f"{self.name}: words are a list of strings, got {words!r}")
        return np.array([self.number(word) for word in words], dtype=np.uint64)

    def word(self, number: int) -> str:
        """Return the word of an integer; raise `InvalidInput` where it is none."""
        number = self.check(number)
        symbols = (number >> BITS * place & MOST_LETTERS for place in range(self.longest))
        return "".join(self.letters[symbol - 1] for symbol in symbols if symbol)

    def words(self, numbers: Sequence[int] | Numbers) -> list[str]:
        """Return the words of integers; raise `InvalidInput` where one is none."""
        return [self.word(int(number)) for number in numbers]

    def check(self, number: object) -> int:
        """Return the integer of a word; raise `InvalidInput` where it is none."""
        if isinstance(number, bool) or not isinstance(number, int | np.integer):
            raise InvalidInput(f"{self.name}: a word is given as an integer, got {number!r}")
        number = rest = int(number)
        while rest > 0 and 1 <= rest & MOST_LETTERS <= len(self.alphabet):
            rest >>= BITS
        if rest or not 0 < number < 1 << BITS * self.longest:
            raise self._no_word(number)
        return number

    def check_many(self, numbers: ArrayLike) -> Numbers:
        """Return the integers of words, shape (n,); raise `InvalidInput` where one is none."""
        array = as_array(self.name, numbers)
        if array.shape == (0,):
            return np.empty(0, dtype=np.uint64)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InvalidInput(
                f"{self.name}: words are a 1-d integer array, "
                f"got {array.dtype} of shape {array.shape}"
            )
        found = array.astype(np.uint64, copy=False)  # a negative one becomes too large
        for start in range(0, found.size, _BLOCK):
            wrong = self.mistaken(found[start : start + _BLOCK])
            if wrong.any():
                raise self._no_word(int(array[start : start + _BLOCK][wrong][0]))
        return found

    def mistaken(self, numbers: Numbers) -> NDArray[np.bool_]:
        """Tell which integers are no words, shape (n,), all symbols of an integer at once.

        Every second symbol is taken, so that a sum can carry into the place above its own: it does
        where 31 is added to a letter, and where the alphabet's rest is added to one beyond it.
        """
        ended, beyond = np.zeros_like(numbers), np.zeros_like(numbers)
        for half in range(2):
            places = range(half, LONGEST, 2)
            own, ones = (
                np.uint64(sum(field << BITS * place for place in places))
                for field in (MOST_LETTERS, 1)
            )
            carries = ones << np.uint64(BITS)
            taken = numbers & own
            ended |= taken + own & carries
            beyond |= taken + ones * np.uint64(MOST_LETTERS - len(self.alphabet)) & carries
        # `ended` has a bit above each letter: a letter's must follow the bit of the one before it.
        step, first = np.uint64(BITS), np.uint64(1 << BITS)
        gaps = ended & ~(ended << step | first)
        limit = np.uint64(1 << BITS * self.longest)
        wrong: NDArray[np.bool_] = (beyond | gaps) != 0
        wrong |= (numbers >= limit) | (numbers == 0)
        return wrong

    def _no_word(self, number: int) -> InvalidInput:
        return InvalidInput(
            f"{self.name}: a word of 1 to {self.longest} of {len(self.alphabet)} letters has "
            f"{BITS} bits for each, the first one lowest, got {number}"
        )
