"""The SDK does what the histories of protos/conformance say, from a real ledger's file."""

import json
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from hearsay import Caps, Client, Delivery, Person, create_ledger
from hearsay.plans.plan import parse
from hearsay.recording import outbox
from hearsay.sending.transport import Unreachable
from hearsay.v1 import collector_pb2

FILE = Path(__file__).resolve().parent.parent.parent / "protos" / "conformance" / "histories.json"
CONTENT: Mapping[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
PLANS = [bytes.fromhex(plan) for plan in CONTENT["plans"]]
REVISIONS = [sha256(plan).digest() for plan in PLANS]

# Nothing is sealed by its age; and a server that does not answer is asked again soon.
NEVER = Delivery(batch_age=1e12, first_wait=0.005, longest_wait=0.01)
STATUSES = {
    "stored": collector_pb2.Result.STORED,
    "duplicate": collector_pb2.Result.DUPLICATE,
    "refused": collector_pb2.Result.REFUSED,
    "retry": collector_pb2.Result.RETRY,
}


def double(text: str) -> float:
    (number,) = struct.unpack(">d", bytes.fromhex(text))
    return float(number)


class Scripted:
    """A transport that answers as the history says, and nothing while it says nothing."""

    def __init__(self) -> None:
        self.plan: bytes | None = None
        self.known = b""
        self.server_time = 0
        self.answer = "unreachable"
        self.open = False
        self.offered: dict[bytes, bytes] = {}
        self.now: dict[bytes, collector_pb2.Batch] = {}
        self.again: set[bytes] = set()
        self.forgotten: list[bytes] = []

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        if self.open and self.known:  # asked again before sending; it does not tell the time
            return collector_pb2.GetPlanResponse(plan=self.known)
        if self.plan is None:
            raise Unreachable("the history does not say that the server is reached")
        return collector_pb2.GetPlanResponse(plan=self.plan, server_time=self.server_time)

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        assert self.open, "a batch left while nothing may be sent"
        data = batch.SerializeToString(deterministic=True)
        if batch.id not in self.now:
            if batch.id in self.offered:
                assert self.offered[batch.id] == data, "a batch went again with other bytes"
                self.again.add(batch.id)
            self.now[batch.id] = collector_pb2.Batch.FromString(data)
        assert self.offered.setdefault(batch.id, data) == data
        if self.answer == "unreachable":
            raise Unreachable("the history says so")
        result = collector_pb2.Result(status=STATUSES[self.answer])
        return collector_pb2.SubmitResponse(results=[result])

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        assert self.open
        self.forgotten += ids
        results = [collector_pb2.ForgetResponse.FORGOTTEN] * len(ids)
        return collector_pb2.ForgetResponse(results=results)

    def interrupt(self) -> None:
        pass

    def close(self) -> None:
        pass

    def after_fork(self, *, usable: bool) -> None:
        pass


class Device:
    """A client on a ledger's file, to which a history happens."""

    def __init__(self, history: Mapping[str, Any], folder: Path) -> None:
        self.file = folder / "ledger.db"
        self.survey = history["survey"]
        self.options: dict[str, Any] = {"level": "strict", **history["options"]}
        self.panels: dict[int, int] = {}
        self.transport = Scripted()
        self.time = history["start"]
        if history["vouched"]:
            create_ledger(self.file)
        self.client = self.started()

    def clock(self) -> datetime:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=self.time)

    def started(self) -> Client:
        options = dict(self.options)
        caps = options.get("caps", {})
        lives = {name: double(cap) for name, cap in caps.get("attribute_life", {}).items()}
        revision = options.get("revision")
        client = Client(
            self.transport,
            self.survey,
            ledger=self.file,
            level=options["level"],
            maps=options.get("maps", {}),
            may_reveal=options.get("may_reveal", {}),
            properties=options.get("properties", {}),
            panels=options.get("panels", 0),
            epsilon=double(options["epsilon"]) if "epsilon" in options else 64.0,
            caps=Caps(
                life=double(caps["life"]) if "life" in caps else None,
                until=caps.get("until"),
                attribute={name: double(cap) for name, cap in caps.get("attribute", {}).items()},
                attribute_life=lives,
            ),
            withhold=options.get("withhold", ()),
            may_tell_changes=options.get("may_tell_changes", ()),
            revision=None if revision is None else REVISIONS[revision].hex(),
            delivery=Delivery(**{**vars(NEVER), "max_reports": options.get("max_reports", 10_000)}),
            clock=self.clock,
        )
        client._device.sender.pause(self, 5.0)
        assert client._device.sender.is_quiet
        return client

    def person(self, name: str) -> Person:
        return self.client.person(name) if name else self.client

    def happens(self, event: Mapping[str, Any]) -> None:
        getattr(self, event["do"])(event)

    def grant(self, event: Mapping[str, Any]) -> None:
        self.person(event["person"]).grant()

    def revoke(self, event: Mapping[str, Any]) -> None:
        self.person(event["person"]).revoke(forget=event["forget"])

    def fetch(self, event: Mapping[str, Any]) -> None:
        self.transport.plan = self.transport.known = PLANS[event["plan"]]
        self.transport.server_time = (event["server_time"] or 0) // 1000
        self.client._device.keeper.fetch(1.0)
        self.transport.plan = None

    def clock_(self, event: Mapping[str, Any]) -> None:
        self.time = event["time"]

    def record(self, event: Mapping[str, Any]) -> None:
        recorded = self.person(event["person"]).record(**event["answers"])
        if "counts" in event:
            counts = Counter(recorded.dropped.values())
            counts["taken"] = len(recorded.taken)
            assert +counts == Counter(event["counts"])
            return
        assert sorted(recorded.taken) == event["taken"], self.client.status()
        assert dict(recorded.dropped) == event["dropped"], self.client.status()
        assert sorted(recorded.invalid) == event["invalid"]

    def restart(self, event: Mapping[str, Any]) -> None:
        self.client.close(0)
        self.options |= event["options"]
        self.client = self.started()

    def lose(self, event: Mapping[str, Any]) -> None:
        self.client.close(0)
        for end in ("", "-wal", "-shm"):
            self.file.with_name(self.file.name + end).unlink(missing_ok=True)
        self.client = self.started()

    def send(self, event: Mapping[str, Any]) -> None:
        transport = self.transport
        transport.answer, transport.open = event["answer"], True
        transport.now, transport.again = {}, set()
        self.client._device.sender.resume(self)
        ends = event["answer"] not in ("unreachable", "retry")
        assert self.client.flush(10.0 if ends else 0.2) == (not event["left"])
        self.client._device.sender.pause(self, 5.0)
        assert self.client._device.sender.is_quiet
        transport.open = False
        found = [shown(batch, batch.id in transport.again) for batch in transport.now.values()]
        for batch in transport.now.values():
            panels = parse(PLANS[REVISIONS.index(batch.revision)]).panels
            assert self.panels.setdefault(panels, batch.panel) == batch.panel
            assert bool(panels) <= batch.panel <= panels
        assert sorted(found, key=str) == sorted(event["offered"], key=str)
        assert outbox.left(self.client._device.store, self.survey) == event["left"]
        for pair in event.get("alike", ()):
            wanted = [event["offered"][index]["period"] for index in pair]
            codes = {
                batch.columns[0].codes for batch in transport.now.values() if batch.period in wanted
            }
            assert len(codes) == 1

    def forgets(self, event: Mapping[str, Any]) -> None:
        assert len(set(self.transport.forgotten)) == event["ids"]
        assert set(self.transport.forgotten) <= set(self.transport.offered)

    def spent(self, event: Mapping[str, Any]) -> None:
        spendings = {spending.attribute: spending for spending in self.client.spendings()}
        spending = spendings[event["attribute"]]
        assert (spending.reports, spending.life) == (event["reports"], double(event["life"]))


def shown(batch: collector_pb2.Batch, again: bool) -> dict[str, Any]:
    """Return a batch as the histories show one."""
    return {
        "plan": REVISIONS.index(batch.revision),
        "period": batch.period,
        "rows": batch.rows,
        "columns": [
            [
                c.attribute,
                c.level,
                batch.rows if not c.present else sum(map(int.bit_count, c.present)),
                *([c.map] if c.map else []),
            ]
            for c in batch.columns
        ],
        "again": again,
        **({"panel": True} if batch.panel else {}),
        **({"properties": list(batch.properties)} if batch.properties else {}),
    }


@pytest.mark.parametrize("history", CONTENT["histories"], ids=lambda each: str(each["note"]))
def test_a_history_ends_as_it_must(history: Mapping[str, Any], tmp_path: Path) -> None:
    device = Device(history, tmp_path)
    try:
        for number, event in enumerate(history["events"]):
            try:
                device.clock_(event) if event["do"] == "clock" else device.happens(event)
            except AssertionError as error:
                error.add_note(f"event {number}: {event}")
                raise
    finally:
        device.client.close(0)
