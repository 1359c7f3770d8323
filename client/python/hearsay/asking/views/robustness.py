"""Views of what an answer is worth: forged reports, errors to come, and what mixing hides."""

from hearsay.asking.views import notes
from hearsay.asking.views.estimates import FORGED, RECOVER, options_of
from hearsay.asking.views.options import (
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
from hearsay.asking.views.view import ALL, Question, View

SUSPECT = Option(
    "suspect",
    "Values that may have been promoted",
    "values",
    says="A value that may have been promoted",
    kinds=("categorical",),
)
DELTA = Option("delta", "Delta of the bounds", "number", hint="1e-6")
HIDING_NOBODY = Option("forged", "So many records of each cohort hide nobody", "whole")
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


def _mixing(survey: str, given: Given) -> Question:
    options = {**given.stated(delta="number", forged="whole"), **given.selection()}
    return Question("mixing", (survey,), options)


def _forecast(survey: str, given: Given) -> Question:
    options = {**given.stated(goal="number", confidence="number"), **given.selection()}
    return Question("forecast", (survey, given.attribute), options)


VIEWS = (
    View(
        "forged",
        "Forged reports",
        f"How far so many forged reports could move each estimate, {_FORGED} unless more are asked "
        "for: the line beyond the interval.",
        ("categorical", "numeric"),
        (FORGED, RECOVER, *SELECTION, CONFIDENCE, METHOD),
        _forged,
        notes.of_estimates,
    ),
    View(
        "suspicions",
        "Suspicions",
        "Tests of whether the stored reports look forged. The server reads all the reports.",
        ("categorical",),
        (SUSPECT, LEVEL, PERIOD, FROM, TO, MAP, WHERE),
        _suspicions,
        notes.suspicions,
        poll=False,
    ),
    View(
        "forecast",
        "Error",
        "The error now, with twice as many people, and when it will be reached at this rate.",
        ALL,
        (GOAL, LEVEL, MAP, WHERE, CONFIDENCE),
        _forecast,
        notes.forecast,
    ),
    View(
        "mixing",
        "Mixing",
        "What mixing by a shuffler gives the records of a sealed survey, for each cohort of "
        "records that left it together.",
        (),
        (DELTA, HIDING_NOBODY, LEVEL, PERIOD, FROM, TO),
        _mixing,
        notes.mixing,
        poll=False,
        subject="",
    ),
)
