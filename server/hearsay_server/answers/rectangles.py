"""Shares of rectangles: of the people with one number in a range and another one in another."""

import math

import numpy as np
from numpy.typing import NDArray

from hearsay.plans.kinds import Binned
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers.queries import Tallies, confidence_of, of_attributes
from ldp import InvalidInput
from ldp.estimating import sums

_MOST = 1024
"""Rectangles that one question may ask for."""


def rectangles(
    plan: Plan, question: analyst_pb2.DistributionRequest, tallies: Tallies
) -> analyst_pb2.DistributionResponse:
    """Answer a `DistributionRequest` about two numbers, from the tallies of views that ask both.

    The estimate is stratified, or pooled where the survey declares that levels are alike. Raises
    `NoReports` where there are none, `InvalidInput` for what cannot be asked.
    """
    names = question.attribute, question.other
    confidence = confidence_of(question)
    first, second = (_binned(plan, name) for name in names)
    if question.edges or question.bins or question.quantiles or question.cumulative:
        raise InvalidInput("of two numbers ask for ranges: leave out the rest of a distribution")
    if not 1 <= len(question.ranges) <= _MOST or len(question.ranges) != len(question.other_ranges):
        raise InvalidInput(
            f"a rectangle has a range of either number, and there may be {_MOST}, got "
            f"{len(question.ranges)} and {len(question.other_ranges)} ranges"
        )
    each = list(zip(question.ranges, question.other_ranges, strict=True))
    sets = [np.outer(_inside(first, one), _inside(second, other)) for one, other in each]
    if any(plan.parts(cohort.attribute) == names[::-1] for cohort in tallies):
        names, sets = names[::-1], [cells.T for cells in sets]  # as asked: the answer is the same
    cohorts = of_attributes(plan, names, tallies)
    most = 0.0 if plan.levels_differ_at_most == 0 else math.inf
    found = sums.sums(cohorts, np.array([cells.ravel() for cells in sets]), most=most)
    low, high = found.interval(confidence)
    labels = [
        f"{first.points.range_label(one.low, one.high)}, "
        f"{second.points.range_label(other.low, other.high)}"
        for one, other in each
    ]
    columns = np.stack([found.value, found.standard_error, low, high], axis=1).tolist()
    return analyst_pb2.DistributionResponse(
        survey=plan.survey,
        attribute=f"{question.attribute}+{question.other}",
        confidence=confidence,
        reports=cohorts.n,
        method=found.method,
        repeats=cohorts.most_repeated,
        title=" / ".join(
            plan.attributes[name].title or name for name in (question.attribute, question.other)
        ),
        ranges=[
            analyst_pb2.Row(label=label, estimate=value, standard_error=error, low=least, high=most)
            for label, (value, error, least, most) in zip(labels, columns, strict=True)
        ],
    )


def _binned(plan: Plan, name: str) -> Binned:
    domain = plan.attributes[name].domain if name in plan.attributes else None
    if not isinstance(domain, Binned):
        raise InvalidInput(f"{name!r} is no number in bins: a rectangle is of two such numbers")
    return domain


def _inside(domain: Binned, wanted: analyst_pb2.Range) -> NDArray[np.bool_]:
    """Return which bins a range has, shape (bins,); raise `InvalidInput` where it cuts one."""
    first, last = domain.points.cuts(np.array([wanted.low, wanted.high]))
    place = np.arange(domain.count)
    inside: NDArray[np.bool_] = (first <= place) & (place < last)
    return inside
