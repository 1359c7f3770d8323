"""Answers about two attributes together: joint tables, tests of independence, groups compared."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hearsay.asking import cautions, roles
from hearsay.asking.answer import Answer, Column, Note, Subject, Table, Unit
from hearsay.asking.columns import DIFFERENCE_COLUMNS
from hearsay.plans.kinds import ByKind, Categorical, Domain, Numeric
from hearsay.plans.plan import Plan
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

_COLUMNS = ("estimate", "standard_error", "low", "high")

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
    if question.view not in ("", "joint", "independent"):
        raise InvalidInput(f"view must be joint or independent, got {question.view!r}")
    domains = [_values(plan, name) for name in (question.attribute, question.other)]
    _check_size(*domains)
    _alike(plan, question.method)


def crosstab(plan: Plan, question: analyst_pb2.CrosstabRequest, pairs: Pairs) -> Answer:
    """Answer a `CrosstabRequest` from the pair tallies of its records.

    Raises `NoReports` where there are none, `InvalidInput` for what cannot be asked.
    """
    given = by_levels(plan, (question.attribute, question.other), pairs)
    table = joint(given.cohorts, given.repeats, alike=_alike(plan, question.method))
    test = independence(given.cohorts, given.repeats)
    return table_answer(plan, question, table, test, given.most_repeated)


def crosstab_of_views(
    plan: Plan, question: analyst_pb2.CrosstabRequest, tallies: Tallies
) -> Answer:
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
) -> Answer:
    """Return the answer of a joint table, from wherever it is, and of its test."""
    confidence = check_confidence(confidence_of(question))
    low, high = table.interval(confidence, simultaneous=question.simultaneous)
    shown = table.likely if question.nonnegative else table.value
    one, other = plan.attributes[question.attribute], plan.attributes[question.other]
    pairs = list(product(one.domain.labels, other.domain.labels))
    numbers = {"estimate": shown, "standard_error": table.standard_error, "low": low, "high": high}
    if question.nonnegative:
        numbers["raw"] = table.value
    rows = Table(
        "rows",
        roles.index((one.name, [a for a, _ in pairs]), (other.name, [b for _, b in pairs])),
        tuple(roles.column(name, cells.ravel(), "share") for name, cells in numbers.items()),
    )
    tested = {
        "statistic": test.statistic,
        "dof": test.degrees,
        "pvalue": test.p_value,
        "noncentrality": test.noncentrality,
        "detectable": detectable(test.degrees) if test.degrees else 0.0,
        "reports": table.n,
    }
    independent = Table(
        "independence",
        roles.index(("attributes", [f"{one.name} and {other.name}"])),
        tuple(roles.column(name, [number], "none") for name, number in tested.items()),
    )
    is_test = question.view == "independent"
    return Answer(
        question.view or "joint",
        plan.survey,
        (Subject(one.name, one.title), Subject(other.name, other.title)),
        "test" if is_test else "frequency",
        (independent,) if is_test else (rows, independent),
        confidence=0.0 if is_test else confidence,
        simultaneous=question.simultaneous,
        reports=table.n,
        repeats=most_repeated,
        method=table.method + (" + likely" if question.nonnegative else ""),
        figures={} if is_test else {"other": other.name, "chi2": tested},
    )


def check_groups(plan: Plan, question: analyst_pb2.CompareGroupsRequest) -> None:
    """Raise `InvalidInput` for groups that cannot be compared, before rows are read."""
    check_confidence(confidence_of(question))
    if question.view not in ("", "given", "differences"):
        raise InvalidInput(f"view must be given or differences, got {question.view!r}")
    by = _values(plan, question.by)
    _reference(by, question)
    domain = plan.attributes[question.attribute].domain
    _WITHIN[domain](plan, question, by, domain)


def compare_groups(plan: Plan, question: analyst_pb2.CompareGroupsRequest, pairs: Pairs) -> Answer:
    """Answer a `CompareGroupsRequest` from the pair tallies of (attribute, by).

    Raises `NoReports` where there are none, `InvalidInput` for what cannot be asked.
    """
    given = by_levels(plan, (question.attribute, question.by), pairs)
    domain = plan.attributes[question.attribute].domain
    groups, method = _WITHIN[domain](plan, question, _values(plan, question.by), domain)(given)
    return groups_answer(plan, question, groups, method, given.most_repeated)


_Within = Callable[[PairCohorts], tuple[Groups, str]]
"""Estimates an attribute within groups, and names the method."""


def _of_values(
    plan: Plan, question: analyst_pb2.CompareGroupsRequest, by: Categorical, domain: Categorical
) -> _Within:
    _check_size(by, domain)
    alike = _alike(plan, question.method)

    def shares(given: PairCohorts) -> tuple[Groups, str]:
        table = joint(given.cohorts, given.repeats, alike=alike)
        return within(table.transposed()), table.method

    return shares


def _of_a_number(
    plan: Plan, question: analyst_pb2.CompareGroupsRequest, by: Categorical, domain: Numeric
) -> _Within:
    check_cells(2, len(by.values))
    if len(by.values) > MAX_VALUES:
        raise InvalidInput(f"there may be {MAX_VALUES} groups, got {len(by.values)}")
    if question.method not in ("", STRATIFIED):
        raise InvalidInput(f"means are stratified by level, got method {question.method!r}")

    def means(given: PairCohorts) -> tuple[Groups, str]:
        groups = means_within(given.cohorts, given.repeats).rescaled((domain.low, domain.high))
        return groups, STRATIFIED if len(given.cohorts) > 1 else "debias"

    return means


def _of_another(
    plan: Plan, question: analyst_pb2.CompareGroupsRequest, by: Categorical, domain: Domain
) -> _Within:
    raise InvalidInput(
        f"{question.attribute!r} is {domain}: compare values, or the mean of a number"
    )


_WITHIN: ByKind[Callable[[Plan, analyst_pb2.CompareGroupsRequest, Categorical, Any], _Within]] = (
    ByKind.otherwise(_of_another, category=_of_values, number=_of_a_number)
)
"""Checks what is asked of an attribute within groups, and returns how it is estimated."""


def groups_of_views(
    plan: Plan, question: analyst_pb2.CompareGroupsRequest, tallies: Tallies
) -> Answer:
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
) -> Answer:
    """Return the answer of an attribute's groups, from wherever they are."""
    confidence, simultaneous = check_confidence(confidence_of(question)), question.simultaneous
    attribute, by = plan.attributes[question.attribute], plan.attributes[question.by]
    names, labels = by.domain.labels, attribute.domain.labels
    statistic = attribute.domain.statistic
    unit = roles.unit_of(statistic)
    shares = Groups(
        groups.share[:, None],
        np.diag(groups.share_error**2),
        groups.share,
        groups.share_error,
        groups.n,
    )
    ends = shares.interval(confidence, simultaneous=simultaneous)
    own = Table(
        "groups",
        roles.index((by.name, names)),
        _columns(_COLUMNS, (shares.share, shares.share_error, *ends), "share"),
        statistic="frequency",
    )
    ends = groups.interval(confidence, simultaneous=simultaneous)
    each = list(product(names, labels))
    rows = Table(
        "rows",
        roles.index((by.name, [a for a, _ in each]), (attribute.name, [b for _, b in each])),
        _columns(_COLUMNS, (groups.value, groups.standard_error, *ends), unit),
    )
    differences = _differences(plan, question, groups)
    if question.view == "differences":
        tables = (differences, rows, own)
    else:
        tables = (rows, own, differences)
    unclear = [name for name, clear in zip(names, groups.clear, strict=True) if not clear]
    return Answer(
        question.view or "given",
        plan.survey,
        (Subject(attribute.name, attribute.title), Subject(by.name, by.title)),
        statistic,
        tables,
        confidence=confidence,
        simultaneous=simultaneous,
        reports=groups.n,
        repeats=most_repeated,
        method=method,
        notes=(Note.of(cautions.groups_unclear, groups=unclear),) if unclear else (),
        figures={
            "by": by.name,
            "groups": dict(zip(names, groups.share.tolist(), strict=True)),
        },
    )


def _differences(plan: Plan, question: analyst_pb2.CompareGroupsRequest, groups: Groups) -> Table:
    """Return a row for each two groups that are compared, and for each label of the attribute."""
    domain, names = plan.attributes[question.attribute].domain, _values(plan, question.by)
    found = differences_between(groups, _reference(names, question))
    ends = found.interval(confidence_of(question), simultaneous=question.simultaneous)
    numbers = (found.first, found.second, found.value, found.standard_error, *ends)
    rows = list(product(found.pairs, domain.labels))
    one, other, value = roles.grouped(*roles.GROUPS, attribute=question.attribute)
    return Table(
        "differences",
        roles.index(
            (one, [names.labels[first] for (first, _), _ in rows]),
            (other, [names.labels[second] for (_, second), _ in rows]),
            (value, [label for _, label in rows]),
        ),
        _columns(
            DIFFERENCE_COLUMNS,
            (*numbers, found.p_value, found.adjusted_p_value),
            roles.unit_of(domain.statistic),
        ),
    )


def _columns(
    names: Sequence[str], numbers: Sequence[NDArray[np.float64]], unit: Unit
) -> tuple[Column, ...]:
    each = zip(names, numbers, strict=True)
    return tuple(roles.column(name, numbers.ravel(), unit) for name, numbers in each)


def _values(plan: Plan, name: str) -> Categorical:
    return Categorical.expected(
        plan.attributes[name].domain,
        f"{name!r} has no list of values, which a table and groups need: compare the mean of a "
        "number between the values of another attribute, or fit a regression",
    )


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
