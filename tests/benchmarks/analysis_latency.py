"""How much analysts' heaviest questions slow devices' calls and health checks down.

    python tests/benchmarks/analysis_latency.py [--values 2048] [--rounds 4] [--seconds 10]

A server process, two processes of analysts who ask for maximum likelihood over and over, and this
process, which sends one-row batches and asks for health, share the machine. Turns with the
questions and without them alternate, so that a busy machine slows both.
"""

import argparse
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from multiprocessing import Queue
from multiprocessing.synchronize import Event
from pathlib import Path

import grpc
import numpy as np
from grpc_health.v1 import health_pb2, health_pb2_grpc
from traffic import Process, serving

import hearsay.plans.plan
from hearsay import Analyst, HearsayError
from hearsay.plans.plan import Plan
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, collector_pb2_grpc
from hearsay_server.surveys import survey as surveys
from ldp import Coins

_ROWS = 2000

_STARTING = 3.0
"""Seconds in which an analyst's process has loaded what it needs, and asks."""


def register(server: Process, values: int) -> Plan:
    toml = (
        'name = "wide"\n[levels]\nstrict = 1.0\nopen = 3.0\n[[attributes]]\nname = "word"\n'
        f"[attributes.categorical]\nvalues = {[str(value) for value in range(values)]}\n"
    )
    with grpc.insecure_channel(server.address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        request = admin_pb2.CreateSurveyRequest(survey=surveys.from_toml(toml, "wide.toml"))
        stub.CreateSurvey(request)
        return hearsay.plans.plan.parse(
            stub.ShowSurvey(admin_pb2.ShowSurveyRequest(survey="wide")).plan
        )


def batch(plan: Plan, level: str, rows: int) -> collector_pb2.SubmitRequest:
    mechanism = plan.levels[level].mechanisms["word"]
    values = np.random.default_rng().integers(0, 50, rows)
    codes = mechanism.encode(mechanism.randomize_many(values, Coins()))
    made = collector_pb2.Batch(
        id=os.urandom(16), survey="wide", revision=plan.revision, period="once", rows=rows
    )
    made.columns.add(attribute="word", level=level, codes=codes)
    return collector_pb2.SubmitRequest(batches=[made])


def asking(address: str, ended: Event, answered: "Queue[int]") -> None:
    """Ask for maximum likelihood, each time at another confidence, so that nothing is kept.

    At last put into `answered` how many questions were answered.
    """
    with Analyst(address, timeout=600.0) as analyst:
        for number in itertools.count():
            if ended.is_set():
                answered.put(number)
                return
            confidence = 0.9 + 0.09 * ((number * 0.6180339887 + os.getpid() * 0.1) % 1)
            try:
                analyst.estimate("wide", "word", method="mle", confidence=confidence)
            except HearsayError as error:
                sys.stderr.write(f"{error}\n")
                answered.put(number)
                return


def timed(server: Process, plan: Plan, seconds: float) -> tuple[list[float], list[float]]:
    """Return the latencies of one-row batches and of health checks, one call at a time."""
    submits: list[float] = []
    checks: list[float] = []
    with grpc.insecure_channel(server.address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        submit = collector_pb2_grpc.CollectorStub(channel).Submit
        check = health_pb2_grpc.HealthStub(channel).Check
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            request = batch(plan, "strict", 1)
            begin = time.perf_counter()
            submit(request, timeout=60)
            middle = time.perf_counter()
            check(health_pb2.HealthCheckRequest(), timeout=60)
            submits.append(middle - begin)
            checks.append(time.perf_counter() - middle)
    return submits, checks


def say(line: str) -> None:
    sys.stdout.write(line + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--values", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    found: dict[str, tuple[list[float], list[float]]] = {"alone": ([], []), "asked": ([], [])}
    answered = 0
    processes = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(dir=".") as folder, serving(Path(folder)) as server:
        plan = register(server, given.values)
        with grpc.insecure_channel(server.address) as channel:
            for level in plan.levels:
                for _ in range(5):
                    collector_pb2_grpc.CollectorStub(channel).Submit(batch(plan, level, _ROWS))
        timed(server, plan, 1.0)
        for _ in range(given.rounds):
            for name in found:
                ended, counts = processes.Event(), processes.Queue()
                analysts = [
                    processes.Process(target=asking, args=(server.address, ended, counts))
                    for _ in range(2 * (name == "asked"))
                ]
                for analyst in analysts:
                    analyst.start()
                if analysts:
                    time.sleep(_STARTING)  # the imports of analysts are no questions
                for kept, more in zip(found[name], timed(server, plan, given.seconds), strict=True):
                    kept.extend(more)
                ended.set()
                for analyst in analysts:
                    answered += counts.get()
                    analyst.join()
    for number, what in enumerate(("Submit", "Health.Check")):
        for name, latencies in found.items():
            p50, p99 = 1e3 * np.quantile(latencies[number], [0.5, 0.99])
            most = 1e3 * max(latencies[number])
            say(f"{what:12s} {name}: p50 {p50:6.1f} ms  p99 {p99:6.1f} ms  most {most:6.1f} ms")
    say(f"{answered} questions of {given.values} values were answered meanwhile")


if __name__ == "__main__":
    main()
