"""Several server processes on one port and one database, for the cores of one machine.

The kernel shares the connections out among them (SO_REUSEPORT). The parent only holds the port
and hands on signals. Where one of them ends, all do, for a supervisor to start afresh, and so
they do where the parent is killed: nothing that was acknowledged is lost by it.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hearsay_server.config import Config
from hearsay_server.storage.database import open_database
from ldp.errors import InvalidInput, ServerFailed

_WORKER = "_HEARSAY_WORKER"
"""A variable that is set for a worker, which ends when its standard input does."""

_HEARSAY = (sys.executable, "-m", "hearsay_server")


async def serve(
    config: Config,
    arguments: Sequence[str],
    on_start: Callable[[str], None],
    command: Sequence[str] = _HEARSAY,
) -> None:
    """Run `config.workers` processes of `COMMAND ARGUMENTS` until SIGTERM, SIGINT, or one ends.

    Calls `on_start` with the address once all answer. Raises `ServerFailed` where the address
    cannot be used or a process ended that was not told to, and as `open_database`.
    """
    open_database(config.where).close()  # made or upgraded by one, not by all at once
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    with _reserved(config.listen) as listen:
        workers = [
            await asyncio.create_subprocess_exec(
                *(*command, *arguments),
                *("--workers", "1", "--share-port", "--listen", listen),
                *("--metrics", _metrics(config.metrics, number)),
                stdin=PIPE,  # never written to: it ends with this process, however that ends
                stdout=PIPE,
                env={**os.environ, _WORKER: "1"},
            )
            for number in range(config.workers)
        ]
        tasks: set[asyncio.Task[Any]] = {asyncio.create_task(stop.wait())}
        tasks |= {asyncio.create_task(worker.wait()) for worker in workers}
        started = asyncio.create_task(_started(workers))
        try:
            await asyncio.wait({started, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            if started.done() and started.result():
                on_start(listen)
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (started, *tasks):
                task.cancel()
            for worker in workers:
                if worker.returncode is None:
                    worker.terminate()
            codes = await asyncio.gather(*(worker.wait() for worker in workers))
    if not stop.is_set():
        raise ServerFailed(f"a worker ended, and with it all: exit codes {codes}")


async def _started(workers: Sequence[Process]) -> bool:
    """Tell whether all workers said that they listen, rather than end."""
    lines = [await worker.stdout.readline() for worker in workers if worker.stdout is not None]
    return all(lines)


def watch_parent(orphaned: Callable[[], object]) -> None:
    """Where this process is a worker, call `orphaned` once its parent has ended."""
    if _WORKER not in os.environ:
        return
    loop, stdin = asyncio.get_running_loop(), sys.stdin.fileno()

    def ended() -> None:
        loop.remove_reader(stdin)
        orphaned()

    loop.add_reader(stdin, ended)


@contextlib.contextmanager
def _reserved(listen: str) -> Iterator[str]:
    """Hold "host:port" for those who share it; yield it with the port that 0 stood for."""
    host, _, port = listen.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        family, kind, _, _, address = found[0]
        with socket.socket(family, kind) as probe:  # which does not share
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            address = probe.getsockname()
        with socket.socket(family, kind) as held:
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            held.bind(address)
            yield f"{host}:{address[1]}"
    except (OSError, ValueError):
        raise ServerFailed(f"cannot listen on {listen}: is the port in use?") from None


def _metrics(address: str, number: int) -> str:
    """Return where a worker has its metrics: on the port of the first and those after it."""
    if not address:
        return ""
    host, colon, port = address.rpartition(":")
    if not port.isdigit() or port == "0":
        raise InvalidInput(f"workers need a port for their metrics, got {address!r}")
    return f"{host}{colon}{int(port) + number}"
