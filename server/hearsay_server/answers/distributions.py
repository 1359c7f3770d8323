"""How a number is distributed: shares of its points with intervals, or a curve without."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hearsay.asking import cautions, roles
from hearsay.asking.answer import Answer, Note, Subject, Table, Unit
from hearsay.plans.bins import Bins, below_of
from hearsay.plans.kinds import Binned, ByKind, Numeric
from hearsay.plans.plan import Plan
from hearsay.plans.points import Points, check_range
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import weighted
from hearsay_server.answers.queries import IN_WORDS, NoReports, Tallies, by_level, confidence_of
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
_FIRST = {
    "": "bins",
    "distribution": "bins",
    "quantiles": "quantiles",
    "between": "ranges",
    "cdf": "below",
}
"""The first table of each view."""

_ASKED = {"quantiles": "quantiles", "between": "ranges", "cdf": "cumulative"}
"""The field of a question without which a view has no table."""

_COLUMNS = ("estimate", "standard_error", "low", "high")
_MOST_BINS = 1024

Floats = NDArray[np.float64]


def distribution(plan: Plan, question: analyst_pb2.DistributionRequest, tallies: Tallies) -> Answer:
    """Answer a `DistributionRequest` from the tallies of its cohorts.

    The shares are those of the mix of people who answered, whatever their level, and errors allow
    for the same people in several periods. Where answers are points they have intervals; otherwise
    the answer is a curve without.
    Raises `NoReports` where there are none, `InvalidInput` for what cannot be asked.
    """
    if not tallies:
        raise NoReports(f"there are no such reports of {question.attribute!r} yet")
    domain = _number(question.attribute, plan.asked(question.attribute).domain)
    confidence = check_confidence(confidence_of(question))
    if question.view not in _FIRST:
        names = ", ".join(name for name in _FIRST if name)
        raise InvalidInput(f"view must be one of {names}, got {question.view!r}")
    asked = _ASKED.get(question.view)
    if asked and not getattr(question, asked):
        raise InvalidInput(f"{question.view} needs {asked}: got none")
    if question.edges and question.bins:
        raise InvalidInput("give the edges of the bins or their number, not both")
    if question.bins > _MOST_BINS or len(question.edges) > _MOST_BINS + 1:
        count = question.bins or len(question.edges) - 1
        raise InvalidInput(f"there may be {_MOST_BINS} bins, got {count}")
    if len(question.ranges) > _MOST_BINS:
        raise InvalidInput(f"there may be {_MOST_BINS} ranges, got {len(question.ranges)}")
    weights: Weights | None = None
    if question.margins:
        weights, groups, assumed = weighted.weights_of(plan, question, tallies)
        tallies = weighted.ungrouped(tallies)
    cohorts = by_level(plan, question.attribute, tallies)
    for mechanism, _ in cohorts:
        _check_tells_more_than_the_mean(mechanism)
    points = _points(question, domain)
    if points is None:
        if weights:
            raise InvalidInput(
                f"{question.attribute!r} has no step, and its curve cannot be weighted: ask for "
                "the mean, or with a step"
            )
        method, notes = _method("ems", cohorts, "pooled"), [Note.of(cautions.curve)]
        tables = _of_curve(question, domain, cohorts)
    else:
        alike = plan.levels_differ_at_most == 0
        found = None if weights is None else weighted_points(groups, weights, len(points))
        method = _method("scoring", cohorts, "pooled" if alike else "stratified")
        tables, notes = _of_points(question, points, cohorts, confidence, alike=alike, found=found)
    tables.sort(key=lambda table: table.name != _FIRST[question.view])  # keeps their order else
    answer = Answer(
        question.view or "distribution",
        plan.survey,
        (Subject(question.attribute, plan.asked(question.attribute).title),),
        "share",
        tuple(tables),
        confidence=0.0 if points is None else confidence,
        reports=cohorts.n,
        repeats=cohorts.most_repeated,
        method=method,
        notes=tuple(notes),
        figures={"step": points.step if isinstance(points, Points) else None},
    )
    if not weights:
        return answer
    return weighted.noted(replace(answer, method=weighted.method(question)), weights, assumed)


_INSTEAD = ByKind.otherwise(
    "has values: ask for their frequencies",
    number="",
    bins="",
    set="is a set of items: ask for its sizes",
    ratings="are ratings: ask for their means",
    words=IN_WORDS,
)
"""What to ask instead of a distribution, "" of what has one."""


def _number(attribute: str, domain: Any) -> Numeric | Binned:
    """Return the domain of a number; raise `InvalidInput` for another one."""
    if instead := _INSTEAD[domain]:
        raise InvalidInput(f"{attribute!r} {instead}")
    number: Numeric | Binned = domain
    return number


def _points(
    question: analyst_pb2.DistributionRequest, domain: Numeric | Binned
) -> Points | Bins | None:
    """Return the points or bins of the answers; None where neither survey nor question says."""
    try:
        return domain.points_in(question.step if question.HasField("step") else None)
    except InvalidInput as error:
        raise InvalidInput(f"{question.attribute!r} {error}") from None


def _check_tells_more_than_the_mean(mechanism: Estimator) -> None:
    if isinstance(mechanism, Frequencies):
        return  # of bins, by themselves or in views
    if not isinstance(mechanism, MeanMechanism) or mechanism.steps < 2:
        raise InvalidInput(
            f"{mechanism.name} reports tell of the mean alone: ask for it, or survey the "
            "distribution in bins, or with square_wave"
        )


def _of_points(
    question: analyst_pb2.DistributionRequest,
    points: Points | Bins,
    cohorts: Cohorts,
    confidence: float,
    *,
    alike: bool,
    found: PointDistribution | None,
) -> tuple[list[Table], list[Note]]:
    """Return the tables asked for, with their intervals, and notes: of what was `found`, else
    stratified, unless levels are `alike`."""
    each = zip(cohorts, cohorts.repeats, strict=True)
    reports = [(mechanism, tally.n, own) for (mechanism, tally), own in each]
    if alike:
        planned = scoring.precision(reports, len(points))
        found = found or scoring.estimate_points(cohorts, len(points))
    else:
        planned = strata.stratified_precision(reports, len(points))
        found = found or strata.stratified_points(cohorts, len(points))
    tables = []
    if _shows_bins(question):
        cuts = _cuts(question, points, planned)
        if cuts is None:
            tables.append(_bins([], [np.empty(0)] * len(_COLUMNS)))
        else:
            pairs = zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)
            ends = [points.ends(*pair) for pair in pairs]
            tables.append(_bins(ends, _numbers(found.bins(cuts, confidence))))
    if question.quantiles:
        tables.append(_quantiles(question, points, found, confidence))
    if question.ranges:
        tables.append(_ranges(question, points, found, confidence))
    if question.cumulative:
        numbers = _numbers(found.cumulative(confidence))
        tables.append(_table("below", ("below", below_of(points)), numbers))
    return tables, [_hopeless(planned, cohorts)] if planned.hopeless else []


def _shows_bins(question: analyst_pb2.DistributionRequest) -> bool:
    return bool(_FIRST[question.view] == "bins" or question.bins or question.edges)


def _numbers(shares: Shares) -> Sequence[Floats]:
    return shares.value, shares.standard_error, shares.low, shares.high


def _without_errors(values: Sequence[float] | Floats) -> Sequence[Floats]:
    """Return the numbers of estimates that have no error and no interval."""
    missing = np.full(len(values), np.nan)
    return np.asarray(values, dtype=np.float64), missing, missing, missing


def _table(
    name: str,
    labels: tuple[str, Sequence[str] | Sequence[float]],
    numbers: Sequence[Floats],
    unit: Unit = "share",
    statistic: str = "",
) -> Table:
    each = zip(_COLUMNS, numbers, strict=True)
    columns = tuple(roles.column(*named, unit) for named in each)
    return Table(name, roles.index(labels), columns, statistic=statistic)


def _bins(ends: Sequence[tuple[float, float]], numbers: Sequence[Floats]) -> Table:
    index = roles.index(
        ("left", [float(left) for left, _ in ends]), ("right", [float(right) for _, right in ends])
    )
    return replace(_table("bins", ("left", []), numbers), index=index)


def _ranges(
    question: analyst_pb2.DistributionRequest,
    points: Points | Bins,
    found: PointDistribution,
    confidence: float,
) -> Table:
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
    errors = np.where(whole, inner.standard_error, np.sqrt(np.maximum(variance, 0)))
    labels = [points.range_label(each.low, each.high) for each in question.ranges]
    numbers = (parts @ found.likely, errors, inner.low, outer.high)
    return _table("ranges", (question.attribute, labels), numbers)


def _quantiles(
    question: analyst_pb2.DistributionRequest,
    points: Points | Bins,
    found: PointDistribution,
    confidence: float,
) -> Table:
    """Return the quantiles asked for; within a bin, those of answers that are evenly spread."""
    quantiles = found.quantiles(list(question.quantiles), confidence)
    below = np.concatenate([[0.0], np.cumsum(found.likely)])
    values = []
    for level, place in zip(question.quantiles, quantiles.value.tolist(), strict=True):
        own = float(found.likely[place])
        part = (level - float(below[place])) / own if own > 0 else 0.0
        values.append(points.within(place, part))
    low = np.array([points.lowest(place) for place in quantiles.low.tolist()])
    high = np.array([points.highest(place) for place in quantiles.high.tolist()])
    numbers = (np.array(values), np.full(len(values), np.nan), low, high)
    return _of_levels(question, numbers)


def _of_levels(question: analyst_pb2.DistributionRequest, numbers: Sequence[Floats]) -> Table:
    """Return the table of quantiles, whose numbers are the attribute's own."""
    levels = ("quantile", list(question.quantiles))
    return _table("quantiles", levels, numbers, "own", question.attribute)


def _cuts(
    question: analyst_pb2.DistributionRequest, points: Points | Bins, planned: Precision
) -> NDArray[np.intp] | None:
    """Return the cuts of the bins; None where there are none worth drawing."""
    if question.edges:
        return points.cuts(np.array(question.edges))
    if question.bins:
        return points.even_cuts(question.bins)
    return None if planned.hopeless else points.even_cuts(planned.bins())


def _hopeless(planned: Precision, cohorts: Cohorts) -> Note:
    epsilons = sorted({m.epsilon for m, _ in cohorts if isinstance(m, Mechanism)})  # of views: none
    return Note.of(
        cautions.no_distribution,
        reports=planned.n,
        epsilons=list(dict.fromkeys(epsilons[:1] + epsilons[-1:])),
        values=planned.points,
        known=min(planned.middle, 1.0),
        needed=float(f"{planned.needed:.3g}"),
        goal=AIM,
    )


def _of_curve(
    question: analyst_pb2.DistributionRequest, domain: Numeric | Binned, cohorts: Cohorts
) -> list[Table]:
    """Return the tables asked for, of a curve: without errors and intervals."""
    edges = _curve_edges(question, domain.low, domain.high)
    found = curves.pooled(cohorts)
    tables = []
    if _shows_bins(question):
        ends = list(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True))
        tables.append(_bins(ends, _without_errors(found.histogram(_on_scale(edges, domain)))))
    if question.quantiles:
        places = found.quantiles(list(question.quantiles)) + 1
        values = domain.low + places / 2 * (domain.high - domain.low)
        tables.append(_of_levels(question, _without_errors(values)))
    if question.ranges:
        shares = [_of_range(found, domain, each) for each in question.ranges]
        labels = [f"{each.low:.10g} to {each.high:.10g}" for each in question.ranges]
        tables.append(_table("ranges", (question.attribute, labels), _without_errors(shares)))
    if question.cumulative:
        inner = found.histogram(_on_scale(np.concatenate([[domain.low], edges[1:-1]]), domain))
        below = ("below", edges[1:-1].tolist())
        tables.append(_table("below", below, _without_errors(np.cumsum(inner))))
    return tables


def _of_range(
    found: curves.Distribution, domain: Numeric | Binned, asked: analyst_pb2.Range
) -> float:
    check_range(asked.low, asked.high, domain.low, domain.high, strict=True)
    ends = np.clip([asked.low, asked.high], domain.low, domain.high)
    (share,) = found.histogram(_on_scale(ends, domain)).tolist()
    return float(share)


def _on_scale(numbers: Floats, domain: Numeric | Binned) -> Floats:
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
