"""Views of an attribute by level, period, map or public property, each by itself."""

from hearsay_server.pages.analyst import charts
from hearsay_server.pages.analyst.estimates import CONSISTENT, FORGED, VALUES, options_of
from hearsay_server.pages.analyst.options import (
    INTERVALS,
    METHOD,
    SELECTION,
    TOP,
    WEIGHTS,
    Given,
    Option,
)
from hearsay_server.pages.analyst.view import ALL, Question, View

BY = Option("by", "By", "by")
_METHODS = {"level": "by_level", "period": "by_period", "map": "by_map"}


def _by(survey: str, given: Given) -> Question:
    by = given.needed("by", "level, period, map, or a public property")
    if by in _METHODS:
        return Question(_METHODS[by], (survey, given.attribute), options_of(given))
    return Question("by_property", (survey, given.attribute, by), options_of(given))


VIEWS = (
    View(
        "by",
        "By group",
        "One answer for each level, period, map or value of a public property.",
        ALL,
        (BY, *SELECTION, *INTERVALS, METHOD, CONSISTENT, TOP, VALUES, FORGED, *WEIGHTS),
        _by,
        charts.groups,
    ),
)
