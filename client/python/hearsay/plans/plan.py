"""A survey's plan as values, which clients execute and servers estimate from.

Both sides build it from the same frozen bytes. Building it checks it: every mechanism's epsilon
is computed again from its integers, so the server is not trusted with privacy.
"""

import hashlib
import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from numbers import Real
from types import MappingProxyType

import numpy as np
from google.protobuf.message import DecodeError

from hearsay.plans import period
from hearsay.plans.memo import Memoizer
from hearsay.plans.points import Points
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import InvalidInput, Mechanism, build
from ldp.core.exact import ONE, float_below
from ldp.core.mechanism import Categorical as CategoricalMechanism
from ldp.core.policy import Policy
from ldp.mechanisms import named
from ldp.planning.budget import Budget

_REFUSED_CATEGORIES = {
    "Cc": "a control character",
    "Cf": "a format character",
    "Co": "a private-use character",
    "Cs": "a surrogate",
    "Zl": "a line separator",
    "Zp": "a paragraph separator",
    "Zs": "a space other than U+0020",
}

_INVISIBLE = (
    (0x034F, 0x034F),
    (0x115F, 0x1160),
    (0x17B4, 0x17B5),
    (0x180B, 0x180F),
    (0x2065, 0x2065),
    (0x2800, 0x2800),
    (0x3164, 0x3164),
    (0xFE00, 0xFE0F),
    (0xFFA0, 0xFFA0),
    (0xFFF0, 0xFFF8),
    (0x1D159, 0x1D159),
    (0xE0000, 0xE0FFF),
)
"""Code points of other categories that show nothing by themselves: Default_Ignorable_Code_Point of
the Unicode character database, DerivedCoreProperties.txt, the empty pattern of Braille and the null
notehead."""

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


@dataclass(frozen=True)
class Categorical:
    """An answer that is one of `values`: at least two, all different, none empty.

    Where `sensitive` are given, the other values are ordinary: a report may reveal them.
    `classes` are (values, scale) that have a smaller epsilon.
    """

    values: tuple[str, ...]
    sensitive: tuple[str, ...] = ()
    classes: tuple[tuple[tuple[str, ...], float], ...] = ()

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise InvalidInput(f"values must be at least two, got {list(self.values)}")
        if "" in self.values:
            raise InvalidInput("values must not be empty strings")
        if len(self._categories) < len(self.values):
            (twice, _), *_ = Counter(self.values).most_common(1)
            raise InvalidInput(f"values must differ, got {twice!r} twice")
        if self.sensitive and self.classes:
            raise InvalidInput("give sensitive values or classes, not both")
        listed = [*self.sensitive, *(value for values, _ in self.classes for value in values)]
        if unknown := [value for value in listed if value not in self._categories]:
            raise InvalidInput(f"{unknown[0]!r} is sensitive or in a class, but no value")
        if len(set(listed)) < len(listed):
            (twice, _), *_ = Counter(listed).most_common(1)
            raise InvalidInput(f"{twice!r} is in two classes, or twice in one")
        for values, scale in self.classes:
            if not values:
                raise InvalidInput("a class needs values")
            if not 0 < scale <= 1:
                raise InvalidInput(f"the scale of a class must lie in (0, 1], got {scale!r}")
        if self.classes and len(listed) == len(self.values) and max(s for _, s in self.classes) < 1:
            raise InvalidInput("some values must have all of epsilon: give a class the scale 1")

    def policy(self, epsilon: float) -> Policy | None:
        """Return the policy to keep at `epsilon`; None where all pairs are protected alike."""
        k = len(self.values)
        if self.sensitive:
            return Policy.one_sided(k, [self._categories[v] for v in self.sensitive], epsilon)
        if not self.classes:
            return None
        of = dict.fromkeys(self.values, 1.0) | {v: s for values, s in self.classes for v in values}
        scales = sorted(set(of.values()))
        places = {scale: place for place, scale in enumerate(scales)}
        return Policy.input_discriminative(
            [places[of[value]] for value in self.values],
            [float_below(Fraction(epsilon) * Fraction(scale)) for scale in scales],
        )

    @cached_property
    def ordinary(self) -> tuple[str, ...]:
        """The values that a report may reveal."""
        sensitive = set(self.sensitive)  # a plan may have 100,000 of them
        return tuple(v for v in self.values if v not in sensitive) if sensitive else ()

    @cached_property
    def _categories(self) -> Mapping[str, int]:
        return {value: category for category, value in enumerate(self.values)}

    def encode(self, answer: object) -> int:
        """Return the category of `answer`: a value, or an integer that spells one.

        Raises `InvalidInput` for anything else.
        """
        if isinstance(answer, str):
            category = self._categories.get(answer)
        elif isinstance(answer, int | np.integer) and not isinstance(answer, bool):
            category = self._categories.get(str(answer)) if abs(int(answer)) < 1 << 63 else None
        else:
            category = None
        if category is None:
            raise InvalidInput(f"must be one of {self}, got another {type(answer).__name__}")
        return category

    def __str__(self) -> str:
        shown = self.values if len(self.values) <= 8 else (*self.values[:7], "...")
        return ", ".join(shown)

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The base class of mechanisms that randomise categories."""
        return CategoricalMechanism

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these values and protects them."""
        if not isinstance(mechanism, CategoricalMechanism) or mechanism.k != len(self.values):
            raise InvalidInput(f"{mechanism.name} does not fit {len(self.values)} values")
        wanted = self.policy(mechanism.epsilon)
        kept: Policy | None = getattr(mechanism, "promise", None)
        if wanted is None and kept is None:
            return  # the mechanism has checked itself that all pairs are protected alike
        uniform = Policy.uniform(mechanism.k, mechanism.epsilon)
        if not (kept or uniform).implies(wanted or uniform):
            raise InvalidInput(f"{mechanism.name} keeps another policy than its values declare")


@dataclass(frozen=True)
class Numeric:
    """An answer that is a number in [low, high]; with `clamp`, others move to the nearer end.

    With a `step` a number counts as the last of the points low, low + step, ..., high that is not
    above it. Raises `InvalidInput` for a range that is none, and as `Points`.
    """

    low: float
    high: float
    clamp: bool
    step: float = 0.0

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidInput(
                f"low and high must be finite with low < high, got {self.low!r} and {self.high!r}"
            )
        if self.step:
            _ = self.points  # refused here, where the place is known

    @cached_property
    def points(self) -> Points | None:
        """The points that answers take; None where they can be any number in the range."""
        return Points(self.low, self.high, self.step) if self.step else None

    def encode(self, answer: object) -> float:
        """Return `answer` on the scale [-1, 1] of the mechanisms; raise `InvalidInput`
        for an answer that is no number, not finite, or (without clamp) outside the range."""
        # Not whatever has __float__: a numpy string has it too, and repeats itself in its error.
        if isinstance(answer, bool) or not isinstance(answer, Real | Decimal):
            raise InvalidInput(f"must be a number, got a {type(answer).__name__}")
        try:
            number = float(answer)
        except (ArithmeticError, ValueError):
            raise InvalidInput(f"must fit a float, got a {type(answer).__name__}") from None
        if not math.isfinite(number):
            raise InvalidInput("must be finite, got nan or an infinity")
        if not self.clamp and not self.low <= number <= self.high:
            raise InvalidInput(f"must lie in [{self.low:g}, {self.high:g}], got one outside")
        if self.points is not None:
            return self.points.place(self.points.at_or_below(number))
        share = (number - self.low) / (self.high - self.low)
        return min(1.0, max(-1.0, 2 * share - 1))

    def __str__(self) -> str:
        steps = f" in steps of {self.step:g}" if self.step else ""
        return f"{self.low:g} to {self.high:g}{steps}"

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The base class of mechanisms that randomise numbers in [-1, 1]."""
        from ldp.mechanisms.numbers.mean import MeanMechanism

        return MeanMechanism

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for numbers in [-1, 1]."""
        if not isinstance(mechanism, self.mechanisms):
            raise InvalidInput(f"{mechanism.name} does not fit numbers")


Domain = Categorical | Numeric


@dataclass(frozen=True)
class Attribute:
    """One question of a survey.

    `memo` is 0 where every report is drawn afresh. Otherwise a device keeps one permanent answer
    per distinct value, of at most `memo` times a report's epsilon, and reports it every period:
    itself where `memo` is 1, with fresh noise where it is more. Raises `InvalidInput` for
    another `memo`, or one for anything but categories that are protected alike. `cap` is the most
    epsilon that a report may have at any level.
    """

    name: str
    title: str
    domain: Domain
    memo: float = 0.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        if not self.memo:
            return
        if not 1 <= self.memo < math.inf:
            raise InvalidInput(f"memo must be 0, or finite and >= 1, got {self.memo!r}")
        if not isinstance(self.domain, Categorical):
            raise InvalidInput("memo is for categorical answers only")
        if self.domain.sensitive or self.domain.classes:
            raise InvalidInput("memo is for values that are all protected alike")


@dataclass(frozen=True)
class Level:
    """A named epsilon of one whole record: the mechanism of each attribute at it, and which of
    them a record reports."""

    name: str
    epsilon: float
    mechanisms: Mapping[str, Mechanism]
    budget: Budget


@dataclass(frozen=True)
class Plan:
    """A survey resolved into exact mechanisms.

    Guarantee: whoever answers at a level sends reports that are, together, `level.epsilon`-LDP
    for the whole record (sequential composition over the attributes that a record reports,
    checked in exact arithmetic); where an attribute's domain declares sensitive values or
    classes, its policy takes the place of its epsilon. All reports of a memoised attribute
    together, over periods, keep `Memoizer`'s guarantee. `default_level` is the level that a device
    uses until the person chooses one; "" where the person must choose.
    `levels_differ_at_most` bounds how much two levels' people differ in a share, or in a mean as a
    part of its range; None where nothing is assumed.
    """

    survey: str
    title: str
    period: str
    revision: bytes
    attributes: Mapping[str, Attribute]
    levels: Mapping[str, Level]
    default_level: str = ""
    levels_differ_at_most: float | None = None

    def level(self, name: str) -> Level:
        """Return a level by name; raise `InvalidInput` for one that the survey lacks."""
        if name not in self.levels:
            raise InvalidInput(f"level must be one of {', '.join(self.levels)}, got {name!r}")
        return self.levels[name]

    def memoizer(self, level: str, attribute: str) -> Memoizer | None:
        """Return the memoizer of an attribute; None where every report is drawn afresh.

        Raises `InvalidInput` for a level or an attribute that the survey lacks.
        """
        mechanisms = self.level(level).mechanisms
        if attribute not in self.attributes:
            raise InvalidInput(
                f"attribute must be one of {', '.join(self.attributes)}, got {attribute!r}"
            )
        mechanism = mechanisms[attribute]
        if not self.attributes[attribute].memo:
            return None
        assert isinstance(mechanism, CategoricalMechanism)  # as `parse` has checked
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
    - where a mechanism is unknown, does not fit its attribute, or exceeds its epsilon or the
      attribute's cap;
    - where a level's mechanisms together exceed the level's epsilon, the levels are not those of
      the survey, or the default level is none of them.
    """
    if len(data) > _MOST_BYTES:
        raise InvalidInput(f"a plan has at most {_MOST_BYTES} bytes, got {len(data)}")
    plan = message(data)
    _check_canonical(plan, data)
    survey = plan.survey
    for place, text in _texts(survey):
        _check_text(place, text)
    if len(survey.attributes) > _MOST_ATTRIBUTES:
        raise InvalidInput(
            f"a survey has at most {_MOST_ATTRIBUTES} attributes, got {len(survey.attributes)}"
        )
    period.check_unit(survey.period)
    attributes = {a.name: attribute(a, survey.period) for a in survey.attributes}
    if not attributes or len(attributes) != len(survey.attributes):
        raise InvalidInput("a plan needs attributes, each with a name of its own")
    levels = {level.name: _level(level, attributes) for level in plan.levels}
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
    return Plan(
        survey=survey.name,
        title=survey.title,
        period=survey.period,
        revision=hashlib.sha256(data).digest(),
        attributes=MappingProxyType(attributes),
        levels=MappingProxyType(levels),
        default_level=survey.default_level,
        levels_differ_at_most=most,
    )


def message(data: bytes) -> plan_pb2.Plan:
    """Return a plan's bytes as a message; raise `InvalidInput` where they are none."""
    try:
        return plan_pb2.Plan.FromString(data)
    except DecodeError as error:
        raise InvalidInput(f"these {len(data)} bytes are no plan") from error


def _check_canonical(plan: plan_pb2.Plan, data: bytes) -> None:
    """Raise `InvalidInput` unless `data` are the only bytes that this plan is written as."""
    complete = plan.SerializeToString(deterministic=True)
    plan.DiscardUnknownFields()
    if plan.SerializeToString(deterministic=True) != complete:
        raise InvalidInput(
            "the plan has fields that this version of hearsay does not know: "
            "use the version that the server has"
        )
    if complete != data:
        raise InvalidInput(
            f"these {len(data)} bytes are not the canonical serialisation of their plan: "
            "expected fields in the order of their numbers, maps sorted by key, nothing twice"
        )


def _texts(survey: survey_pb2.Survey) -> Iterator[tuple[str, str]]:
    """Yield each text that an operator writes, after its place in the survey."""
    yield "name", survey.name
    yield "title", survey.title
    yield "budget", survey.budget
    for level in survey.levels:
        yield "levels", level
    for position, attribute in enumerate(survey.attributes):
        place = f"attributes[{position}]"
        yield f"{place}: name", attribute.name
        yield f"{place}: title", attribute.title
        yield f"{place}: mechanism", attribute.mechanism
        for value in attribute.categorical.values:
            yield f"{place}: values", value
        for name in attribute.categorical.classes:
            yield f"{place}: classes", name


def _check_text(place: str, text: str) -> None:
    """Raise `InvalidInput` for text that another text can look exactly like."""
    if text.startswith(" ") or text.endswith(" ") or "  " in text:
        raise InvalidInput(
            f"{place}: {text!r} has a space at its beginning or end, or two in a row: "
            "expected single spaces between words"
        )
    if text.isascii() and text.isprintable():
        return
    for character in text:
        if character == " ":
            continue
        code = ord(character)
        kind = _REFUSED_CATEGORIES.get(unicodedata.category(character))
        if kind is None and any(first <= code <= last for first, last in _INVISIBLE):
            kind = "an invisible character"
        if kind is not None:
            raise InvalidInput(
                f"{place}: {text!r} contains U+{code:04X}, {kind}: "
                "expected characters that can be seen"
            )
    composed = unicodedata.normalize("NFC", text)
    if composed != text:
        pairs = zip(text, composed, strict=False)
        code = next((ord(mine) for mine, other in pairs if mine != other), ord(text[-1]))
        raise InvalidInput(
            f"{place}: {text!r} is not in Unicode's normal form NFC: U+{code:04X} is not expected, "
            "or not in this place"
        )


def _listed(levels: list[tuple[str, float]]) -> str:
    return ", ".join(f"{name} = {epsilon!r}" for name, epsilon in levels) or "none"


def mechanism_message(mechanism: Mechanism) -> plan_pb2.Mechanism:
    """Return a mechanism as a message of a plan."""
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
    found = Attribute(wire.name, wire.title, _domain(wire), wire.memo, cap)
    if found.memo and not unit:
        raise InvalidInput("memo needs a survey with a period: without, nothing is repeated")
    return found


def _domain(attribute: survey_pb2.Attribute) -> Domain:
    if attribute.WhichOneof("domain") == "categorical":
        categorical = attribute.categorical
        return Categorical(
            tuple(categorical.values),
            tuple(categorical.sensitive),
            tuple((tuple(c.values), c.scale) for _, c in sorted(categorical.classes.items())),
        )
    if attribute.WhichOneof("domain") == "numeric":
        numeric = attribute.numeric
        return Numeric(numeric.low, numeric.high, numeric.clamp, numeric.step)
    raise InvalidInput("needs a domain: categorical or numeric")


def _level(level: plan_pb2.Level, attributes: Mapping[str, Attribute]) -> Level:
    if len(level.mechanisms) != len(attributes):
        raise InvalidInput(
            f"level {level.name!r} has {len(level.mechanisms)} mechanisms "
            f"for {len(attributes)} attributes"
        )
    mechanisms = {}
    for attribute, wire in zip(attributes.values(), level.mechanisms, strict=True):
        try:
            mechanisms[attribute.name] = _mechanism(wire, attribute)
        except InvalidInput as error:
            raise InvalidInput(f"level {level.name!r}, {attribute.name!r}: {error}") from error
    try:
        chances = tuple(chance or ONE for chance in level.chances) or (ONE,) * len(attributes)
        budget = Budget(tuple(m.epsilon for m in mechanisms.values()), chances)
    except InvalidInput as error:
        raise InvalidInput(f"level {level.name!r}: {error}") from error
    if not (math.isfinite(level.epsilon) and budget.record_epsilon <= level.epsilon):
        raise InvalidInput(
            f"level {level.name!r} promises epsilon {level.epsilon:g} for a record, "
            f"but the mechanisms of one add up to {budget.record_epsilon:.6g}"
        )
    return Level(level.name, level.epsilon, MappingProxyType(mechanisms), budget)


def _mechanism(wire: plan_pb2.Mechanism, attribute: Attribute) -> Mechanism:
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
    if attribute.memo:
        assert isinstance(mechanism, CategoricalMechanism)  # only categories are memoised
        Memoizer(mechanism).check(attribute.memo)
    return mechanism
