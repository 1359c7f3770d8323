"""Which rows of a batch have a report in a column, as `Column.present` says it on the wire.

One bit for each row, the first row in the lowest bit of the first byte; the bits after the last
row are 0. No bytes at all mean that every row has a report.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp import InvalidInput


def pack(present: ArrayLike) -> bytes:
    """Return the bytes that say which rows are present: one truth value for each row."""
    bits = np.asarray(present, dtype=bool)
    return b"" if bits.all() else np.packbits(bits, bitorder="little").tobytes()


def unpack(data: bytes, rows: int) -> NDArray[np.bool_]:
    """Return for each row whether it is present.

    Raises `InvalidInput`, before anything of `rows` entries is made, where there are more or fewer
    bytes than `rows` take; where a bit lies beyond the last row; and where no row is present.
    Without bytes all rows are present, and the caller has to know that `rows` is a number to trust.
    """
    if not data:
        return np.ones(rows, dtype=bool)
    width = -(-rows // 8)
    if len(data) != width:
        raise InvalidInput(f"{rows} rows take {width} bytes of presence bits, got {len(data)}")
    bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
    if bits[rows:].any():
        raise InvalidInput(f"a presence bit lies beyond row {rows - 1}")
    if not bits.any():
        raise InvalidInput("no row is present")
    return bits[:rows].view(np.bool_)
