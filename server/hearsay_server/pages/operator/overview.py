"""The operator's first page: whether all is well, and what there is."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from hearsay.plans import period
from hearsay.v1 import admin_pb2
from hearsay_server.pages import words
from hearsay_server.pages.operator import figures
from hearsay_server.pages.page import OPERATORS, Page
from hearsay_server.pages.visit import Visit
from hearsay_server.storage import overview
from hearsay_server.storage.overview import Glance, Space
from hearsay_server.trainings.progress import state

LIVE = "/operator/live"
_EVERY = 5.0
_SELDOM = 60.0

_DAY = 86_400

SOON = 14
"""Days before the end of a certificate from which on the page warns."""

REASONS = {
    "missing": "no token was given",
    "unknown": "the token is not known",
    "expired": "the token has expired",
    "revoked": "the token was revoked",
    "wrong_role": "the token is of another role",
    "calls": "too many calls at once",
    "upload": "a message took too long to come",
    "rate": "a caller sent too many batches a second",
    "queue": "too many batches wait for the disk",
    "analysis": "too many questions at once",
    "export": "too many exports at once",
    "forget": "too many ids to forget",
    "parts": "too many parts of updates",
}


@dataclass(frozen=True)
class Kept:
    """What takes reads of the database: it is made once a minute, for all who look."""

    space: Space
    glances: Mapping[str, Glance]


async def kept_lately(visit: Visit) -> Kept:
    """Return what a read of the database says of at most a minute ago."""

    async def read() -> Kept:
        inside = visit.inside
        glances = await asyncio.to_thread(overview.surveys, inside.database, inside.clock())
        return Kept(await asyncio.to_thread(overview.space, inside.database), glances)

    kept: Kept = await visit.shared.lately.get(("operator", "kept"), _SELDOM, read)
    return kept


async def _overview(visit: Visit) -> Response:
    fragment = await visit.shared.fragments.get((LIVE,), _EVERY, partial(_live_html, visit))
    surveys = await visit.call("Admin/ListSurveys", admin_pb2.ListSurveysRequest())
    trainings = await visit.call("Admin/ListTrainings", admin_pb2.ListTrainingsRequest())
    kept, now = await kept_lately(visit), visit.inside.clock()
    hours = figures.rates(visit.inside.minutes).hours[::-1]
    listed = {status.survey for status in surveys.surveys}
    return visit.page(
        "operator/overview.html",
        fragment=fragment,
        live=LIVE,
        hours=[{"at": words.moment(at), "rows": f"{rows:,}"} for at, rows in hours],
        rows=[_row(each, kept.glances.get(each.survey), now) for each in surveys.surveys],
        training_rows=[_training(each) for each in trainings.trainings],
        going=[name for name, each in kept.glances.items() if each.deleted and name not in listed],
        space=kept.space,
        days=visit.inside.config.keep_batches_days,
    )


def _row(status: admin_pb2.SurveyStatus, glance: Glance | None, now: datetime) -> dict[str, object]:
    return {
        "link": link("surveys", status.survey),
        "title": status.title,
        "state": "closed" if status.closed else "open",
        "period": words.NONE if glance is None or status.closed else period.label(glance.unit, now),
        "today": words.count(glance.today if glance else 0),
        "records": words.count(status.records),
        "batches": words.count(status.batches),
    }


def _training(status: admin_pb2.TrainingStatus) -> dict[str, object]:
    return {
        "link": link("trainings", status.training),
        "title": status.title,
        "state": "in trouble" if status.trouble else state(status),
        "round": f"{status.round} of {status.rounds}",
        "updates": words.count(status.updates),
    }


def link(kind: str, name: str) -> Markup:
    """Return a link to the operator's page of a survey or training."""
    return Markup('<a href="/operator/{}/{}">{}</a>').format(kind, name, name)


async def _live(visit: Visit) -> Response:
    """Answer with the figures of now, or 204 where the page has them already."""
    fragment = await visit.shared.fragments.get((LIVE,), _EVERY, partial(_live_html, visit))
    if visit.request.query_params.get("have") == fragment.tag:
        return Response(status_code=204)
    return HTMLResponse(visit.html("operator/live_answer.html", fragment=fragment, live=LIVE))


async def _live_html(visit: Visit) -> str:
    inside = visit.inside
    metrics = inside.metrics
    ends = None
    if inside.certificates is not None:
        ends = await asyncio.to_thread(inside.certificates.ends)
    left = None if ends is None else (ends - inside.clock()).total_seconds() / _DAY
    refusals = [
        {"what": what, "words": REASONS.get(name, _words(name)), "count": f"{count:,}"}
        for what, counter in (
            ("batches", metrics.refused),
            ("callers", metrics.denied),
            ("calls", metrics.limited),
            ("updates", metrics.updates_refused),
        )
        for name, count in figures.totals(counter).items()
    ]
    return visit.html(
        "operator/live.html",
        trouble=inside.readiness.trouble,
        rates=figures.rates(inside.minutes),
        latency=figures.latency(inside.minutes),
        failures=int(figures.value(metrics.commit_failures)),
        queue=int(figures.value(metrics.queue_batches)),
        queue_bytes=figures.value(metrics.queue_bytes),
        lag=figures.value(metrics.tally_lag),
        open_calls=int(figures.value(metrics.open_calls)),
        certificate=ends,
        certificate_days=left,
        soon=SOON,
        has_tls=inside.certificates is not None,
        refusals=refusals,
    )


def _words(name: str) -> str:
    """Return the reason of a refusal, such as PERIOD_CLOSED, in small letters."""
    return name.lower().replace("_", " ")


PAGES = (
    Page("/operator", OPERATORS, _overview),
    Page(LIVE, OPERATORS, _live),
)
