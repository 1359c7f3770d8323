"""Exact coins from the operating system's generator.

Every randomised decision of a mechanism is a comparison of uniform 64-bit integers with an
integer threshold: no floating point stands between a value and its report (Mironov, "On
significance of the least significant bits for differential privacy", CCS 2012).
"""

import os

import numpy as np
from numpy.typing import NDArray

from ldp.errors import InvalidInput
from ldp.exact import ONE

_SPARSE = 4  # once fewer than 1/4 of the words hold an undecided coin, handle only those


class Coins:
    """Draw exact coins from `os.urandom`.

    Nothing is buffered between calls, so a forked child can never repeat its parent's coins,
    and the object is safe to share between threads.
    """

    def _bytes(self, count: int) -> bytes:
        return os.urandom(count)

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return `n` independent uniform 64-bit words, shape (n,)."""
        return np.frombuffer(self._bytes(8 * n), dtype="<u8").astype(np.uint64, copy=False)

    def bernoulli(self, threshold: int) -> bool:
        """Return True with probability exactly threshold / 2**64, 0 <= threshold <= 2**64."""
        return int.from_bytes(self._bytes(8), "little") < _checked_threshold(threshold)

    def bernoulli_words(self, threshold: int, n: int) -> NDArray[np.uint64]:
        """Return 64 * n coins packed in words, shape (n,); each is 1 with threshold / 2**64.

        All coins compare their own uniform 64-bit integer with the threshold, most significant
        bit first; a coin is decided at the first bit that differs, so about ten random words
        serve 64 coins (Knuth and Yao 1976, bit-sliced).
        """
        threshold = _checked_threshold(threshold)
        full = np.uint64(ONE - 1)
        if threshold == ONE:
            return np.full(n, full)
        heads = np.zeros(n, dtype=np.uint64)
        undecided = np.full(n, full)
        where: NDArray[np.intp] | None = None  # the words of `heads` that `undecided` is about
        for position in range(63, -1, -1):
            if not threshold & ((1 << (position + 1)) - 1):
                break  # only zeros are left in the threshold: an undecided coin is not below it
            flips = self.words(undecided.size)
            if threshold >> position & 1:
                decided = undecided & ~flips
                if where is None:
                    heads |= decided
                else:
                    heads[where] |= decided
                undecided = undecided & flips
            else:
                undecided = undecided & ~flips
            live = np.flatnonzero(undecided)
            if not live.size:
                break
            if live.size * _SPARSE < undecided.size:
                where = live if where is None else where[live]
                undecided = undecided[live]
        return heads

    def bernoulli_many(self, threshold: int, n: int) -> NDArray[np.bool_]:
        """Return `n` independent coins, shape (n,), each True with threshold / 2**64."""
        packed = self.bernoulli_words(threshold, -(-n // 64)).astype("<u8", copy=False)
        return np.unpackbits(packed.view(np.uint8), count=n, bitorder="little").view(np.bool_)

    def below(self, bound: int) -> int:
        """Return an integer uniform on 0..bound-1, by rejection; 1 <= bound <= 2**64."""
        if not 1 <= bound <= ONE:
            raise InvalidInput(f"bound must lie in 1..2**64, got {bound}")
        limit = ONE - ONE % bound
        while True:
            word = int.from_bytes(self._bytes(8), "little")
            if word < limit:
                return word % bound

    def below_many(self, bound: int, n: int) -> NDArray[np.uint32]:
        """Return `n` integers uniform on 0..bound-1, shape (n,); 1 <= bound <= 2**32.

        Source: Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019.
        """
        if not 1 <= bound <= 1 << 32:
            raise InvalidInput(f"bound must lie in 1..2**32, got {bound}")
        result = np.empty(n, dtype=np.uint32)
        rejected_below = np.uint64((1 << 32) % bound)
        pending: NDArray[np.intp] | slice = slice(None)
        count = n
        while count:
            draws = np.frombuffer(self._bytes(4 * count), dtype="<u4").astype(np.uint64)
            products = draws * np.uint64(bound)
            result[pending] = products >> np.uint64(32)
            rejected = np.flatnonzero((products & np.uint64(0xFFFFFFFF)) < rejected_below)
            pending = rejected if isinstance(pending, slice) else pending[rejected]
            count = rejected.size
        return result

    def permutation(self, n: int) -> NDArray[np.intp]:
        """Return a uniform random order of 0..n-1, shape (n,)."""
        while True:
            words = self.words(n)
            order = np.argsort(words)
            ordered = words[order]
            if (ordered[1:] != ordered[:-1]).all():  # a tie would favour the order they came in
                return order


def _checked_threshold(threshold: int) -> int:
    if not 0 <= threshold <= ONE:
        raise InvalidInput(f"threshold must lie in 0..2**64, got {threshold}")
    return threshold
