"""An analyst's answers, checked against the question and the survey's plan."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
from google.protobuf.message import Message

from hearsay.asking import roles
from hearsay.asking.answer import Answer, Column, Table, Unit
from hearsay.asking.columns import (
    COLUMNS,
    DIFFERENCE_COLUMNS,
    FIT_COLUMNS,
    MIXING_COLUMNS,
    MORE_COLUMNS,
    NO_MAP,
    NOT_GIVEN,
    PAIR_COLUMNS,
    change_columns,
    variable_name,
)
from hearsay.checking import notes, tables
from hearsay.checking.plans import check_periods, check_selected
from hearsay.plans import period
from hearsay.plans.bins import Bins, below_of
from hearsay.plans.kinds import Binned, Categorical, Grid, Strings
from hearsay.plans.plan import Plan
from hearsay.plans.points import Points
from hearsay.plans.sealing import TRUST
from hearsay.plans.texts import check_name
from hearsay.v1 import analyst_pb2 as wire
from ldp.errors import InvalidInput

_OF_ESTIMATES = ("frequency", "mean", "rating", "share")

_MOST_ROWS = 1024
"""Bins that a distribution has, and words that are found: a server answers with no more."""

_OF_ANOTHER = wire.EstimateByRequest | wire.ForecastRequest | wire.WatchRequest
"""Questions that have a question: of groups, of times to come, again and again."""

_WITH_COHORTS = wire.EstimateRequest | wire.WordsRequest
"""Questions whose answers say which cohorts they are from."""

_DISTRIBUTIONS = ("distribution", "quantiles", "between", "cdf")

_OF_VALUES = ("frequency", "mean", "share", "share who rated")
_INDEPENDENCE = ("statistic", "dof", "pvalue", "noncentrality", "detectable", "reports")
_TOGETHER = (("shift_down", "shift_up"), ("alike", "alike_low", "alike_high"))
"""Columns of estimates that come together."""

_OF_PARTS = ("by", "compare", "change", "trend", "breaks")
"""The views of groups, parts or periods."""

_TESTED = ("homogeneity", "detectable_difference")
_TESTS = ("statistic", "p_value", "reports")

_NEAR = 1e-9
"""What part of its range an interval's end may be rounded out of it by."""

_FOUND = 20
_PAIRS = 100
"""Words, and pairs, of an answer unless others are asked for."""


def survey_of(request: Any) -> str:
    """Return the survey that a question is about."""
    survey: str = _question(request).survey
    return survey


def _question(request: Any) -> Any:
    """Return the question of a question of `_OF_ANOTHER`; else the request itself."""
    return request.question if isinstance(request, _OF_ANOTHER) else request


def check(request: Message, answer: Answer, plan: Plan) -> None:
    """Raise `InvalidInput` for an answer to a question that the survey's plan does not allow."""
    question = _question(request)
    views, statistics, check = _CHECKS[type(question)]
    if isinstance(request, wire.EstimateByRequest):
        views, check = ["by"], partial(_by, request)
    elif isinstance(request, wire.ForecastRequest):
        views, check = ["forecast"], partial(_forecast, request)
    _check_among("view", [answer.view], views)
    _check_among("statistic", [answer.statistic], _statistics(question, statistics, plan))
    _check_same("survey", [answer.survey], [question.survey])
    confident = _has_intervals(question, plan)
    asked = question.confidence if confident and question.HasField("confidence") else None
    if answer.confidence != (answer.confidence if asked is None else asked) or not (
        0 < answer.confidence < 1 if confident else answer.confidence == 0
    ):
        raise InvalidInput(f"confidence: {answer.confidence} is not that of the question")
    # Words that are the most frequent of many have simultaneous intervals, asked for or not.
    simultaneous = getattr(question, "simultaneous", answer.view == "words" and answer.simultaneous)
    if answer.simultaneous != simultaneous:
        raise InvalidInput(f"simultaneous: {answer.simultaneous} was not asked for")
    if answer.view not in _OF_PARTS:
        _check_same("parts", list(answer.parts), [])
    _check_among("part", [note.part for note in answer.notes], ["", *answer.parts])
    _check_cohorts(question, answer, plan)
    check(question, answer, plan)
    notes.check(question, answer, plan)


def _has_intervals(question: Any, plan: Plan) -> bool:
    """Tell whether an answer has intervals: a test of independence has none, and no curve."""
    if isinstance(question, wire.CrosstabRequest):
        return question.view != "independent"
    if isinstance(question, wire.DistributionRequest):
        return _points_of(question, plan) is not None
    return "confidence" in question.DESCRIPTOR.fields_by_name


def _statistics(question: Any, known: Sequence[str], plan: Plan) -> Sequence[str]:
    """Return what the estimates of an answer may be of: the `known` ones that its attribute has."""
    if isinstance(question, wire.CrosstabRequest):
        return ["test" if question.view == "independent" else "frequency"]
    if len(known) < 2:
        return known
    domain = plan.asked(question.attribute).domain
    if isinstance(question, wire.EstimateRequest):
        return ["share" if question.sizes else domain.statistic]
    if isinstance(question, wire.ChangeRequest) and (question.sums or question.ranges):
        return ["share"]
    if isinstance(question, wire.CompareGroupsRequest):
        return [domain.statistic]
    return [domain.compared]


def _check_subjects(answer: Answer, plan: Plan, *names: str) -> None:
    """Check which attributes an answer is about, and their titles."""
    told = [(subject.name, subject.title) for subject in answer.subjects]
    _check_same("attribute", told, [(name, plan.asked(name).title) for name in names])


@dataclass(frozen=True)
class _Shape:
    """A table that an answer has: its name, its index and its columns, and their unit."""

    name: str
    index: Sequence[str]
    columns: Sequence[str]
    unit: Unit = "share"
    statistic: str = ""
    texts: Sequence[str] = ()
    """Columns of words, which stand before the others."""
    numbered: bool = False
    """Whether its rows have numbers, and no labels."""
    is_cut: bool = False
    """Whether it may leave rows out."""
    bounds: tuple[float, float] | None = None
    """What the intervals in its unit lie in; those of shares, without, in [0, 1]."""


def _check_shape(answer: Answer, *shapes: _Shape) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """Return the labels of the rows of each table, once the answer has these tables alone."""
    _check_same("tables", [table.name for table in answer.tables], [shape.name for shape in shapes])
    found = {}
    for table, shape in zip(answer.tables, shapes, strict=True):
        _check_same(f"{table.name}: index", [level.name for level in table.index], shape.index)
        if table.left_out and not shape.is_cut:
            raise InvalidInput(f"{table.name}: left_out: {table.left_out} of a whole table")
        for level in table.index:
            if level.labels and isinstance(level.labels[0], str) == shape.numbered:
                raise InvalidInput(
                    f"{table.name}: {level.name} has numbers in place of labels, or "
                    "labels in place of numbers"
                )
        expected = [Column(name, "text", "none", ()) for name in shape.texts]
        expected += [roles.column(name, (), shape.unit) for name in shape.columns]
        both = [[(c.name, c.role, c.unit) for c in each] for each in (table.columns, expected)]
        _check_same(f"{table.name}: columns", *both)
        _check_same(f"{table.name}: statistic", [table.statistic], [shape.statistic])
        if "estimate" in table.names:
            _check_intervals(table, shape)
        found[table.name] = list(zip(*(level.labels for level in table.index), strict=True))
    return found


def _check_intervals(table: Table, shape: _Shape) -> None:
    """Check that the intervals of estimates lie within what these can be."""
    for column in table.columns:
        bounds = shape.bounds if column.unit == shape.unit else None
        bounds = (0.0, 1.0) if bounds is None and column.unit == "share" else bounds
        if column.role not in ("low", "high") or bounds is None:
            continue
        least, most = bounds
        numbers, near = np.asarray(column.values), _NEAR * (most - least)
        if ((numbers < least - near) | (numbers > most + near)).any():
            raise InvalidInput(f"{table.name}: {column.name} is not in [{least:g}, {most:g}]")


def _check_group(request: wire.EstimateByRequest, group: str, plan: Plan) -> None:
    """Check that a group is one that the question selects."""
    by, question = request.by, request.question
    selection = question.selection
    if by == wire.EstimateByRequest.PERIOD:
        check_selected(plan, group, selection, selection.periods)
        return
    if by == wire.EstimateByRequest.LEVEL:
        known: Collection[str] = selection.levels or plan.levels
    elif by == wire.EstimateByRequest.MAP:
        known = [name or NO_MAP for name in _maps(question, plan)]
    else:
        declared = {each.name: each.values for each in plan.properties.declared}
        selected = {each.property: each.values for each in selection.where}
        values = selected.get(request.property, (*declared.get(request.property, ()), ""))
        known = [value or NOT_GIVEN for value in values]
    _check_among("group", [group], known)


def _estimate(question: wire.EstimateRequest, answer: Answer, plan: Plan) -> None:
    view = "sums" if question.sums else "sizes" if question.sizes else "estimate"
    _check_same("view", [answer.view], [view])
    weights = ["design_effect", "weights"] if question.margins else []
    _check_same("figures", list(answer.figures), [*_TESTED, *weights])
    _check_weights(answer)
    labels = {
        table.name: list(table.index[0].labels)
        for table in _estimated(question, answer, plan, (question.attribute,))
    }
    if view == "sums":
        _check_same("sums", labels["sums"], _joined(question.sums))
        return
    if view == "sizes":
        for name, rows in labels.items():
            _check_same(name, rows, _sizes_in(name, question, plan))
        return
    _check_labels(question, answer.table(), labels["rows"], plan)
    _check_order(question.top, answer.table())
    for table in answer.tables[1:]:  # of who rated
        _check_same("shares", labels["shares"], labels["rows"])
        _check_same("left_out", [table.left_out], [answer.table().left_out])


def _by(
    request: wire.EstimateByRequest, question: wire.EstimateRequest, answer: Answer, plan: Plan
) -> None:
    by = request.property or wire.EstimateByRequest.By.Name(request.by).lower()
    index = roles.grouped(by, attribute=question.attribute)
    for group in answer.parts:
        _check_group(request, group, plan)
    _check_same("figures", list(answer.figures), [])
    for table in _estimated(question, answer, plan, index):
        each: dict[Any, list[Any]] = {}
        places: dict[Any, list[int]] = {}
        labels_of = zip(*(level.labels for level in table.index), strict=True)
        for place, (group, label) in enumerate(labels_of):
            each.setdefault(group, []).append(label)
            places.setdefault(group, []).append(place)
        groups = [part for part in answer.parts if part in each or not question.sizes]
        _check_same(f"{table.name}: groups", list(each), groups)
        if not each or table.left_out % len(each):
            raise InvalidInput(f"left_out: {table.left_out} in {len(each)} groups")
        for labels in each.values():
            left = replace(table, left_out=table.left_out // len(each))
            if question.sizes:  # of some groups their mean alone is known
                _check_same(table.name, labels, _sizes_in(table.name, question, plan))
            else:
                _check_labels(question, left, labels, plan)
        for rows in places.values():
            _check_order(question.top, table, rows)


def _forecast(
    request: wire.ForecastRequest, question: wire.EstimateRequest, answer: Answer, plan: Plan
) -> None:
    _check_subjects(answer, plan, question.attribute)
    goal = request.HasField("goal")
    names = (*COLUMNS, "with_twice", *(["reports_for_goal"] if goal else []))
    shape = _Shape("rows", (question.attribute,), names, _unit(answer), is_cut=True)
    _check_shape(answer, replace(shape, bounds=_bounds(question, plan)))
    _check_labels(question, answer.table(), answer.table().index[0].labels, plan)
    _check_order(question.top, answer.table())
    if answer.statistic != "rating":
        tables.check_estimated(answer.table())
    weights = ["design_effect", "weights"] if question.margins else []
    foretold = ["closed", "rate", "twice", *(["reached"] if goal else [])]
    _check_same("figures", list(answer.figures), [*_TESTED, *weights, *foretold])
    _check_weights(answer)
    figures: Any = answer.figures
    if not plan.period and figures["rate"] is not None:
        raise InvalidInput(f"rate: {figures['rate']} in a survey without periods")
    for name in foretold[2:]:
        if figures[name] is not None:
            period.start(plan.period, figures[name])


def _estimated(
    question: wire.EstimateRequest, answer: Answer, plan: Plan, index: Sequence[str]
) -> Sequence[Table]:
    """Return the tables of estimates, once their shape and their numbers are checked."""
    _check_subjects(answer, plan, question.attribute)
    unit, rated = _unit(answer), answer.statistic == "rating"
    shapes = []
    for table in answer.tables:
        more = [name for name in MORE_COLUMNS if name in table.names]
        if any(1 <= len({*several} - {*more}) < len(several) for several in _TOGETHER):
            raise InvalidInput(f"{table.name}: some columns lack those that they belong to")
        if "shift_down" in more and not question.HasField("forged"):
            raise InvalidInput(f"{table.name}: how far forged reports move it was not asked for")
        shape = _Shape(
            table.name,
            index,
            (*COLUMNS, *more),
            unit,
            is_cut=table.name == "rows",
            bounds=_bounds(question, plan),
        )
        if table.name == "mean":
            most = len(plan.asked(question.attribute).domain.sizes) - 1.0
            shape = replace(shape, unit="own", statistic="mean size", bounds=(0.0, most))
        if table.name == "shares":
            shape = _Shape("shares", index, COLUMNS, "share", "share who rated", is_cut=True)
        shapes.append(shape)
        if not rated:  # of groups, one may lack what another one has
            tables.check_estimated(table, without=MORE_COLUMNS if len(index) > 1 else ())
    _check_shape(answer, *shapes)
    expected = ["sums"] if answer.view == "sums" else ["rows"]
    expected += ["shares"] if rated and answer.view == "estimate" else []
    if question.sizes:  # some mechanisms tell their mean alone
        expected = ["rows", "mean"] if len(answer.tables) > 1 else ["mean"]
    _check_same("tables", [table.name for table in answer.tables], expected)
    return answer.tables


def _sizes_in(table: str, question: wire.EstimateRequest, plan: Plan) -> Sequence[str]:
    """Return the rows of a table about the sizes of sets."""
    return ["mean"] if table == "mean" else plan.asked(question.attribute).domain.sizes


def _bounds(question: wire.EstimateRequest, plan: Plan) -> tuple[float, float] | None:
    """Return what the intervals of a number or of ratings lie in: the range."""
    return plan.asked(question.attribute).domain.own_range


def _check_weights(answer: Answer) -> None:
    """Check that the weights of an answer with margins are the smallest and the largest one."""
    weights: Any = answer.figures.get("weights", (1.0, 1.0))
    _check_count("weights", weights, range(2))


def _check_labels(
    question: wire.EstimateRequest, table: Table, labels: Sequence[Any], plan: Plan
) -> None:
    """Check which values a table of estimates has, and how many it leaves out."""
    every = plan.asked(question.attribute).domain.labels
    if question.values:
        _check_same("rows", labels, list(dict.fromkeys(question.values)))
    elif question.top:
        _check_among("rows", labels, every)
        _check_once("rows", labels)
        if len(labels) > question.top:
            raise InvalidInput(f"rows: asked for {question.top}, got {len(labels)}")
    else:
        _check_same("rows", labels, every)
    if table.left_out != len(every) - len(labels):
        raise InvalidInput(f"left_out: {table.left_out} of {len(every)} values")


def _check_order(top: int, table: Table, rows: Sequence[int] | None = None) -> None:
    """Check that the rows of the `top` estimates, of all unless some are given, are in their order,
    those that are not known last."""
    estimates = np.nan_to_num(table.column("estimate").values, nan=-np.inf)
    chosen = estimates if rows is None else estimates[list(rows)]
    if top and (chosen[1:] > chosen[:-1]).any():
        raise InvalidInput(f"{table.name}: the largest estimates are not in their order")


def _words(question: wire.WordsRequest, answer: Answer, plan: Plan) -> None:
    _check_subjects(answer, plan, question.attribute)
    asked = plan.asked(question.attribute)
    only = f"{asked.name!r} is answered by {asked.domain}, not in words"
    domain = Strings.expected(asked.domain, only)
    shape = _Shape("rows", (question.attribute,), COLUMNS, is_cut=True)
    labels = [label for (label,) in _check_shape(answer, shape)["rows"]]
    listed = question.candidates or domain.candidates
    if not listed:
        _check_once("rows", labels)
        for label in labels:
            domain.encode(label)
    elif question.top or question.discover:
        _check_among("rows", labels, listed)
    else:
        _check_same("rows", labels, listed)
    if listed and answer.table().left_out != len(listed) - len(labels):
        raise InvalidInput(f"left_out: {answer.table().left_out} of {len(listed)} words")
    most = question.top or (_FOUND if question.discover else len(listed))
    if len(labels) > most:
        raise InvalidInput(f"rows: asked for {most}, got {len(labels)}")
    _check_same("figures", list(answer.figures), [*_TESTED, *([] if listed else ["findable"])])
    findable: Any = answer.figures.get("findable", [0.0] * domain.longest)
    _check_count("findable", findable, range(domain.longest))
    _check_order(question.top or question.discover, answer.table())
    columns = [answer.table().column(name).plain() for name in ("estimate", "low", "high")]
    for estimate, *ends in zip(*columns, strict=True):
        if estimate is None and ends != [0, 1]:
            raise InvalidInput("rows: a share is nan, and its interval is not [0, 1]")


def _compare(question: wire.CompareRequest, answer: Answer, plan: Plan) -> None:
    tables.check_known(answer)
    _check_subjects(answer, plan, question.attribute)
    _check_same("figures", list(answer.figures), [])
    _check_same("parts", list(answer.parts), ["first", "second"])
    shape = _Shape("rows", (question.attribute,), DIFFERENCE_COLUMNS, _unit(answer))
    rows = _check_shape(answer, shape)["rows"]
    labels = plan.asked(question.attribute).domain.labels
    _check_same("rows", rows, [(label,) for label in labels])


def _change(question: wire.ChangeRequest, answer: Answer, plan: Plan) -> None:
    tables.check_known(answer)
    _check_subjects(answer, plan, question.attribute)
    kind = wire.ChangeRequest.Kind.Name(question.kind).lower()
    _check_same("view", [answer.view], ["change" if kind == "difference" else kind])
    _check_same("figures", list(answer.figures), ["panels", "kind", "any_p_value"])
    _check_same("kind", [answer.figures["kind"]], [kind])
    has_mix = "mix" in answer.table().names
    names = [*change_columns(question.kind), *(["mix"] if has_mix else [])]
    breaks = question.kind == wire.ChangeRequest.BREAKS
    shape = _Shape("rows", (question.attribute,), names, _unit(answer), texts=["period"] * breaks)
    rows = _check_shape(answer, shape)["rows"]
    if question.sums:
        _check_same("rows", rows, [(label,) for label in _joined(question.sums)])
    elif question.ranges:
        _check_same("rows", rows, _range_labels(question, plan))
    else:
        labels = plan.asked(question.attribute).domain.labels
        _check_same("rows", rows, [(label,) for label in labels])
    names = list(answer.parts)
    if question.kind == wire.ChangeRequest.DIFFERENCE:
        _check_same("periods", names, question.selection.periods)
    else:
        check_periods(plan, names)
    if breaks:
        _check_among("rows: period", answer.table().column("period").values, names)
    panels: Any = answer.figures["panels"]
    if not 0 <= panels <= plan.panels or panels % 1:
        raise InvalidInput(f"panels: {panels} of {plan.panels}")


def _unit(answer: Answer) -> Unit:
    return roles.unit_of(answer.statistic)


def _distribution(question: wire.DistributionRequest, answer: Answer, plan: Plan) -> None:
    _check_same("view", [answer.view], [question.view or "distribution"])
    if question.other:
        both = question.attribute, question.other
        name, title = "+".join(both), " / ".join(plan.asked(each).title or each for each in both)
    else:
        name, title = question.attribute, plan.asked(question.attribute).title
    told = [(subject.name, subject.title) for subject in answer.subjects]
    _check_same("attribute", told, [(name, title)])
    weights = ["design_effect", "weights"] if question.margins else []
    _check_same("figures", list(answer.figures), ["step", *weights])
    _check_weights(answer)
    points = _points_of(question, plan)
    step = points.step if isinstance(points, Points) else None
    _check_same("step", [answer.figures["step"]], [step])
    has_bins = answer.view == "distribution" or question.bins or question.edges
    shapes = [_Shape("bins", ("left", "right"), COLUMNS, numbered=True)] if has_bins else []
    if question.quantiles:
        number: Any = plan.asked(question.attribute).domain
        shape = _Shape("quantiles", ("quantile",), COLUMNS, "own", name, numbered=True)
        shapes.append(replace(shape, bounds=(number.low, number.high)))
    if question.ranges:
        shapes.append(_Shape("ranges", (name,), COLUMNS))
    if question.cumulative:
        shapes.append(_Shape("below", ("below",), COLUMNS, numbered=True))
    first = {"between": "ranges", "cdf": "below", "quantiles": "quantiles"}.get(answer.view, "bins")
    shapes.sort(key=lambda shape: shape.name != first)
    rows = _check_shape(answer, *shapes)
    curve = points is None
    for table in answer.tables:
        missing = ("standard_error",) if table.name == "quantiles" else ()
        tables.check_estimated(table, without=COLUMNS[1:] if curve else missing)
    _check_same("ranges", rows.get("ranges", ()), _range_labels(question, plan))
    levels = [(level,) for level in question.quantiles]
    _check_same("quantiles", rows.get("quantiles", ()), levels)
    bins, below = rows.get("bins", ()), rows.get("below", ())
    if len(bins) > (question.bins or _MOST_ROWS):
        raise InvalidInput(f"bins: asked for {question.bins or _MOST_ROWS}, got {len(bins)}")
    _check_numbers("bins", bins, _bins(question, plan, len(bins)))
    if points is None:
        ends = _curve_edges(question, plan, len(below) + 1)[1:-1]
    else:
        ends = below_of(points)
    _check_numbers("below", below, [(end,) for end in ends] if question.cumulative else [])


def _bins(
    question: wire.DistributionRequest, plan: Plan, count: int
) -> Sequence[tuple[float, float]]:
    """Return the ends of the bins of an answer that has so many."""
    points = _points_of(question, plan)
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


def _range_labels(
    question: wire.DistributionRequest | wire.ChangeRequest, plan: Plan
) -> list[tuple[str]]:
    """Return what the ranges of a question are called, or its rectangles."""
    points = _points_of(question, plan)
    if isinstance(question, wire.DistributionRequest) and question.other:
        other = plan.asked(question.other).domain.points_in()
        both = zip(question.ranges, question.other_ranges, strict=True)
        return [(f"{_called(points, one)}, {_called(other, two)}",) for one, two in both]
    return [(_called(points, each),) for each in question.ranges]


def _points_of(
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


def _suspicions(question: wire.SuspicionsRequest, answer: Answer, plan: Plan) -> None:
    _check_subjects(answer, plan, question.attribute)
    tests = _check_shape(answer, _Shape("rows", ("level", "test"), _TESTS, "none"))["rows"]
    _check_among("level", [level for level, _ in tests], plan.levels)
    _check_once("suspicions", tests)
    for _, test in tests:
        check_name("test", test)
    _check_same("figures", list(answer.figures), ["targets"])
    targets: Any = answer.figures["targets"]
    _check_once("targets", targets)
    if question.targets:
        _check_same("targets", sorted(targets), sorted(question.targets))
    _check_among("targets", targets, plan.asked(question.attribute).domain.labels)


def _mixing(question: wire.MixingRequest, answer: Answer, plan: Plan) -> None:
    _check_subjects(answer, plan, *plan.questions)
    tables.check_estimated(answer.table(), without=["shuffled_epsilon"])
    shape = _Shape("rows", ("period", "level", "attributes"), MIXING_COLUMNS, "none")
    rows = _check_shape(answer, shape)["rows"]
    periods = frozenset(question.selection.periods)
    told = {f"{name} ({chosen})" for name in plan.questions for chosen in plan.maps(name)}
    told |= {*plan.questions}
    for name, levels, attributes in rows:
        check_selected(plan, name, question.selection, periods)
        _check_among("level", levels.split(", "), question.selection.levels or plan.levels)
        _check_among("attributes", attributes.split(", "), told)
        _check_once("attributes", attributes.split(", "))
    local: Any = answer.table().column("epsilon").plain()
    mixed: Any = answer.table().column("shuffled_epsilon").plain()
    for whole, bound in zip(local, mixed, strict=True):
        if not 0 <= (bound or 0) <= whole:
            raise InvalidInput(f"shuffled_epsilon: {bound} of records that spend {whole}")
    delta = question.delta if question.HasField("delta") else answer.figures.get("delta")
    figures = {"delta": delta, "forged": question.forged, "trust": TRUST}
    _check_same("figures", list(answer.figures.items()), list(figures.items()))


def _crosstab(question: wire.CrosstabRequest, answer: Answer, plan: Plan) -> None:
    tables.check_known(answer)
    _check_same("view", [answer.view], [question.view or "joint"])
    names = question.attribute, question.other
    _check_subjects(answer, plan, *names)
    test = _Shape("independence", ("attributes",), _INDEPENDENCE, "none")
    if answer.view == "independent":
        _check_same("figures", list(answer.figures), [])
        rows = _check_shape(answer, test)
    else:
        _check_same("figures", list(answer.figures), ["other", "chi2"])
        _check_same("figures: other", [answer.figures["other"]], [question.other])
        columns = (*COLUMNS, *(["raw"] if question.nonnegative else []))
        rows = _check_shape(answer, _Shape("rows", names, columns), test)
        one, other = (plan.asked(name).domain.labels for name in names)
        _check_same("rows", rows["rows"], list(product(one, other)))
        _check_count("independence", rows["independence"], range(1))
        told: Any = answer.figures["chi2"]
        tested = {column.name: column.plain() for column in answer.table("independence").columns}
        _check_same(
            "figures: chi2", sorted(told.items()), sorted((n, v[0]) for n, v in tested.items())
        )
    _check_same("independence", rows["independence"], [(" and ".join(names),)])


def _groups(question: wire.CompareGroupsRequest, answer: Answer, plan: Plan) -> None:
    _check_same("view", [answer.view], [question.view or "given"])
    attribute, by = plan.asked(question.attribute), plan.asked(question.by)
    _check_subjects(answer, plan, question.attribute, question.by)
    names, labels = by.domain.labels, attribute.domain.labels
    if not isinstance(attribute.domain, Categorical | Binned | Grid):
        labels = ("mean",)
    unit, bounds = _unit(answer), attribute.domain.own_range
    two = roles.grouped(*roles.GROUPS, attribute=question.attribute)
    shapes = [
        _Shape("rows", (question.by, question.attribute), COLUMNS, unit, bounds=bounds),
        _Shape("groups", (question.by,), COLUMNS, "share", "frequency"),
        _Shape("differences", two, DIFFERENCE_COLUMNS, unit),
    ]
    if answer.view == "differences":
        shapes = [shapes[2], *shapes[:2]]
    rows = _check_shape(answer, *shapes)
    _check_same("groups", rows["groups"], [(name,) for name in names])
    _check_same("rows", rows["rows"], list(product(names, labels)))
    pairs: Iterable[tuple[str, str]] = combinations(names, 2)
    if question.reference:
        pairs = [(question.reference, name) for name in names if name != question.reference]
    compared = [(*pair, label) for pair, label in product(pairs, labels)]
    _check_same("differences", rows["differences"], compared)
    unclear = _unclear(answer)
    for name, groups in (("rows", 1), ("groups", 1), ("differences", 2)):
        clear = [n for n, row in enumerate(rows[name]) if unclear.isdisjoint(row[:groups])]
        tables.check_estimated(answer.table(name), rows=clear)
    _check_same("figures", sorted(answer.figures), ["by", "groups"])
    shares = answer.table("groups").column("estimate").values
    figures = {"by": question.by, "groups": dict(zip(names, shares, strict=True))}
    _check_same("figures", sorted(answer.figures.items()), sorted(figures.items()))


def _unclear(answer: Answer) -> set[str]:
    """Return the groups of which notes say that nothing can be told within them."""
    unclear = [note for note in answer.notes if note.code == "groups_unclear"]
    told: list[Any] = [note.given["groups"] for note in unclear]
    return {name for groups in told for name in groups}


def _fit(question: wire.FitRequest, answer: Answer, plan: Plan) -> None:
    tables.check_estimated(answer.table(), without=["naive"])
    explained = variable_name(question.response)
    told = [(subject.name, subject.title) for subject in answer.subjects]
    _check_same("attribute", told, [(explained, question.formula)])
    figures = {"formula": question.formula, "n": answer.reports}
    _check_same("figures", sorted(answer.figures.items()), sorted(figures.items()))
    rows = _check_shape(answer, _Shape("rows", (explained,), FIT_COLUMNS, "own"))["rows"]
    _check_same("rows", rows, [(column.label,) for column in question.columns])


def _pairs(question: wire.PairsRequest, answer: Answer, plan: Plan) -> None:
    tables.check_known(answer)
    _check_subjects(answer, plan, question.attribute)
    _check_same("figures", list(answer.figures), [])
    shape = _Shape("rows", ("first", "second"), PAIR_COLUMNS, is_cut=True)
    rows = _check_shape(answer, shape)["rows"]
    _check_order(len(rows), answer.table())
    items = [item for pair in rows for item in pair]
    known = plan.asked(question.attribute).domain.labels
    _check_among("pairs", items, known)
    pairs = [frozenset(pair) for pair in rows]
    _check_once("pairs", pairs)
    if len(pairs) > (question.top or _PAIRS) or any(len(pair) < 2 for pair in pairs):
        raise InvalidInput(f"pairs: asked for {question.top or _PAIRS}, got {len(pairs)}")
    if answer.table().left_out != len(known) * (len(known) - 1) // 2 - len(pairs):
        raise InvalidInput(f"left_out: {answer.table().left_out} is not the number of other pairs")


_CHECKS: dict[
    type[Message], tuple[Sequence[str], Sequence[str], Callable[[Any, Answer, Plan], None]]
] = {
    wire.ChangeRequest: (["change", "trend", "breaks"], _OF_VALUES, _change),
    wire.CompareGroupsRequest: (["given", "differences"], ["frequency", "mean"], _groups),
    wire.CompareRequest: (["compare"], _OF_VALUES, _compare),
    wire.CrosstabRequest: (["joint", "independent"], ["frequency", "test"], _crosstab),
    wire.DistributionRequest: (_DISTRIBUTIONS, ["share"], _distribution),
    wire.EstimateRequest: (["estimate", "sizes", "sums"], _OF_ESTIMATES, _estimate),
    wire.FitRequest: (["fit"], ["coefficient"], _fit),
    wire.MixingRequest: (["mixing"], ["epsilon"], _mixing),
    wire.PairsRequest: (["pairs"], ["share of both"], _pairs),
    wire.SuspicionsRequest: (["suspicions"], ["test"], _suspicions),
    wire.WordsRequest: (["words"], ["share"], _words),
}
"""The views of the answers to each question, what their estimates are of, and their check."""


def _check_cohorts(question: Any, answer: Answer, plan: Plan) -> None:
    """Check that the question selects the reports that the answer is from, as far as it says."""
    if not isinstance(question, _WITH_COHORTS):
        _check_same("cohorts", answer.cohorts, [])
        return
    selection = question.selection
    for each in answer.cohorts:
        if each.revision != plan.revision:
            raise InvalidInput(f"cohorts: revision {each.revision.hex()} is not the plan's")
    levels, maps = selection.levels or plan.levels, _maps(question, plan)
    _check_among("cohorts: level", [each.level for each in answer.cohorts], levels)
    _check_among("cohorts: map", [each.map for each in answer.cohorts], maps)
    periods = frozenset(selection.periods)
    for name in {each.period for each in answer.cohorts}:
        check_selected(plan, name, selection, periods)


def _maps(question: wire.EstimateRequest | wire.WordsRequest, plan: Plan) -> Sequence[str]:
    """Return the maps that a question selects, "" for none."""
    return question.selection.maps or (*plan.maps(question.attribute), "")


def _joined(sums: Iterable[wire.ValueSet]) -> list[str]:
    return [" + ".join(each.values) for each in sums]


def _check_same(place: str, told: Sequence[object], expected: Sequence[object]) -> None:
    if list(told) != list(expected):
        raise InvalidInput(f"{place}: expected {_told(expected)}, got {_told(told)}")


def _check_count(place: str, told: Sequence[object], asked: Sequence[object]) -> None:
    if len(told) != len(asked):
        raise InvalidInput(f"{place}: expected {len(asked)}, got {len(told)}")


def _check_numbers(
    place: str, told: Sequence[tuple[float, ...]], expected: Sequence[tuple[float, ...]]
) -> None:
    """Check the numbers of rows, which another computer may have rounded otherwise."""
    _check_count(place, told, expected)
    if told and not np.allclose(told, expected, rtol=1e-12, atol=1e-12 * np.ptp(expected)):
        raise InvalidInput(f"{place}: expected {_told(expected)}, got {_told(told)}")


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
