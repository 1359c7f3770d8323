"""The kinds of answers: one class each, in a file of its own."""

from collections.abc import Callable, Mapping
from typing import Any

from hearsay.plans.kinds.binned import Binned, Grid
from hearsay.plans.kinds.category import MOST_MAPS, Categorical
from hearsay.plans.kinds.items import SetOf
from hearsay.plans.kinds.kind import ByKind, Kind
from hearsay.plans.kinds.number import Numeric
from hearsay.plans.kinds.ratings import Ratings
from hearsay.plans.kinds.words import Strings
from hearsay.v1 import survey_pb2
from ldp import InvalidInput

__all__ = [
    "KINDS",
    "MOST_MAPS",
    "Binned",
    "ByKind",
    "Categorical",
    "Domain",
    "Grid",
    "Kind",
    "Numeric",
    "Ratings",
    "SetOf",
    "Strings",
    "Value",
    "domain_of",
]

KINDS = (Categorical, Numeric, Binned, SetOf, Ratings, Strings, Grid)

Domain = Categorical | Numeric | Binned | SetOf | Ratings | Strings

Value = Any
"""An encoded answer: what a kind's `encode` and `anything` return."""


def _of_number(given: survey_pb2.Numeric) -> Numeric | Binned:
    return Binned.of(given) if given.bins or given.edges else Numeric.of(given)


_BY_FIELD: Mapping[str, Callable[[Any], Domain]] = {
    "categorical": Categorical.of,
    "numeric": _of_number,
    "set": SetOf.of,
    "ratings": Ratings.of,
    "strings": Strings.of,
}


def domain_of(attribute: survey_pb2.Attribute) -> Domain:
    """Return the kind of an attribute's answers; raise `InvalidInput` where it is not valid."""
    field = attribute.WhichOneof("domain")
    if field not in _BY_FIELD:
        *names, last = _BY_FIELD
        raise InvalidInput(f"needs a domain: {', '.join(names)} or {last}")
    return _BY_FIELD[field](getattr(attribute, field))
