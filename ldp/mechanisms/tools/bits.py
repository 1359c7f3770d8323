"""Rows of packed bits: bit v of a row is bit v % 8 of its byte v // 8."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.core.mechanism import Categorical, Codes
from ldp.core.tally import Tally
from ldp.errors import InvalidInput

_BLOCK = 1 << 20
"""Bytes of packed rows per block: as many as fit a core's cache."""

_FEW = 64
"""Rows from which adding packed bits is faster than unpacking them."""


def row_bytes(columns: int) -> int:
    """Return the number of bytes of a packed row."""
    return -(-columns // 8)


def toss_rows(coins: Coins, threshold: int, n: int, columns: int) -> NDArray[np.uint8]:
    """Return rows, shape (n, row_bytes(columns)), whose bits are 1 with threshold / 2**64."""
    width = row_bytes(columns)
    rows = coins.bernoulli_bytes(threshold, n * width).reshape(n, width)
    rows[:, -1] &= _used(columns)
    return rows


def toss_row(coins: Coins, threshold: int, columns: int) -> NDArray[np.uint8]:
    """Return one row, shape (row_bytes(columns),), as `toss_rows` does, for one report."""
    row = coins.toss(threshold, row_bytes(columns))
    row[-1] &= _used(columns)
    return row


def set_bit(row: NDArray[np.uint8], column: int, bit: bool) -> None:
    """Set one bit of a row."""
    mask = 1 << (column & 7)
    byte = int(row[column >> 3])
    row[column >> 3] = byte | mask if bit else byte & ~mask


def single_bits(
    columns: NDArray[np.integer[Any]],
) -> tuple[NDArray[np.integer[Any]], NDArray[np.uint8]]:
    """Return each column's byte index in a row, and its bit's value in that byte."""
    return columns >> 3, np.left_shift(1, columns & 7).astype(np.uint8)


def parity(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return 1 where a word has an odd number of bits set, else 0, of the words' shape."""
    odd = bit_counts(words)
    odd &= np.uint8(1)
    return odd


def bit_counts(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return how many bits of each word are set, of the words' shape."""
    if hasattr(np, "bitwise_count"):
        return np.bitwise_count(words)
    sums = words  # numpy 1 does not count bits: add neighbours of 1, 2, 4, ... bits
    for width in (1, 2, 4, 8, 16, 32):
        mask = np.uint64((1 << 64) // ((1 << width) + 1))
        sums = (sums & mask) + (sums >> np.uint64(width) & mask)
    return sums.astype(np.uint8)


def check_unused_bits(name: str, rows: NDArray[np.uint8], columns: int) -> None:
    """Raise `InvalidInput` where a row has a bit beyond its columns."""
    if (rows[:, -1] & ~_used(columns)).any():
        raise InvalidInput(f"a {name} code has a bit beyond its {columns}")


def _used(columns: int) -> np.uint8:
    """Return the mask of the bits in use of a row's last byte."""
    return np.uint8(0xFF >> (-columns % 8))


def column_sums(rows: NDArray[np.uint8], columns: int) -> NDArray[np.int64]:
    """Return how many of the rows, shape (n, ceil(columns / 8)), have each bit set.

    The sums have shape (columns,).
    Full adders work on the packed bits: of three rows they leave one of sums and one of
    carries, which weigh twice as much, so that only a few rows are ever unpacked (Harley and
    Seal's population count, by position).
    """
    counts = np.zeros(columns, dtype=np.int64)
    step = max(_FEW, _BLOCK // rows.shape[1])
    for start in range(0, len(rows), step):
        pending, weight = rows[start : start + step], 1
        while len(pending):
            carries = [pending[:0]]
            while len(pending) >= _FEW:
                a, b, c = pending[: len(pending) // 3 * 3].reshape(3, -1, rows.shape[1])
                half = a ^ b
                carries.append(a & b | half & c)
                pending = np.concatenate([half ^ c, pending[len(pending) // 3 * 3 :]])
            bits = np.unpackbits(pending, axis=1, count=columns, bitorder="little")
            counts += weight * bits.sum(axis=0, dtype=np.int64)
            pending, weight = np.concatenate(carries), 2 * weight
    return counts


class PackedBits(Categorical):
    """A mechanism whose code is a row of k bits, one for each category; its tally counts them."""

    @property
    def tally_size(self) -> int:
        return self.k

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return np.dtype("u1")

    @property
    def code_shape(self) -> tuple[int, ...]:
        return (row_bytes(self.k),)

    def _counted(self, codes: Codes) -> Tally:
        return Tally(len(codes), column_sums(codes, self.k))

    def each_counted(self, codes: Codes) -> NDArray[np.int64]:
        bits = np.unpackbits(codes, axis=1, count=self.k, bitorder="little")
        return bits.astype(np.int64)
