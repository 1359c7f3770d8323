"""How fast one shuffler takes sealed records, and forwards them to a collector.

    python tests/benchmarks/shuffler_speed.py [--smoke]

Shuffler and collector are processes of their own. Records of today are handed over one a call, as
devices send them, and 256 a call. Records of yesterday lie in the shuffler's folder when it starts,
and leave at once. What depends least on a busy machine is the shuffler's processor time of a
record.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import numpy as np
from traffic import MANY, SURVEY, batch, free_port, new_token, serving, started, used

from hearsay.plans.plan import Plan, parse
from hearsay.sealed import records
from hearsay.v1 import admin_pb2, admin_pb2_grpc, shuffler_pb2
from hearsay_server.shuffler import pools
from hearsay_server.surveys import survey as surveys

GROUP = 256
SEALED = SURVEY.replace('"bench"', '"mixed"\nperiod = "P1D"') + "[sealing]\n"


def show(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def sealed(plan: Plan, day: datetime, count: int) -> list[shuffler_pb2.SealedRecord]:
    """Return records of a day, each of an id of its own."""
    made = batch(plan, 1, np.random.default_rng())
    made.period = f"{day:%Y-%m-%d}"
    found = []
    for _ in range(count):
        made.id = os.urandom(16)
        found.append(records.seal(plan, made.period, shuffler_pb2.Sealed(batch=made)))
    return found


async def hand_over(
    address: str, ready: Sequence[shuffler_pb2.SealedRecord], group: int, calls: int
) -> float:
    """Submit all records, so many a call and so many calls at once; return the seconds it took."""
    requests = [
        shuffler_pb2.SubmitSealedRequest(records=ready[first : first + group])
        for first in range(0, len(ready), group)
    ]
    waiting = iter([request.SerializeToString() for request in requests])

    async def worker(channel: grpc.aio.Channel) -> None:
        submit = channel.unary_unary("/hearsay.v1.Shuffler/SubmitSealed")
        for request in waiting:
            answer = shuffler_pb2.SubmitSealedResponse.FromString(await submit(request))
            assert all(result.status == 1 for result in answer.results), answer

    async with grpc.aio.insecure_channel(address) as channel:
        begin = time.perf_counter()
        await asyncio.gather(*(worker(channel) for _ in range(calls)))
        return time.perf_counter() - begin


def forwarded(folder: Path, count: int) -> None:
    """Wait until so many records have left."""
    while sum(pool.forwarded for pool in pools.look(folder)[0]) < count:
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="measure next to nothing")
    smoke = parser.parse_args().smoke
    count, turns = (1024, 1) if smoke else (10_240, 5)
    now = datetime.now(UTC)
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        tokens = {role: new_token(Path(folder), role) for role in ("admin", "shuffler")}
        with serving(Path(folder)) as server:
            with grpc.insecure_channel(server.address) as channel:
                stub = admin_pb2_grpc.AdminStub(channel)
                admin = [("authorization", f"Bearer {tokens['admin']}")]
                survey = surveys.from_toml(SEALED, "bench.toml")
                stub.CreateSurvey(admin_pb2.CreateSurveyRequest(survey=survey), metadata=admin)
                asked = admin_pb2.ShowSurveyRequest(survey="mixed")
                frozen = stub.ShowSurvey(asked, metadata=admin).plan
            plan = parse(frozen)
            found: dict[str, list[tuple[float, float]]] = {}
            for turn in range(turns):
                mine = Path(folder, f"shuffler-{turn}")
                late = sealed(plan, now - timedelta(days=1), count)
                before = pools.Pools(mine)
                before.keep("survey", "mixed", frozen)
                before.add(late, 0)
                before.close()
                address = f"127.0.0.1:{free_port()}"
                command = ("-m", "hearsay_server", "shuffler", "serve", "--data", str(mine))
                reached = ("--collector", server.address, "--collector-token", tokens["shuffler"])
                with started(*command, *reached, "--listen", address, *MANY) as pid:
                    cpu, begin = used([pid]), time.perf_counter()
                    forwarded(mine, count)
                    seconds = time.perf_counter() - begin
                    line = "forwarded, 256 a call"
                    found.setdefault(line, []).append((seconds, used([pid]) - cpu))
                    for line, group, calls in (
                        ("taken, one a call", 1, 64),
                        ("taken, 256 a call", GROUP, 4),
                    ):
                        ready = sealed(plan, now, count)
                        cpu = used([pid])
                        seconds = asyncio.run(hand_over(address, ready, group, calls))
                        found.setdefault(line, []).append((seconds, used([pid]) - cpu))
    show(f"{'':24}{'records/s':>12}{'CPU, us':>10}")
    for line, loads in found.items():
        seconds, cpu = (statistics.median(column) / count for column in zip(*loads, strict=True))
        show(f"  {line:22}{1 / seconds:12,.0f}{1e6 * cpu:10.1f}")


if __name__ == "__main__":
    sys.exit(main())
