"""What mechanisms of sets have in common: the values that they take, and their estimate."""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS
from ldp.core.mechanism import Codes, Supporting
from ldp.errors import InvalidInput

MAX_MEMBERS = 1 << 16
"""The most items of a set's domain, with the dummies that fill a set up: a tally counts each."""

NONE = -1
"""In an array of sets: no item."""


class SetMechanism(Supporting):
    """A local randomizer of sets of the items 0..items-1, whose estimate is each item's share.

    A value is a collection of different items, at most `largest`; in a batch it may be a row of an
    array of integers instead, with -1 where there is no item. An estimate has one parameter for
    each item: the share of the people whose set has it.
    """

    items: int

    @property
    @abstractmethod
    def largest(self) -> int:
        """The number of items of the largest set."""

    @property
    def parameters(self) -> int:
        return self.items

    def evidence(self, codes: Codes, value: Any) -> NDArray[np.int64]:
        """Return how many items of a set each code supports, shape (n,)."""
        found = np.zeros(len(codes), dtype=np.int64)
        for item in self._check_set(value):
            found += np.asarray(self._supported(codes, item), dtype=np.int64)
        return found

    @abstractmethod
    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        """Tell which codes support the item, shape (n,)."""

    def sets(self) -> Iterator[tuple[int, ...]]:
        """Yield every value, the smallest sets first: the inputs of `channel`, in order."""
        for size in range(self.largest + 1):
            yield from combinations(range(self.items), size)

    def _check_enumerable(self, inputs: int, outputs: int) -> None:
        if outputs > MAX_OUTPUTS or inputs * outputs > 1 << 20:
            raise InvalidInput(
                f"a channel of {inputs} sets and {outputs} codes is too large to enumerate"
            )

    def _check_item(self, item: object) -> int:
        if isinstance(item, bool) or not isinstance(item, int | np.integer):
            raise InvalidInput(f"{self.name}: an item is an integer, got {item!r}")
        if not 0 <= item < self.items:
            raise InvalidInput(f"{self.name}: an item must lie in 0..{self.items - 1}, got {item}")
        return int(item)

    def _check_set(self, value: object) -> list[int]:
        """Return the items of a set in increasing order; raise `InvalidInput` for another value."""
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Collection):
            raise InvalidInput(f"{self.name}: a set is a collection of items, got {value!r}")
        items = sorted(self._check_item(item) for item in value)
        if len(set(items)) < len(items):
            raise InvalidInput(f"{self.name}: the items of a set must differ, got {items}")
        if len(items) > self.largest:
            raise InvalidInput(
                f"{self.name}: a set has at most {self.largest} items, got {len(items)}"
            )
        return items

    def _check_sets(self, values: ArrayLike | Sequence[Any]) -> NDArray[np.int64]:
        """Return sets as rows of items in increasing order, then -1: shape (n, w), w <= largest."""
        if isinstance(values, np.ndarray) and values.ndim == 2:
            rows = values
        else:
            if isinstance(values, str | bytes | Mapping) or not isinstance(values, Collection):
                raise InvalidInput(f"{self.name}: sets are a 1-d list of them, got {values!r}")
            each = [self._check_set(value) for value in values]
            width = max(map(len, each), default=0)
            padded = [[*items, *[NONE] * (width - len(items))] for items in each]
            rows = np.array(padded, dtype=np.int64).reshape(len(each), width)
        if rows.dtype.kind not in "iu":
            raise InvalidInput(f"{self.name}: items are integers, got {rows.dtype}")
        if rows.size and not NONE <= rows.min() <= rows.max() < self.items:
            raise InvalidInput(
                f"{self.name}: an item must lie in 0..{self.items - 1}, or be -1 for none, got "
                f"{rows.min()}..{rows.max()}"
            )
        ordered = np.sort(np.where(rows < 0, self.items, rows).astype(np.int64), axis=1)
        if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] < self.items)).any():
            raise InvalidInput(f"{self.name}: the items of a set must differ")
        if ordered.shape[1] > self.largest:
            if (ordered[:, self.largest :] < self.items).any():
                raise InvalidInput(f"{self.name}: a set has at most {self.largest} items")
            ordered = ordered[:, : self.largest]
        ordered[ordered == self.items] = NONE
        return ordered
