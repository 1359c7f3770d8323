"""What analysts call."""

import asyncio
from collections.abc import Mapping, Sequence

import grpc
import numpy as np

from hearsay.plan import Categorical, Domain, Plan
from hearsay.v1 import analyst_pb2, analyst_pb2_grpc
from hearsay_server.intake import Cohort
from hearsay_server.repeats import overstatement, widened
from hearsay_server.services.answers import Context, abort, no_survey
from hearsay_server.services.plans import Plans
from hearsay_server.store import Store
from ldp import InvalidInput, Mechanism, Tally, pooling

_QUICK = 256
"""Values up to which levels are tested and pooled by maximum likelihood unless a method is asked
for: the cost grows with their cube."""


class Analyst(analyst_pb2_grpc.AnalystServicer):
    """What analysts call."""

    def __init__(self, plans: Plans, store: Store) -> None:
        self._plans = plans
        self._store = store

    async def Estimate(  # noqa: N802
        self, request: analyst_pb2.EstimateRequest, context: Context
    ) -> analyst_pb2.EstimateResponse:
        plan = await asyncio.to_thread(self._plans.find, request.survey)
        if plan is None:
            await abort(context, grpc.StatusCode.NOT_FOUND, no_survey(request.survey))
        if request.attribute not in plan.attributes:
            await abort(
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
            await abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
        except InvalidInput as error:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))

    def _answer(
        self, plan: Plan, request: analyst_pb2.EstimateRequest
    ) -> analyst_pb2.EstimateResponse:
        tallies = self._store.tallies(
            request.survey, request.attribute, request.levels, request.periods
        )
        return _estimate(plan, request, tallies)


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
    attribute = plan.attributes[request.attribute]
    domain = attribute.domain
    cohorts = [(mechanisms[name], tally) for name, tally in by_level.items()]
    if attribute.memo and len({cohort.period for cohort in tallies}) > 1:
        answer = _pool_repeats(cohorts, request, overstatement(tallies))
    else:
        answer = _pool(domain, cohorts, request)
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


def _pool_repeats(
    cohorts: Sequence[tuple[Mechanism, Tally]],
    request: analyst_pb2.EstimateRequest,
    factor: float,
) -> pooling.Answer:
    """Pool periods in which devices repeat their memos: the reports are not independent."""
    quick = cohorts[0][0].parameters <= _QUICK
    method = request.method or ("mle" if quick else "inverse_variance")
    pooled = widened(pooling.pool(cohorts, pooling.named(method)), factor)
    warning = (
        "devices repeat their memos over these periods: errors allow for the same reports in all "
        f"of them ({factor:.3g} times those of independent ones)"
    )
    if len(cohorts) > 1:
        warning += "; whether the levels differ can be tested in one period only"
    return pooling.Answer(pooled, None, warning)
