"""Tables of answers as people are shown them, in terminals and on pages."""

from hearsay.asking import Answer, Subject, Table, roles
from hearsay.asking.columns import COLUMNS
from hearsay_server import cells
from hearsay_server.pages.analyst import charts


def answer(view: str, *index: tuple[str, list[float]]) -> Answer:
    """An answer of two rows, about an income."""
    columns = tuple(roles.column(name, [0.1, 0.2], "share") for name in COLUMNS)
    table = Table("rows", roles.index(*index), columns)
    return Answer(view, "pay", (Subject("income"),), "share", (table,), 0.95)


def labels(of: Answer) -> list[str]:
    return [row[0].plain for row in cells.shown(of, of.table()).rows]


def test_numbers_of_seven_digits_are_told_apart() -> None:
    bins = answer("distribution", ("left", [1e6, 1_000_004.0]), ("right", [1_000_004.0, 1.5e6]))
    assert labels(bins) == ["1000000 to under 1000004", "1000004 to 1500000"]
    below = answer("cdf", ("below", [1_000_001.0, 1_000_002.5]))
    assert labels(below) == ["1000001", "1000002.5"]
    for of in (bins, below):
        drawn = charts.chart(of)
        assert drawn is not None and [row["label"] for row in drawn["rows"]] == labels(of)
