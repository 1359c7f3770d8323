"""What a survey asks: questions and attributes, and the domain that a message gives one."""

import math
from dataclasses import dataclass

from hearsay.plans.kinds import (
    Binned,
    Categorical,
    Domain,
    Grid,
    Numeric,
    Ratings,
    SetOf,
    Strings,
)
from hearsay.v1 import survey_pb2
from ldp import InvalidInput


@dataclass(frozen=True)
class Question:
    """What one mechanism randomises: an attribute, or a view of several.

    `cap` is the most epsilon that a report may have at any level.
    """

    name: str
    title: str
    domain: Domain | Grid
    memo: float = 0.0
    cap: float = math.inf


@dataclass(frozen=True)
class Attribute(Question):
    """What a survey wants to know of a person.

    `memo` is 0 where every report is drawn afresh. Otherwise a device keeps one permanent answer
    per distinct value, of at most `memo` times a report's epsilon, and reports it every period:
    itself where `memo` is 1, with fresh noise where it is more. Raises `InvalidInput` for
    another `memo`, or one for anything but words and categories that are protected alike.
    """

    domain: Domain

    def __post_init__(self) -> None:
        if not self.memo:
            return
        if not 1 <= self.memo < math.inf:
            raise InvalidInput(f"memo must be 0, or finite and >= 1, got {self.memo!r}")
        if isinstance(self.domain, Strings):
            return
        if not isinstance(self.domain, Categorical):
            raise InvalidInput("memo is for categorical answers and strings only")
        if self.domain.sensitive or self.domain.classes or self.domain.maps:
            raise InvalidInput("memo is for values that are all protected alike")


def domain_of(attribute: survey_pb2.Attribute) -> Domain:
    """Return the domain of a survey's attribute; raise `InvalidInput` where it is not valid."""
    if attribute.WhichOneof("domain") == "categorical":
        categorical = attribute.categorical
        return Categorical(
            tuple(categorical.values),
            tuple(categorical.sensitive),
            tuple((tuple(c.values), c.scale) for _, c in sorted(categorical.classes.items())),
            tuple((name, tuple(m.sensitive)) for name, m in sorted(categorical.maps.items())),
        )
    if attribute.WhichOneof("domain") == "numeric":
        numeric = attribute.numeric
        if numeric.edges and (numeric.low or numeric.high or numeric.bins):
            raise InvalidInput("edges are in the place of low, high and bins: leave these out")
        if numeric.bins or numeric.edges:
            if numeric.step:
                raise InvalidInput("give bins or a step, not both")
            if numeric.sensitive or numeric.resolution or numeric.cap:
                raise InvalidInput(
                    "numbers in bins are all protected alike: give bins, or sensitive regions or a "
                    "resolution, not both"
                )
            if numeric.edges:
                return Binned.between(tuple(numeric.edges), numeric.clamp)
            return Binned(numeric.low, numeric.high, numeric.clamp, numeric.bins)
        return Numeric(
            numeric.low,
            numeric.high,
            numeric.clamp,
            numeric.step,
            tuple((region.low, region.high) for region in numeric.sensitive),
            tuple((part.upto, part.within) for part in numeric.resolution),
            numeric.cap,
        )
    if attribute.WhichOneof("domain") == "set":
        given = attribute.set
        return SetOf(tuple(given.values), given.at_most, given.clamp)
    if attribute.WhichOneof("domain") == "ratings":
        ratings = attribute.ratings
        keys = tuple(ratings.keys)
        return Ratings(keys, ratings.low, ratings.high, ratings.at_most, ratings.clamp)
    if attribute.WhichOneof("domain") == "strings":
        strings = attribute.strings
        return Strings(strings.alphabet, strings.longest, tuple(strings.candidates))
    raise InvalidInput("needs a domain: categorical, numeric, set, ratings or strings")
