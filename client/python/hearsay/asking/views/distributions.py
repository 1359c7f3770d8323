"""Views of how a number is distributed."""

from typing import Any

from hearsay.asking.views import notes
from hearsay.asking.views.options import (
    CONFIDENCE,
    SELECTION,
    STEP,
    WEIGHTS,
    Given,
    Missing,
    Option,
)
from hearsay.asking.views.view import Question, View
from ldp.errors import InvalidInput

BINS = Option("bins", "Bins", "whole", hint="as many as the reports can show")
QUANTILE = Option("quantile", "Quantile", "number", hint="0.5")
BETWEEN = Option(
    "between",
    "From and to",
    "pair",
    needed=True,
    says="The two ends of the range; of its middle half without them",
)
OTHER = Option("other", "And of", "other", says="Another number: the share in both ranges")
OTHER_BETWEEN = Option(
    "other-between", "From and to, of the other", "pair", says="The range of the other number"
)

_COMMON = (*SELECTION, STEP, CONFIDENCE, *WEIGHTS)


def _options(given: Given) -> dict[str, Any]:
    stated = given.stated(step="number", confidence="number")
    return {**stated, **given.selection(), **given.weights()}


def histogram(survey: str, given: Given) -> Question:
    options = {**given.stated(bins="whole"), **_options(given)}
    return Question("distribution", (survey, given.attribute), options)


def _quantiles(survey: str, given: Given) -> Question:
    levels = given.numbers("quantile") or [0.1, 0.25, 0.5, 0.75, 0.9]
    return Question("quantile", (survey, given.attribute, levels), _options(given))


def _below(survey: str, given: Given) -> Question:
    return Question("cdf", (survey, given.attribute), _options(given))


def _between(survey: str, given: Given) -> Question:
    ends = given.pair("between")
    if ends is None:
        raise Missing("between is needed: a range, by dragging over the bins or by its two ends")
    other, its_ends = given.one("other"), given.pair("other-between")
    if bool(other) != (its_ends is not None):
        raise InvalidInput("other and other-between go together: a second number and its range")
    if its_ends is not None:
        if given.many("margins"):
            raise InvalidInput("margins weight one number: leave out the other one")
        ranges = {given.attribute: ends, other: its_ends}
        return Question("rectangle", (survey, ranges), _options(given))
    return Question("between", (survey, given.attribute, *ends), _options(given))


VIEWS = (
    View(
        "distribution",
        "Distribution",
        "How a number is distributed.",
        ("numeric",),
        (BINS, *_COMMON),
        histogram,
        notes.weights,
    ),
    View(
        "quantiles",
        "Quantiles",
        "The number below which a share of the people are.",
        ("numeric",),
        (QUANTILE, *_COMMON),
        _quantiles,
        notes.weights,
    ),
    View(
        "cdf",
        "Share below",
        "The share of the people at or below each number.",
        ("numeric",),
        _COMMON,
        _below,
        notes.weights,
    ),
    View(
        "between",
        "Range",
        "The share of the people whose number is in a range.",
        ("numeric",),
        (BETWEEN, *_COMMON, OTHER, OTHER_BETWEEN),
        _between,
        notes.weights,
    ),
)
