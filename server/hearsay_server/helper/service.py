"""The Helper service: the server that leads hands shares over, and gets sums of many."""

import asyncio
import logging

import grpc
from prometheus_client import Counter

from hearsay.federated.declaration import Training
from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.plans.two_servers import MOST, Splitting
from hearsay.sealed import hpke, shares
from hearsay.v1 import collector_pb2, two_servers_pb2, two_servers_pb2_grpc
from hearsay_server.clock import Clock
from hearsay_server.elsewhere.plans import Plans
from hearsay_server.helper.held import NoSum, Shares, split
from hearsay_server.ingest.intake import Reason, Refused, check_period
from hearsay_server.ingest.judge import Outcome
from hearsay_server.serving.collector import result
from hearsay_server.serving.helping import Part
from hearsay_server.serving.status import MENDED, Ended
from hearsay_server.storage.writer import MAX_REQUEST
from ldp import InvalidInput

_log = logging.getLogger("hearsay.helper")

_Asked = (
    two_servers_pb2.TakeSharesRequest | two_servers_pb2.AgreeRequest | two_servers_pb2.SumRequest
)


class Helper(two_servers_pb2_grpc.HelperServicer):
    """The Helper service, for a server that leads."""

    def __init__(
        self,
        plans: Plans[Plan],
        trainings: Plans[Training],
        held: Shares,
        clock: Clock,
        refused: Counter,
    ) -> None:
        self._plans = plans
        self._trainings = trainings
        self._held = held
        self._clock = clock
        self._refused = refused
        self._private = hpke.private_key(held.private)

    async def TakeShares(  # noqa: N802
        self, request: two_servers_pb2.TakeSharesRequest, context: object
    ) -> two_servers_pb2.TakeSharesResponse:
        count = len(request.shares)
        if count > MAX_REQUEST:
            detail = f"a request holds at most {MAX_REQUEST} shares, got {count}"
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
        if not count:
            self._check_free(request)
            return two_servers_pb2.TakeSharesResponse()
        try:
            part = await self._part(request)
            if request.revision != part.by.revision:
                detail = _kept(request.survey, part.by.revision)
                raise Refused(Reason.UNKNOWN_REVISION, detail, final=False)
            if not request.round:
                plan = await self._plans.find(request.survey)
                check_period(plan.period, request.period, self._clock())
        except Refused as refused:
            outcomes: list[Outcome] = [refused] * count
        else:
            outcomes = await self._store(part, request)
        for outcome in outcomes:
            if isinstance(outcome, Refused):
                self._refused.labels(collector_pb2.Reason.Name(outcome.reason)).inc()
        return two_servers_pb2.TakeSharesResponse(results=map(result, outcomes))

    def _check_free(self, request: two_servers_pb2.TakeSharesRequest) -> None:
        """Raise `Ended` where the helper keeps another plan, or training, of that name."""
        kept: Plan | Training | None
        kept = (self._trainings if request.round else self._plans).kept(request.survey)
        if kept is not None and kept.revision != request.revision:
            detail = _kept(request.survey, kept.revision)
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, detail)

    async def Agree(  # noqa: N802
        self, request: two_servers_pb2.AgreeRequest, context: object
    ) -> two_servers_pb2.AgreeResponse:
        ids = _ids(request.ids)
        try:
            part = await self._part(request)
        except Refused as error:
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        here = await asyncio.to_thread(self._held.waiting, part.by.name, part.bound, ids)
        return two_servers_pb2.AgreeResponse(ids=b"".join(here))

    async def Sum(  # noqa: N802
        self, request: two_servers_pb2.SumRequest, context: object
    ) -> two_servers_pb2.SumResponse:
        _ids(request.ids)
        try:
            part = await self._part(request)
            by, of = part.by, (part.by.name, part.bound, request.ids)
            total = await asyncio.to_thread(self._held.sum, *of, by.least, by.dim, by.bits)
        except (NoSum, Refused) as error:
            raise Ended(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
        return two_servers_pb2.SumResponse(sum=total)

    async def _part(self, request: _Asked) -> Part:
        """Return what is asked for; raise `Refused` where it is not known or there is none."""
        if not request.round:
            plan = await self._plans.find(request.survey)
            try:
                # Shares of updates wait under a name that is no period: no plan may sum those.
                period.start(plan.period, request.period)
            except InvalidInput as error:
                raise Refused(Reason.BAD_PERIOD, str(error)) from None
            return Part(shares.splitting(plan), request.period)
        training = await self._trainings.find(request.survey)
        if request.period or request.round > training.rounds:
            rounds = f"{training.name!r} has {training.rounds:,} rounds and no periods"
            given = f"round {request.round:,} and period {request.period!r}"
            raise Refused(Reason.BAD_PERIOD, f"{rounds}, got {given}")
        return Part(training.splitting, round=request.round)

    async def _store(self, part: Part, request: two_servers_pb2.TakeSharesRequest) -> list[Outcome]:
        outcomes = await asyncio.to_thread(self._open, part, request)
        good = {n: each for n, each in enumerate(outcomes) if isinstance(each, bytes)}
        found: list[Outcome] = [each if isinstance(each, Refused) else True for each in outcomes]
        some = [(request.shares[n].id, share) for n, share in good.items()]
        try:
            added = await asyncio.to_thread(self._held.add, part.by.name, part.bound, some)
        except Exception as error:
            # Nothing was acknowledged, so the leader will come again with the same shares.
            _log.exception("shares could not be stored")
            detail = "the shares could not be stored"
            raise Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED) from error
        for n, new in zip(good, added, strict=True):
            found[n] = new
        return found

    def _open(
        self, part: Part, request: two_servers_pb2.TakeSharesRequest
    ) -> list[bytes | Refused]:
        opened: list[bytes | Refused] = []
        for share in request.shares:
            if len(share.id) != shares.ID_BYTES:
                detail = f"an id has {shares.ID_BYTES} bytes, got {len(share.id)}"
                opened.append(Refused(Reason.BAD_SEALED, detail))
                continue
            of = (part.bound, share.id, share.sealed)
            try:
                opened.append(shares.opened(part.by, "helper", *of, self._private))
            except InvalidInput as error:
                opened.append(Refused(Reason.BAD_SEALED, str(error)))
        return opened


def check(public: bytes, by: Splitting) -> None:
    """Raise `InvalidInput` unless records are split with the helper of this key."""
    if by.helper_key != public:
        raise InvalidInput(
            f"its helper has the key {by.helper_key.hex()}, and the key here is {public.hex()}"
        )
    shares.check(by)


def _kept(name: str, revision: bytes) -> str:
    return (
        f"the helper keeps revision {revision.hex()[:12]} of {name!r} for ever, and sums no "
        "records of another one: choose another name"
    )


def _ids(data: bytes) -> list[bytes]:
    try:
        ids = split(data)
    except InvalidInput as error:
        raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
    if len(ids) > MOST:
        detail = f"a set has at most {MOST:,} records, got {len(ids):,}"
        raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
    return ids
