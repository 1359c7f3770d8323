"""A collector counts each sealed record once, from a shuffler alone, and forgets its keys."""

import math
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest
from command import hearsay
from sealing import SEALED, Sealed, collector, sealed_server
from serving import connected, submit

from hearsay import Analyst, InvalidInput, NotReady, Unreachable
from hearsay.plans.plan import parse
from hearsay.sealed import hpke, keys, records
from hearsay.sending.over_http import HttpCalls
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, shuffler_pb2
from hearsay_server.ingest.intake import NEVER
from hearsay_server.storage import backup, retention, sealing_keys
from hearsay_server.storage.database import open_folder
from hearsay_server.storage.store import Store
from hearsay_server.surveys import sealing
from hearsay_server.surveys import survey as surveys
from support import DAILY, SURVEY

__all__ = ["collector", "sealed_server"]

Result, Reason = collector_pb2.Result, collector_pb2.Reason

RESOLVED = surveys.resolve(surveys.from_toml(SEALED, "test.toml"))
NOW = datetime(2026, 7, 4, 12, tzinfo=UTC)


def counted(server: Sealed) -> int:
    with connected(server.address, server.token("admin")) as channel:
        asked = admin_pb2.ShowSurveyRequest(survey=server.survey)
        found = admin_pb2_grpc.AdminStub(channel).ShowSurvey(asked, timeout=20)
        return int(found.status.records)


def statuses(results: list[collector_pb2.Result]) -> list[str]:
    return [Result.Status.Name(result.status) for result in results]


# --- the survey ---------------------------------------------------------------------------------


def test_a_survey_declares_a_threshold_and_the_server_fills_in_the_size() -> None:
    sealing_ = parse(RESOLVED).sealing
    assert sealing_ is not None
    assert (sealing_.least, sealing_.size, sealing_.rotate_days) == (1000, 256, 30)
    assert (sealing_.key_count, sealing_.publics) == (3, ())


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("least = 999", "least must be >= 1,000, got 999"),
        ("rotate_days = 367", "rotate_days must be 1 to 366, got 367"),
        ("key_count = 256", "key_count must be 1 to 255, got 256"),
        ("size = 512", "the server fills in size and keys"),
        ("every = 3", "every"),
    ],
)
def test_a_survey_that_declares_sealing_wrongly_is_refused(line: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        surveys.resolve(surveys.from_toml(f"{DAILY}\n[sealing]\n{line}\n", "test.toml"))


def test_keys_are_made_for_the_whole_schedule_and_once_for_a_survey_without_periods() -> None:
    made = sealing.with_keys(RESOLVED, 1_000_000)
    plan = parse(made.plan)
    assert plan.sealing is not None
    assert plan.sealing.since == tuple(1_000_000 + 30 * 86_400 * place for place in range(3))
    for private, public in zip(made.privates, plan.sealing.publics, strict=True):
        assert hpke.private_key(private).public_key().public_bytes_raw() == public
    assert sealing.without_keys(made.plan) == RESOLVED
    once = surveys.resolve(surveys.from_toml(f"{SURVEY}\n[sealing]\n", "test.toml"))
    assert len(sealing.with_keys(once, 0).privates) == 1
    plain = surveys.resolve(surveys.from_toml(SURVEY, "test.toml"))
    assert sealing.with_keys(plain, 0) == (plain, ())


# --- records ------------------------------------------------------------------------------------


def test_a_sealed_record_counts_once_however_often_it_comes(collector: Sealed) -> None:
    first, second = collector.seal(collector.batch(1), collector.batch(2))
    (again,) = collector.seal(collector.batch(2))  # sealed anew: other bytes, the same id
    assert statuses(collector.submit(first, second, first)) == ["STORED", "STORED", "DUPLICATE"]
    assert statuses(collector.submit(again, first)) == ["DUPLICATE", "DUPLICATE"]
    assert counted(collector) == 2


@pytest.mark.slow
def test_mixing_is_claimed_for_a_thousand_that_left_together_and_charged_to_nobody(
    collector: Sealed,
) -> None:
    sealed = collector.seal(*(collector.batch(number) for number in range(1999)))

    def hand_over(first: int, last: int, mix: bytes) -> None:
        for start in range(first, last, 250):
            collector.submit(*sealed[start : min(start + 250, last)], mix=mix)

    def cohorts() -> list[Any]:
        return list(analyst.mixing(collector.survey).to_frame().itertuples())

    asked = ("--target", collector.address, "--token", collector.token("analyst"))
    analyst = Analyst(collector.address, token=collector.token("analyst"))
    with pytest.raises(NotReady, match="no records have come from a shuffler yet"):
        cohorts()
    hand_over(0, 999, b"a" * 16)
    hand_over(999, 1999, b"b" * 16)
    cohort, less = cohorts()
    assert (cohort.records, cohort.Index) == (1000, (collector.today, "strict", "smokes"))
    assert less.records == 999 and math.isnan(less.shuffled_epsilon)
    hand_over(0, 10, b"a" * 16)  # repeats, and a record of no mix, hide nobody
    collector.submit(*collector.seal(collector.batch(5000)))
    assert list(map(str, cohorts())) == [str(cohort), str(less)]
    mechanism = collector.plan().levels["strict"].by_map["smokes"][""]
    assert cohort.epsilon == mechanism.realised_epsilon
    assert 0 < cohort.shuffled_epsilon < cohort.epsilon
    with pytest.raises(NotReady):
        analyst.mixing(collector.survey, periods=["2020-01-01"])
    analyst.close()
    printed = hearsay("ask", "mixing", collector.survey, *asked)
    assert printed.returncode == 0, printed.stderr
    assert f"{math.ceil(1e4 * cohort.shuffled_epsilon) / 1e4:.4f}" in printed.stdout
    assert "if the shuffler is honest" in " ".join(printed.stdout.split())


def test_the_http_door_takes_sealed_records_from_a_shuffler_alone(collector: Sealed) -> None:
    request = shuffler_pb2.SubmitSealedRequest(records=collector.seal(collector.batch(1)))
    kind = shuffler_pb2.SubmitSealedResponse
    refused = HttpCalls(f"http://{collector.http}", token=collector.token("device"))
    with pytest.raises(Unreachable, match="token of role shuffler"):
        refused.call("SealedCollector/SubmitSealed", request, kind, 20)
    taken = HttpCalls(f"http://{collector.http}", token=collector.token("shuffler"))
    (answered,) = taken.call("SealedCollector/SubmitSealed", request, kind, 20).results
    assert answered.status == Result.STORED
    refused.close()
    taken.close()


def test_a_shuffler_refuses_records_of_a_device_that_was_given_keys_of_its_own() -> None:
    mine, theirs = (parse(sealing.with_keys(RESOLVED, 0).plan) for _ in range(2))
    content = shuffler_pb2.Sealed(forget={"period": "2026-07-04", "id": bytes(16)})
    records.check_envelope(mine, records.seal(mine, "2026-07-04", content))
    marked = records.seal(theirs, "2026-07-04", content)
    with pytest.raises(InvalidInput, match="the plan's revision begins"):
        records.check_envelope(mine, marked)


def test_what_an_adversary_changes_is_refused_for_good_and_the_others_count(
    collector: Sealed,
) -> None:
    (good,) = collector.seal(collector.batch(1))
    yesterday = f"{collector.clock.now - timedelta(days=1):%Y-%m-%d}"

    def changed(change: Callable[[shuffler_pb2.SealedRecord], object]) -> shuffler_pb2.SealedRecord:
        record = shuffler_pb2.SealedRecord.FromString(good.SerializeToString())
        change(record)
        return record

    flipped = good.sealed[:40] + bytes([good.sealed[40] ^ 1]) + good.sealed[41:]
    plan = collector.plan()
    padded = records.pad(b"\xff" * 20, 256)
    junk = hpke.encrypted(
        padded,
        records.sealing_of(plan).publics[0],
        records.info(plan.survey, plan.revision, collector.today),
    )
    bad = [
        changed(lambda record: setattr(record, "sealed", flipped)),
        changed(lambda record: setattr(record, "sealed", good.sealed[:-1])),
        changed(lambda record: setattr(record, "sealed", b"")),
        changed(lambda record: setattr(record, "sealed", junk)),
        changed(lambda record: setattr(record, "period", yesterday)),
        changed(lambda record: setattr(record, "period", "2026-W27")),
        changed(lambda record: setattr(record, "key", 1)),
        changed(lambda record: setattr(record, "key", 77)),
        *collector.seal(
            collector.batch(2, rows=2),
            collector.batch(3, period=yesterday),
            collector.batch(4, survey="other"),
            collector.batch(5, revision=bytes(32)),
        ),
    ]
    answered = collector.submit(*bad, good)
    assert statuses(answered) == ["REFUSED"] * len(bad) + ["STORED"]
    assert {result.reason for result in answered[:-1]} == {Reason.BAD_SEALED}
    assert counted(collector) == 1


def test_a_record_that_the_direct_way_would_refuse_is_refused(collector: Sealed) -> None:
    bad = collector.seal(
        collector.batch(1, id=b"short"), collector.batch(2, code=9), collector.batch(3, columns=[])
    )
    answered = collector.submit(*bad)
    assert statuses(answered) == ["REFUSED"] * 3
    assert [each.reason for each in answered] == [Reason.BAD_ID, Reason.BAD_CODES, Reason.BAD_ROWS]


def test_records_of_an_unknown_survey_or_revision_may_come_again(collector: Sealed) -> None:
    (good,) = collector.seal(collector.batch(1))
    good.survey = "nothing"
    assert statuses(collector.submit(good)) == ["RETRY"]
    good.survey, good.revision = collector.survey, bytes(32)
    assert statuses(collector.submit(good)) == ["RETRY"]


def test_devices_cannot_go_round_the_shuffler(collector: Sealed) -> None:
    batch = collector.batch(1).batch
    (direct,) = submit(collector.address, batch, token=collector.token("device"))
    assert (direct.status, direct.reason) == (Result.REFUSED, Reason.NOT_SEALED)
    sealed = collector.seal(collector.batch(1))
    for role in ("device", "analyst", "admin"):
        with pytest.raises(grpc.RpcError) as refused:
            collector.submit(*sealed, token=collector.token(role))
        assert refused.value.code() == grpc.StatusCode.PERMISSION_DENIED
    assert counted(collector) == 0
    # Known already by the sealed way, it is still not counted by the direct one.
    collector.submit(*sealed)
    (direct,) = submit(collector.address, batch, token=collector.token("device"))
    assert direct.status == Result.DUPLICATE
    assert counted(collector) == 1


def test_without_any_token_sealed_records_are_not_taken_even_on_loopback(
    collector: Sealed,
) -> None:
    with connected(collector.address) as channel:
        call = channel.unary_unary("/hearsay.v1.SealedCollector/SubmitSealed")
        with pytest.raises(grpc.RpcError) as refused:
            call(b"", timeout=20)
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED


def test_a_request_of_none_or_too_many_records_is_refused_whole(collector: Sealed) -> None:
    (good,) = collector.seal(collector.batch(1))
    for sealed in ([], [good] * 257):
        with pytest.raises(grpc.RpcError) as refused:
            collector.submit(*sealed)
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


# --- forgetting ---------------------------------------------------------------------------------


def test_a_sealed_request_takes_a_record_out_and_bars_one_that_is_under_way(
    collector: Sealed,
) -> None:
    one, two = collector.seal(collector.batch(1), collector.batch(2))
    assert statuses(collector.submit(one)) == ["STORED"]
    forgets = collector.seal(*(collector.forget(number) for number in (1, 2, 3)))
    assert statuses(collector.submit(*forgets)) == ["STORED"] * 3
    assert counted(collector) == 0
    answered = collector.submit(one, two)
    assert [each.reason for each in answered] == [Reason.FORGOTTEN] * 2
    assert counted(collector) == 0


def test_a_request_in_the_group_of_its_record_comes_after_it(collector: Sealed) -> None:
    forget, record = collector.seal(collector.forget(1), collector.batch(1))
    assert statuses(collector.submit(forget, record)) == ["STORED", "STORED"]
    assert counted(collector) == 0


def test_a_later_days_request_forgets_a_record_of_an_earlier_one(collector: Sealed) -> None:
    day = collector.today
    collector.submit(*collector.seal(collector.batch(1)))
    collector.clock.pass_days(40)  # another key
    (forget,) = collector.seal(collector.forget(1, day))
    assert forget.key == 1
    assert statuses(collector.submit(forget)) == ["STORED"]
    assert counted(collector) == 0


def test_a_bad_request_to_forget_holds_up_no_other(collector: Sealed) -> None:
    collector.submit(*collector.seal(collector.batch(1)))
    bad = shuffler_pb2.Sealed(forget={"period": collector.today, "id": b"short"})
    when = shuffler_pb2.Sealed(forget={"period": "never", "id": bytes(16)})
    answered = collector.submit(*collector.seal(bad, when, collector.forget(1)))
    assert statuses(answered) == ["REFUSED", "REFUSED", "STORED"]
    assert counted(collector) == 0


# --- keys ---------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


def register(store: Store, now: datetime = NOW) -> tuple[bytes, tuple[bytes, ...]]:
    made = sealing.with_keys(RESOLVED, int(now.timestamp()))
    revision = parse(made.plan).revision
    found = store.create_survey("daily", revision, made.plan, privates=made.privates)
    return found.plan, made.privates


def places(store: Store) -> list[int]:
    with store.database.reading() as connection:
        table = sealing_keys._keys
        return sorted(row.place for row in connection.execute(table.select()))


def test_registering_again_keeps_the_keys(store: Store) -> None:
    plan, privates = register(store)
    again, others = register(store, NOW + timedelta(days=1))
    assert again == plan
    assert privates != others
    found = sealing_keys.Keys(store.database).of(parse(plan))
    assert [found[place].private_bytes_raw() for place in range(3)] == list(privates)
    other = surveys.resolve(surveys.from_toml(f"{SEALED}least = 2000\n", "test.toml"))
    with pytest.raises(InvalidInput, match="with another plan"):
        store.create_survey("daily", bytes(32), other)
    store.close()


def test_a_key_stays_until_its_last_period_is_over_and_closed(store: Store) -> None:
    _, privates = register(store)
    turn = NOW + timedelta(days=30)  # the second key begins with the day after
    last_end = turn.replace(hour=0) + timedelta(days=1)
    closed = last_end + timedelta(days=60)
    for now, left in (
        (NOW, [0, 1, 2]),
        (closed - timedelta(seconds=1), [0, 1, 2]),
        (closed + timedelta(seconds=1), [1, 2]),
        (closed + timedelta(days=31), [2]),
        (closed + timedelta(days=10_000), [2]),  # the last key is never replaced
    ):
        for step in retention.due(store.database, now):
            while step():
                pass
        assert places(store) == left, now
    store.close()
    file = store.engine.url.database
    assert file is not None
    on_disk = (
        Path(file).read_bytes() + Path(f"{file}-wal").read_bytes()
        if (Path(f"{file}-wal").exists())
        else Path(file).read_bytes()
    )
    assert privates[2] in on_disk
    assert privates[0] not in on_disk
    assert privates[1] not in on_disk


def test_closing_early_leaves_the_keys_that_requests_to_forget_need(store: Store) -> None:
    register(store)
    last = NOW + timedelta(days=30)  # of the first key
    retention.close_survey(store.database, "daily", f"{last:%Y-%m-%d}")
    for days, left in ((31, [0, 1, 2]), (90, [0, 1, 2]), (91, [1, 2])):
        sealing_keys.delete(store.database, NOW + timedelta(days=days))
        assert places(store) == left, days
    retention.mark_deleted(store.database, "daily")
    assert places(store) == []
    store.close()


@pytest.mark.parametrize("text", [SEALED, f"{SURVEY}\n[sealing]\n"])
def test_no_key_outlives_a_survey_that_was_closed_for_60_days(text: str, store: Store) -> None:
    resolved = surveys.resolve(surveys.from_toml(text, "test.toml"))
    made = sealing.with_keys(resolved, int(NOW.timestamp()))
    plan = parse(made.plan)
    store.create_survey(plan.survey, plan.revision, made.plan, privates=made.privates)
    before = places(store)
    retention.close_survey(store.database, plan.survey, clock=lambda: NOW)
    sealing_keys.delete(store.database, NOW + timedelta(days=59))
    assert places(store) == before
    sealing_keys.delete(store.database, NOW + timedelta(days=61))  # after the day that ran
    assert places(store) == []
    store.close()


def test_a_backup_has_no_key_whose_periods_are_closed(store: Store, tmp_path: Path) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=150)
    _, privates = register(store, long_ago)
    retention.close_periods(store.database, datetime.now(UTC))
    assert places(store) == [0, 1, 2]  # no server has swept yet
    backup.backup(store.database, tmp_path / "copy.db")
    content = (tmp_path / "copy.db").read_bytes()
    assert [private in content for private in privates] == [False, False, True]
    restored = open_folder(tmp_path / "restored")
    backup.restore(tmp_path / "copy.db", restored)
    plan = parse(store.survey("daily").plan)  # type: ignore[union-attr]
    assert list(sealing_keys.Keys(restored).of(plan)) == [2]
    restored.close()
    store.close()


def test_only_keys_that_the_schedule_has_deleted_may_be_lacking(store: Store) -> None:
    now = datetime.now(UTC)
    data, _ = register(store, now - timedelta(days=150))
    plan = parse(data)

    def lacking() -> list[int]:
        return sealing_keys.lacking(sealing_keys.Keys(store.database), plan, now)

    assert lacking() == []
    retention.close_periods(store.database, now)
    sealing_keys.delete(store.database, now)
    assert places(store) == [2]
    assert lacking() == []
    with store.database.changing() as connection:
        sealing_keys.drop(connection, plan.survey)
    assert lacking() == [2]
    store.close()


def test_records_whose_key_is_deleted_are_refused_for_good(collector: Sealed) -> None:
    (old,) = collector.seal(collector.batch(1))
    collector.clock.pass_days(100)
    database = open_folder(collector.data)
    retention.close_periods(database, collector.clock.now)
    sealing_keys.delete(database, collector.clock.now)
    database.close()
    (answered,) = collector.submit(old)
    assert answered.reason == Reason.PERIOD_CLOSED
    assert answered.status == Result.REFUSED


def test_the_private_halves_are_in_no_plan_and_no_answer(store: Store) -> None:
    plan, privates = register(store)
    assert all(private not in plan for private in privates)
    with sqlite3.connect(store.engine.url.database or "") as connection:
        rows = connection.execute("SELECT place, until FROM sealing_keys ORDER BY place").fetchall()
    assert rows[2] == (2, NEVER)
    assert keys.fingerprint(parse(plan).sealing)  # type: ignore[arg-type]
    store.close()
