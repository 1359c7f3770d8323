"""What one token can cost: an attacker sends all that it may, and the disk stays in the bounds.

The bounds are those of docs/operating.md, whose numbers this test reads.
"""

import contextlib
import os
import re
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import numpy as np
import pytest
from collected import register
from serving import connected, serving, tokens_of

from hearsay import Analyst
from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.storage.writer import MAX_REQUEST
from ldp import Coins

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operating.md"
ROWS = 2
"""That one token may send in a period."""

FORMATS = {
    "P1D": ("%Y-%m-%d", timedelta(days=1), 62),
    "PT1H": ("%Y-%m-%dT%H", timedelta(hours=1), 1465),
}
TOML = """
name = "visits"
period = "{unit}"
[levels]
strict = 2.0
open = 6.0
[[attributes]]
name = "page"
[attributes.categorical]
values = {values}
[[attributes]]
name = "word"
mechanism = "olh"
[attributes.categorical]
values = {values}
"""


def documented(what: str) -> list[int]:
    """Return the numbers in a row of the page's table of costs."""
    (bound,) = re.findall(rf"^\| {what} \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    return [int(number.replace(",", "")) for number in re.findall(r"[\d,]*\d", bound)]


class Attacker:
    """One token that sends one row at each level in every period, and counts what it may cost."""

    def __init__(self, channel: grpc.Channel, plan: Plan) -> None:
        self.stub = collector_pb2_grpc.CollectorStub(channel)
        self.plan = plan
        self.bound = 0

    def batch(self, period: str, level: str) -> collector_pb2.Batch:
        message = collector_pb2.Batch(
            id=os.urandom(16),
            survey="visits",
            revision=self.plan.revision,
            period=period,
            rows=1,
        )
        for name, mechanism in self.plan.levels[level].mechanisms.items():
            codes = mechanism.randomize_many(np.array([len(name)]), Coins())
            message.columns.add(attribute=name, level=level, codes=mechanism.encode(codes))
        return message

    def cost(self, message: collector_pb2.Batch) -> int:
        """Return what the page says that a batch may cost, the first of its period and level."""
        times, more = documented("a batch")
        bound = times * message.ByteSize() + more
        key, raised, page, over = documented("an attribute at a level, in a period")
        for column in message.columns:
            mechanism = self.plan.levels[column.level].mechanisms[column.attribute]
            tally = mechanism.tally(mechanism.decode(column.codes, 1))
            bound += key + raised * np.count_nonzero(tally.counts)
            bound += page if len(tally.to_bytes()) > over else 0
        return int(bound)

    def send(self, periods: list[str]) -> list[str]:
        """Send all that may be sent, and one more for each period; return the open periods."""
        taken = []
        for begin in range(0, len(periods), MAX_REQUEST // 3):
            names = periods[begin : begin + MAX_REQUEST // 3]
            sent = [
                self.batch(name, level) for name in names for level in ("strict", "open", "open")
            ]
            results = self.stub.Submit(collector_pb2.SubmitRequest(batches=sent)).results
            for number, name in enumerate(names):
                three = results[3 * number : 3 * number + 3]
                if three[0].status == collector_pb2.Result.STORED:
                    assert three[1].status == collector_pb2.Result.STORED
                    assert three[2].reason == collector_pb2.OVER_QUOTA
                    self.bound += sum(self.cost(sent[3 * number + i]) for i in range(2))
                    taken.append(name)
                else:
                    assert three[0].reason in (
                        collector_pb2.BAD_PERIOD,
                        collector_pb2.PERIOD_CLOSED,
                    )
        return taken

    def bar(self, period: str) -> None:
        """Bar as many ids as may be barred, and one more."""
        request = collector_pb2.ForgetRequest(survey="visits", period=period)
        request.ids.extend(os.urandom(16) for _ in range(ROWS))
        self.stub.Forget(request)
        (each,), (of_period,) = documented("an id that is barred"), documented("a period")
        self.bound += ROWS * each + of_period
        request.ids[:] = [os.urandom(16)]
        with pytest.raises(grpc.RpcError) as refused:
            self.stub.Forget(request)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


def size(folder: Path) -> int:
    """Return the bytes of the database, with its log written back."""
    file = folder / "hearsay.db"
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file.stat().st_size


@pytest.mark.parametrize(
    ("unit", "k"), [("P1D", 10_000), pytest.param("PT1H", 65_536, marks=pytest.mark.slow)]
)
def test_all_that_one_token_may_send_costs_no_more_than_is_documented(
    tmp_path: Path, unit: str, k: int
) -> None:
    known = tokens_of(tmp_path)
    tokens = {role: known.create(role)[1] for role in ("device", "analyst", "admin")}
    form, step, most = FORMATS[unit]
    keys = {"require_device_token": True, "rows_per_token_and_period": ROWS}
    values = [str(number) for number in range(k)]
    with serving(tmp_path, **keys) as address:
        _, plan = register(address, TOML.format(unit=unit, values=values), tokens["admin"])
    before = size(tmp_path)
    with (
        serving(tmp_path, **keys) as address,
        connected(address, tokens["device"]) as channel,
        Analyst(address, token=tokens["analyst"]) as analyst,
    ):
        attacker = Attacker(channel, plan)
        now = datetime.now(UTC)
        first, last = now - timedelta(days=62), now + timedelta(days=3)
        steps = int((last - first) / step)
        periods = attacker.send([f"{first + number * step:{form}}" for number in range(steps)])
        assert most - 2 <= len(periods) <= most
        for period in periods:
            attacker.bar(period)
        answer = analyst.estimate("visits", "word", top=1)  # of all periods at once
        assert answer.reports == 2 * len(periods)
    grown = size(tmp_path) - before
    assert attacker.bound / 4 < grown <= attacker.bound
