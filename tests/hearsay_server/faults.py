"""A driver that mixes uploads with everything that goes wrong, and knows what must be left."""

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import sqlalchemy as sa
from deployments import KEEP_DAYS, LAG_DAYS, Deployment
from measured import SURVEY, Maker
from promises import Entry, Request, Situation, counts_of

import hearsay.plans.plan
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, collector_pb2_grpc
from hearsay_server.ingest.intake import GRACE, ends
from hearsay_server.storage import retention, schema, shards
from hearsay_server.storage.database import open_database
from hearsay_server.storage.verify import Verdict, verify
from ldp.errors import InvalidInput, NotReady, StorageFailed
from support import Server

QUIET = 5
"""Every so many rounds something goes wrong."""

_TIMEOUT = 60
_MOST = 4
"""Requests for one id at once: what they may lead to is found by going through all orders."""

_DAYS_AGO = (0, 1, 2, 40, 57, 58, 59, 61)
"""Periods that are sent for: new ones, some that close soon, and one that is closed."""

_DAY = 24 * 3600

Stub = collector_pb2_grpc.CollectorStub
Reason = collector_pb2.Reason

Asked = Sequence[tuple[Entry, int | None] | str]
"""For each id in a call a version to store, or None to forget it.

For a malformed batch: what must become of it.
"""


@dataclass(frozen=True)
class _Sent:
    """A call under way, and what is asked in it."""

    call: Any
    asked: Asked


class Driver:
    """One run of random requests and faults against a deployment."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        """Start the deployment and register the survey."""
        self._deployment = deployment
        self._chance = random.Random(seed)
        self._now = datetime(2030, 1, 1, 12, tzinfo=UTC)
        self._closed = 0  # the periods that end by this second are, for certain
        self._closing = 0  # and those that end by this one perhaps
        self._entries: list[Entry] = []
        self.done: Counter[str] = Counter()
        deployment.set_clock(self._now)
        deployment.mend()
        deployment.servers[0].create(SURVEY)
        self._plan = hearsay.plans.plan.parse(deployment.servers[-1].show("faults").plan)
        self._maker = Maker(self._plan, self._chance)

    def run(self, goes_on: Callable[[int], bool]) -> None:
        """Do rounds of requests, some with a fault, while `goes_on(rounds)`; then settle."""
        faults: list[str] = []
        number = 0
        while goes_on(number):
            number += 1
            fault = None
            if number % QUIET == 0:  # each once, before any comes again
                every = sorted(self._deployment.faults)
                faults = faults or self._chance.sample(every, len(every))
                fault = faults.pop()
            self._round(fault)
            if fault is not None or self._chance.random() < 0.2:
                self._check()
        self._settle()
        self._let_all_close()

    # A round: requests, all at once, and what goes wrong meanwhile.

    def _round(self, fault: str | None) -> None:
        before, closed = self._now, self._closed
        with contextlib.ExitStack() as stack:
            stubs = [
                collector_pb2_grpc.CollectorStub(stack.enter_context(server.channel()))
                # Two connections to each: of servers that share a port, each may get one.
                for server in self._deployment.servers * 2
            ]
            pool = stack.enter_context(ThreadPoolExecutor(1))
            sent = list(self._send(stubs, many=fault is not None))
            beside = pool.submit(self._beside())
            if self._chance.random() < 0.3:
                time.sleep(self._chance.uniform(0, 0.02))
                for each in self._chance.sample(sent, min(2, len(sent))):
                    self.done["given up"] += each.call.cancel()
            if fault is not None:
                for each in sent[:1]:
                    each.call.code()  # the first commit is done, the next ones are under way
                time.sleep(self._chance.uniform(0, self._chance.choice([0.01, 0.1])))
                self._deployment.faults[fault](self._chance)
                self.done[fault] += 1
            answered = [(each.asked, _answers(each, excused=bool(fault))) for each in sent]
            _wait(beside, excused=bool(fault))
        self._learn(answered, before, closed)
        self._deployment.mend()

    def _send(self, stubs: Sequence[Stub], *, many: bool) -> Iterator[_Sent]:
        """Send requests; of a batch perhaps several, in one request or to several servers."""
        asked: Counter[bytes] = Counter()

        def some(entries: Sequence[Entry], most: int, times: int) -> list[Entry]:
            found = [e for e in entries if asked[e.id] + len(e.pending) + times <= _MOST]
            found = self._chance.sample(found, min(most, len(found)))
            asked.update({e.id: times for e in found})
            return found

        for _ in range(self._chance.randint(4, 10) * (1 + 3 * many)):
            servers = 1 if self._chance.random() < 0.6 else 2
            twice = self._chance.random() < 0.1
            times = servers * (1 + twice)
            entries = some(self._fresh(), 4, times)
            entries += some([e for e in self._entries if e.pending], 3, times)
            entries += some(self._entries[-200:], 2, times) + some(self._entries, 1, times)
            batches: list[tuple[Entry, int] | str] = [
                (entry, self._version(entry)) for entry in entries for _ in range(1 + twice)
            ]
            request = collector_pb2.SubmitRequest(
                batches=[entry.versions[version].batch for entry, version in batches]
            )
            if self._chance.random() < 0.3 and self._maker.has_room(self._period(0)):
                outcome, batch = self._maker.malformed(self._period(0))
                request.batches.append(batch)
                batches.append(outcome)
            if batches:
                self.done["batches"] += servers * len(batches)
                for stub in self._chance.sample(stubs, servers):
                    yield _Sent(stub.Submit.future(request, timeout=_TIMEOUT), batches)
        if self._chance.random() < 0.4 and (entries := some(self._entries, 1, 1)):
            period = entries[0].period
            entries += some([e for e in self._entries if e.period == period], 2, 1)
            ids = [entry.id for entry in entries]
            request = collector_pb2.ForgetRequest(survey="faults", period=period, ids=ids)
            forget = self._chance.choice(stubs).Forget
            self.done["forgotten"] += len(ids)
            yield _Sent(forget.future(request, timeout=_TIMEOUT), [(e, None) for e in entries])

    def _fresh(self) -> list[Entry]:
        """Make some new ids, of one period."""
        period = self._period(self._chance.choice(_DAYS_AGO))
        room = self._maker.has_room
        fresh = [
            self._maker.entry(period) for _ in range(self._chance.randint(0, 4)) if room(period)
        ]
        self._entries += fresh
        return fresh

    def _version(self, entry: Entry) -> int:
        """Choose a batch of an id: its own, or rarely, another one's."""
        if self._chance.random() < 0.05 and self._maker.has_room(entry.period):
            self._maker.another(entry)
            return len(entry.versions) - 1
        return self._chance.randrange(len(entry.versions))

    def _beside(self) -> Callable[[], object]:
        """Choose what happens beside the uploads: time passes, periods close, contents go."""
        kind = self._chance.random()
        if kind < 0.1:
            self._now += timedelta(days=self._chance.randint(1, 20))
            self._deployment.set_clock(self._now)
            self._closing = max(self._closing, int((self._now - GRACE).timestamp()))
            self.done["time passes"] += 1
        elif kind < 0.2:
            period = self._period(self._chance.randint(45, 58))
            until = ends("P1D", period)
            self._closing = max(self._closing, until)
            server = self._chance.choice(self._deployment.servers)
            self.done["closed"] += 1
            return lambda: self._close(server, period, until)
        elif kind < 0.4:
            self.done["swept"] += 1
            return self._sweep
        return lambda: None

    def _close(self, server: Server, period: str, until: int) -> None:
        with server.channel() as channel:
            request = admin_pb2.CloseSurveyRequest(survey="faults", period=period)
            admin_pb2_grpc.AdminStub(channel).CloseSurvey(request, timeout=_TIMEOUT)
        self._closed = max(self._closed, until)

    def _sweep(self) -> None:
        """Do what `hearsay retention` does, in this process."""
        with contextlib.closing(open_database(self._deployment.where)) as database:
            for step in retention.due(database, self._now, KEEP_DAYS):
                while step():
                    pass
        self._closed = max(self._closed, int((self._now - GRACE).timestamp()))

    def _period(self, days_ago: int) -> str:
        return f"{self._now - timedelta(days=days_ago):%Y-%m-%d}"

    # What the answers say.

    def _learn(
        self,
        answered: Iterable[tuple[Asked, Sequence[str | None]]],
        before: datetime,
        closed: int,
    ) -> None:
        requests: dict[bytes, list[Request]] = {}
        entries: dict[bytes, Entry] = {}
        for asked, answers in answered:
            for one, answer in zip(asked, answers, strict=True):
                if isinstance(one, str):
                    assert answer in (None, one), f"a malformed batch was {answer}, not {one}"
                    continue
                entry, version = one
                entries[entry.id] = entry
                requests.setdefault(entry.id, []).append(Request(version, answer))
                self.done[answer or "not answered"] += 1
        surely = int((before - timedelta(days=LAG_DAYS) - GRACE).timestamp())
        perhaps = max(int((self._now - GRACE).timestamp()), self._closing)
        for id_, entry in entries.items():
            day = int((before - timedelta(days=LAG_DAYS)).timestamp()) // _DAY
            entry.first_day = min(day, day if entry.first_day is None else entry.first_day)
            situation = Situation(
                open=entry.ends > max(surely, closed),
                closed=entry.ends <= perhaps,
                dropped=entry.first_day < self._now.timestamp() // _DAY - KEEP_DAYS,
            )
            entry.answered(requests[id_], situation)

    # What the store says.

    def _check(self) -> None:
        """Compare the store with what it may hold, and with a recount of its own batches."""
        with contextlib.closing(open_database(self._deployment.where)) as database:
            with database.reading() as connection:
                sums = shards.read(connection, schema.tallies.c.survey == "faults")
                counted = shards.counted(connection, "faults")
            differ = [each for each in verify(database) if each.verdict is Verdict.DIFFERS]
        assert not differ, f"a recount differs: {differ}"
        measured = counts_of(sums, "which")
        for entry in self._entries:
            entry.observed(measured)
        kept = [version for entry in self._entries if (version := entry.counted())]
        assert sums == self._maker.tallies(kept)
        assert {
            period: each.batches for period, each in counted.items() if each.batches
        } == Counter(version.batch.period for version in kept)

    def _settle(self) -> None:
        """Let all that is under way take effect, or not."""
        self._deployment.stop()
        self._check()
        for entry in self._entries:
            entry.pending.clear()

    def _let_all_close(self) -> None:
        """Check that once all periods are closed no id is remembered, and none counts again."""
        self._now += timedelta(days=200)
        self._deployment.set_clock(self._now)
        self._sweep()
        database = open_database(self._deployment.where)
        with contextlib.closing(database), database.reading() as connection:
            remembered = sa.select(sa.func.count()).select_from(schema.batches)
            assert connection.execute(remembered).scalar_one() == 0
        self._deployment.mend()
        with self._deployment.servers[0].channel() as channel:
            again = [version.batch for entry in self._entries[-50:] for version in entry.versions]
            submit = collector_pb2_grpc.CollectorStub(channel).Submit
            answer = submit(collector_pb2.SubmitRequest(batches=again), timeout=_TIMEOUT)
        assert {Reason.Name(each.reason) for each in answer.results} == {"PERIOD_CLOSED"}
        self._check()


def _answers(sent: _Sent, *, excused: bool) -> Sequence[str | None]:
    """Return what became of each thing that was asked, None where there was no answer."""
    code = sent.call.code()
    if code != grpc.StatusCode.OK:
        allowed = {grpc.StatusCode.CANCELLED} | (
            {grpc.StatusCode.UNAVAILABLE} if excused else set()
        )
        assert code in allowed, f"{code}: {sent.call.details()}"
        return [None] * len(sent.asked)
    answer = sent.call.result()
    if isinstance(answer, collector_pb2.ForgetResponse):
        return [collector_pb2.ForgetResponse.Status.Name(each) for each in answer.results]
    return [
        _answer(result, malformed=isinstance(one, str))
        for one, result in zip(sent.asked, answer.results, strict=True)
    ]


def _answer(result: collector_pb2.Result, *, malformed: bool) -> str:
    status = collector_pb2.Result.Status.Name(result.status)
    if not result.reason:
        return status
    reason = Reason.Name(result.reason)
    return f"{status} {reason}" if malformed else reason


def _wait(beside: Future[object], *, excused: bool) -> None:
    """Wait for what went on beside the uploads; a fault may have ended it."""
    try:
        beside.result()
    except (grpc.RpcError, sa.exc.DBAPIError, InvalidInput, NotReady, StorageFailed):
        if not excused:
            raise
