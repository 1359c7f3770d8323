"""Views of two attributes together."""

from typing import Any

import pandas as pd

from hearsay_server.pages.analyst import charts
from hearsay_server.pages.analyst.options import (
    FROM,
    INTERVALS,
    LEVEL,
    METHOD,
    PERIOD,
    TO,
    WHERE,
    Given,
    Option,
)
from hearsay_server.pages.analyst.view import Question, View

OTHER = Option("other", "With", "other")
GIVEN = Option("given", "Within the groups of", "other")
NONNEGATIVE = Option("nonnegative", "The most likely table, without negative shares", "flag")
REFERENCE = Option("reference", "Compare the other groups with", hint="one of the groups")

_SELECTION = (LEVEL, PERIOD, FROM, TO, WHERE)
_KINDS = ("categorical", "numeric")


def _options(given: Given, **more: str) -> dict[str, Any]:
    kinds = {"confidence": "number", "simultaneous": "flag", **more}
    return {**given.stated(**kinds), **given.selection()}


def _joint(survey: str, given: Given) -> Question:
    other = given.needed("other", "another attribute of the survey")
    options = _options(given, method="one", nonnegative="flag")
    return Question("crosstab", (survey, given.attribute, other), options)


def _independent(survey: str, given: Given) -> Question:
    other = given.needed("other", "another attribute of the survey")
    return Question("chi2_contingency", (survey, given.attribute, other), given.selection())


def _shares(survey: str, given: Given, table: pd.DataFrame) -> Question:
    """Return the question for the table that the test of independence is of."""
    return Question("crosstab", (survey, given.attribute, given.one("other")), given.selection())


def _within(survey: str, given: Given) -> Question:
    by = given.needed("given", "the attribute whose values are the groups")
    return Question("within", (survey, given.attribute, by), _options(given, method="one"))


def _apart(survey: str, given: Given) -> Question:
    by = given.needed("given", "the attribute whose values are the groups")
    options = {"by": by, **_options(given, reference="one")}
    return Question("compare", (survey, given.attribute), options)


def _test(table: pd.DataFrame) -> list[str]:
    return [_verdict(table.attrs["chi2"])]


def _alone(table: pd.DataFrame) -> list[str]:
    found = table.iloc[0]
    return [
        _verdict(found),
        f"The noncentrality, about {found['noncentrality']:.1f}, measures the dependence; one of "
        f"{found['detectable']:.1f} would be found at significance 0.05 in 80% of cases.",
    ]


def _verdict(found: Any) -> str:
    verdict = "they are not" if found["pvalue"] < 0.05 else "nothing speaks against it"
    return (
        f"Test that the two are independent: chi-squared {found['statistic']:.4g} with "
        f"{found['dof']:.0f} degrees of freedom, p = {found['pvalue']:.2g}: {verdict}."
    )


VIEWS = (
    View(
        "joint",
        "Two together",
        "The share of people with each pair of values. The server reads all the reports.",
        ("categorical",),
        (OTHER, *_SELECTION, *INTERVALS, METHOD, NONNEGATIVE),
        _joint,
        charts.pairs,
        _test,
        poll=False,
    ),
    View(
        "independent",
        "Independent?",
        "A test that two attributes have nothing to do with each other.",
        ("categorical",),
        (OTHER, *_SELECTION),
        _independent,
        charts.nothing,
        _alone,
        poll=False,
        over=_shares,
    ),
    View(
        "given",
        "Within groups",
        "This attribute within the groups that another one makes.",
        _KINDS,
        (GIVEN, *_SELECTION, *INTERVALS, METHOD),
        _within,
        charts.pairs,
        poll=False,
    ),
    View(
        "differences",
        "Between groups",
        "By how much those groups differ, with a test for each.",
        _KINDS,
        (GIVEN, REFERENCE, *_SELECTION, *INTERVALS),
        _apart,
        charts.differences,
        poll=False,
    ),
)
