"""Several servers on one database: every batch counts once, whatever is killed meanwhile."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from postgres import Postgres

from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify
from support import Server

COUNT = 600
ORACLE = f"""
name = "oracle"
[levels]
only = 1.0
[[attributes]]
name = "which"
mechanism = "krr"
[attributes.categorical]
values = [{", ".join(f'"{number}"' for number in range(COUNT))}]
"""
DONE = (collector_pb2.Result.STORED, collector_pb2.Result.DUPLICATE)


def batch(number: int, revision: bytes) -> collector_pb2.Batch:
    """Return the one batch that says category `number`: every count must end as 1."""
    codes = number.to_bytes(2, "little")
    return collector_pb2.Batch(
        id=number.to_bytes(16, "big"),
        survey="oracle",
        revision=revision,
        period="once",
        rows=1,
        columns=[collector_pb2.Column(attribute="which", level="only", codes=codes)],
    )


def counts(where: Path | str) -> tuple[list[int], set[Verdict]]:
    store = Store(where)
    ((_, tally),) = store.tallies("oracle", "which").items()
    verdicts = {checked.verdict for checked in verify(store.database)}
    store.close()
    return tally.counts.tolist(), verdicts


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_three_servers_on_one_postgresql_count_each_batch_once_across_kills(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    with Postgres.temporary() as cluster:
        url = cluster.create()
        servers = [Server(tmp_path / str(n) / "data", "--database", url) for n in range(3)]
        for server in servers:
            server.folder.parent.mkdir()
            server.start()
        try:
            servers[0].create(ORACLE)
            revision = servers[1].show("oracle").status.revision  # which another one registered
            waiting = set(range(COUNT))
            acknowledged: set[int] = set()
            for round_ in range(60):
                channels = [server.channel() for server in servers if server.is_running()]
                stubs = [collector_pb2_grpc.CollectorStub(channel) for channel in channels]
                again = chance.sample(sorted(acknowledged), min(20, len(acknowledged)))
                mine = chance.sample(sorted(waiting), min(150, len(waiting))) + again
                calls = [  # most at two servers at once
                    (number, stub.Submit.future(_request(number, revision), timeout=20))
                    for number in mine
                    for stub in chance.sample(stubs, min(2, len(stubs)))
                ]
                if round_ < 4:
                    time.sleep(chance.uniform(0, 0.05))
                    _kill(chance.choice([*servers, cluster]))
                for number, call in calls:
                    if call.exception() is None and call.result().results[0].status in DONE:
                        acknowledged.add(number)
                waiting -= acknowledged
                for channel in channels:
                    channel.close()
                if not cluster.is_running():
                    cluster.start()
                for server in servers:
                    if not server.is_running():
                        server.start()
                kept, verdicts = counts(url)
                assert verdicts == {Verdict.EQUAL}
                assert set(kept) <= {0, 1}
                assert all(kept[number] for number in acknowledged)
                if not waiting:
                    break
            assert not waiting
            assert kept == [1] * COUNT
        finally:
            for server in servers:
                if server.is_running():
                    server.stop(signal.SIGKILL)


def _request(number: int, revision: bytes) -> collector_pb2.SubmitRequest:
    return collector_pb2.SubmitRequest(batches=[batch(number, revision)])


def _kill(victim: Server | Postgres) -> None:
    victim.stop(signal.SIGKILL if isinstance(victim, Server) else signal.SIGQUIT)


@pytest.mark.slow
def test_workers_share_a_port_and_a_folder(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--workers", "2")
    server.start()
    try:
        server.create(ORACLE)
        revision = server.show("oracle").status.revision
        for number in range(60):  # each on a connection of its own, which one of them gets
            with server.channel() as channel:
                stub = collector_pb2_grpc.CollectorStub(channel)
                for expected in ("STORED", "DUPLICATE"):
                    (result,) = stub.Submit(_request(number, revision), timeout=20).results
                    assert collector_pb2.Result.Status.Name(result.status) == expected
        assert server.stop() == 0
    finally:
        if server.is_running():
            server.stop(signal.SIGKILL)
    kept, verdicts = counts(tmp_path / "data")
    assert kept == [1] * 60 + [0] * (COUNT - 60)
    assert verdicts == {Verdict.EQUAL}


@pytest.mark.slow
def test_workers_end_together(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--workers", "2")
    server.start()
    if not Path("/proc/self/task").exists():
        server.stop()
        pytest.skip("only Linux tells a process's children")
    os.kill(server.children()[0], signal.SIGKILL)
    assert server.wait() == 1
    assert "a worker ended, and with it all: exit codes" in server.log
    with pytest.raises(grpc.RpcError), server.channel() as channel:
        collector_pb2_grpc.CollectorStub(channel).GetPlan(
            collector_pb2.GetPlanRequest(survey="oracle"), timeout=5
        )


@pytest.mark.slow
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", "--workers", "2")
    server.start()
    if not Path("/proc/self/task").exists():
        server.stop()
        pytest.skip("only Linux tells a process's children")
    workers = server.children()
    server.stop(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while any(is_running(worker) for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def is_running(process: int) -> bool:
    try:  # one that ended may wait for somebody to ask how
        return ") Z " not in Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False


def test_workers_do_not_take_a_port_that_is_in_use(server: Server, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hearsay_server", "serve", "--workers", "2"]
    command += ["--data", str(tmp_path / "other"), "--listen", server.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"cannot listen on {server.address}: is the port in use?" in done.stderr
