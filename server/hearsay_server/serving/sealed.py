"""The SealedCollector service: sealed records from a shuffler are opened and counted."""

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import grpc

from hearsay.plans.plan import Plan
from hearsay.sealed import records
from hearsay.v1 import collector_pb2, shuffler_pb2, shuffler_pb2_grpc
from hearsay_server.clock import Clock, system
from hearsay_server.ingest.intake import Reason, Refused
from hearsay_server.ingest.judge import Outcome
from hearsay_server.limits import TooMany
from hearsay_server.serving.collector import Results, result
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.status import MENDED, Ended
from hearsay_server.storage import forgetting, mixes
from hearsay_server.storage.retention import NoSurvey
from hearsay_server.storage.sealing_keys import Keys
from hearsay_server.storage.store import MIXED, Store
from hearsay_server.storage.writer import MAX_REQUEST, Overloaded, Writer
from ldp import InvalidInput

_log = logging.getLogger("hearsay.server")

_MIX_BYTES = 16

Opened = collector_pb2.Batch | shuffler_pb2.Forget | Refused


class SealedCollector(shuffler_pb2_grpc.SealedCollectorServicer):
    """The SealedCollector service, for shufflers."""

    def __init__(
        self, store: Store, writer: Writer, metrics: Metrics, clock: Clock = system
    ) -> None:
        self._plans = store.plans
        self._database = store.database
        self._keys = Keys(store.database)
        self._writer = writer
        self._metrics = metrics
        self._results = Results(metrics)
        self._clock = clock

    async def SubmitSealed(  # noqa: N802
        self, request: shuffler_pb2.SubmitSealedRequest, context: object
    ) -> shuffler_pb2.SubmitSealedResponse:
        count = len(request.records)
        if not 1 <= count <= MAX_REQUEST:
            detail = f"a request holds 1 to {MAX_REQUEST} sealed records, got {count}"
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
        if len(request.mix) not in (0, _MIX_BYTES):
            detail = f"a mix has {_MIX_BYTES} bytes, or none, got {len(request.mix)}"
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
        self._metrics.received.inc(count)
        try:
            opened = await asyncio.to_thread(self._open, request.records)
            outcomes = await self._count(request.records, opened)
            await self._mixed(request.mix, opened, outcomes)
        except Overloaded as error:
            raise TooMany(str(error), "queue", retry_after=1.0) from None
        except Exception as error:
            # Nothing was acknowledged, so the shuffler will come again with the same records.
            _log.exception("sealed records could not be stored")
            detail = "the sealed records could not be stored"
            raise Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED) from error
        results = [result(outcome) for outcome in outcomes]
        rows = [int(isinstance(each, collector_pb2.Batch)) for each in opened]
        self._results.count(rows, results)
        now = int(self._clock().timestamp())
        return shuffler_pb2.SubmitSealedResponse(results=results, server_time=now)

    async def _mixed(
        self, mix: bytes, opened: Sequence[Opened], outcomes: Sequence[Outcome]
    ) -> None:
        """Count the records of a mix that are new; those of none are in no claim."""
        kinds = Counter(
            (each.survey, each.revision, each.period, mixes.told(each))
            for each, outcome in zip(opened, outcomes, strict=True)
            if isinstance(each, collector_pb2.Batch) and outcome is True
        )
        if mix and kinds:
            await self._writer.run(partial(mixes.count, self._database, mix, kinds))

    async def _count(
        self, sealed: Sequence[shuffler_pb2.SealedRecord], opened: Sequence[Opened]
    ) -> list[Outcome]:
        found: list[Outcome] = [each if isinstance(each, Refused) else True for each in opened]
        # Requests to forget come last: so a record of the same group is not stored after all.
        batches = {
            n: each for n, each in enumerate(opened) if isinstance(each, collector_pb2.Batch)
        }
        if batches:
            outcomes = await self._writer.add(list(batches.values()), MIXED)
            found = _with(found, zip(batches, outcomes, strict=True))
        forgets: defaultdict[tuple[str, str], dict[int, bytes]] = defaultdict(dict)
        for position, each in enumerate(opened):
            if isinstance(each, shuffler_pb2.Forget):
                forgets[sealed[position].survey, each.period][position] = each.id
        for (survey, period), ids in forgets.items():
            found = _with(found, (await self._forget(survey, period, ids)).items())
        return found

    def _open(self, sealed: Sequence[shuffler_pb2.SealedRecord]) -> list[Opened]:
        plans = {name: self._plans.find(name) for name in {record.survey for record in sealed}}
        opened: list[Opened] = []
        for record in sealed:
            try:
                opened.append(self._opened(record, plans))
            except Refused as refused:
                opened.append(refused)
            except InvalidInput as error:
                opened.append(Refused(Reason.BAD_SEALED, str(error)))
        return opened

    def _opened(
        self, record: shuffler_pb2.SealedRecord, plans: Mapping[str, Plan | None]
    ) -> collector_pb2.Batch | shuffler_pb2.Forget:
        """Open a record; raise `Refused`, or `InvalidInput` where it can never be opened."""
        plan = plans[record.survey]
        if plan is None:
            detail = f"there is no survey {record.survey!r} here"
            raise Refused(Reason.UNKNOWN_SURVEY, detail, final=False)
        if record.revision != plan.revision:
            detail = f"{plan.survey!r} is at revision {plan.revision.hex()[:12]}"
            raise Refused(Reason.UNKNOWN_REVISION, detail, final=False)
        records.check_envelope(plan, record)
        private = self._keys.of(plan).get(record.key)
        if private is None:
            detail = f"the key of {record.period!r} is deleted: its periods are closed"
            raise Refused(Reason.PERIOD_CLOSED, detail)
        content = records.opened(plan, record, private)
        return content.batch if content.HasField("batch") else content.forget

    async def _forget(
        self, survey: str, period: str, ids: Mapping[int, bytes]
    ) -> dict[int, Outcome]:
        """Forget batches of a survey and period; return by position what became of each request.

        A request is answered STORED once it is done. Where the server is not willing to remember
        as many ids that never came, the shuffler is to come again.
        """

        def forget(some: Sequence[bytes]) -> object:
            plan = self._plans.find(survey)
            if plan is None:
                raise NoSurvey(f"there is no survey {survey!r} here")
            return forgetting.forget(self._database, plan, period, some, self._clock(), MIXED, 0)

        try:
            together = partial(forget, list(ids.values()))
            await self._writer.run(partial(self._database.retrying, together))
        except TooMany as error:
            if len(ids) == 1:
                refused = Refused(Reason.OVER_QUOTA, str(error), final=False)
                return dict.fromkeys(ids, refused)
        except NoSurvey as error:
            return dict.fromkeys(ids, Refused(Reason.UNKNOWN_SURVEY, str(error), final=False))
        except InvalidInput as error:
            if len(ids) == 1:
                return dict.fromkeys(ids, Refused(Reason.BAD_SEALED, str(error)))
        else:
            return dict.fromkeys(ids, True)
        # One of them is at fault: each by itself.
        alone = [await self._forget(survey, period, {n: each}) for n, each in ids.items()]
        return {position: outcome for one in alone for position, outcome in one.items()}


def _with(outcomes: list[Outcome], some: Iterable[tuple[int, Outcome]]) -> list[Outcome]:
    found = dict(enumerate(outcomes)) | dict(some)
    return [found[position] for position in range(len(outcomes))]
