"""Answers that rate some of several things."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

from hearsay.plans.kinds.kind import Kind
from hearsay.plans.kinds.names import (
    check_at_most,
    check_items,
    check_names,
    find,
    is_number,
    listed,
    some,
)
from hearsay.v1 import survey_pb2
from ldp import Coins, InvalidInput, Mechanism
from ldp.core.exact import ONE, floor_threshold

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


@dataclass(frozen=True)
class Ratings(Kind):
    """An answer that rates some of `keys`, from none up to `at_most`, each from `low` to `high`.

    There is one key at least; all are different, none is empty. `at_most` 0 stands for all of them.
    With `clamp`, of more ratings `at_most` count, drawn uniformly. A rating outside the scale is
    outside the domain either way.
    Raises `InvalidInput` for other keys, a scale that is none, and unless at_most is at most the
    number of keys.
    """

    name: ClassVar[str] = "ratings"
    field: ClassVar[str] = "ratings"

    statistic: ClassVar[str] = "rating"

    item: ClassVar[str] = "rating"

    keys: tuple[str, ...]
    low: float
    high: float
    at_most: int = 0
    clamp: bool = False

    @classmethod
    def of(cls, given: survey_pb2.Ratings) -> Self:
        """Return the kind that a survey describes; raise `InvalidInput` where it is none."""
        return cls(tuple(given.keys), given.low, given.high, given.at_most, given.clamp)

    def __post_init__(self) -> None:
        check_names("keys", self.keys, 1)
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidInput(
                f"low and high must be finite with low < high, got {self.low!r} and {self.high!r}"
            )
        check_at_most(self.at_most, len(self.keys), "keys")

    @property
    def compared(self) -> str:
        """By how much the shares of the people who rated a key differ."""
        return "share who rated"

    @property
    def own_range(self) -> tuple[float, float]:
        """The ends of the range."""
        return self.low, self.high

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the ratings that are estimated: the keys."""
        return self.keys

    def places(self, between: str) -> tuple[str, ...]:
        """The names of the two items of each key: a rating is rounded to one of them."""
        return tuple(f"{key}{between}{side}" for key in self.keys for side in ("high", "low"))

    @property
    def most(self) -> int:
        """The largest number of ratings of one answer."""
        return self.at_most or len(self.keys)

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {key: place for place, key in enumerate(self.keys)}

    def encode(self, answer: object) -> tuple[tuple[int, int], ...]:
        """Return each rating of `answer`, a mapping from keys to numbers, by the key's place.

        A rating is the integer t for which t / 2**64 is its share of the scale, rounded down:
        the chance that it counts as "+". Raises `InvalidInput` for another answer, a key that is
        none, a rating that is no number of the scale, and more ratings than count.
        """
        if not isinstance(answer, Mapping):
            raise InvalidInput(f"must map keys to ratings, got a {type(answer).__name__}")
        found: dict[int, int] = {}
        for key, rating in answer.items():
            place = find(self._places, key)
            if place is None or place in found:
                raise InvalidInput(
                    f"must rate each of {listed(self.keys)} once at most, got another "
                    f"{type(key).__name__}"
                )
            found[place] = self._threshold(rating)
        if len(found) > self.most and not self.clamp:
            raise InvalidInput(f"must have at most {self.most} ratings, got more")
        return tuple(sorted(found.items()))

    def _threshold(self, rating: object) -> int:
        if not is_number(rating):
            raise InvalidInput(f"must have numbers as ratings, got a {type(rating).__name__}")
        try:
            number = float(rating)
        except (ArithmeticError, ValueError):
            raise InvalidInput(
                f"must have ratings that fit a float, got a {type(rating).__name__}"
            ) from None
        if not self.low <= number <= self.high:  # nan is not either
            raise InvalidInput(
                f"must have ratings in [{self.low:g}, {self.high:g}], got one outside"
            )
        share = (Fraction(number) - Fraction(self.low)) / (Fraction(self.high) - Fraction(self.low))
        return floor_threshold(share)

    def anything(self, coins: Coins) -> tuple[tuple[int, int], ...]:
        """Return a number of ratings drawn uniformly, of keys and ratings drawn uniformly, as
        `encode` does."""
        size = coins.below(self.most + 1)
        keys = coins.distinct(len(self.keys), size).tolist()
        return tuple((key, coins.below(ONE)) for key in keys)

    def settled(self, value: tuple[tuple[int, int], ...], coins: Coins) -> tuple[int, ...]:
        """Return ratings as a mechanism takes them: each, of those that count, as its key's item
        for "+" or the next one for "-", drawn so that its mean is the rating."""
        kept = some(value, self.most, coins)
        return tuple(2 * key + (not coins.bernoulli(threshold)) for key, threshold in kept)

    def __str__(self) -> str:
        return f"{listed(self.keys)}, {self.low:g} to {self.high:g}"

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The class of mechanisms that randomise ratings, as sets of signed items."""
        from ldp import SetSelection

        return SetSelection

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for two items of each key."""
        check_items(mechanism, 2 * len(self.keys), self.most)
