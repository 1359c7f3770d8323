"""Devices and a server that are killed at any moment: every event is reported exactly once."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from witness import FIRST_DAY, LEASE, Clock, Oracle

from support import Server


def _answers(file: Path) -> int:
    """Return how many answers a ledger knows of: everybody answers every day, one by one."""
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        accounts = [
            json.loads(a)["oracle"] for (a,) in connection.execute("SELECT account FROM accounts")
        ]
    connection.close()
    answers = 0
    for account in accounts:
        if account["period"] == "once":
            answers += bool(account["spent"])
        else:
            day = datetime.strptime(account["period"], "%Y-%m-%d").date() - FIRST_DAY.date()
            answers += day.days + bool(account["spent"])
    return answers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("oracle", "kills"),
    [
        (Oracle("once", 2000), 100),
        (Oracle("sampled", 800), 40),
        (Oracle("memoised", 800), 40),
    ],
    ids=["once", "sampled over days", "memoised over days"],
)
def test_killing_device_and_server_loses_nothing_and_repeats_nothing(
    server: Server, tmp_path: Path, oracle: Oracle, kills: int
) -> None:
    file, log = tmp_path / "ledger.db", tmp_path / "ledger.db.log"
    oracle.prepare(server, file)
    log.touch()
    chance = random.Random(5)
    script = str(Path(__file__).with_name("victim.py"))
    zygote = subprocess.Popen(
        [sys.executable, script, server.target, str(file), oracle.kind, str(oracle.events)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert zygote.stdin is not None
    assert zygote.stdout is not None

    def recorded() -> int:
        # The last one may have been recorded without a word: it is recorded again.
        with log.open("rb") as lines:
            lines.seek(max(0, log.stat().st_size - 10))
            return int(lines.read(10) or -1) + 1

    for kill in range(kills):
        first, last = recorded(), (kill + 1) * oracle.events // kills
        zygote.stdin.write(f"{first} {last}\n")
        zygote.stdin.flush()
        pid = int(zygote.stdout.readline())
        enough, deadline = chance.randint(first, last), time.monotonic() + 20
        while recorded() < enough:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.05))
        if kill % 20 == 10:
            server.stop(signal.SIGKILL)
            oracle.check_under_way(oracle.counts(server), _answers(file))
            time.sleep(0.02)
        os.kill(pid, signal.SIGKILL)
        assert zygote.stdout.readline() == "gone\n"
        if not server.is_running():
            server.start()
    zygote.stdin.close()
    zygote.wait(10)
    zygote.stdout.close()
    assert recorded() > oracle.events // 2  # the killing was in the middle of things
    clock = Clock(LEASE)
    clock.day = recorded() // oracle.persons
    with oracle.client(server.target, file, clock) as client:
        for event in range(recorded(), oracle.events):
            oracle.record(client, clock, event)
        assert client.flush(timeout=60)
    server.stop()
    oracle.check_all(oracle.counts(server))
    assert _answers(file) == oracle.events
