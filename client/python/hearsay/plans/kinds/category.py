"""Answers that are one of some values."""

import re
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

from hearsay.plans.kinds.kind import Kind
from hearsay.plans.kinds.names import check_names, find
from hearsay.v1 import survey_pb2
from ldp import Coins, InvalidInput, Mechanism
from ldp.core.exact import float_below
from ldp.core.mechanism import Categorical as CategoricalMechanism
from ldp.core.policy import MAX_CLASSES, Policy
from ldp.mechanisms.ranges.waves import Waves

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
"""What a map may be called."""

MOST_MAPS = 8
"""The most maps of one attribute: people at one level and map are one cohort of the estimate."""

# An error about an answer names its type only: messages end up in logs and crash reports, and
# the answer must not.


@dataclass(frozen=True)
class Categorical(Kind):
    """An answer that is one of `values`: at least two, all different, none empty.

    Where `sensitive` are given, the other values are ordinary: a report may reveal them.
    `classes` are (values, scale) that have a smaller epsilon. `maps` are (name, sensitive values),
    by name: a person chooses one, which then holds as `sensitive`, or none (`chosen`).
    """

    name: ClassVar[str] = "category"
    field: ClassVar[str] = "categorical"

    joins: ClassVar[bool] = True

    values: tuple[str, ...]
    sensitive: tuple[str, ...] = ()
    classes: tuple[tuple[tuple[str, ...], float], ...] = ()
    maps: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def of(cls, given: survey_pb2.Categorical) -> Self:
        """Return the kind that a survey describes; raise `InvalidInput` where it is none."""
        return cls(
            tuple(given.values),
            tuple(given.sensitive),
            tuple((tuple(c.values), c.scale) for _, c in sorted(given.classes.items())),
            tuple((name, tuple(m.sensitive)) for name, m in sorted(given.maps.items())),
        )

    def __post_init__(self) -> None:
        check_names("values", self.values, 2)
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
        self._check_maps()

    def _check_maps(self) -> None:
        if self.maps and (self.sensitive or self.classes):
            raise InvalidInput("give sensitive values, classes or maps, one of them")
        if len(self.maps) > MOST_MAPS:
            raise InvalidInput(f"there may be {MOST_MAPS} maps, got {len(self.maps)}")
        known: dict[frozenset[str], str] = {}
        for name, sensitive in self.maps:
            # An empty one would stand for no map.
            if not _NAME.fullmatch(name):
                raise InvalidInput(
                    'the name of a map is a lower-case letter, then letters, digits or "_", '
                    f"at most 64 in all, got {name!r}"
                )
            if not sensitive:
                raise InvalidInput(f"map {name!r} needs sensitive values: it would protect nothing")
            try:
                replace(self, sensitive=sensitive, maps=())
            except InvalidInput as error:
                raise InvalidInput(f"map {name!r}: {error}") from None
            if len(sensitive) == len(self.values):
                raise InvalidInput(
                    f"map {name!r} lists all values: that holds for those who choose no map"
                )
            same = known.setdefault(frozenset(sensitive), name)
            if same != name:
                raise InvalidInput(
                    f"maps {same!r} and {name!r} list the same values: the choice between them "
                    "would tell something of a person, and protect nothing"
                )

    def chosen(self, name: str) -> "Categorical":
        """Return the domain as those have it who chose a map; "" stands for none.

        Raises `InvalidInput` where there is no such map.
        """
        if not self.maps and not name:
            return self
        if name not in ("", *self.map_names):
            raise InvalidInput(f"map must be one of {', '.join(self.map_names)}, got {name!r}")
        found = replace(self, sensitive=dict(self.maps).get(name, ()), maps=())
        vars(found)["_categories"] = self._categories  # the same, and there may be 100,000
        return found

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

    def not_among(self, allowed: Collection[str]) -> list[str]:
        """Return the ordinary values that are not allowed."""
        return [value for value in self.ordinary if value not in allowed]

    @cached_property
    def _categories(self) -> Mapping[str, int]:
        return {value: category for category, value in enumerate(self.values)}

    def encode(self, answer: object) -> int:
        """Return the category of `answer`: a value, or an integer that spells one.

        Raises `InvalidInput` for anything else.
        """
        category = find(self._categories, answer)
        if category is None:
            raise InvalidInput(f"must be one of {self}, got another {type(answer).__name__}")
        return category

    def anything(self, coins: Coins) -> int:
        """Return a value drawn uniformly from the domain, as `encode` returns values."""
        return coins.below(len(self.values))

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers that are estimated."""
        return self.values

    def __str__(self) -> str:
        shown = self.values if len(self.values) <= 8 else (*self.values[:7], "...")
        return ", ".join(shown)

    def check_memo(self) -> None:
        """Raise `InvalidInput` unless all values are protected alike."""
        if self.sensitive or self.classes or self.maps:
            raise InvalidInput("memo is for values that are all protected alike")

    @property
    def mechanisms(self) -> type[Mechanism]:
        """The base class of mechanisms that randomise categories, of which `Waves` are for bins."""
        return CategoricalMechanism

    def check(self, mechanism: Mechanism) -> None:
        """Raise `InvalidInput` unless the mechanism is for these values and protects them."""
        if (
            not isinstance(mechanism, CategoricalMechanism)
            or isinstance(mechanism, Waves)  # of bins alone
            or mechanism.k != len(self.values)
        ):
            raise InvalidInput(f"{mechanism.name} does not fit {len(self.values)} values")
        kept: Policy | None = getattr(mechanism, "promise", None)
        if kept is None:
            # The mechanism has checked itself that all pairs are protected alike: enough for
            # sensitive values, and of classes the best protected one decides. A server must not
            # choose how often all values are looked at.
            if not self.classes:
                return
            epsilon = mechanism.epsilon
            least = float_below(Fraction(epsilon) * Fraction(self._least_scale))
            holds = Policy.uniform(2, epsilon).implies(Policy.uniform(2, least))
        else:
            uniform = Policy.uniform(mechanism.k, mechanism.epsilon)
            holds = kept.implies(self.policy(mechanism.epsilon) or uniform)
        if not holds:
            raise InvalidInput(f"{mechanism.name} keeps another policy than its values declare")

    @cached_property
    def _least_scale(self) -> float:
        scales = {scale for _, scale in self.classes}
        if sum(len(values) for values, _ in self.classes) < len(self.values):
            scales.add(1.0)
        if len(scales) > MAX_CLASSES:
            raise InvalidInput(f"a policy has at most {MAX_CLASSES} classes, got {len(scales)}")
        return min(scales)
