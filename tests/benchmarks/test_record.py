"""What `record` costs an app: with the ledger on the disk and in memory, and what a client holds.

Every record is another person's, so that each is randomised, spent and queued.
"""

import itertools
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from people import person

from hearsay import MEMORY, Agreement, Client, create_ledger
from support import Server


@pytest.fixture(params=["disk", "memory"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return MEMORY
    create_ledger(tmp_path / "ledger.db")
    return tmp_path / "ledger.db"


@pytest.fixture
def busy_server(tmp_path: Path) -> Any:
    (tmp_path / "server").mkdir()
    server = Server(tmp_path / "server" / "data")
    server.start()
    server.create()
    yield server
    server.stop()


def _record(benchmark: Any, server: Server, ledger: Any, answers: dict[str, object]) -> None:
    with Client(
        server.address, "health", level="strict", epsilon=64.0, ledger=ledger, consent=True
    ) as client:
        assert client.wait_ready()
        people = (person(client, str(number)) for number in itertools.count())
        benchmark.pedantic(
            lambda somebody: somebody.record(**answers),
            setup=lambda: ((next(people),), {}),
            rounds=3000,
            warmup_rounds=50,
        )
        times = sorted(benchmark.stats.stats.data)
        benchmark.extra_info["p99 (us)"] = round(times[int(0.99 * len(times))] * 1e6)
        assert client.counters["recorded"] == 3050
        client.close(0)  # what waits need not be sent


@pytest.mark.benchmark(group="record one attribute")
def test_record_one_attribute(benchmark: Any, busy_server: Server, ledger: Any) -> None:
    _record(benchmark, busy_server, ledger, {"smokes": "yes"})


@pytest.mark.benchmark(group="record two attributes")
def test_record_two_attributes(benchmark: Any, busy_server: Server, ledger: Any) -> None:
    _record(benchmark, busy_server, ledger, {"smokes": "yes", "age": 30})


@pytest.mark.benchmark(group="a client's whole life")
def test_a_clients_whole_life(benchmark: Any, busy_server: Server) -> None:
    """Construct, record, flush and close, in memory, with the plan that the app ships: how `make
    demo` uses 6,366 of them. The processor's time is all of this process, its sender's included."""
    agreement = Agreement.on(busy_server.show("health").plan)

    def life() -> None:
        with Client(
            busy_server.address, agreement, level="strict", ledger=MEMORY, consent=True
        ) as client:
            assert client.record(smokes="yes")
            assert client.flush()

    begin = time.process_time()
    benchmark.pedantic(life, rounds=500, warmup_rounds=20)
    spent = (time.process_time() - begin) / 520
    benchmark.extra_info["processor's time (ms)"] = round(1000 * spent, 2)


@pytest.mark.benchmark(group="import, beyond numpy and grpc")
@pytest.mark.parametrize("what", ["import numpy, grpc", "import numpy, grpc, hearsay"])
def test_import(benchmark: Any, what: str) -> None:
    benchmark.pedantic(lambda: subprocess.run([sys.executable, "-c", what], check=True), rounds=7)


@pytest.mark.benchmark(group="memory of a client")
def test_memory_of_a_client(benchmark: Any, busy_server: Server, tmp_path: Path) -> None:
    """Peak resident memory: of numpy and grpc, of a client that is ready, and of one whose queue
    is full (10,000 reports in a ledger in memory)."""
    code = f"""
import re
from pathlib import Path
def rss():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s*(\\d+)", status).group(1)) // 1024
import numpy, grpc
floor = rss()
from hearsay import MEMORY, Client, Delivery
client = Client({busy_server.address!r}, "health", level="strict", epsilon=64.0,
                ledger=MEMORY, consent=True, delivery=Delivery(batch_age=3600, batch_rows=10**6))
assert client.wait_ready()
ready = rss()
for number in range(10_000):
    person = client.person(str(number), level="strict")
    person.grant()
    person.record(smokes="yes", age=30)
print(floor, ready - floor, rss() - ready)
client.revoke()
"""

    def run() -> list[int]:
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        return [int(number) for number in done.stdout.split()]

    floor, ready, queue = benchmark.pedantic(run, rounds=1)
    benchmark.extra_info |= {
        "numpy and grpc (MiB)": floor,
        "a client beyond (MiB)": ready,
        "a full queue beyond (MiB)": queue,
    }
