"""Device, leader and helper are killed at any moment: every record is in exactly one sum."""

import contextlib
import os
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from killed import Trio
from serving import connected, create, tokens_of

from hearsay import Client
from hearsay.plans.plan import Plan, parse
from hearsay.sealed import shares
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.helper import held
from hearsay_server.storage import schema, sums
from hearsay_server.storage.database import open_folder
from ldp.testing import SeededCoins
from ldp.two_servers.shares import split
from support import Server, free_port, wait_until

SURVEY = """
name = "commute"
default_level = "standard"
[levels]
standard = 1.0
[two_servers]
helper_key = "{key}"
least = 100
delta = 1e-6
[[attributes]]
name = "way"
categorical = {{ values = ["bus", "train", "car"] }}
"""


class Two(Trio):
    """A server that leads, its helper and a device."""

    def __init__(self, folder: Path) -> None:
        self.helper_folder = shares_of = folder / "helper"
        held.Shares(shares_of).close()
        self.key, helper = held.look(shares_of)[0], f"127.0.0.1:{free_port()}"
        secret = tokens_of(shares_of).create("leader")[1]
        self.folder, ledger = folder / "leader", folder / "ledger.db"
        keys = ("--helper", helper, "--helper-token", secret, "--helper-seconds", "0.1")
        server = Server(self.folder, *keys)
        device = Path(__file__).with_name("split_victim.py")
        super().__init__(
            server,
            ledger,
            {
                "device": lambda: [device, server.address, self.key, ledger, self.recorded()],
                "helper": lambda: [
                    *("-m", "hearsay_server", "helper", "serve", "--data", shares_of),
                    *("--listen", helper, "--collector", server.address),
                ],
            },
        )
        create(self.server.address, SURVEY.format(key=self.key))
        with connected(self.server.address) as channel:
            asked = collector_pb2.GetPlanRequest(survey="commute")
            stub = collector_pb2_grpc.CollectorStub(channel)
            self.plan: Plan = parse(stub.GetPlan(asked, timeout=20).plan)

    def fill(self, count: int) -> None:
        """Submit records of other devices, who all answer "car", so that what waits is summed."""
        two, coins = shares.of(self.plan), SeededCoins(1)
        with connected(self.server.address) as channel:
            stub = collector_pb2_grpc.CollectorStub(channel)
            for _ in range(count):
                self.filled += 1
                id_ = os.urandom(16)
                cells = two.layout.randomize({"way": 2}, two.variance, coins)
                code = shares.seal(
                    shares.splitting(self.plan), "once", id_, *split(cells, two.bits, coins)
                )
                column = collector_pb2.Column(attribute="way", level="standard", codes=code)
                batch = collector_pb2.Batch(
                    id=id_,
                    survey="commute",
                    revision=self.plan.revision,
                    period="once",
                    rows=1,
                    columns=[column],
                )
                stub.Submit(collector_pb2.SubmitRequest(batches=[batch]), timeout=20)

    def sums(self) -> tuple[int, int]:
        """Return how many records wait to be summed, and how many are in a sum."""
        database = open_folder(self.folder)
        try:
            waiting = sum(sums.waiting(database, "commute").values())
            done = sums.read(database, "commute", lambda _: True)
            claimed = sums.claimed(database, "commute")
        finally:
            database.close()
        assert all(each.records >= 100 for each in done)
        return waiting + 10**9 * len(claimed), sum(each.records for each in done)

    def sets(self) -> tuple[dict[bytes, int], dict[bytes, int], set[bytes], list[bytes]]:
        """Return the sets that the leader and the helper summed, by the hash of their ids, with
        their sizes; the ids of all records that came to the leader, and those that the helper
        summed, each as often as it did."""
        database = open_folder(self.folder)
        try:
            with database.reading() as connection:
                query = sa.select(schema.sums.c.ids_hash, schema.sums.c.records)
                leaders = {bytes(ids): records for ids, records in connection.execute(query)}
                came = {bytes(id_) for id_ in connection.scalars(sa.select(schema.batches.c.id))}
        finally:
            database.close()
        with contextlib.closing(sqlite3.connect(self.helper_folder / "shares.db")) as connection:
            helpers = dict(connection.execute("SELECT ids, records FROM sums").fetchall())
            summed = [id_ for (id_,) in connection.execute("SELECT id FROM summed")]
        return leaders, helpers, came, summed

    def total(self) -> list[int]:
        database = open_folder(self.folder)
        try:
            done = sums.read(database, "commute", lambda _: True)
        finally:
            database.close()
        total = np.sum([np.frombuffer(one.total, "<i8") for one in done], axis=0)
        return [int(cell) for cell in total]


@pytest.mark.parametrize(
    "seconds",
    [pytest.param(8, marks=pytest.mark.slow), pytest.param(300, marks=pytest.mark.long)],
)
@pytest.mark.timeout(600)
def test_kills_of_all_three_lose_no_record_and_sum_none_twice(tmp_path: Path, seconds: int) -> None:
    trio = Two(tmp_path)
    try:
        for name in ("helper", "device"):
            trio.start(name)
        trio.kill_at_random(seconds, lambda: None)
        trio.kill("device")
        finish(trio)
        trio.fill(250)
        wait_until(lambda: trio.sums()[0] < 100, 60)
        trio.fill(100 - trio.sums()[0])
        wait_until(lambda: trio.sums()[0] == 0, 60)
        people, (_, summed) = trio.recorded(), trio.sums()
        # Where a kill came between a record and its line in the log, it was made again: by then
        # the person had spent the survey's budget, so it was not made twice. The last one may lack
        # its line.
        assert people > 0
        assert summed - trio.filled in (people, people + 1)
        # Both summed the same sets, of which no two share a record, and no record is in none: the
        # sizes add up to the ids, and each id stands once.
        leaders, helpers, came, ids = trio.sets()
        assert leaders == helpers
        assert set(ids) == came
        assert len(ids) == len(came) == sum(leaders.values()) == summed
        two = shares.of(trio.plan)
        noise = 6 * np.sqrt(summed * float(two.variance))
        bus, train, car = trio.total()
        assert abs(bus - (summed - trio.filled) * two.layout.scale) < noise
        assert abs(train) < noise
        assert abs(car - trio.filled * two.layout.scale) < noise
    finally:
        trio.close()


def finish(trio: Two) -> None:
    """Deliver what the device has queued, without new answers."""
    with Client(
        trio.server.address,
        "commute",
        ledger=trio.ledger,
        epsilon=1.0,
        helper_key=trio.key,
        # Later than the lease of what a killed device was sending.
        clock=lambda: datetime.now(UTC) + timedelta(seconds=40),
    ) as client:
        assert client.wait_ready(60) or client.plan
        assert client.flush(120), client.delivery
