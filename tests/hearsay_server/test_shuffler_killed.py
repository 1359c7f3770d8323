"""Device, shuffler and collector are killed at any moment: every record counts once, and none
leaves among fewer than the threshold."""

import contextlib
import os
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from killed import Trio
from serving import connected, tokens_of

from hearsay import Client
from hearsay.plans.plan import parse
from hearsay.sealed import records
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
    shuffler_pb2,
    shuffler_pb2_grpc,
)
from hearsay_server.shuffler import pools
from hearsay_server.surveys import survey as surveys
from support import DAILY, Server, free_port, wait_until

LEAST = 1000


class Shuffled(Trio):
    """A collector, its shuffler and a device."""

    def __init__(self, folder: Path) -> None:
        self.pools, self.shuffler = folder / "shuffler", f"127.0.0.1:{free_port()}"
        server, ledger = Server(folder / "collector"), folder / "ledger.db"
        device = Path(__file__).with_name("sealed_victim.py")
        super().__init__(
            server,
            ledger,
            {
                "device": lambda: [device, server.address, self.shuffler, ledger, self.recorded()],
                "shuffler": lambda: [
                    *("-m", "hearsay_server", "shuffler", "serve", "--data", self.pools),
                    *("--listen", self.shuffler, "--collector", server.address),
                    *("--collector-token", self.secrets["shuffler"], "--check-seconds", "0.05"),
                ],
            },
        )
        tokens = tokens_of(folder / "collector")
        self.secrets = {role: tokens.create(role)[1] for role in ("admin", "shuffler")}
        with connected(self.server.address, self.secrets["admin"]) as channel:
            declared = surveys.from_toml(f"{DAILY}\n[sealing]\n", "test.toml")
            request = admin_pb2.CreateSurveyRequest(survey=declared)
            admin_pb2_grpc.AdminStub(channel).CreateSurvey(request, timeout=20)
        with connected(self.server.address) as channel:
            asked = collector_pb2.GetPlanRequest(survey="daily")
            stub = collector_pb2_grpc.CollectorStub(channel)
            self.plan = parse(stub.GetPlan(asked, timeout=20).plan)

    def stored(self) -> int:
        with connected(self.server.address, self.secrets["admin"]) as channel:
            asked = admin_pb2.ShowSurveyRequest(survey="daily")
            stub = admin_pb2_grpc.AdminStub(channel)
            return int(stub.ShowSurvey(asked, timeout=20).status.records)

    def mixes(self) -> int:
        """Return how many mixes have begun to leave the shuffler."""
        with contextlib.closing(sqlite3.connect(self.pools / "pools.db")) as connection:
            ((count,),) = connection.execute("SELECT count(*) FROM mixes")
            return int(count)

    def held(self) -> tuple[int, int]:
        """Return how many records gather at the shuffler, and how many are on their way."""
        found = pools.look(self.pools)[0]
        return sum(pool.gathering for pool in found), sum(pool.leaving for pool in found)

    def fill(self, day: str, count: int) -> None:
        """Hand over records of other devices, so that what still gathers reaches the threshold."""
        self.filled += count
        column = collector_pb2.Column(attribute="smokes", level="strict", codes=b"\0")
        batch = collector_pb2.Batch(
            survey="daily", revision=self.plan.revision, period=day, rows=1, columns=[column]
        )
        with connected(self.shuffler) as channel:
            stub = shuffler_pb2_grpc.ShufflerStub(channel)
            for first in range(0, count, 250):
                some = []
                for _ in range(min(250, count - first)):
                    batch.id = os.urandom(16)
                    some.append(records.seal(self.plan, day, shuffler_pb2.Sealed(batch=batch)))
                stub.SubmitSealed(shuffler_pb2.SubmitSealedRequest(records=some), timeout=20)


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(8, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.long)],
)
@pytest.mark.timeout(600)
def test_kills_of_all_three_lose_nothing_repeat_nothing_and_keep_the_threshold(
    tmp_path: Path, seconds: int
) -> None:
    trio = Shuffled(tmp_path)

    def look() -> None:
        # In this order: what is forwarded meanwhile counts twice, and never not at all.
        mixes, leaving, stored = trio.mixes(), trio.held()[1], trio.stored()
        assert leaving + stored >= mixes * LEAST

    try:
        for name in ("shuffler", "device"):
            trio.start(name)
        trio.fill(f"{datetime.now(UTC) - timedelta(days=1):%Y-%m-%d}", 3 * LEAST)
        trio.kill_at_random(seconds, look)
        trio.kill("device")
        finish(trio)
        check(trio)
    finally:
        trio.close()


def finish(trio: Shuffled) -> None:
    """Deliver what the device has queued, without new answers."""
    with Client(
        trio.server.address,
        "daily",
        ledger=trio.ledger,
        epsilon=64.0,
        level="strict",
        shuffler=trio.shuffler,
        # Later than the lease of what a killed device was sending.
        clock=lambda: datetime.now(UTC) - timedelta(days=1, seconds=-40),
    ) as client:
        assert client.wait_ready(60), client.status()
        assert client.flush(120), client.delivery


def check(trio: Shuffled) -> None:
    """Let all leave that gather, and compare what counts with what was recorded."""
    wait_until(lambda: trio.held()[0] < LEAST and trio.held()[1] == 0, 60)
    for pool in pools.look(trio.pools)[0]:
        if pool.gathering:  # to the threshold and no further, or some would gather anew
            trio.fill(pool.period, LEAST - pool.gathering)
    wait_until(lambda: trio.held() == (0, 0), 60)
    assert 0 < trio.mixes() * LEAST <= trio.stored()
    people = trio.recorded()
    # Where a kill came between a record and its line in the log, it was made again: by then the
    # person had spent the day's budget, so it was not made twice. The last one may lack its line.
    assert people > 0
    assert trio.stored() - trio.filled in (people, people + 1)
