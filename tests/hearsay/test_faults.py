"""The disk and the server at their worst: nothing raises, and nothing is lost in silence."""

import contextlib
import dataclasses
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from disks import SmallDisk
from moody import QUICK, Moody
from people import person

from hearsay import Delivery, FileAnchor, Reason
from hearsay.v1 import collector_pb2
from support import DAILY, Calendar, Server, device, new_client, wait_until


def test_a_full_disk_drops_answers_and_recovers(server: Server, small_disk: SmallDisk) -> None:
    file = small_disk.ledger()
    with device(server.target, "health", ledger=file, delivery=QUICK) as client:
        people = [person(client, str(number)) for number in range(100)]
        first, last = person(client, "first"), person(client, "last")
        assert first.record(smokes="no").taken == ("smokes",)
        server.stop()  # nothing leaves, so nothing makes room
        small_disk.fill()
        taken = 0
        while people.pop().record(smokes="no"):
            taken += 1
        assert client.counters["disk"] == 1
        small_disk.empty()
        assert last.record(smokes="no").taken == ("smokes",)
        assert client.status().ready
        recorded = client.counters["recorded"]
        assert recorded == taken + 2
        server.start()
        assert client.flush(timeout=20)
    assert server.show("health").status.records == recorded


def test_many_people_record_on_a_small_disk(server: Server, small_disk: SmallDisk) -> None:
    file = small_disk.ledger()
    with device(server.target, "health", ledger=file, delivery=QUICK) as client:
        server.stop()
        for number in range(80):
            assert person(client, str(number)).record(smokes="no")
        server.start()
        assert client.flush(timeout=20)
    assert server.show("health").status.records == 80


@pytest.mark.parametrize("anchored", [False, True])
def test_what_is_in_a_batch_leaves_from_a_full_disk(
    server: Server, tmp_path: Path, small_disk: SmallDisk, anchored: bool
) -> None:
    file = small_disk.ledger()
    anchor = FileAnchor(tmp_path / "anchor") if anchored else None
    with device(server.target, "health", ledger=file, delivery=QUICK, anchor=anchor) as client:
        server.stop()
        assert client.record(smokes="no")
        assert not client.flush(timeout=0.2)
        (batch,) = client.outbox().batches
        pause = object()
        client._device.sender.pause(pause, 5.0)  # what it was about to send is given back
        small_disk.fill_log(file)
        server.start()
        client._device.sender.resume(pause)
        wait_until(lambda: server.show("health").status.records == 1)
        small_disk.empty()
        assert client.flush(timeout=20)
        (sent,) = client.outbox().sent
        assert sent.batch == batch
    assert server.show("health").status.records == 1  # however often it went


@pytest.mark.slow
def test_a_read_only_disk_takes_nothing_and_raises_nothing(
    server: Server, small_disk: SmallDisk
) -> None:
    file = small_disk.ledger()
    with device(server.target, "health", ledger=file):
        pass
    small_disk.make_read_only()
    for ledger in (file, small_disk.folder / "new.db"):
        with new_client(server.target, "health", ledger=ledger) as client:
            assert client.record(smokes="no").taken == ()
            assert client.status().reason is Reason.DISK
            assert client.counters["disk"] == 1
            client.close(0)


def test_a_folder_that_is_none_takes_nothing_and_raises_nothing(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    file = tmp_path / "file" / "ledger.db"
    with new_client(server.target, "health", ledger=file) as client:
        assert client.record(smokes="no").taken == ()
        assert client.status().reason is Reason.DISK
        client.close(0)


def test_what_the_queue_does_not_hold_is_dropped_oldest_first(server: Server, file: Path) -> None:
    server.create(DAILY)
    calendar = Calendar(-30)
    few = Delivery(max_reports=5, first_wait=0.05, longest_wait=0.1, batch_age=0.05)
    with device(server.target, "daily", ledger=file, clock=calendar, delivery=few) as client:
        server.stop()
        for _ in range(20):
            assert client.record(smokes="no").taken == ("smokes",)
            calendar.pass_days(1)
        waiting = client.outbox()
        assert len(waiting.reports) + sum(b.rows for b in waiting.batches) == 5
        assert client.counters["overflow"] == 15
        server.start()
        assert client.flush(timeout=20)
        periods = sorted(s.batch.period for s in client.outbox().sent)
        days = [calendar.now.date().toordinal() - ago for ago in (5, 4, 3, 2, 1)]
        assert periods == [type(calendar.now).fromordinal(day).strftime("%Y-%m-%d") for day in days]
    assert server.show("daily").status.records == 5


def test_the_queue_is_bounded_in_bytes_too(server: Server) -> None:
    small = Delivery(max_bytes=1000)
    client = device(server.target, "health", delivery=small)
    server.stop()
    for number in range(40):
        person(client, str(number)).record(smokes="no")
    waiting = client.outbox()
    assert sum(b.ByteSize() for b in (*waiting.reports, *waiting.batches)) <= 1000
    assert client.counters["overflow"] > 0
    client.close(0)


def test_the_servers_retry_delay_is_honoured(moody: tuple[Moody, str]) -> None:
    servicer, address = moody
    servicer.answers = ["exhausted", "exhausted"]
    with device(address, "health", delivery=QUICK) as client:
        client.record(smokes="no")
        wait_until(lambda: client.counters.get("stored"))
    first, second, third = servicer.calls
    assert second - first >= 0.4
    assert third - second >= 0.4


def test_a_batch_leaves_by_itself_when_it_is_old_or_full(moody: tuple[Moody, str]) -> None:
    servicer, address = moody
    with device(address, "health", delivery=QUICK) as client:
        client.record(smokes="no")
        wait_until(lambda: client.counters.get("stored") == 1)
    full = Delivery(batch_rows=3, batch_age=3600.0)
    with device(address, "health", delivery=full) as client:
        for number in range(3):
            person(client, str(number)).record(smokes="no")
        wait_until(lambda: client.counters.get("stored") == 1)
        assert client.outbox().sent[0].batch.rows == 3
        person(client, "later").record(smokes="no")
        time.sleep(0.1)
        assert len(client.outbox().reports) == 1
    assert len(servicer.calls) == 3


def test_an_app_token_travels_with_every_call(moody: tuple[Moody, str]) -> None:
    servicer, address = moody
    tokens = iter(["plan", "one", "two", "three"])
    with device(address, "health", token=lambda: next(tokens)) as client:
        client.record(smokes="no")
        assert client.flush()
    assert servicer.tokens == ["Bearer one"]


def test_batches_under_way_are_forgotten_when_consent_is_revoked(
    moody: tuple[Moody, str],
) -> None:
    servicer, address = moody
    servicer.answers = ["hang"] * 50
    with device(address, "health", delivery=QUICK) as client:
        client.record(smokes="no")
        wait_until(lambda: servicer.calls)
        (batch,) = client.outbox().batches
        client.revoke(forget=True)
        assert not client.outbox()
        wait_until(lambda: servicer.forgotten)
        assert servicer.forgotten == [batch.id]
        calls = len(servicer.calls)
        client.flush()
        assert len(servicer.calls) == calls


@pytest.mark.slow
def test_batches_dropped_while_under_way_can_be_forgotten_too(moody: tuple[Moody, str]) -> None:
    servicer, address = moody
    servicer.answers = ["hang"] * 50
    one = dataclasses.replace(QUICK, max_reports=1)
    with device(address, "health", delivery=one) as client:
        ann = person(client, "ann")
        ann.record(smokes="no")
        wait_until(lambda: servicer.calls)
        (first,) = client.outbox().batches
        person(client, "bob").record(smokes="no")
        assert client.counters["overflow"] == 1
        (sent,) = client.outbox().sent
        assert (sent.became, sent.batch) == ("overflow", first)
        assert not servicer.forgotten
        ann.revoke(forget=True)
        wait_until(lambda: servicer.forgotten)
        assert first.id in servicer.forgotten
        client.close(0)


def test_a_closed_period_is_counted_by_name(moody: tuple[Moody, str]) -> None:
    servicer, address = moody
    closed = collector_pb2.Result(
        status=collector_pb2.Result.REFUSED, reason=collector_pb2.PERIOD_CLOSED, detail="over"
    )
    servicer.answers = [closed]
    with device(address, "health") as client:
        client.record(smokes="no")
        assert client.flush()
        assert client.counters == {"recorded": 1, "period_closed": 1}


def test_a_plan_that_is_garbage_is_refused(moody: tuple[Moody, str]) -> None:
    servicer, address = moody
    servicer.plan = b"\xff\xfe garbage"
    with new_client(address, "health") as client:
        assert not client.wait_ready()
        assert client.status().reason is Reason.PLAN_REFUSED
        assert "no plan" in client.status().detail
        assert client.record(smokes="no").taken == ()
        assert client.counters["plan_refused"] == 1


def test_the_exit_of_the_process_is_bounded_and_loses_nothing(server: Server, file: Path) -> None:
    server.wait_until_healthy()
    code = f"""
import time
from hearsay import MEMORY, Client, Delivery
client = Client({server.target!r}, "health", level="strict", epsilon=64.0,
                ledger={str(file)!r}, consent=True, delivery=Delivery(batch_age=3600.0))
assert client.wait_ready()
client.record(smokes="no")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    assert server.show("health").status.records == 1  # flushed at exit
    server.stop()
    code = code.replace("assert client.wait_ready()", "client.wait_ready()").replace(
        'client.record(smokes="no")',
        'second = client.person("second", level="strict"); second.grant(); '
        'assert second.record(smokes="no"); print(time.monotonic())',
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, timeout=30, capture_output=True, text=True
    )
    assert time.monotonic() - float(done.stdout) < 10
    server.start()
    with new_client(server.target, "health", ledger=file, consent=False) as client:
        assert client.flush(timeout=20)
    assert server.show("health").status.records == 2


def test_nothing_leaves_before_what_was_spent_is_on_the_disk(
    moody: tuple[Moody, str], tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servicer, address = moody
    synced: list[str] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        real(descriptor)
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))

    def leave(batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        # The main file by itself, as a backup of the one file has it.
        with contextlib.closing(
            sqlite3.connect(f"{file.as_uri()}?immutable=1", uri=True)
        ) as connection:
            accounts = connection.execute("SELECT account FROM accounts").fetchall()
            batches = connection.execute("SELECT id FROM batches").fetchall()
        left.append((json.loads(accounts[0][0])["health"]["spent"], batches == [(batch.id,)]))
        syncs.append(list(synced))
        return submit(batch, timeout)

    monkeypatch.setattr(os, "fsync", fsync)
    left: list[tuple[dict[str, str], bool]] = []
    syncs: list[list[str]] = []
    with device(address, "health", ledger=file) as client:
        submit = client._transport.submit
        monkeypatch.setattr(client._transport, "submit", leave)
        assert str(tmp_path) in synced  # the folder, in which the log is new
        for answers, calls in (({"smokes": "no"}, 1), ({"age": 30}, 2)):
            synced.clear()
            client.record(**answers)
            assert client.flush()
            assert syncs[-1] == [f"{file}-wal"]
            assert len(servicer.calls) == calls
    assert [(set(spent), is_kept) for spent, is_kept in left] == [
        ({"smokes"}, True),
        ({"smokes", "age"}, True),
    ]


def test_revoking_ends_the_call_under_way(moody: tuple[Moody, str]) -> None:
    servicer, address = moody
    servicer.answers = ["hang long"]
    patient = Delivery(batch_age=0.01, timeout=20.0)
    with device(address, "health", delivery=patient) as client:
        client.record(smokes="no")
        wait_until(lambda: servicer.calls)
        begin = time.monotonic()
        client.revoke()
        assert time.monotonic() - begin < 3
        (sent,) = client.outbox().sent
        assert sent.became == "revoked"  # it may have reached the server
    servicer.patience.set()


@pytest.mark.parametrize("delay", ["9" * 400, "-1", "soon", "1.5"])
def test_a_retry_delay_that_is_none_is_not_believed(moody: tuple[Moody, str], delay: str) -> None:
    servicer, address = moody
    servicer.answers = ["exhausted"]
    servicer.delay = delay
    with device(address, "health", delivery=QUICK) as client:
        client.record(smokes="no")
        assert client.flush(timeout=10)


def test_what_the_app_brings_along_does_not_raise_out_of_flush(moody: tuple[Moody, str]) -> None:
    _, address = moody
    broken = [False]

    def token() -> str:
        if broken[0]:
            raise KeyError("the secret is not there")
        return "secret"

    with device(address, "health", token=token, strict=False) as client:
        broken[0] = True
        assert client.record(smokes=Unhashable("no")).invalid == ("smokes",)
        assert client.counters == {"recorded": 1, "invalid": 1}
        assert client.record(age=30).taken == ("age",)
        assert not client.flush(timeout=0.3)
        broken[0] = False
        assert client.flush()


class Unhashable(str):
    __hash__ = None  # type: ignore[assignment]


def test_the_log_does_not_grow_while_the_server_is_away(server: Server, file: Path) -> None:
    few = Delivery(max_reports=50, first_wait=0.05, longest_wait=0.1)
    with device(server.target, "health", ledger=file, delivery=few) as client:
        server.stop()
        longest = 0
        people = [person(client, str(number)) for number in range(100)]
        for _ in range(30):
            for somebody in people:
                somebody.record(smokes="no", age=30)
            longest = max(longest, Path(f"{file}-wal").stat().st_size)
        for somebody in people:
            somebody.revoke()
    assert longest < 8 << 20


def test_a_flush_ends_in_time_even_if_the_plan_is_due(moody: tuple[Moody, str]) -> None:
    servicer, address = moody
    old = Delivery(plan_age=0.001, timeout=20.0)
    with device(address, "health", delivery=old) as client:
        client.record(smokes="no")
        servicer.slow_plan = True
        begin = time.monotonic()
        client.flush(timeout=0.3)
        assert time.monotonic() - begin < 5
        servicer.slow_plan = False
        servicer.patience.set()
        client.flush()


def test_one_surveys_queue_does_not_drop_anothers_reports(server: Server, file: Path) -> None:
    server.create(DAILY)
    never = Delivery(batch_age=3600.0)
    few = Delivery(batch_age=3600.0, max_reports=2)
    with (
        device(server.target, "health", ledger=file, delivery=never) as one,
        device(server.target, "daily", ledger=file, delivery=few) as other,
    ):
        for number in range(5):
            person(one, str(number)).record(smokes="no")
            person(other, str(number)).record(smokes="no")
        assert len(one.outbox().reports) == 5
        assert len(other.outbox().reports) == 2
        assert other.counters["overflow"] == 3
        assert "overflow" not in one.counters
