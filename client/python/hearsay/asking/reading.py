"""Read a server's messages as an `Answer`: which columns each has, their roles and their units."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from hearsay.asking.answer import (
    Answer,
    Cohort,
    Column,
    FigureValue,
    Level,
    Note,
    Role,
    Subject,
    Table,
    Unit,
)
from hearsay.asking.columns import (
    DIFFERENCE_COLUMNS,
    FIT_COLUMNS,
    PAIR_COLUMNS,
    change_columns,
    given_columns,
)
from hearsay.v1 import analyst_pb2

_ROLES: Mapping[str, Role] = {
    "estimate": "estimate",
    "difference": "estimate",
    "slope": "estimate",
    "alike": "reference",
    "raw": "reference",
    "share": "estimate",
    "unweighted": "reference",
    "independent": "reference",
    "first": "reference",
    "second": "reference",
    "before": "reference",
    "after": "reference",
    "mix": "reference",
    "naive": "reference",
    "standard_error": "error",
    "share_standard_error": "error",
    "unweighted_standard_error": "error",
    "low": "low",
    "alike_low": "low",
    "share_low": "low",
    "high": "high",
    "alike_high": "high",
    "share_high": "high",
    "p_value": "p",
    "adjusted_p_value": "p",
    "pvalue": "p",
    "effective_sample_size": "n",
    "reports": "n",
    "shift_down": "moved",
    "shift_up": "moved",
    "z": "statistic",
    "statistic": "statistic",
    "dof": "statistic",
    "noncentrality": "statistic",
    "detectable": "statistic",
}
_WHOLE = ("reports", "dof")
_SHARES = ("share", "share_standard_error", "share_low", "share_high")


def estimate(answer: analyst_pb2.EstimateResponse, view: str = "estimate") -> Answer:
    """Return estimates: the table "rows", of ratings also "shares", and "sums" where asked for."""
    tables = [_rows("rows", answer.attribute, answer.rows, answer, answer.rows_left_out)]
    if answer.rows and answer.rows[0].HasField("share"):
        tables.append(_rated_shares(tables[0]))
    if answer.sums:
        tables.append(_rows("sums", answer.attribute, answer.sums, answer))
    return _answer(view, answer, tables, _figures(answer), cohorts=_cohorts(answer.cohorts))


def sums(answer: analyst_pb2.EstimateResponse) -> Answer:
    """Return the sums of an answer, as its first table."""
    tables = [_rows("sums", answer.attribute, answer.sums, answer, answer.rows_left_out)]
    return _answer("sums", answer, tables, _figures(answer), cohorts=_cohorts(answer.cohorts))


def by(answers: Sequence[analyst_pb2.EstimateResponse], by: str) -> Answer:
    """Return the answers of all groups as one, indexed by group and value; `by` names the groups.

    A column that one group has not is nan there.
    """
    first = answers[0]
    found = {answer.group: estimate(answer) for answer in answers}
    tables = [_stacked(name, by, found) for name in ("rows", *(["sums"] if first.sums else []))]
    return Answer(
        "by",
        first.survey,
        (Subject(first.attribute, first.title),),
        first.statistic,
        tuple(tables),
        first.confidence,
        first.simultaneous,
        sum(answer.reports for answer in answers),
        {answer.group: answer.reports for answer in answers},
        max(answer.repeats for answer in answers),
        notes=tuple(Note(a.warning, a.group) for a in answers if a.warning),
        cohorts=tuple(cohort for each in found.values() for cohort in each.cohorts),
    )


def pairs(answer: analyst_pb2.PairsResponse) -> Answer:
    """Return the shares of people who have both of two items, indexed by the items."""
    items = [(pair.first, pair.second) for pair in answer.pairs]
    index = _levels(("first", [a for a, _ in items]), ("second", [b for _, b in items]))
    columns = _of_fields(answer.pairs, PAIR_COLUMNS[2:], "share")
    table = Table("rows", index, columns, answer.pairs_left_out)
    return _answer("pairs", answer, [table], statistic="share of both")


def distribution(answer: analyst_pb2.DistributionResponse, view: str = "distribution") -> Answer:
    """Return the table that the view is of: "bins" and "quantiles" of a distribution, "quantiles",
    "ranges" or "below"."""
    ends = ("left", [b.left for b in answer.bins]), ("right", [b.right for b in answer.bins])
    bins = _rows("bins", ends, [b.share for b in answer.bins], answer)
    levels = [float(row.label) for row in answer.quantiles]
    quantiles = replace(
        _rows("quantiles", [("quantile", levels)], answer.quantiles, answer, unit="own"),
        statistic=answer.attribute,
    )
    ranges = _rows("ranges", answer.attribute, answer.ranges, answer)
    points = [float(row.label) for row in answer.cumulative]
    below = _rows("below", [("below", points)], answer.cumulative, answer)
    first = {"quantiles": quantiles, "between": ranges, "cdf": below}.get(view, bins)
    others = [quantiles] if view == "distribution" and len(quantiles) else []
    step: dict[str, FigureValue] = {"step": answer.step if answer.HasField("step") else None}
    figures = {**step, **_weights(answer)}
    return _answer(view, answer, [first, *others], figures, statistic="share")


def compare(answer: analyst_pb2.CompareResponse) -> Answer:
    """Return the differences between two parts of the reports; see `Analyst.compare`."""
    table = _differences("rows", [(answer.attribute, _labels(answer.rows))], answer.rows, answer)
    parts = {"first": answer.first_reports, "second": answer.second_reports}
    return _answer("compare", answer, [table], parts=parts)


def change(answer: analyst_pb2.ChangeResponse) -> Answer:
    """Return changes over time; see `Analyst.change`, `.trend` and `.breaks`."""
    names = change_columns(answer.kind)
    index = [(answer.attribute, _labels(answer.rows))]
    table = _differences("rows", index, answer.rows, answer, names)
    columns = list(table.columns)
    if answer.rows and answer.rows[0].HasField("mix"):
        columns += _of_fields(answer.rows, ["mix"], _unit(answer.statistic))
    if answer.kind == analyst_pb2.ChangeRequest.BREAKS:
        periods = [row.period for row in answer.rows]
        columns.insert(0, Column("period", "text", "none", periods))
    kind = analyst_pb2.ChangeRequest.Kind.Name(answer.kind).lower()
    view = {"difference": "change"}.get(kind, kind)
    figures: dict[str, FigureValue] = {
        "panels": answer.panels,
        "kind": kind,
        "any_p_value": answer.any_p_value,
    }
    parts = dict(zip(answer.periods, answer.period_reports, strict=True))
    table = replace(table, columns=tuple(columns))
    return _answer(view, answer, [table], figures, parts=parts)


def joint(answer: analyst_pb2.CrosstabResponse) -> Answer:
    """Return a joint table, and the table "independence" with the test; see `Analyst.crosstab`."""
    index = (
        (answer.attribute, [cell.value for cell in answer.rows]),
        (answer.other, [cell.other for cell in answer.rows]),
    )
    tables = [
        _rows("rows", index, [cell.share for cell in answer.rows], answer),
        _independence(answer),
    ]
    test = {column.name: column.plain()[0] for column in tables[1].columns}
    figures: dict[str, FigureValue] = {"other": answer.other, "chi2": test}
    return _answer("joint", answer, tables, figures, statistic="frequency", subjects=_both(answer))


def independent(answer: analyst_pb2.CrosstabResponse) -> Answer:
    """Return the test that two attributes are independent; see `Analyst.chi2_contingency`."""
    table = [_independence(answer)]
    return _answer("independent", answer, table, statistic="test", subjects=_both(answer))


def given(answer: analyst_pb2.CompareGroupsResponse) -> Answer:
    """Return an attribute within groups; tables "groups" and "differences" beside it."""
    rows, groups, differences = _groups(answer)
    return _of_groups("given", answer, [rows, groups, differences])


def differences(answer: analyst_pb2.CompareGroupsResponse) -> Answer:
    """Return the differences between groups; tables "rows" and "groups" beside it."""
    rows, groups, differences = _groups(answer)
    return _of_groups("differences", answer, [differences, rows, groups])


def fit(
    answer: analyst_pb2.FitResponse, labels: Sequence[str], explained: str, formula: str
) -> Answer:
    """Return a regression, a row for each term; see `Analyst.ols`."""
    columns = _of_fields(answer.coefficients, (*FIT_COLUMNS, "naive"), "own")
    table = Table("rows", _levels((explained, list(labels))), columns)
    figures: dict[str, FigureValue] = {"formula": formula, "n": answer.reports}
    subject = (Subject(explained, formula),)
    return _answer("fit", answer, [table], figures, statistic="coefficient", subjects=subject)


def suspicions(answer: analyst_pb2.SuspicionsResponse, survey: str, attribute: str) -> Answer:
    """Return tests of whether reports look forged, by level and test."""
    index = _levels(
        ("level", [each.level for each in answer.suspicions]),
        ("test", [each.test for each in answer.suspicions]),
    )
    columns = _of_fields(answer.suspicions, ("statistic", "p_value", "reports"), "none")
    notes = (Note(answer.warning),) if answer.warning else ()
    reports = {each.level: each.reports for each in answer.suspicions}  # of each of its tests
    return Answer(
        "suspicions",
        survey,
        (Subject(attribute),),
        "test",
        (Table("rows", index, columns),),
        reports=sum(reports.values()),
        notes=notes,
        figures={"targets": list(answer.targets)},
    )


def _answer(
    view: str,
    message: Any,
    tables: Sequence[Table],
    figures: Mapping[str, FigureValue] | None = None,
    *,
    statistic: str = "",
    subjects: tuple[Subject, ...] = (),
    parts: Mapping[str, int] | None = None,
    cohorts: tuple[Cohort, ...] = (),
) -> Answer:
    """Return an answer with what messages have under the same names."""
    named = {field.name for field in message.DESCRIPTOR.fields}
    reports = message.reports if "reports" in named else sum((parts or {}).values())
    return Answer(
        view,
        message.survey,
        subjects or (Subject(message.attribute, message.title),),
        statistic or message.statistic,
        tuple(tables),
        message.confidence,
        "simultaneous" in named and message.simultaneous,
        reports,
        parts or {},
        message.repeats if "repeats" in named else 1.0,
        message.method if "method" in named else "",
        (Note(message.warning),) if message.warning else (),
        figures or {},
        cohorts,
    )


def _figures(answer: analyst_pb2.EstimateResponse) -> dict[str, FigureValue]:
    found: dict[str, FigureValue] = {
        name: getattr(answer, name) if answer.HasField(name) else None
        for name in ("homogeneity", "detectable_difference")
    }
    if answer.findable:
        found["findable"] = list(answer.findable)
    return found | _weights(answer)


def _weights(
    answer: analyst_pb2.EstimateResponse | analyst_pb2.DistributionResponse,
) -> dict[str, FigureValue]:
    """Return what there is to know of the weights of an answer with margins."""
    if not answer.HasField("design_effect"):
        return {}
    weights = answer.smallest_weight, answer.largest_weight
    return {"design_effect": answer.design_effect, "weights": weights}


def _rows(
    name: str,
    index: str | Iterable[tuple[str, Sequence[Any]]],
    rows: Sequence[analyst_pb2.Row],
    answer: Any,
    left_out: int = 0,
    unit: Unit | None = None,
) -> Table:
    """Return a table of rows; an index that is a name has the rows' labels."""
    levels = [(index, _labels(rows))] if isinstance(index, str) else index
    unit = unit or _unit(getattr(answer, "statistic", "share"))
    return Table(name, _levels(*levels), _of_fields(rows, given_columns(rows), unit), left_out)


def _rated_shares(table: Table) -> Table:
    """Return the shares of people who rated each key, of the rows of an answer about ratings."""
    columns = [
        Column(column.name.removeprefix("share_"), column.role, "share", column.values)
        for column in table.columns
        if column.name in _SHARES
    ]
    columns[0] = Column("estimate", "estimate", "share", columns[0].values)
    return Table("shares", table.index, tuple(columns), statistic="share who rated")


def _stacked(name: str, by: str, found: Mapping[str, Answer]) -> Table:
    """Return the tables of groups below each other."""
    tables = {group: answer.table(name) for group, answer in found.items()}
    columns = {column.name: column for table in tables.values() for column in table.columns}
    inner = next(iter(tables.values())).index[0].name
    groups = [group for group, table in tables.items() for _ in range(len(table))]
    labels = [label for table in tables.values() for label in table.index[0].labels]
    values = {
        each: np.concatenate([_or_nan(table, each) for table in tables.values()])
        for each in columns
    }
    return Table(
        name,
        _levels((by, groups), (inner, labels)),
        tuple(Column(c.name, c.role, c.unit, values[c.name], c.whole) for c in columns.values()),
        sum(table.left_out for table in tables.values()),
    )


def _or_nan(table: Table, name: str) -> NDArray[np.float64]:
    for column in table.columns:
        if column.name == name:
            return np.asarray(column.values, dtype=np.float64)
    return np.full(len(table), math.nan)


def _differences(
    name: str,
    index: Iterable[tuple[str, Sequence[Any]]],
    rows: Sequence[analyst_pb2.Difference],
    answer: Any,
    names: Sequence[str] = DIFFERENCE_COLUMNS,
) -> Table:
    columns = _of_fields(rows, DIFFERENCE_COLUMNS, _unit(answer.statistic), names)
    return Table(name, _levels(*index), columns)


def _independence(answer: analyst_pb2.CrosstabResponse) -> Table:
    test = answer.independence
    numbers = {
        "statistic": test.statistic,
        "dof": test.degrees,
        "pvalue": test.p_value,
        "noncentrality": test.noncentrality,
        "detectable": test.detectable,
        "reports": answer.reports,
    }
    columns = tuple(_column(name, [number], "none") for name, number in numbers.items())
    name = f"{answer.attribute} and {answer.other}"
    return Table("independence", _levels(("attributes", [name])), columns)


def _groups(answer: analyst_pb2.CompareGroupsResponse) -> tuple[Table, Table, Table]:
    index = (
        (answer.by, [row.group for row in answer.rows]),
        (answer.attribute, [row.row.label for row in answer.rows]),
    )
    rows = _rows("rows", index, [row.row for row in answer.rows], answer)
    groups = replace(
        _rows("groups", answer.by, answer.groups, answer, unit="share"), statistic="frequency"
    )
    two = (
        ("first_group", [row.first_group for row in answer.differences]),
        ("second_group", [row.second_group for row in answer.differences]),
        (answer.attribute, [row.difference.label for row in answer.differences]),
    )
    each = [row.difference for row in answer.differences]
    return rows, groups, _differences("differences", two, each, answer)


def _of_groups(
    view: str, answer: analyst_pb2.CompareGroupsResponse, tables: Sequence[Table]
) -> Answer:
    groups = {row.label: row.estimate for row in answer.groups}
    subjects = Subject(answer.attribute, answer.title), Subject(answer.by, answer.by_title)
    figures: dict[str, FigureValue] = {"by": answer.by, "groups": groups}
    return _answer(view, answer, tables, figures, subjects=subjects)


def _both(answer: analyst_pb2.CrosstabResponse) -> tuple[Subject, Subject]:
    return Subject(answer.attribute, answer.title), Subject(answer.other, answer.other_title)


def _cohorts(cohorts: Iterable[analyst_pb2.Cohort]) -> tuple[Cohort, ...]:
    return tuple(
        Cohort(c.revision, c.level, c.period, c.map, c.epsilon, c.mechanism, c.reports)
        for c in cohorts
    )


def _levels(*levels: tuple[str, Sequence[Any]]) -> tuple[Level, ...]:
    return tuple(Level(name, labels) for name, labels in levels)


def _labels(rows: Iterable[Any]) -> list[str]:
    return [row.label for row in rows]


def _of_fields(
    rows: Sequence[Message], fields: Sequence[str], unit: Unit, names: Sequence[str] = ()
) -> tuple[Column, ...]:
    """Return a column for each field of the rows, called as the field unless there are names."""
    return tuple(
        _column(name, [number(row, field) for row in rows], unit)
        for field, name in zip(fields, names or fields, strict=True)
    )


def _column(name: str, numbers: Sequence[float], unit: Unit) -> Column:
    values = np.array(numbers, dtype=np.float64)
    return Column(name, _ROLES[name], _unit_of(name, unit), values, name in _WHOLE)


def number(row: Message, field: str) -> float:
    """Return a number of a row; nan where it has none, as a curve has no errors."""
    found: float = getattr(row, field)
    # 0 may stand for a field that is not there: the descriptor is slow to ask.
    if found == 0 and row.DESCRIPTOR.fields_by_name[field].has_presence and not row.HasField(field):
        return math.nan
    return found


def _unit(statistic: str) -> Unit:
    """Return the unit of an answer's estimates by what they are of."""
    return "own" if statistic in ("mean", "rating") else "share"


def _unit_of(column: str, unit: Unit) -> Unit:
    role = _ROLES[column]
    if role in ("p", "statistic"):
        return "none"
    if role == "n":
        return "count"
    if column in _SHARES:
        return "share"
    return "per period" if column == "slope" else unit
