"""Tables of estimates, and the answers of groups as one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hearsay.asking import roles
from hearsay.asking.answer import Answer, Column, Note, Table, Unit
from hearsay.asking.columns import COLUMNS, MORE_COLUMNS

Floats = NDArray[np.float64]


def estimates(
    name: str,
    labels: tuple[str, Sequence[str]],
    columns: Mapping[str, Floats],
    unit: Unit,
    left_out: int = 0,
) -> Table:
    """Return a table of estimates: `labels` are the index's name and the label of each row,
    `columns` those of `COLUMNS`, and some of `MORE_COLUMNS`."""
    names = [each for each in (*COLUMNS, *MORE_COLUMNS) if each in columns]
    made = tuple(roles.column(each, columns[each], unit) for each in names)
    return Table(name, roles.index(labels), made, left_out)


def rated(rows: Table) -> Table:
    """Return the shares of people who rated each key, of the rows of an answer about ratings."""
    columns = [
        Column(column.name.removeprefix("share_"), column.role, "share", column.values)
        for column in rows.columns
        if column.name in roles.SHARES
    ]
    columns[0] = Column("estimate", "estimate", "share", columns[0].values)
    return Table("shares", rows.index, tuple(columns), rows.left_out, "share who rated")


def by(answers: Mapping[str, Answer], by: str, left_out: Note | None = None) -> Answer:
    """Return the answers of all groups as one, indexed by group and value; `by` names the groups.

    A column that one group has not is nan there. Which groups are left out is a note of the whole.
    """
    first = next(iter(answers.values()))
    names = [table.name for table in first.tables if table.name != "shares"]
    return Answer(
        "by",
        first.survey,
        first.subjects,
        first.statistic,
        tuple(_stacked(name, by, answers) for name in names),
        first.confidence,
        first.simultaneous,
        sum(answer.reports for answer in answers.values()),
        {group: answer.reports for group, answer in answers.items()},
        max(answer.repeats for answer in answers.values()),
        notes=(
            *([left_out] if left_out else []),
            *(replace(note, part=group) for group, a in answers.items() for note in a.notes),
        ),
        cohorts=tuple(cohort for answer in answers.values() for cohort in answer.cohorts),
    )


def _stacked(name: str, by: str, found: Mapping[str, Answer]) -> Table:
    """Return the tables of groups below each other."""
    tables = {group: answer.table(name) for group, answer in found.items()}
    columns = {column.name: column for table in tables.values() for column in table.columns}
    outer, inner = roles.grouped(by, attribute=next(iter(tables.values())).index[0].name)
    groups = [group for group, table in tables.items() for _ in range(len(table))]
    labels = [label for table in tables.values() for label in table.index[0].labels]
    values = {
        each: np.concatenate([_or_nan(table, each) for table in tables.values()])
        for each in columns
    }
    return Table(
        name,
        roles.index((outer, groups), (inner, labels)),
        tuple(Column(c.name, c.role, c.unit, values[c.name], c.whole) for c in columns.values()),
        sum(table.left_out for table in tables.values()),
    )


def _or_nan(table: Table, name: str) -> Floats:
    for column in table.columns:
        if column.name == name:
            return np.asarray(column.values, dtype=np.float64)
    return np.full(len(table), math.nan)
