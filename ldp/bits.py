"""Counting the set bits of packed rows, column by column."""

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 20
"""Bytes of packed rows added together: what fits a core's cache."""

_FEW = 64
"""Rows from which adding packed bits beats unpacking them."""


def column_sums(rows: NDArray[np.uint8], columns: int) -> NDArray[np.int64]:
    """Return how many of the rows, shape (n, ceil(columns / 8)), have each bit set.

    Bit v of a row is bit v % 8 of its byte v // 8; the sums have shape (columns,).
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
