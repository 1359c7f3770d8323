"""Tallies: the sufficient statistic of a cohort, as integer counts that add up."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from ldp.core import tally_bytes
from ldp.errors import InvalidInput

_Key = TypeVar("_Key")


@dataclass(frozen=True, eq=False)
class Tally:
    """The number of reports `n` and integer `counts` >= 0, shape (m,), of one cohort.

    Tallies form a commutative monoid under `+`: the sum over two batches is the tally of
    both together, in any order. The counts are read-only, and zero where n is. Raises
    `InvalidInput` for counts that no reports can have.
    """

    n: int
    counts: NDArray[np.int64]

    N_BYTES: ClassVar[int] = 7
    """The first bytes of `to_bytes`, which have n."""

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not isinstance(self.n, int | np.integer) or self.n < 0:
            raise InvalidInput(f"a tally cannot hold {self.n} reports")
        given = np.asarray(self.counts)
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise InvalidInput(
                f"counts are a 1-d integer array, got {given.dtype} of shape {given.shape}"
            )
        counts = given.astype(np.int64)
        if counts.size and counts.min() < 0:  # of unsigned ones too, beyond 2**63
            raise InvalidInput(f"counts must lie in 0..2**63 - 1, got {given[counts < 0][0]}")
        if not self.n and counts.any():
            raise InvalidInput(f"no reports cannot have counts, got {counts.sum()} in all")
        object.__setattr__(self, "n", int(self.n))
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)

    @classmethod
    def empty(cls, size: int) -> "Tally":
        """Return the tally of no reports, with `size` counts."""
        return cls(0, np.zeros(size, dtype=np.int64))

    def __add__(self, other: "Tally") -> "Tally":
        if self.counts.shape != other.counts.shape:
            raise InvalidInput(
                f"tallies of {self.counts.size} and {other.counts.size} counts do not merge"
            )
        return Tally(self.n + other.n, self.counts + other.counts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return self.n == other.n and np.array_equal(self.counts, other.counts)

    def __hash__(self) -> int:
        return hash((self.n, self.counts.tobytes()))

    def to_bytes(self) -> bytes:
        """Return the tally in as few bytes as `tally_bytes` has: a few for each count above zero.

        At most 8 for each count, and 8 for n. Raises `OverflowError` for 2**56 reports or more.
        """
        return tally_bytes.encode(self.n, self.counts)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tally":
        """Build a tally from the bytes of `to_bytes`; raise `InvalidInput` for any other bytes."""
        return cls(*tally_bytes.decode(data))

    @classmethod
    def n_of(cls, data: bytes) -> int:
        """Return the number of reports in the bytes of `to_bytes`, or in its first `N_BYTES`."""
        return int.from_bytes(data[: cls.N_BYTES], "little")


def add_up(sums: dict[_Key, Tally], more: Iterable[tuple[_Key, Tally]]) -> None:
    """Add each tally to the sum of its key, in place; a new key begins a sum."""
    for key, tally in more:
        sums[key] = sums[key] + tally if key in sums else tally
