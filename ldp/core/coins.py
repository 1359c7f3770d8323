"""Exact coins from the operating system's generator.

Every randomised decision of a mechanism is a comparison of uniform 64-bit integers with an
integer threshold: no floating point stands between a value and its report (Mironov, "On
significance of the least significant bits for differential privacy", CCS 2012).

The coins of one report are drawn by `bernoulli`, `words`, `toss`, `below` and `distinct`, which
take the bytes of one stream in an order that docs/wire-mechanisms.md fixes: from the same bytes
every client makes the same report. Bulk draws of many reports take theirs as is quickest.
"""

import os
from collections.abc import Callable
from functools import cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from ldp.core.exact import ONE
from ldp.errors import InvalidInput

_BULK = 1 << 11
"""Request size in bytes from which a fresh AES keystream is faster than `os.urandom`."""

_ROUNDS = 12
"""Leading bits that packed coins compare for 64 coins at a time. Each further bit halves the
coins that are still undecided; finding them can cost more than their remaining bits."""

_FEW = 1 << 8
"""Bytes of packed coins up to which Python's integers are faster than arrays."""

_SEVERAL = 8
"""Bounded integers up to which drawing each on its own is faster than arrays."""

_SPARSE = 64
"""Candidates for each member from which a subset is faster drawn as a set than as a mask."""

_BLOCK = 1 << 12
"""Words of coins tossed together: enough to be worth a key, few enough to stay in cache."""


class Coins:
    """Draw exact coins from the operating system's generator.

    Small requests are served by `os.urandom`. Each large one is the AES-256 keystream (counter
    mode, of the cryptography package where it is installed) of a fresh key from `os.urandom`.
    Nothing is kept between requests, neither key nor counter nor buffer, so a forked child
    cannot repeat its parent's coins, and threads may share the object.
    """

    def _bytes(self, count: int) -> bytes | memoryview:
        """Return `count` random bytes; every draw comes through here."""
        if count < _BULK or (keystream := _load_keystream()) is None:
            return os.urandom(count)
        drawn = np.empty(count, dtype=np.uint8).data
        keystream(os.urandom(32), drawn)
        return drawn

    def words(self, n: int) -> NDArray[np.uint64]:
        """Return `n` independent uniform 64-bit words, shape (n,)."""
        return np.frombuffer(self._bytes(8 * n), dtype="<u8").astype(np.uint64, copy=False)

    def bernoulli(self, threshold: int) -> bool:
        """Return True with probability exactly threshold / 2**64, 0 <= threshold <= 2**64."""
        return int.from_bytes(self._bytes(8), "little") < _checked_threshold(threshold)

    def bernoulli_bytes(self, threshold: int, n: int) -> NDArray[np.uint8]:
        """Return 8 * n coins packed in bytes, shape (n,); each is 1 with threshold / 2**64.

        The same coins as those of `toss`, for many reports: which bytes decide is not fixed.
        """
        threshold = _checked_threshold(threshold)
        if n <= _FEW:
            return self.toss(threshold, n)
        heads = np.zeros(-(-n // 8), dtype=np.uint64)
        if threshold == ONE:
            heads[:] = ONE - 1
        for start in range(0, heads.size if 0 < threshold < ONE else 0, _BLOCK):
            self._toss(threshold, heads[start : start + _BLOCK])
        return heads.astype("<u8", copy=False).view(np.uint8)[:n]

    def toss(self, threshold: int, n: int) -> NDArray[np.uint8]:
        """Return 8 * n coins packed in bytes, shape (n,), for one report.

        A coin is a uniform number that falls below threshold / 2**64, and is decided by the
        first bit in which the two differ (Knuth and Yao, "The complexity of nonuniform random
        number generation", 1976). The bits of all coins are compared together: each round draws
        n bytes, whose bits say which of the undecided numbers agree with the threshold's next bit.
        """
        threshold = _checked_threshold(threshold)
        if n > _FEW and 0 < threshold < ONE:
            return self._toss_wide(threshold, n)
        heads, undecided = 0, (1 << 8 * n) - 1
        if threshold == ONE:
            heads, undecided = undecided, 0
        while undecided and threshold:  # a number that agreed to the end is not below
            still = undecided & int.from_bytes(self._bytes(n), "little")
            if threshold >> 63:
                heads |= undecided ^ still
            undecided, threshold = still, threshold << 1 & ONE - 1
        return np.frombuffer(bytearray(heads.to_bytes(n, "little")), dtype=np.uint8)

    def _toss_wide(self, threshold: int, n: int) -> NDArray[np.uint8]:
        """Toss as `toss` does, from the same bytes, by arrays; quick for many."""
        heads, undecided = np.zeros(n, dtype=np.uint8), np.full(n, 0xFF, dtype=np.uint8)
        while threshold and undecided.any():
            still = undecided & np.frombuffer(self._bytes(n), dtype=np.uint8)
            if threshold >> 63:
                heads |= undecided ^ still
            undecided, threshold = still, threshold << 1 & ONE - 1
        return heads

    def _toss(self, threshold: int, heads: NDArray[np.uint64]) -> None:
        """Set each bit of `heads`, all zero, with probability threshold / 2**64 in (0, 1).

        The first bits are compared for 64 coins at a time, one word per bit; a coin that
        is still undecided then, one in 2**_ROUNDS, draws the rest of its own number.
        """
        trailing_zeros = (threshold & -threshold).bit_length() - 1
        rounds = min(_ROUNDS, 64 - trailing_zeros)
        undecided = np.full(heads.size, ONE - 1, dtype=np.uint64)
        # A bit of `agrees` says that a number's bit equals the threshold's: a fair coin.
        for i, agrees in enumerate(self.words(rounds * heads.size).reshape(rounds, -1)):
            if threshold >> 63 - i & 1:
                still = undecided & agrees
                heads |= undecided ^ still
                undecided = still
            else:
                undecided &= agrees
        rest = threshold << rounds & ONE - 1
        if not rest:
            return  # a number that agreed so far is not below the threshold
        live = np.flatnonzero(undecided)
        octets = undecided[live].astype("<u8", copy=False).view(np.uint8)
        open_bits = np.flatnonzero(np.unpackbits(octets, bitorder="little").view(np.bool_))
        below = self.words(open_bits.size) < np.uint64(rest)
        bits = np.zeros(64 * live.size, dtype=np.bool_)
        bits[open_bits[below]] = True
        heads[live] |= np.packbits(bits, bitorder="little").view("<u8")

    def bernoulli_many(self, threshold: int, n: int) -> NDArray[np.bool_]:
        """Return `n` independent coins, shape (n,), each True with threshold / 2**64."""
        packed = self.bernoulli_bytes(threshold, -(-n // 8))
        return np.unpackbits(packed, count=n, bitorder="little").view(np.bool_)

    def below(self, bound: int) -> int:
        """Return an integer uniform on 0..bound-1, by rejection; bound >= 1.

        A bound above 2**64 takes several words at once, the least significant first.
        """
        if bound < 1:
            raise InvalidInput(f"bound must be at least 1, got {bound}")
        size, range_ = 8, ONE
        if bound > ONE:
            size = 8 * -(-(bound - 1).bit_length() // 64)
            range_ = 1 << 8 * size
        limit = range_ - range_ % bound
        while True:
            word = int.from_bytes(self._bytes(size), "little")
            if word < limit:
                return word % bound

    def distinct(self, count: int, size: int) -> NDArray[np.intp]:
        """Return a uniform subset of 0..count-1, ascending, shape (size,).

        Raises `InvalidInput` unless 0 <= size <= count.
        Source: Floyd's sampling; Bentley and Floyd, "A sample of brilliance", CACM 30(9), 1987.
        """
        if not 0 <= size <= count:
            raise InvalidInput(f"size must lie in 0..{count}, got {size}")
        first = count - size
        drawn = self._below_each(range(first + 1, count + 1))
        if size * _SPARSE < count:
            chosen: set[int] = set()
            for last, index in enumerate(drawn, first):
                chosen.add(last if index in chosen else index)
            return np.array(sorted(chosen), dtype=np.intp)
        mask = bytearray(count)
        for last, index in enumerate(drawn, first):
            mask[last if mask[index] else index] = 1
        return np.flatnonzero(np.frombuffer(mask, dtype=np.bool_))

    def _below_each(self, bounds: range) -> list[int]:
        """Return `below` of each bound, from the same words, which are drawn together."""
        if len(bounds) <= _SEVERAL:
            return [self.below(bound) for bound in bounds]
        words = self.words(len(bounds))
        if int(words.max()) < ONE - bounds[-1]:  # then no bound rejects any
            each = np.arange(bounds.start, bounds.stop, dtype=np.uint64)
            drawn: list[int] = (words % each).tolist()
            return drawn
        stream = chain(words.tolist(), iter(lambda: int(self.words(1)[0]), None))
        return [next(w for w in stream if w < ONE - ONE % bound) % bound for bound in bounds]

    def below_many(self, bound: int, n: int) -> NDArray[np.uint32]:
        """Return `n` integers uniform on 0..bound-1, shape (n,); 1 <= bound <= 2**32.

        Source: Lemire, "Fast random integer generation in an interval", ACM TOMACS 29(1), 2019.
        """
        if not 1 <= bound <= 1 << 32:
            raise InvalidInput(f"bound must lie in 1..2**32, got {bound}")
        # The narrowest draw that rejects at most one in 16 is the cheapest.
        bits = next((b for b in (8, 16) if (1 << b) % bound <= 1 << b - 4), 32)
        narrow, wide = np.dtype(f"<u{bits // 8}"), np.dtype(f"<u{bits // 4}")
        rejected_below = (1 << bits) % bound
        result = np.empty(n, dtype=np.uint32)
        for start in range(0, n, 32 * _BLOCK):
            block = result[start : start + 32 * _BLOCK]
            products = np.frombuffer(self._bytes(block.size * bits // 8), narrow).astype(wide)
            products *= bound
            block[:] = products >> bits
            if rejected_below:
                rejected = np.flatnonzero(products.astype(narrow) < rejected_below)
                if rejected.size:
                    block[rejected] = self.below_many(bound, rejected.size)
        return result

    def permutation(self, n: int) -> NDArray[np.intp]:
        """Return a uniform random order of 0..n-1, shape (n,)."""
        while True:
            words = self.words(n)
            order = np.argsort(words)
            ordered = words[order]
            if (ordered[1:] != ordered[:-1]).all():  # a tie would favour the order they came in
                return order


_Keystream = Callable[[bytes, memoryview], None]
"""Overwrites the bytes of a buffer with a key's keystream: (key, buffer) -> None."""


@cache
def _load_keystream() -> _Keystream | None:
    """Return AES-256's keystream in counter mode, or None without the cryptography package.

    The package is loaded at the first bulk request: a process that never randomises in bulk
    does not pay its 20 ms.
    """
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    except ImportError:
        return None

    def keystream(key: bytes, out: memoryview) -> None:
        encryptor = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
        # The buffer's old bytes are encrypted, because reading zeros would cost more: any
        # plaintext that does not depend on the key will do.
        at, last = 0, len(out) - 15
        while at < last:
            # Some versions of the package want 15 more bytes of output than of input.
            at += encryptor.update_into(out[at:last], out[at:])
        out[at:] = encryptor.update(out[at:])

    return keystream


def _checked_threshold(threshold: int) -> int:
    if not 0 <= threshold <= ONE:
        raise InvalidInput(f"threshold must lie in 0..2**64, got {threshold}")
    return threshold
