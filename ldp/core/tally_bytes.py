"""Bytes of tallies: all counts, or only those above zero, whichever takes fewer bytes.

The first 8 bytes, little-endian as all numbers here, are the number of reports in the lower 56 bits
and the layout in the upper 8. The lower hexadecimal digit of the layout is the width of a count in
bytes. The upper digit is 0 where all counts follow; layout 0 is that with counts of 8 bytes, the
only layout of earlier versions. Otherwise the upper digit is the width of a gap, and there follow
- how many counts the tally has, in 4 bytes;
- for each count above zero the number of zeros between it and the one before it;
- each count above zero less one, or nothing where the width is 0: then all are one.
"""

import numpy as np
from numpy.typing import NDArray

from ldp.errors import InvalidInput

Counts = NDArray[np.int64]

_MOST_COUNTS = 1 << 24
"""Counts of the largest tally of any mechanism: bytes must not claim more."""

_WIDTHS = (1, 2, 4, 8)


def encode(n: int, counts: Counts) -> bytes:
    """Return the bytes of `n` reports with these counts."""
    places = np.flatnonzero(counts)
    most = int(counts.max(initial=0))
    dense = max(1, _width(most))
    gaps = np.diff(places, prepend=-1) - 1
    gap, less = max(1, _width(int(gaps.max(initial=0)))), _width(max(0, most - 1))
    if 4 + places.size * (gap + less) < dense * counts.size:
        body = counts.size.to_bytes(4, "little") + _packed(gaps, gap)
        return _head(n, gap << 4 | less) + body + _packed(counts[places] - 1, less)
    return _head(n, dense % 8) + _packed(counts, dense)


def decode(data: bytes) -> tuple[int, Counts]:
    """Return the number of reports and the counts of `encode`; raise `InvalidInput` otherwise."""
    if len(data) < 8:
        raise _refused(data)
    n, layout = int.from_bytes(data[:7], "little"), data[7]
    gap, width = layout >> 4, layout & 15
    if not gap:
        counts = _unpacked(data, 8, None, width or 8)
        if not counts.size:
            raise _refused(data)
        return n, counts
    if gap not in (1, 2, 4):
        raise _refused(data)
    size, taken = int.from_bytes(data[8:12], "little"), gap + width
    above, rest = divmod(len(data) - 12, taken)
    if rest or above < 0 or not above <= size <= _MOST_COUNTS:
        raise _refused(data)
    gaps = _unpacked(data, 12, above, gap)
    if gaps.sum() + above > size:
        raise _refused(data)
    counts = np.zeros(size, dtype=np.int64)
    less = _unpacked(data, 12 + above * gap, above, width) if width else 0
    counts[np.cumsum(gaps + 1) - 1] = less + 1
    return n, counts


def _width(most: int) -> int:
    """Return the bytes of numbers up to `most`, 0 where that is 0."""
    return next(width for width in (0, *_WIDTHS) if most < 1 << 8 * width)


def _head(n: int, layout: int) -> bytes:
    return n.to_bytes(7, "little") + bytes([layout])


def _packed(numbers: Counts, width: int) -> bytes:
    return numbers.astype(f"<u{width}").tobytes() if width else b""


def _unpacked(data: bytes, begin: int, count: int | None, width: int) -> Counts:
    """Return `count` numbers, or all that follow; raise where there are other bytes, too."""
    length = len(data) - begin if count is None else count * width
    if width not in _WIDTHS or length % width:
        raise _refused(data)
    numbers = np.frombuffer(data[begin : begin + length], dtype=f"<u{width}").astype(np.int64)
    if width == 8 and numbers.size and numbers.min() < 0:
        raise _refused(data)
    return numbers


def _refused(data: bytes) -> InvalidInput:
    return InvalidInput(f"these {len(data)} bytes are no tally: they begin with {data[:12].hex()}")
