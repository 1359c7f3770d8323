"""Public groups of devices: the properties that an app gives in the clear, and panels.

A group is one combination of a value, or none, of each of a survey's properties. A panel is drawn
by the device. What both tell of a device is at most 12 bits: `MOST_TOLD` combinations.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from types import MappingProxyType

from hearsay.plans.texts import check_differ, normal
from hearsay.v1 import survey_pb2
from ldp import InvalidInput

MOST_PROPERTIES, MOST_VALUES = 8, 64
"""The most properties of a survey, and the most values of one."""

PANEL = "panel"
"""The name by which panels are selected beside properties; no property has it."""

MOST_PANELS = 64
"""The most panels of a survey."""

MOST_TOLD = 1 << 12
"""The most combinations of a panel and a group: what is in the clear links a person's reports."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")

_TAKEN = ("level", "map", "panel", "period")
"""Names that stand for something else where reports are selected and grouped."""


@dataclass(frozen=True)
class Property:
    """A public property of a device, such as its platform, with the values that it may have."""

    name: str
    title: str
    values: tuple[str, ...]

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidInput(
                'the name of a property is a lower-case letter, then letters, digits or "_", '
                f"at most 64 in all, got {self.name!r}"
            )
        if self.name in _TAKEN:
            raise InvalidInput(
                f"a property cannot be called {', '.join(_TAKEN[:-1])} or {_TAKEN[-1]}, "
                f"got {self.name!r}"
            )
        if not 1 <= len(self.values) <= MOST_VALUES:
            raise InvalidInput(
                f"the property {self.name!r} needs 1 to {MOST_VALUES} values, "
                f"got {len(self.values)}"
            )
        if not all(self.values):
            raise InvalidInput(
                f"the values of the property {self.name!r} must not be empty: an empty one stands "
                "for an app that gave none"
            )
        check_differ(f"the values of the property {self.name!r}", self.values)


@dataclass(frozen=True)
class Properties:
    """All properties of a survey, in its order; none where it declares none."""

    declared: tuple[Property, ...] = ()

    def __bool__(self) -> bool:
        """Whether the survey declares any."""
        return bool(self.declared)

    @cached_property
    def by_name(self) -> Mapping[str, Property]:
        """The properties by name."""
        return MappingProxyType({each.name: each for each in self.declared})

    @property
    def combinations(self) -> int:
        """The number of groups: combinations of a value, or none, of each property."""
        return math.prod(len(each.values) + 1 for each in self.declared)

    def checked(self, given: Mapping[str, str]) -> tuple[str, ...]:
        """Return the value of each property, "" for one that is not given or not declared.

        Raises `InvalidInput`, naming those declared, for another property.
        """
        for name in given:
            self.named(name)
        values = [(each, normal(given.get(each.name, ""))) for each in self.declared]
        return tuple(value if value in each.values else "" for each, value in values)

    def undeclared(self, given: Mapping[str, str]) -> list[str]:
        """Return what is wrong with each of the given values that the survey does not declare."""
        return [
            self._wrong(self.named(name), value)
            for name, value in given.items()
            if value and normal(value) not in self.named(name).values
        ]

    @staticmethod
    def _wrong(declared: Property, value: str) -> str:
        return (
            f"the property {declared.name!r} has no value {value!r}; the survey declares "
            f"{', '.join(declared.values)}"
        )

    def named(self, name: str) -> Property:
        """Return a property; raise `InvalidInput`, naming those declared, where there is none."""
        found = self.by_name.get(name)
        if found is None:
            known = ", ".join(self.by_name) or "none"
            raise InvalidInput(f"the survey has no property {name!r}; it declares {known}")
        return found

    def check(self, name: str, value: str) -> None:
        """Raise `InvalidInput`, naming those declared, for another property or another value."""
        for wrong in self.undeclared({name: value}):
            raise InvalidInput(wrong)

    def group(self, values: Sequence[str]) -> str:
        """Return the name of the group of one value, or "", of each property, as tallies have it.

        It is "" where nothing is declared. Raises `InvalidInput` for another number of values, and
        for another value.
        """
        if len(values) != len(self.declared):
            raise InvalidInput(
                f"expected {len(self.declared)} values of properties "
                f"({', '.join(self.by_name) or 'none are declared'}), got {len(values)}"
            )
        for each, value in zip(self.declared, values, strict=True):
            if value and value not in each.values:  # as it is: batches have normal forms
                raise InvalidInput(self._wrong(each, value))
        return group_of(values)

    def groups(self, where: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
        """Return the names of the groups in which each named property has one of the given values.

        An empty value stands for devices whose app gave none. Raises `InvalidInput`, naming those
        declared, for another property or another value.
        """
        for name, values in where.items():
            for value in values:
                self.check(name, value)
        chosen = (map(normal, where.get(each.name, ("", *each.values))) for each in self.declared)
        return tuple(map(group_of, product(*map(dict.fromkeys, chosen))))

    def values_of(self, group: str) -> Mapping[str, str]:
        """Return the value of each property in a group, by name; "" where none was given."""
        values = json.loads(group) if group else ()
        return dict(zip(self.by_name, values, strict=True))


NO_PROPERTIES = Properties()


def properties_of(survey: survey_pb2.Survey) -> Properties:
    """Return a survey's properties; raise `InvalidInput`, naming the place, where they cannot be.

    Checks its panels too, which are to be told together with the properties.
    """
    if len(survey.properties) > MOST_PROPERTIES:
        raise InvalidInput(
            f"a survey has at most {MOST_PROPERTIES} properties, got {len(survey.properties)}"
        )
    found: list[Property] = []
    names = {attribute.name for attribute in survey.attributes}
    for position, wire in enumerate(survey.properties):
        try:
            found.append(Property(wire.name, wire.title, tuple(wire.values)))
            if wire.name in names:
                raise InvalidInput(f"the name {wire.name!r} is taken")
        except InvalidInput as error:
            raise InvalidInput(f"properties[{position}]: {error}") from None
        names.add(wire.name)
    properties = Properties(tuple(found))
    panels = survey.panels
    if panels and not survey.period:
        raise InvalidInput(
            f"panels need a survey with a period: without, nobody reports twice, got {panels}"
        )
    if panels and not 2 <= panels <= MOST_PANELS:
        raise InvalidInput(f"panels must be 2 to {MOST_PANELS}, or left out, got {panels}")
    told = max(1, panels) * properties.combinations
    if told > MOST_TOLD:
        with_panels = f", with {panels} panels," if panels else ""
        raise InvalidInput(
            f"properties{with_panels} have {told} combinations of values, counting none given as a "
            f"value, and may have {MOST_TOLD}: what is sent in the clear links a person's reports. "
            "Declare fewer values or properties"
        )
    return properties


def group_of(values: Sequence[str]) -> str:
    """Return the name of the group of a batch that was checked; "" without properties."""
    return json.dumps(list(values), ensure_ascii=False, separators=(",", ":")) if values else ""
