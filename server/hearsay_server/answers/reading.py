"""Make an `Answer` of estimates: which columns it has, their roles and their units."""

import math
from collections.abc import Iterable, Mapping, Sequence

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
)
from hearsay.asking.columns import COLUMNS, MORE_COLUMNS
from hearsay.v1 import analyst_pb2


def estimate(answer: analyst_pb2.EstimateResponse, view: str = "estimate") -> Answer:
    """Return estimates: the table "rows", of ratings also "shares", and "sums" where asked for."""
    tables = [_rows("rows", answer.rows, answer, answer.rows_left_out)]
    if answer.rows and answer.rows[0].HasField("share"):
        tables.append(_rated_shares(tables[0]))
    if answer.sums:
        tables.append(_rows("sums", answer.sums, answer))
    return _answer(view, answer, tables)


def sums(answer: analyst_pb2.EstimateResponse) -> Answer:
    """Return the sums of an answer, as its first table."""
    tables = [_rows("sums", answer.sums, answer, answer.rows_left_out)]
    return _answer("sums", answer, tables)


def by(answers: Sequence[analyst_pb2.EstimateResponse], by: str, left_out: str = "") -> Answer:
    """Return the answers of all groups as one, indexed by group and value; `by` names the groups.

    A column that one group has not is nan there. Which groups are left out is a note of the whole.
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
        notes=(
            *([Note(left_out)] if left_out else []),
            *(Note(answer.warning, answer.group) for answer in answers if answer.warning),
        ),
        cohorts=tuple(cohort for each in found.values() for cohort in each.cohorts),
    )


def _answer(view: str, answer: analyst_pb2.EstimateResponse, tables: Sequence[Table]) -> Answer:
    return Answer(
        view,
        answer.survey,
        (Subject(answer.attribute, answer.title),),
        answer.statistic,
        tuple(tables),
        answer.confidence,
        answer.simultaneous,
        answer.reports,
        repeats=answer.repeats,
        method=answer.method,
        notes=(Note(answer.warning),) if answer.warning else (),
        figures=_figures(answer),
        cohorts=_cohorts(answer.cohorts),
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
    rows: Sequence[analyst_pb2.Row],
    answer: analyst_pb2.EstimateResponse,
    left_out: int = 0,
) -> Table:
    index = roles.index((answer.attribute, [row.label for row in rows]))
    unit = roles.unit_of(answer.statistic)
    columns = [
        roles.column(name, [number(row, name) for row in rows], unit) for name in _fields(rows)
    ]
    return Table(name, index, tuple(columns), left_out)


def _fields(rows: Sequence[analyst_pb2.Row]) -> list[str]:
    """Return the names of the numeric columns that these rows have."""
    return [*COLUMNS, *(name for name in MORE_COLUMNS if rows and rows[0].HasField(name))]


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


def number(row: Message, field: str) -> float:
    """Return a number of a row; nan where it has none, as a curve has no errors."""
    found: float = getattr(row, field)
    # 0 may stand for a field that is not there: the descriptor is slow to ask.
    if found == 0 and row.DESCRIPTOR.fields_by_name[field].has_presence and not row.HasField(field):
        return math.nan
    return found
