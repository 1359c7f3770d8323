"""The Shuffler service: devices hand over sealed records, which gather until they are forwarded."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import grpc
from prometheus_client import Counter

from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.sealed import records
from hearsay.v1 import collector_pb2, shuffler_pb2, shuffler_pb2_grpc
from hearsay_server.clock import Clock
from hearsay_server.elsewhere.plans import Plans
from hearsay_server.ingest.intake import Reason, Refused
from hearsay_server.ingest.judge import Outcome
from hearsay_server.limits import Rates, TooMany
from hearsay_server.serving import auth
from hearsay_server.serving.collector import result
from hearsay_server.serving.status import MENDED, Ended
from hearsay_server.shuffler.pools import Pools
from hearsay_server.storage.writer import MAX_REQUEST
from ldp import InvalidInput

_log = logging.getLogger("hearsay.shuffler")

_MOST_WAITING = 8192
"""Records that may wait for the disk."""

_DAY = 86_400

_Request = tuple[Sequence[shuffler_pb2.SealedRecord], "asyncio.Future[list[bool]]"]


class Intake:
    """Writes what comes into the pools: all that waits goes into one durable transaction."""

    def __init__(
        self, pools: Pools, clock: Clock, committed: Callable[[Exception | None], Awaitable[None]]
    ) -> None:
        """Write from one thread; `committed` is told of each commit why it failed, if it did."""
        self._pools = pools
        self._clock = clock
        self._committed = committed
        self._waiting: list[_Request] = []
        self._count = 0
        self._thread = ThreadPoolExecutor(1, "hearsay-intake")
        self._running: asyncio.Task[None] | None = None

    async def add(self, some: Sequence[shuffler_pb2.SealedRecord]) -> list[bool]:
        """Return once records are durable which of them are new; raise `TooMany` at once."""
        if self._count + len(some) > _MOST_WAITING:
            raise TooMany(f"{self._count} records wait for the disk already", "queue", 1.0)
        future: asyncio.Future[list[bool]] = asyncio.get_running_loop().create_future()
        self._waiting.append((some, future))
        self._count += len(some)
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        return await future

    async def close(self) -> None:
        """Write what waits, and stop."""
        if self._running is not None:
            await asyncio.wait((self._running,))
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting, []
            some = [record for request, _ in group for record in request]
            day = int(self._clock().timestamp()) // _DAY
            try:
                added = await loop.run_in_executor(self._thread, self._pools.add, some, day)
            except Exception as error:
                await self._committed(error)
                for _, future in group:
                    if not future.done():
                        future.set_exception(error)
            else:
                await self._committed(None)
                found = iter(added)
                for request, future in group:
                    mine = [next(found) for _ in request]
                    if not future.done():  # its caller may have gone away
                        future.set_result(mine)
            self._count -= len(some)


class Shuffler(shuffler_pb2_grpc.ShufflerServicer):
    """The Shuffler service, for devices."""

    def __init__(
        self,
        plans: Plans[Plan],
        intake: Intake,
        rates: Rates | None,
        clock: Clock,
        refused: Counter,
    ) -> None:
        self._plans = plans
        self._intake = intake
        self._rates = rates
        self._clock = clock
        self._refused = refused

    async def SubmitSealed(  # noqa: N802
        self, request: shuffler_pb2.SubmitSealedRequest, context: object
    ) -> shuffler_pb2.SubmitSealedResponse:
        count = len(request.records)
        if not 1 <= count <= MAX_REQUEST:
            detail = f"a request holds 1 to {MAX_REQUEST} sealed records, got {count}"
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
        self._check_rate(count)
        outcomes: list[Outcome] = [await self._judge(record) for record in request.records]
        taken = [place for place, outcome in enumerate(outcomes) if outcome is True]
        if taken:
            try:
                added = await self._intake.add([request.records[place] for place in taken])
            except TooMany:
                raise
            except Exception as error:
                # Nothing was acknowledged, so the devices will come again with the same records.
                _log.exception("sealed records could not be stored")
                detail = "the sealed records could not be stored"
                raise Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED) from error
            for place, new in zip(taken, added, strict=True):
                outcomes[place] = new
        for outcome in outcomes:
            if isinstance(outcome, Refused):
                self._refused.labels(collector_pb2.Reason.Name(outcome.reason)).inc()
        return shuffler_pb2.SubmitSealedResponse(
            results=map(result, outcomes), server_time=int(self._clock().timestamp())
        )

    def _check_rate(self, count: int) -> None:
        if self._rates is None:
            return
        wait = self._rates.take(auth.caller(), count, time.monotonic())
        if wait:
            detail = f"a caller may send {self._rates.per_second:g} records a second"
            raise TooMany(detail, "rate", wait)

    async def _judge(self, record: shuffler_pb2.SealedRecord) -> Outcome:
        """Tell whether a record may gather, or why not."""
        try:
            plan = await self._plans.find(record.survey)
            _check(plan, record, self._clock())
        except Refused as refused:
            return refused
        return True


def _check(plan: Plan, record: shuffler_pb2.SealedRecord, now: datetime) -> None:
    """Raise `Refused` unless a record is of the plan, and of a period that may gather now."""
    size = record.ByteSize()
    record.DiscardUnknownFields()
    if record.ByteSize() != size:
        raise Refused(Reason.UNKNOWN_FIELDS, "a sealed record has fields that are unknown here")
    if record.revision != plan.revision:
        detail = f"{plan.survey!r} is at revision {plan.revision.hex()[:12]} here, and no other"
        raise Refused(Reason.UNKNOWN_REVISION, detail)
    try:
        records.check_envelope(plan, record)
    except InvalidInput as error:
        raise Refused(Reason.BAD_SEALED, str(error)) from None
    if not plan.period:
        return
    if now < period.start(plan.period, record.period):
        detail = f"the period {record.period!r} has not begun"
        raise Refused(Reason.BAD_PERIOD, detail, final=False)
    if now >= dropped_at(plan.period, record.period):
        detail = f"the period {record.period!r} ended too long ago"
        raise Refused(Reason.PERIOD_CLOSED, detail)


def dropped_at(unit: str, name: str) -> datetime:
    """Return until when records of a period are waited for: the end of the next one."""
    end = period.end(unit, name)
    return period.end(unit, period.label(unit, end))
