"""What is true of answers of every kind, and tables that have an entry for each kind."""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Self, TypeVar

from hearsay.plans.bins import Bins
from hearsay.plans.points import Points
from ldp import Coins, Estimate, InvalidInput, Mechanism

T = TypeVar("T")


class Kind:
    """What the answers to a question can be, and how mechanisms take them: a frozen value.

    What is said here holds of most kinds; the others say it anew.
    """

    name: ClassVar[str]
    """The kind's name, as the fields of `ByKind`."""
    field: ClassVar[str]
    """The field of a survey's attribute that says what the answers can be."""
    statistic: ClassVar[str] = "frequency"
    """What is estimated of the answers, one number for each of `labels`."""
    joins: ClassVar[bool] = False
    """Whether a view may ask for such answers: each is one of `labels`."""
    item: ClassVar[str] = ""
    """What an answer has several of, "" where it is one."""

    @classmethod
    def expected(cls, domain: "Kind", otherwise: str) -> Self:
        """Return a domain that is of this kind; raise `InvalidInput` in these words for another."""
        if not isinstance(domain, cls):
            raise InvalidInput(otherwise)
        return domain

    @property
    def compared(self) -> str:
        """What is compared of the answers, between parts of the reports and between periods."""
        return self.statistic

    @property
    def maps(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """The maps that a person may choose from: (name, sensitive values), by name."""
        return ()

    @property
    def map_names(self) -> tuple[str, ...]:
        """The names of the maps that a person may choose from, in order."""
        return tuple(name for name, _ in self.maps)

    @property
    def ordinary(self) -> tuple[str, ...]:
        """What a report may reveal."""
        return ()

    @property
    def is_graded(self) -> bool:
        """Whether numbers are protected by their value."""
        return False

    @property
    def units(self) -> float:
        """By how much a mechanism's parameter is multiplied in an answer's units."""
        return 1.0

    @property
    def origin(self) -> float:
        """What a mechanism's parameter of 0 is in an answer's units."""
        return 0.0

    @property
    def own_range(self) -> tuple[float, float] | None:
        """The range of what is estimated in the answers' own unit; None where shares are."""
        return None

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers that are estimated."""
        raise NotImplementedError

    @property
    def sizes(self) -> tuple[str, ...]:
        """The numbers of things that an answer may have, where that can be asked."""
        return ()

    def points_in(self, step: float | None = None) -> Points | Bins | None:
        """Return the points or bins that numbers lie in, for a question that may name a step.

        None where they can be any number in the range. Raises `InvalidInput`, in words that go on
        after an attribute's name, of answers that are no numbers and for a step that they lack.
        """
        raise InvalidInput("is no number")

    @property
    def agreed(self) -> tuple[str, ...] | tuple[float, float]:
        """What an app agrees to of the answers."""
        return self.labels

    def places(self, between: str) -> tuple[str, ...]:
        """The names of what the places of a code stand for; `between` stands within a name."""
        return self.labels

    def chosen(self, name: str) -> Self:
        """Return the kind as those have it who chose a map; "" stands for none."""
        return self

    def encode(self, answer: object) -> Any:
        """Return an answer as `anything` does; raise `InvalidInput` where it is none."""
        raise NotImplementedError

    def anything(self, coins: Coins) -> Any:
        """Return a value drawn uniformly from the domain, as `encode` returns values."""
        raise NotImplementedError

    def settled(self, value: Any, coins: Coins) -> Any:
        """Return a value as a mechanism takes it: as it is."""
        return value

    def in_units(self, estimate: Estimate) -> Estimate:
        """Return an estimate of a mechanism's parameters in the answers' units."""
        return estimate

    def not_among(self, allowed: Collection[str]) -> list[str]:
        """Return what a report may reveal and is not allowed: nothing."""
        return []

    def check_memo(self) -> None:
        """Raise `InvalidInput` unless a device may keep and repeat an answer."""
        raise InvalidInput("memo is for categorical answers and strings only")

    @property
    def mechanisms(self) -> type[Mechanism] | tuple[type[Mechanism], ...]:
        """The classes of mechanisms that randomise such answers."""
        raise NotImplementedError

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these answers and protects them."""
        raise NotImplementedError


@dataclass(frozen=True)
class ByKind(Generic[T]):
    """What a room does with each kind. A table that lacks one cannot be made."""

    category: T
    number: T
    bins: T
    set: T
    ratings: T
    words: T
    grid: T

    @classmethod
    def otherwise(cls, entry: T, **known: T) -> "ByKind[T]":
        """Return a table in which all kinds but the known ones have one entry, as a refusal."""
        return cls(**dict.fromkeys((field.name for field in fields(cls)), entry) | known)

    def __getitem__(self, kind: Kind | type[Kind]) -> T:
        entry: T = getattr(self, kind.name)
        return entry
