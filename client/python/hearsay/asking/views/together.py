"""Views of two attributes together."""

from typing import TYPE_CHECKING, Any

from hearsay.asking.answer import Answer
from hearsay.asking.views import notes
from hearsay.asking.views.options import (
    FROM,
    INTERVALS,
    LEVEL,
    PERIOD,
    TO,
    WHERE,
    Given,
    Option,
)
from hearsay.asking.views.view import Question, View
from ldp.errors import InvalidInput

if TYPE_CHECKING:
    from hearsay.asking.analyst import Analyst

OTHER = Option(
    "other",
    "With",
    "other",
    needed=True,
    says="Another attribute; the first that is asked together with it without one",
)
GIVEN = Option(
    "given",
    "Within the groups of",
    "other",
    needed=True,
    says="The attribute whose values are the groups; the first that is asked together with it "
    "without one",
)
NONNEGATIVE = Option("nonnegative", "The most likely table, without negative shares", "flag")
LOGIT = Option("logit", "Logistic, of whether an attribute has a value", "flag")
SUCCESS = Option("success", "The value that is explained; else the last of two")
FITTED = Option("method", "Of logit", "choice", ("corrected", "forward"))
REFERENCE = Option("reference", "Compare the other groups with", hint="one of the groups")

POOLED = Option(
    "method",
    "Pool levels by",
    "choice",
    ("stratified", "gls"),
    says="stratified: of the people who answered; gls: as if people of all levels answered alike",
)

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


def _shares(analyst: "Analyst", survey: str, given: Given, answer: Answer) -> list[Answer]:
    """Return the table that the test of independence is of: the test has no picture."""
    of = (survey, given.attribute, given.one("other"))
    return [Question("crosstab", of, given.selection()).ask(analyst)]


def _within(survey: str, given: Given) -> Question:
    by = given.needed("given", "the attribute whose values are the groups")
    options = _options(given, reference="one", method="one")
    return Question("within", (survey, given.attribute, by), options)


def _apart(survey: str, given: Given) -> Question:
    by = given.needed("given", "the attribute whose values are the groups")
    options = {"by": by, **_options(given, reference="one")}
    return Question("compare", (survey, given.attribute), options)


def _fit(survey: str, given: Given) -> Question:
    options = _options(given, success="one")
    if given.flag("logit"):
        return Question("logit", (survey, given.attribute), options | given.stated(method="one"))
    if given.many("method"):
        raise InvalidInput("method is of a logistic regression: give logit, too")
    return Question("ols", (survey, given.attribute), options)


VIEWS = (
    View(
        "joint",
        "Two together",
        "The share of people with each pair of values. The server reads all the reports.",
        ("categorical",),
        (OTHER, *_SELECTION, *INTERVALS, POOLED, NONNEGATIVE),
        _joint,
        notes.joint,
        poll=False,
    ),
    View(
        "independent",
        "Independent?",
        "A test that two attributes have nothing to do with each other.",
        ("categorical",),
        (OTHER, *_SELECTION),
        _independent,
        notes.independent,
        poll=False,
        pictured=_shares,
    ),
    View(
        "given",
        "Within groups",
        "This attribute within the groups that another one makes.",
        _KINDS,
        (GIVEN, REFERENCE, *_SELECTION, *INTERVALS, POOLED),
        _within,
        poll=False,
    ),
    View(
        "differences",
        "Between groups",
        "By how much those groups differ, with a test for each.",
        _KINDS,
        (GIVEN, REFERENCE, *_SELECTION, *INTERVALS),
        _apart,
        notes.differences,
        poll=False,
    ),
    View(
        "fit",
        "Regression",
        "A regression on the randomised records, such as 'wage ~ age + C(sex)'. The server reads "
        "all the reports.",
        (),
        (LOGIT, SUCCESS, FITTED, *_SELECTION, *INTERVALS),
        _fit,
        notes.fit,
        poll=False,
        subject="formula",
    ),
)
