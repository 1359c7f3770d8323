"""An analyst's answers, checked against the question and the survey's plan."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, product
from typing import Any

from google.protobuf.message import Message

from hearsay.asking import roles
from hearsay.asking.answer import Answer, Table
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
from hearsay.checking import distributions, notes, tables
from hearsay.checking.expected import check_among, check_count, check_once, check_same
from hearsay.checking.plans import check_periods, check_selected
from hearsay.checking.shapes import (
    Shape,
    check_order,
    check_shape,
    check_subjects,
    check_weights,
    unit_of,
)
from hearsay.plans import period
from hearsay.plans.kinds import Binned, Categorical, Grid, Strings
from hearsay.plans.plan import Plan
from hearsay.plans.sealing import TRUST
from hearsay.plans.texts import check_name
from hearsay.v1 import analyst_pb2 as wire
from ldp.errors import InvalidInput

_OF_ESTIMATES = ("frequency", "mean", "rating", "share")

_OF_ANOTHER = wire.EstimateByRequest | wire.ForecastRequest | wire.WatchRequest
"""Questions that have a question: of groups, of times to come, again and again."""

_WITH_COHORTS = wire.EstimateRequest | wire.WordsRequest
"""Questions whose answers say which cohorts they are from."""

_OF_VALUES = ("frequency", "mean", "share", "share who rated")
_INDEPENDENCE = ("statistic", "dof", "pvalue", "noncentrality", "detectable", "reports")
_TOGETHER = (("shift_down", "shift_up"), ("alike", "alike_low", "alike_high"))
"""Columns of estimates that come together."""

_OF_PARTS = ("by", "compare", "change", "trend", "breaks")
"""The views of groups, parts or periods."""

_TESTED = ("homogeneity", "detectable_difference")
_TESTS = ("statistic", "p_value", "reports")

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
    check_among("view", [answer.view], views)
    check_among("statistic", [answer.statistic], _statistics(question, statistics, plan))
    check_same("survey", [answer.survey], [question.survey])
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
        check_same("parts", list(answer.parts), [])
    check_among("part", [note.part for note in answer.notes], ["", *answer.parts])
    _check_cohorts(question, answer, plan)
    check(question, answer, plan)
    notes.check(question, answer, plan)


def _has_intervals(question: Any, plan: Plan) -> bool:
    """Tell whether an answer has intervals: a test of independence has none, and no curve."""
    if isinstance(question, wire.CrosstabRequest):
        return question.view != "independent"
    if isinstance(question, wire.DistributionRequest):
        return distributions.points_of(question, plan) is not None
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
    check_among("group", [group], known)


def _estimate(question: wire.EstimateRequest, answer: Answer, plan: Plan) -> None:
    view = "sums" if question.sums else "sizes" if question.sizes else "estimate"
    check_same("view", [answer.view], [view])
    weights = ["design_effect", "weights"] if question.margins else []
    check_same("figures", list(answer.figures), [*_TESTED, *weights])
    check_weights(answer)
    labels = {
        table.name: list(table.index[0].labels)
        for table in _estimated(question, answer, plan, (question.attribute,))
    }
    if view == "sums":
        check_same("sums", labels["sums"], _joined(question.sums))
        return
    for table in answer.tables:
        if table.name == "shares":  # of who rated
            check_same("shares", labels["shares"], labels["rows"])
            check_same("left_out", [table.left_out], [answer.table().left_out])
        else:
            _check_labels(question, table, labels[table.name], plan)
    check_order(question.top, answer.table())


def _by(
    request: wire.EstimateByRequest, question: wire.EstimateRequest, answer: Answer, plan: Plan
) -> None:
    by = request.property or wire.EstimateByRequest.By.Name(request.by).lower()
    index = roles.grouped(by, attribute=question.attribute)
    for group in answer.parts:
        _check_group(request, group, plan)
    check_same("figures", list(answer.figures), [])
    for table in _estimated(question, answer, plan, index):
        each: dict[Any, list[Any]] = {}
        places: dict[Any, list[int]] = {}
        labels_of = zip(*(level.labels for level in table.index), strict=True)
        for place, (group, label) in enumerate(labels_of):
            each.setdefault(group, []).append(label)
            places.setdefault(group, []).append(place)
        # Of some groups the mean size of sets alone is known.
        is_cut = question.sizes and table.name == "rows"
        groups = [part for part in answer.parts if part in each or not is_cut]
        check_same(f"{table.name}: groups", list(each), groups)
        if not each or table.left_out % len(each):
            raise InvalidInput(f"left_out: {table.left_out} in {len(each)} groups")
        for labels in each.values():
            left = replace(table, left_out=table.left_out // len(each))
            _check_labels(question, left, labels, plan)
        for rows in places.values():
            check_order(question.top, table, rows)


def _forecast(
    request: wire.ForecastRequest, question: wire.EstimateRequest, answer: Answer, plan: Plan
) -> None:
    check_subjects(answer, plan, question.attribute)
    goal = request.HasField("goal")
    names = (*COLUMNS, "with_twice", *(["reports_for_goal"] if goal else []))
    shape = Shape("rows", (question.attribute,), names, unit_of(answer), is_cut=True)
    check_shape(answer, replace(shape, bounds=_bounds(question, plan)))
    _check_labels(question, answer.table(), answer.table().index[0].labels, plan)
    check_order(question.top, answer.table())
    if answer.statistic != "rating":
        tables.check_estimated(answer.table())
    weights = ["design_effect", "weights"] if question.margins else []
    foretold = ["closed", "rate", "twice", *(["reached"] if goal else [])]
    check_same("figures", list(answer.figures), [*_TESTED, *weights, *foretold])
    check_weights(answer)
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
    check_subjects(answer, plan, question.attribute)
    unit, rated = unit_of(answer), answer.statistic == "rating"
    shapes = []
    for table in answer.tables:
        more = [name for name in MORE_COLUMNS if name in table.names]
        if any(1 <= len({*several} - {*more}) < len(several) for several in _TOGETHER):
            raise InvalidInput(f"{table.name}: some columns lack those that they belong to")
        if "shift_down" in more and not question.HasField("forged"):
            raise InvalidInput(f"{table.name}: how far forged reports move it was not asked for")
        shape = Shape(
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
            shape = Shape("shares", index, COLUMNS, "share", "share who rated", is_cut=True)
        shapes.append(shape)
        if not rated:  # of groups, one may lack what another one has
            tables.check_estimated(table, without=MORE_COLUMNS if len(index) > 1 else ())
    check_shape(answer, *shapes)
    expected = ["sums"] if answer.view == "sums" else ["rows"]
    expected += ["shares"] if rated and answer.view == "estimate" else []
    if question.sizes:  # some mechanisms tell their mean alone
        expected = ["rows", "mean"] if len(answer.tables) > 1 else ["mean"]
    check_same("tables", [table.name for table in answer.tables], expected)
    return answer.tables


def _bounds(question: wire.EstimateRequest, plan: Plan) -> tuple[float, float] | None:
    """Return what the intervals of a number or of ratings lie in: the range."""
    return plan.asked(question.attribute).domain.own_range


def _check_labels(
    question: wire.EstimateRequest, table: Table, labels: Sequence[Any], plan: Plan
) -> None:
    """Check which values a table of estimates has, and how many it leaves out."""
    domain = plan.asked(question.attribute).domain
    every: Sequence[str] = domain.sizes if question.sizes else domain.labels
    if table.name == "mean":
        every = ["mean"]
    if question.values:
        check_same("rows", labels, list(dict.fromkeys(question.values)))
    elif question.top:
        check_among("rows", labels, every)
        check_once("rows", labels)
        if len(labels) > question.top:
            raise InvalidInput(f"rows: asked for {question.top}, got {len(labels)}")
    else:
        check_same("rows", labels, every)
    if table.left_out != len(every) - len(labels):
        raise InvalidInput(f"left_out: {table.left_out} of {len(every)} values")


def _words(question: wire.WordsRequest, answer: Answer, plan: Plan) -> None:
    check_subjects(answer, plan, question.attribute)
    asked = plan.asked(question.attribute)
    only = f"{asked.name!r} is answered by {asked.domain}, not in words"
    domain = Strings.expected(asked.domain, only)
    shape = Shape("rows", (question.attribute,), COLUMNS, is_cut=True)
    labels = [label for (label,) in check_shape(answer, shape)["rows"]]
    listed = question.candidates or domain.candidates
    if not listed:
        check_once("rows", labels)
        for label in labels:
            domain.encode(label)
    elif question.top or question.discover:
        check_among("rows", labels, listed)
    else:
        check_same("rows", labels, listed)
    if listed and answer.table().left_out != len(listed) - len(labels):
        raise InvalidInput(f"left_out: {answer.table().left_out} of {len(listed)} words")
    most = question.top or (_FOUND if question.discover else len(listed))
    if len(labels) > most:
        raise InvalidInput(f"rows: asked for {most}, got {len(labels)}")
    check_same("figures", list(answer.figures), [*_TESTED, *([] if listed else ["findable"])])
    findable: Any = answer.figures.get("findable", [0.0] * domain.longest)
    check_count("findable", findable, range(domain.longest))
    check_order(question.top or question.discover, answer.table())
    columns = [answer.table().column(name).plain() for name in ("estimate", "low", "high")]
    for estimate, *ends in zip(*columns, strict=True):
        if estimate is None and ends != [0, 1]:
            raise InvalidInput("rows: a share is nan, and its interval is not [0, 1]")


def _compare(question: wire.CompareRequest, answer: Answer, plan: Plan) -> None:
    tables.check_known(answer)
    check_subjects(answer, plan, question.attribute)
    check_same("figures", list(answer.figures), [])
    check_same("parts", list(answer.parts), ["first", "second"])
    shape = Shape("rows", (question.attribute,), DIFFERENCE_COLUMNS, unit_of(answer))
    rows = check_shape(answer, shape)["rows"]
    labels = plan.asked(question.attribute).domain.labels
    check_same("rows", rows, [(label,) for label in labels])


def _change(question: wire.ChangeRequest, answer: Answer, plan: Plan) -> None:
    tables.check_known(answer)
    check_subjects(answer, plan, question.attribute)
    kind = wire.ChangeRequest.Kind.Name(question.kind).lower()
    check_same("view", [answer.view], ["change" if kind == "difference" else kind])
    check_same("figures", list(answer.figures), ["panels", "kind", "any_p_value"])
    check_same("kind", [answer.figures["kind"]], [kind])
    has_mix = "mix" in answer.table().names
    names = [*change_columns(question.kind), *(["mix"] if has_mix else [])]
    breaks = question.kind == wire.ChangeRequest.BREAKS
    shape = Shape("rows", (question.attribute,), names, unit_of(answer), texts=["period"] * breaks)
    rows = check_shape(answer, shape)["rows"]
    if question.sums:
        check_same("rows", rows, [(label,) for label in _joined(question.sums)])
    elif question.ranges:
        check_same("rows", rows, distributions.range_labels(question, plan))
    else:
        labels = plan.asked(question.attribute).domain.labels
        check_same("rows", rows, [(label,) for label in labels])
    names = list(answer.parts)
    if question.kind == wire.ChangeRequest.DIFFERENCE:
        check_same("periods", names, question.selection.periods)
    else:
        check_periods(plan, names)
    if breaks:
        check_among("rows: period", answer.table().column("period").values, names)
    panels: Any = answer.figures["panels"]
    if not 0 <= panels <= plan.panels or panels % 1:
        raise InvalidInput(f"panels: {panels} of {plan.panels}")


def _suspicions(question: wire.SuspicionsRequest, answer: Answer, plan: Plan) -> None:
    check_subjects(answer, plan, question.attribute)
    tests = check_shape(answer, Shape("rows", ("level", "test"), _TESTS, "none"))["rows"]
    check_among("level", [level for level, _ in tests], plan.levels)
    check_once("suspicions", tests)
    for _, test in tests:
        check_name("test", test)
    check_same("figures", list(answer.figures), ["targets"])
    targets: Any = answer.figures["targets"]
    check_once("targets", targets)
    if question.targets:
        check_same("targets", sorted(targets), sorted(question.targets))
    check_among("targets", targets, plan.asked(question.attribute).domain.labels)


def _mixing(question: wire.MixingRequest, answer: Answer, plan: Plan) -> None:
    check_subjects(answer, plan, *plan.questions)
    tables.check_estimated(answer.table(), without=["shuffled_epsilon"])
    shape = Shape("rows", ("period", "level", "attributes"), MIXING_COLUMNS, "none")
    rows = check_shape(answer, shape)["rows"]
    periods = frozenset(question.selection.periods)
    told = {f"{name} ({chosen})" for name in plan.questions for chosen in plan.maps(name)}
    told |= {*plan.questions}
    for name, levels, attributes in rows:
        check_selected(plan, name, question.selection, periods)
        check_among("level", levels.split(", "), question.selection.levels or plan.levels)
        check_among("attributes", attributes.split(", "), told)
        check_once("attributes", attributes.split(", "))
    local: Any = answer.table().column("epsilon").plain()
    mixed: Any = answer.table().column("shuffled_epsilon").plain()
    for whole, bound in zip(local, mixed, strict=True):
        if not 0 <= (bound or 0) <= whole:
            raise InvalidInput(f"shuffled_epsilon: {bound} of records that spend {whole}")
    delta = question.delta if question.HasField("delta") else answer.figures.get("delta")
    figures = {"delta": delta, "forged": question.forged, "trust": TRUST}
    check_same("figures", list(answer.figures.items()), list(figures.items()))


def _crosstab(question: wire.CrosstabRequest, answer: Answer, plan: Plan) -> None:
    tables.check_known(answer)
    check_same("view", [answer.view], [question.view or "joint"])
    names = question.attribute, question.other
    check_subjects(answer, plan, *names)
    test = Shape("independence", ("attributes",), _INDEPENDENCE, "none")
    if answer.view == "independent":
        check_same("figures", list(answer.figures), [])
        rows = check_shape(answer, test)
    else:
        check_same("figures", list(answer.figures), ["other", "chi2"])
        check_same("figures: other", [answer.figures["other"]], [question.other])
        columns = (*COLUMNS, *(["raw"] if question.nonnegative else []))
        rows = check_shape(answer, Shape("rows", names, columns), test)
        one, other = (plan.asked(name).domain.labels for name in names)
        check_same("rows", rows["rows"], list(product(one, other)))
        check_count("independence", rows["independence"], range(1))
        told: Any = answer.figures["chi2"]
        tested = {column.name: column.plain() for column in answer.table("independence").columns}
        check_same(
            "figures: chi2", sorted(told.items()), sorted((n, v[0]) for n, v in tested.items())
        )
    check_same("independence", rows["independence"], [(" and ".join(names),)])


def _groups(question: wire.CompareGroupsRequest, answer: Answer, plan: Plan) -> None:
    check_same("view", [answer.view], [question.view or "given"])
    attribute, by = plan.asked(question.attribute), plan.asked(question.by)
    check_subjects(answer, plan, question.attribute, question.by)
    names, labels = by.domain.labels, attribute.domain.labels
    if not isinstance(attribute.domain, Categorical | Binned | Grid):
        labels = ("mean",)
    unit, bounds = unit_of(answer), attribute.domain.own_range
    two = roles.grouped(*roles.GROUPS, attribute=question.attribute)
    shapes = [
        Shape("rows", (question.by, question.attribute), COLUMNS, unit, bounds=bounds),
        Shape("groups", (question.by,), COLUMNS, "share", "frequency"),
        Shape("differences", two, DIFFERENCE_COLUMNS, unit),
    ]
    if answer.view == "differences":
        shapes = [shapes[2], *shapes[:2]]
    rows = check_shape(answer, *shapes)
    check_same("groups", rows["groups"], [(name,) for name in names])
    check_same("rows", rows["rows"], list(product(names, labels)))
    pairs: Iterable[tuple[str, str]] = combinations(names, 2)
    if question.reference:
        pairs = [(question.reference, name) for name in names if name != question.reference]
    compared = [(*pair, label) for pair, label in product(pairs, labels)]
    check_same("differences", rows["differences"], compared)
    unclear = _unclear(answer)
    for name, groups in (("rows", 1), ("groups", 1), ("differences", 2)):
        clear = [n for n, row in enumerate(rows[name]) if unclear.isdisjoint(row[:groups])]
        tables.check_estimated(answer.table(name), rows=clear)
    check_same("figures", sorted(answer.figures), ["by", "groups"])
    shares = answer.table("groups").column("estimate").values
    figures = {"by": question.by, "groups": dict(zip(names, shares, strict=True))}
    check_same("figures", sorted(answer.figures.items()), sorted(figures.items()))


def _unclear(answer: Answer) -> set[str]:
    """Return the groups of which notes say that nothing can be told within them."""
    unclear = [note for note in answer.notes if note.code == "groups_unclear"]
    told: list[Any] = [note.given["groups"] for note in unclear]
    return {name for groups in told for name in groups}


def _fit(question: wire.FitRequest, answer: Answer, plan: Plan) -> None:
    tables.check_estimated(answer.table(), without=["naive"])
    explained = variable_name(question.response)
    told = [(subject.name, subject.title) for subject in answer.subjects]
    check_same("attribute", told, [(explained, question.formula)])
    figures = {"formula": question.formula, "n": answer.reports}
    check_same("figures", sorted(answer.figures.items()), sorted(figures.items()))
    rows = check_shape(answer, Shape("rows", (explained,), FIT_COLUMNS, "own"))["rows"]
    check_same("rows", rows, [(column.label,) for column in question.columns])


def _pairs(question: wire.PairsRequest, answer: Answer, plan: Plan) -> None:
    tables.check_known(answer)
    check_subjects(answer, plan, question.attribute)
    check_same("figures", list(answer.figures), [])
    shape = Shape("rows", ("first", "second"), PAIR_COLUMNS, is_cut=True)
    rows = check_shape(answer, shape)["rows"]
    check_order(len(rows), answer.table())
    items = [item for pair in rows for item in pair]
    known = plan.asked(question.attribute).domain.labels
    check_among("pairs", items, known)
    pairs = [frozenset(pair) for pair in rows]
    check_once("pairs", pairs)
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
    wire.DistributionRequest: (distributions.VIEWS, ["share"], distributions.check),
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
        check_same("cohorts", answer.cohorts, [])
        return
    selection = question.selection
    for each in answer.cohorts:
        if each.revision != plan.revision:
            raise InvalidInput(f"cohorts: revision {each.revision.hex()} is not the plan's")
    levels, maps = selection.levels or plan.levels, _maps(question, plan)
    check_among("cohorts: level", [each.level for each in answer.cohorts], levels)
    check_among("cohorts: map", [each.map for each in answer.cohorts], maps)
    periods = frozenset(selection.periods)
    for name in {each.period for each in answer.cohorts}:
        check_selected(plan, name, selection, periods)


def _maps(question: wire.EstimateRequest | wire.WordsRequest, plan: Plan) -> Sequence[str]:
    """Return the maps that a question selects, "" for none."""
    return question.selection.maps or (*plan.maps(question.attribute), "")


def _joined(sums: Iterable[wire.ValueSet]) -> list[str]:
    return [" + ".join(each.values) for each in sums]
