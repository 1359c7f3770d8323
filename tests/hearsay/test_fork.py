"""Threads and forks share one ledger."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hearsay import Client, Reason, create_ledger
from hearsay_server.store import Store
from support import Server, device

EVENTS = 150


@pytest.mark.slow
def test_eight_threads_and_forks_in_the_middle_report_every_event_once(
    server: Server, tmp_path: Path
) -> None:
    values = [str(number) for number in range(EVENTS)]
    server.create(
        'name = "oracle"\n[levels]\nopen = 32.0\n[[attributes]]\nname = "which"\n'
        f'mechanism = "krr"\n[attributes.categorical]\nvalues = {values}\n'
    )
    file = tmp_path / "ledger.db"
    create_ledger(file)
    with Client(server.address, "oracle", level="open", ledger=file, consent=True) as client:
        assert client.ready()
    script = str(Path(__file__).with_name("forker.py"))
    subprocess.run(
        [sys.executable, script, server.address, str(file), str(EVENTS)], check=True, timeout=120
    )
    with Client(server.address, "oracle", level="open", ledger=file) as client:
        for event in range(EVENTS):  # what every process found locked
            client.person(str(event)).record(which=event)
        assert client.flush()
    server.stop()
    store = Store(server.folder)
    ((_, tally),) = store.tallies("oracle", "which").items()
    store.close()
    assert tally.counts.tolist() == [1] * EVENTS


@pytest.mark.slow
def test_forks_in_the_middle_of_calls_leave_children_that_send(
    server: Server, tmp_path: Path
) -> None:
    file, forks = tmp_path / "ledger.db", 150
    create_ledger(file)
    with Client(server.address, "health", level="strict", ledger=file, consent=True) as client:
        assert client.ready()
    script = str(Path(__file__).with_name("many_forks.py"))
    subprocess.run(
        [sys.executable, script, server.address, str(file), str(forks)], check=True, timeout=120
    )
    assert server.show("health").status.records == 5 * forks


def test_a_ledger_in_memory_stays_with_the_process_that_has_it(server: Server) -> None:
    client = device(server.address, "health", level="strict", strict=False)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        taken = client.record(smokes="no")
        os.write(write, f"{taken} {client.status().reason}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100).decode() == f"() {Reason.FORKED}"
    os.close(read)
    os.close(write)
    assert client.record(smokes="no") == ("smokes",)
    assert client.close()
    assert server.show("health").status.records == 1
