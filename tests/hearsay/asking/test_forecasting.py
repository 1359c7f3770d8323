"""A forecast's numbers, by hand, from the counts of a server that is played."""

import math
from datetime import UTC, datetime

import numpy as np
import pytest

import hearsay.plans.plan
from hearsay.asking import Answer, Column, Level, Subject, Table, forecasting
from hearsay.asking.forecasting import Forecasts
from hearsay.plans import period
from hearsay.v1 import admin_pb2
from hearsay_server.surveys import survey as surveys

SURVEY = """
name = "asked"
{period}
[levels]
one = 1.0
[[attributes]]
name = "how"
[attributes.categorical]
values = ["foot", "bike"]
"""


class Played(Forecasts):
    """An analyst of one survey, whose attribute has a standard error and counts by period."""

    def __init__(self, unit: str, counts: dict[str, int], error: float = 0.02) -> None:
        text = SURVEY.format(period=f'period = "{unit}"' if unit else "")
        data = surveys.resolve(surveys.from_toml(text, "asked.toml"))
        assert hearsay.plans.plan.parse(data).period == unit
        reports = admin_pb2.Reports(attribute="how", level="one", reports=counts.values())
        self.shown = admin_pb2.ShowSurveyResponse(plan=data, periods=counts, reports=[reports])
        self.error, self.reports = error, sum(counts.values())

    def show_survey(self, survey: str) -> admin_pb2.ShowSurveyResponse:
        return self.shown

    def estimate(self, survey: str, attribute: str, **options: object) -> Answer:
        columns = (
            Column("estimate", "estimate", "share", np.array([0.4])),
            Column("standard_error", "error", "share", np.array([self.error])),
            Column("low", "low", "share", np.array([0.3])),
            Column("high", "high", "share", np.array([0.5])),
        )
        table = Table("rows", (Level(attribute, ["foot"]),), columns)
        subject = (Subject(attribute),)
        return Answer("estimate", survey, subject, "frequency", (table,), reports=self.reports)


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it be noon of the 20th of June, 2026."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz: object = None) -> "Clock":
            return cls(2026, 6, 20, 12, tzinfo=UTC)

    monkeypatch.setattr(forecasting, "datetime", Clock)


def test_a_rate_is_of_the_seven_periods_before_this_one_silent_ones_too() -> None:
    played = Played(
        "P1D", {"2026-06-01": 500, "2026-06-15": 300, "2026-06-19": 400, "2026-06-20": 9}
    )
    found = played.forecast("asked", "how", goal=0.01).to_frame()
    assert found["with_twice"].item() == pytest.approx(0.02 / math.sqrt(2))
    assert found["reports_for_goal"].item() == 4 * 1209  # half of the error: four times as many
    assert found.attrs["rate"] == pytest.approx(700 / 7)
    assert found.attrs["twice"] == "2026-07-03"  # 1,209 more at 100 a day: in 13 days
    assert found.attrs["reached"] == "2026-07-27"  # 3,627 more: in 37 days


def test_a_new_survey_counts_the_days_that_it_has() -> None:
    found = (
        Played("P1D", {"2026-06-18": 100, "2026-06-19": 300}).forecast("asked", "how").to_frame()
    )
    assert (found.attrs["rate"], found.attrs["twice"]) == (200, "2026-06-22")


@pytest.mark.parametrize(
    ("unit", "counts"),
    [
        ("", {"once": 500}),
        ("P1D", {"2026-06-20": 500}),
        ("P1D", {"2026-05-01": 500, "2026-05-02": 500}),
    ],
    ids=["no periods", "the first one", "silent of late"],
)
def test_no_rate_is_known(unit: str, counts: dict[str, int]) -> None:
    found = Played(unit, counts).forecast("asked", "how", goal=0.001).to_frame()
    assert found.attrs["rate"] is found.attrs["twice"] is found.attrs["reached"] is None


def test_what_is_far_away_has_no_date() -> None:
    played = Played("P1Y", {"2025": 3, "2026": 1})
    assert played.forecast("asked", "how", goal=0.001).to_frame().attrs["reached"] == "2558"
    assert played.forecast("asked", "how", goal=1e-6).to_frame().attrs["reached"] is None


@pytest.mark.parametrize("unit", ["PT1H", "P1D", "P1W", "P1M", "P1Y"])
def test_a_number_names_its_period(unit: str) -> None:
    name = period.label(unit, datetime(2026, 12, 31, 23, tzinfo=UTC))
    for _ in range(30):
        assert period.named(unit, period.number(unit, name)) == name
        name = period.label(unit, period.end(unit, name))
