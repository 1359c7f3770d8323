"""Answers that are sets of items, or ratings of some of several things."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Real
from typing import ClassVar, TypeGuard, TypeVar

import numpy as np

from hearsay.plans.texts import check_differ, normal
from ldp import Coins, Estimate, InvalidInput, Mechanism
from ldp.core.exact import ONE, floor_threshold

_Item = TypeVar("_Item")

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


def check_names(what: str, names: Sequence[str], least: int) -> None:
    """Raise `InvalidInput` unless there are `least` names or more, all different, none empty."""
    if len(names) < least:
        number = ("one", "two")[least - 1]
        raise InvalidInput(f"{what} must be at least {number}, got {list(names)}")
    if "" in names:
        raise InvalidInput(f"{what} must not be empty strings")
    check_differ(what, names)


def is_number(answer: object) -> TypeGuard[Real | Decimal]:
    """Whether an answer is a number: neither a boolean, nor a time between two others, which numpy
    counts as one."""
    # Not whatever has __float__: a numpy string has it too, and repeats itself in its error.
    return isinstance(answer, Real | Decimal) and not isinstance(answer, bool | np.timedelta64)


def find(places: Mapping[str, int], answer: object) -> int | None:
    """Return the place of a name, however it is composed, or of a number that spells one; None for
    anything else."""
    text = normal(answer) if isinstance(answer, str) else _spelled(answer)
    return None if text is None else places.get(text)


def _spelled(answer: object) -> str | None:
    """Return a number as a value spells it, such as "3" or "-0.25"; None for anything else, and for
    a number that JavaScript would write in another way."""
    if isinstance(answer, np.floating):
        answer = float(str(answer))  # the shortest digits of a float32, too
    if not is_number(answer):
        return None
    try:
        number = float(answer)
    except (ArithmeticError, ValueError):
        return None
    if not abs(number) <= 1 << 63:  # a nan is not either
        return None
    whole = int(answer)  # type: ignore[arg-type]
    if whole == answer:
        return str(whole) if abs(whole) < 1 << 63 else None
    return np.format_float_positional(number, trim="-") if abs(number) >= 1e-6 else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names if len(names) <= 8 else (*names[:7], "..."))


@dataclass(frozen=True)
class SetOf:
    """An answer that is a set of some of `values`: of none up to `at_most` of them.

    There are two values at least, all different, none empty. `at_most` 0 stands for all of them.
    With `clamp` a set of more items counts as `at_most` of them, drawn uniformly; without, it is
    outside the domain. An item that is given twice counts once.
    Raises `InvalidInput` for other values, and unless at_most is at most their number.
    """

    statistic: ClassVar[str] = "frequency"
    units: ClassVar[float] = 1.0

    values: tuple[str, ...]
    at_most: int = 0
    clamp: bool = False

    def __post_init__(self) -> None:
        check_names("values", self.values, 2)
        _check_at_most(self.at_most, len(self.values), "values")

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the shares that are estimated: one of each item."""
        return self.values

    @property
    def most(self) -> int:
        """The number of items of the largest set."""
        return self.at_most or len(self.values)

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
        return _some(value, self.most, coins)

    def in_units(self, estimate: Estimate) -> Estimate:
        """Return an estimate of a mechanism's parameters in the answers' units."""
        return estimate

    def not_among(self, allowed: Collection[str]) -> list[str]:
        """Return what a report may reveal and is not allowed: nothing."""
        return []

    def __str__(self) -> str:
        return _listed(self.values)

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The base class of mechanisms that randomise sets."""
        from ldp.mechanisms import SetMechanism

        return SetMechanism

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for sets of these values."""
        _check_items(mechanism, len(self.values), self.most)


@dataclass(frozen=True)
class Ratings:
    """An answer that rates some of `keys`, from none up to `at_most`, each from `low` to `high`.

    There is one key at least; all are different, none is empty. `at_most` 0 stands for all of them.
    With `clamp`, of more ratings `at_most` count, drawn uniformly. A rating outside the scale is
    outside the domain either way.
    Raises `InvalidInput` for other keys, a scale that is none, and unless at_most is at most the
    number of keys.
    """

    statistic: ClassVar[str] = "rating"
    units: ClassVar[float] = 1.0
    """Of the shares that rated each key; the means are on the scale already."""

    keys: tuple[str, ...]
    low: float
    high: float
    at_most: int = 0
    clamp: bool = False

    def __post_init__(self) -> None:
        check_names("keys", self.keys, 1)
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidInput(
                f"low and high must be finite with low < high, got {self.low!r} and {self.high!r}"
            )
        _check_at_most(self.at_most, len(self.keys), "keys")

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the ratings that are estimated: the keys."""
        return self.keys

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
                    f"must rate each of {_listed(self.keys)} once at most, got another "
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
        kept = _some(value, self.most, coins)
        return tuple(2 * key + (not coins.bernoulli(threshold)) for key, threshold in kept)

    def in_units(self, estimate: Estimate) -> Estimate:
        """Return an estimate of a mechanism's parameters in the answers' units."""
        return estimate

    def not_among(self, allowed: Collection[str]) -> list[str]:
        """Return what a report may reveal and is not allowed: nothing."""
        return []

    def __str__(self) -> str:
        return f"{_listed(self.keys)}, {self.low:g} to {self.high:g}"

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The class of mechanisms that randomise ratings, as sets of signed items."""
        from ldp import SetSelection

        return SetSelection

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for two items of each key."""
        _check_items(mechanism, 2 * len(self.keys), self.most)


def _check_at_most(at_most: int, names: int, what: str) -> None:
    if not 0 <= at_most <= names:
        raise InvalidInput(
            f"at_most must lie in 1..{names}, the number of {what}, or be left out for all of "
            f"them, got {at_most}"
        )


def _check_items(mechanism: Mechanism, items: int, most: int) -> None:
    from ldp import SetSelection
    from ldp.mechanisms import SetMechanism

    if not isinstance(mechanism, SetMechanism) or mechanism.items != items:
        raise InvalidInput(f"{mechanism.name} does not fit {items} items")
    if isinstance(mechanism, SetSelection) and mechanism.most != most:
        raise InvalidInput(
            f"{mechanism.name} does not fit sets of at most {most} items, but of {mechanism.most}"
        )


def _some(items: tuple[_Item, ...], most: int, coins: Coins) -> tuple[_Item, ...]:
    """Return the items, or `most` of them drawn uniformly, in their order."""
    if len(items) <= most:
        return items
    return tuple(items[place] for place in coins.distinct(len(items), most).tolist())
