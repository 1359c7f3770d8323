"""The public pages: which surveys everybody may see, and one survey's page."""

import asyncio
from collections.abc import Mapping
from functools import partial

import grpc
from markupsafe import Markup
from starlette.responses import HTMLResponse, Response

from hearsay.sealed.keys import fingerprint
from hearsay_server.pages.page import PUBLIC, Page
from hearsay_server.pages.person import facts
from hearsay_server.pages.person.crowd import crowd
from hearsay_server.pages.visit import Visit
from hearsay_server.serving.status import Ended
from hearsay_server.storage.public import PublicSurvey, public
from ldp.planning.composition import DELTA

_FRESH = 1.0
"""Seconds for which the public surveys are remembered: a page that was closed is open as long."""

_CROWD_SECONDS = 60.0
"""Seconds for which what the crowd says is shown again, whoever looks how often."""

_PATIENCE = 0.2
"""Seconds that a page waits for what the crowd says."""

_PLAN_SECONDS = 3600.0
"""Seconds for which the part of a page that depends on the plan alone is kept."""


async def _list(visit: Visit) -> Response:
    return visit.page("person/list.html", surveys=await _public(visit))


async def _show(visit: Visit) -> Response:
    survey = await _found(visit)
    level = visit.request.query_params.get("level", "")
    plan = survey.plan
    if level not in plan.levels:
        level = plan.default_level or next(iter(plan.levels))
    fragments = visit.shared.fragments
    shown = survey.page.SerializeToString(deterministic=True).hex()
    key = ("asked", plan.survey, plan.revision.hex(), shown, str(survey.closed))
    render = partial(_body, visit, survey, level)
    body = await fragments.get((*key, level), _PLAN_SECONDS, lambda: asyncio.to_thread(render))
    crowd = await _soon(visit, survey) if survey.page.results else None
    return visit.page("person/asked.html", survey=survey, body=Markup(body.html), crowd=crowd)


async def _show_crowd(visit: Visit) -> Response:
    survey = await _found(visit)
    if not survey.page.results:
        raise _not_public()
    return HTMLResponse(await _crowd(visit, survey))


async def _public(visit: Visit) -> Mapping[str, PublicSurvey]:
    """Return the public surveys by name, as read once for all who ask.

    A name that is not among them costs no look into the database, and takes as long as any other:
    nobody learns by asking which surveys there are.
    """
    read = partial(asyncio.to_thread, public, visit.inside.database)
    found: Mapping[str, PublicSurvey] = await visit.shared.lately.get(("public",), _FRESH, read)
    return found


async def _found(visit: Visit) -> PublicSurvey:
    """Return the survey of the address; raise the same `Ended` for one that is not public and for
    one that is not there."""
    survey = (await _public(visit)).get(visit.path["survey"])
    if survey is None:
        raise _not_public()
    return survey


def _not_public() -> Ended:
    return Ended(grpc.StatusCode.NOT_FOUND, "there is no public survey at this address")


def _body(visit: Visit, survey: PublicSurvey, level: str) -> str:
    """Return what depends on the plan, and on who runs the server: the same for all visitors."""
    plan, config = survey.plan, visit.inside.config
    found = facts.levels(plan)
    return visit.shared.templates.render(
        "person/body.html",
        survey=survey,
        plan=plan,
        levels=found,
        chosen=next(each for each in found if each.name == level),
        fields=facts.fields(plan),
        scripts=facts.for_scripts(survey),
        unit=facts.UNITS[plan.period],
        times=facts.times_a_year(plan),
        keep_days=config.keep_batches_days,
        asked_here=facts.asked_here(plan),
        may_reveal=facts.may_reveal(plan),
        takes_answers=not survey.closed and not config.require_device_token,
        delta=DELTA,
        sealed_to=fingerprint(plan.sealing) if plan.sealing else "",
    )


async def _soon(visit: Visit, survey: PublicSurvey) -> Markup | None:
    """Return what the crowd says, None where that takes longer than a page should."""
    try:
        async with asyncio.timeout(_PATIENCE):
            return Markup(await _crowd(visit, survey))
    except TimeoutError:
        return None  # it is found out meanwhile, for whoever asks next


async def _crowd(visit: Visit, survey: PublicSurvey) -> str:
    """Return what the crowd says, which one look a minute finds out for all visitors."""

    async def make() -> str:
        said = await crowd(visit.inside, survey.plan)
        return visit.shared.templates.render("person/crowd.html", said=said)

    key = (survey.plan.survey, survey.plan.revision.hex())
    html: str = await visit.shared.crowds.get(key, _CROWD_SECONDS, make)
    return html


PAGES = (
    Page("/asked", PUBLIC, _list),
    Page("/asked/{survey}", PUBLIC, _show),
    Page("/asked/{survey}/crowd", PUBLIC, _show_crowd),
)
