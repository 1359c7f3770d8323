"""How a number is distributed: shares of its points with intervals, or a curve without."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hearsay.plans.bins import Bins
from hearsay.plans.kinds import Binned, Categorical, Grid, Numeric, Ratings, SetOf, Strings
from hearsay.plans.plan import Plan
from hearsay.plans.points import Points, check_range
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import weighted
from hearsay_server.answers.queries import NoReports, Tallies, by_level, confidence_of, of_words
from ldp import InvalidInput, Mechanism
from ldp.core.estimation import Cohorts
from ldp.core.estimator import Estimator, Frequencies
from ldp.core.intervals import check_confidence
from ldp.estimating import distribution as curves
from ldp.estimating import points as scoring
from ldp.estimating import strata
from ldp.estimating.points import AIM, PointDistribution, Precision, Shares
from ldp.estimating.raking import Weights
from ldp.estimating.weighting import weighted_points
from ldp.mechanisms.numbers.mean import MeanMechanism

_CURVE_BINS = 10
_MOST_BINS = 1024

Floats = NDArray[np.float64]


def distribution(
    plan: Plan, question: analyst_pb2.DistributionRequest, tallies: Tallies
) -> analyst_pb2.DistributionResponse:
    """Answer a `DistributionRequest` from the tallies of its cohorts.

    The shares are those of the mix of people who answered, whatever their level, and errors allow
    for the same people in several periods. Where answers are points they have intervals; otherwise
    the answer is a curve without.
    Raises `NoReports` where there are none, `InvalidInput` for what cannot be asked.
    """
    if not tallies:
        raise NoReports(f"there are no such reports of {question.attribute!r} yet")
    domain = plan.asked(question.attribute).domain
    if isinstance(domain, Strings):
        raise of_words(question.attribute)
    if isinstance(domain, SetOf):
        raise InvalidInput(f"{question.attribute!r} is a set of items: ask for its sizes")
    if isinstance(domain, Ratings):
        raise InvalidInput(f"{question.attribute!r} are ratings: ask for their means")
    if isinstance(domain, Categorical | Grid):
        raise InvalidInput(f"{question.attribute!r} has values: ask for their frequencies")
    confidence = check_confidence(confidence_of(question))
    if question.edges and question.bins:
        raise InvalidInput("give the edges of the bins or their number, not both")
    if question.bins > _MOST_BINS or len(question.edges) > _MOST_BINS + 1:
        asked = question.bins or len(question.edges) - 1
        raise InvalidInput(f"there may be {_MOST_BINS} bins, got {asked}")
    if len(question.ranges) > _MOST_BINS:
        raise InvalidInput(f"there may be {_MOST_BINS} ranges, got {len(question.ranges)}")
    weights: Weights | None = None
    if question.margins:
        weights, groups, assumed = weighted.weights_of(plan, question, tallies)
        tallies = weighted.ungrouped(tallies)
    cohorts = by_level(plan, question.attribute, tallies)
    for mechanism, _ in cohorts:
        _check_tells_more_than_the_mean(mechanism)
    answer = analyst_pb2.DistributionResponse(
        survey=plan.survey,
        attribute=question.attribute,
        confidence=confidence,
        reports=cohorts.n,
        title=plan.asked(question.attribute).title,
        repeats=cohorts.most_repeated,
    )
    points = _points(question, domain)
    if points is None:
        assert isinstance(domain, Numeric)
        if weights:
            raise InvalidInput(
                f"{question.attribute!r} has no step, and its curve cannot be weighted: ask for "
                "the mean, or with a step"
            )
        _draw_curve(answer, question, domain, cohorts)
    else:
        alike = plan.levels_differ_at_most == 0
        found = None if weights is None else weighted_points(groups, weights, len(points))
        _estimate_points(answer, question, points, cohorts, alike=alike, found=found)
    if weights:
        answer.method = weighted.method(question)
        weighted.tell(answer, weights, assumed)
    return answer


def _points(
    question: analyst_pb2.DistributionRequest, domain: Numeric | Binned
) -> Points | Bins | None:
    """Return the points or bins of the answers; None where neither survey nor question says."""
    if not question.HasField("step"):
        return domain.points
    if isinstance(domain, Binned):
        raise InvalidInput(
            f"{question.attribute!r} was collected in bins: leave the step out, got "
            f"{question.step:g}"
        )
    if domain.step and question.step != domain.step:
        raise InvalidInput(
            f"{question.attribute!r} was collected in steps of {domain.step:g}: leave the step "
            f"out, got {question.step:g}"
        )
    return Points(domain.low, domain.high, question.step)


def _check_tells_more_than_the_mean(mechanism: Estimator) -> None:
    if isinstance(mechanism, Frequencies):
        return  # of bins, by themselves or in views
    if not isinstance(mechanism, MeanMechanism) or mechanism.steps < 2:
        raise InvalidInput(
            f"{mechanism.name} reports tell of the mean alone: ask for it, or survey the "
            "distribution in bins, or with square_wave"
        )


def _estimate_points(
    answer: analyst_pb2.DistributionResponse,
    question: analyst_pb2.DistributionRequest,
    points: Points | Bins,
    cohorts: Cohorts,
    *,
    alike: bool,
    found: PointDistribution | None,
) -> None:
    """Fill in shares and quantiles with their intervals: of what was `found`, else stratified,
    unless levels are `alike`."""
    answer.method = _method("scoring", cohorts, "pooled" if alike else "stratified")
    if isinstance(points, Points):
        answer.step = points.step
    each = zip(cohorts, cohorts.repeats, strict=True)
    reports = [(mechanism, tally.n, own) for (mechanism, tally), own in each]
    if alike:
        planned = scoring.precision(reports, len(points))
        found = found or scoring.estimate_points(cohorts, len(points))
    else:
        planned = strata.stratified_precision(reports, len(points))
        found = found or strata.stratified_points(cohorts, len(points))
    if planned.hopeless:
        answer.warning = _hopeless(planned, cohorts)
    cuts = _cuts(question, points, planned)
    if cuts is not None:
        shares = found.bins(cuts, answer.confidence)
        pairs = list(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
        rows = _rows([points.label(*pair) for pair in pairs], shares)
        for pair, row in zip(pairs, rows, strict=True):
            left, right = points.ends(*pair)
            answer.bins.add(left=left, right=right, share=row)
    if question.cumulative:
        ends = [f"{points.highest(place):.10g}" for place in range(len(points) - 1)]
        answer.cumulative.extend(_rows(ends, found.cumulative(answer.confidence)))
    if question.ranges:
        answer.ranges.extend(_ranges(question, points, found, answer.confidence))
    if question.quantiles:
        answer.quantiles.extend(_quantiles(question, points, found, answer.confidence))


def _rows(labels: Sequence[str], shares: Shares) -> list[analyst_pb2.Row]:
    columns = (shares.value, shares.standard_error, shares.low, shares.high)
    return [
        analyst_pb2.Row(label=label, estimate=value, standard_error=error, low=low, high=high)
        for label, value, error, low, high in zip(
            labels, *(column.tolist() for column in columns), strict=True
        )
    ]


def _ranges(
    question: analyst_pb2.DistributionRequest,
    points: Points | Bins,
    found: PointDistribution,
    confidence: float,
) -> list[analyst_pb2.Row]:
    """Return the shares of the ranges asked for.

    A range that ends within a bin has the estimate for answers that are evenly spread in the bin.
    Its interval begins where that of the whole bins in the range does, and ends where that of all
    bins does that it has a part of: it holds whatever the answers in a bin are like.
    """
    parts = np.array([points.overlaps(each.low, each.high) for each in question.ranges])
    inner = found.shares(parts == 1, confidence)
    outer = found.shares(parts > 0, confidence)
    variance = np.einsum("ij,ij->i", parts @ found.covariance, parts)
    whole = ((parts == 0) | (parts == 1)).all(axis=1)
    shares = Shares(
        value=parts @ found.likely,
        standard_error=np.where(whole, inner.standard_error, np.sqrt(np.maximum(variance, 0))),
        low=inner.low,
        high=outer.high,
    )
    return _rows([points.range_label(each.low, each.high) for each in question.ranges], shares)


def _quantiles(
    question: analyst_pb2.DistributionRequest,
    points: Points | Bins,
    found: PointDistribution,
    confidence: float,
) -> list[analyst_pb2.Row]:
    """Return the quantiles asked for; within a bin, those of answers that are evenly spread."""
    quantiles = found.quantiles(list(question.quantiles), confidence)
    below = np.concatenate([[0.0], np.cumsum(found.likely)])
    rows = []
    ends = (quantiles.value.tolist(), quantiles.low.tolist(), quantiles.high.tolist())
    for level, place, low, high in zip(question.quantiles, *ends, strict=True):
        own = float(found.likely[place])
        part = (level - float(below[place])) / own if own > 0 else 0.0
        rows.append(
            analyst_pb2.Row(
                label=f"{level:g}",
                estimate=points.within(place, part),
                low=points.lowest(low),
                high=points.highest(high),
            )
        )
    return rows


def _cuts(
    question: analyst_pb2.DistributionRequest, points: Points | Bins, planned: Precision
) -> NDArray[np.intp] | None:
    """Return the cuts of the bins; None where there are none worth drawing."""
    if question.edges:
        return points.cuts(np.array(question.edges))
    if question.bins:
        return points.even_cuts(question.bins)
    return None if planned.hopeless else points.even_cuts(planned.bins())


def _hopeless(planned: Precision, cohorts: Cohorts) -> str:
    epsilons = sorted({m.epsilon for m, _ in cohorts if isinstance(m, Mechanism)})
    at = " to ".join(f"{epsilon:.3g}" for epsilon in dict.fromkeys(epsilons[:1] + epsilons[-1:]))
    at = f" at epsilon {at}" if at else ""  # of views there is none
    known = f"{min(planned.middle, 1.0):.2f}"
    return (
        f"{planned.n:,} report{'s' * (planned.n > 1)}{at} cannot show a distribution "
        f"of {planned.points} values: the share below the middle is known to ±{known}. About "
        f"{float(f'{planned.needed:.3g}'):,.0f} would give ±{AIM:g}."
    )


def _draw_curve(
    answer: analyst_pb2.DistributionResponse,
    question: analyst_pb2.DistributionRequest,
    domain: Numeric,
    cohorts: Cohorts,
) -> None:
    """Fill in shares and quantiles of a curve, which has no intervals."""
    answer.method = _method("ems", cohorts, "pooled")
    answer.warning = (
        "this is a curve without intervals, because the numbers were not collected in steps. If "
        "all answers were whole numbers, ask with the step 1; otherwise declare a step in the "
        "next survey"
    )
    edges = _curve_edges(question, domain.low, domain.high)
    width = domain.high - domain.low
    found = curves.pooled(cohorts)
    shares = found.histogram(_on_scale(edges, domain))
    for left, right, share in zip(
        edges[:-1].tolist(), edges[1:].tolist(), shares.tolist(), strict=True
    ):
        row = analyst_pb2.Row(label=f"{left:g} to {right:g}", estimate=share)
        answer.bins.add(left=left, right=right, share=row)
    if question.cumulative:
        shares = found.histogram(_on_scale(np.concatenate([[domain.low], edges[1:-1]]), domain))
        for edge, share in zip(edges[1:-1].tolist(), np.cumsum(shares).tolist(), strict=True):
            answer.cumulative.add(label=f"{edge:.10g}", estimate=share)
    for asked in question.ranges:
        check_range(asked.low, asked.high, domain.low, domain.high, strict=True)
        ends = np.clip([asked.low, asked.high], domain.low, domain.high)
        (share,) = found.histogram(_on_scale(ends, domain)).tolist()
        answer.ranges.add(label=f"{asked.low:.10g} to {asked.high:.10g}", estimate=share)
    if question.quantiles:
        values = domain.low + (found.quantiles(list(question.quantiles)) + 1) / 2 * width
        for level, value in zip(question.quantiles, values.tolist(), strict=True):
            answer.quantiles.add(label=f"{level:g}", estimate=value)


def _on_scale(numbers: Floats, domain: Numeric) -> Floats:
    """Return numbers of the domain on the scale [-1, 1] of the mechanisms."""
    scaled: Floats = np.clip(2 * (numbers - domain.low) / (domain.high - domain.low) - 1, -1, 1)
    return scaled


def _curve_edges(
    question: analyst_pb2.DistributionRequest, low: float, high: float
) -> NDArray[np.float64]:
    if not question.edges:
        return np.linspace(low, high, (question.bins or _CURVE_BINS) + 1)
    edges = np.array(question.edges)
    if edges.size < 2 or not (np.diff(edges) > 0).all() or edges[0] < low or edges[-1] > high:
        raise InvalidInput(
            f"edges are two or more rising numbers in [{low:g}, {high:g}], "
            f"got {list(question.edges)}"
        )
    return edges


def _method(name: str, cohorts: Cohorts, how: str) -> str:
    return name if len(cohorts) == 1 else f"{name}, {how}"
