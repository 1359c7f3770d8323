"""Views of what an answer is worth: forged reports, and errors to come."""

import pandas as pd

from hearsay_server.pages.analyst import charts
from hearsay_server.pages.analyst.estimates import FORGED, RECOVER, options_of
from hearsay_server.pages.analyst.options import (
    CONFIDENCE,
    FROM,
    LEVEL,
    MAP,
    METHOD,
    PERIOD,
    SELECTION,
    TO,
    WHERE,
    Given,
    Option,
)
from hearsay_server.pages.analyst.view import ALL, Question, View

SUSPECT = Option("suspect", "Values that may have been promoted", "values")
GOAL = Option("goal", "The standard error that is wanted", "number")

_FORGED = 10


def _forged(survey: str, given: Given) -> Question:
    options = {"forged": _FORGED, **options_of(given)}
    return Question("estimate", (survey, given.attribute), options)


def _suspicions(survey: str, given: Given) -> Question:
    options = dict(given.selection())
    if targets := given.many("suspect"):
        options["targets"] = targets
    return Question("suspicions", (survey, given.attribute), options)


def _forecast(survey: str, given: Given) -> Question:
    options = {**given.stated(goal="number", confidence="number"), **given.selection()}
    return Question("forecast", (survey, given.attribute), options)


def _rate(table: pd.DataFrame) -> list[str]:
    rate, twice = table.attrs["rate"], table.attrs["twice"]
    said = [
        "The error of n people falls as 1 / sqrt(n) while as large a share of them chooses each "
        "level: of twice as many people it is 29% smaller."
    ]
    if table.attrs["repeats"] > 1:
        said.append(
            "It falls by reports of other people. These errors allow for the same people in every "
            "period, whose further reports may not lower it at all: then the times below are too "
            "early."
        )
    if table.attrs["closed"]:
        said.append("This survey is closed: no more reports come.")
        return said
    if rate is None:
        said.append(
            "When that will be is not known: the survey has no periods, this is its first one, or "
            "no reports came of late."
        )
        return said
    when = f"in {twice}" if twice else "after the year 9999"
    said.append(
        f"{rate:,.0f} reports came per period of late. At this rate there will be twice as many "
        f"reports {when}."
    )
    if "reached" in table.attrs:
        reached = table.attrs["reached"]
        said.append(
            f"Every row will have the wanted error by the end of {reached}."
            if reached
            else "The wanted error is further away than the year 9999."
        )
    return said


VIEWS = (
    View(
        "forged",
        "Forged reports",
        f"How far so many forged reports could move each estimate, {_FORGED} unless more are asked "
        "for: the line beyond the interval.",
        ("categorical", "numeric"),
        (FORGED, RECOVER, *SELECTION, CONFIDENCE, METHOD),
        _forged,
        charts.intervals,
    ),
    View(
        "suspicions",
        "Suspicions",
        "Tests of whether the stored reports look forged. The server reads all the reports.",
        ("categorical",),
        (SUSPECT, LEVEL, PERIOD, FROM, TO, MAP, WHERE),
        _suspicions,
        charts.nothing,
        poll=False,
    ),
    View(
        "forecast",
        "Error",
        "The error now, with twice as many people, and when it will be reached at this rate.",
        ALL,
        (GOAL, LEVEL, MAP, WHERE, CONFIDENCE),
        _forecast,
        charts.errors,
        _rate,
    ),
)
