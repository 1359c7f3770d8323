"""Shares of given words from prefix-hashed reports.

A report is t equations over two elements. Each of its rows r_i is kept to the letters that its
group sees, and stands one place higher, with a bit of the bucket below. The report supports a word
where each of these integers has an even number of bits in common with twice the word's integer plus
one. All that is estimated of words comes from how many reports do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ldp.core.estimation import Cohorts, Estimate, estimate
from ldp.core.estimator import Supports
from ldp.core.intervals import Interval
from ldp.core.mechanism import Codes
from ldp.core.repeated import Repeats
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.strings.prefix_hashing import PrefixHashing
from ldp.mechanisms.strings.spelling import BITS, MOST_LETTERS, Numbers
from ldp.mechanisms.tools.bits import bit_counts

WordReports = tuple[PrefixHashing, Codes, Repeats]
"""A cohort: a mechanism, its reports as `PrefixHashing.decode` returns them, and how they depend on
reports of the same people in other cohorts and periods."""

_BLOCK = 1 << 18
"""Reports whose equations are solved together: a multiple of 64."""


@dataclass(frozen=True)
class WordShares(Supports):
    """The shares of words that all reports of a cohort see whole, shape (words,).

    A tally of it counts the reports that support each word.
    """

    name: ClassVar[str] = "word shares"
    mechanism: PrefixHashing
    words: int

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        return self.mechanism.support

    @property
    def tally_size(self) -> int:
        return self.words

    @property
    def parameters(self) -> int:
        return self.words


def estimate_words(cohorts: Sequence[WordReports], words: Sequence[str]) -> Estimate:
    """Estimate the share of the people who gave each word of a list, shape (words,).

    Only reports whose group sees a whole word tell of it: all of a word of up to 3 letters, where
    the shortest prefix has 4. Every word on the list is estimated and none is selected by the data
    first, so that intervals cover at their level. Cohorts are pooled by inverse variance, as
    `ldp.estimate` does it, for words of each length. Estimates of two words are uncorrelated, but
    for the sampling of people: the hashes of any three words are independent in pairs.
    Cost: a few operations for each word on 64 reports at once: 46,000 words and 10**6 reports take
    seconds.
    A word that no report sees whole has the share nan, and the interval [0, 1].
    Raises `InvalidInput` for cohorts of different words, for a word that is listed twice or cannot
    be spelled, and where no report sees any of the words whole.
    """
    check_cohorts(cohorts)
    if isinstance(words, str) or not words or len(set(words)) < len(words):
        raise InvalidInput(f"a list of one or more different words is expected, got {words!r:.80}")
    numbers = cohorts[0][0].spelling.numbers(words)
    counts = [count_supports(mechanism, codes, numbers) for mechanism, codes, _ in cohorts]
    return pooled(cohorts, words, counts)


def check_cohorts(cohorts: Sequence[WordReports]) -> None:
    """Raise `InvalidInput` unless there are cohorts, all of the same alphabet and longest word."""
    if not any(len(codes) for _, codes, _ in cohorts):
        raise InvalidInput("there are no reports of words")
    if len({mechanism.spelling for mechanism, _, _ in cohorts}) > 1:
        raise InvalidInput("cohorts of different alphabets or longest words cannot be pooled")


def sees(mechanism: PrefixHashing, group: int, letters: int) -> bool:
    """Tell whether the prefixes of a group tell a word of so many letters from every other one."""
    length = mechanism.lengths[group]
    return letters < length or length == mechanism.lengths[-1]


def weight_of(mechanism: PrefixHashing) -> float:
    """Return how much a support of a rare word counts: the slope of its log-likelihood."""
    p, q = map(float, mechanism.support)
    return (p - q) / (q * (1 - q))


@dataclass(frozen=True, eq=False)
class SupportCounts:
    """How many reports see each word of a list, and how many of these support it: (words,)."""

    seeing: NDArray[np.int64]
    supporting: NDArray[np.int64]


def pooled(
    cohorts: Sequence[WordReports], words: Sequence[str], counts: Sequence[SupportCounts]
) -> Estimate:
    """Pool the cohorts' counts of a list of words, for words of each length by themselves."""
    letters = np.array([len(word) for word in words])
    value, error = np.full((2, letters.size), np.nan)
    parts: list[tuple[NDArray[np.intp], Estimate]] = []
    for length in sorted(set(letters.tolist())):
        (own,) = np.nonzero(letters == length)
        each = [
            (WordShares(mechanism, own.size), Tally(int(c.seeing[own[0]]), c.supporting[own]))
            for (mechanism, _, _), c in zip(cohorts, counts, strict=True)
        ]
        if not any(tally.n for _, tally in each):
            continue
        part = estimate(Cohorts(each, [repeats for _, _, repeats in cohorts]))
        value[own], error[own] = part.value, part.standard_error
        parts.append((own, part))
    if not parts:
        raise InvalidInput(f"no report sees the whole of {words[0]!r}, nor of any other word")

    def ends(z: float) -> Interval:
        low, high = np.zeros(letters.size), np.ones(letters.size)
        for own, part in parts:
            assert part.ends is not None  # supports have moments
            low[own], high[own] = part.ends(z)
        return low, high

    n = sum(len(codes) for _, codes, _ in cohorts)
    return Estimate(value, error, n, (0.0, 1.0), parts[0][1].method, ends)


# --- supports ------------------------------------------------------------------------------------


def equations(mechanism: PrefixHashing, codes: Codes) -> Numbers:
    """Return the equations of reports of one group, shape (t, n)."""
    rows = np.empty((mechanism.rows, len(codes)), dtype=np.uint64)
    masks = mechanism.masks[codes["group"]]
    for i, row in enumerate(mechanism.each_row(codes["seed"])):
        bit = codes["bucket"] >> np.uint8(i) & np.uint8(1)
        rows[i] = (row & masks) << np.uint64(1) | bit
    return rows


def count_supports(mechanism: PrefixHashing, codes: Codes, numbers: Numbers) -> SupportCounts:
    """Count the reports that see each word, and those that support it."""
    words = mechanism.spelling.words(numbers)
    seeing, supporting = np.zeros((2, len(words)), dtype=np.int64)
    for group, length in enumerate(mechanism.lengths):
        (seen,) = np.nonzero([sees(mechanism, group, len(word)) for word in words])
        own = codes[codes["group"] == group]
        seeing[seen] += len(own)
        for start in range(0, len(own) if seen.size else 0, _BLOCK):
            rows = equations(mechanism, own[start : start + _BLOCK])
            supporting[seen] += _solved(rows, numbers[seen], length)
    return SupportCounts(seeing, supporting)


def _solved(rows: Numbers, numbers: Numbers, length: int) -> NDArray[np.int64]:
    """Return how many reports have all their equations, shape (t, n), solved by each word.

    The bits of 64 reports at one place are one integer, so that a word's parities are a sum modulo
    two of those integers. Words in the order of their letters share the sums of what they begin
    with.
    """
    by_place = _transposed(rows, 1 + BITS * length)
    counts = np.zeros(len(numbers), dtype=np.int64)
    letters: dict[tuple[int, int], Numbers] = {}
    shift = np.uint64(BITS) * np.arange(length, dtype=np.uint64)
    spelled = (numbers[:, np.newaxis] >> shift & np.uint64(MOST_LETTERS)).tolist()
    even: list[Numbers] = [~by_place[0]]
    path: list[int] = []
    for index in sorted(range(len(spelled)), key=spelled.__getitem__):
        word = spelled[index]
        shared = 0
        while shared < len(path) and path[shared] == word[shared]:
            shared += 1
        del even[shared + 1 :]
        path = [letter for letter in word if letter]
        for at, letter in enumerate(path[shared:], shared):
            own = letters.get((at, letter))
            if own is None:
                places = [1 + BITS * at + bit for bit in range(BITS) if letter >> bit & 1]
                own = letters[at, letter] = np.bitwise_xor.reduce(by_place[places])
            even.append(even[-1] ^ own)
        counts[index] = bit_counts(np.bitwise_and.reduce(even[-1])).sum(dtype=np.int64)
    counts -= -rows.shape[1] % 64  # behind the last report all is even
    return counts


def _transposed(rows: Numbers, places: int) -> Numbers:
    """Return the lowest bits of the rows, shape (t, n), by place: (places, t, ceil(n / 64))."""
    t, n = rows.shape
    octets = rows.astype("<u8", copy=False).view(np.uint8).reshape(t, n, 8)
    bits = np.unpackbits(octets, axis=2, bitorder="little", count=places).transpose(2, 0, 1)
    packed = np.zeros((places, t, 8 * -(-n // 64)), dtype=np.uint8)
    packed[:, :, : -(-n // 8)] = np.packbits(np.ascontiguousarray(bits), axis=2, bitorder="little")
    return packed.view("<u8").astype(np.uint64, copy=False)
