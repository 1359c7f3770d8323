"""The server's rate with durable acknowledgement, beside a bare echo, as reports pile up.

    python tests/benchmarks/ingest_speed.py [--quick | --smoke] [--only sqlite|postgresql|growth]

Every server is a process of its own, and so is this one, which plays the devices and the analyst;
all share the machine. What is compared takes turns, a second or more each, so that a busy machine
slows both; what depends less on that, the server's CPU seconds, stands beside it.

The servers hold what they were sent in a temporary folder of the working directory, whose disk
is thus the one that is measured: half a GB with the largest survey. PostgreSQL, where there is one,
holds it in the system's temporary folder.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import grpc
import numpy as np
import pytest
from traffic import (
    BULK,
    SINGLES,
    Load,
    Process,
    Request,
    bulk,
    echoing,
    load,
    new_token,
    one_row,
    register,
    serving,
    singles,
)

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / name) for name in ("", "hearsay_server")]

from postgres import Postgres  # noqa: E402

from hearsay.v1 import analyst_pb2, analyst_pb2_grpc, collector_pb2_grpc  # noqa: E402

CALLS = (8, 64, 256)
"""Calls under way at once, one number after the other."""


def compared(
    servers: dict[str, tuple[Process, Callable[[], Request]]],
    rounds: int,
    seconds: float,
    calls: int = max(CALLS),
) -> dict[str, list[Load]]:
    """Load each in turn, so many times, after a turn that does not count."""
    loads: dict[str, list[Load]] = {name: [] for name in servers}
    for turn in range(rounds + 1):
        for name, (server, make) in servers.items():
            turned = seconds if turn else seconds / 4
            done = asyncio.run(load(server, make, seconds=turned, calls=calls))
            if turn:
                loads[name].append(done)
    return loads


def of_echo(loads: dict[str, list[Load]], name: str, value: Callable[[Load], float]) -> float:
    """Return the median over the turns of a server's value over that of the echo beside it."""
    pairs = zip(loads[name], loads["echo"], strict=True)
    return statistics.median([value(one) / value(echo) for one, echo in pairs])


def per_cpu(one: Load) -> float:
    """Return the calls in a second of the server's processor time."""
    return one.calls / one.cpu


def cost(loads: list[Load]) -> float:
    """Return the server's CPU seconds of a call."""
    return sum(one.cpu for one in loads) / sum(one.calls for one in loads)


def percentile(values: list[float], share: float) -> float:
    return float(np.quantile(values, share))


def slowest(before: dict[float, float], after: dict[float, float], share: float = 0.99) -> float:
    """Return the quantile of the commits between two looks, interpolated within its bucket."""
    counts = [(bound, after[bound] - before[bound]) for bound in sorted(after)]
    wanted, low, below = share * counts[-1][1], 0.0, 0.0
    for bound, count in counts:
        if count >= wanted:
            return low + (bound - low) * (wanted - below) / max(count - below, 1.0)
        low, below = bound, count
    return float("inf")


def show(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


Column = tuple[str, int, str]
"""A heading, a width and the format of a number."""


def headings(first: str, columns: list[Column]) -> str:
    return f"  {first:30}" + "".join(f"{name:>{width}}" for name, width, _ in columns)


def row(first: str, columns: list[Column], values: list[float]) -> str:
    cells = (f"{v:{w}{f}}" for v, (_, w, f) in zip(values, columns, strict=True))
    return f"  {first:30}" + "".join(cells)


SMALL: list[Column] = [
    ("calls/s", 9, ".0f"),
    ("of echo", 9, ".2f"),
    ("CPU us", 8, ".0f"),
    ("of echo", 9, ".2f"),
    ("p50 ms", 8, ".1f"),
    ("p99 ms", 8, ".1f"),
    ("commit p99 ms", 15, ".1f"),
    ("database's CPU us", 19, ".0f"),
]

GROWTH: list[Column] = [
    ("fill Mc/s", 11, ".2f"),
    ("bulk Mc/s", 11, ".2f"),
    ("CPU ms", 8, ".2f"),
    ("commit p99 ms", 15, ".1f"),
    ("one-row us", 12, ".0f"),
    ("of echo", 9, ".2f"),
    ("query ms", 10, ".1f"),
    ("again ms", 10, ".1f"),
    ("MB held", 9, ".0f"),
    ("MB disk", 9, ".0f"),
]


@dataclass(frozen=True)
class Storage:
    """A kind of database: its name, fresh places in it, and the processes of its server."""

    name: str
    new: Callable[[], Path | str]
    processes: Callable[[], Sequence[int]] = list

    @contextmanager
    def serving(self, *, capped: bool = False) -> Iterator[tuple[Process, Callable[[], Request]]]:
        """Run a server on a fresh place; yield it, and what makes its one-row requests."""
        place = self.new()
        with serving(place, capped=capped) as server:
            plan = register(server, new_token(place, "admin") if capped else None)
            yield replace(server, database=self.processes), one_row(plan)


def in_folders(folder: Path) -> Storage:
    """Return SQLite, with folders of their own in `folder`."""
    return Storage("SQLite", lambda: Path(tempfile.mkdtemp(dir=folder)))


def one_row_batches(storage: Storage, rounds: int, seconds: float, full: int) -> None:
    """Print what one-row batches cost: plain, counted by token, and into a full table."""
    with ExitStack() as stack:
        echoed = stack.enter_context(echoing())
        filled, make = stack.enter_context(storage.serving())
        plan = register(filled)
        asyncio.run(load(filled, singles(plan), count=full // SINGLES, calls=4))
        show(f"\none-row batches, {storage.name}; to reach by CPU: 0.35, 0.65 and 0.72 of the echo")
        for calls in CALLS:
            with ExitStack() as fresh:
                servers = {
                    "echo": (echoed, make),
                    "Submit": fresh.enter_context(storage.serving()),
                    "Submit, rows capped by token": fresh.enter_context(
                        storage.serving(capped=True)
                    ),
                    f"Submit, {full:,} stored": (filled, make),
                }
                before = {name: one.commits() for name, (one, _) in servers.items() if one.metrics}
                loads = compared(servers, rounds, seconds, calls)
                show(headings(f"{calls} calls under way", SMALL))
                for name, (server, _) in servers.items():
                    latencies = [1e3 * latency for one in loads[name] for latency in one.latencies]
                    values = [
                        statistics.median(one.rate for one in loads[name]),
                        of_echo(loads, name, lambda one: one.rate),
                        1e6 * cost(loads[name]),
                        of_echo(loads, name, per_cpu),
                        percentile(latencies, 0.5),
                        percentile(latencies, 0.99),
                    ]
                    if server.metrics:
                        values.append(1e3 * slowest(before[name], server.commits()))
                    if server.database():
                        database = sum(one.database for one in loads[name])
                        values.append(1e6 * database / len(latencies))
                    show(row(name, SMALL[: len(values)], values))
        show("  CPU us: the server's, of a call; beside it the echo's over it, in the median turn")


def asked(
    server: Process, make: Callable[[], Request], count: int
) -> tuple[list[float], list[float]]:
    """Return the milliseconds that estimates of 1,024 frequencies took: after news, and without."""
    question = analyst_pb2.EstimateRequest(survey="bench", attribute="word")
    fresh: list[float] = []
    repeated: list[float] = []
    with grpc.insecure_channel(server.address) as channel:
        collector = collector_pb2_grpc.CollectorStub(channel)
        analyst = analyst_pb2_grpc.AnswersStub(channel)
        for _ in range(count):
            collector.Submit(make())
            for taken in (fresh, repeated):
                begin = time.perf_counter()
                analyst.Estimate(question)
                taken.append(1e3 * (time.perf_counter() - begin))
    return fresh, repeated


def growth(folder: Path, sizes: list[int], seconds: float, per_batch: int) -> None:
    """Print how rates, latencies and memory change as reports pile up."""
    with ExitStack() as stack:
        echoed = stack.enter_context(echoing())
        server = stack.enter_context(serving(folder / "growth"))
        plan = register(server)
        single, large = one_row(plan), bulk(plan)
        fill, each = (large, BULK) if per_batch == BULK else (singles(plan), SINGLES)
        stored = BULK * asyncio.run(load(server, large, count=20, calls=8)).calls  # to warm up
        codes = 1e-6 * len(plan.attributes)
        show(
            f"\nas reports of {len(plan.attributes)} attributes pile up, in batches of "
            f"{per_batch}; to reach: 2 million codes/s, 20 ms for 1,024 frequencies"
        )
        show(headings("reports stored", GROWTH))
        held: list[tuple[int, float]] = []
        for size in sizes:
            filled = asyncio.run(load(server, fill, count=max(1, (size - stored) // each), calls=8))
            stored += filled.calls * each
            before = server.commits()
            count = max(20, min(1000, size // 1000))
            bulked = asyncio.run(load(server, large, count=count, calls=8))
            p99 = slowest(before, server.commits())
            loads = compared({"echo": (echoed, single), "Submit": (server, single)}, 3, seconds)
            stored += bulked.calls * BULK + sum(one.calls for one in loads["Submit"])
            fresh, again = asked(server, single, 100 if seconds > 1 else 10)
            held.append((stored, server.resident()))
            values = [
                codes * filled.rate * each,
                codes * bulked.rate * BULK,
                1e3 * bulked.cpu / bulked.calls,
                1e3 * p99,
                1e6 * cost(loads["Submit"]),
                cost(loads["echo"]) / cost(loads["Submit"]),
                percentile(fresh, 0.5),
                percentile(again, 0.5),
                server.resident(),
                server.stored(),
            ]
            show(row(f"{size:,}", GROWTH, values))
        (first, less), (last, more) = held[0], held[-1]
        show(
            f"  memory: {1e6 * (more - less) / (last - first):.2f} MB per 10^6 reports\n"
            "  Mc/s: million codes a second, the client's work included; CPU: the server's, of\n"
            f"  {BULK:,} reports; one-row: the server's CPU of a call, and beside it the echo's,\n"
            "  over it; query: the median after news came in, and again without"
        )


def on_postgresql(rounds: int, seconds: float, full: int) -> None:
    """Print what one-row batches cost on a PostgreSQL that syncs, where there is one."""
    settings = {"fsync": "on", "shared_buffers": "128MB", "max_connections": "200"}
    try:
        with Postgres.temporary(**settings) as cluster:
            storage = Storage("PostgreSQL", cluster.create, cluster.processes)
            one_row_batches(storage, rounds, seconds, full)
    except pytest.skip.Exception as missing:
        show(f"\n{missing}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--quick", action="store_true", help="minutes: up to 10^6 reports")
    how.add_argument("--smoke", action="store_true", help="seconds: does it work at all?")
    parser.add_argument("--only", choices=["sqlite", "postgresql", "growth"])
    parser.add_argument(
        "--stored",
        type=int,
        help="one-row batches in the full table, by default 10^6 (quick: 10^5)",
    )
    parser.add_argument("--rows-per-batch", type=int, choices=[1, BULK], default=BULK)
    arguments = parser.parse_args()
    rounds, seconds, full, sizes = 8, 2.0, 10**6, [10**5, 10**6, 10**7]
    if arguments.quick:
        rounds, seconds, full, sizes = 3, 1.0, 10**5, sizes[:2]
    elif arguments.smoke:
        rounds, seconds, full, sizes = 1, 0.2, 1000, [25_000, 90_000]
    full = full if arguments.stored is None else arguments.stored
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as name:
        if arguments.only in (None, "sqlite"):
            one_row_batches(in_folders(Path(name)), rounds, seconds, full)
        if arguments.only in (None, "postgresql"):
            on_postgresql(rounds, seconds, full)
        if arguments.only in (None, "growth"):
            growth(Path(name), sizes, seconds, arguments.rows_per_batch)


if __name__ == "__main__":
    main()
