"""Which tables an answer has, and what is true of their rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hearsay.asking import roles
from hearsay.asking.answer import Answer, Column, Table, Unit
from hearsay.checking.expected import check_count, check_same
from hearsay.plans.plan import Plan
from ldp.errors import InvalidInput

_NEAR = 1e-9
"""What part of its range an interval's end may be rounded out of it by."""


def check_subjects(answer: Answer, plan: Plan, *names: str) -> None:
    """Check which attributes an answer is about, and their titles."""
    told = [(subject.name, subject.title) for subject in answer.subjects]
    check_same("attribute", told, [(name, plan.asked(name).title) for name in names])


@dataclass(frozen=True)
class Shape:
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


def check_shape(answer: Answer, *shapes: Shape) -> Mapping[str, Sequence[tuple[Any, ...]]]:
    """Return the labels of the rows of each table, once the answer has these tables alone."""
    check_same("tables", [table.name for table in answer.tables], [shape.name for shape in shapes])
    found = {}
    for table, shape in zip(answer.tables, shapes, strict=True):
        check_same(f"{table.name}: index", [level.name for level in table.index], shape.index)
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
        check_same(f"{table.name}: columns", *both)
        check_same(f"{table.name}: statistic", [table.statistic], [shape.statistic])
        if "estimate" in table.names:
            _check_intervals(table, shape)
        found[table.name] = list(zip(*(level.labels for level in table.index), strict=True))
    return found


def _check_intervals(table: Table, shape: Shape) -> None:
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


def check_weights(answer: Answer) -> None:
    """Check that the weights of an answer with margins are the smallest and the largest one."""
    weights: Any = answer.figures.get("weights", (1.0, 1.0))
    check_count("weights", weights, range(2))


def check_order(top: int, table: Table, rows: Sequence[int] | None = None) -> None:
    """Check that the rows of the `top` estimates, of all unless some are given, are in their order,
    those that are not known last."""
    estimates = np.nan_to_num(table.column("estimate").values, nan=-np.inf)
    chosen = estimates if rows is None else estimates[list(rows)]
    if top and (chosen[1:] > chosen[:-1]).any():
        raise InvalidInput(f"{table.name}: the largest estimates are not in their order")


def unit_of(answer: Answer) -> Unit:
    """Return the unit that the estimates of an answer have, by what they are of."""
    return roles.unit_of(answer.statistic)
