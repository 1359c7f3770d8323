"""What `docs/sizing.py` needs and no other benchmark has: connections, and PostgreSQL.

    python tests/benchmarks/sizing_costs.py [--smoke]

The servers are processes of their own; this one plays the devices, and all share the machine. Costs
are in processor time, which depends less than rates on what else the machine does.
"""

import argparse
import asyncio
import contextlib
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import psycopg
import pytest
from traffic import MANY, Process, Request, free_port, load, one_row, register, started, used

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("", "hearsay_server", "deploy")]

from certificates import Authority  # noqa: E402
from postgres import Postgres  # noqa: E402
from proxied import in_front, nginx  # noqa: E402

from hearsay.v1 import collector_pb2, collector_pb2_grpc  # noqa: E402

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""With which a client of HTTP/2 begins: the preface, and settings that change nothing."""


def show(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


@contextlib.contextmanager
def serving(*flags: str) -> Iterator[Process]:
    """Run `hearsay serve` with these flags."""
    address = f"127.0.0.1:{free_port()}"
    command = ["-m", "hearsay_server", "serve", "--log-level", "error", "--listen", address, *MANY]
    with started(*command, *flags) as pid:
        yield Process(pid, address)


def cost(
    server: Process, make: Callable[[], Request], authority: Path | None, calls: int, each: int
) -> float:
    """Return the server's CPU seconds of a call of one report, with `each` calls a connection.

    One call is under way at a time, so that each has a commit of its own.
    """
    credentials = authority and grpc.ssl_channel_credentials(authority.read_bytes())
    target = f"localhost:{server.address.rpartition(':')[2]}"
    options = [("grpc.use_local_subchannel_pool", 1)]
    before = server.cpu()
    for _ in range(calls // each):
        opened = (
            grpc.secure_channel(target, credentials, options)
            if credentials
            else grpc.insecure_channel(target, options)
        )
        with opened as channel:
            stub = collector_pb2_grpc.CollectorStub(channel)
            for _ in range(each):
                (result,) = stub.Submit(make(), timeout=60).results
                assert result.status == collector_pb2.Result.STORED
    return (server.cpu() - before) / calls


def held(server: Process, authority: Path | None, count: int) -> float:
    """Return the server's memory for a connection that is idle, in KB."""
    before, port = server.resident(), int(server.address.rpartition(":")[2])
    context = ssl.create_default_context(cafile=authority) if authority else None
    if context:
        context.set_alpn_protocols(["h2"])
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            if context:
                link = stack.enter_context(context.wrap_socket(link, server_hostname="localhost"))
            link.sendall(PREFACE)
            assert link.recv(1)
        time.sleep(1)
        return 1e3 * (server.resident() - before) / count


def connections(folder: Path, count: int) -> None:
    """Print what connections cost the server, and nginx before it."""
    authority = Authority(folder)
    authority.issue(folder / "server.pem", folder / "server.key")
    files = ["--tls-certificate", str(folder / "server.pem")]
    files += ["--tls-key", str(folder / "server.key")]
    show("one call at a time, CPU us a call     kept connection   new one each   KB of an idle one")
    for name, flags, file in (("TLS", files, authority.file), ("no TLS", [], None)):
        data = folder / name
        with serving("--data", str(data)) as plain:
            make = one_row(register(plain))
        with serving("--data", str(data), *flags) as server:
            cost(server, make, file, count // 10, 1)
            kept, new = (cost(server, make, file, count, each) for each in (count, 1))
            row(name, kept, new, held(server, file, count))
            if not flags and found():
                before_nginx(folder / "nginx", server, make, count)


def before_nginx(folder: Path, server: Process, make: Callable[[], Request], count: int) -> None:
    """Print what nginx with TLS costs, and the server behind it."""
    wide = {"rate=50r/s": "rate=100000r/s", "burst=200": "burst=100000"}
    proxy = in_front(folder, server.address, **wide)
    with proxy.running() as pid:
        front = Process(pid, proxy.address)
        results = []
        for each in (count, 1):
            before = server.cpu()
            nginx = cost(front, make, proxy.authority.file, count, each)
            results.append((nginx, (server.cpu() - before) / count))
        memory = held(front, proxy.authority.file, min(count, 400))
    for name, values in zip(
        ("nginx, TLS", "the server behind it"), zip(*results, strict=True), strict=True
    ):
        row(name, *values, memory if name.startswith("nginx") else 0.0)


def row(name: str, kept: float, new: float, memory: float) -> None:
    show(f"{name:38}{1e6 * kept:15.0f}{1e6 * new:15.0f}{memory:20.1f}")


def found() -> bool:
    """Tell whether there is an nginx here."""
    try:
        nginx()
    except pytest.skip.Exception:
        return False
    return True


def on_postgresql(seconds: float, servers: int, calls: int) -> None:
    """Print what calls of one report cost servers that share a PostgreSQL which syncs.

    `calls` are under way at once, over all servers.
    """
    settings = {"fsync": "on", "shared_buffers": "128MB", "max_connections": "200"}
    with Postgres.temporary(**settings) as cluster, contextlib.ExitStack() as stack:
        url = cluster.create()
        running = [stack.enter_context(serving("--database", url)) for _ in range(servers)]
        make = one_row(register(running[0]))

        async def loaded(turn: float) -> list[int]:
            each = calls // servers
            loads = [load(server, make, seconds=turn, calls=each) for server in running]
            return [one.calls for one in await asyncio.gather(*loads)]

        link = stack.enter_context(psycopg.connect(url, autocommit=True))

        def looked() -> tuple[float, float, float, int]:
            query = "SELECT pg_current_wal_lsn() - '0/0', pg_database_size(current_database())"
            found = link.execute(query).fetchone()
            assert found
            return (
                used(cluster.processes()),
                sum(server.cpu() for server in running),
                float(found[0]),
                int(found[1]),
            )

        asyncio.run(loaded(seconds / 4))
        before, begin = looked(), time.perf_counter()
        done = sum(asyncio.run(loaded(seconds)))
        taken, after = time.perf_counter() - begin, looked()
        theirs, ours, log, size = ((b - a) / done for a, b in zip(before, after, strict=True))
    show(
        f"{servers} on PostgreSQL, {calls:3} under way: {done / taken:6.0f} calls/s   "
        f"servers {1e6 * ours:5.0f} us   database {1e6 * theirs:5.0f} us   "
        f"log {log:6.0f} bytes   kept {size:5.0f} bytes a call"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a second of each, for a test")
    smoke = parser.parse_args().smoke
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        connections(Path(folder).resolve(), 10 if smoke else 1000)
    for servers, calls in ((1, 1), (1, 16), (1, 512), (2, 512)):
        on_postgresql(1.0 if smoke else 10.0, servers, calls)


if __name__ == "__main__":
    main()
