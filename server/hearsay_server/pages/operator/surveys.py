"""One survey for its operator: what came in, and closing and deleting it."""

import grpc
from starlette.responses import Response

from hearsay.plans import plan as plans
from hearsay.v1 import admin_pb2
from hearsay_server.pages import words
from hearsay_server.pages.operator.overview import kept_lately
from hearsay_server.pages.page import OPERATORS, Page
from hearsay_server.pages.visit import Visit
from hearsay_server.serving.status import Ended

_PERIODS = 60
"""Newest periods that the page shows."""

_HERE = "/operator/surveys/{survey}"


async def _found(visit: Visit) -> admin_pb2.ShowSurveyResponse:
    request = admin_pb2.ShowSurveyRequest(survey=visit.path["survey"])
    found: admin_pb2.ShowSurveyResponse = await visit.call("Admin/ShowSurvey", request)
    return found


async def _survey(visit: Visit) -> Response:
    found = await _found(visit)
    plan = plans.parse(found.plan)
    glance = (await kept_lately(visit)).glances.get(found.status.survey)
    by_period = [
        {"period": period, "reports": f"{sum(each.reports[n] for each in found.reports):,}"}
        for n, period in enumerate(found.periods)
    ]
    reports = [
        {
            "attribute": _title(plan, each.attribute),
            "level": each.level,
            "map": each.map or words.NONE,
            "reports": f"{sum(each.reports):,}",
        }
        for each in found.reports
    ]
    levels = [
        {"level": level.name, "epsilon": f"{level.epsilon:g}"} for level in plan.levels.values()
    ]
    return visit.page(
        "operator/survey.html",
        found=found.status,
        unit=plan.period,
        today=glance.today if glance else 0,
        periods=by_period[-_PERIODS:][::-1],
        left_out=max(0, len(by_period) - _PERIODS),
        reports=reports,
        levels=levels,
        has_maps=any(each.map for each in found.reports),
        days=visit.inside.config.keep_batches_days,
    )


def _title(plan: plans.Plan, name: str) -> str:
    attribute = plan.attributes.get(name)
    return f"{attribute.title} ({name})" if attribute and attribute.title else name


async def _ask_to_close(visit: Visit) -> Response:
    found = await _found(visit)
    return visit.page(
        "operator/close.html",
        found=found.status,
        unit=plans.parse(found.plan).period,
        periods=list(found.periods)[::-1][:_PERIODS],
    )


async def _close(visit: Visit) -> Response:
    async with visit.closing_form() as form:
        period, sure = str(form.get("period", "")).strip(), form.get("sure")
    if sure != "yes":
        raise _unconfirmed("tick the box that says that this cannot be undone")
    survey = visit.path["survey"]
    request = admin_pb2.CloseSurveyRequest(survey=survey, period=period)
    await visit.call("Admin/CloseSurvey", request)
    return visit.go(f"/operator/surveys/{survey}")


async def _ask_to_delete(visit: Visit) -> Response:
    found = await _found(visit)
    return visit.page("operator/delete.html", found=found.status, periods=len(found.periods))


async def _delete(visit: Visit) -> Response:
    survey = visit.path["survey"]
    async with visit.closing_form() as form:
        typed = str(form.get("name", "")).strip()
    if typed != survey:
        raise _unconfirmed(f"to delete {survey!r}, type its name: got {typed!r}")
    gone = await visit.call("Admin/DeleteSurvey", admin_pb2.DeleteSurveyRequest(survey=survey))
    return visit.page("operator/deleted.html", name=survey, gone=gone)


def _unconfirmed(detail: str) -> Ended:
    return Ended(grpc.StatusCode.INVALID_ARGUMENT, f"nothing was changed: {detail}")


PAGES = (
    Page(_HERE, OPERATORS, _survey),
    Page(f"{_HERE}/close", OPERATORS, _ask_to_close),
    Page(f"{_HERE}/close", OPERATORS, _close, posts=True),
    Page(f"{_HERE}/delete", OPERATORS, _ask_to_delete),
    Page(f"{_HERE}/delete", OPERATORS, _delete, posts=True),
)
