"""An analyst's answers, checked against the question and the survey's plan."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import product
from math import inf, isfinite
from typing import Any

from google.protobuf.message import Message

from hearsay.asking.columns import NO_MAP, NOT_GIVEN
from hearsay.checking.fields import check_known
from hearsay.checking.plans import check_periods
from hearsay.plans import period
from hearsay.plans.kinds import Binned, Categorical, Grid, Ratings, SetOf, Strings
from hearsay.plans.plan import Plan
from hearsay.plans.texts import check_name
from hearsay.v1 import analyst_pb2 as wire
from ldp.errors import InvalidInput

_STATISTICS = {"frequency", "mean", "rating", "share", "share who rated"}

_MOST_ROWS = 1024
"""Bins that a distribution has, and words that are found: a server answers with no more."""

_NUMBER = r"-?[0-9][0-9.e+-]*"
_RANGE = f"{_NUMBER}(?: to (?:under )?{_NUMBER})?"
_RANGES = re.compile(f"{_RANGE}(?:, {_RANGE})?")
"""A range of a number in words, or of two numbers."""

_FOUND = 20
_PAIRS = 100
"""Words, and pairs, of an answer unless others are asked for."""


def survey_of(request: Message) -> str | None:
    """Return the survey that a question is about; None for a request that is none of an analyst's
    questions."""
    if isinstance(request, wire.EstimateByRequest | wire.WatchRequest):
        return request.question.survey
    return request.survey if type(request) in _CHECKS else None  # type: ignore[attr-defined]


def check(request: Message, answer: Message, plan: Plan) -> None:
    """Raise `InvalidInput` for an answer to a question that the survey's plan does not allow."""
    if isinstance(request, wire.EstimateByRequest):
        assert isinstance(answer, wire.EstimateResponse)
        _check_group(request, answer.group, plan)
        question: Message = request.question
    else:
        question = request.question if isinstance(request, wire.WatchRequest) else request
        if getattr(answer, "group", ""):
            raise InvalidInput(f"group: {answer.group!r} was not asked for")  # type: ignore[attr-defined]
    _check_named(question, answer)
    _CHECKS[type(question)](question, answer, plan)


class Groups:
    """The groups of the answers to one question: each has one answer."""

    def __init__(self, request: Message) -> None:
        self._seen: set[str] | None = set() if isinstance(request, wire.EstimateByRequest) else None

    def add(self, answer: Message) -> None:
        """Raise `InvalidInput` where the group of an answer had one before."""
        if self._seen is not None:
            group: str = answer.group  # type: ignore[attr-defined]
            _check_once("group", [*self._seen, group])
            self._seen.add(group)


def _check_group(request: wire.EstimateByRequest, group: str, plan: Plan) -> None:
    by, attribute = request.by, request.question.attribute
    if by == wire.EstimateByRequest.PERIOD:
        period.start(plan.period, group)
        return
    if by == wire.EstimateByRequest.LEVEL:
        known: Collection[str] = plan.levels
    elif by == wire.EstimateByRequest.MAP:
        known = (*plan.maps(attribute), NO_MAP)
    else:
        declared = {each.name: each.values for each in plan.properties.declared}
        known = (*declared.get(request.property, ()), NOT_GIVEN)
    _check_among("group", [group], known)


def _check_named(question: Any, answer: Any) -> None:
    """Check what an answer repeats of its question."""
    for name in ("survey", "attribute", "other", "by", "simultaneous", "kind"):
        both = (question.DESCRIPTOR.fields_by_name, answer.DESCRIPTOR.fields_by_name)
        if not all(name in fields for fields in both):
            continue
        asked, told = getattr(question, name), getattr(answer, name)
        # Words that are the most frequent of many have simultaneous intervals, asked for or not,
        # and two numbers together are named as the view that asks them.
        others = bool(told) if name == "simultaneous" else getattr(question, "other_ranges", ())
        if asked != told and not others:
            raise InvalidInput(f"{name}: asked for {asked!r}, got {told!r}")
    if "confidence" in answer.DESCRIPTOR.fields_by_name:
        asked = question.confidence if question.HasField("confidence") else answer.confidence
        if answer.confidence != asked or not 0 < answer.confidence < 1:
            raise InvalidInput(f"confidence: {answer.confidence} is not that of the question")
    statistic = getattr(answer, "statistic", "")
    if statistic and statistic not in _STATISTICS:
        raise InvalidInput(f"statistic: {statistic!r} is none of {', '.join(sorted(_STATISTICS))}")


def _estimate(question: wire.EstimateRequest, answer: wire.EstimateResponse, plan: Plan) -> None:
    asked = plan.asked(question.attribute)
    _check_title(answer.title, asked.title)
    _check_cohorts(answer, plan)
    labels = [row.label for row in answer.rows]
    if not isinstance(asked.domain, Ratings):
        check_known(answer)
    if question.sizes and isinstance(asked.domain, SetOf):
        sizes = [str(size) for size in range(asked.domain.most + 1)]
        if labels not in (["mean"], [*sizes, "mean"]):
            raise InvalidInput(f"rows: {_told(labels)} are no sizes of {question.attribute!r}")
        return
    every = asked.domain.labels
    if question.values:
        _check_same("rows", labels, list(dict.fromkeys(question.values)))
    elif question.top:
        _check_among("rows", labels, every)
        _check_once("rows", labels)
        if len(labels) > question.top:
            raise InvalidInput(f"rows: asked for {question.top}, got {len(labels)}")
    else:
        _check_same("rows", labels, every)
    if answer.rows_left_out != len(every) - len(labels):
        raise InvalidInput(f"rows_left_out: {answer.rows_left_out} of {len(every)} values")
    _check_same("sums", [row.label for row in answer.sums], _joined(question.sums))


def _words(question: wire.WordsRequest, answer: wire.EstimateResponse, plan: Plan) -> None:
    asked = plan.asked(question.attribute)
    _check_title(answer.title, asked.title)
    _check_cohorts(answer, plan)
    domain = asked.domain
    if not isinstance(domain, Strings):
        raise InvalidInput(f"{question.attribute!r} is answered by {domain}, not in words")
    labels = [row.label for row in answer.rows]
    listed = question.candidates or domain.candidates
    if not listed:
        _check_once("rows", labels)
        for label in labels:
            domain.encode(label)
    elif question.top or question.discover:
        _check_among("rows", labels, listed)
    else:
        _check_same("rows", labels, listed)
    most = question.top or (_FOUND if question.discover else len(listed))
    if len(labels) > most:
        raise InvalidInput(f"rows: asked for {most}, got {len(labels)}")
    if len(answer.findable) not in (0, domain.longest):
        raise InvalidInput(f"findable: {len(answer.findable)} shares of {domain.longest} lengths")
    for row in answer.rows:
        if not isfinite(row.estimate) and (row.low, row.high) != (0, 1):
            raise InvalidInput("rows: a share is nan, and its interval is not [0, 1]")


def _compare(question: wire.CompareRequest, answer: wire.CompareResponse, plan: Plan) -> None:
    check_known(answer)
    asked = plan.asked(question.attribute)
    _check_title(answer.title, asked.title)
    _check_same("rows", [row.label for row in answer.rows], asked.domain.labels)


def _change(question: wire.ChangeRequest, answer: wire.ChangeResponse, plan: Plan) -> None:
    check_known(answer)
    asked = plan.asked(question.attribute)
    _check_title(answer.title, asked.title)
    labels = [row.label for row in answer.rows]
    if question.sums:
        _check_same("rows", labels, _joined(question.sums))
    elif question.ranges:
        _check_count("rows", labels, question.ranges)
    else:
        _check_same("rows", labels, asked.domain.labels)
    names = list(answer.periods)
    _check_count("period_reports", answer.period_reports, names)
    if question.kind == wire.ChangeRequest.DIFFERENCE:
        _check_same("periods", names, question.selection.periods)
    else:
        check_periods(plan, names)
    breaks = question.kind == wire.ChangeRequest.BREAKS
    _check_among("rows: period", [row.period for row in answer.rows], names if breaks else [""])
    if not 0 <= answer.panels <= plan.panels:
        raise InvalidInput(f"panels: {answer.panels} of {plan.panels}")


def _distribution(
    question: wire.DistributionRequest, answer: wire.DistributionResponse, plan: Plan
) -> None:
    check_known(answer)
    if question.other:
        both = question.attribute, question.other
        _check_same("attribute", [answer.attribute], ["+".join(both)])
        title = " / ".join(plan.asked(name).title or name for name in both)
    else:
        title = plan.asked(question.attribute).title
    _check_title(answer.title, title)
    for row in [*answer.ranges, *(each.share for each in answer.bins)]:
        if not _RANGES.fullmatch(row.label):
            raise InvalidInput(f"label: {row.label!r} is no range of numbers")
    _check_count("ranges", answer.ranges, question.ranges)
    _check_count("quantiles", answer.quantiles, question.quantiles)
    for row, level in zip(answer.quantiles, question.quantiles, strict=True):
        if row.label != f"{level:g}":
            raise InvalidInput(f"quantiles: asked for {level:g}, got {row.label!r}")
    ends = [end for each in answer.bins for end in (each.left, each.right)]
    lefts = ends[::2]
    if ends != sorted(ends) or lefts != sorted(set(lefts)) or not all(map(isfinite, ends)):
        raise InvalidInput("bins: their ends do not rise")
    if question.edges:
        _check_count("bins", answer.bins, question.edges[1:])
    elif len(answer.bins) > (question.bins or _MOST_ROWS):
        raise InvalidInput(f"bins: asked for {question.bins or _MOST_ROWS}, got {len(answer.bins)}")
    before = -inf
    for row in answer.cumulative if question.cumulative else []:
        try:
            point = float(row.label)
        except ValueError:
            raise InvalidInput(f"cumulative: {row.label!r} is no number") from None
        if not before < point < inf:
            raise InvalidInput("cumulative: the points do not rise")
        before = point
    if answer.cumulative and not question.cumulative:
        raise InvalidInput("cumulative: it was not asked for")
    if answer.HasField("step") and not answer.step > 0:
        raise InvalidInput(f"step: {answer.step} is no distance of points")


def _suspicions(
    question: wire.SuspicionsRequest, answer: wire.SuspicionsResponse, plan: Plan
) -> None:
    labels = plan.asked(question.attribute).domain.labels
    _check_among("targets", answer.targets, labels)
    tests = [(each.level, each.test) for each in answer.suspicions]
    _check_among("level", [level for level, _ in tests], plan.levels)
    _check_once("suspicions", tests)


def _crosstab(question: wire.CrosstabRequest, answer: wire.CrosstabResponse, plan: Plan) -> None:
    check_known(answer)
    one, other = plan.asked(question.attribute), plan.asked(question.other)
    _check_title(answer.title, one.title)
    _check_title(answer.other_title, other.title)
    pairs = list(product(one.domain.labels, other.domain.labels))
    _check_same("rows", [(cell.value, cell.other) for cell in answer.rows], pairs)
    _check_same("rows", [cell.share.label for cell in answer.rows], list(map(", ".join, pairs)))


def _groups(
    question: wire.CompareGroupsRequest, answer: wire.CompareGroupsResponse, plan: Plan
) -> None:
    attribute, by = plan.asked(question.attribute), plan.asked(question.by)
    _check_title(answer.title, attribute.title)
    _check_title(answer.by_title, by.title)
    names, labels = by.domain.labels, attribute.domain.labels
    if not isinstance(attribute.domain, Categorical | Binned | Grid):
        labels = ("mean",)
    _check_same("groups", [row.label for row in answer.groups], names)
    rows = [(row.group, row.row.label) for row in answer.rows]
    _check_same("rows", rows, list(product(names, labels)))
    told = [(d.first_group, d.second_group, d.difference.label) for d in answer.differences]
    _check_among("differences", told, set(product(names, names, labels)))
    _check_once("differences", told)


def _fit(question: wire.FitRequest, answer: wire.FitResponse, plan: Plan) -> None:
    check_known(answer)
    _check_count("coefficients", answer.coefficients, question.columns)


def _pairs(question: wire.PairsRequest, answer: wire.PairsResponse, plan: Plan) -> None:
    check_known(answer)
    asked = plan.asked(question.attribute)
    _check_title(answer.title, asked.title)
    items = [item for each in answer.pairs for item in (each.first, each.second)]
    _check_among("pairs", items, asked.domain.labels)
    pairs = [frozenset((each.first, each.second)) for each in answer.pairs]
    _check_once("pairs", pairs)
    if len(pairs) > (question.top or _PAIRS) or any(len(pair) < 2 for pair in pairs):
        raise InvalidInput(f"pairs: asked for {question.top or _PAIRS}, got {len(pairs)}")


_CHECKS: dict[type[Message], Callable[[Any, Any, Plan], None]] = {
    wire.EstimateRequest: _estimate,
    wire.WordsRequest: _words,
    wire.CompareRequest: _compare,
    wire.ChangeRequest: _change,
    wire.DistributionRequest: _distribution,
    wire.SuspicionsRequest: _suspicions,
    wire.CrosstabRequest: _crosstab,
    wire.CompareGroupsRequest: _groups,
    wire.FitRequest: _fit,
    wire.PairsRequest: _pairs,
}


def _check_cohorts(answer: wire.EstimateResponse, plan: Plan) -> None:
    for each in answer.cohorts:
        if each.revision != plan.revision:
            raise InvalidInput(f"cohorts: revision {each.revision.hex()} is not the plan's")
        _check_among("cohorts: level", [each.level], plan.levels)
        period.start(plan.period, each.period)
        if each.map:
            check_name("cohorts: map", each.map)


def _check_title(told: str, title: str) -> None:
    if told != title:
        raise InvalidInput(f"title: the plan has {title!r}, got {told!r}")


def _joined(sums: Iterable[wire.ValueSet]) -> list[str]:
    return [" + ".join(each.values) for each in sums]


def _check_same(place: str, told: Sequence[object], expected: Sequence[object]) -> None:
    if list(told) != list(expected):
        raise InvalidInput(f"{place}: expected {_told(expected)}, got {_told(told)}")


def _check_count(place: str, told: Sequence[object], asked: Sequence[object]) -> None:
    if len(told) != len(asked):
        raise InvalidInput(f"{place}: expected {len(asked)}, got {len(told)}")


def _check_among(place: str, told: Iterable[object], known: Collection[object]) -> None:
    allowed = known if isinstance(known, set | frozenset | dict) else set(known)
    for each in told:
        if each not in allowed:
            raise InvalidInput(f"{place}: the plan, or the question, has no {_told([each])}")


def _check_once(place: str, told: Sequence[object]) -> None:
    if len(set(told)) != len(told):
        raise InvalidInput(f"{place}: one comes twice")


def _told(values: Sequence[object]) -> str:
    """Return the beginning of a list, and how long it is."""
    some = ", ".join(repr(value)[:60] for value in values[:3])
    return f"{some}, ... ({len(values):,})" if len(values) > 3 else some or "none"
