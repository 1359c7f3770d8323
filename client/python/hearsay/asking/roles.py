"""Columns of answers by their names: what each is, and what it counts in."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hearsay.asking.answer import Column, Level, Role, Unit

ROLES: Mapping[str, Role] = {
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
    "epsilon": "reference",
    "shuffled_epsilon": "reference",
    "naive": "reference",
    "standard_error": "error",
    "share_standard_error": "error",
    "with_twice": "error",
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
    "records": "n",
    "reports_for_goal": "n",
    "shift_down": "moved",
    "shift_up": "moved",
    "z": "statistic",
    "statistic": "statistic",
    "dof": "statistic",
    "noncentrality": "statistic",
    "detectable": "statistic",
}
_WHOLE = ("records", "reports", "reports_for_goal", "dof")
GROUPS = ("first_group", "second_group")
"""Levels of the differences between groups, before that of the values."""

SHARES = ("share", "share_standard_error", "share_low", "share_high")


def column(name: str, numbers: Sequence[float] | NDArray[np.float64], unit: Unit) -> Column:
    """Return a column of a known name; `unit` is that of the table's estimates."""
    values = np.array(numbers, dtype=np.float64)
    return Column(name, ROLES[name], _unit_of(name, unit), values, name in _WHOLE)


def index(*levels: tuple[str, Sequence[Any]]) -> tuple[Level, ...]:
    """Return the levels of a table's index: the name of each, and its labels."""
    return tuple(Level(name, labels) for name, labels in levels)


def grouped(*groups: str, attribute: str) -> tuple[str, ...]:
    """Return the names of the index of an answer by group, which differ: also of an attribute that
    is called as its groups are."""
    return *groups, "value" if attribute in groups else attribute


def unit_of(statistic: str) -> Unit:
    """Return the unit of an answer's estimates by what they are of."""
    return "own" if statistic in ("mean", "rating") else "share"


def _unit_of(column: str, unit: Unit) -> Unit:
    role = ROLES[column]
    if role in ("p", "statistic"):
        return "none"
    if role == "n":
        return "count"
    if column in SHARES:
        return "share"
    return "per period" if column == "slope" else unit
