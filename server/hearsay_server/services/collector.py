"""What devices call."""

import asyncio
import logging

import grpc

from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.intake import Refused
from hearsay_server.services.answers import Context, abort, no_survey
from hearsay_server.services.plans import Plans
from hearsay_server.writer import MAX_REQUEST, Outcome, Overloaded, Writer

_log = logging.getLogger("hearsay.server")

Result = collector_pb2.Result


class Collector(collector_pb2_grpc.CollectorServicer):
    """What devices call."""

    def __init__(self, plans: Plans, writer: Writer) -> None:
        self._plans = plans
        self._writer = writer

    async def GetPlan(  # noqa: N802
        self, request: collector_pb2.GetPlanRequest, context: Context
    ) -> collector_pb2.GetPlanResponse:
        plan = await asyncio.to_thread(self._plans.frozen, request.survey)
        if plan is None:
            await abort(context, grpc.StatusCode.NOT_FOUND, no_survey(request.survey))
        return collector_pb2.GetPlanResponse(plan=plan)

    async def Submit(  # noqa: N802
        self, request: collector_pb2.SubmitRequest, context: Context
    ) -> collector_pb2.SubmitResponse:
        if not 1 <= len(request.batches) <= MAX_REQUEST:
            await abort(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a request holds 1 to {MAX_REQUEST} batches, got {len(request.batches)}",
            )
        try:
            outcomes = await self._writer.add(request.batches)
        except Overloaded as error:
            await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except Exception:
            # Nothing was acknowledged, so the client will come again with the same batches.
            _log.exception("batches could not be stored")
            await abort(context, grpc.StatusCode.UNAVAILABLE, "the batches could not be stored")
        return collector_pb2.SubmitResponse(results=map(_result, outcomes))


def _result(outcome: Outcome) -> Result:
    if isinstance(outcome, Refused):
        status = Result.REFUSED if outcome.final else Result.RETRY
        return Result(status=status, reason=outcome.reason, detail=str(outcome))
    return Result(status=Result.STORED if outcome else Result.DUPLICATE)
