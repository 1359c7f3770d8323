"""Closing, dropping, purging, deleting: nothing is counted twice, and nothing stays too long."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from stored import NOW, add, batch, daily, register, remembered, tallied

from hearsay_server.ingest.intake import Reason, Refused
from hearsay_server.storage import retention, schema
from hearsay_server.storage.store import Store
from hearsay_server.storage.tokens import charge
from ldp.errors import InvalidInput, NotReady


def sweep(store: Store, now: datetime, keep_days: int = 0) -> None:
    for step in retention.due(store.database, now, keep_days):
        while step():
            pass


def reasons(outcomes: list[bool | Refused]) -> list[object]:
    return [Reason.Name(o.reason) if isinstance(o, Refused) else o for o in outcomes]


def test_a_period_closes_sixty_days_after_its_end(store: Store) -> None:
    sent = [daily(1, 59), daily(2, 60), daily(3, 61)]
    sweep(store, NOW)
    behind = NOW - timedelta(days=30)  # a clock that is late
    assert reasons(add(store, sent, behind)) == [True, True, "PERIOD_CLOSED"]


def test_a_survey_that_is_answered_once_does_not_close_by_itself(store: Store) -> None:
    sweep(store, NOW + timedelta(days=3650))
    assert add(store, [batch(1)]) == [True]


def test_a_retry_after_its_period_closed_is_not_counted_again(store: Store) -> None:
    one = daily(1)
    add(store, [one])
    before = tallied(store, "daily")
    later = NOW + timedelta(days=90)
    sweep(store, later, keep_days=0)
    assert add(store, [one]) == [False]
    retention.drop_some(store.database, 10**6)
    assert add(store, [one]) == [False]  # its id is remembered still
    sweep(store, later)
    assert remembered(store) == {}
    assert reasons(add(store, [one])) == ["PERIOD_CLOSED"]
    assert tallied(store, "daily") == before


def test_a_retry_that_would_be_refused_by_now_is_told_that_it_is_stored(store: Store) -> None:
    one = daily(1)
    add(store, [one])
    late = NOW + timedelta(days=90)
    outcomes = add(store, [daily(2), one], late)
    assert reasons(outcomes) == ["PERIOD_CLOSED", False]


def test_closing_never_goes_back(store: Store) -> None:
    sweep(store, NOW + timedelta(days=90))
    sweep(store, NOW)
    assert reasons(add(store, [daily(1)])) == ["PERIOD_CLOSED"]


def test_a_clock_that_leaps_closes_and_drops_nothing_unless_by_command(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def hourly(now: datetime) -> None:
        for step in retention.hourly(store.database, now, keep_days=5):
            while step():
                pass

    add(store, [daily(1)])
    ahead = NOW + timedelta(days=365)
    hourly(NOW)
    hourly(NOW + retention.LEAP)  # a server that was off for so long
    assert remembered(store) == {1: False}
    hourly(ahead)
    assert "the clock says 2027-07-04 12:00, and what was due was last done" in caplog.text
    assert add(store, [daily(2)]) == [True]
    retention.remember(store.database, ahead)  # as the command does
    hourly(ahead)
    assert reasons(add(store, [daily(3)])) == ["PERIOD_CLOSED"]


def test_of_a_new_survey_is_closed_what_is_closed_of_others(where: Path | str) -> None:
    store = Store(where)
    retention.remember(store.database, NOW)
    register(store)
    outcomes = add(store, [daily(1, 58), batch(2)])
    assert outcomes == [True, True]
    (outcome,) = add(store, [daily(3, 63)], NOW - timedelta(days=30))
    assert isinstance(outcome, Refused)
    assert (outcome.reason, outcome.final) == (Reason.PERIOD_CLOSED, True)
    store.close()


def test_what_is_marked_is_deleted_by_whatever_clock(store: Store) -> None:
    retention.remember(store.database, NOW)
    retention.mark_deleted(store.database, "health")
    for step in retention.hourly(store.database, NOW + timedelta(days=365)):
        while step():
            pass
    register(store)  # the name is free again


def test_a_period_that_only_a_clock_closes_may_come_again(store: Store) -> None:
    late = NOW + timedelta(days=90)
    (outcome,) = add(store, [daily(1)], late)
    assert isinstance(outcome, Refused)
    assert (outcome.reason, outcome.final) == (Reason.PERIOD_CLOSED, False)
    sweep(store, late)
    for now in (late, NOW):
        (outcome,) = add(store, [daily(1)], now)
        assert isinstance(outcome, Refused)
        assert (outcome.reason, outcome.final) == (Reason.PERIOD_CLOSED, True)


def test_a_closed_survey_takes_nothing_and_keeps_its_tallies(store: Store) -> None:
    add(store, [batch(1)])
    retention.close_survey(store.database, "health")
    assert reasons(add(store, [batch(2)])) == ["PERIOD_CLOSED"]
    assert add(store, [daily(3)]) == [True]
    found = store.survey("health")
    assert found is not None
    assert (found.closed, found.batches) == (True, 1)
    assert len(tallied(store, "health")) == 2


def test_the_periods_up_to_one_can_be_closed(store: Store) -> None:
    retention.close_survey(store.database, "daily", f"{NOW - timedelta(days=1):%Y-%m-%d}")
    outcomes = add(store, [daily(1), daily(2, 1), daily(3, 2)])
    assert reasons(outcomes) == [True, "PERIOD_CLOSED", "PERIOD_CLOSED"]
    found = store.survey("daily")
    assert found is not None
    assert not found.closed


def test_what_is_closed_must_exist(store: Store) -> None:
    with pytest.raises(retention.NoSurvey, match="there is no survey 'sales' here"):
        retention.close_survey(store.database, "sales")
    with pytest.raises(InvalidInput, match="a P1D period reads like"):
        retention.close_survey(store.database, "daily", "2026")


def test_contents_are_dropped_and_their_tallies_stay(store: Store) -> None:
    add(store, [batch(number) for number in range(5)])
    before = tallied(store, "health")
    while retention.drop_some(store.database, 10**6):
        pass
    assert remembered(store) == dict.fromkeys(range(5), False)
    assert add(store, [batch(3)]) == [False]
    assert tallied(store, "health") == before
    found = store.survey("health")
    assert found is not None
    assert (found.batches, found.records) == (5, 5)


def test_contents_are_kept_for_their_days(store: Store) -> None:
    add(store, [batch(1)])
    with store.database.changing() as connection:
        days = (NOW - datetime(1970, 1, 1, tzinfo=NOW.tzinfo)).days
        connection.execute(sa.update(schema.batches).values(day=days - 30))
    sweep(store, NOW, keep_days=30)
    assert remembered(store) == {1: True}
    sweep(store, NOW, keep_days=29)
    assert remembered(store) == {1: False}


def test_what_a_token_sent_is_forgotten_with_its_period(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "_CHUNK", 3)
    days = [daily(number, days_ago=number) for number in range(3)]
    for sent in (*days, batch(10)):
        with store.database.appending() as connection:
            charge(store.database, connection, [(f"token {n}", sent) for n in range(7)], cap=10)
    sweep(store, NOW)
    assert charged(store) == {("health", "once"): 7, **{("daily", d.period): 7 for d in days}}
    retention.close_survey(store.database, "daily", days[1].period)
    sweep(store, NOW)
    assert charged(store) == {("health", "once"): 7, ("daily", days[0].period): 7}
    retention.close_survey(store.database, "health")
    sweep(store, NOW + timedelta(days=61))
    assert charged(store) == {}


def charged(store: Store) -> dict[tuple[str, str], int]:
    """Return how many tokens' rows are remembered, by survey and period."""
    key = schema.token_rows.c.survey, schema.token_rows.c.period
    with store.database.reading() as connection:
        query = sa.select(*key, sa.func.count()).group_by(*key)
        return {(row[0], row[1]): row[2] for row in connection.execute(query)}


def test_a_deleted_survey_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_CHUNK", 3)
    add(store, [batch(number) for number in range(7)] + [daily(10)])
    assert retention.mark_deleted(store.database, "health").batches == 7
    assert [found.survey for found in store.surveys()] == ["daily"]
    assert reasons(add(store, [batch(8)])) == ["UNKNOWN_SURVEY"]
    with pytest.raises(NotReady, match="'health' is being deleted"):
        register(store)
    sweep(store, NOW)  # as after a server that stopped in the middle
    with store.database.reading() as connection:
        for table in (schema.batches, schema.counts, schema.tallies, schema.surveys):
            assert set(connection.scalars(sa.select(table.c.survey))) == {"daily"}
    register(store)
    assert add(store, [batch(1)]) == [True]
    with pytest.raises(retention.NoSurvey):
        retention.mark_deleted(store.database, "sales")


def test_sqlite_overwrites_what_is_deleted(tmp_path: Path) -> None:
    store = Store(tmp_path)
    register(store)
    message = batch(1)
    add(store, [message])
    retention.mark_deleted(store.database, "health")
    sweep(store, NOW)
    store.close()
    assert message.revision not in (tmp_path / "hearsay.db").read_bytes()
