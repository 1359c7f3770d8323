"""Codes that are subsets of a fixed size: as a mask or as indices, whichever is shorter."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.mechanism import Codes, Mechanism
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.tools.bits import check_unused_bits, column_sums, row_bytes

BIT_COUNT = np.array([octet.bit_count() for octet in range(256)], dtype=np.uint16)
"""The number of ones of each byte."""


class SubsetCodes(Mechanism):
    """A mechanism whose code is a subset of `size` of 0..tally_size-1; its tally counts members.

    A code is a mask of ceil(tally_size / 8) bytes, bit v being bit v % 8 of byte v // 8, or the
    `size` sorted indices of 1 or 2 bytes where that is shorter.
    """

    size: int
    noun: ClassVar[str] = "categories"
    """What a subset is of, in errors."""

    @property
    def _mask_bytes(self) -> int:
        return row_bytes(self.tally_size)

    @property
    def _index_dtype(self) -> np.dtype[Any]:
        return np.dtype("u1" if self.tally_size <= 1 << 8 else "<u2")

    @property
    def _masked(self) -> bool:
        return self._mask_bytes <= self.size * self._index_dtype.itemsize

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return np.dtype("u1") if self._masked else self._index_dtype

    @property
    def code_shape(self) -> tuple[int, ...]:
        return (self._mask_bytes if self._masked else self.size,)

    def _indices(self, masks: NDArray[np.uint8]) -> NDArray[np.intp]:
        """Return the members of masks, shape (n, size), each row in increasing order."""
        bits = np.unpackbits(masks, axis=1, count=self.tally_size, bitorder="little")
        return bits.nonzero()[1].reshape(-1, self.size)

    def _check_codes(self, codes: Codes) -> None:
        if not len(codes):
            return
        if self._masked:
            check_unused_bits(self.name, codes, self.tally_size)
            sizes = BIT_COUNT[codes].sum(axis=1, dtype=np.int64)
            if (sizes != self.size).any():
                wrong = sizes[sizes != self.size][0]
                raise InvalidInput(f"a {self.name} code has {self.size} {self.noun}, got {wrong}")
            return
        if codes.max() >= self.tally_size:
            raise InvalidInput(
                f"a {self.name} index must be below {self.tally_size}, got {codes.max()}"
            )
        if (codes[:, 1:] <= codes[:, :-1]).any():
            raise InvalidInput(f"a {self.name} code's indices must be in increasing order")

    def tally(self, codes: ArrayLike | Sequence[Any]) -> Tally:
        """Count the codes without checking the masks' sizes, which takes longer than counting:
        `decode` has done it."""
        return self._counted(self._as_codes(codes)) if self._masked else super().tally(codes)

    def _counted(self, codes: Codes) -> Tally:
        if self._masked:
            return Tally(len(codes), column_sums(codes, self.tally_size))
        return Tally(len(codes), np.bincount(codes.ravel(), minlength=self.tally_size))

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        """Tell which codes have the member, shape (n,)."""
        if self._masked:
            return codes[:, value >> 3] >> (value & 7) & 1
        supported: NDArray[Any] = (codes == value).any(axis=1)
        return supported

    def each_counted(self, codes: Codes) -> NDArray[np.int64]:
        if self._masked:
            bits = np.unpackbits(codes, axis=1, count=self.tally_size, bitorder="little")
            return bits.astype(np.int64)
        found = np.zeros((len(codes), self.tally_size), dtype=np.int64)
        indices = codes.reshape(len(codes), int(np.prod(self.code_shape, dtype=int)))
        np.put_along_axis(found, indices.astype(np.intp), 1, axis=1)
        return found
