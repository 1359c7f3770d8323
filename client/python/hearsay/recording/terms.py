"""The terms on which one person's answers are taken: a plan at the person's levels."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType

from hearsay.choices import Agreed, Caps, Choices, no_attribute
from hearsay.interrupts import is_from_handler
from hearsay.plans.memo import Memoizer
from hearsay.plans.plan import Level, Plan
from ldp import Coins, InvalidInput
from ldp.core.losses import variation_of
from ldp.planning.budget import Budget


@lru_cache(maxsize=64)
def _epsilon_of(budget: Budget, attributes: tuple[int, ...]) -> float:
    """Return the epsilon of a record of some attributes; cached, as many share a budget."""
    return budget.epsilon_of(attributes)


@dataclass(frozen=True)
class Terms:
    """A plan as one person executes it: each attribute's level, the budget of a record, and the
    memoizers of the memoised attributes."""

    plan: Plan
    level: Level
    levels: Mapping[str, Level]
    budget: Budget
    withheld: frozenset[str]
    memoizers: Mapping[str, Memoizer]

    @classmethod
    def of(cls, plan: Plan, choices: Choices, agreed: Agreed, withheld: frozenset[str]) -> "Terms":
        """Return the terms of one person under a plan that was agreed to.

        Raises `InvalidInput` where the plan lacks a level or attribute, or a record at these
        levels spends more than the loosest of them, or than the app agreed to.
        """
        if choices.level is None and not plan.default_level:
            raise InvalidInput(
                f"{plan.survey!r} has no default level: choose one of {', '.join(plan.levels)}"
            )
        level = plan.level(choices.level or plan.default_level)
        levels = dict.fromkeys(plan.attributes, level)
        for name, other in choices.levels:
            if name not in plan.attributes:
                raise InvalidInput(no_attribute(plan, name))
            levels[name] = plan.level(other)
        budget = level.budget
        for position, (name, chosen) in enumerate(levels.items()):
            if chosen is not level:
                budget = budget.with_epsilon(position, chosen.mechanisms[name].epsilon)
        memoizers = {name: plan.memoizer(chosen.name, name) for name, chosen in levels.items()}
        terms = cls(
            plan=plan,
            level=level,
            levels=MappingProxyType(levels),
            budget=budget,
            withheld=withheld,
            memoizers={name: memo for name, memo in memoizers.items() if memo is not None},
        )
        allowed = max(chosen.epsilon for chosen in (level, *levels.values()))
        if terms.record_epsilon > allowed:
            raise InvalidInput(
                f"these levels together spend epsilon {terms.record_epsilon:g} on a record, "
                f"more than the loosest of them, {allowed:g}: the plan does not go by levels"
            )
        agreed.check_epsilon(terms.record_epsilon)
        return terms

    @property
    def count_for_life(self) -> bool:
        """Whether a lost ledger can never be made good: the survey has one period only, or memos
        that were lost would have to be repeated."""
        return not self.plan.period or not self.withheld.issuperset(self.memoizers)

    @cached_property
    def record_epsilon(self) -> float:
        """The most that one record spends: all attributes that it can report together."""
        names = enumerate(self.plan.attributes)
        return _epsilon_of(self.budget, tuple(j for j, name in names if name not in self.withheld))

    @cached_property
    def variations(self) -> Mapping[str, float | None]:
        """The largest total variation of two answers' reports, by attribute that is drawn afresh.

        None where reports only add up (`ldp.core.losses.variation_of`), and for memoised ones.
        """
        return {
            name: None if name in self.memoizers else variation_of(level.mechanisms[name])
            for name, level in self.levels.items()
        }

    def cost(self, name: str) -> float:
        """Return the epsilon of a report of an attribute, or for a memoised one of a new memo."""
        memoizer = self.memoizers.get(name)
        return memoizer.epsilon if memoizer else self.levels[name].mechanisms[name].epsilon

    def check_caps(self, caps: Caps) -> None:
        """Raise `InvalidInput` where one report may spend more than its cap allows, or a cap is
        for an attribute that the survey lacks."""
        for name in (*caps.attribute, *caps.attribute_life):
            if name not in self.levels:
                raise InvalidInput(f"a cap of {name!r}: {no_attribute(self.plan, name)}")
        for name, cap in caps.attribute.items():
            if name not in self.levels or name in self.withheld:
                continue
            epsilon = self.levels[name].mechanisms[name].epsilon
            if epsilon > cap:
                raise InvalidInput(
                    f"level {self.levels[name].name!r} spends epsilon {epsilon:g} on {name!r}, "
                    f"above the cap of {cap:g}"
                )

    def encode(self, name: str, answer: object) -> int | float:
        """Return an answer as the attribute's mechanisms take it.

        Raises `InvalidInput`, without repeating the answer, where it is outside the domain.
        """
        try:
            return self.plan.attributes[name].domain.encode(answer)
        except Exception as error:
            if type(error) is InvalidInput:
                raise InvalidInput(f"{name} {error}") from None
            # The answer is an object of the app's, and its methods may raise, errors whose own
            # methods raise among them.
            if is_from_handler(error):
                raise
            raise InvalidInput(f"{name} cannot be read: {type(error).__name__}") from None

    def anything(self, name: str, coins: Coins) -> int | float:
        """Return a value drawn uniformly from an attribute's domain, as its mechanisms take it.

        It takes the place of an answer outside the domain: whether a report leaves must not
        tell whether there is a value to report.
        """
        return self.plan.attributes[name].domain.anything(coins)
