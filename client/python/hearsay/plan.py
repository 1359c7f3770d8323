"""A plan as values: what a client executes and a server estimates from.

Both sides build it from the same frozen bytes. Building it checks it: every mechanism's epsilon
is computed again from its integers, so the server is not trusted with privacy.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from numbers import Real
from types import MappingProxyType

import numpy as np
from google.protobuf.message import DecodeError

from hearsay import period
from hearsay.v1 import plan_pb2, survey_pb2
from ldp import InvalidInput, Mechanism, build
from ldp import mechanism as mechanisms

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


@dataclass(frozen=True)
class Categorical:
    """An answer that is one of `values`: at least two, all different, none empty."""

    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.values) < 2:
            raise InvalidInput(f"values must be at least two, got {list(self.values)}")
        if "" in self.values:
            raise InvalidInput("values must not be empty strings")
        if len(self._categories) < len(self.values):
            (twice, _), *_ = Counter(self.values).most_common(1)
            raise InvalidInput(f"values must differ, got {twice!r} twice")

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

    def fits(self, mechanism: Mechanism) -> bool:
        """Tell whether the mechanism randomises this domain's categories."""
        return isinstance(mechanism, mechanisms.Categorical) and mechanism.k == len(self.values)


@dataclass(frozen=True)
class Numeric:
    """An answer that is a number in [low, high]; with `clamp`, others move to the nearer end."""

    low: float
    high: float
    clamp: bool

    def __post_init__(self) -> None:
        if not (self.low < self.high and math.isfinite(self.high - self.low)):
            raise InvalidInput(
                f"low and high must be finite with low < high, got {self.low!r} and {self.high!r}"
            )

    def encode(self, answer: object) -> float:
        """Return `answer` on the scale [-1, 1] of the mechanisms; raise `InvalidInput`
        for what is no number, not finite, or (without clamp) outside the range."""
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
        share = (number - self.low) / (self.high - self.low)
        return min(1.0, max(-1.0, 2 * share - 1))

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"

    def fits(self, mechanism: Mechanism) -> bool:
        """Tell whether the mechanism randomises numbers in [-1, 1]."""
        return mechanism.parameters == 1 and mechanism.bounds == (-1.0, 1.0)


Domain = Categorical | Numeric


@dataclass(frozen=True)
class Attribute:
    """One question of a survey."""

    name: str
    title: str
    domain: Domain


@dataclass(frozen=True)
class Level:
    """A named epsilon of one whole record, and the mechanism of each attribute at it."""

    name: str
    epsilon: float
    mechanisms: Mapping[str, Mechanism]


@dataclass(frozen=True)
class Plan:
    """A survey resolved into exact mechanisms.

    Guarantee: whoever answers at a level sends reports that are, together, `level.epsilon`-LDP
    for the whole record (sequential composition over attributes, checked in exact arithmetic).
    """

    survey: str
    title: str
    period: str
    revision: bytes
    attributes: Mapping[str, Attribute]
    levels: Mapping[str, Level]

    def level(self, name: str) -> Level:
        """Return a level by name; raise `InvalidInput` for one that the survey lacks."""
        if name not in self.levels:
            raise InvalidInput(f"level must be one of {', '.join(self.levels)}, got {name!r}")
        return self.levels[name]


@lru_cache(maxsize=64)
def parse(data: bytes) -> Plan:
    """Build a plan from its frozen bytes, and check it.

    Raises `InvalidInput`, naming the place, where the bytes are no plan, a mechanism is unknown,
    does not fit its attribute or exceeds its epsilon, or a level's mechanisms together exceed
    the level's epsilon.
    """
    plan = message(data)
    survey = plan.survey
    period.check_unit(survey.period)
    attributes = {a.name: Attribute(a.name, a.title, domain(a)) for a in survey.attributes}
    if not attributes or len(attributes) != len(survey.attributes):
        raise InvalidInput("a plan needs attributes, each with a name of its own")
    levels = {level.name: _level(level, attributes) for level in plan.levels}
    if not levels or len(levels) != len(plan.levels):
        raise InvalidInput("a plan needs levels, each with a name of its own")
    return Plan(
        survey=survey.name,
        title=survey.title,
        period=survey.period,
        revision=hashlib.sha256(data).digest(),
        attributes=MappingProxyType(attributes),
        levels=MappingProxyType(levels),
    )


def message(data: bytes) -> plan_pb2.Plan:
    """Return a plan's bytes as a message; raise `InvalidInput` where they are none."""
    try:
        return plan_pb2.Plan.FromString(data)
    except DecodeError as error:
        raise InvalidInput(f"these {len(data)} bytes are no plan") from error


def mechanism_message(mechanism: Mechanism) -> plan_pb2.Mechanism:
    """Return a mechanism as a plan carries it."""
    return plan_pb2.Mechanism(
        name=mechanism.name,
        epsilon=mechanism.epsilon,
        parameters=[
            plan_pb2.Parameter(name=name, values=values)
            for name, values in sorted(mechanism.integers.items())
        ],
    )


def domain(attribute: survey_pb2.Attribute) -> Domain:
    """Return an attribute's domain; raise `InvalidInput` for one that cannot be."""
    if attribute.WhichOneof("domain") == "categorical":
        return Categorical(tuple(attribute.categorical.values))
    if attribute.WhichOneof("domain") == "numeric":
        numeric = attribute.numeric
        return Numeric(numeric.low, numeric.high, numeric.clamp)
    raise InvalidInput("needs a domain: categorical or numeric")


def _level(level: plan_pb2.Level, attributes: Mapping[str, Attribute]) -> Level:
    if len(level.mechanisms) != len(attributes):
        raise InvalidInput(
            f"level {level.name!r} has {len(level.mechanisms)} mechanisms "
            f"for {len(attributes)} attributes"
        )
    mechanisms = {}
    for attribute, wire in zip(attributes.values(), level.mechanisms, strict=True):
        integers = {p.name: tuple(p.values) for p in wire.parameters}
        if len(integers) != len(wire.parameters):
            raise InvalidInput(f"level {level.name!r}, {attribute.name!r}: a parameter comes twice")
        try:
            mechanism = build(wire.name, wire.epsilon, integers)
        except InvalidInput as error:
            raise InvalidInput(f"level {level.name!r}, {attribute.name!r}: {error}") from error
        if not attribute.domain.fits(mechanism):
            raise InvalidInput(
                f"level {level.name!r}: {mechanism.name} does not fit {attribute.name!r}"
            )
        mechanisms[attribute.name] = mechanism
    total = sum(Fraction(mechanism.epsilon) for mechanism in mechanisms.values())
    if not math.isfinite(level.epsilon) or total > Fraction(level.epsilon):
        raise InvalidInput(
            f"level {level.name!r} promises epsilon {level.epsilon:g} for a record, "
            f"but its mechanisms add up to {float(total):.6g}"
        )
    return Level(level.name, level.epsilon, MappingProxyType(mechanisms))
