"""A shuffler forwards a period's records together and mixed, or not, and forgets who sent them."""

import contextlib
import hashlib
import itertools
import random
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import prometheus_client as prometheus
import pytest
from command import hearsay
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client import parser
from sealing import SEALED, Sealed, collector, sealed_server
from serving import connected, create, tokens_of
from shuffling import shuffling

from hearsay import Delivery
from hearsay.sealed import records
from hearsay.sending.transport import Answer, Unreachable
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    collector_pb2,
    shuffler_pb2,
    shuffler_pb2_grpc,
)
from hearsay_server.elsewhere.plans import SURVEYS, Plans
from hearsay_server.shuffler import forwarding, pools
from hearsay_server.shuffler.forwarding import Forwarding
from hearsay_server.shuffler.pools import Pools
from ldp import InvalidInput
from ldp.errors import StorageFailed
from support import free_port, new_client, wait_until

__all__ = ["collector", "sealed_server"]

Result = collector_pb2.Result
LEAST = 1000
DAY = 20_000
NEXT_DAY = datetime(2026, 7, 5, 12, tzinfo=UTC)


def statuses(results: Sequence[collector_pb2.Result]) -> set[int]:
    return {result.status for result in results}


def stored(server: Sealed) -> int:
    """Return how many records the collector has."""
    with connected(server.address, server.token("admin")) as channel:
        asked = admin_pb2.ShowSurveyRequest(survey=server.survey)
        found = admin_pb2_grpc.AdminStub(channel).ShowSurvey(asked, timeout=20)
    return int(found.status.records)


@pytest.fixture(scope="module")
def envelopes() -> list[shuffler_pb2.SealedRecord]:
    """Records that only look sealed, all different, for tests of what keeps them."""
    draw = random.Random(1)
    return [
        shuffler_pb2.SealedRecord(survey="daily", period="2026-07-04", sealed=draw.randbytes(304))
        for _ in range(1500)
    ]


# --- from devices to the collector ----------------------------------------------------------------


@pytest.mark.slow
def test_a_period_leaves_when_it_is_over_and_its_threshold_is_reached(
    collector: Sealed, tmp_path: Path
) -> None:
    records = collector.seal(*(collector.batch(number) for number in range(LEAST + 1)))
    with shuffling(tmp_path / "s", collector) as shuffler:
        today = collector.today
        assert statuses(shuffler.submit(*records[:600])) == {Result.STORED}
        assert statuses(shuffler.submit(records[0])) == {Result.DUPLICATE}
        assert statuses(shuffler.submit(*records[600:])) == {Result.STORED}
        assert shuffler.pool(today).gathering == LEAST + 1
        assert stored(collector) == 0  # the period is not over
        collector.clock.now += timedelta(days=1)
        wait_until(lambda: shuffler.pool(today).forwarded == LEAST + 1)
        pool = shuffler.pool(today)
        assert (pool.gathering, pool.leaving, pool.dropped) == (0, 0, 0)
    assert stored(collector) == LEAST + 1


@pytest.mark.slow
def test_too_few_are_held_for_one_more_period_and_dropped(
    collector: Sealed, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    records = collector.seal(*(collector.batch(number) for number in range(LEAST - 1)))
    today = collector.today
    with shuffling(tmp_path / "s", collector) as shuffler:
        shuffler.submit(*records, *records[:5])  # a repeat is no record more
        collector.clock.now += timedelta(days=1)
    with shuffling(tmp_path / "s", collector) as shuffler:  # neither does a start count again
        assert shuffler.pool(today).gathering == LEAST - 1
        collector.clock.now += timedelta(days=1)
        wait_until(lambda: shuffler.pool(today).dropped == LEAST - 1)
        (late,) = shuffler.submit(records[0])
        assert (late.status, late.reason) == (Result.REFUSED, collector_pb2.PERIOD_CLOSED)
    told = [r.levelname for r in caplog.records if r.getMessage().startswith("dropped")]
    assert told == ["INFO"]  # nobody can mend that few came
    assert stored(collector) == 0
    shown = hearsay("shuffler", "show", "--data", tmp_path / "s", COLUMNS="80")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "1,000 records or more" in shown.stdout
    assert "999" in shown.stdout


def test_records_of_another_revision_key_size_or_period_are_refused(
    collector: Sealed, tmp_path: Path
) -> None:
    (record,) = collector.seal(collector.batch(1))

    def changed(**fields: Any) -> shuffler_pb2.SealedRecord:
        made = shuffler_pb2.SealedRecord()
        made.CopyFrom(record)
        for name, value in fields.items():
            setattr(made, name, value)
        return made

    unknown = shuffler_pb2.SealedRecord.FromString(record.SerializeToString() + b"\x7a\x01x")
    tomorrow = f"{collector.clock.now + timedelta(days=1):%Y-%m-%d}"
    with shuffling(tmp_path / "s", collector) as shuffler:
        results = shuffler.submit(
            changed(revision=bytes(32)),
            changed(key=1),
            changed(sealed=record.sealed[:-1]),
            unknown,
            changed(period=tomorrow),
            changed(survey="other"),
        )
    assert [(each.status, each.reason) for each in results] == [
        (Result.REFUSED, collector_pb2.UNKNOWN_REVISION),
        (Result.REFUSED, collector_pb2.BAD_SEALED),
        (Result.REFUSED, collector_pb2.BAD_SEALED),
        (Result.REFUSED, collector_pb2.UNKNOWN_FIELDS),
        (Result.RETRY, collector_pb2.BAD_PERIOD),
        (Result.RETRY, collector_pb2.UNKNOWN_SURVEY),
    ]


def test_the_first_plan_is_the_only_one_and_an_operator_may_name_it(
    collector: Sealed, tmp_path: Path
) -> None:
    (record,) = collector.seal(collector.batch(1))
    pinned = f"{collector.survey}={bytes(32).hex()}"
    with shuffling(tmp_path / "other", collector, revisions=pinned) as other:
        (result,) = other.submit(record)
        assert (result.status, result.reason) == (Result.RETRY, collector_pb2.UNKNOWN_REVISION)
    pinned = f"{collector.survey}={collector.plan().revision.hex()}"
    with shuffling(tmp_path / "s", collector, revisions=pinned) as shuffler:
        assert statuses(shuffler.submit(record)) == {Result.STORED}
        with pytest.raises(InvalidInput, match="another shuffler has"):
            Pools(tmp_path / "s")
    # A revision that is named later holds for what is here, too, and so do the names.
    with pytest.raises(InvalidInput, match=r"with another revision the shuffler needs another"):
        file, other = Pools(tmp_path / "s"), {collector.survey: bytes(32)}
        with closing(file):
            Plans(SURVEYS, file, Collector(), other, records.check, "shuffler")
    with shuffling(tmp_path / "s", collector, revisions=f"another={bytes(32).hex()}") as shuffler:
        (result,) = shuffler.submit(collector.seal(collector.batch(2))[0])
        assert (result.status, result.reason) == (Result.RETRY, collector_pb2.UNKNOWN_SURVEY)
    # The collector is away: the plan that was taken is here, and records gather.
    with shuffling(tmp_path / "s", collector, collector="127.0.0.1:1") as shuffler:
        (result,) = shuffler.submit(collector.seal(collector.batch(2))[0])
        assert result.status == Result.STORED


@pytest.mark.parametrize("role", ["shuffler", "device"])
def test_a_token_that_the_collector_does_not_take_is_told_at_the_start(
    collector: Sealed, tmp_path: Path, caplog: pytest.LogCaptureFixture, role: str
) -> None:
    with shuffling(tmp_path / "s", collector, collector_token=collector.token(role)):
        if role == "device":
            wait_until(lambda: "needs a token of role shuffler" in caplog.text)
        else:
            time.sleep(0.3)
            assert "forwarded to the collector" not in caplog.text


def test_devices_need_a_token_and_keep_to_its_rate(collector: Sealed, tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    text = tokens_of(tmp_path / "s").create("device", "a device of somebody")[1]
    records = collector.seal(*(collector.batch(number) for number in range(300)))
    keys = {"require_device_token": True, "batches_per_second": 0.001}
    with shuffling(tmp_path / "s", collector, **keys) as shuffler:
        with pytest.raises(Exception, match="needs `authorization"):
            shuffler.submit(records[0])
        assert statuses(shuffler.submit(*records[:256], token=text)) == {Result.STORED}
        with pytest.raises(Exception, match="records a second"):
            shuffler.submit(*records[256:], token=text)


def test_a_survey_that_is_not_sealed_is_not_taken(collector: Sealed, tmp_path: Path) -> None:
    plain = SEALED.partition("[sealing]")[0].replace('"daily"', '"plain"', 1)
    create(collector.address, plain, token=collector.token("admin"))
    record = shuffler_pb2.SealedRecord(survey="plain", period=collector.today, sealed=b"x")
    with shuffling(tmp_path / "s", collector) as shuffler:
        (result,) = shuffler.submit(record)
    assert result.status == Result.RETRY
    assert "cannot be collected through a shuffler" in result.detail


# --- what it keeps --------------------------------------------------------------------------------


def test_nothing_of_who_sent_a_record_when_and_in_which_order_is_kept(
    envelopes: list[shuffler_pb2.SealedRecord], tmp_path: Path
) -> None:
    """The same records in two orders leave the same rows, and the file has nothing but these."""
    rows = []
    for name, order in (("a", envelopes), ("b", envelopes[::-1])):
        with closing(Pools(tmp_path / name)) as pools:
            for first in range(0, len(order), 100):
                pools.add(order[first : first + 100], DAY)
        with closing(sqlite3.connect(tmp_path / name / "pools.db")) as connection:
            rows.append(connection.execute("SELECT * FROM records").fetchall())
            with pytest.raises(sqlite3.OperationalError, match="no such column"):
                connection.execute("SELECT rowid FROM records")
        assert not (tmp_path / name / "pools.db-wal").exists()
        assert (tmp_path / name / "pools.db-journal").stat().st_size == 0
    assert rows[0] == rows[1]
    assert [row[3] for row in rows[0]] == sorted(row[3] for row in rows[0])


def test_what_has_left_is_overwritten(
    envelopes: list[shuffler_pb2.SealedRecord], tmp_path: Path
) -> None:
    with closing(Pools(tmp_path)) as pools:
        pools.add(envelopes, DAY)
        pools.begin("daily", "2026-07-04", LEAST)
        ((_, hashes),) = pools.leaving("daily", "2026-07-04").items()
        pools.forwarded("daily", "2026-07-04", hashes)
        extra = shuffler_pb2.SealedRecord(survey="daily", period="2026-07-04", sealed=b"x" * 304)
        pools.add([extra], DAY)
        assert pools.drop("daily", "2026-07-04", LEAST) == 1
    data = b"".join(file.read_bytes() for file in tmp_path.glob("pools.db*"))
    assert not [each for each in (*envelopes, extra) if each.sealed in data]


def test_the_file_is_closed_once_nobody_reads_it_and_then_refused(tmp_path: Path) -> None:
    file = Pools(tmp_path)
    with file.reading() as connection:
        closing_ = threading.Thread(target=file.close)
        closing_.start()
        time.sleep(0.1)
        assert closing_.is_alive()
        assert connection.execute("SELECT count(*) FROM pools").fetchone() == (0,)
    closing_.join(5)
    assert not closing_.is_alive()
    with pytest.raises(StorageFailed, match="closed database"):
        file.all()


# --- the threshold and the order ------------------------------------------------------------------


class Collector:
    """A collector that keeps the order in which records come, and answers as told."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.mixes: list[bytes] = []
        self.away_after = 10**9
        self.status = Result.STORED

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        assert isinstance(request, shuffler_pb2.SubmitSealedRequest)
        if len(self.came) >= self.away_after:
            raise Unreachable("the collector is away")
        self.came += [record.sealed for record in request.records]
        self.mixes.append(request.mix)
        results = [Result(status=self.status)] * len(request.records)
        answer = shuffler_pb2.SubmitSealedResponse(results=results)
        return kind.FromString(answer.SerializeToString())

    def stream(self, *_: object) -> Any: ...
    def close(self) -> None: ...


class OnePlan:
    """The plan of a survey, without a server."""

    def __init__(self, collector: Sealed) -> None:
        self._plan = replace(collector.plan(), survey="daily")

    def known(self) -> list[Any]:
        return [self._plan]


@pytest.fixture
def forwarded(collector: Sealed, tmp_path: Path) -> tuple[Pools, Collector, Forwarding]:
    away, pools = Collector(), Pools(tmp_path / "p")
    moved = prometheus.Counter("moved", "", ["outcome"], registry=prometheus.CollectorRegistry())
    plans: Any = OnePlan(collector)
    return pools, away, Forwarding(pools, plans, away, lambda: NEXT_DAY, moved)


def test_a_mix_is_never_of_fewer_than_its_least(
    envelopes: list[shuffler_pb2.SealedRecord], tmp_path: Path
) -> None:
    of = envelopes[0].survey, envelopes[0].period
    with closing(Pools(tmp_path / "p")) as pools:
        pools.add(envelopes[:5], DAY)
        assert pools.begin(*of, 6) == 0
        assert pools.leaving(*of) == {}
        assert pools.begin(*of, 5) == 5


def test_records_leave_in_an_order_that_tells_nothing(
    forwarded: tuple[Pools, Collector, Forwarding], envelopes: list[shuffler_pb2.SealedRecord]
) -> None:
    pools, away, forwarding_ = forwarded
    pools.add(envelopes, DAY)
    forwarding_.once()
    assert sorted(away.came) == sorted(each.sealed for each in envelopes)
    by_hash = sorted(envelopes, key=lambda each: hashlib.sha256(each.SerializeToString()).digest())
    places = {sealed: place for place, sealed in enumerate(away.came)}
    for order in (envelopes, by_hash):  # neither as they came nor as they lie
        found = [places[each.sealed] for each in order]
        pairs = list(zip(found, range(len(found)), strict=True))
        mean = (len(found) - 1) / 2
        correlation = sum((a - mean) * (b - mean) for a, b in pairs) / sum(
            (b - mean) ** 2 for _, b in pairs
        )
        assert abs(correlation) < 6 / len(found) ** 0.5  # a chance below 1e-8


@pytest.mark.parametrize("ends", ["fails", "stops"])
def test_a_collector_that_fails_and_a_shuffler_that_stops_get_no_other_call(
    ends: str,
    forwarded: tuple[Pools, Collector, Forwarding],
    envelopes: list[shuffler_pb2.SealedRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pools, away, forwarding_ = forwarded
    monkeypatch.setattr(forwarding, "GROUP", 20)
    calls, call = itertools.count(), away.call

    def failing(*given: Any) -> Any:
        number = next(calls)
        if number == 0:
            time.sleep(0.3)  # the errors of the others come first
            return call(*given)
        if ends == "stops":
            forwarding_.stop()
            return call(*given)
        raise Unreachable("leave me alone", retry_after=1.0)

    monkeypatch.setattr(away, "call", failing)
    pools.add(envelopes[:LEAST], DAY)
    with contextlib.nullcontext() if ends == "stops" else pytest.raises(Unreachable):
        forwarding_.once()
    assert next(calls) <= 4
    assert [pool.leaving for pool in pools.all()] == [LEAST - len(away.came)]


def test_records_that_come_while_others_leave_wait_for_a_threshold_of_their_own(
    forwarded: tuple[Pools, Collector, Forwarding], envelopes: list[shuffler_pb2.SealedRecord]
) -> None:
    pools, away, forwarding_ = forwarded
    pools.add(envelopes[:LEAST], DAY)
    away.away_after = forwarding.GROUP
    with pytest.raises(Unreachable):
        forwarding_.once()
    pools.add(envelopes[LEAST:], DAY)
    away.away_after = 10**9
    forwarding_.once()
    assert set(away.came) == {each.sealed for each in envelopes[:LEAST]}
    assert [(pool.gathering, pool.leaving) for pool in pools.all()] == [(500, 0)]


def test_those_that_leave_together_are_one_mix_and_later_ones_another(
    forwarded: tuple[Pools, Collector, Forwarding], envelopes: list[shuffler_pb2.SealedRecord]
) -> None:
    pools, away, forwarding_ = forwarded
    pools.add(envelopes[:LEAST], DAY)
    away.status = Result.RETRY
    forwarding_.once()
    later = [
        shuffler_pb2.SealedRecord(survey="daily", period="2026-07-04", sealed=each.sealed[::-1])
        for each in envelopes[:LEAST]
    ]
    pools.add(later, DAY)
    forwarding_.once()  # those that the collector wants later hold up nobody
    assert [(pool.gathering, pool.leaving) for pool in pools.all()] == [(0, 2 * LEAST)]
    away.came.clear()
    away.mixes.clear()
    away.status = Result.STORED
    forwarding_.once()
    first, second = dict.fromkeys(away.mixes)
    assert len(first) == len(second) == 16
    of_first = away.mixes.count(first)
    assert {*away.came[:LEAST]} == {each.sealed for each in envelopes[:LEAST]}
    assert away.mixes == [first] * of_first + [second] * of_first
    assert [pool.leaving for pool in pools.all()] == [0]


def test_a_repeat_of_what_has_left_counts_toward_no_threshold(
    forwarded: tuple[Pools, Collector, Forwarding],
    envelopes: list[shuffler_pb2.SealedRecord],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whoever kept the bytes of a period's records could else lead a late one out by itself."""
    pools, _, forwarding_ = forwarded
    pools.add(envelopes[:LEAST], DAY)
    forwarding_.once()
    assert pools.add(envelopes[: LEAST + 1], DAY) == [*[False] * LEAST, True]
    forwarding_.once()
    assert [(pool.gathering, pool.forwarded) for pool in pools.all()] == [(1, LEAST)]
    # The hashes and their mixes go once the period has taken no record for a day.
    for later, known in (timedelta(hours=35), True), (timedelta(hours=37), False):
        monkeypatch.setattr(forwarding_, "_clock", lambda later=later: NEXT_DAY + later)
        forwarding_.once()
        with pools.reading() as connection:
            assert connection.execute("SELECT count(*) FROM mixes").fetchall() == [(known,)]
        assert pools.add(envelopes[:1], DAY) == [not known]


def test_what_the_collector_never_takes_is_dropped_in_the_end(
    forwarded: tuple[Pools, Collector, Forwarding],
    envelopes: list[shuffler_pb2.SealedRecord],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As where the survey was deleted there."""
    pools, away, forwarding_ = forwarded
    pools.add(envelopes[:LEAST], DAY)
    away.status = Result.RETRY
    for days, leaving in (0, LEAST), (60, LEAST), (62, 0):
        later = NEXT_DAY + timedelta(days=days)
        monkeypatch.setattr(forwarding_, "_clock", lambda later=later: later)
        forwarding_.once()
        assert [pool.leaving for pool in pools.all()] == [leaving]
    assert [(pool.dropped, pool.forwarded) for pool in pools.all()] == [(LEAST, 0)]
    told = [r.levelname for r in caplog.records if r.getMessage().startswith("dropped")]
    assert told == ["WARNING"]  # the way to the collector wants mending


def test_what_the_collector_wants_later_is_kept(
    forwarded: tuple[Pools, Collector, Forwarding], envelopes: list[shuffler_pb2.SealedRecord]
) -> None:
    pools, away, forwarding_ = forwarded
    pools.add(envelopes[:LEAST], DAY)
    away.status = Result.RETRY
    forwarding_.once()
    assert [(pool.leaving, pool.forwarded) for pool in pools.all()] == [(LEAST, 0)]
    away.status = Result.REFUSED  # for ever: nothing is gained by keeping it
    forwarding_.once()
    assert [(pool.leaving, pool.forwarded) for pool in pools.all()] == [(0, LEAST)]


# --- as people run it -----------------------------------------------------------------------------


def test_a_device_reports_through_a_shuffler(collector: Sealed, tmp_path: Path) -> None:
    with shuffling(tmp_path / "s", collector) as shuffler:
        chosen = {"shuffler": shuffler.address, "delivery": Delivery(first_wait=0.02)}
        with new_client(
            *(collector.address, collector.survey), clock=collector.clock, **chosen
        ) as device:
            assert device.wait_ready(), device.status()
            for name in ("ada", "ben", "cem"):
                person = device.person(name)
                person.grant()
                assert person.record(smokes="no")
            assert device.flush(20)
        assert shuffler.pool(collector.today).gathering == 3
    assert stored(collector) == 0


def hand_over(
    port: int, waiting: dict[int, shuffler_pb2.SealedRecord], chance: random.Random
) -> None:
    """Submit records until all are acknowledged, and take those that are out of `waiting`."""
    with connected(f"127.0.0.1:{port}") as channel:
        stub = shuffler_pb2_grpc.ShufflerStub(channel)
        while waiting:
            numbers = chance.sample(sorted(waiting), min(50, len(waiting)))
            request = shuffler_pb2.SubmitSealedRequest(records=[waiting[n] for n in numbers])
            results = stub.SubmitSealed(request, timeout=20).results
            assert statuses(results) <= {Result.STORED, Result.DUPLICATE}
            for number in numbers:
                del waiting[number]
            time.sleep(0.02)


@pytest.mark.slow
def test_kills_lose_nothing_count_nothing_twice_and_forward_nothing_below_the_threshold(
    collector: Sealed, tmp_path: Path
) -> None:
    """Records of yesterday may leave at once, so that kills meet both writing and forwarding."""
    plan = collector.plan()
    yesterday = f"{collector.clock.now - timedelta(days=1):%Y-%m-%d}"
    chance, count = random.Random(1), 2300
    waiting = {
        number: records.seal(plan, yesterday, collector.batch(number, period=yesterday))
        for number in range(count)
    }
    folder, port, kills = tmp_path / "s", free_port(), 0
    command = [
        *(sys.executable, "-m", "hearsay_server", "shuffler", "serve", "--data", str(folder)),
        *("--listen", f"127.0.0.1:{port}", "--collector", collector.address),
        *("--collector-token", collector.token("shuffler"), "--check-seconds", "0.02"),
    ]
    while waiting or kills < 4:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None and process.stdout.readline()
            killer = threading.Timer(chance.uniform(0.05, 0.6), process.kill)
            killer.start()
            with contextlib.suppress(grpc.RpcError):
                hand_over(port, waiting, chance)
            killer.join()
        kills += 1
        for pool in pools.look(folder)[0]:  # all or none: what is missing there is on its way
            assert stored(collector) == 0 or stored(collector) + pool.leaving >= LEAST
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline()
        wait_until(lambda: pools.look(folder)[0][0].leaving == 0)
        process.terminate()
        assert process.wait(20) == 0
    (pool,) = pools.look(folder)[0]
    assert stored(collector) >= LEAST
    assert count <= stored(collector) + pool.gathering
    assert stored(collector) <= count


def test_a_commit_that_fails_ends_readiness_and_the_next_brings_it_back(
    collector: Sealed, tmp_path: Path
) -> None:
    first, second = collector.seal(collector.batch(1), collector.batch(2))
    health, port = health_pb2.HealthCheckRequest(), free_port()

    def metric() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        families = {each.name: each for each in parser.text_string_to_metric_families(text)}
        return families["hearsay_ready"].samples[0].value

    with (
        shuffling(tmp_path / "s", collector, metrics=str(port)) as shuffler,
        connected(shuffler.address) as channel,
    ):
        stub = health_pb2_grpc.HealthStub(channel)
        ready = health_pb2.HealthCheckResponse.SERVING
        assert (stub.Check(health, timeout=5).status, metric()) == (ready, 1)
        with closing(sqlite3.connect(tmp_path / "s" / "pools.db", timeout=10)) as connection:
            connection.execute("ALTER TABLE records RENAME TO elsewhere")
            with pytest.raises(grpc.RpcError) as failed:
                shuffler.submit(first)
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
            assert stub.Check(health, timeout=5).status != ready
            assert metric() == 0
            connection.execute("ALTER TABLE elsewhere RENAME TO records")
        assert statuses(shuffler.submit(first, second)) == {Result.STORED}
        assert (stub.Check(health, timeout=5).status, metric()) == (ready, 1)
