"""The Collector service: devices fetch plans, submit batches and ask to forget them."""

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial

import grpc

from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.clock import Clock, system
from hearsay_server.ingest.intake import Limits, Reason, Refused
from hearsay_server.ingest.judge import Outcome
from hearsay_server.limits import Rates, TooMany
from hearsay_server.serving import auth
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.status import MENDED, Ended, no_survey, shortened
from hearsay_server.storage import forgetting
from hearsay_server.storage.retention import NoSurvey
from hearsay_server.storage.store import Store
from hearsay_server.storage.writer import MAX_REQUEST, Overloaded, Writer
from ldp import InvalidInput

_log = logging.getLogger("hearsay.server")

Result = collector_pb2.Result

_COUNTED_AS = {
    Result.STORED: "stored",
    Result.DUPLICATE: "duplicate",
    Result.REFUSED: "refused",
    Result.RETRY: "retry",
}


class Collector(collector_pb2_grpc.CollectorServicer):
    """The Collector service, for devices."""

    def __init__(
        self,
        store: Store,
        writer: Writer,
        metrics: Metrics,
        limits: Limits,
        rates: Rates | None = None,
        clock: Clock = system,
    ) -> None:
        self._plans = store.plans
        self._database = store.database
        self._writer = writer
        self._metrics = metrics
        self._limits = limits
        self._rates = rates
        self._clock = clock
        self._results = Results(metrics)

    async def GetPlan(  # noqa: N802
        self, request: collector_pb2.GetPlanRequest, context: object
    ) -> collector_pb2.GetPlanResponse:
        plan = self._plans.fresh(request.survey)
        if plan is None:
            plan = await asyncio.to_thread(self._plans.frozen, request.survey)
        if plan is None:
            raise no_survey(request.survey)
        return collector_pb2.GetPlanResponse(plan=plan, server_time=self._now())

    async def Submit(  # noqa: N802
        self, request: collector_pb2.SubmitRequest, context: object
    ) -> collector_pb2.SubmitResponse:
        count = len(request.batches)
        if not 1 <= count <= MAX_REQUEST:
            detail = f"a request holds 1 to {MAX_REQUEST} batches, got {count}"
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
        caller = auth.caller()
        self._metrics.received.inc(count)
        try:
            self._check_rate(caller, count)
            outcomes = await self._writer.add(request.batches, caller)
        except TooMany:
            raise
        except Overloaded as error:
            raise TooMany(str(error), "queue", retry_after=1.0) from None
        except Exception as error:
            # Nothing was acknowledged, so the client will come again with the same batches.
            _log.exception("batches could not be stored")
            detail = "the batches could not be stored"
            raise Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED) from error
        results = [result(outcome) for outcome in outcomes]
        self._results.count([batch.rows for batch in request.batches], results)
        return collector_pb2.SubmitResponse(results=results, server_time=self._now())

    async def Forget(  # noqa: N802
        self, request: collector_pb2.ForgetRequest, context: object
    ) -> collector_pb2.ForgetResponse:
        count = len(request.ids)
        if not 1 <= count <= MAX_REQUEST:
            detail = f"a request holds 1 to {MAX_REQUEST} ids, got {count}"
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)

        caller = auth.caller()

        def forget() -> Sequence[collector_pb2.ForgetResponse.Status]:
            plan = self._plans.find(request.survey)
            if plan is None:
                raise no_survey(request.survey)
            return forgetting.forget(
                self._database,
                plan,
                request.period,
                request.ids,
                self._clock(),
                caller,
                self._limits.token_rows,
            )

        try:
            self._check_rate(caller, count)
            results = await self._writer.run(partial(self._database.retrying, forget))
        except (Ended, TooMany):
            raise
        except NoSurvey as error:
            raise Ended(grpc.StatusCode.NOT_FOUND, str(error)) from None
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        except Exception as error:
            _log.exception("batches could not be forgotten")
            detail = "the batches could not be forgotten"
            raise Ended(grpc.StatusCode.UNAVAILABLE, detail, MENDED) from error
        return collector_pb2.ForgetResponse(results=results, server_time=self._now())

    def _now(self) -> int:
        """Return the server's time in seconds since 1970."""
        return int(self._clock().timestamp())

    def _check_rate(self, caller: str, count: int) -> None:
        if self._rates is None:
            return
        wait = self._rates.take(caller, count, time.monotonic())
        if wait:
            detail = f"a caller may send {self._rates.per_second:g} batches a second"
            raise TooMany(detail, "rate", wait)


class Results:
    """Count the results of batches in a server's metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._outcomes = {
            status: metrics.batches.labels(name) for status, name in _COUNTED_AS.items()
        }

    def count(self, rows: Sequence[int], results: Sequence[Result]) -> None:
        """Count the results of batches with so many rows each."""
        for count, each in zip(rows, results, strict=True):
            self._outcomes[each.status].inc()
            if each.status == Result.STORED:
                self._metrics.rows.inc(count)
            elif each.status != Result.DUPLICATE:
                self._metrics.refused.labels(Reason.Name(each.reason)).inc()


def result(outcome: Outcome) -> Result:
    """Return what became of a batch as it is answered."""
    if isinstance(outcome, Refused):
        status = Result.REFUSED if outcome.final else Result.RETRY
        return Result(status=status, reason=outcome.reason, detail=shortened(str(outcome)))
    return Result(status=Result.STORED if outcome else Result.DUPLICATE)
