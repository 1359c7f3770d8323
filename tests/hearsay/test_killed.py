"""Devices and a server that are killed at any moment: every event is reported exactly once.

Every event has a category of its own, and at this epsilon a code is its category (but for a
chance of 1e-10): so a count of 2 is an event that was randomised or counted twice, and one of 0,
in the end, an event that was lost.
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hearsay import Client, create_ledger
from hearsay_server.store import Store
from support import Server

EVENTS, KILLS = 4000, 200

ORACLE = f"""
name = "oracle"
[levels]
open = 32.0
[[attributes]]
name = "which"
mechanism = "krr"
[attributes.categorical]
values = {[str(number) for number in range(EVENTS)]}
"""


def _counts(server: Server) -> list[int]:
    """Return how often each event was counted by a server that is down."""
    store = Store(server.folder)
    tallies = list(store.tallies("oracle", "which").values())
    store.close()
    return tallies[0].counts.tolist() if tallies else [0] * EVENTS


def _accounts(file: Path) -> int:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        (count,) = connection.execute("SELECT count(*) FROM accounts").fetchone()
    connection.close()
    return int(count)


@pytest.mark.slow
def test_killing_device_and_server_loses_nothing_and_repeats_nothing(
    server: Server, tmp_path: Path
) -> None:
    server.create(ORACLE)
    file, log = tmp_path / "ledger.db", tmp_path / "ledger.db.log"
    create_ledger(file)
    with Client(server.address, "oracle", level="open", ledger=file, consent=True) as client:
        assert client.ready()
    log.touch()
    chance = random.Random(5)
    zygote = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("victim.py")), server.address, str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert zygote.stdin is not None
    assert zygote.stdout is not None
    recorded = 0
    for kill in range(KILLS):
        done = [int(e) for e, _ in map(str.split, log.read_text().splitlines()) if e != "done"]
        recorded = max(done, default=-1) + 1
        # The last one may have been recorded without a word: it is recorded again.
        last = min(EVENTS, (kill + 1) * EVENTS // KILLS)
        zygote.stdin.write(f"{recorded} {last}\n")
        zygote.stdin.flush()
        pid = int(zygote.stdout.readline())
        time.sleep(chance.uniform(0.005, 0.12))
        if kill % 20 == 10:
            server.stop(signal.SIGKILL)
            counts = _counts(server)
            assert set(counts) <= {0, 1}
            assert sum(counts) <= _accounts(file)
            time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        assert zygote.stdout.readline() == "gone\n"
        if not server.is_running():
            server.start()
    done = [line.split() for line in log.read_text().splitlines()]
    recorded = max(int(event) for event, _ in done if event != "done") + 1
    zygote.stdin.close()
    zygote.wait(10)
    zygote.stdout.close()
    with Client(server.address, "oracle", level="open", ledger=file) as client:
        for event in range(recorded, EVENTS):
            client.person(str(event)).record(which=event)
        assert client.flush(timeout=60)
    server.stop()
    assert recorded > EVENTS // 2  # the killing was in the middle of things
    assert _counts(server) == [1] * EVENTS
    assert _accounts(file) == EVENTS
