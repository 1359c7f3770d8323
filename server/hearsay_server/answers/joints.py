"""Answers about two attributes together: joint tables, tests of independence, groups compared."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hearsay.asking.columns import DIFFERENCE_COLUMNS
from hearsay.plans.kinds import Categorical, Numeric
from hearsay.plans.plan import Attribute, Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers.queries import (
    STRATIFIED,
    NoReports,
    Tallies,
    confidence_of,
    of_attributes,
)
from hearsay_server.answers.records import Pairs, mechanisms, repeats
from ldp.core.intervals import check_confidence
from ldp.core.repeated import Repeats
from ldp.errors import InvalidInput
from ldp.estimating.independence import Independence, detectable, independence, independence_of
from ldp.estimating.joint import (
    Groups,
    JointTable,
    PairCohort,
    check_cells,
    differences_between,
    joint,
    means_within,
    of_cohorts,
    within,
)
from ldp.estimating.pairs import MAX_VALUES

Floats = NDArray[np.float64]

POOLED = "gls"
"""The method by which levels are pooled as if their people answered alike."""


@dataclass(frozen=True)
class PairCohorts:
    """Each combination of levels and maps with the sum of its periods' pair tallies."""

    cohorts: Sequence[PairCohort]
    repeats: Sequence[Repeats]
    n: int

    @property
    def most_repeated(self) -> float:
        """The largest factor of the repeats."""
        return max(own.factor for own in self.repeats)


def by_levels(plan: Plan, attributes: tuple[str, str], pairs: Pairs) -> PairCohorts:
    """Return the cohorts of pair tallies; raise `NoReports` where there are none."""
    if not pairs.tallies:
        names = " and ".join(map(repr, attributes))
        raise NoReports(f"no stored record reports both {names} yet")
    cohorts = []
    for chosen, tally in pairs.tallies.items():
        first, second = mechanisms(plan, attributes, chosen)
        cohorts.append((first, second, tally))
    known = repeats(plan, attributes, pairs.counts)
    n = sum(tally.n for tally in pairs.tallies.values())
    return PairCohorts(cohorts, [known[chosen] for chosen in pairs.tallies], n)


def check_crosstab(plan: Plan, question: analyst_pb2.CrosstabRequest) -> None:
    """Raise `InvalidInput` for a joint table that cannot be asked for, before rows are read."""
    check_confidence(confidence_of(question))
    domains = [_values(plan, name) for name in (question.attribute, question.other)]
    _check_size(*domains)
    _alike(plan, question.method)


def crosstab(
    plan: Plan, question: analyst_pb2.CrosstabRequest, pairs: Pairs
) -> analyst_pb2.CrosstabResponse:
    """Answer a `CrosstabRequest` from the pair tallies of its records.

    Raises `NoReports` where there are none, `InvalidInput` for what cannot be asked.
    """
    given = by_levels(plan, (question.attribute, question.other), pairs)
    table = joint(given.cohorts, given.repeats, alike=_alike(plan, question.method))
    test = independence(given.cohorts, given.repeats)
    return table_answer(plan, question, table, test, given.most_repeated)


def crosstab_of_views(
    plan: Plan, question: analyst_pb2.CrosstabRequest, tallies: Tallies
) -> analyst_pb2.CrosstabResponse:
    """Answer a `CrosstabRequest` from the tallies of the views that ask both attributes."""
    names = question.attribute, question.other
    table, most_repeated = _of_views(plan, names, question.method, tallies)
    return table_answer(plan, question, table, independence_of(table), most_repeated)


def _of_views(
    plan: Plan, names: tuple[str, str], method: str, tallies: Tallies
) -> tuple[JointTable, float]:
    """Return the joint table of two attributes that views ask together, and the most repeats."""
    cohorts = of_attributes(plan, names, tallies)
    one, other = (len(_values(plan, name).values) for name in names)
    table = of_cohorts(cohorts, (one, other), alike=_alike(plan, method))
    return table, cohorts.most_repeated


def table_answer(
    plan: Plan,
    question: analyst_pb2.CrosstabRequest,
    table: JointTable,
    test: Independence,
    most_repeated: float,
) -> analyst_pb2.CrosstabResponse:
    """Return the answer of a joint table, from wherever it is, and of its test."""
    confidence = check_confidence(confidence_of(question))
    low, high = table.interval(confidence, simultaneous=question.simultaneous)
    shown = table.likely if question.nonnegative else table.value
    one, other = plan.attributes[question.attribute], plan.attributes[question.other]
    answer = analyst_pb2.CrosstabResponse(
        survey=plan.survey,
        attribute=one.name,
        other=other.name,
        title=one.title,
        other_title=other.title,
        confidence=confidence,
        simultaneous=question.simultaneous,
        reports=table.n,
        method=table.method + (" + likely" if question.nonnegative else ""),
        repeats=most_repeated,
        independence=analyst_pb2.Independence(
            statistic=test.statistic,
            degrees=test.degrees,
            p_value=test.p_value,
            noncentrality=test.noncentrality,
            detectable=detectable(test.degrees) if test.degrees else 0.0,
        ),
    )
    columns = np.stack([shown, table.standard_error, low, high, table.value], axis=2).tolist()
    for value, cells in zip(_labels(one), columns, strict=True):
        for across, (estimate, error, least, most, raw) in zip(_labels(other), cells, strict=True):
            share = _row(f"{value}, {across}", (estimate, error, least, most))
            if question.nonnegative:
                share.raw = raw
            answer.rows.add(value=value, other=across, share=share)
    return answer


def check_groups(plan: Plan, question: analyst_pb2.CompareGroupsRequest) -> None:
    """Raise `InvalidInput` for groups that cannot be compared, before rows are read."""
    check_confidence(confidence_of(question))
    by = _values(plan, question.by)
    _reference(by, question)
    domain = plan.attributes[question.attribute].domain
    if isinstance(domain, Categorical):
        _check_size(by, domain)
        _alike(plan, question.method)
    elif not isinstance(domain, Numeric):
        raise InvalidInput(
            f"{question.attribute!r} is {domain}: compare values, or the mean of a number"
        )
    else:
        check_cells(2, len(by.values))
        if len(by.values) > MAX_VALUES:
            raise InvalidInput(f"there may be {MAX_VALUES} groups, got {len(by.values)}")
        if question.method not in ("", STRATIFIED):
            raise InvalidInput(f"means are stratified by level, got method {question.method!r}")


def compare_groups(
    plan: Plan, question: analyst_pb2.CompareGroupsRequest, pairs: Pairs
) -> analyst_pb2.CompareGroupsResponse:
    """Answer a `CompareGroupsRequest` from the pair tallies of (attribute, by).

    Raises `NoReports` where there are none, `InvalidInput` for what cannot be asked.
    """
    given = by_levels(plan, (question.attribute, question.by), pairs)
    domain = plan.attributes[question.attribute].domain
    if isinstance(domain, Categorical):
        alike = _alike(plan, question.method)
        table = joint(given.cohorts, given.repeats, alike=alike)
        groups, method = within(table.transposed()), table.method
    else:
        assert isinstance(domain, Numeric)  # as was checked
        groups = means_within(given.cohorts, given.repeats).rescaled((domain.low, domain.high))
        method = STRATIFIED if len(given.cohorts) > 1 else "debias"
    return groups_answer(plan, question, groups, method, given.most_repeated)


def groups_of_views(
    plan: Plan, question: analyst_pb2.CompareGroupsRequest, tallies: Tallies
) -> analyst_pb2.CompareGroupsResponse:
    """Answer a `CompareGroupsRequest` from the tallies of the views that ask both attributes."""
    names = question.attribute, question.by
    table, most_repeated = _of_views(plan, names, question.method, tallies)
    return groups_answer(plan, question, within(table.transposed()), table.method, most_repeated)


def groups_answer(
    plan: Plan,
    question: analyst_pb2.CompareGroupsRequest,
    groups: Groups,
    method: str,
    most_repeated: float,
) -> analyst_pb2.CompareGroupsResponse:
    """Return the answer of an attribute's groups, from wherever they are."""
    confidence, simultaneous = check_confidence(confidence_of(question)), question.simultaneous
    attribute, by = plan.attributes[question.attribute], plan.attributes[question.by]
    names, labels = _labels(by), _labels(attribute)
    answer = analyst_pb2.CompareGroupsResponse(
        survey=plan.survey,
        attribute=attribute.name,
        by=by.name,
        title=attribute.title,
        by_title=by.title,
        statistic="frequency" if isinstance(attribute.domain, Categorical) else "mean",
        confidence=confidence,
        simultaneous=simultaneous,
        reports=groups.n,
        method=method,
        repeats=most_repeated,
        warning=_unclear(names, groups),
    )
    shares = Groups(
        groups.share[:, None],
        np.diag(groups.share_error**2),
        groups.share,
        groups.share_error,
        groups.n,
    )
    low, high = shares.interval(confidence, simultaneous=simultaneous)
    for name, *numbers in zip(
        names, shares.share, shares.share_error, low[:, 0], high[:, 0], strict=True
    ):
        answer.groups.append(_row(name, numbers))
    low, high = groups.interval(confidence, simultaneous=simultaneous)
    columns = np.stack([groups.value, groups.standard_error, low, high], axis=2).tolist()
    for name, own in zip(names, columns, strict=True):
        for label, numbers in zip(labels, own, strict=True):
            answer.rows.add(group=name, row=_row(label, numbers))
    domain = by.domain
    assert isinstance(domain, Categorical)
    found = differences_between(groups, _reference(domain, question))
    low, high = found.interval(confidence, simultaneous=simultaneous)
    columns = np.stack(
        [
            found.first,
            found.second,
            found.value,
            found.standard_error,
            low,
            high,
            found.p_value,
            found.adjusted_p_value,
        ],
        axis=2,
    ).tolist()
    for (first, second), own in zip(found.pairs, columns, strict=True):
        for label, numbers in zip(labels, own, strict=True):
            each = zip(DIFFERENCE_COLUMNS, numbers, strict=True)
            answer.differences.add(
                first_group=names[first],
                second_group=names[second],
                difference=analyst_pb2.Difference(label=label, **dict(each)),
            )
    return answer


def _unclear(names: Sequence[str], groups: Groups) -> str:
    """Warn of groups so small that nothing within them can be told."""
    unclear = [name for name, clear in zip(names, groups.clear, strict=True) if not clear]
    if not unclear:
        return ""
    return (
        f"too few people are known to be in {', '.join(unclear)} to tell of them: their intervals "
        "are all of the range, and they are not compared"
    )


def _row(label: str, numbers: Sequence[float]) -> analyst_pb2.Row:
    estimate, error, low, high = numbers
    return analyst_pb2.Row(label=label, estimate=estimate, standard_error=error, low=low, high=high)


def _labels(attribute: Attribute) -> Sequence[str]:
    domain = attribute.domain
    return domain.values if isinstance(domain, Categorical) else ["mean"]


def _values(plan: Plan, name: str) -> Categorical:
    domain = plan.attributes[name].domain
    if not isinstance(domain, Categorical):
        raise InvalidInput(
            f"{name!r} has no list of values, which a table and groups need: compare the mean of a "
            "number between the values of another attribute, or fit a regression"
        )
    return domain


def _check_size(one: Categorical, other: Categorical) -> None:
    check_cells(len(one.values), len(other.values))
    most = max(len(one.values), len(other.values))
    if most > MAX_VALUES:
        raise InvalidInput(f"an attribute of a joint table has {MAX_VALUES} values, got {most}")


def _alike(plan: Plan, method: str) -> bool:
    """Tell whether levels are pooled as if their people answered alike."""
    if method not in ("", STRATIFIED, POOLED):
        raise InvalidInput(f"method must be {STRATIFIED} or {POOLED}, got {method!r}")
    return method == POOLED or (not method and plan.levels_differ_at_most == 0)


def _reference(by: Categorical, question: analyst_pb2.CompareGroupsRequest) -> int | None:
    if not question.reference:
        return None
    if question.reference not in by.values:
        raise InvalidInput(
            f"{question.by!r} has no value {question.reference!r}; its values are {by}"
        )
    return by.values.index(question.reference)
