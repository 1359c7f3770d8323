"""The disk fails to write and forgets about it, then the power fails: what was sent stays spent."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from people import person

from hearsay import Reason
from hearsay.recording import outbox
from hearsay.storage.store import Store
from hearsay.storage.wal import intact
from hearsay.trouble import Trouble
from support import Server, device, new_client

PHASE = """
import os, sys
from pathlib import Path
from hearsay import Client, Delivery, create_ledger
address, folder, persons, failing = sys.argv[1:]
marker, ledger = Path(folder, "failing"), Path(folder, "ledger.db")
if not ledger.exists():
    create_ledger(ledger)
client = Client(address, "health", level="strict", epsilon=64.0, ledger=ledger, consent=True,
                delivery=Delivery(batch_age=3600.0))
assert client.wait_ready()
for name in persons.split():
    person = client.person(name, level="strict")
    person.grant()
    assert person.record(smokes="no").taken == ("smokes",)
if failing != "never":
    marker.touch()
    assert not client.flush(0.3)
    marker.unlink()
if failing != "last":
    assert client.flush(60.0)  # one that died while it sent has its batches for 30 seconds
os._exit(0)  # the power fails: what is not on the disk is gone
"""
"""A device that records and flushes: without a fault, with one that passes, or with one at its
end."""


@pytest.fixture(scope="module")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library for `LD_PRELOAD`, through which a disk forgets what it failed to write."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a C compiler and Linux are needed to put a failing disk under SQLite")
    library = tmp_path_factory.mktemp("shim") / "fickle_disk.so"
    source = Path(__file__).with_name("fickle_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.parametrize(
    "phases",
    [
        [("ann", "never"), ("bob", "passes")],
        [("ann bob", "last"), ("carl", "last"), ("", "never")],
    ],
    ids=["the same process sends", "the next one sends"],
)
def test_what_was_sent_is_spent_after_a_failed_sync_and_a_power_cut(
    server: Server, tmp_path: Path, shim: Path, phases: list[tuple[str, str]]
) -> None:
    folder, disk = tmp_path / "cache", tmp_path / "disk"
    folder.mkdir()
    disk.mkdir()
    fickle = {"FICKLE_FOLDER": str(folder), "FICKLE_DISK": str(disk), "LD_PRELOAD": str(shim)}
    for persons, failing in phases:
        command = [sys.executable, "-c", PHASE, server.target, str(folder), persons, failing]
        subprocess.run(command, check=True, env={**os.environ, **fickle})
    everybody = " ".join(persons for persons, _ in phases).split()
    assert server.show("health").status.records == len(everybody)
    client = device(server.target, "health", ledger=disk / "ledger.db")
    for name in everybody:
        assert person(client, name).record(smokes="no").taken == ()
    assert client.counters["spent"] == len(everybody)
    client.close(0)


class FickleDisk:
    """A disk that fails to sync while it is broken, and then may have what it had before.

    As btrfs does: what could not be written reads as it was. Injected, at `os.fsync`.
    """

    is_broken = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._sync = os.fsync
        monkeypatch.setattr(os, "fsync", self._fsync)

    def _fsync(self, descriptor: int) -> None:
        if self.is_broken:
            raise OSError(5, "injected")
        self._sync(descriptor)

    def go_back(self, log: Path, kept: bytes) -> None:
        """Let a log, as it is open, read as it was before."""
        assert log.read_bytes() != kept
        with log.open("r+b") as file:
            file.write(kept)
            file.write(bytes(log.stat().st_size - len(kept)))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FickleDisk:
    """The disk of this test, which is not broken yet."""
    return FickleDisk(monkeypatch)


def test_a_log_that_the_disk_went_back_on_is_set_aside_and_nothing_of_it_leaves(
    server: Server, tmp_path: Path, file: Path, disk: FickleDisk
) -> None:
    client = device(server.target, "health", ledger=file)
    person(client, "ann").record(smokes="no")
    assert client.flush()
    log = Path(f"{file}-wal")
    kept = log.read_bytes()
    disk.is_broken = True
    person(client, "bob").record(smokes="no")
    assert not client.flush(0.3)
    client._device.sender.pause(object(), 5.0)  # so that nobody else finds out
    assert client._device.sender.is_quiet
    disk.is_broken = False
    disk.go_back(log, kept)
    with pytest.raises(Trouble, match="the disk lost a part of the ledger's log") as found:
        outbox.lease(client._device.store, "health", time.time())
    assert found.value.status.reason is Reason.CORRUPT
    client.close(0)
    assert len(list(tmp_path.glob("ledger.db.corrupt-*"))) >= 1
    with new_client(server.target, "health", ledger=file) as again:
        assert not again.wait_ready(2.0)
        assert again.status().reason is Reason.LOST_LEDGER
        assert person(again, "ann").record(smokes="no").taken == ()
    assert server.show("health").status.records == 1


def test_a_store_writes_its_log_again_after_a_failed_sync_or_sets_it_aside(
    tmp_path: Path, file: Path, disk: FickleDisk
) -> None:
    store = Store(file, lambda: datetime(2026, 7, 4, tzinfo=UTC))

    def add(name: str) -> None:
        store.write(lambda c: c.execute("INSERT INTO counters VALUES ('s', ?, 1)", (name,)))
        store.secure()

    add("before")
    store.secure()
    disk.is_broken = True
    for call in (lambda: add("during"), store.secure):
        with pytest.raises(Trouble, match="the disk did not take the ledger's log") as found:
            call()
        assert found.value.status.reason is Reason.DISK
    disk.is_broken = False
    add("after")
    log = Path(f"{file}-wal")
    kept = log.read_bytes()
    disk.is_broken = True
    with pytest.raises(Trouble):
        add("lost")
    disk.is_broken = False
    disk.go_back(log, kept)
    with pytest.raises(Trouble, match="the disk lost a part of the ledger's log") as found:
        store.secure()
    assert found.value.status.reason is Reason.CORRUPT
    assert len(list(tmp_path.glob("ledger.db.corrupt-*"))) >= 1
    assert store.read(lambda c: c.execute("SELECT * FROM counters").fetchall()) == []
    assert store.created is not None


def test_a_log_is_intact_up_to_what_was_damaged(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "some.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE texts (text)")
    file = tmp_path / "some.db-wal"
    ends = [file.stat().st_size]
    for number in range(5):
        connection.execute("INSERT INTO texts VALUES (?)", (str(number) * 6000,))
        ends.append(file.stat().st_size)
    log = file.read_bytes()
    connection.close()
    assert intact(log) == len(log) == ends[-1]
    chance = random.Random(1)
    for position in [0, 5, 31, *(chance.randrange(32, len(log)) for _ in range(30))]:
        damaged = bytearray(log)
        damaged[position] ^= 1 << chance.randrange(8)
        assert intact(bytes(damaged)) == max((e for e in ends if 32 <= position >= e), default=0)
    for length in (0, 20, 32, 1000, ends[2], ends[3] - 1):
        assert intact(log[:length]) == max((e for e in ends if e <= length), default=0)
