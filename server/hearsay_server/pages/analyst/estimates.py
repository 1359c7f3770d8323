"""Views of one attribute: estimates, sizes of sets, pairs of items, words."""

from typing import Any

import pandas as pd

from hearsay_server.answers.selecting import sets_of
from hearsay_server.pages.analyst import charts
from hearsay_server.pages.analyst.options import (
    CONFIDENCE,
    INTERVALS,
    METHOD,
    SELECTION,
    TOP,
    WEIGHTS,
    Given,
    Option,
)
from hearsay_server.pages.analyst.view import ALL, Question, View

CONSISTENT = Option(
    "consistent",
    "Make frequencies a distribution by",
    "choice",
    ("norm-sub", "norm-mul", "norm-cut", "base-pos", "base-cut", "power-ns"),
)
VALUES = Option("values", "Only these values", hint="A,B")
FORGED = Option("forged", "How far could so many forged reports move it?", "whole")
RECOVER = Option("recover", "Take out so many forged reports per genuine one", "number")
SUM = Option("sum", "Values to add up", hint="bus,train")
CANDIDATES = Option("candidates", "Only the shares of these words", hint="tea,coffee")

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


def _sizes(survey: str, given: Given) -> Question:
    return Question("set_sizes", (survey, given.attribute), options_of(given))


def _pairs(survey: str, given: Given) -> Question:
    options = given.stated(top="whole", confidence="number")
    return Question("pairs", (survey, given.attribute), {**options, **given.selection()})


def _words(survey: str, given: Given) -> Question:
    options = {**given.stated(confidence="number"), **given.selection()}
    if words := given.listed("candidates"):
        return Question("frequencies_of", (survey, given.attribute, words), options)
    options |= given.stated(top="whole")
    return Question("heavy_hitters", (survey, given.attribute), options)


def alike(table: pd.DataFrame) -> list[str]:
    """Say how pooled and stratified estimates differ, where there are both."""
    if "alike" not in table.columns:
        return []
    apart = table["high"] - table["low"]
    kept = ((table["alike_high"] - table["alike_low"]) / apart)[apart > 0]
    said = [
        "People chose their levels, so the estimate is of the mix of people who answered "
        "(stratified). The pooled one, drawn as a square, would hold for people of all levels who "
        f"answer alike; its intervals are {100 * (1 - kept.mean()):.0f}% narrower."
    ]
    tested, seen = (table.attrs.get(name) for name in ("homogeneity", "detectable_difference"))
    if tested is not None:
        verdict = "they do not answer alike" if tested < 0.05 else "nothing speaks against it"
        said.append(f"Test that all levels answer alike: p = {tested:.2g}, so {verdict}.")
    if seen is not None:
        said.append(f"Differences between levels below {seen:.2g} may go unseen.")
    return said


def weighted(table: pd.DataFrame) -> list[str]:
    """Say how unequal the weights of an answer with margins are."""
    effect, weights = (table.attrs.get(name) for name in ("design_effect", "weights"))
    if effect is None or weights is None:
        return []
    least, most = weights
    return [
        f"Weighted to known shares, beside the unweighted estimates: one person counts for "
        f"{least:.3g} to {most:.3g} people. Unequal weights alone raise the variance by the design "
        f"effect, {effect:.3g}. The shares are your own claim, and their errors are not in the "
        "intervals."
    ]


def _findable(table: pd.DataFrame) -> list[str]:
    shares = table.attrs.get("findable")
    if not shares:
        return []
    return [
        f"A word of up to {len(shares)} letters with a share of {shares[-1]:.2%} is found about "
        "every second time, and rarer ones less. With probability "
        f"{table.attrs['confidence']:g} every word of the answer is somebody's."
    ]


VIEWS = (
    View(
        "estimate",
        "Estimates",
        "What the crowd says, each number with its interval.",
        ALL,
        (*SELECTION, *INTERVALS, METHOD, CONSISTENT, TOP, VALUES, SUM, FORGED, RECOVER, *WEIGHTS),
        _estimate,
        charts.intervals,
        lambda table: alike(table) + weighted(table),
    ),
    View(
        "sizes",
        "Sizes of sets",
        "How many items people's sets have.",
        ("set",),
        (*SELECTION, *INTERVALS, METHOD, *WEIGHTS),
        _sizes,
        charts.intervals,
        weighted,
    ),
    View(
        "pairs",
        "Pairs of items",
        "Which share of people have both of two items. The server reads all the reports.",
        ("set",),
        (*SELECTION, TOP, CONFIDENCE),
        _pairs,
        charts.intervals,
        poll=False,
    ),
    View(
        "words",
        "Words",
        "Which words are frequent. The server reads all the reports.",
        ("strings",),
        (*SELECTION, TOP, CANDIDATES, CONFIDENCE),
        _words,
        charts.intervals,
        _findable,
        poll=False,
    ),
)
