"""Threads and forks share one ledger."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from witness import Oracle

from hearsay import Reason, create_ledger
from support import Server, device, new_client


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["once", "sampled", "memoised"])
def test_eight_threads_and_forks_in_the_middle_report_every_event_once(
    server: Server, tmp_path: Path, kind: str
) -> None:
    oracle = Oracle(kind, 160)
    file = tmp_path / "ledger.db"
    oracle.prepare(server, file)
    script = str(Path(__file__).with_name("forker.py"))
    command = [sys.executable, script, server.target, str(file), kind, str(oracle.events)]
    subprocess.run(command, check=True, timeout=120)
    server.stop()
    oracle.check_all(oracle.counts(server))


@pytest.mark.slow
def test_forks_in_the_middle_of_calls_leave_children_that_send(
    server: Server, tmp_path: Path
) -> None:
    file, forks = tmp_path / "ledger.db", 150
    create_ledger(file)
    with new_client(server.target, "health", ledger=file) as client:
        assert client.wait_ready()
    script = str(Path(__file__).with_name("many_forks.py"))
    subprocess.run(
        [sys.executable, script, server.target, str(file), str(forks)], check=True, timeout=120
    )
    assert server.show("health").status.records == 5 * forks


def test_a_ledger_in_memory_stays_with_the_process_that_has_it(server: Server) -> None:
    client = device(server.target, "health", strict=False)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        recorded = client.record(smokes="no")
        said = f"{recorded.taken} {recorded.dropped} {client.status().reason}"
        os.write(write, said.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100).decode() == f"() {{'smokes': 'forked'}} {Reason.FORKED}"
    os.close(read)
    os.close(write)
    assert client.record(smokes="no").taken == ("smokes",)
    assert client.close()
    assert server.show("health").status.records == 1
