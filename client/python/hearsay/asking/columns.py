"""Names and numbers of the columns of an answer, for tables of any kind."""

from typing import TYPE_CHECKING

from hearsay.v1 import analyst_pb2

if TYPE_CHECKING:
    import pandas as pd

NO_MAP = "no map"
"""How those who chose no map are called; a map's name has no space."""

NOT_GIVEN = "(not given)"
"""How devices are called whose app gave no value of a property."""

COLUMNS = ("estimate", "standard_error", "low", "high")
MORE_COLUMNS = (
    "raw",
    "effective_sample_size",
    "shift_down",
    "shift_up",
    "alike",
    "alike_low",
    "alike_high",
    "share",
    "share_standard_error",
    "share_low",
    "share_high",
    "unweighted",
    "unweighted_standard_error",
)
"""Columns of estimates, and those that some have."""

DIFFERENCE_COLUMNS = (
    "first",
    "second",
    "difference",
    "standard_error",
    "low",
    "high",
    "p_value",
    "adjusted_p_value",
)
_RENAMED = {
    analyst_pb2.ChangeRequest.BREAKS: {"first": "before", "second": "after"},
    analyst_pb2.ChangeRequest.TREND: {"difference": "slope"},
}
FIT_COLUMNS = ("estimate", "standard_error", "z", "p_value", "low", "high", "naive")


MIXING_COLUMNS = ("records", "epsilon", "shuffled_epsilon")
PAIR_COLUMNS = ("estimate", "standard_error", "low", "high", "independent")


def change_columns(kind: analyst_pb2.ChangeRequest.Kind) -> list[str]:
    """Return the names of `DIFFERENCE_COLUMNS` of a change of this kind."""
    renamed = _RENAMED.get(kind, {})
    return [renamed.get(name, name) for name in DIFFERENCE_COLUMNS]


def variable_name(variable: analyst_pb2.Variable) -> str:
    """Return what a variable of a regression is called, such as "wage" or "smokes[yes]"."""
    value = f"[{variable.value}]" if variable.HasField("value") else ""
    return f"{variable.attribute}{value}"


MOST_ROWS = 60
"""Rows of one panel of a picture: more could not be read."""


def drawn_rows(table: "pd.DataFrame") -> "pd.DataFrame":
    """Return the rows of a table that one panel of a picture has, in their order.

    Of more than `MOST_ROWS` they are those of the smallest p-values where there are any, and else
    of the largest estimates.
    """
    if len(table) <= MOST_ROWS:
        return table
    if "p_value" in table.columns:
        chosen = table["p_value"].nsmallest(MOST_ROWS)
    else:
        chosen = table["estimate"].abs().nlargest(MOST_ROWS)
    return table[table.index.isin(chosen.index)]
