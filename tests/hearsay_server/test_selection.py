"""What a request selects of a survey's reports."""

import time
from typing import Any

import pytest

import hearsay.plans.plan
from hearsay.v1 import analyst_pb2
from hearsay_server.storage.selection import Selected, resolve
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput
from support import DAILY

PLAN = hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(DAILY, "test.toml")))
ALL = tuple(PLAN.levels)


@pytest.mark.parametrize(
    ("fields", "selected"),
    [
        ({}, Selected(ALL)),
        ({"levels": ["open"]}, Selected(("open",))),
        ({"periods": ["2026-07-04", "2026-07-01"]}, Selected(ALL, ("2026-07-04", "2026-07-01"))),
        ({"first_period": "2026-07-04"}, Selected(ALL, first="2026-07-04")),
        ({"last_period": "2026-07-04"}, Selected(ALL, last="2026-07-04")),
        (
            {"levels": ["open"], "first_period": "2026-07-04", "last_period": "2026-07-04"},
            Selected(("open",), (), "2026-07-04", "2026-07-04"),
        ),
    ],
)
def test_a_selection_without_levels_has_all_of_the_plan(
    fields: dict[str, Any], selected: Selected
) -> None:
    assert resolve(PLAN, analyst_pb2.Selection(**fields)) == selected


def test_a_request_without_a_selection_reads_every_level_and_period() -> None:
    unset = analyst_pb2.EstimateRequest(survey="daily").selection
    assert resolve(PLAN, unset) == Selected(ALL)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"levels": [""]}, "level must be one of strict, open, got ''"),
        ({"periods": ["once"]}, "a P1D period reads like '2026-07-04', got 'once'"),
        ({"first_period": "2026-7-4"}, "a P1D period reads like '2026-07-04', got '2026-7-4'"),
        ({"last_period": "2026-02-30"}, "a P1D period reads like '2026-07-04', got '2026-02-30'"),
        (
            {"first_period": "2026-07-04", "last_period": "2026-07-03"},
            "a range must not end before it begins, got '2026-07-04' to '2026-07-03'",
        ),
        (
            {"periods": [f"{2000 + n // 12}-{n % 12 + 1:02}-01" for n in range(1001)]},
            "a request names at most 1000 periods, got 1001: select a range",
        ),
    ],
)
def test_what_the_survey_does_not_have_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        resolve(PLAN, analyst_pb2.Selection(**fields))
    assert str(refused.value) == message


def test_what_is_selected_again_is_looked_at_once() -> None:
    once = analyst_pb2.Selection(levels=["open"], periods=["2026-07-04"])
    again = analyst_pb2.Selection(levels=["open"] * 500, periods=["2026-07-04"] * 100_000)
    begin = time.process_time()
    assert resolve(PLAN, again) == resolve(PLAN, once)
    assert time.process_time() - begin < 0.5  # to read each of them takes a second
