"""The Helper service: the server that leads hands shares over, and gets sums of many."""

import asyncio
import logging
from datetime import datetime

import grpc
from prometheus_client import Counter

from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import MOST
from hearsay.sealed import hpke, shares
from hearsay.v1 import collector_pb2, two_servers_pb2, two_servers_pb2_grpc
from hearsay_server.clock import Clock
from hearsay_server.elsewhere.plans import Plans
from hearsay_server.helper.held import NoSum, Shares, split
from hearsay_server.ingest.intake import Reason, Refused, check_period
from hearsay_server.ingest.judge import Outcome
from hearsay_server.serving.collector import result
from hearsay_server.serving.status import MENDED, Ended
from hearsay_server.storage.writer import MAX_REQUEST
from ldp import InvalidInput

_log = logging.getLogger("hearsay.helper")


class Helper(two_servers_pb2_grpc.HelperServicer):
    """The Helper service, for a server that leads."""

    def __init__(self, plans: Plans, held: Shares, clock: Clock, refused: Counter) -> None:
        self._plans = plans
        self._held = held
        self._clock = clock
        self._refused = refused
        self._private = hpke.private_key(held.private)

    async def TakeShares(  # noqa: N802
        self, request: two_servers_pb2.TakeSharesRequest, context: object
    ) -> two_servers_pb2.TakeSharesResponse:
        count = len(request.shares)
        if not 1 <= count <= MAX_REQUEST:
            detail = f"a request holds 1 to {MAX_REQUEST} shares, got {count}"
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
        try:
            plan = await self._plan(request.survey)
            _check(plan, request, self._clock())
        except Refused as refused:
            outcomes: list[Outcome] = [refused] * count
        else:
            outcomes = await self._store(plan, request)
        for outcome in outcomes:
            if isinstance(outcome, Refused):
                self._refused.labels(collector_pb2.Reason.Name(outcome.reason)).inc()
        return two_servers_pb2.TakeSharesResponse(results=map(result, outcomes))

    async def Agree(  # noqa: N802
        self, request: two_servers_pb2.AgreeRequest, context: object
    ) -> two_servers_pb2.AgreeResponse:
        ids = _ids(request.ids)
        here = await asyncio.to_thread(self._held.waiting, request.survey, request.period, ids)
        return two_servers_pb2.AgreeResponse(ids=b"".join(here))

    async def Sum(  # noqa: N802
        self, request: two_servers_pb2.SumRequest, context: object
    ) -> two_servers_pb2.SumResponse:
        _ids(request.ids)
        try:
            two = shares.of(await self._plan(request.survey))
            of = (request.survey, request.period, request.ids)
            total = await asyncio.to_thread(
                self._held.sum, *of, two.least, two.layout.dim, two.bits
            )
        except (NoSum, Refused) as error:
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        return two_servers_pb2.SumResponse(sum=total)

    async def _plan(self, survey: str) -> Plan:
        return await self._plans.find(survey)

    async def _store(self, plan: Plan, request: two_servers_pb2.TakeSharesRequest) -> list[Outcome]:
        outcomes = await asyncio.to_thread(self._open, plan, request)
        good = {n: each for n, each in enumerate(outcomes) if isinstance(each, bytes)}
        found: list[Outcome] = [each if isinstance(each, Refused) else True for each in outcomes]
        some = [(request.shares[n].id, share) for n, share in good.items()]
        try:
            added = await asyncio.to_thread(self._held.add, plan.survey, request.period, some)
        except Exception as error:
            # Nothing was acknowledged, so the leader will come again with the same shares.
            _log.exception("shares could not be stored")
            detail = "the shares could not be stored"
            raise Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED) from error
        for n, new in zip(good, added, strict=True):
            found[n] = new
        return found

    def _open(
        self, plan: Plan, request: two_servers_pb2.TakeSharesRequest
    ) -> list[bytes | Refused]:
        opened: list[bytes | Refused] = []
        for share in request.shares:
            where = (request.period, share.id)
            try:
                opened.append(shares.opened(plan, "helper", *where, share.sealed, self._private))
            except InvalidInput as error:
                opened.append(Refused(Reason.BAD_SEALED, str(error)))
        return opened


def check(public: bytes, plan: Plan) -> None:
    """Raise `InvalidInput` unless a plan's records are split with the helper of this key."""
    two = shares.of(plan)
    if two.helper_key != public:
        raise InvalidInput(
            f"its helper has the key {two.helper_key.hex()}, and the key here is {public.hex()}"
        )
    shares.check(plan)


def _ids(data: bytes) -> list[bytes]:
    try:
        ids = split(data)
    except InvalidInput as error:
        raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
    if len(ids) > MOST:
        detail = f"a set has at most {MOST:,} records, got {len(ids):,}"
        raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
    return ids


def _check(plan: Plan, request: two_servers_pb2.TakeSharesRequest, now: datetime) -> None:
    """Raise `Refused` unless shares are of the plan, and of a period that may be collected now."""
    if request.revision != plan.revision:
        detail = f"{plan.survey!r} is at revision {plan.revision.hex()[:12]} here, and no other"
        raise Refused(Reason.UNKNOWN_REVISION, detail, final=False)
    try:
        period.start(plan.period, request.period)
    except InvalidInput as error:
        raise Refused(Reason.BAD_PERIOD, str(error)) from None
    check_period(plan.period, request.period, now)
