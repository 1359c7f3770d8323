"""Answers that are sets of items."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

from hearsay.plans.kinds.kind import Kind
from hearsay.plans.kinds.names import check_at_most, check_items, check_names, find, listed, some
from hearsay.v1 import survey_pb2
from ldp import Coins, InvalidInput, Mechanism

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


@dataclass(frozen=True)
class SetOf(Kind):
    """An answer that is a set of some of `values`: of none up to `at_most` of them.

    There are two values at least, all different, none empty. `at_most` 0 stands for all of them.
    With `clamp` a set of more items counts as `at_most` of them, drawn uniformly; without, it is
    outside the domain. An item that is given twice counts once.
    Raises `InvalidInput` for other values, and unless at_most is at most their number.
    """

    name: ClassVar[str] = "set"
    field: ClassVar[str] = "set"

    item: ClassVar[str] = "item"

    values: tuple[str, ...]
    at_most: int = 0
    clamp: bool = False

    @classmethod
    def of(cls, given: survey_pb2.Set) -> Self:
        """Return the kind that a survey describes; raise `InvalidInput` where it is none."""
        return cls(tuple(given.values), given.at_most, given.clamp)

    def __post_init__(self) -> None:
        check_names("values", self.values, 2)
        check_at_most(self.at_most, len(self.values), "values")

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the shares that are estimated: one of each item."""
        return self.values

    @property
    def most(self) -> int:
        """The number of items of the largest set."""
        return self.at_most or len(self.values)

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(str(size) for size in range(self.most + 1))

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {value: place for place, value in enumerate(self.values)}

    def encode(self, answer: object) -> tuple[int, ...]:
        """Return the places of the items of `answer`, a collection of values, in increasing order.

        Raises `InvalidInput` for anything else: a text is no collection of values here.
        """
        if isinstance(answer, str | bytes | bytearray | memoryview | Mapping) or not isinstance(
            answer, Collection
        ):
            raise InvalidInput(f"must be a list of some of {self}, got a {type(answer).__name__}")
        found = set()
        for item in answer:
            place = find(self._places, item)
            if place is None:
                raise InvalidInput(
                    f"must have items of {self} alone, got another {type(item).__name__}"
                )
            found.add(place)
        if len(found) > self.most and not self.clamp:
            raise InvalidInput(f"must have at most {self.most} items, got more")
        return tuple(sorted(found))

    def anything(self, coins: Coins) -> tuple[int, ...]:
        """Return a set of a size drawn uniformly, of items drawn uniformly, as `encode` does."""
        size = coins.below(self.most + 1)
        return tuple(coins.distinct(len(self.values), size).tolist())

    def settled(self, value: tuple[int, ...], coins: Coins) -> tuple[int, ...]:
        """Return a set as a mechanism takes it: `most` items of more, drawn uniformly."""
        return some(value, self.most, coins)

    def __str__(self) -> str:
        return listed(self.values)

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The base class of mechanisms that randomise sets."""
        from ldp.mechanisms import SetMechanism

        return SetMechanism

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for sets of these values."""
        check_items(mechanism, len(self.values), self.most)
