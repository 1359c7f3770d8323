"""The agreement on a survey that is built into an app, and holds whatever a server sends."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hearsay.plans.plan import Plan, parse
from hearsay.plans.properties import Properties, Property
from ldp import InvalidInput

_LONGEST = 200
"""Characters of a value in an error."""


@dataclass(frozen=True)
class Agreement:
    """An app's agreement on a survey's plan; `hearsay codegen` writes it from the survey file.

    `plan` is the plan itself, so that the app works before it has reached the server; without it
    the first plan that comes must fit. Raises `InvalidInput` where the revision is not written as
    64 lower-case hexadecimal digits, and where `plan` is not the plan that the rest describes.
    """

    survey: str
    revision: str
    """The SHA-256 of the plan, in hexadecimal."""
    period: str
    """The survey's time unit: PT1H, P1D, P1W, P1M or P1Y; "" for one record per person, ever."""
    domains: Mapping[str, tuple[str, ...] | tuple[float, float]]
    """By attribute: the values in the survey's order, (low, high) of a number, or of words the
    alphabet, the most symbols as "12 at most", and the candidates."""
    levels: Mapping[str, float]
    """The epsilon of one whole record, by level."""
    default_level: str = ""
    may_reveal: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The ordinary values that a report may reveal, by attribute with sensitive values: of numbers
    ranges, such as "0..800"."""
    may_tell_changes: tuple[str, ...] = ()
    """The memoised attributes: their reports may tell when an answer changes or comes back."""
    plan: bytes = field(default=b"", repr=False)
    maps: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """The sensitive values of each map, by attribute and by the map's name. A report of somebody
    who chose the map may reveal the other values."""
    views: tuple[tuple[str, ...], ...] = ()
    """The attributes that are asked together."""
    panels: int = 0
    """Into how many panels people are divided; a person's panel is drawn once, and sent in the
    clear with every report of the survey: it links them."""
    properties: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The values of each public property, which the app may give in the clear."""

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.revision):
            raise InvalidInput(
                f"revision must be 64 lower-case hexadecimal digits, got {self.revision!r}"
            )
        if self.plan:
            found = hashlib.sha256(self.plan).hexdigest()
            if found != self.revision:
                raise InvalidInput(
                    f"the plan in the agreement on {self.survey!r} has revision {found}, "
                    f"expected {self.revision}: write the module again with `hearsay codegen`"
                )
            self.check(parse(self.plan))

    @property
    def declared(self) -> Properties:
        """The public properties."""
        return Properties(tuple(Property(n, "", values) for n, values in self.properties.items()))

    @classmethod
    def on(cls, data: bytes) -> "Agreement":
        """Return the agreement on a plan, given its bytes; raise `InvalidInput` for other bytes."""
        return cls(**_contents(parse(data)), plan=data)

    def check(self, plan: Plan) -> None:
        """Raise `InvalidInput`, naming the first difference, unless this is the plan agreed to."""
        for name, offered in _contents(plan).items():
            agreed, place = getattr(self, name), name
            if agreed == offered:
                continue
            if isinstance(offered, dict):
                keys = [*agreed, *offered]
                key = next(key for key in keys if agreed.get(key) != offered.get(key))
                agreed, offered, place = agreed.get(key), offered.get(key), f"{name}[{key!r}]"
            raise InvalidInput(
                f"the plan of {plan.survey!r} is not what the app agreed to: {place} is "
                f"{_shown(offered)}, the app expects {_shown(agreed)}"
            )


def _shown(value: object) -> str:
    """Return a value as an error shows it; None stands for an attribute or level not there."""
    text = "absent" if value is None else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _contents(plan: Plan) -> dict[str, Any]:
    """Return the fields of an agreement on a plan, except `plan` itself.

    The revision comes last: it differs where anything else does, and tells people the least.
    """
    domains: dict[str, tuple[str, ...] | tuple[float, float]] = {}
    maps: dict[str, dict[str, tuple[str, ...]]] = {}
    for name, attribute in plan.attributes.items():
        domain = attribute.domain
        domains[name] = domain.agreed
        if domain.maps:
            maps[name] = dict(domain.maps)
    return {
        "survey": plan.survey,
        "period": plan.period,
        "domains": domains,
        "levels": {level.name: level.epsilon for level in plan.levels.values()},
        "default_level": plan.default_level,
        "may_reveal": dict(plan.revealed),
        "maps": maps,
        "may_tell_changes": tuple(n for n, attribute in plan.attributes.items() if attribute.memo),
        "views": tuple(view.attributes for view in plan.views.values()),
        "panels": plan.panels,
        "properties": {each.name: each.values for each in plan.properties.declared},
        "revision": plan.revision.hex(),
    }
