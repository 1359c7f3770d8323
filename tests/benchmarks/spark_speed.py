"""How many exported rows a second Spark tallies on two cores.

    python tests/benchmarks/spark_speed.py [--rows 4000000] [--rounds 5]

A server stores rows of ten days at two levels, and they are exported. Then Spark in local mode
tallies each attribute: integers (k-RR), bytes (OUE), and integers that are hashes (OLH). The
tallies are compared with the server's. Medians; the first tally starts Spark's workers and does
not count.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession
from traffic import serving

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.plans.plan import Plan
from hearsay.sending.over_grpc import open_channel
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, collector_pb2_grpc
from hearsay_server.answers import spark as sparks
from hearsay_server.answers.export import export
from hearsay_server.storage.store import Store
from hearsay_server.surveys import survey as surveys
from ldp import Coins

_MECHANISMS = ("krr", "oue", "olh")
_VALUES = [str(value) for value in range(16)]
_BATCH = 50_000
_DAYS = 10


def show(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def register(address: str) -> Plan:
    toml = 'name = "wide"\nperiod = "P1D"\nbudget = "split"\n[levels]\nstrict = 3.0\nopen = 9.0\n'
    for name in _MECHANISMS:
        toml += f'[[attributes]]\nname = "{name}"\nmechanism = "{name}"\n'
        toml += f"[attributes.categorical]\nvalues = {_VALUES}\n"
    with open_channel(address) as channel:
        stub = admin_pb2_grpc.AdminStub(channel)
        stub.CreateSurvey(
            admin_pb2.CreateSurveyRequest(survey=surveys.from_toml(toml, "wide.toml"))
        )
        return hearsay.plans.plan.parse(
            stub.ShowSurvey(admin_pb2.ShowSurveyRequest(survey="wide")).plan
        )


def collect(address: str, plan: Plan, rows: int) -> None:
    today = datetime.now(UTC)
    with open_channel(address) as channel:
        stub = collector_pb2_grpc.CollectorStub(channel)
        for number in range(rows // _BATCH):
            level = plan.levels[("strict", "open")[number % 2]]
            made = collector_pb2.Batch(
                id=os.urandom(16),
                survey=plan.survey,
                revision=plan.revision,
                period=f"{today - timedelta(days=number // 2 % _DAYS):%Y-%m-%d}",
                rows=_BATCH,
            )
            values = np.random.default_rng(number).integers(0, len(_VALUES), _BATCH)
            for name, mechanism in level.mechanisms.items():
                codes = mechanism.encode(mechanism.randomize_many(values, Coins()))
                made.columns.add(attribute=name, level=level.name, codes=codes)
            (result,) = stub.Submit(collector_pb2.SubmitRequest(batches=[made])).results
            assert result.status == collector_pb2.Result.STORED, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    rows = max(1, asked.rows // _BATCH) * _BATCH
    with tempfile.TemporaryDirectory() as folder:
        data, to = Path(folder, "data"), Path(folder, "rows")
        with serving(data) as server:
            plan = register(server.address)
            collect(server.address, plan, rows)
            with Analyst(server.address) as analyst:
                begun = time.perf_counter()
                export(analyst, plan.survey, to)
                show(f"export: {rows / (time.perf_counter() - begun):,.0f} rows/s")
        store = Store(data)
        stored = {name: store.tallies(plan.survey, name) for name in _MECHANISMS}
        store.close()
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        for option in ("spark.driver.bindAddress", "spark.driver.host"):
            builder = builder.config(option, "127.0.0.1")
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        sparks.tally(session, to, _MECHANISMS[0])
        for name in _MECHANISMS:
            taken = []
            for _ in range(asked.rounds):
                begun = time.perf_counter()
                found = sparks.tally(session, to, name)
                taken.append(time.perf_counter() - begun)
                assert found == stored[name]
            show(f"{name}: {rows / statistics.median(taken):,.0f} rows/s")
        session.stop()


if __name__ == "__main__":
    main()
