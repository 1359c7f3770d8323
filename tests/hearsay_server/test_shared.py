"""Several servers on one database: every batch counts once, whatever is killed meanwhile."""

import contextlib
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from counted_once import COUNT, DONE, ORACLE, request
from postgres import Postgres
from stored import take_back

from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.storage.database import open_database
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify
from support import Server, free_port


def counts(where: Path | str) -> tuple[list[int], set[Verdict]]:
    store = Store(where)
    tallies = store.tallies("oracle", "which")
    verdicts = {checked.verdict for checked in verify(store.database)}
    store.close()
    return [count for tally in tallies.values() for count in tally.counts.tolist()], verdicts


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
                    (number, stub.Submit.future(request(number, revision), timeout=20))
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


def _kill(victim: Server | Postgres) -> None:
    victim.stop(signal.SIGKILL if isinstance(victim, Server) else signal.SIGQUIT)


def on_one_port(folder: Path, where: Path | str, metrics: Sequence[int] = (0, 0)) -> list[Server]:
    """Return a server for each of these ports of metrics; they share a store and a port."""
    place = ("--database", where) if isinstance(where, str) else ("--data", str(where))
    address = f"127.0.0.1:{free_port()}"
    servers = []
    for number, port in enumerate(metrics):
        (folder / str(number)).mkdir()
        data = folder / str(number) / "data"  # beside which its log is
        options = (*place, "--share-port", "--metrics", str(port))
        servers.append(Server(data, *options, address=address))
    return servers


@contextlib.contextmanager
def ended(servers: Sequence[Server]) -> Iterator[None]:
    """Kill what still runs of the servers at the end."""
    try:
        yield
    finally:
        for server in servers:
            if server.is_running():
                server.stop(signal.SIGKILL)


def start_at_once(servers: Sequence[Server]) -> None:
    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(Server.start, servers))


def arrived(port: int) -> int:
    """Return how many batches came to the server with metrics at `port`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        (count,) = re.findall(
            r"^hearsay_batches_received_total (\S+)$", answer.read().decode(), re.M
        )
    return int(float(count))


@pytest.mark.slow
def test_servers_share_a_port_and_a_store(tmp_path: Path, where: Path | str) -> None:
    metrics = [free_port(), free_port()]
    servers = on_one_port(tmp_path, where, metrics)
    with ended(servers):
        start_at_once(servers)
        servers[0].create(ORACLE)
        revision = servers[0].show("oracle").status.revision
        for number in range(60):  # each on a connection of its own, which one of them gets
            with servers[0].channel() as channel:
                stub = collector_pb2_grpc.CollectorStub(channel)
                for expected in ("STORED", "DUPLICATE"):
                    (result,) = stub.Submit(request(number, revision), timeout=20).results
                    assert collector_pb2.Result.Status.Name(result.status) == expected
        came = [arrived(port) for port in metrics]
        assert sum(came) == 120
        assert all(came), "the kernel gave all connections to one of them"
        assert [server.stop() for server in servers] == [0, 0]
    kept, verdicts = counts(where)
    assert kept == [1] * 60 + [0] * (COUNT - 60)
    assert verdicts == {Verdict.EQUAL}


@pytest.mark.slow
def test_a_server_that_is_killed_leaves_the_port_and_the_store_to_the_other(
    tmp_path: Path, where: Path | str
) -> None:
    servers = on_one_port(tmp_path, where)
    with ended(servers):
        start_at_once(servers)
        servers[0].create(ORACLE)
        revision = servers[0].show("oracle").status.revision
        acknowledged: set[int] = set()
        for killed in (None, servers[0], servers[1], None):
            with contextlib.ExitStack() as stack:
                # Many connections, for both servers to have some, and half of the batches twice.
                channels = [stack.enter_context(servers[0].channel()) for _ in range(8)]
                calls = [
                    (number, stub.Submit.future(request(number, revision), timeout=20))
                    for number in range(COUNT // 4)
                    for stub in map(
                        collector_pb2_grpc.CollectorStub,
                        (channels[number % 8], channels[(number + 3) % 8])[: 1 + number % 2],
                    )
                ]
                if killed is not None:
                    calls[0][1].exception()  # the first commit is done, or lost
                    killed.stop(signal.SIGKILL)
                for number, call in calls:
                    error = call.exception()
                    if error is None and call.result().results[0].status in DONE:
                        acknowledged.add(number)
                    else:
                        assert killed is not None, error
            if killed is not None:
                servers[0].wait_until_healthy()  # the other one answers on the same port
                killed.start()
            kept, verdicts = counts(where)
            assert verdicts == {Verdict.EQUAL}
            assert set(kept) <= {0, 1}
            assert all(kept[number] for number in acknowledged)
        assert acknowledged == set(range(COUNT // 4))


def test_servers_that_start_at_once_on_nothing_all_come_up(
    tmp_path: Path, where: Path | str
) -> None:
    servers = on_one_port(tmp_path, where, (0, 0, 0))
    with ended(servers):
        start_at_once(servers)
        servers[0].create(ORACLE)
        assert [server.stop() for server in servers] == [0, 0, 0]
    assert counts(where)[0] == []


@pytest.mark.slow
def test_servers_that_start_at_once_on_old_data_upgrade_it_once_and_all_come_up(
    tmp_path: Path, where: Path | str
) -> None:
    with contextlib.closing(open_database(where)) as database:
        take_back(database, 3)
    servers = on_one_port(tmp_path, where, (0, 0, 0))
    with ended(servers):
        start_at_once(servers)
        servers[0].create(ORACLE)
        assert [server.stop() for server in servers] == [0, 0, 0]
    assert sum(server.log.count("is of schema") for server in servers) == 1


@pytest.mark.slow
@pytest.mark.parametrize("sharing", [[], ["--share-port"]], ids=["alone", "sharing"])
def test_a_port_of_a_server_that_does_not_share_it_is_refused(
    server: Server, tmp_path: Path, sharing: list[str]
) -> None:
    command = [sys.executable, "-m", "hearsay_server", "serve", *sharing]
    command += ["--data", str(tmp_path / "other"), "--listen", server.address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"cannot listen on {server.address}: " in done.stderr


@pytest.mark.slow
def test_a_shared_port_is_refused_to_a_server_that_does_not_share(tmp_path: Path) -> None:
    first, second = on_one_port(tmp_path, tmp_path / "data")
    with ended([first]):
        first.start()
        command = [sys.executable, "-m", "hearsay_server", "serve"]
        command += ["--data", str(tmp_path / "other"), "--listen", second.address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert f"cannot listen on {second.address}:" in done.stderr
