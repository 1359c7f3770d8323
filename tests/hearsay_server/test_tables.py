"""Tables of long labels at 80 columns: numbers are whole, and labels are told apart."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from hearsay.v1 import analyst_pb2 as a
from hearsay_server.commands import changing, together
from hearsay_server.commands.shown import Shown

LONG = "How content are you with the work of the city's council in the last year: "
LABELS = [LONG + end for end in ("very much", "a little", "not at all")]
NUMBERS = {"standard_error": -0.1234, "low": -0.2345, "high": 0.3456}
ROWS = [
    a.Row(
        label=label,
        estimate=0.5678,
        effective_sample_size=1234567,
        shift_down=0.6789,
        shift_up=0.789,
        **NUMBERS,
    )
    for label in LABELS
]
DIFFERENCES = [
    a.Difference(
        label=label,
        first=0.4321,
        second=0.5432,
        difference=-0.6543,
        adjusted_p_value=0.013,
        period="2026-11-20",
        **NUMBERS,
    )
    for label in LABELS
]
SHOWN = Shown(False, False, False)
TOP: dict[str, Any] = {"attribute": "council", "title": LONG, "confidence": 0.95}
PERIODS = {"periods": ["2026-10-20", "2026-11-20"], "period_reports": [5, 6]}


def over_time(kind: str) -> None:
    answer = a.ChangeResponse(kind=kind, statistic="frequency", rows=DIFFERENCES, **TOP, **PERIODS)
    changing._show([answer], SHOWN)


ANSWERS: dict[str, Callable[[], None]] = {
    "estimates": lambda: SHOWN.estimates(
        [a.EstimateResponse(statistic="frequency", rows=ROWS, simultaneous=True, **TOP)]
    ),
    "comparison": lambda: SHOWN.comparisons(
        [a.CompareResponse(rows=DIFFERENCES, **TOP)], ["level strict", "level open"]
    ),
    "distribution": lambda: SHOWN.distribution(a.DistributionResponse(ranges=ROWS, **TOP)),
    "pairs": lambda: SHOWN.pairs(
        a.PairsResponse(
            pairs=[a.Pair(first=LABELS[0], second=x, independent=0.9, **NUMBERS) for x in LABELS],
            **TOP,
        )
    ),
    "change": lambda: over_time("DIFFERENCE"),
    "trend": lambda: over_time("TREND"),
    "breaks": lambda: over_time("BREAKS"),
    "joint table": lambda: together._show_table(
        a.CrosstabResponse(
            other="city",
            rows=[
                a.Cell(value=value, other=f"{LONG}{other}", share=ROWS[0])
                for value in LABELS
                for other in range(9)
            ],
            **TOP,
        ),
        SHOWN,
    ),
    "groups": lambda: together._show_groups(
        a.CompareGroupsResponse(
            by="city",
            rows=[a.GroupRow(group=group, row=row) for group in LABELS for row in ROWS],
            differences=[
                a.GroupDifference(first_group=LABELS[0], second_group=LABELS[1], difference=each)
                for each in DIFFERENCES
            ],
            **TOP,
        ),
        SHOWN,
    ),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_numbers_are_whole_and_labels_short_at_80_columns(
    kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ANSWERS[kind]()
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    cells = [cell.strip() for line in lines if "│" in line for cell in line.split("│")]
    numbers = [cell for cell in cells if re.match(r"[±-]?\d", cell)]
    assert numbers
    assert not [cell for cell in numbers if "…" in cell]
    whole = r"±?-?\d\.\d{4}( to -?\d\.\d{4})?|0\.013|1,234,567|2026-11-20"
    assert all(re.fullmatch(whole, cell) for cell in numbers), numbers
    for ending in ("much", "little", "all"):
        assert ending in said
