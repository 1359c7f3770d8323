"""The kinds of answers: one class each, in a file of its own."""

from typing import Any

from hearsay.plans.kinds.binned import Binned, Grid
from hearsay.plans.kinds.category import MOST_MAPS, Categorical
from hearsay.plans.kinds.items import SetOf
from hearsay.plans.kinds.kind import ByKind, Kind
from hearsay.plans.kinds.number import Numeric
from hearsay.plans.kinds.ratings import Ratings
from hearsay.plans.kinds.words import Strings

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
]

KINDS = (Categorical, Numeric, Binned, SetOf, Ratings, Strings, Grid)

Domain = Categorical | Numeric | Binned | SetOf | Ratings | Strings

Value = Any
"""An encoded answer: what a kind's `encode` and `anything` return."""
