"""What a user and an app chose, held against a plan: the terms on which answers are taken."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType

from hearsay.memo import Memoizer
from hearsay.plan import Categorical, Level, Plan
from ldp import InvalidInput
from ldp.budget import Budget


@dataclass(frozen=True)
class Caps:
    """The most epsilon that somebody allows; None allows what the plan asks for.

    `record` is for one record, and so for one person and period; `life` for all that a person
    ever reports from this ledger, over all its surveys; `attribute` for one report of an
    attribute, and `attribute_life` for all of them. Raises `InvalidInput` unless every cap is
    finite and >= 0.
    """

    record: float | None = None
    life: float | None = None
    attribute: Mapping[str, float] = field(default_factory=dict)
    attribute_life: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [("record", self.record), ("life", self.life)]
        named += [(f"attribute {name}", cap) for name, cap in self.attribute.items()]
        named += [(f"attribute_life {name}", cap) for name, cap in self.attribute_life.items()]
        for name, cap in named:
            if cap is not None and not 0 <= cap < math.inf:
                raise InvalidInput(f"the cap {name} must be finite and >= 0, got {cap!r}")

    def lower(self, other: "Caps") -> "Caps":
        """Return the caps that hold where both do: of each, the lower one."""
        record = [cap for cap in (self.record, other.record) if cap is not None]
        life = [cap for cap in (self.life, other.life) if cap is not None]
        return Caps(
            min(record, default=None),
            min(life, default=None),
            _lower(self.attribute, other.attribute),
            _lower(self.attribute_life, other.attribute_life),
        )

    def as_dict(self) -> dict[str, object]:
        """Return the caps that are set, for JSON."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: dict(value) if isinstance(value, Mapping) else value
            for name, value in values.items()
            if value is not None and value != {}
        }


def _lower(one: Mapping[str, float], other: Mapping[str, float]) -> Mapping[str, float]:
    both = {**one, **other}
    return {name: min(one.get(name, cap), cap) for name, cap in both.items()}


@dataclass(frozen=True)
class Choices:
    """What was chosen before any answer is known: a level, others by attribute, what is withheld
    and what may become known in the clear. `Client` says what each means."""

    level: str
    levels: Mapping[str, str] = field(default_factory=dict)
    withhold: frozenset[str] = frozenset()
    may_reveal: frozenset[str] = frozenset()
    may_tell_changes: frozenset[str] = frozenset()
    revision: str | None = None

    def against(self, plan: Plan) -> "Terms":
        """Return the terms under a plan.

        Raises `InvalidInput` where the plan lacks a level or attribute, is not of the revision,
        spends more on a record than the loosest level chosen, or could reveal a value, or tell
        when an answer changes, which `may_reveal` or `may_tell_changes` does not allow.
        """
        if self.revision is not None and plan.revision.hex() != self.revision:
            raise InvalidInput(
                f"expected revision {self.revision!r} of {plan.survey!r}, "
                f"the server has {plan.revision.hex()}"
            )
        level = plan.level(self.level)
        levels = dict.fromkeys(plan.attributes, level)
        for name in (*self.levels, *self.withhold, *self.may_reveal, *self.may_tell_changes):
            if name not in plan.attributes:
                raise InvalidInput(no_attribute(plan, name))
        levels |= {name: plan.level(other) for name, other in self.levels.items()}
        budget = level.budget
        for position, (name, other) in enumerate(levels.items()):
            if other is not level:
                budget = budget.with_epsilon(position, other.mechanisms[name].epsilon)
        memoizers = {name: plan.memoizer(other.name, name) for name, other in levels.items()}
        terms = Terms(
            plan=plan,
            level=level,
            levels=MappingProxyType(levels),
            budget=budget,
            withheld=self.withhold,
            memoizers={name: memo for name, memo in memoizers.items() if memo is not None},
        )
        allowed = max(chosen.epsilon for chosen in (level, *levels.values()))
        if terms.record_epsilon > allowed:
            raise InvalidInput(
                f"these levels together spend epsilon {terms.record_epsilon:g} on a record, "
                f"more than the loosest of them, {allowed:g}: the plan does not go by levels"
            )
        self._check_revealing(terms)
        return terms

    def _check_revealing(self, terms: "Terms") -> None:
        for name, attribute in terms.plan.attributes.items():
            domain = attribute.domain
            if name in self.withhold or not isinstance(domain, Categorical):
                continue
            if name in terms.memoizers and name not in self.may_tell_changes:
                raise InvalidInput(
                    f"answers to {name!r} are memoised, so reports tell when they change; "
                    f"if that is meant, pass may_tell_changes=[{name!r}]"
                )
            if domain.ordinary and name not in self.may_reveal:
                raise InvalidInput(
                    f"a report of {name!r} may reveal {' or '.join(domain.ordinary)}; "
                    f"if that is meant, pass may_reveal=[{name!r}]"
                )


@dataclass(frozen=True)
class Terms:
    """A plan as one user executes it: each attribute's level, the budget of a record, and how
    memos are kept of the attributes that have them."""

    plan: Plan
    level: Level
    levels: Mapping[str, Level]
    budget: Budget
    withheld: frozenset[str]
    memoizers: Mapping[str, Memoizer]

    @property
    def count_for_life(self) -> bool:
        """Whether a ledger that was lost can never be made good: the survey has one period only,
        or what was answered is to be answered alike again."""
        return not self.plan.period or not self.withheld.issuperset(self.memoizers)

    @cached_property
    def record_epsilon(self) -> float:
        """The most that one record spends: all attributes that it can report together."""
        names = enumerate(self.plan.attributes)
        return self.budget.epsilon_of([j for j, name in names if name not in self.withheld])

    def cost(self, name: str) -> float:
        """Return what a report of an attribute costs, or for a memoised one a new memo."""
        memoizer = self.memoizers.get(name)
        return memoizer.epsilon if memoizer else self.levels[name].mechanisms[name].epsilon

    def check_caps(self, caps: Caps) -> None:
        """Raise `InvalidInput` where one record may spend more than a cap allows."""
        if caps.record is not None and self.record_epsilon > caps.record:
            raise InvalidInput(
                f"level {self.level.name!r} spends epsilon {self.record_epsilon:g} on a record, "
                f"above the cap of {caps.record:g}"
            )
        for name, cap in caps.attribute.items():
            if name not in self.levels or name in self.withheld:
                continue
            epsilon = self.levels[name].mechanisms[name].epsilon
            if epsilon > cap:
                raise InvalidInput(
                    f"level {self.levels[name].name!r} spends epsilon {epsilon:g} on {name!r}, "
                    f"above the cap of {cap:g}"
                )

    def encode(self, answers: Mapping[str, object]) -> dict[str, int | float]:
        """Return the answers that are not None as mechanisms take them, the withheld left out.

        Raises `InvalidInput`, without repeating the answer, for an unknown attribute or an
        answer outside its domain.
        """
        values = {}
        for name, answer in answers.items():
            if answer is None:
                continue
            if name not in self.plan.attributes:
                raise InvalidInput(no_attribute(self.plan, name))
            try:
                values[name] = self.plan.attributes[name].domain.encode(answer)
            except InvalidInput as error:
                raise InvalidInput(f"{name} {error}") from None
        return {name: value for name, value in values.items() if name not in self.withheld}


def no_attribute(plan: Plan, name: str) -> str:
    """Say that a plan lacks an attribute."""
    return f"{plan.survey!r} has no attribute {name!r}; it has {', '.join(plan.attributes)}"


def total(spent: Mapping[str, Mapping[str, int]]) -> Fraction:
    """Add up what was spent: how many times each epsilon, by attribute, in exact arithmetic."""
    return sum(
        (
            Fraction(float.fromhex(epsilon)) * times
            for by_epsilon in spent.values()
            for epsilon, times in by_epsilon.items()
        ),
        Fraction(0),
    )
