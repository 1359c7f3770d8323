"""The continuations of a prefix that prefix-hashed reports support best.

With the equations e_1, ..., e_t of `ldp.estimating.words` a report supports the word x with
2**-t sum_S (-1)**parity(e_S AND (2 x + 1)), e_S being the sum modulo two of the equations in S. So
the supports of all 2**b continuations of a prefix are one Walsh-Hadamard transform of signs, each
at the place that the upper bits of an e_S name.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ldp.core.mechanism import Codes
from ldp.estimating.words import equations, weight_of
from ldp.mechanisms.strings.prefix_hashing import PrefixHashing
from ldp.mechanisms.strings.spelling import BITS, Numbers, Spelling
from ldp.mechanisms.tools.bits import bit_counts, parity

Floats = NDArray[np.float64]

BEAM = 60
"""The prefixes of a step that the next one continues."""

_WORDS = 1000
"""The words of a step that all groups which see them are asked about."""

_LEAST = 1.5
"""The standard errors above zero from which a word or prefix counts."""

_ENTRIES = 1 << 23
"""Sums of equations that are sorted together."""

_BLOCK = 1 << 16
"""Sums whose signs are taken together: a multiple of 64, and as many as fit a core's cache."""

_AT_ONCE = 20
"""Prefixes whose continuations are counted together: up to 2**20 numbers each."""

_SIDE = 1 << BITS
"""The Walsh-Hadamard transform takes one letter of its length at a time."""


def continuations(
    spelling: Spelling, before: int, length: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Tell which continuations end a word, and which are prefixes of longer ones: (2**b,) each."""
    letters = length - before
    every = np.arange(1 << BITS * letters, dtype=np.uint64)
    possible = ~Spelling(spelling.alphabet, letters).mistaken(every)
    possible[0] = before > 0
    if length == spelling.longest:
        return possible, np.zeros_like(possible)
    full = every >> np.uint64(BITS * (letters - 1)) > 0
    return possible & ~full, possible & full


def how_many(spelling: Spelling, before: int, length: int) -> tuple[int, int]:
    """Return the number of continuations that end a word, and of those that do not."""
    letters, last = len(spelling.alphabet), length == spelling.longest
    steps = length - before
    ended = sum(letters**step for step in range(before == 0, steps + last))
    return ended, 0 if last else letters**steps


def search(
    spelling: Spelling,
    seen: Sequence[tuple[PrefixHashing, Codes]],
    before: int,
    length: int,
    prefixes: Numbers,
) -> tuple[Numbers, Numbers]:
    """Return the words and the prefixes of longer ones that the reports of a step support best."""
    ended, longer = continuations(spelling, before, length)
    words, kept = _Best(_WORDS), _Best(BEAM)
    for start in range(0, len(prefixes), _AT_ONCE):
        some = prefixes[start : start + _AT_ONCE]
        for prefix, scores in zip(some, _scores(seen, before, length, some), strict=True):
            for best, which in ((words, ended), (kept, longer)):
                (places,) = np.nonzero(which & (scores > best.least))
                numbers = prefix | places.astype(np.uint64) << np.uint64(BITS * before)
                best.add(numbers, scores[places])
    return words.numbers, kept.numbers


class _Best:
    """The best of the words or prefixes that were added, at most so many."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.least = _LEAST
        self.numbers, self._scores = np.zeros(0, dtype=np.uint64), np.zeros(0)

    def add(self, numbers: Numbers, scores: Floats) -> None:
        self.numbers = np.concatenate([self.numbers, numbers])
        self._scores = np.concatenate([self._scores, scores])
        if len(self.numbers) > self.most:
            best = np.argpartition(-self._scores, self.most - 1)[: self.most]
            self.numbers, self._scores = self.numbers[best], self._scores[best]
            self.least = max(_LEAST, float(self._scores.min()))


def _scores(
    seen: Sequence[tuple[PrefixHashing, Codes]], before: int, length: int, prefixes: Numbers
) -> Sequence[Floats]:
    """Return by how many standard errors each continuation has more supports than if nobody had
    given it, shape (prefixes, 2**b)."""
    size = 1 << BITS * (length - before)
    total = np.zeros((len(prefixes), size), dtype=np.float32)
    variance = 0.0
    for mechanism, codes in seen:
        q, weight = 1 / mechanism.buckets, weight_of(mechanism)
        variance += weight**2 * len(codes) * q * (1 - q)
        step = _ENTRIES // mechanism.buckets
        for start in range(0, len(codes), step):
            _add_signs(
                total,
                weight * q,
                equations(mechanism, codes[start : start + step]),
                before,
                prefixes,
            )
    error = max(np.sqrt(variance), 1e-9)
    return [walsh_hadamard(row) / error for row in total]


def _add_signs(
    total: NDArray[np.float32], weight: float, rows: Numbers, before: int, prefixes: Numbers
) -> None:
    """Add `weight` times the signs of all sums of equations, at the place of their continuation.

    The sums are sorted by it, once for all prefixes.
    """
    sums = np.zeros((1, rows.shape[1]), dtype=np.uint64)
    for row in rows:
        sums = np.concatenate([sums, sums ^ row])
    ordered = np.sort(sums[1:], axis=None)
    places = (ordered >> np.uint64(1 + BITS * before)).astype(np.intp)
    counts = np.bincount(places, minlength=total.shape[1])
    words, bits = np.divmod(counts.cumsum(), 64)
    below = (np.uint64(1) << bits.astype(np.uint64)) - np.uint64(1)
    odd = np.zeros(8 * (len(ordered) // 64 + 1), dtype=np.uint8)  # a bit for each of the sums
    running = np.zeros(odd.size // 8 + 1, dtype=np.int32)
    for row, prefix in zip(total, prefixes, strict=True):
        key = prefix << np.uint64(1) | np.uint64(1)
        for start in range(0, len(ordered), _BLOCK):
            packed = np.packbits(parity(ordered[start : start + _BLOCK] & key), bitorder="little")
            odd[start // 8 : start // 8 + len(packed)] = packed
        in_words = odd.view("<u8").astype(np.uint64, copy=False)
        np.cumsum(bit_counts(in_words), out=running[1:])
        negative = running[words] + bit_counts(in_words[words] & below)
        row += np.float32(weight) * (counts - 2 * np.diff(negative, prepend=np.int32(0)))


def walsh_hadamard(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the product of the Hadamard matrix with the values, shape (32**m,)."""
    signs = np.array(
        [[1 - 2 * ((i & j).bit_count() & 1) for j in range(_SIDE)] for i in range(_SIDE)]
    )
    matrix = signs.astype(values.dtype)
    result = values
    for _ in range(round(np.log(len(values)) / np.log(_SIDE))):
        # The last letter's place becomes the first; after all of them the order is what it was.
        result = (matrix @ result.reshape(-1, _SIDE).T).ravel()
    return result
