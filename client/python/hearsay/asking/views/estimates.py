"""Views of one attribute: estimates, also by group, sizes of sets, pairs of items, words."""

from typing import Any

from hearsay.asking.texts import sets_of
from hearsay.asking.views import notes
from hearsay.asking.views.options import (
    CONFIDENCE,
    INTERVALS,
    METHOD,
    SELECTION,
    TOP,
    WEIGHTS,
    Given,
    Option,
)
from hearsay.asking.views.view import ALL, Question, View

CONSISTENT = Option(
    "consistent",
    "Make frequencies a distribution by",
    "choice",
    ("norm-sub", "norm-mul", "norm-cut", "norm", "base-cut", "power", "power-ns"),
)
VALUES = Option(
    "values",
    "Only these values",
    hint="A,B",
    says='Only the rows of these values: A,B; one with a comma as "A,B"',
)
FORGED = Option("forged", "How far could so many forged reports move it?", "whole")
RECOVER = Option("recover", "Take out so many forged reports per genuine one", "number")
SUM = Option(
    "sum", "Values to add up", hint="bus,train", says='Values to add up, such as "bus,train"'
)
BY = Option(
    "by",
    "By",
    "by",
    needed=True,
    says="level, period, map, or a public property: one answer for each; level without it, or "
    "period where there is one level",
)
CANDIDATES = Option(
    "candidates",
    "Only the shares of these words, one a line",
    "words",
    hint="tea\ncoffee",
    says="Only the shares of the words in this file, one a line",
)

_KEYWORDS = {
    "confidence": "number",
    "simultaneous": "flag",
    "method": "one",
    "top": "whole",
    "forged": "whole",
    "recover": "number",
}


def options_of(given: Given) -> dict[str, Any]:
    """Return the keywords of `Analyst.estimate` that an address has."""
    found: dict[str, Any] = {**given.selection(), **given.weights(), **given.stated(**_KEYWORDS)}
    if consistent := given.one("consistent"):
        found["consistency"] = consistent
    if values := given.listed("values"):
        found["values"] = values
    return found


def _estimate(survey: str, given: Given) -> Question:
    args = (survey, given.attribute)
    if sums := sets_of(given.many("sum")):
        return Question("sums", (*args, sums), options_of(given))
    return Question("estimate", args, options_of(given))


_METHODS = {"level": "by_level", "period": "by_period", "map": "by_map"}


def _by(survey: str, given: Given) -> Question:
    by = given.needed("by", "level, period, map, or a public property")
    if by in _METHODS:
        return Question(_METHODS[by], (survey, given.attribute), options_of(given))
    return Question("by_property", (survey, given.attribute, by), options_of(given))


def _sizes(survey: str, given: Given) -> Question:
    return Question("set_sizes", (survey, given.attribute), options_of(given))


def _pairs(survey: str, given: Given) -> Question:
    options = given.stated(top="whole", confidence="number")
    return Question("pairs", (survey, given.attribute), {**options, **given.selection()})


def _words(survey: str, given: Given) -> Question:
    options = {**given.stated(confidence="number"), **given.selection()}
    if words := given.lines("candidates"):
        return Question("frequencies_of", (survey, given.attribute, words), options)
    options |= given.stated(top="whole")
    return Question("heavy_hitters", (survey, given.attribute), options)


VIEWS = (
    View(
        "estimate",
        "Estimates",
        "What the crowd says, each number with its interval.",
        ALL,
        (*SELECTION, *INTERVALS, METHOD, CONSISTENT, TOP, VALUES, SUM, FORGED, RECOVER, *WEIGHTS),
        _estimate,
        notes.of_estimates,
    ),
    View(
        "by",
        "By group",
        "One answer for each level, period, map or value of a public property.",
        ALL,
        (BY, *SELECTION, *INTERVALS, METHOD, CONSISTENT, TOP, VALUES, FORGED, *WEIGHTS),
        _by,
    ),
    View(
        "sizes",
        "Sizes of sets",
        "How many items people's sets have.",
        ("set",),
        (*SELECTION, *INTERVALS, METHOD, *WEIGHTS),
        _sizes,
        notes.sizes,
    ),
    View(
        "pairs",
        "Pairs of items",
        "Which share of people have both of two items. The server reads all the reports.",
        ("set",),
        (*SELECTION, TOP, CONFIDENCE),
        _pairs,
        poll=False,
    ),
    View(
        "words",
        "Words",
        "Which words are frequent. The server reads all the reports.",
        ("strings",),
        (*SELECTION, TOP, CANDIDATES, CONFIDENCE),
        _words,
        notes.of_estimates,
        poll=False,
    ),
)
