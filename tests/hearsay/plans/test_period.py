from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearsay import InvalidInput
from hearsay.plans import period

UNITS = ["", "PT1H", "P1D", "P1W", "P1M", "P1Y"]


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("", "once"),
        ("PT1H", "2027-01-01T23"),
        ("P1D", "2027-01-01"),
        ("P1W", "2026-W53"),
        ("P1M", "2027-01"),
        ("P1Y", "2027"),
    ],
)
def test_a_moment_belongs_to_its_period_in_utc(unit: str, expected: str) -> None:
    evening = datetime(2027, 1, 1, 18, 30, tzinfo=timezone(-timedelta(hours=5)))
    assert period.label(unit, evening) == expected


@given(
    st.sampled_from(UNITS),
    st.datetimes(datetime(1000, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC)),
)
def test_a_period_begins_before_its_moments_and_keeps_its_name(unit: str, moment: datetime) -> None:
    name = period.label(unit, moment)
    begin = period.start(unit, name)
    assert begin <= moment
    if unit:
        assert period.label(unit, begin) == name


@pytest.mark.parametrize(
    "name", ["", "once", "2026-7-4", "2026-02-30", "2026-07-04T01", "x", "2026-W01 "]
)
def test_a_name_of_another_form_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="a P1D period reads like '2026-07-04', got"):
        period.start("P1D", name)


def test_a_survey_without_periods_has_only_one() -> None:
    with pytest.raises(InvalidInput, match="the one period 'once', got '2026'"):
        period.start("", "2026")


def test_an_unknown_unit_is_refused() -> None:
    with pytest.raises(InvalidInput, match="period must be empty or one of PT1H, P1D"):
        period.label("P2D", datetime.now(UTC))


@given(
    st.sampled_from(UNITS[1:]),
    st.datetimes(datetime(1000, 1, 1), datetime(9997, 1, 1), timezones=st.just(UTC)),
)
def test_a_period_ends_where_the_next_begins(unit: str, moment: datetime) -> None:
    name = period.label(unit, moment)
    end = period.end(unit, name)
    assert moment < end
    assert period.label(unit, end - timedelta(seconds=1)) == name
    assert period.start(unit, period.label(unit, end)) == end


@pytest.mark.parametrize(
    ("unit", "name"), [("", "once"), ("P1Y", "9999"), ("P1M", "9999-12"), ("P1D", "9999-12-31")]
)
def test_the_last_period_does_not_end(unit: str, name: str) -> None:
    assert period.end(unit, name) == datetime.max.replace(tzinfo=UTC)


@given(
    st.sampled_from(UNITS[1:]),
    st.datetimes(datetime(1000, 1, 1), datetime(9900, 1, 1), timezones=st.just(UTC)),
)
def test_numbers_of_successive_periods_differ_by_one(unit: str, moment: datetime) -> None:
    name = period.label(unit, moment)
    following = period.label(unit, period.end(unit, name))
    assert period.number(unit, following) == period.number(unit, name) + 1


def test_the_one_period_has_no_number() -> None:
    with pytest.raises(InvalidInput, match="is not numbered"):
        period.number("", period.ONCE)
