"""Servers on one store, and the ways in which they and the store are brought down."""

import contextlib
import random
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import clocked
import psycopg
from postgres import Postgres

from support import Server, free_port

KEEP_DAYS = 30
LAG_DAYS = 1
"""How far the clocks of the servers are apart."""


@dataclass
class Deployment:
    """Servers that run, where their store is, and what can be done to them."""

    where: Path | str
    clock: Path
    servers: list[Server]
    cluster: Postgres | None = None
    faults: dict[str, Callable[[random.Random], None]] = field(default_factory=dict)

    def set_clock(self, now: datetime) -> None:
        """Set the clock that all servers go by."""
        clocked.write(self.clock, now)

    def mend(self) -> None:
        """Start what does not run."""
        if self.cluster is not None and not self.cluster.is_running():
            self.cluster.start()
        down = [server for server in self.servers if not server.is_running()]
        with ThreadPoolExecutor() as pool:
            list(pool.map(Server.start, down))

    def stop(self) -> None:
        """Stop all servers as an operator does, and wait until nothing of them goes on."""
        for server in self.servers:
            if server.is_running():
                _stop(server, signal.SIGTERM)
        if self.cluster is not None:
            _wait_until_idle(self.cluster)


@contextlib.contextmanager
def one_server(folder: Path) -> Iterator[Deployment]:
    """Serve SQLite from one process."""
    with _running(folder, folder / "0" / "data", 1) as deployment:
        yield deployment


@contextlib.contextmanager
def two_on_one_port(folder: Path) -> Iterator[Deployment]:
    """Serve SQLite from two processes that share a port and a folder."""
    data = folder / "0" / "data"
    options = ("--data", str(data), "--share-port")
    address = f"127.0.0.1:{free_port()}"
    with _running(folder, data, 2, *options, address=address) as deployment:
        yield deployment


@contextlib.contextmanager
def three_on_postgresql(folder: Path) -> Iterator[Deployment]:
    """Serve PostgreSQL from three processes."""
    with Postgres.temporary() as cluster:
        url = cluster.create()
        with _running(folder, url, 3, "--database", url) as deployment:
            deployment.cluster = cluster
            deployment.faults |= {
                "the database is killed": lambda chance: cluster.kill(),
                "the database is stopped": lambda chance: cluster.stop(signal.SIGINT),
                "sessions are cut": lambda chance: _cut_sessions(cluster),
            }
            yield deployment


@contextlib.contextmanager
def _running(
    folder: Path, where: Path | str, count: int, *options: str, address: str = ""
) -> Iterator[Deployment]:
    clock = folder / "clock"
    options = (*options, "--keep-batches-days", str(KEEP_DAYS))
    servers = []
    for number in range(count):
        (folder / str(number)).mkdir()
        command = (str(Path(clocked.__file__)), str(clock), str(number % (LAG_DAYS + 1)))
        data = folder / str(number) / "data"
        servers.append(Server(data, *options, command=command, address=address))
    deployment = Deployment(where, clock, servers)
    deployment.faults = {
        "a server is killed": lambda chance: _stop(chance.choice(servers), signal.SIGKILL),
        "a server is stopped": lambda chance: _stop(chance.choice(servers), signal.SIGTERM),
    }
    try:
        yield deployment
    finally:
        for server in servers:
            if server.is_running():
                server.stop(signal.SIGKILL)


def _stop(server: Server, how: signal.Signals) -> None:
    code = server.stop(how)
    assert code == (0 if how == signal.SIGTERM else -how), server.log[-3000:]


def _cut_sessions(cluster: Postgres) -> None:
    with psycopg.connect(cluster.url("postgres"), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )


def _wait_until_idle(cluster: Postgres) -> None:
    """Wait until no session is left: some may outlast the process that they were of."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    deadline = time.monotonic() + 30
    with psycopg.connect(cluster.url("postgres"), autocommit=True) as connection:
        while connection.execute(query).fetchone() != (1,):
            assert time.monotonic() < deadline, "sessions are left"
            time.sleep(0.05)
