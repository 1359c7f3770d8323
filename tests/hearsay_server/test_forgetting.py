"""Forgetting by id: deleted, taken out of the tallies, and kept out."""

from datetime import timedelta
from pathlib import Path

import grpc
import pytest
import sqlalchemy as sa
from stored import NOW, PLANS, add, batch, daily, remembered, tallied

from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.ingest.intake import Reason, Refused
from hearsay_server.limits import TooMany
from hearsay_server.storage import forgetting, retention, schema
from hearsay_server.storage.forgetting import FORGOTTEN, SUMMED, forget
from hearsay_server.storage.store import Store
from ldp.errors import InvalidInput, StorageFailed
from support import Server

ONCE, EVERY_DAY = PLANS["health"], PLANS["daily"]
TODAY = f"{NOW:%Y-%m-%d}"


def ids(*numbers: int) -> list[bytes]:
    return [number.to_bytes(16, "big") for number in numbers]


def test_the_tallies_are_as_if_it_never_came(store: Store, where: Path | str) -> None:
    other = Store(where)  # whose shard is another one, on PostgreSQL
    sent = [batch(number) for number in range(12)]
    add(store, sent[:4])
    before = tallied(store, "health")
    add(other, sent[4:])
    assert forget(store.database, ONCE, "once", ids(*range(4, 12)), NOW) == [FORGOTTEN] * 8
    assert tallied(store, "health") == before
    found = store.survey("health")
    assert found is not None
    assert (found.batches, found.records) == (4, 4)
    assert add(other, [batch(20)]) == [True]  # and the other goes on
    other.close()


def test_a_cohort_of_which_nothing_is_left_is_gone(store: Store) -> None:
    add(store, [batch(1)])
    forget(store.database, ONCE, "once", ids(1), NOW)
    assert tallied(store, "health") == {}


def test_a_forgotten_batch_is_refused_when_it_comes_again_or_late(store: Store) -> None:
    add(store, [batch(1)])
    assert forget(store.database, ONCE, "once", ids(1, 2), NOW) == [FORGOTTEN, FORGOTTEN]
    outcomes = add(store, [batch(1), batch(2), batch(3)])
    assert [o.reason for o in outcomes[:2] if isinstance(o, Refused)] == [Reason.FORGOTTEN] * 2
    assert outcomes[2] is True


def test_asking_again_changes_nothing(store: Store) -> None:
    add(store, [batch(1), batch(2)])
    for _ in range(2):
        answer = forget(store.database, ONCE, "once", [*ids(1, 9), *ids(1)], NOW)
        assert answer == [FORGOTTEN] * 3
    assert remembered(store) == {1: False, 2: True, 9: False}
    assert store.surveys()[1].batches == 1


def test_what_was_dropped_stays_in_the_sums_and_is_said_to(store: Store) -> None:
    add(store, [batch(1)])
    before = tallied(store, "health")
    retention.drop_some(store.database, 10**6)
    assert forget(store.database, ONCE, "once", ids(1), NOW) == [SUMMED]
    assert tallied(store, "health") == before


def test_of_a_closed_period_what_is_stored_can_be_forgotten(store: Store) -> None:
    add(store, [daily(1), daily(2)])
    later = NOW + timedelta(days=90)
    retention.close_periods(store.database, later)
    assert forget(store.database, EVERY_DAY, TODAY, ids(1, 7), later) == [FORGOTTEN, SUMMED]
    while retention.purge_some(store.database):
        pass
    assert remembered(store) == {2: True}  # the barred id needs no memory any more


def test_who_bars_ids_without_end_is_stopped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "_MAX_BARRED", 5)
    forget(store.database, ONCE, "once", ids(*range(5)), NOW)
    with pytest.raises(TooMany, match="5 batches of 'health' are barred already, 5 of 'once'"):
        forget(store.database, ONCE, "once", ids(6), NOW)
    assert forget(store.database, ONCE, "once", ids(2), NOW) == [FORGOTTEN]
    assert forget(store.database, EVERY_DAY, TODAY, ids(6), NOW) == [FORGOTTEN]


def test_the_ids_of_all_open_periods_count_together(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "_MAX_BARRED", 5)
    yesterday = f"{NOW - timedelta(days=1):%Y-%m-%d}"
    forget(store.database, EVERY_DAY, TODAY, ids(1, 2, 3), NOW)
    forget(store.database, EVERY_DAY, yesterday, ids(4, 5), NOW)
    with pytest.raises(TooMany, match=f"5 batches of 'daily' are barred already, 3 of '{TODAY}'"):
        forget(store.database, EVERY_DAY, TODAY, ids(6), NOW)


def test_a_token_bars_no_more_ids_of_a_period_than_rows_that_it_may_send(store: Store) -> None:
    forget(store.database, ONCE, "once", ids(1, 2), NOW, "shop", 2)
    with pytest.raises(TooMany, match="2 of 'once'"):
        forget(store.database, ONCE, "once", ids(3), NOW, "shop", 2)


def test_what_is_stored_is_forgotten_though_no_more_can_be_barred(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "_MAX_BARRED", 5)
    add(store, [batch(number) for number in range(7)])
    forget(store.database, ONCE, "once", ids(*range(6)), NOW)  # which are not barred: they came
    forget(store.database, ONCE, "once", ids(*range(10, 15)), NOW)
    with pytest.raises(TooMany):
        forget(store.database, ONCE, "once", ids(6, 20), NOW)
    assert tallied(store, "health") == {}
    assert not any(remembered(store).values())


def test_what_one_token_bars_takes_no_room_of_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "_MAX_BARRED", 5)
    forget(store.database, ONCE, "once", ids(*range(5)), NOW)
    assert forget(store.database, ONCE, "once", ids(*range(5, 9)), NOW, "shop") == [FORGOTTEN] * 4
    with pytest.raises(TooMany, match="4 batches of 'health' are barred already"):
        forget(store.database, ONCE, "once", ids(10, 11), NOW, "shop")


@pytest.mark.parametrize(
    ("period", "id_", "detail"),
    [
        ("once", b"short", "a batch id is 16 bytes"),
        ("2026", bytes(16), "the survey has the one period 'once', got '2026'"),
    ],
    ids=["id", "period"],
)
def test_what_makes_no_sense_is_refused(store: Store, period: str, id_: bytes, detail: str) -> None:
    add(store, [daily(7)])
    with pytest.raises(InvalidInput, match=detail):
        forget(store.database, ONCE, period, [id_], NOW)
    assert remembered(store) == {7: True}


def test_what_has_the_id_in_another_survey_or_period_stays(store: Store) -> None:
    add(store, [batch(7), daily(7), daily(7, 1)])
    assert forget(store.database, EVERY_DAY, TODAY, ids(7), NOW) == [FORGOTTEN]
    with store.database.reading() as connection:
        left = connection.execute(
            sa.select(schema.batches.c.period).where(schema.batches.c.batch.is_not(None))
        )
        assert sorted(left.scalars()) == ["2026-07-03", "once"]
    assert [survey.batches for survey in store.surveys()] == [1, 1]


def test_a_period_to_come_has_nothing_to_forget(store: Store) -> None:
    with pytest.raises(InvalidInput, match="has not begun yet"):
        forget(store.database, EVERY_DAY, "2027-01-01", ids(1), NOW)


def test_tallies_that_lack_what_is_stored_are_not_made_worse(store: Store) -> None:
    add(store, [batch(1)])
    with store.database.changing() as connection:
        connection.exec_driver_sql("DELETE FROM tallies")
    with pytest.raises(StorageFailed, match="see `hearsay verify`"):
        forget(store.database, ONCE, "once", ids(1), NOW)
    assert remembered(store) == {1: True}


def test_a_survey_that_is_gone_has_nothing_to_forget(store: Store) -> None:
    retention.mark_deleted(store.database, "health")
    with pytest.raises(retention.NoSurvey):
        forget(store.database, ONCE, "once", ids(1), NOW)


def test_a_device_forgets_over_the_wire(
    server: Server, collector: collector_pb2_grpc.CollectorStub
) -> None:
    message = batch(1)
    collector.Submit(collector_pb2.SubmitRequest(batches=[message]))
    request = collector_pb2.ForgetRequest(survey="health", period="once", ids=[message.id])
    assert list(collector.Forget(request).results) == [FORGOTTEN]
    assert server.show("health").status.records == 0
    (result,) = collector.Submit(collector_pb2.SubmitRequest(batches=[message])).results
    assert (result.status, result.reason) == (collector_pb2.Result.REFUSED, Reason.FORGOTTEN)
    for wrong, code in (
        ({"survey": "sales"}, grpc.StatusCode.NOT_FOUND),
        ({"period": "2026"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"ids": []}, grpc.StatusCode.INVALID_ARGUMENT),
    ):
        fields = {"survey": "health", "period": "once", "ids": [message.id], **wrong}
        with pytest.raises(grpc.RpcError) as error:
            collector.Forget(collector_pb2.ForgetRequest(**fields))
        assert error.value.code() == code
