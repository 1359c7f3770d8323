"""Views of differences: between parts of the reports, and over time."""

from typing import TYPE_CHECKING, Any

import numpy as np

from hearsay.asking.answer import Answer
from hearsay.asking.texts import parts, sets_of
from hearsay.asking.views import notes
from hearsay.asking.views.estimates import SUM
from hearsay.asking.views.options import (
    FROM,
    INTERVALS,
    LEVEL,
    MAP,
    SELECTION,
    TO,
    WHERE,
    Given,
    Missing,
    Option,
)
from hearsay.asking.views.view import ALL, Question, View
from ldp.errors import InvalidInput

if TYPE_CHECKING:
    from hearsay.asking.analyst import Analyst

COMPARE = Option(
    "compare",
    "Compare",
    "parts",
    hint="level=A,B or platform=A,B or period=A,B or period=A..B,C..D",
    needed=True,
    says="Two parts of the reports: level=A,B or map=A,B or platform=A,B or period=A,B or "
    "period=A..B,C..D; the first and the last level, or period, without it",
)
CHANGE = Option(
    "change",
    "From one period to another",
    "two periods",
    needed=True,
    says="Two periods, the earlier one first; the first and the last one without it",
)
BETWEEN = Option(
    "between",
    "The share of the numbers between",
    "pair",
    says="Of a number in bins: the share of the numbers from LOW to HIGH",
    kinds=("numeric",),
)


def _intervals(given: Given) -> dict[str, Any]:
    return given.stated(confidence="number", simultaneous="flag")


def _compare(survey: str, given: Given) -> Question:
    named = given.needed("compare", f"two parts of the reports, such as {COMPARE.hint}")
    both = [
        {name: value for name, value in part.items() if value}
        for part in parts(named, given.selection())
    ]
    return Question("compare", (survey, given.attribute, *both), _intervals(given))


def _change(survey: str, given: Given) -> Question:
    periods = given.many("change")
    if not periods:
        raise Missing("change is needed: two periods, the earlier one first")
    if len(periods) != 2:
        raise InvalidInput(f"change takes two periods, got {len(periods)}")
    return Question("change", (survey, given.attribute, *periods), _over_time(given))


def _trend(survey: str, given: Given) -> Question:
    return Question("trend", (survey, given.attribute), _over_time(given))


def _breaks(survey: str, given: Given) -> Question:
    return Question("breaks", (survey, given.attribute), _over_time(given))


def _over_time(given: Given) -> dict[str, Any]:
    found = {**given.selection(), **_intervals(given)}
    if sums := sets_of(given.many("sum")):
        found["sums"] = sums
    if between := given.pair("between"):
        found["ranges"] = [between]
    return found


def _over_periods(analyst: "Analyst", survey: str, given: Given, answer: Answer) -> list[Answer]:
    """Return the estimates of the periods under what changed, of the values that did so most
    clearly; of sums the changes alone."""
    if answer.statistic == "share":
        return [answer]
    options = {**given.selection(), **given.stated(confidence="number")}
    if answer.statistic != "mean":
        table = answer.table()
        clearest = np.argsort(table.column("p_value").values, kind="stable")[:_DRAWN]
        options["values"] = [table.index[0].labels[place] for place in clearest]
    periods = Question("by_period", (survey, given.attribute), options).ask(analyst)
    from hearsay.asking.plots import over_time  # matplotlib is for pictures alone

    return [over_time(periods, answer), answer]


_DRAWN = 6
"""Values that the picture of a trend has over time."""

_WHEN = (LEVEL, FROM, TO, MAP, WHERE)

VIEWS = (
    View(
        "compare",
        "Compare",
        "By how much two parts of the reports differ, with a test for each value.",
        ALL,
        (COMPARE, *SELECTION, *INTERVALS),
        _compare,
        notes.differences,
    ),
    View(
        "change",
        "Change",
        "By how much a period differs from an earlier one.",
        ALL,
        (CHANGE, LEVEL, MAP, WHERE, SUM, BETWEEN, *INTERVALS),
        _change,
        notes.differences,
    ),
    View(
        "trend",
        "Trend",
        "The change per period, by a straight line through the periods.",
        ALL,
        (*_WHEN, SUM, BETWEEN, *INTERVALS),
        _trend,
        notes.differences,
        pictured=_over_periods,
    ),
    View(
        "breaks",
        "Breaks",
        "The period in which each value changed most clearly.",
        ALL,
        (*_WHEN, SUM, BETWEEN, *INTERVALS),
        _breaks,
        notes.differences,
        pictured=_over_periods,
    ),
)
