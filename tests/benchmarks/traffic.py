"""Servers in processes of their own, and the calls that benchmarks keep under way to them."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np

import hearsay.plans.plan
from hearsay.plans.plan import Plan
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2
from hearsay_server.storage import tokens
from hearsay_server.storage.database import open_database
from hearsay_server.surveys import survey as surveys
from ldp import Coins

SIZES = {"colour": 8, "country": 200, "word": 1024}
"""Values of the attributes that have values; `word` is the one that is asked for."""

SURVEY = """
name = "bench"
[levels]
strict = 1.0
[[attributes]]
name = "smokes"
[attributes.categorical]
values = ["no", "yes"]
[[attributes]]
name = "age"
[attributes.numeric]
low = 0
high = 100
""" + "".join(
    f"""[[attributes]]
name = "{name}"
mechanism = "krr"
[attributes.categorical]
values = {[str(value) for value in range(size)]}
"""
    for name, size in SIZES.items()
)

BULK = 1000
"""Rows of a large batch."""

SINGLES = 200
"""One-row batches of one request, where many are to come in."""

CHANNELS = 8
"""Connections that the calls under way share."""

MANY = ("--max-streams-per-connection", "1024")
"""Flags of a server for so many calls on a connection: by default it has 100 at once."""

_TICKS = os.sysconf("SC_CLK_TCK")

Request = collector_pb2.SubmitRequest


@dataclass
class Process:
    """A server that runs, and what it has used so far."""

    pid: int
    address: str
    metrics: str = ""
    data: Path = Path()
    token: str | None = None
    database: Callable[[], Sequence[int]] = list
    """Returns the processes of a database server that this server stores in."""
    http: str = ""

    def cpu(self) -> float:
        """Return the CPU seconds of all its threads."""
        return used([self.pid])

    def resident(self) -> float:
        """Return its resident memory in MB."""
        match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert match
        return int(match[1]) / 1e3

    def stored(self) -> float:
        """Return the MB that it keeps on the disk."""
        return sum(file.stat().st_size for file in self.data.iterdir()) / 1e6

    def commits(self) -> dict[float, float]:
        """Return how many commits took at most so many seconds, by the bound."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(r'hearsay_commit_seconds_bucket{le="(\S+)"} (\S+)', text)
        return {float(bound): float(count) for bound, count in found}


@dataclass
class Load:
    """What a few seconds of calls came to."""

    calls: int
    seconds: float
    cpu: float
    database: float
    """CPU seconds of the database server's processes."""
    latencies: list[float]

    @property
    def rate(self) -> float:
        return self.calls / self.seconds


def used(processes: Sequence[int]) -> float:
    """Return the CPU seconds of these processes."""
    ticks = 0
    for process in processes:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def started(*command: str) -> Iterator[int]:
    """Run Python with these arguments until it says a line; yield its process id."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            if not process.stdout.readline():
                raise RuntimeError(f"{command} did not start")
            yield process.pid
        finally:
            process.terminate()


@contextmanager
def echoing() -> Iterator[Process]:
    address = f"127.0.0.1:{free_port()}"
    with started(__file__, address) as pid:
        yield Process(pid, address)


def new_token(where: Path | str, role: str) -> str:
    """Make a token in a folder or a PostgreSQL database, whether or not a server has it open."""
    with closing(open_database(where)) as database:
        return tokens.Tokens(database).create(role)[1]


@contextmanager
def serving(
    where: Path | str, *, capped: bool = False, over_http: bool = False
) -> Iterator[Process]:
    """Run `hearsay serve` on a folder or a PostgreSQL database; `capped` counts rows by token."""
    address, metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
    storage = ["--database", where] if isinstance(where, str) else ["--data", str(where)]
    flags = [*storage, "--listen", address, "--metrics", metrics, *MANY]
    token = None
    if capped:
        token = new_token(where, "device")
        flags += ["--require-device-token", "--rows-per-token-and-period", str(1 << 40)]
    http = f"127.0.0.1:{free_port()}" if over_http else ""
    data = Path() if isinstance(where, str) else where
    flags += ["--http", http]
    with started("-m", "hearsay_server", "serve", "--log-level", "error", *flags) as pid:
        yield Process(pid, address, metrics, data, token, http=http)


async def echo(address: str) -> None:
    """Serve a bare grpc.aio method that returns the message it was sent, read and written."""

    async def answer(request: Request, _context: object) -> Request:
        return request

    method = grpc.unary_unary_rpc_method_handler(
        answer, Request.FromString, Request.SerializeToString
    )
    server = grpc.aio.server()
    handlers = grpc.method_handlers_generic_handler("hearsay.v1.Collector", {"Submit": method})
    server.add_generic_rpc_handlers((handlers,))
    server.add_insecure_port(address)
    await server.start()
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    await server.wait_for_termination()


def register(server: Process, token: str | None = None) -> Plan:
    survey = surveys.from_toml(SURVEY, "bench.toml")
    metadata = [("authorization", f"Bearer {token}")] if token else None
    with grpc.insecure_channel(server.address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        stub.CreateSurvey(admin_pb2.CreateSurveyRequest(survey=survey), metadata=metadata)
        request = admin_pb2.ShowSurveyRequest(survey=survey.name)
        return hearsay.plans.plan.parse(stub.ShowSurvey(request, metadata=metadata).plan)


def batch(plan: Plan, rows: int, source: np.random.Generator) -> collector_pb2.Batch:
    """Randomise and encode answers as devices do, all to all five attributes."""
    (level,), coins = plan.levels.values(), Coins()
    made = collector_pb2.Batch(
        id=os.urandom(16), survey=plan.survey, revision=plan.revision, period="once", rows=rows
    )
    for name, mechanism in level.mechanisms.items():
        numeric = name == "age"
        values = source.uniform(-1, 1, rows) if numeric else source.integers(0, 2, rows)
        codes = mechanism.encode(mechanism.randomize_many(values, coins))
        made.columns.add(attribute=name, level=level.name, codes=codes)
    return made


def one_row(plan: Plan) -> Callable[[], Request]:
    """Return what makes requests of one batch of one row, of ready codes and fresh ids."""
    template = batch(plan, 1, np.random.default_rng())

    def make() -> Request:
        request = Request(batches=[template])
        request.batches[0].id = os.urandom(16)
        return request

    return make


def bulk(plan: Plan) -> Callable[[], Request]:
    """Return what makes requests of one large batch, freshly randomised."""
    source = np.random.default_rng()
    return lambda: Request(batches=[batch(plan, BULK, source)])


def singles(plan: Plan) -> Callable[[], Request]:
    """Return what makes requests of many one-row batches of ready codes."""
    template = batch(plan, 1, np.random.default_rng())

    def make() -> Request:
        request = Request(batches=[template] * SINGLES)
        for each in request.batches:
            each.id = os.urandom(16)
        return request

    return make


async def load(
    server: Process,
    make: Callable[[], Request],
    *,
    seconds: float = float("inf"),
    count: int = 1 << 62,
    calls: int,
) -> Load:
    """Keep so many calls under way for some seconds, or until `count` were made."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    metadata = [("authorization", f"Bearer {server.token}")] if server.token else None
    left = count
    latencies: list[float] = []
    # An echo's answer is not a SubmitResponse: both are taken as bytes, and Submit's is read.
    path = "/hearsay.v1.Collector/Submit"

    async def worker(channel: grpc.aio.Channel) -> None:
        nonlocal left
        submit = channel.unary_unary(path, Request.SerializeToString)
        while left > 0 and (begin := time.perf_counter()) < end:
            left -= 1
            answer = await submit(make(), metadata=metadata, timeout=60)
            latencies.append(time.perf_counter() - begin)
            if server.metrics:
                for result in collector_pb2.SubmitResponse.FromString(answer).results:
                    assert result.status == collector_pb2.Result.STORED, result

    async with AsyncExitStack() as stack:
        channels = [
            await stack.enter_async_context(grpc.aio.insecure_channel(server.address, options))
            for _ in range(CHANNELS)
        ]
        cpu, begin = server.cpu(), time.perf_counter()
        backing = used(server.database())
        end = begin + seconds
        await asyncio.gather(*(worker(channels[i % CHANNELS]) for i in range(calls)))
        taken = time.perf_counter() - begin
        database = used(server.database()) - backing
        return Load(len(latencies), taken, server.cpu() - cpu, database, latencies)


if __name__ == "__main__":
    asyncio.run(echo(sys.argv[1]))
