"""Choices made before any answer is known: the app's agreement, a person's level, the caps."""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from fractions import Fraction
from functools import cached_property

from hearsay.agreement import Agreement
from hearsay.plans import period
from hearsay.plans.kinds.names import is_number
from hearsay.plans.plan import Plan
from ldp import InvalidInput

_UNTIL = {
    "P1Y": re.compile(r"\d{4}"),
    "P1M": re.compile(r"\d{4}-\d{2}"),
    "P1D": re.compile(r"\d{4}-\d{2}-\d{2}"),
}
"""The forms in which the end of a pace is written, by the period that it names."""


@dataclass(frozen=True)
class Caps:
    """Upper limits on what is spent, set by an app or a person; None sets no limit.

    `life` is for the epsilon of all that a person ever reports from this ledger, over all its
    surveys and all updates of trainings with local noise; `until`
    spreads it over the time until the end of that year, month or day (UTC): "2027", "2027-12" or
    "2027-12-31". A period's answers are then taken once the epsilon spent before is at most the
    share of `life` that corresponds to the time that has passed; the first answers at once.
    When that time is over, all that is left may be spent at once: an app that outlives its
    `until` keeps the cap, and loses the pace (which is logged as a warning).
    `rho` is for all trainings with central noise that a person ever takes part in, where the
    server is trusted: the sum of their rho, each for the person's updates against zeros in their
    place (`hearsay.federated`). `life` does not count these.
    `attribute` is for all that one period spends on an attribute, which is one report unless views
    share it, and `attribute_life` for all reports. The most that one record may spend is the
    client's `epsilon`.

    Raises `InvalidInput` unless every cap is finite and >= 0, and `until` names a period.
    """

    life: float | None = None
    until: str | None = None
    attribute: Mapping[str, float] = field(default_factory=dict)
    attribute_life: Mapping[str, float] = field(default_factory=dict)
    rho: float | None = None

    def __post_init__(self) -> None:
        for name in ("life", "rho"):
            if (cap := getattr(self, name)) is not None:
                object.__setattr__(self, name, _cap(name, cap))
        for name in ("attribute", "attribute_life"):
            caps = getattr(self, name)
            if not isinstance(caps, Mapping):
                raise InvalidInput(f"{name} has a cap for each name, got a {type(caps).__name__}")
            kept = {each: _cap(f"{name} {each}", cap) for each, cap in caps.items()}
            object.__setattr__(self, name, kept)
        if self.until is not None:
            if not isinstance(self.until, str):
                raise InvalidInput(f"until must be a text such as '2027-12', got {self.until!r}")
            if self.life is None:
                raise InvalidInput(f"until={self.until!r} spreads a cap for life: give life=, too")
            _ = self.ends

    @cached_property
    def ends(self) -> datetime:
        """The end (UTC) of the time over which the cap for life is spread."""
        text = self.until or ""
        for unit, form in _UNTIL.items():
            if form.fullmatch(text):
                return period.end(unit, text)
        raise InvalidInput(
            f"until must be a year, month or day such as '2027-12', got {self.until!r}"
        )

    @property
    def count_for_life(self) -> bool:
        """Whether a cap depends on all epsilon that was ever spent on surveys."""
        return self.life is not None or bool(self.attribute_life)

    def as_dict(self) -> dict[str, object]:
        """Return the caps that are set, for JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
            if value is not None and value != {}
        }


def number_of(name: str, value: object) -> float:
    """Return an argument that must be a number as a float, infinity for what is too large; raise
    `InvalidInput` for what is none."""
    if not is_number(value):
        raise InvalidInput(f"{name} must be a number, got a {type(value).__name__}")
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except ValueError:  # a Decimal that signals
        return math.nan


def _cap(name: str, cap: object) -> float:
    found = number_of(f"the cap {name}", cap)
    if not 0 <= found < math.inf:
        raise InvalidInput(f"the cap {name} must be finite and >= 0, got {found!r}")
    return found


@dataclass(frozen=True)
class Agreed:
    """An app's agreement on a survey, which holds whatever its server sends.

    `epsilon` is the most that one record may spend; None where an `agreement` lists the levels.
    """

    survey: str
    epsilon: float | None = None
    revision: str | None = None
    may_reveal: Mapping[str, frozenset[str]] = field(default_factory=dict)
    may_tell_changes: frozenset[str] = frozenset()
    agreement: Agreement | None = None
    may_reveal_by_map: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """By attribute and map."""
    panels: int = 0
    """The most panels that people may be divided into; 0: none."""
    delta: float | None = None
    """The most delta of a record that is split between two servers; None where the app ships the
    plan or its revision, and sets no limit besides."""

    @classmethod
    def by_module(cls, agreement: Agreement) -> "Agreed":
        """Return the agreement of a module written by `hearsay codegen`."""
        return cls(
            agreement.survey,
            None,
            agreement.revision,
            {name: frozenset(values) for name, values in agreement.may_reveal.items()},
            frozenset(agreement.may_tell_changes),
            agreement,
            # `Agreement.check` compares the maps, so each reveals what the app was built with.
            {
                (name, chosen): frozenset(map(str, agreement.domains[name])) - frozenset(sensitive)
                for name, maps in agreement.maps.items()
                for chosen, sensitive in maps.items()
            },
            agreement.panels,
        )

    def check_revision(self, data: bytes) -> None:
        """Raise `InvalidInput` unless a plan's bytes have the revision agreed to, before they are
        parsed: a server cannot make the app read anything else.

        Where there is an `agreement`, `check` tells instead in what a plan differs.
        """
        if self.revision is None or self.agreement is not None:
            return
        found = hashlib.sha256(data).hexdigest()
        if found != self.revision:
            raise InvalidInput(
                f"expected revision {self.revision!r} of {self.survey!r}, the server has {found}"
            )

    def check(self, plan: Plan, withheld: frozenset[str]) -> None:
        """Raise `InvalidInput` unless the plan fits the agreement.

        That is: it is of this survey, has the domains and levels of the agreement,
        and could neither reveal a value nor tell when an answer changes or comes back unless
        `may_reveal` or `may_tell_changes` allows it, nor link a person's reports by more than
        `panels`, nor split records at more than `delta`. Attributes that are `withheld` are never
        sent.
        """
        if plan.survey != self.survey:
            raise InvalidInput(f"asked for the survey {self.survey!r}, got {plan.survey!r}")
        if self.agreement is not None:
            self.agreement.check(plan)
        if plan.panels > self.panels:
            raise InvalidInput(
                f"{plan.survey!r} has {plan.panels} panels: a person's panel is drawn once, and "
                "sent in the clear with each report for the life of the survey; if that is meant, "
                f"pass panels={plan.panels}"
            )
        two = plan.two_servers
        if two is not None and self.delta is not None and two.delta > self.delta:
            raise InvalidInput(
                f"{plan.survey!r} splits records between two servers at delta {two.delta:g}, and "
                f"the app allows {self.delta:g}: a record's epsilon fails with this probability, "
                f"and deltas of records add up; if that is meant, pass delta={two.delta:g}"
            )
        for name in (*self.may_reveal, *self.may_tell_changes, *withheld):
            if name not in plan.attributes:
                raise InvalidInput(no_attribute(plan, name))
        for name, chosen in self.may_reveal_by_map:
            if name not in plan.attributes:
                raise InvalidInput(no_attribute(plan, name))
            plan.map_of(name, chosen)
        for name, attribute in plan.attributes.items():
            if name in withheld:
                continue
            if attribute.memo and name not in self.may_tell_changes:
                raise InvalidInput(
                    f"answers to {name!r} are memoised, so reports tell when they change, "
                    "and when an earlier one comes back, and may tell for life which are of one "
                    f"device; if that is meant, pass may_tell_changes=[{name!r}]"
                )
            ordinary, allowed = plan.revealed.get(name, ()), self.may_reveal.get(name, frozenset())
            try:
                revealed = attribute.domain.not_among(allowed) if ordinary else []
            except InvalidInput as error:
                raise InvalidInput(f"may_reveal[{name!r}]: {error}") from None
            if revealed:
                raise InvalidInput(
                    f"a report of {name!r} may reveal {' or '.join(revealed)}; if that is meant, "
                    f"pass may_reveal={{{name!r}: {list(ordinary)!r}}}"
                )

    def check_map(self, plan: Plan, name: str, chosen: str) -> None:
        """Raise `InvalidInput` unless the plan has the map of an attribute, and could reveal only
        values with it that `may_reveal` allows, for the map or for the attribute."""
        domain = plan.attributes[name].domain
        plan.map_of(name, chosen)
        ordinary = domain.chosen(chosen).ordinary
        allowed = self.may_reveal_by_map.get((name, chosen), frozenset())
        allowed |= self.may_reveal.get(name, frozenset())
        if revealed := [value for value in ordinary if value not in allowed]:
            meant = {name: {chosen: list(ordinary)}}
            raise InvalidInput(
                f"a report of {name!r} by the map {chosen!r} may reveal {' or '.join(revealed)}; "
                f"if that is meant, pass may_reveal={meant!r}"
            )

    def check_epsilon(self, spent: float) -> None:
        """Raise `InvalidInput` where `spent`, the epsilon of a record, is more than agreed."""
        if self.epsilon is not None and spent > self.epsilon:
            raise InvalidInput(
                f"a record of {self.survey!r} would spend epsilon {spent:g}, and the app allows "
                f"epsilon={self.epsilon:g}"
            )


@dataclass(frozen=True)
class Choices:
    """One person's level (None: the survey's default), levels chosen for some attributes, maps of
    sensitive values chosen for some attributes, and the values of public properties."""

    level: str | None = None
    levels: tuple[tuple[str, str], ...] = ()
    maps: tuple[tuple[str, str], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()


def no_attribute(plan: Plan, name: str) -> str:
    """Return the error message for an attribute that a plan lacks."""
    return f"{plan.survey!r} has no attribute {name!r}; it has {', '.join(plan.attributes)}"


def total(spent: Mapping[str, Mapping[str, int]]) -> Fraction:
    """Return the exact sum of epsilons, given how often each was spent, by attribute."""
    return sum(
        (
            Fraction(float.fromhex(epsilon)) * times
            for by_epsilon in spent.values()
            for epsilon, times in by_epsilon.items()
        ),
        Fraction(0),
    )
