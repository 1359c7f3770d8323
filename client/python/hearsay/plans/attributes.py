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
        self.domain.check_memo()


def domain_of(attribute: survey_pb2.Attribute) -> Domain:
    """Return the domain of a survey's attribute; raise `InvalidInput` where it is not valid."""
    match attribute.WhichOneof("domain"):
        case "categorical":
            return _categorical(attribute.categorical)
        case "numeric":
            return _numeric(attribute.numeric)
        case "set":
            given = attribute.set
            return SetOf(tuple(given.values), given.at_most, given.clamp)
        case "ratings":
            ratings = attribute.ratings
            keys = tuple(ratings.keys)
            return Ratings(keys, ratings.low, ratings.high, ratings.at_most, ratings.clamp)
        case "strings":
            strings = attribute.strings
            return Strings(strings.alphabet, strings.longest, tuple(strings.candidates))
    raise InvalidInput("needs a domain: categorical, numeric, set, ratings or strings")


def _categorical(given: survey_pb2.Categorical) -> Categorical:
    return Categorical(
        tuple(given.values),
        tuple(given.sensitive),
        tuple((tuple(c.values), c.scale) for _, c in sorted(given.classes.items())),
        tuple((name, tuple(m.sensitive)) for name, m in sorted(given.maps.items())),
    )


def _numeric(given: survey_pb2.Numeric) -> Numeric | Binned:
    if given.edges and (given.low or given.high or given.bins):
        raise InvalidInput("edges are in the place of low, high and bins: leave these out")
    if given.bins or given.edges:
        if given.step:
            raise InvalidInput("give bins or a step, not both")
        if given.sensitive or given.resolution or given.cap:
            raise InvalidInput(
                "numbers in bins are all protected alike: give bins, or sensitive regions or a "
                "resolution, not both"
            )
        if given.edges:
            return Binned.between(tuple(given.edges), given.clamp)
        return Binned(given.low, given.high, given.clamp, given.bins)
    return Numeric(
        given.low,
        given.high,
        given.clamp,
        given.step,
        tuple((region.low, region.high) for region in given.sensitive),
        tuple((part.upto, part.within) for part in given.resolution),
        given.cap,
    )
