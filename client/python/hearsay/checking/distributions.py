"""How a number is distributed, checked against the question and the plan."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from hearsay.asking.answer import Answer
from hearsay.asking.columns import COLUMNS
from hearsay.checking import tables
from hearsay.checking.expected import check_numbers, check_same
from hearsay.checking.shapes import Shape, check_shape, check_weights
from hearsay.plans.bins import Bins, below_of
from hearsay.plans.plan import Plan
from hearsay.plans.points import Points
from hearsay.v1 import analyst_pb2 as wire
from ldp.errors import InvalidInput

VIEWS = ("distribution", "quantiles", "between", "cdf")
"""What is asked of how a number is distributed."""

_MOST_ROWS = 1024
"""Bins that a distribution has: a server answers with no more."""


def check(question: wire.DistributionRequest, answer: Answer, plan: Plan) -> None:
    """Raise `InvalidInput` for an answer that an honest server does not give."""
    check_same("view", [answer.view], [question.view or "distribution"])
    if question.other:
        both = question.attribute, question.other
        name, title = "+".join(both), " / ".join(plan.asked(each).title or each for each in both)
    else:
        name, title = question.attribute, plan.asked(question.attribute).title
    told = [(subject.name, subject.title) for subject in answer.subjects]
    check_same("attribute", told, [(name, title)])
    weights = ["design_effect", "weights"] if question.margins else []
    check_same("figures", list(answer.figures), ["step", *weights])
    check_weights(answer)
    points = points_of(question, plan)
    step = points.step if isinstance(points, Points) else None
    check_same("step", [answer.figures["step"]], [step])
    has_bins = answer.view == "distribution" or question.bins or question.edges
    shapes = [Shape("bins", ("left", "right"), COLUMNS, numbered=True)] if has_bins else []
    if question.quantiles:
        number: Any = plan.asked(question.attribute).domain
        shape = Shape("quantiles", ("quantile",), COLUMNS, "own", name, numbered=True)
        shapes.append(replace(shape, bounds=(number.low, number.high)))
    if question.ranges:
        shapes.append(Shape("ranges", (name,), COLUMNS))
    if question.cumulative:
        shapes.append(Shape("below", ("below",), COLUMNS, numbered=True))
    first = {"between": "ranges", "cdf": "below", "quantiles": "quantiles"}.get(answer.view, "bins")
    shapes.sort(key=lambda shape: shape.name != first)
    rows = check_shape(answer, *shapes)
    curve = points is None
    for table in answer.tables:
        missing = ("standard_error",) if table.name == "quantiles" else ()
        tables.check_estimated(table, without=COLUMNS[1:] if curve else missing)
    check_same("ranges", rows.get("ranges", ()), range_labels(question, plan))
    levels = [(level,) for level in question.quantiles]
    check_same("quantiles", rows.get("quantiles", ()), levels)
    bins, below = rows.get("bins", ()), rows.get("below", ())
    if len(bins) > (question.bins or _MOST_ROWS):
        raise InvalidInput(f"bins: asked for {question.bins or _MOST_ROWS}, got {len(bins)}")
    check_numbers("bins", bins, _bins(question, plan, len(bins)))
    if points is None:
        ends = _curve_edges(question, plan, len(below) + 1)[1:-1]
    else:
        ends = below_of(points)
    check_numbers("below", below, [(end,) for end in ends] if question.cumulative else [])


def _bins(
    question: wire.DistributionRequest, plan: Plan, count: int
) -> Sequence[tuple[float, float]]:
    """Return the ends of the bins of an answer that has so many."""
    points = points_of(question, plan)
    if not (count or question.bins or question.edges):
        return []  # too few reports show none
    if points is None:
        return list(pairwise(_curve_edges(question, plan, count)))
    edges = np.array(question.edges)
    cuts = points.cuts(edges) if edges.size else points.even_cuts(question.bins or count)
    return [points.ends(*pair) for pair in pairwise(cuts.tolist())]


def _curve_edges(question: wire.DistributionRequest, plan: Plan, count: int) -> Sequence[float]:
    """Return the edges of so many bins of a curve, unless others were asked for."""
    domain: Any = plan.asked(question.attribute).domain
    edges = np.linspace(domain.low, domain.high, (question.bins or count) + 1)
    return list(question.edges) or edges.tolist()


def range_labels(
    question: wire.DistributionRequest | wire.ChangeRequest, plan: Plan
) -> list[tuple[str]]:
    """Return what the ranges of a question are called, or its rectangles."""
    points = points_of(question, plan)
    if isinstance(question, wire.DistributionRequest) and question.other:
        other = plan.asked(question.other).domain.points_in()
        both = zip(question.ranges, question.other_ranges, strict=True)
        return [(f"{_called(points, one)}, {_called(other, two)}",) for one, two in both]
    return [(_called(points, each),) for each in question.ranges]


def points_of(
    question: wire.DistributionRequest | wire.ChangeRequest, plan: Plan
) -> Points | Bins | None:
    """Return the points or bins of the answers that a question is about; None of a curve."""
    step = None
    if isinstance(question, wire.DistributionRequest) and question.HasField("step"):
        step = question.step
    return plan.asked(question.attribute).domain.points_in(step)


def _called(points: Points | Bins | None, asked: wire.Range) -> str:
    if points is None:  # of a curve
        return f"{asked.low:.10g} to {asked.high:.10g}"
    return points.range_label(asked.low, asked.high)
