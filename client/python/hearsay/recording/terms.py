"""The terms on which one person's answers are taken: a plan at the person's levels."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType

from hearsay.choices import Agreed, Caps, Choices, no_attribute
from hearsay.interrupts import is_from_handler
from hearsay.plans.kinds import Value
from hearsay.plans.memo import Memoizer
from hearsay.plans.plan import Level, Plan
from ldp import Coins, InvalidInput, Mechanism
from ldp.core.losses import variation_of
from ldp.planning.budget import Budget


@lru_cache(maxsize=64)
def _epsilon_of(budget: Budget, attributes: tuple[int, ...]) -> float:
    """Return the epsilon of a record of some attributes; cached, as many share a budget."""
    return budget.epsilon_of(attributes)


@dataclass(frozen=True)
class Terms:
    """A plan as one person executes it: each question's level and mechanism, the maps that were
    chosen, the budget of a record, the withheld attributes, the memoizers of the memoised ones, and
    the value of each public property, "" for one that was not given or that the survey does not
    declare, which `undeclared` tells in words.
    """

    plan: Plan
    level: Level
    levels: Mapping[str, Level]
    maps: Mapping[str, str]
    mechanisms: Mapping[str, Mechanism]
    budget: Budget
    withheld: frozenset[str]
    memoizers: Mapping[str, Memoizer]
    properties: tuple[str, ...] = ()
    undeclared: str = ""

    @classmethod
    def of(cls, plan: Plan, choices: Choices, agreed: Agreed, withheld: frozenset[str]) -> "Terms":
        """Return the terms of one person under a plan that was agreed to.

        Raises `InvalidInput` where the plan lacks a level, map, attribute or property, a
        map could reveal more than the app agreed to, or a record at these levels spends more than
        the loosest of them, than the app agreed to, or on an attribute than the plan's cap of it.
        A view is reported at the strictest of its attributes' levels.
        """
        if choices.level is None and not plan.default_level:
            raise InvalidInput(
                f"{plan.survey!r} has no default level: choose one of {', '.join(plan.levels)}"
            )
        level = plan.level(choices.level or plan.default_level)
        by_attribute = dict.fromkeys(plan.attributes, level)
        for name, other in choices.levels:
            if name not in plan.attributes:
                raise InvalidInput(no_attribute(plan, name))
            by_attribute[name] = plan.level(other)
        strictest = list(plan.levels.values())  # in order of epsilon
        levels = {
            name: min((by_attribute[part] for part in plan.parts(name)), key=strictest.index)
            for name in plan.recorded
        }
        maps = {}
        for name, chosen_map in choices.maps:
            if name not in plan.attributes:
                raise InvalidInput(no_attribute(plan, name))
            if plan.map_of(name, chosen_map):
                maps[name] = chosen_map
                if name not in withheld:
                    agreed.check_map(plan, name, chosen_map)
        given = dict(choices.properties)
        undeclared = [f"{wrong}: none is sent" for wrong in plan.properties.undeclared(given)]
        budget = level.budget
        for position, (name, chosen) in enumerate(levels.items()):
            if chosen is not level:
                budget = budget.with_epsilon(position, chosen.mechanisms[name].epsilon)
        memoizers = {name: plan.memoizer(levels[name].name, name) for name in plan.questions}
        terms = cls(
            plan=plan,
            level=level,
            levels=MappingProxyType(levels),
            maps=MappingProxyType(maps),
            mechanisms=MappingProxyType(
                {name: levels[name].by_map[name][maps.get(name, "")] for name in plan.questions}
            ),
            budget=budget,
            withheld=withheld,
            memoizers={name: memo for name, memo in memoizers.items() if memo is not None},
            properties=plan.properties.checked(given),
            undeclared="; ".join(undeclared),
        )
        allowed = max(chosen.epsilon for chosen in (level, *levels.values()))
        if terms.record_epsilon > allowed:
            raise InvalidInput(
                f"these levels together spend epsilon {terms.record_epsilon:g} on a record, "
                f"more than the loosest of them, {allowed:g}: the plan does not go by levels"
            )
        for name, attribute in plan.attributes.items():
            if (
                attribute.cap == math.inf
                or len({levels[q].name for q in terms.containing[name]}) < 2
            ):
                continue  # the plan was checked at each level alone
            if (spent := terms.epsilon_of(name)) > attribute.cap:
                raise InvalidInput(
                    f"these levels together spend epsilon {spent:g} on the views of {name!r}, more "
                    f"than its cap of {attribute.cap:g}"
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
        """The most that one record spends: all questions that it can report together."""
        return self._epsilon_of(self.answered)

    @cached_property
    def answered(self) -> frozenset[str]:
        """The questions that may be reported: those without a withheld attribute. With two servers
        a withheld attribute is an absent answer of the record."""
        if self.plan.two_servers:
            return frozenset(self.levels if self.withheld < self.plan.attributes.keys() else ())
        return frozenset(
            name for name in self.levels if self.withheld.isdisjoint(self.plan.parts(name))
        )

    @cached_property
    def containing(self) -> Mapping[str, tuple[str, ...]]:
        """By attribute the questions that ask it."""
        if self.plan.two_servers:
            return dict.fromkeys(self.plan.attributes, self.plan.recorded)
        return {name: self.plan.questions_of([name]) for name in self.plan.attributes}

    def epsilon_of(self, attribute: str) -> float:
        """Return the most that one record spends on an attribute: on all questions that ask it."""
        return self._epsilon_of(self.answered.intersection(self.containing[attribute]))

    def cap_of(self, attribute: str, caps: Sequence[Caps]) -> float:
        """Return the lowest cap of what one record spends on an attribute: the plan's, and those of
        `caps`; infinity where there is none."""
        limits = [each.attribute[attribute] for each in caps if attribute in each.attribute]
        return min([self.plan.attributes[attribute].cap, *limits])

    def _epsilon_of(self, questions: Collection[str]) -> float:
        return _epsilon_of(
            self.budget, tuple(j for j, name in enumerate(self.levels) if name in questions)
        )

    def variation(self, name: str) -> float | None:
        """Return the largest total variation of two answers' reports to a question.

        None where reports only add up (`ldp.core.losses.variation_of`), and for a memoised one. It
        is computed at the first report: a record may ask few of many questions.
        """
        if name not in self._variations:
            mechanism = None if name in self.memoizers else self.mechanisms[name]
            self._variations[name] = None if mechanism is None else variation_of(mechanism)
        return self._variations[name]

    @cached_property
    def _variations(self) -> dict[str, float | None]:
        return {}

    def chosen_map(self, name: str) -> tuple[str, tuple[str, ...]] | None:
        """Return the map of an attribute's reports ("" for none) and the values that it lists; None
        where the attribute has no maps."""
        if not self.plan.maps(name):
            return None
        chosen = self.maps.get(name, "")
        return chosen, dict(self.plan.attributes[name].domain.maps).get(chosen, ())

    def cost(self, name: str) -> float:
        """Return the epsilon of a report of a question, or for a memoised one of a new memo."""
        if self.plan.two_servers:
            return self.level.epsilon
        memoizer = self.memoizers.get(name)
        return memoizer.epsilon if memoizer else self.mechanisms[name].epsilon

    def check_caps(self, caps: Caps) -> None:
        """Raise `InvalidInput` where one record may spend more on an attribute than its cap allows,
        or a cap is for an attribute that the survey lacks."""
        for name in (*caps.attribute, *caps.attribute_life):
            if name not in self.plan.attributes:
                raise InvalidInput(f"a cap of {name!r}: {no_attribute(self.plan, name)}")
        for name, cap in caps.attribute.items():
            asked = self.answered.intersection(self.containing[name])
            each = [self.mechanisms[q].epsilon for q in asked if q in self.mechanisms]
            epsilon = max([self._epsilon_of(asked), *each])
            if epsilon > cap:
                levels = ", ".join(sorted({self.levels[question].name for question in asked}))
                raise InvalidInput(
                    f"level {levels!r} spends epsilon {epsilon:g} on {name!r}, above the cap of "
                    f"{cap:g}"
                )

    def encode(self, name: str, answer: object) -> Value:
        """Return an answer as the attribute's domain encodes it.

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

    def value(self, question: str, values: Mapping[str, Value | None], coins: Coins) -> Value:
        """Return what a question's mechanism takes, given the value of each attribute it asks.

        None is an answer outside the domain: a value drawn uniformly from the attribute's domain
        takes its place, because whether a report leaves must not tell whether there is a value.
        """
        view = self.plan.views.get(question)
        if view is None:
            value = values[question]
            if value is None:
                return self.anything(question, coins)
            return self.plan.attributes[question].domain.settled(value, coins)
        found = []
        for name in view.attributes:
            value = values[name]
            domain = self.plan.attributes[name].domain
            anything: Value = domain.anything(coins)
            found.append(int(anything if value is None else value))
        return view.category(found)

    def anything(self, question: str, coins: Coins) -> Value:
        """Return a value drawn uniformly from a question's domain, as its mechanisms take it.

        It takes the place of an answer that may not be reported: whether a report leaves must not
        tell whether there is one.
        """
        domain = self.plan.questions[question].domain
        drawn: Value = domain.anything(coins)
        return domain.settled(drawn, coins)
