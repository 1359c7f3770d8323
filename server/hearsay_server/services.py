"""The three services, each a thin layer over the store and the mathematics."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import grpc
import numpy as np

import hearsay.plan
from hearsay.plan import Categorical, Domain, Plan
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    analyst_pb2,
    analyst_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
)
from hearsay_server import survey as surveys
from hearsay_server.intake import Cohort, Reason, Refused, decode
from hearsay_server.store import Store, StoredSurvey
from hearsay_server.writer import MAX_REQUEST, Outcome, Overloaded, Writer
from ldp import InvalidInput, Mechanism, Tally, pooling

_log = logging.getLogger("hearsay.server")

_QUICK = 256
"""Values up to which levels are tested and pooled by maximum likelihood unless a method is asked
for: the cost grows with their cube."""

Clock = Callable[[], datetime]
Context = grpc.aio.ServicerContext[Any, Any]
Result = collector_pb2.Result


class Plans:
    """The plans of the registered surveys, by name: what every batch is checked against."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._plans: dict[str, tuple[bytes, Plan]] = {}
        for stored in store.surveys():
            self._keep(stored)

    def find(self, survey: str) -> Plan | None:
        """Return a survey's plan, or None."""
        return self._plans[survey][1] if survey in self._plans else None

    def frozen(self, survey: str) -> bytes | None:
        """Return the bytes of a survey's plan, or None."""
        return self._plans[survey][0] if survey in self._plans else None

    def create(self, plan: bytes) -> StoredSurvey:
        """Register a plan; raise `InvalidInput` where its survey has another one."""
        parsed = hearsay.plan.parse(plan)
        stored = self._store.create_survey(parsed.survey, parsed.revision, plan)
        self._keep(stored)
        return stored

    def _keep(self, stored: StoredSurvey) -> None:
        self._plans[stored.survey] = (stored.plan, hearsay.plan.parse(stored.plan))


def decoder(
    plans: Plans, clock: Clock = lambda: datetime.now(UTC)
) -> Callable[[collector_pb2.Batch], Mapping[Cohort, Tally]]:
    """Return what turns a batch into tallies, or raises `Refused` and nothing else."""

    def decode_one(batch: collector_pb2.Batch) -> Mapping[Cohort, Tally]:
        try:
            return decode(batch, plans.find, clock())
        except Refused:
            raise
        except Exception as error:
            # A fault of ours: it must neither lose the batch nor hold up those beside it.
            _log.exception("a batch could not be decoded")
            detail = "the server failed to decode it"
            raise Refused(Reason.REASON_UNSPECIFIED, detail, final=False) from error

    return decode_one


class Collector(collector_pb2_grpc.CollectorServicer):
    """What devices call."""

    def __init__(self, plans: Plans, writer: Writer) -> None:
        self._plans = plans
        self._writer = writer

    async def GetPlan(  # noqa: N802
        self, request: collector_pb2.GetPlanRequest, context: Context
    ) -> collector_pb2.GetPlanResponse:
        plan = self._plans.frozen(request.survey)
        if plan is None:
            await _abort(context, grpc.StatusCode.NOT_FOUND, _no_survey(request.survey))
        return collector_pb2.GetPlanResponse(plan=plan)

    async def Submit(  # noqa: N802
        self, request: collector_pb2.SubmitRequest, context: Context
    ) -> collector_pb2.SubmitResponse:
        if not 1 <= len(request.batches) <= MAX_REQUEST:
            await _abort(
                context,
                grpc.StatusCode.INVALID_ARGUMENT,
                f"a request holds 1 to {MAX_REQUEST} batches, got {len(request.batches)}",
            )
        try:
            outcomes = await self._writer.add(request.batches)
        except Overloaded as error:
            await _abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except Exception:
            # Nothing was acknowledged, so the client will come again with the same batches.
            _log.exception("batches could not be stored")
            await _abort(context, grpc.StatusCode.UNAVAILABLE, "the batches could not be stored")
        return collector_pb2.SubmitResponse(results=map(_result, outcomes))


def _result(outcome: Outcome) -> Result:
    if isinstance(outcome, Refused):
        status = Result.REFUSED if outcome.final else Result.RETRY
        return Result(status=status, reason=outcome.reason, detail=str(outcome))
    return Result(status=Result.STORED if outcome else Result.DUPLICATE)


class Analyst(analyst_pb2_grpc.AnalystServicer):
    """What analysts call."""

    def __init__(self, plans: Plans, store: Store) -> None:
        self._plans = plans
        self._store = store

    async def Estimate(  # noqa: N802
        self, request: analyst_pb2.EstimateRequest, context: Context
    ) -> analyst_pb2.EstimateResponse:
        plan = self._plans.find(request.survey)
        if plan is None:
            await _abort(context, grpc.StatusCode.NOT_FOUND, _no_survey(request.survey))
        if request.attribute not in plan.attributes:
            await _abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"{plan.survey!r} has no attribute {request.attribute!r}; "
                f"it has {', '.join(plan.attributes)}",
            )
        try:
            for level in request.levels:
                plan.level(level)
            return await asyncio.to_thread(self._answer, plan, request)
        except _NoReports as error:
            await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except InvalidInput as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _answer(
        self, plan: Plan, request: analyst_pb2.EstimateRequest
    ) -> analyst_pb2.EstimateResponse:
        tallies = self._store.tallies(
            request.survey, request.attribute, request.levels, request.periods
        )
        return _estimate(plan, request, tallies)


class Admin(admin_pb2_grpc.AdminServicer):
    """What operators call."""

    def __init__(self, plans: Plans, store: Store, writer: Writer) -> None:
        self._plans = plans
        self._store = store
        self._writer = writer

    async def CreateSurvey(  # noqa: N802
        self, request: admin_pb2.CreateSurveyRequest, context: Context
    ) -> admin_pb2.SurveyStatus:
        try:
            plan = await asyncio.to_thread(surveys.resolve, request.survey)
        except InvalidInput as error:
            await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        try:
            return _status(await self._writer.run(lambda: self._plans.create(plan)))
        except InvalidInput as error:
            await _abort(context, grpc.StatusCode.ALREADY_EXISTS, str(error))

    async def ListSurveys(  # noqa: N802
        self, request: admin_pb2.ListSurveysRequest, context: Context
    ) -> admin_pb2.ListSurveysResponse:
        found = await asyncio.to_thread(self._store.surveys)
        return admin_pb2.ListSurveysResponse(surveys=map(_status, found))

    async def ShowSurvey(  # noqa: N802
        self, request: admin_pb2.ShowSurveyRequest, context: Context
    ) -> admin_pb2.ShowSurveyResponse:
        stored = await asyncio.to_thread(self._store.surveys)
        found = [s for s in stored if s.survey == request.survey]
        if not found:
            await _abort(context, grpc.StatusCode.NOT_FOUND, _no_survey(request.survey))
        return admin_pb2.ShowSurveyResponse(status=_status(found[0]), plan=found[0].plan)


class _NoReports(InvalidInput):
    """There is nothing to estimate from."""


def _estimate(
    plan: Plan, request: analyst_pb2.EstimateRequest, tallies: Mapping[Cohort, Tally]
) -> analyst_pb2.EstimateResponse:
    """Pool the cohorts: periods of one level add up, levels are tested and pooled."""
    mechanisms: dict[str, Mechanism] = {
        name: level.mechanisms[request.attribute] for name, level in plan.levels.items()
    }
    if not tallies:
        raise _NoReports(f"there are no such reports of {request.attribute!r} yet")
    by_level: dict[str, Tally] = {}
    for cohort, tally in tallies.items():
        known = by_level.get(cohort.level)
        by_level[cohort.level] = tally if known is None else known + tally
    domain = plan.attributes[request.attribute].domain
    answer = _pool(domain, [(mechanisms[name], tally) for name, tally in by_level.items()], request)
    pooled = answer.estimate
    if isinstance(domain, Categorical):
        statistic, labels = "frequency", list(domain.values)
    else:
        statistic, labels = "mean", ["mean"]
        pooled = pooled.rescaled((domain.low, domain.high))
    confidence = request.confidence if request.HasField("confidence") else 0.95
    low, high = pooled.interval(confidence, simultaneous=request.simultaneous)
    columns = np.stack([pooled.value, pooled.standard_error, low, high], axis=1)
    return analyst_pb2.EstimateResponse(
        survey=plan.survey,
        attribute=request.attribute,
        statistic=statistic,
        confidence=confidence,
        simultaneous=request.simultaneous,
        reports=pooled.n,
        rows=[
            analyst_pb2.Row(
                label=label, estimate=row[0], standard_error=row[1], low=row[2], high=row[3]
            )
            for label, row in zip(labels, columns.tolist(), strict=True)
        ],
        cohorts=[
            analyst_pb2.Cohort(
                revision=cohort.revision,
                level=cohort.level,
                period=cohort.period,
                epsilon=mechanisms[cohort.level].realised_epsilon,
                mechanism=mechanisms[cohort.level].name,
                reports=tally.n,
            )
            for cohort, tally in tallies.items()
        ],
        method=pooled.method,
        homogeneity=answer.homogeneity.p_value if answer.homogeneity else None,
        warning=answer.warning,
    )


def _pool(
    domain: Domain,
    cohorts: Sequence[tuple[Mechanism, Tally]],
    request: analyst_pb2.EstimateRequest,
) -> pooling.Answer:
    """Test and pool by the method asked for; where none is, by the best that takes a blink."""
    if request.method:
        return pooling.answer(cohorts, pooling.named(request.method))
    if isinstance(domain, Categorical) and len(domain.values) > _QUICK:
        pooled = pooling.pool(cohorts, "inverse_variance")
        untested = f"with more than {_QUICK} values, whether the levels differ was not tested"
        return pooling.Answer(pooled, None, untested if len(cohorts) > 1 else "")
    return pooling.answer(cohorts)


def _status(stored: StoredSurvey) -> admin_pb2.SurveyStatus:
    return admin_pb2.SurveyStatus(
        survey=stored.survey,
        title=hearsay.plan.parse(stored.plan).title,
        revision=stored.revision,
        batches=stored.batches,
        records=stored.records,
    )


def _no_survey(name: str) -> str:
    return f"there is no survey {name!r} here"


async def _abort(context: Context, code: grpc.StatusCode, detail: str) -> NoReturn:
    await context.abort(code, detail)
    raise AssertionError("abort always raises")
