"""Tables of estimates, and the answers of groups as one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hearsay.asking import roles
from hearsay.asking.answer import Answer, Column, Note, Table, Unit
from hearsay.asking.columns import COLUMNS, MORE_COLUMNS
from ldp import Estimate

Floats = NDArray[np.float64]

MEAN = "mean"
"""The table of the mean size of sets, and its row."""


def columns_of(found: Estimate, confidence: float, simultaneous: bool = False) -> dict[str, Floats]:
    """Return the columns of an estimate, its error and its interval."""
    low, high = found.interval(confidence, simultaneous=simultaneous)
    return dict(zip(COLUMNS, (found.value, found.standard_error, low, high), strict=True))


def estimates(
    name: str,
    labels: tuple[str, Sequence[str]],
    columns: Mapping[str, Floats],
    unit: Unit,
    left_out: int = 0,
    statistic: str = "",
) -> Table:
    """Return a table of estimates: `labels` are the index's name and the label of each row,
    `columns` those of `COLUMNS`, and some of `MORE_COLUMNS`; `statistic` is what is estimated,
    where that is not what the answer says."""
    names = [each for each in (*COLUMNS, *MORE_COLUMNS) if each in columns]
    made = tuple(roles.column(each, columns[each], unit) for each in names)
    return Table(name, roles.index(labels), made, left_out, statistic)


def of_sizes(
    attribute: str, sizes: Sequence[str], shares: Mapping[str, Floats], mean: Mapping[str, Floats]
) -> tuple[Table, ...]:
    """Return the shares of people with each size of a set, where there are any, and the mean."""
    found = estimates(MEAN, (attribute, [MEAN]), mean, "own", statistic="mean size")
    if not shares:
        return (found,)
    return estimates("rows", (attribute, sizes), shares, "share"), found


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
    every = [table.name for answer in answers.values() for table in answer.tables]
    names = sorted({*every} - {"shares"}, key=lambda name: name == MEAN)
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
    tables = {
        group: table
        for group, answer in found.items()
        for table in answer.tables
        if table.name == name
    }
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
        next(iter(tables.values())).statistic,
    )


def _or_nan(table: Table, name: str) -> Floats:
    for column in table.columns:
        if column.name == name:
            return np.asarray(column.values, dtype=np.float64)
    return np.full(len(table), math.nan)
