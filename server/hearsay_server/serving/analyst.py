"""What analysts call."""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import astuple
from functools import partial
from typing import TypeVar

import grpc
import numpy as np
from google.protobuf.message import Message

import hearsay.plan
from hearsay.plan import Categorical, Plan
from hearsay.v1 import analyst_pb2, analyst_pb2_grpc, collector_pb2
from hearsay_server.answers import queries, rows
from hearsay_server.answers.distributions import distribution
from hearsay_server.answers.queries import NoReports, Question, Tallies, check_periods
from hearsay_server.serving.pool import Pool
from hearsay_server.serving.status import Context, abort, no_survey
from hearsay_server.storage.store import Store
from ldp import InvalidInput
from ldp.assurance import suspicion

_CACHED = 256
"""Answers that are kept, by what they were computed from."""

_INTERVAL = 1.0
_LEAST_INTERVAL = 0.1
"""Seconds between two answers of `Watch`: unless asked for, and at least."""

_TARGETS = 3
"""Values tested for being supported together, unless some are named: fewer hide among honest
reports, and more are rarely in one bucket of a hash."""

_Value = TypeVar("_Value")
_Answer = TypeVar("_Answer", bound=Message)

By = analyst_pb2.EstimateByRequest


class Analyst(analyst_pb2_grpc.AnalystServicer):
    """What analysts call."""

    def __init__(self, store: Store, pool: Pool) -> None:
        self._plans = store.plans
        self._store = store
        self._pool = pool
        self._answers = _Cache()
        self._stopping = asyncio.Event()

    def stop_watching(self) -> None:
        """Let those who watch an estimate go: they would outlast any grace."""
        self._stopping.set()

    async def Estimate(  # noqa: N802
        self, request: analyst_pb2.EstimateRequest, context: Context
    ) -> analyst_pb2.EstimateResponse:
        plan = await self._plan(request.survey, context, request.attribute)
        return await self._within(context, lambda: self._estimate(plan, request))

    async def EstimateBy(  # noqa: N802
        self, request: analyst_pb2.EstimateByRequest, context: Context
    ) -> AsyncIterator[analyst_pb2.EstimateResponse]:
        question = request.question
        plan = await self._plan(question.survey, context, question.attribute)
        if request.by not in (By.LEVEL, By.PERIOD):
            detail = f"by must be LEVEL or PERIOD, got {request.by}"
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, detail)
        tallies = await self._within(context, lambda: self._tallies(plan, question))
        for group, part in _grouped(plan, tallies, request.by).items():
            yield await self._within(context, partial(self._answer, plan, question, part, group))

    async def Watch(  # noqa: N802
        self, request: analyst_pb2.WatchRequest, context: Context
    ) -> AsyncIterator[analyst_pb2.EstimateResponse]:
        question = request.question
        plan = await self._plan(question.survey, context, question.attribute)
        interval = request.interval or _INTERVAL
        if not _LEAST_INTERVAL <= interval < float("inf"):
            detail = f"the interval must be at least {_LEAST_INTERVAL} seconds, got {interval:g}"
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, detail)
        last: Tallies = {}
        while not self._stopping.is_set():
            tallies = await self._within(context, lambda: self._tallies(plan, question, none=True))
            if tallies != last:
                last = tallies
                yield await self._within(context, partial(self._answer, plan, question, tallies))
            try:
                await asyncio.wait_for(self._stopping.wait(), interval)
            except TimeoutError:
                continue

    async def Distribution(  # noqa: N802
        self, request: analyst_pb2.DistributionRequest, context: Context
    ) -> analyst_pb2.DistributionResponse:
        plan = await self._plan(request.survey, context, request.attribute)

        def answer() -> analyst_pb2.DistributionResponse:
            tallies = self._tallies(plan, request)
            return self._answers.get(request, tallies, lambda: distribution(plan, request, tallies))

        return await self._within(context, answer)

    async def Suspicions(  # noqa: N802
        self, request: analyst_pb2.SuspicionsRequest, context: Context
    ) -> analyst_pb2.SuspicionsResponse:
        plan = await self._plan(request.survey, context, request.attribute)
        return await self._within(context, lambda: self._suspicions(plan, request))

    async def ExportRows(  # noqa: N802
        self, request: analyst_pb2.ExportRowsRequest, context: Context
    ) -> AsyncIterator[analyst_pb2.ExportRowsResponse]:
        frozen = await asyncio.to_thread(self._plans.frozen, request.survey)
        if frozen is None:
            await abort(context, grpc.StatusCode.NOT_FOUND, no_survey(request.survey))
        plan = hearsay.plan.parse(frozen)
        pages = await self._within(context, lambda: self._pages(plan, request))
        yield analyst_pb2.ExportRowsResponse(plan=frozen)
        chunks = rows.chunks(plan, pages, np.random.default_rng())
        while (chunk := await self._pool.run(lambda: next(chunks, None))) is not None:
            yield chunk

    async def _within(self, context: Context, answer: Callable[[], _Value]) -> _Value:
        """Compute in a thread of analysts' own; end the call with a status where there is none."""
        try:
            return await self._pool.run(answer)
        except NoReports as error:
            await abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except InvalidInput as error:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))

    async def _plan(self, survey: str, context: Context, attribute: str) -> Plan:
        plan = await asyncio.to_thread(self._plans.find, survey)
        if plan is None:
            await abort(context, grpc.StatusCode.NOT_FOUND, no_survey(survey))
        if attribute not in plan.attributes:
            await abort(
                context,
                grpc.StatusCode.NOT_FOUND,
                f"{plan.survey!r} has no attribute {attribute!r}; "
                f"it has {', '.join(plan.attributes)}",
            )
        return plan

    def _tallies(
        self,
        plan: Plan,
        question: analyst_pb2.EstimateRequest
        | analyst_pb2.DistributionRequest
        | analyst_pb2.SuspicionsRequest,
        *,
        none: bool = False,
    ) -> Tallies:
        """Return the tallies asked for; raise `NoReports` where there are none, unless `none`."""
        for level in question.levels:
            plan.level(level)
        check_periods(plan, question)
        tallies = self._store.tallies(
            question.survey,
            question.attribute,
            question.levels or plan.levels,
            question.periods,
            question.first_period,
            question.last_period,
        )
        if not tallies and not none:
            raise NoReports(f"there are no such reports of {question.attribute!r} yet")
        return tallies

    def _estimate(
        self, plan: Plan, question: analyst_pb2.EstimateRequest
    ) -> analyst_pb2.EstimateResponse:
        return self._answer(plan, question, self._tallies(plan, question))

    def _answer(
        self,
        plan: Plan,
        question: analyst_pb2.EstimateRequest,
        tallies: Tallies,
        group: str = "",
    ) -> analyst_pb2.EstimateResponse:
        answer = self._answers.get(
            question, tallies, lambda: queries.estimate(plan, question, tallies)
        )
        if not group:
            return answer
        named = analyst_pb2.EstimateResponse(group=group)
        named.MergeFrom(answer)
        return named

    def _pages(self, plan: Plan, question: Question) -> Iterator[list[collector_pb2.Batch]]:
        """Return the stored batches of the periods asked for, by page."""
        check_periods(plan, question)
        first, last = question.first_period, question.last_period
        return self._store.batches(plan.survey, question.periods, first, last)

    def _suspicions(
        self, plan: Plan, question: analyst_pb2.SuspicionsRequest
    ) -> analyst_pb2.SuspicionsResponse:
        tallies = self._tallies(plan, question)
        domain = plan.attributes[question.attribute].domain
        if not isinstance(domain, Categorical):
            raise InvalidInput(f"{question.attribute!r} is a number: the tests are for values")
        if queries.repeats_memos(plan, question.attribute, tallies):
            raise InvalidInput(
                "devices repeat their memos over periods, and the tests are for independent "
                "reports: ask for one period"
            )
        if question.targets:
            targets = [domain.encode(target) for target in question.targets]
        else:
            pooled = queries.pooled(plan, question.attribute, tallies, "inverse_variance")
            targets = np.argsort(-pooled.estimate.value, kind="stable")[:_TARGETS].tolist()
        levels = dict.fromkeys(cohort.level for cohort in tallies)
        found = rows.supports_by_level(
            plan, question.attribute, levels, targets, self._pages(plan, question)
        )
        mechanisms = {name: plan.levels[name].mechanisms[question.attribute] for name in found}
        few = [name for name, s in found.items() if not suspicion.has_gap(mechanisms[name], s.n)]
        return analyst_pb2.SuspicionsResponse(
            targets=[domain.values[target] for target in targets],
            warning=f"too few reports for norm_sub_gap at {', '.join(few)}" if few else "",
            suspicions=[
                analyst_pb2.Suspicion(
                    level=level,
                    reports=seen.n,
                    test=each.test,
                    statistic=each.statistic,
                    p_value=each.p_value,
                )
                for level, seen in found.items()
                for each in suspicion.suspicions(mechanisms[level], seen)
            ],
        )


def _grouped(plan: Plan, tallies: Tallies, by: By.By) -> dict[str, Tallies]:
    """Return the tallies of each level, in the plan's order, or of each period, in time's."""
    if by == By.LEVEL:
        groups: dict[str, Tallies] = {
            level: {c: t for c, t in tallies.items() if c.level == level} for level in plan.levels
        }
        return {level: part for level, part in groups.items() if part}
    periods = sorted({cohort.period for cohort in tallies})
    return {name: {c: t for c, t in tallies.items() if c.period == name} for name in periods}


class _Cache:
    """The last answers, by the question and the tallies that they are of.

    Nothing has to be forgotten when reports come in: other tallies make another key.
    """

    def __init__(self) -> None:
        self._answers: OrderedDict[bytes, Message] = OrderedDict()

    def get(self, question: Message, tallies: Tallies, compute: Callable[[], _Answer]) -> _Answer:
        """Return what was computed for these, or compute it."""
        digest = hashlib.blake2b(type(question).__name__.encode(), digest_size=16)
        digest.update(question.SerializeToString(deterministic=True))
        for cohort, tally in tallies.items():
            digest.update(repr(astuple(cohort)).encode())
            digest.update(tally.to_bytes())
        key = digest.digest()
        known = self._answers.pop(key, None)
        answer: _Answer = compute() if known is None else known  # type: ignore[assignment]
        self._answers[key] = answer
        try:
            while len(self._answers) > _CACHED:
                self._answers.popitem(last=False)
        except KeyError:
            pass
        return answer
