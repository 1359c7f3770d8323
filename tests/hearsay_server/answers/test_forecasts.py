"""A forecast's numbers, by hand, from the counts of each period."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

import hearsay.plans.plan
from hearsay.asking import Answer, Level, Subject, Table, roles
from hearsay.asking.columns import COLUMNS
from hearsay.checking.tables import check_tables
from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import forecasts
from hearsay_server.ingest.intake import Cohort
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput

SURVEY = """
name = "asked"
{period}
[levels]
one = 1.0
[[attributes]]
name = "how"
[attributes.categorical]
values = ["foot", "bike"]
[[attributes]]
name = "where"
[attributes.categorical]
values = ["here", "there"]
"""
NOON = datetime(2026, 6, 20, 12, tzinfo=UTC)


def asked(unit: str) -> Plan:
    text = SURVEY.format(period=f'period = "{unit}"' if unit else "")
    return hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(text, "asked.toml")))


def foretold(
    unit: str, counts: Mapping[str, int], goal: float | None = None, *, closed: bool = False
) -> Answer:
    """Return the forecast at noon of an estimate of .4 with an error of .02."""
    plan = asked(unit)
    reports = {Cohort("asked", b"", "how", "one", name): n for name, n in counts.items()}
    reports |= {Cohort("asked", b"", "where", "one", name): 7 for name in counts}
    columns = [
        roles.column(name, [number], "share")
        for name, number in zip(COLUMNS, (0.4, 0.02, 0.3, 0.5), strict=True)
    ]
    table = Table("rows", (Level("how", ["foot"]),), tuple(columns))
    estimate = Answer(
        "estimate", "asked", (Subject("how"),), "frequency", (table,), reports=sum(counts.values())
    )
    arrived = forecasts.arrivals(plan, "how", reports, closed, NOON)
    return forecasts.forecast(estimate, goal, unit, arrived)


def test_a_rate_is_of_the_seven_periods_before_this_one_silent_ones_too() -> None:
    counts = {"2026-06-01": 500, "2026-06-15": 300, "2026-06-19": 400, "2026-06-20": 9}
    found = foretold("P1D", counts, 0.01).to_frame()
    assert found["with_twice"].item() == pytest.approx(0.02 / math.sqrt(2))
    assert found["reports_for_goal"].item() == 4 * 1209  # half of the error: four times as many
    assert found.attrs["rate"] == pytest.approx(700 / 7)
    assert found.attrs["twice"] == "2026-07-03"  # 1,209 more at 100 a day: in 13 days
    assert found.attrs["reached"] == "2026-07-27"  # 3,627 more: in 37 days


def test_a_new_survey_counts_the_days_that_it_has() -> None:
    found = foretold("P1D", {"2026-06-18": 100, "2026-06-19": 300}).to_frame()
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
    found = foretold(unit, counts, 0.001).to_frame()
    assert found.attrs["rate"] is found.attrs["twice"] is found.attrs["reached"] is None


def test_what_is_far_away_has_no_date() -> None:
    counts = {"2025": 3, "2026": 1}
    assert foretold("P1Y", counts, 0.001).figures["reached"] == "2558"
    for goal in (1e-6, 1e-100, 1e-300):
        found = foretold("P1Y", counts, goal)
        assert found.figures["reached"] is None
        check_tables(found)  # as an analyst's side does: what is needed has no greatest number


def test_a_later_period_that_has_reports_is_the_present_one() -> None:
    found = foretold("P1D", {"2026-06-19": 100, "2026-06-22": 10})
    assert (found.figures["rate"], found.figures["twice"]) == (pytest.approx(100 / 3), "2026-06-26")


def test_no_more_reports_come_to_a_closed_survey() -> None:
    counts = {"2026-06-18": 100, "2026-06-19": 300}
    figures = foretold("P1D", counts, 0.01, closed=True).figures
    assert figures["closed"]
    assert figures["rate"] is figures["twice"] is figures["reached"] is None


@pytest.mark.parametrize(
    ("question", "goal", "words"),
    [
        ({}, -0.1, "goal must be a standard error > 0, got -0.1"),
        ({}, math.nan, "got nan"),
        ({"selection": {"first_period": "2026-06-18"}}, None, "of all periods"),
        ({"sums": [{"values": ["foot"]}]}, None, "leave out the sums"),
    ],
)
def test_what_has_no_forecast_is_refused(
    question: dict[str, object], goal: float | None, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        forecasts.check(analyst_pb2.ForecastRequest(question=question, goal=goal))


@pytest.mark.parametrize("unit", ["PT1H", "P1D", "P1W", "P1M", "P1Y"])
def test_a_number_names_its_period(unit: str) -> None:
    name = period.label(unit, datetime(2026, 12, 31, 23, tzinfo=UTC))
    for _ in range(30):
        assert period.named(unit, period.number(unit, name)) == name
        name = period.label(unit, period.end(unit, name))
