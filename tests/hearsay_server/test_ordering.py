"""The order of a table's periods, in which `hearsay demo --periods` plays them."""

import pytest

from hearsay_server.demo.ordering import in_order
from ldp import InvalidInput


@pytest.mark.parametrize(
    ("given", "ordered"),
    [
        ("10 2 1 12 2", "1 2 10 12"),
        ("10.0 2.0 1.0", "1.0 2.0 10.0"),
        ("-1 0.5 1e1 3", "-1 0.5 3 1e1"),
        ("\u0663 \u0662 \u0661", "\u0661 \u0662 \u0663"),
        ("9007199254740993 9007199254740992", "9007199254740992 9007199254740993"),
        ("2024-10 2024-9 2024-11", "2024-9 2024-10 2024-11"),
        ("10/2024 9/2024 1/2025", "9/2024 10/2024 1/2025"),
        ("2024-10-2 2024-9-30 2024-10-10", "2024-9-30 2024-10-2 2024-10-10"),
        ("2024/10/2 2024/9/30", "2024/9/30 2024/10/2"),
        ("31/12/2025 01/01/2026", "31/12/2025 01/01/2026"),
        ("01.01.2026 31.12.2025", "31.12.2025 01.01.2026"),
        ("12/31/2025 01/01/2026 2/1/2025", "2/1/2025 12/31/2025 01/01/2026"),
        ("2024-W10 2024-W9 2023-W52", "2023-W52 2024-W9 2024-W10"),
        ("2024Q2 2023Q4 2024Q1", "2023Q4 2024Q1 2024Q2"),
        ("2024-10-01T09:00 2024-10-01T08:30", "2024-10-01T08:30 2024-10-01T09:00"),
        ("2024-10-01T09:00Z 2024-10-01T09:00+02:00", "2024-10-01T09:00+02:00 2024-10-01T09:00Z"),
        ("20251231 20260101 20251001", "20251001 20251231 20260101"),
    ],
)
def test_numbers_go_by_number_and_dates_by_date(given: str, ordered: str) -> None:
    names = given.split()
    order, places = in_order(names, range(2, 2 + len(names)), "x")
    assert order == ordered.split()
    assert [order[place] for place in places] == names


def test_one_period_may_be_written_in_two_ways() -> None:
    assert in_order(["2", "1.0", "1", "01"], range(4), "x") == (["1.0", "2"], [1, 0, 0, 0])
    assert in_order(["2024-9", "2024-09", "2024-1"], range(3), "x") == (
        ["2024-1", "2024-9"],
        [1, 1, 0],
    )


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["1", "", "2"], "x, row 3: the period is blank"),
        (["1", "spring"], "x, row 3: 'spring' is neither a number nor a date: write numbers, or"),
        (["wave 1", "wave 2"], "x, row 2: 'wave 1' is neither"),
        (["1", "nan"], "x, row 3: 'nan' is neither"),
        (["inf", "1"], "x, row 2: 'inf' is neither"),
        (["31/12/25"], "x, row 2: '31/12/25' is neither"),
        (["1", "2024-09"], "x: '1' (row 2) is a number and '2024-09' (row 3) is a month"),
        (["2024-09-01", "2024-09"], "is a date and '2024-09' (row 3) is a month"),
        (["2024-09-01T10:00", "2024-09-01T10:00Z"], "is a time and"),
        (["01/02/2025", "03/04/2025"], "x: whether '01/02/2025' begins with the day or"),
        (["31/12/2025", "12/31/2025"], "'31/12/2025' begins with the day and '12/31/2025' with"),
        (["2024-13", "2024-01"], "x, row 2: there is no date '2024-13'"),
        (["31/02/2025", "01/01/2025"], "x, row 2: there is no date '31/02/2025'"),
        (["2024-W60", "2024-W01"], "x, row 2: there is no date '2024-W60'"),
        (["2024.9", "2024.10"], "x: '2024.10' beside '2024.9' may be numbers, or parts"),
    ],
)
def test_what_has_no_order_is_refused_by_name(names: list[str], said: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        in_order(names, range(2, 2 + len(names)), "x")
    assert str(refused.value).startswith("x")
    assert said in str(refused.value)
