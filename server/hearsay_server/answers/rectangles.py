"""Shares of rectangles: of the people with one number in a range and another one in another."""

import math

import numpy as np

from hearsay.asking import roles
from hearsay.asking.answer import Answer, Subject, Table
from hearsay.plans.kinds import Binned
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers.queries import Tallies, confidence_of, of_attributes
from ldp import InvalidInput
from ldp.estimating import sums

_MOST = 1024
"""Rectangles that one question may ask for."""


def rectangles(plan: Plan, question: analyst_pb2.DistributionRequest, tallies: Tallies) -> Answer:
    """Answer a `DistributionRequest` about two numbers, from the tallies of views that ask both.

    The estimate is stratified, or pooled where the survey declares that levels are alike. Raises
    `NoReports` where there are none, `InvalidInput` for what cannot be asked.
    """
    names = question.attribute, question.other
    confidence = confidence_of(question)
    first, second = (_binned(plan, name).points for name in names)
    if question.view not in ("", "between"):
        raise InvalidInput(f"of two numbers the view is between, got {question.view!r}")
    if question.edges or question.bins or question.quantiles or question.cumulative:
        raise InvalidInput("of two numbers ask for ranges: leave out the rest of a distribution")
    if not 1 <= len(question.ranges) <= _MOST or len(question.ranges) != len(question.other_ranges):
        raise InvalidInput(
            f"a rectangle has a range of either number, and there may be {_MOST}, got "
            f"{len(question.ranges)} and {len(question.other_ranges)} ranges"
        )
    each = list(zip(question.ranges, question.other_ranges, strict=True))
    sets = [
        np.outer(first.inside(one.low, one.high), second.inside(other.low, other.high))
        for one, other in each
    ]
    if any(plan.parts(cohort.attribute) == names[::-1] for cohort in tallies):
        names, sets = names[::-1], [cells.T for cells in sets]  # as asked: the answer is the same
    cohorts = of_attributes(plan, names, tallies)
    most = 0.0 if plan.levels_differ_at_most == 0 else math.inf
    found = sums.sums(cohorts, np.array([cells.ravel() for cells in sets]), most=most)
    low, high = found.interval(confidence)
    labels = [
        f"{first.range_label(one.low, one.high)}, {second.range_label(other.low, other.high)}"
        for one, other in each
    ]
    numbers = (found.value, found.standard_error, low, high)
    each_column = zip(("estimate", "standard_error", "low", "high"), numbers, strict=True)
    name = f"{question.attribute}+{question.other}"
    title = " / ".join(
        plan.attributes[part].title or part for part in (question.attribute, question.other)
    )
    columns = tuple(roles.column(*named, "share") for named in each_column)
    return Answer(
        "between",
        plan.survey,
        (Subject(name, title),),
        "share",
        (Table("ranges", roles.index((name, labels)), columns),),
        confidence=confidence,
        reports=cohorts.n,
        repeats=cohorts.most_repeated,
        method=found.method,
        figures={"step": None},
    )


def _binned(plan: Plan, name: str) -> Binned:
    only = f"{name!r} is no number in bins: a rectangle is of two such numbers"
    return Binned.expected(plan.asked(name).domain, only)
