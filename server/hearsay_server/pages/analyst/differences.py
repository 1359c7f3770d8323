"""Views of differences: between parts of the reports, and over time."""

from typing import Any

import pandas as pd

from hearsay.asking.answer import errors_text
from hearsay_server.answers.selecting import parts, sets_of
from hearsay_server.pages.analyst import charts
from hearsay_server.pages.analyst.estimates import SUM
from hearsay_server.pages.analyst.options import (
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
from hearsay_server.pages.analyst.view import ALL, Question, View
from ldp.errors import InvalidInput

COMPARE = Option(
    "compare",
    "Compare",
    "parts",
    hint="level=A,B or platform=A,B or period=A,B or period=A..B,C..D",
)
CHANGE = Option("change", "From one period to another", "two periods")


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
    return found


def _periods(survey: str, given: Given, table: pd.DataFrame) -> Question | None:
    """Return the question for each period's estimates of the values that changed most clearly."""
    if table.attrs["statistic"] == "share":
        return None
    options = {**given.selection(), **given.stated(confidence="number")}
    if table.attrs["statistic"] != "mean":
        options["values"] = list(table["p_value"].nsmallest(_DRAWN).index)
    return Question("by_period", (survey, given.attribute), options)


def _tests(table: pd.DataFrame) -> list[str]:
    said = [
        "Call those different where p (Holm) is at most 0.05: then the probability that any of "
        "them is not is at most 5%."
    ]
    if "panels" in table.attrs:
        text = errors_text(table.attrs["panels"])
        said.append(f"{text[0].upper()}{text[1:]}.")
    if "any_p_value" in table.attrs and len(table) > 1:
        said.append(f"Test that nothing changed at all: p = {table.attrs['any_p_value']:.2g}.")
    return said


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
        charts.differences,
        _tests,
    ),
    View(
        "change",
        "Change",
        "By how much a period differs from an earlier one.",
        ALL,
        (CHANGE, LEVEL, MAP, WHERE, SUM, *INTERVALS),
        _change,
        charts.differences,
        _tests,
    ),
    View(
        "trend",
        "Trend",
        "The change per period, by a straight line through the periods.",
        ALL,
        (*_WHEN, SUM, *INTERVALS),
        _trend,
        charts.differences,
        _tests,
        over=_periods,
    ),
    View(
        "breaks",
        "Breaks",
        "The period in which each value changed most clearly.",
        ALL,
        (*_WHEN, SUM, *INTERVALS),
        _breaks,
        charts.differences,
        _tests,
        over=_periods,
    ),
)
