"""Servers on one store, and the ways in which they and the store are brought down."""

import contextlib
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import clocked
import psycopg
from postgres import Postgres

from support import Server

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
            list(pool.map(_start, down))

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
def two_workers(folder: Path) -> Iterator[Deployment]:
    """Serve SQLite from two workers on one port."""
    with _running(folder, folder / "0" / "data", 1, "--workers", "2") as deployment:
        deployment.faults["a worker is killed"] = lambda chance: _kill_a_worker(deployment, chance)
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
def _running(folder: Path, where: Path | str, count: int, *options: str) -> Iterator[Deployment]:
    clock = folder / "clock"
    options = (*options, "--keep-batches-days", str(KEEP_DAYS))
    servers = []
    for number in range(count):
        (folder / str(number)).mkdir()
        command = (str(Path(clocked.__file__)), str(clock), str(number % (LAG_DAYS + 1)))
        servers.append(Server(folder / str(number) / "data", *options, command=command))
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


def _kill_a_worker(deployment: Deployment, chance: random.Random) -> None:
    (server,) = deployment.servers
    os.kill(chance.choice(server.children()), signal.SIGKILL)
    assert server.wait() == 1  # all end, for a supervisor to start them afresh


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


def _start(server: Server) -> None:
    _wait_until_free(server.address)
    server.start()


def _wait_until_free(address: str) -> None:
    """Wait until nobody listens on a port any more: workers end soon after their parent."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except ConnectionRefusedError:
            return
        time.sleep(0.05)
    raise AssertionError(f"somebody still listens on {address}")
