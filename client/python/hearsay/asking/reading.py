"""Read a server's messages as an `Answer`: which columns each has, their roles and their units."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from hearsay.asking import roles
from hearsay.asking.answer import (
    Answer,
    Cohort,
    Column,
    FigureValue,
    Note,
    Subject,
    Table,
    Unit,
)
from hearsay.asking.columns import (
    given_columns,
)
from hearsay.v1 import analyst_pb2


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


def _weights(answer: analyst_pb2.EstimateResponse) -> dict[str, FigureValue]:
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
    unit = unit or roles.unit_of(getattr(answer, "statistic", "share"))
    return Table(name, roles.index(*levels), _of_fields(rows, given_columns(rows), unit), left_out)


def _rated_shares(table: Table) -> Table:
    """Return the shares of people who rated each key, of the rows of an answer about ratings."""
    columns = [
        Column(column.name.removeprefix("share_"), column.role, "share", column.values)
        for column in table.columns
        if column.name in roles.SHARES
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
        roles.index((by, groups), (inner, labels)),
        tuple(Column(c.name, c.role, c.unit, values[c.name], c.whole) for c in columns.values()),
        sum(table.left_out for table in tables.values()),
    )


def _or_nan(table: Table, name: str) -> NDArray[np.float64]:
    for column in table.columns:
        if column.name == name:
            return np.asarray(column.values, dtype=np.float64)
    return np.full(len(table), math.nan)


def _cohorts(cohorts: Iterable[analyst_pb2.Cohort]) -> tuple[Cohort, ...]:
    return tuple(
        Cohort(c.revision, c.level, c.period, c.map, c.epsilon, c.mechanism, c.reports)
        for c in cohorts
    )


def _labels(rows: Iterable[Any]) -> list[str]:
    return [row.label for row in rows]


def _of_fields(
    rows: Sequence[Message], fields: Sequence[str], unit: Unit, names: Sequence[str] = ()
) -> tuple[Column, ...]:
    """Return a column for each field of the rows, called as the field unless there are names."""
    return tuple(
        roles.column(name, [number(row, field) for row in rows], unit)
        for field, name in zip(fields, names or fields, strict=True)
    )


def number(row: Message, field: str) -> float:
    """Return a number of a row; nan where it has none, as a curve has no errors."""
    found: float = getattr(row, field)
    # 0 may stand for a field that is not there: the descriptor is slow to ask.
    if found == 0 and row.DESCRIPTOR.fields_by_name[field].has_presence and not row.HasField(field):
        return math.nan
    return found
