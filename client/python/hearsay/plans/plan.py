"""A survey's plan as values, which clients execute and servers estimate from.

Both sides build it from the same frozen bytes. Building it checks it: every mechanism's epsilon
is computed again from its integers, so the server is not trusted with privacy.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from google.protobuf.message import DecodeError

from hearsay.plans import period
from hearsay.plans.attested import Requirement, requirement_of
from hearsay.plans.attributes import Attribute as Attribute
from hearsay.plans.attributes import Question as Question
from hearsay.plans.canonical import check_canonical
from hearsay.plans.kinds import domain_of
from hearsay.plans.limits import check_work
from hearsay.plans.memo import Memoizer
from hearsay.plans.properties import NO_PROPERTIES, Properties, properties_of
from hearsay.plans.sealing import Sealing, least_size, sealing_of
from hearsay.plans.texts import check_texts
from hearsay.plans.two_servers import TwoServers, check_level, two_servers_of
from hearsay.plans.views import MOST_TOGETHER, View, combined, view
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import RAPPOR, InvalidInput, Mechanism, PrefixHashing, build
from ldp.core.exact import ONE
from ldp.core.mechanism import Categorical as CategoricalMechanism
from ldp.core.randomizer import Randomizer
from ldp.mechanisms import named
from ldp.planning.budget import Budget


@dataclass(frozen=True)
class Level:
    """A named epsilon of one whole record: the mechanism of each question at it, and which of
    them a record reports. The budget has the questions in the order of `Plan.questions`.

    `by_map` has, by question, the mechanism of those who chose each of its maps, by name, and
    under "" the one of those who chose none, which is that of `mechanisms`. All mechanisms of a
    question have one epsilon.
    """

    name: str
    epsilon: float
    mechanisms: Mapping[str, Mechanism]
    budget: Budget
    by_map: Mapping[str, Mapping[str, Mechanism]]


@dataclass(frozen=True)
class Plan:
    """A survey resolved into exact mechanisms.

    A question is an attribute that is in no view, or a view: several attributes, asked together.
    Guarantee: whoever answers at a level sends reports that are, together, `level.epsilon`-LDP
    for the whole record (sequential composition over the questions that a record reports,
    checked in exact arithmetic); where an attribute's domain declares sensitive values or
    classes, or the person chose one of its maps, its policy takes the place of its epsilon. All
    reports of a memoised attribute together, over periods, keep `Memoizer`'s guarantee.
    `default_level` is the level that a device uses until the person chooses one; "" where the
    person must choose.
    `levels_differ_at_most` bounds how much people of two levels, or of two maps, differ in a share,
    or in a mean as a part of its range; None where nothing is assumed. `panels` is the number of
    panels that devices are divided into, 0 without, and `properties` what apps tell of devices:
    both are in the clear.
    """

    survey: str
    title: str
    period: str
    revision: bytes
    attributes: Mapping[str, Attribute]
    views: Mapping[str, View]
    questions: Mapping[str, Question]
    """The attributes that are in no view, then the views, each as one."""
    levels: Mapping[str, Level]
    default_level: str = ""
    levels_differ_at_most: float | None = None
    panels: int = 0
    properties: Properties = NO_PROPERTIES
    sealing: Sealing | None = None
    """How records are sealed on their way to a shuffler; None where devices send batches."""
    two_servers: TwoServers | None = None
    """How records are split between two servers; None where answers are randomised. With two
    servers there are no questions and no mechanisms, and the one level's epsilon is that of sums,
    with all devices' noise, at `two_servers.delta`."""
    attested: Requirement | None = None
    """The evidence that a server must give before it gets records; None where none is required."""

    @property
    def recorded(self) -> tuple[str, ...]:
        """The names under which a record is charged: its questions, or with two servers one that
        asks all attributes together."""
        return ("+".join(self.attributes),) if self.two_servers else tuple(self.questions)

    @property
    def told(self) -> int:
        """The number of combinations of a panel and a group: what is in the clear of a device."""
        return max(1, self.panels) * self.properties.combinations

    @property
    def counts(self) -> int:
        """How many counts the tallies of one period, panel and group have."""
        return sum(
            mechanism.tally_size
            for level in self.levels.values()
            for by_map in level.by_map.values()
            for mechanism in by_map.values()
        )

    def parts(self, question: str) -> tuple[str, ...]:
        """Return the attributes that a question asks; of an attribute in no view itself."""
        if self.two_servers:
            return tuple(self.attributes)
        asked = self.views.get(question)
        return (question,) if asked is None else asked.attributes

    def questions_of(self, attributes: Sequence[str]) -> tuple[str, ...]:
        """Return the questions that ask all of some attributes, in the plan's order."""
        first, *others = attributes
        return tuple(
            name
            for name in self._containing.get(first, ())
            if all(other in self.parts(name) for other in others)
        )

    @cached_property
    def _containing(self) -> Mapping[str, Sequence[str]]:
        """By attribute the questions that ask it."""
        found: dict[str, list[str]] = {}
        for name in self.questions:
            for part in self.parts(name):
                found.setdefault(part, []).append(name)
        return found

    def asked(self, name: str) -> Question:
        """Return an attribute or a view; raise `InvalidInput` where there is none."""
        found = self.attributes.get(name) or self.questions.get(name)
        if found is None:
            names = ", ".join([*self.attributes, *self.views])
            raise InvalidInput(f"{self.survey!r} has no attribute {name!r}; it has {names}")
        return found

    @cached_property
    def revealed(self) -> Mapping[str, tuple[str, ...]]:
        """The values that a report may reveal, by attribute, of those that have any: of numbers
        the ranges.

        A view reveals values of its attributes only where all of them have ordinary ones.
        """
        found = {}
        for name, attribute in self.attributes.items():
            asked = self.questions_of([name])
            if any(self.questions[question].domain.ordinary for question in asked):
                found[name] = attribute.domain.ordinary
        return MappingProxyType(found)

    def level(self, name: str) -> Level:
        """Return a level by name; raise `InvalidInput` for one that the survey lacks."""
        if name not in self.levels:
            raise InvalidInput(f"level must be one of {', '.join(self.levels)}, got {name!r}")
        return self.levels[name]

    def maps(self, attribute: str) -> tuple[str, ...]:
        """Return the names of an attribute's maps, in order; empty where it has none.

        Raises `InvalidInput` where the survey lacks the attribute.
        """
        return self.asked(attribute).domain.map_names

    def mechanism(self, level: str, attribute: str, map_name: str = "") -> Mechanism:
        """Return a question's mechanism of those who chose a level and a map; "" for no map.

        Raises `InvalidInput` for a level, a question or a map that the survey lacks.
        """
        return self.level(level).by_map[attribute][self.map_of(attribute, map_name)]

    def map_of(self, attribute: str, name: str) -> str:
        """Return the name of a map, or "" for none; raise `InvalidInput` where there is no such."""
        if name and name not in (known := self.maps(attribute)):
            listed = f"one of {', '.join(known)}" if known else "left out"
            raise InvalidInput(f"a map of {attribute!r} must be {listed}, got {name!r}")
        _ = self.asked(attribute)
        return name

    def memoizer(self, level: str, attribute: str) -> Memoizer | None:
        """Return the memoizer of a question; None where every report is drawn afresh.

        Raises `InvalidInput` for a level or a question that the survey lacks.
        """
        mechanisms = self.level(level).mechanisms
        if attribute not in self.questions:
            raise InvalidInput(
                f"attribute must be one of {', '.join(self.questions)}, got {attribute!r}"
            )
        if not self.questions[attribute].memo:
            return None
        mechanism = mechanisms[attribute]
        assert isinstance(mechanism, CategoricalMechanism | RAPPOR)  # as `parse` has checked
        return Memoizer(mechanism)


_MOST_BYTES, _MOST_ATTRIBUTES = 1 << 22, 1024
"""Limits of a plan that is parsed: a server must not choose how long parsing takes."""


@lru_cache(maxsize=64)
def parse(data: bytes) -> Plan:
    """Build a plan from its frozen bytes, and check it.

    Raises `InvalidInput`, naming the place:
    - where the bytes are no plan, are not the canonical serialisation of their plan, or have
      fields that this version does not know, and where a text contains characters that cannot be
      seen. People could not notice such differences, and a server could use them to mark a device
      by the revision of its plan.
    - where there are more levels or larger sets than `limits` allows;
    - where a view is not valid (`views.view`), two have the same attributes, or there are too many;
    - where panels or properties are not valid (`properties.properties_of`), and where there is a
      page, which is no part of a plan;
    - where what it says of sealing is not valid (`sealing.sealing_of`), or records may be larger;
    - where what it requires of evidence is not valid (`attested.requirement_of`);
    - where what it says of two servers is not valid (`two_servers.two_servers_of`), or their sums
      exceed the level's epsilon;
    - where a mechanism is unknown, does not fit its attribute or view, or exceeds its epsilon or
      the cap of an attribute, which holds for all views together that a record reports;
    - where a level's mechanisms together exceed the level's epsilon, the levels are not those of
      the survey, or the default level is none of them.
    """
    if len(data) > _MOST_BYTES:
        raise InvalidInput(f"a plan has at most {_MOST_BYTES} bytes, got {len(data)}")
    plan = message(data)
    check_canonical(plan, data, "plan")
    survey = plan.survey
    if survey.HasField("page"):
        raise InvalidInput("a plan has no page: what a page shows is the operator's declaration")
    check_texts(survey)
    if len(survey.attributes) > _MOST_ATTRIBUTES:
        raise InvalidInput(
            f"a survey has at most {_MOST_ATTRIBUTES} attributes, got {len(survey.attributes)}"
        )
    if len(survey.views) > _MOST_ATTRIBUTES:
        raise InvalidInput(
            f"a survey has at most {_MOST_ATTRIBUTES} views, got {len(survey.views)}"
        )
    check_work(plan)
    period.check_unit(survey.period)
    attributes = {a.name: attribute(a, survey.period) for a in survey.attributes}
    if not attributes or len(attributes) != len(survey.attributes):
        raise InvalidInput("a plan needs attributes, each with a name of its own")
    views = views_of(survey, attributes)
    properties = properties_of(survey)
    two_servers = two_servers_of(survey, attributes)
    asked = {} if two_servers else questions(attributes, views.values())
    mapped, containing = _mapped(asked), _containing(asked, views)
    if two_servers:
        check_level(two_servers, list(plan.levels))
        levels = {level.name: _of_sums(level) for level in plan.levels}
    else:
        levels = {level.name: _level(level, asked, mapped) for level in plan.levels}
    for level in levels.values():
        _check_caps(level, attributes, containing)
    if not levels or len(levels) != len(plan.levels):
        raise InvalidInput("a plan needs levels, each with a name of its own")
    declared = sorted(survey.levels.items(), key=lambda item: (item[1], item[0]))
    resolved = [(level.name, level.epsilon) for level in plan.levels]
    if resolved != declared:
        raise InvalidInput(
            f"levels: the survey declares {_listed(declared)}, the plan has {_listed(resolved)}"
        )
    if survey.default_level and survey.default_level not in levels:
        raise InvalidInput(
            f"default_level: expected one of {', '.join(levels)}, got {survey.default_level!r}"
        )
    most = survey.levels_differ_at_most if survey.HasField("levels_differ_at_most") else None
    if most is not None and not 0 <= most <= 1:
        raise InvalidInput(f"levels_differ_at_most must lie in [0, 1], got {most!r}")
    sealing = sealing_of(survey)
    if sealing is not None:
        needed = least_size(survey, asked, levels.values(), properties)
        if sealing.size < needed:
            raise InvalidInput(
                f"sealing: records need {needed} bytes of padding, size is {sealing.size}"
            )
    return Plan(
        survey=survey.name,
        title=survey.title,
        period=survey.period,
        revision=hashlib.sha256(data).digest(),
        attributes=MappingProxyType(attributes),
        views=MappingProxyType(views),
        questions=MappingProxyType(asked),
        levels=MappingProxyType(levels),
        default_level=survey.default_level,
        levels_differ_at_most=most,
        panels=survey.panels,
        properties=properties,
        sealing=sealing,
        two_servers=two_servers,
        attested=requirement_of(survey),
    )


def views_of(survey: survey_pb2.Survey, attributes: Mapping[str, Attribute]) -> dict[str, View]:
    """Return a survey's views by name; raise `InvalidInput` that names the one that cannot be."""
    domains = {name: attribute.domain for name, attribute in attributes.items()}
    memos = frozenset(name for name, attribute in attributes.items() if attribute.memo)
    found: dict[str, View] = {}
    known: set[frozenset[str]] = set()
    together = 0
    for position, wire in enumerate(survey.views):
        try:
            each = view(wire.attributes, domains, memos)
            if frozenset(each.attributes) in known:
                raise InvalidInput(f"another view has the attributes {', '.join(each.attributes)}")
            if each.name in found or each.name in attributes:
                raise InvalidInput(f"the name {each.name!r} is taken")
            together += each.combinations
            if together > MOST_TOGETHER:
                raise InvalidInput(
                    f"views have at most {MOST_TOGETHER} combinations of values together, and "
                    f"with this one they have {together}"
                )
        except InvalidInput as error:
            raise InvalidInput(f"views[{position}]: {error}") from None
        found[each.name] = each
        known.add(frozenset(each.attributes))
    return found


def questions(attributes: Mapping[str, Attribute], views: Iterable[View]) -> dict[str, Question]:
    """Return what a record reports: the attributes that are in no view, then the views."""
    views = tuple(views)
    found: dict[str, Question]
    seen = {name for each in views for name in each.attributes}
    found = {name: attribute for name, attribute in attributes.items() if name not in seen}
    for each in views:
        asked = [attributes[name] for name in each.attributes]
        title = " / ".join(one.title or one.name for one in asked)
        caps = [one.cap for one in asked]
        cap = math.nan if any(map(math.isnan, caps)) else min(caps)  # which no epsilon keeps
        try:
            domain = combined([one.domain for one in asked])
        except InvalidInput as error:
            raise InvalidInput(f"views ({each.name}): {error}") from None
        found[each.name] = Question(each.name, title, domain, cap=cap)
    return found


def message(data: bytes) -> plan_pb2.Plan:
    """Return a plan's bytes as a message; raise `InvalidInput` where they are none."""
    try:
        return plan_pb2.Plan.FromString(data)
    except DecodeError as error:
        raise InvalidInput(f"these {len(data)} bytes are no plan") from error


def _listed(levels: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} = {epsilon!r}" for name, epsilon in levels) or "none"


def mechanism_message(mechanism: Randomizer) -> plan_pb2.Mechanism:
    """Return a mechanism as a message of a plan or a training."""
    return plan_pb2.Mechanism(
        name=mechanism.name,
        epsilon=mechanism.epsilon,
        parameters=[
            plan_pb2.Parameter(name=name, values=values)
            for name, values in sorted(mechanism.integers.items())
        ],
    )


def attribute(wire: survey_pb2.Attribute, unit: str) -> Attribute:
    """Return an attribute of a survey with the period `unit`; raise `InvalidInput` where the
    attribute is not valid."""
    cap = wire.cap if wire.HasField("cap") else math.inf
    found = Attribute(wire.name, wire.title, domain_of(wire), wire.memo, cap)
    if found.memo and not unit:
        raise InvalidInput("memo needs a survey with a period: without, nothing is repeated")
    return found


def _containing(
    asked: Mapping[str, Question], views: Mapping[str, View]
) -> Mapping[str, Sequence[int]]:
    """Return the places among the questions of the views that contain an attribute, by attribute.

    Those that no view contains are left out.
    """
    found: dict[str, list[int]] = {}
    for place, name in enumerate(asked):
        for part in views[name].attributes if name in views else ():
            found.setdefault(part, []).append(place)
    return found


def _check_caps(
    level: Level, attributes: Mapping[str, Attribute], containing: Mapping[str, Sequence[int]]
) -> None:
    """Raise `InvalidInput` where a record may report an attribute, in all views, above its cap."""
    for attribute in attributes.values():
        places = containing.get(attribute.name, ())
        if attribute.cap == math.inf or len(places) < 2:
            continue  # one question, whose mechanism has been checked
        spent = level.budget.epsilon_of(places)
        if spent > attribute.cap:
            raise InvalidInput(
                f"level {level.name!r}: the views of {attribute.name!r} have epsilon {spent:g} "
                f"together, more than its cap of {attribute.cap:g}"
            )


_Mapped = Sequence[tuple[str, str, Question]]
"""By question and map: the question as those have it who chose the map."""


def _mapped(asked: Mapping[str, Question]) -> _Mapped:
    return [
        (name, chosen, replace(each, domain=each.domain.chosen(chosen)))
        for name, each in asked.items()
        for chosen in each.domain.map_names
    ]


def _of_sums(level: plan_pb2.Level) -> Level:
    """Return the level of records that are split between two servers."""
    nothing: Mapping[str, Any] = MappingProxyType({})
    return Level(level.name, level.epsilon, nothing, Budget((level.epsilon,), (ONE,)), nothing)


def _level(level: plan_pb2.Level, asked: Mapping[str, Question], mapped: _Mapped) -> Level:
    if len(level.mechanisms) != len(asked):
        raise InvalidInput(
            f"level {level.name!r} has {len(level.mechanisms)} mechanisms "
            f"for {len(asked)} questions"
        )
    mechanisms = {}
    for attribute, wire in zip(asked.values(), level.mechanisms, strict=True):
        try:
            mechanisms[attribute.name] = _mechanism(wire, attribute)
        except InvalidInput as error:
            raise InvalidInput(f"level {level.name!r}, {attribute.name!r}: {error}") from error
    try:
        chances = tuple(chance or ONE for chance in level.chances) or (ONE,) * len(asked)
        budget = Budget(tuple(m.epsilon for m in mechanisms.values()), chances)
    except InvalidInput as error:
        raise InvalidInput(f"level {level.name!r}: {error}") from error
    if not (math.isfinite(level.epsilon) and budget.record_epsilon <= level.epsilon):
        raise InvalidInput(
            f"level {level.name!r} promises epsilon {level.epsilon:g} for a record, "
            f"but the mechanisms of one add up to {budget.record_epsilon:.6g}"
        )
    by_map = _by_map(level, mapped, mechanisms)
    return Level(level.name, level.epsilon, MappingProxyType(mechanisms), budget, by_map)


def _by_map(
    level: plan_pb2.Level, mapped: _Mapped, mechanisms: Mapping[str, Mechanism]
) -> Mapping[str, Mapping[str, Mechanism]]:
    """Return a level's mechanisms by attribute and map; raise `InvalidInput` unless there is one
    for each map, with the epsilon of the attribute's own."""
    if len(level.mapped) != len(mapped):
        raise InvalidInput(
            f"level {level.name!r} has {len(level.mapped)} mechanisms for {len(mapped)} maps"
        )
    by_map = {name: {"": own} for name, own in mechanisms.items()}
    for (name, chosen, asked), wire in zip(mapped, level.mapped, strict=True):
        own = mechanisms[name]
        try:
            mechanism = _mechanism(wire, asked)
            if mechanism.epsilon != own.epsilon:
                raise InvalidInput(
                    f"{mechanism.name} has epsilon {mechanism.epsilon:g}, and without a map it "
                    f"is {own.epsilon:g}: they must be the same"
                )
        except InvalidInput as error:
            raise InvalidInput(
                f"level {level.name!r}, {name!r}, map {chosen!r}: {error}"
            ) from error
        by_map[name][chosen] = mechanism
    return MappingProxyType({name: MappingProxyType(mine) for name, mine in by_map.items()})


def _mechanism(wire: plan_pb2.Mechanism, attribute: Question) -> Mechanism:
    domain = attribute.domain
    integers = {p.name: tuple(p.values) for p in wire.parameters}
    if len(integers) != len(wire.parameters):
        raise InvalidInput("a parameter comes twice")
    if not issubclass(named(wire.name), domain.mechanisms):
        raise InvalidInput(f"{wire.name} does not fit {domain.__class__.__name__.lower()} answers")
    mechanism = build(wire.name, wire.epsilon, integers)
    if mechanism_message(mechanism) != wire:
        raise InvalidInput(f"{wire.name}: the parameters must be sorted by name")
    if not mechanism.epsilon <= attribute.cap:
        raise InvalidInput(
            f"{wire.name} has epsilon {mechanism.epsilon:g}, more than the attribute's cap of "
            f"{attribute.cap:g}"
        )
    domain.check(mechanism)
    if isinstance(mechanism, PrefixHashing if attribute.memo else RAPPOR):
        raise InvalidInput(
            f"a memo of words goes with rappor, and rappor with a memo: got {wire.name} and "
            f"memo = {attribute.memo:g}"
        )
    if attribute.memo:
        assert isinstance(mechanism, CategoricalMechanism | RAPPOR)  # no others are memoised
        Memoizer(mechanism).check(attribute.memo)
    return mechanism
