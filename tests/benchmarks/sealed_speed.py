"""What sealing costs: a record on the device, and at the collector beside batches that came direct.

    python tests/benchmarks/sealed_speed.py [--smoke]

The collector is a process of its own. The three ways into it take turns: requests of one batch of
one row, as devices send them; requests of 256 such batches; and requests of 256 sealed records, as
a shuffler sends them, sealed beforehand. What depends least on a busy machine is the server's
processor time of a record.
"""

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
from traffic import SURVEY, Process, batch, new_token, register, serving

from hearsay.plans.plan import Plan, parse
from hearsay.sealed import hpke, records
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, shuffler_pb2
from hearsay_server.surveys import sealing
from hearsay_server.surveys import survey as surveys

GROUP = 256
"""Records of a request from a shuffler."""

CALLS = {"direct, one a call": 64, "direct, 256 a call": 4, "sealed, 256 a call": 4}
"""Calls under way at once."""

SEALED = SURVEY.replace('"bench"', '"mixed"') + "[sealing]\n"


@dataclass(frozen=True)
class Way:
    """How records reach the collector: the method, a request's bytes, its records, the token."""

    path: str
    make: Callable[[], bytes]
    size: int
    token: str


def show(line: str) -> None:
    sys.stdout.write(line + "\n")


def device(plan: Plan, privates: tuple[bytes, ...], count: int) -> tuple[float, float]:
    """Return the microseconds of processor time that sealing and opening a record take."""
    made = batch(plan, 1, np.random.default_rng())
    content = shuffler_pb2.Sealed(batch=made)
    private = hpke.private_key(privates[0])
    sealing_times, opening_times = [], []
    for _ in range(5):
        begin = time.process_time()
        sealed = [records.seal(plan, "once", content) for _ in range(count)]
        middle = time.process_time()
        for record in sealed:
            records.opened(plan, record, private)
        sealing_times.append((middle - begin) / count)
        opening_times.append((time.process_time() - middle) / count)
    return 1e6 * statistics.median(sealing_times), 1e6 * statistics.median(opening_times)


def sealed_requests(plan: Plan, count: int) -> list[bytes]:
    """Return requests of sealed records, each of an id of its own."""
    made = batch(plan, 1, np.random.default_rng())
    requests = []
    for _ in range(count):
        request = shuffler_pb2.SubmitSealedRequest()
        for _ in range(GROUP):
            made.id = os.urandom(16)
            content = shuffler_pb2.Sealed(batch=made)
            request.records.append(records.seal(plan, "once", content))
        requests.append(request.SerializeToString())
    return requests


def direct(plan: Plan, size: int) -> Callable[[], bytes]:
    made = batch(plan, 1, np.random.default_rng())

    def make() -> bytes:
        request = collector_pb2.SubmitRequest(batches=[made] * size)
        for each in request.batches:
            each.id = os.urandom(16)
        return request.SerializeToString()

    return make


async def load(server: Process, way: Way, requests: int, calls: int) -> tuple[float, float]:
    """Send so many requests; return the records a second and the server's seconds of a record."""
    left = requests

    async def worker(channel: grpc.aio.Channel) -> None:
        nonlocal left
        submit = channel.unary_unary(way.path)
        while left > 0:
            left -= 1
            answer = await submit(way.make(), metadata=[("authorization", f"Bearer {way.token}")])
            for result in collector_pb2.SubmitResponse.FromString(answer).results:
                assert result.status == collector_pb2.Result.STORED, result

    async with grpc.aio.insecure_channel(server.address) as channel:
        cpu, begin = server.cpu(), time.perf_counter()
        await asyncio.gather(*(worker(channel) for _ in range(calls)))
        count = requests * way.size
        return count / (time.perf_counter() - begin), (server.cpu() - cpu) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--smoke", action="store_true", help="measure next to nothing")
    smoke = parser.parse_args().smoke
    rounds, groups = (1, 2) if smoke else (9, 16)
    survey = surveys.from_toml(SEALED, "bench.toml")
    made = sealing.with_keys(surveys.resolve(survey), int(time.time()))
    seal, open_ = device(parse(made.plan), made.privates, 20 if smoke else 2000)
    show(f"a record of {records.sealing_of(parse(made.plan)).size} bytes, processor time")
    show(f"  sealing {seal:6.1f} us    opening {open_:6.1f} us")
    with tempfile.TemporaryDirectory(dir=".", prefix=".bench-") as folder:
        tokens = {role: new_token(Path(folder), role) for role in ("admin", "device", "shuffler")}
        with serving(Path(folder)) as server:
            plain = register(server, tokens["admin"])
            with grpc.insecure_channel(server.address) as channel:
                stub = admin_pb2_grpc.AdminStub(channel)
                admin = [("authorization", f"Bearer {tokens['admin']}")]
                stub.CreateSurvey(admin_pb2.CreateSurveyRequest(survey=survey), metadata=admin)
                asked = admin_pb2.ShowSurveyRequest(survey="mixed")
                plan = parse(stub.ShowSurvey(asked, metadata=admin).plan)
            ready = iter(sealed_requests(plan, (rounds + 1) * groups))
            submit = "/hearsay.v1.Collector/Submit"
            ways = {
                "direct, one a call": Way(submit, direct(plain, 1), 1, tokens["device"]),
                "direct, 256 a call": Way(submit, direct(plain, GROUP), GROUP, tokens["device"]),
                "sealed, 256 a call": Way(
                    "/hearsay.v1.SealedCollector/SubmitSealed",
                    lambda: next(ready),
                    GROUP,
                    tokens["shuffler"],
                ),
            }
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for turn in range(rounds + 1):
                for name, way in ways.items():
                    requests = groups * (GROUP // way.size)
                    done = asyncio.run(load(server, way, requests, CALLS[name]))
                    if turn:
                        found[name].append(done)
    show(f"{'':24}{'records/s':>12}{'CPU, us':>10}")
    for name, loads in found.items():
        rate, cpu = (statistics.median(column) for column in zip(*loads, strict=True))
        show(f"  {name:22}{rate:12,.0f}{1e6 * cpu:10.1f}")
    for other in ("direct, one a call", "direct, 256 a call"):
        pairs = list(zip(found["sealed, 256 a call"], found[other], strict=True))
        rate = statistics.median(mine[0] / its[0] for mine, its in pairs)
        cpu = statistics.median(its[1] / mine[1] for mine, its in pairs if mine[1])
        show(f"  sealed over {other}: {rate:.2f} by rate, {cpu:.2f} by the server's processor time")


if __name__ == "__main__":
    sys.exit(main())
