"""The addresses of the analyst's pages, and how each is answered.

A view is computed in a thread of `Asking`, and once for all who look at it: the event loop only
hands over what was made.
"""

import asyncio
import json
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import quote

import grpc
import numpy as np
from starlette.responses import HTMLResponse, Response

from hearsay import Analyst, NotReady, Unreachable
from hearsay.asking.answer import Answer, Table
from hearsay.asking.views import catalogue
from hearsay.asking.views.catalogue import VIEWS, Survey
from hearsay.asking.views.options import Given, Missing
from hearsay.asking.views.view import Question, View
from hearsay.v1 import admin_pb2
from hearsay_server import cells, spreadsheets
from hearsay_server.limits import TooMany
from hearsay_server.pages import words
from hearsay_server.pages.analyst import charts, drawing
from hearsay_server.pages.fragments import Fragment
from hearsay_server.pages.page import ANALYSTS, Page
from hearsay_server.pages.visit import Visit
from hearsay_server.serving.status import Ended, passing
from ldp.errors import InvalidInput

_T = TypeVar("_T")

_FRESH = 9.0
"""Seconds for which a view is shown as it was made; those that read all reports, longer."""

_FRESH_LONG = 60.0

_LASTING = {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT}
"""Troubles that are the answer to a question, for whoever asks it; others pass."""

_OVER_BINS = ("between",)
"""Views above whose chart are the bins, from which a range may be chosen by dragging."""

_OF_FORM = {"live": "have", "csv": "table"}
"""What an address says of its form and not of the question: the part that a page has already, and
the table that CSV is of."""

_LONGEST = 4 << 20
"""Bytes of the options of a question that is posted."""

_PICTURES = 12
"""Attributes of a survey whose estimates its page draws; of more it has links."""


@dataclass(frozen=True)
class _Asked:
    """A view as an address asks for it."""

    visit: Visit
    survey: Survey
    view: View
    given: Given

    @property
    def path(self) -> str:
        """The address without options."""
        return f"/analyst/{quote(self.survey.name, safe='')}/{self.view.name}"

    def address(self, ending: str = "") -> str:
        return f"{self.path}{ending}{self.given.query}"

    @property
    def question(self) -> Question:
        return self.view.question(self.survey.name, self.given)

    def pictured(self, analyst: Analyst) -> list[Answer]:
        """Ask for the answers of the PNG: in a thread."""
        answer = self.question.ask(analyst)
        return self.view.pictured(analyst, self.survey.name, self.given, answer)

    async def fragment(self) -> Fragment:
        """Return the chart and the table, made once for all who look at them."""
        key = ("analyst", self.address())
        fresh = _FRESH if self.view.poll else _FRESH_LONG
        return await self.visit.shared.fragments.get(key, fresh, self._made)

    async def _made(self) -> str:
        try:
            return await _answered(self.visit, self._rendered)
        except Ended as error:
            if error.code not in _LASTING:
                raise  # a moment's trouble is nobody else's answer
            return self.visit.html("analyst/trouble.html", trouble=str(error))

    def _rendered(self, analyst: Analyst) -> str:
        """Ask, and render the answer: in a thread."""
        answer = self.question.ask(analyst)
        drawn = [answer]
        if self.view.name in _OVER_BINS:
            drawn.insert(0, _histogram(self).ask(analyst))
        made = [charts.chart(each) for each in drawn]
        table = cells.shown(answer, answer.table())
        return self.visit.html(
            "analyst/answer.html",
            # In an attribute: htmx takes every script element out of what it renews.
            charts=[
                {"title": chart["title"], "data": json.dumps(chart, allow_nan=False)}
                for chart in made
                if chart is not None
            ],
            table=table,
            answer=answer,
            has_intervals=_has_intervals(answer.table()),
            outside=is_outside(answer.table()),
            counted=_counted(answer),
            notes=self.view.notes(answer),
            picture=self.address(".png"),
            more=self.address(".csv"),
        )


async def _answered(visit: Visit, work: Callable[[Analyst], _T]) -> _T:
    """Return what `work` makes of an `Analyst`; raise `Ended` for its errors."""
    try:
        return await visit.shared.asking.ask(visit.proof, work)
    except TooMany as error:  # also a NotReady, but one that passes
        raise passing(error) from None
    except NotReady as error:
        raise Ended(grpc.StatusCode.FAILED_PRECONDITION, str(error)) from None
    except InvalidInput as error:
        raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
    except Unreachable as error:
        code = grpc.StatusCode.UNAVAILABLE
        raise Ended(code, str(error), error.retry_after or 1.0) from None


async def _surveys(visit: Visit) -> Response:
    visit.shared.asking.warm()
    listed = await visit.call("Admin/ListSurveys", admin_pb2.ListSurveysRequest())
    return visit.page("analyst/surveys.html", surveys=listed.surveys)


async def _survey(visit: Visit) -> Response:
    survey = await _found(visit)
    pictures = []
    for name in list(survey.attributes)[:_PICTURES]:
        view = survey.views(name)[0]
        given = Given([("attribute", name)], view.options)
        pictures.append(_Asked(visit, survey, view, given))
    quick = [asked for asked in pictures if asked.view.poll]
    made = await asyncio.gather(*(asked.fragment() for asked in quick))
    shown = {a.given.attribute: (a, part) for a, part in zip(quick, made, strict=True)}
    return visit.page("analyst/survey.html", survey=survey, shown=shown, base=_base(survey))


async def _view(visit: Visit) -> Response:
    name, _, form = visit.path["view"].partition(".")
    view = VIEWS.get(name)
    forms = ("", "csv", "json", "png", "live") if view and view.kinds else ("csv", "json", "png")
    if view is None or form not in forms:
        raise Ended(grpc.StatusCode.NOT_FOUND, f"there is no view {visit.path['view']!r}")
    survey = await _found(visit)
    pairs = visit.request.query_params.multi_items()
    of_form = _OF_FORM.get(form)
    said = dict(pairs).get(of_form, "") if of_form else ""
    pairs = [pair for pair in pairs if pair[0] != of_form]
    try:
        given = survey.completed(view, catalogue.given(pairs, view))
        asked = _Asked(visit, survey, view, given)
        asked.question  # noqa: B018  # raises where an option is missing or wrong
        trouble = wanted = ""
    except InvalidInput as error:
        if form or not _names_attribute(pairs, survey):
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
        is_missing = isinstance(error, Missing)
        lacks = survey.lacks(view)
        trouble, wanted = ("", lacks or _wanted(error)) if is_missing else (str(error), "")
        asked = _Asked(
            visit,
            survey,
            view,
            Given([(n, v) for n, v in pairs if n in _known(view)], view.options),
        )
    _check_attribute(asked)
    if form == "csv":
        return await _csv(asked, said)
    if form == "json":
        return await _json(asked)
    if form == "png":
        return await _png(asked)
    if form == "live":
        part = await asked.fragment()
        if part.tag == said:
            return Response(status_code=204)
        return HTMLResponse(visit.html("analyst/live.html", asked=asked, part=part))
    return await _page(asked, trouble, wanted)


async def _posted(visit: Visit) -> Response:
    """Answer a view as JSON to the options of a form, which may be longer than an address."""
    view = VIEWS.get(visit.path["view"])
    if view is None:
        raise Ended(grpc.StatusCode.NOT_FOUND, f"there is no view {visit.path['view']!r}")
    survey = await _found(visit)
    async with visit.closing_form() as form:
        pairs = [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        if len(pairs) < len(form.multi_items()):
            detail = "a field is a file: send its text, curl -F 'margins=<FILE'"
            raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)
    try:
        given = survey.completed(view, catalogue.given(pairs, view, _LONGEST))
        asked = _Asked(visit, survey, view, given)
        asked.question  # noqa: B018  # raises where an option is missing or wrong
    except InvalidInput as error:
        raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
    _check_attribute(asked)
    return await _json(asked)


def _check_attribute(asked: _Asked) -> None:
    """Raise `Ended` where a view is of an attribute that the survey has not."""
    if asked.view.kinds:
        try:
            asked.survey.check_attribute(asked.given.attribute)
        except InvalidInput as error:
            raise Ended(grpc.StatusCode.NOT_FOUND, str(error)) from None


async def _json(asked: _Asked) -> Response:
    text = await _answered(asked.visit, lambda analyst: asked.question.ask(analyst).to_json())
    return Response(text, media_type="application/json")


def _wanted(error: InvalidInput) -> str:
    """Return what is to be chosen first, for people."""
    return f"Choose {str(error).partition(': ')[2]}."


async def _page(asked: _Asked, trouble: str, wanted: str) -> Response:
    visit, survey, view = asked.visit, asked.survey, asked.view
    target = f"{visit.request.url.scheme}://{visit.request.headers['host']}"
    with_token = not visit.caller.is_open
    return visit.page(
        "analyst/view.html",
        status=400 if trouble else 200,
        asked=asked,
        survey=survey,
        view=view,
        views=survey.views(asked.given.attribute),
        given=dict(asked.given.values),
        attribute=survey.attributes[asked.given.attribute],
        name=asked.given.attribute,
        trouble=trouble,
        wanted=wanted,
        part=None if trouble or wanted else await asked.fragment(),
        python="" if trouble or wanted else asked.question.python(target, with_token=with_token),
        curl=curl(target + asked.address(".csv"), with_token=with_token),
        base=_base(survey),
    )


async def _csv(asked: _Asked, table: str) -> Response:
    text = await _answered(
        asked.visit,
        lambda analyst: spreadsheets.rewritten(asked.question.ask(analyst).to_csv(table)),
    )
    about = [asked.given.attribute] if asked.view.kinds else []
    name = "-".join([asked.survey.name, *about, asked.view.name]) + ".csv"
    headers = {"content-disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(text, media_type="text/csv; charset=utf-8", headers=headers)


async def _png(asked: _Asked) -> Response:
    answers = await _answered(asked.visit, asked.pictured)
    try:
        data = await asked.visit.inside.analyses.run(partial(drawing.png, answers))
    except InvalidInput as error:
        raise Ended(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None
    except TooMany as error:
        raise passing(error) from None
    return Response(data, media_type="image/png")


async def _found(visit: Visit) -> Survey:
    """Return the survey that the address names, as it was some seconds ago at most."""
    name = visit.path["survey"]

    async def read() -> Survey:
        shown = await visit.call("Admin/ShowSurvey", admin_pb2.ShowSurveyRequest(survey=name))
        return await asyncio.to_thread(catalogue.survey_of, shown)

    found: Survey = await visit.shared.lately.get(("analyst", "survey", name), _FRESH, read)
    return found


def _base(survey: Survey) -> str:
    return f"/analyst/{quote(survey.name, safe='')}"


def _known(view: View) -> list[str]:
    return ["attribute", *(option.name for option in view.options)]


def _names_attribute(pairs: Sequence[tuple[str, str]], survey: Survey) -> bool:
    return [
        value for name, value in pairs if name == "attribute" and value in survey.attributes
    ] != []


def _has_intervals(table: Table) -> bool:
    return "low" in table.names and not np.isnan(table.column("low").values).all()


def is_outside(table: Table) -> bool:
    """Tell whether an estimate lies outside of its interval, which is cut to what is possible."""
    if not {"estimate", "low", "high"} <= {*table.names}:
        return False
    estimate, low, high = (
        np.asarray(table.column(name).values) for name in ("estimate", "low", "high")
    )
    return bool(((estimate < low) | (estimate > high)).any())


def _counted(answer: Answer) -> str:
    """Say how many reports an answer is of: of both parts of a comparison, of all groups."""
    if answer.view == "compare":
        return " and ".join(f"{n:,}" for n in answer.parts.values()) + " reports"
    return words.many(sum(answer.parts.values()) if answer.parts else answer.reports, "report")


def _histogram(asked: _Asked) -> Question:
    """Return the question for the bins that a range is chosen from."""
    options = VIEWS["distribution"].options
    known = {"attribute", *(option.name for option in options)}
    pairs = [(n, v) for n, values in asked.given.values.items() if n in known for v in values]
    return VIEWS["distribution"].question(asked.survey.name, Given(pairs, options))


def curl(address: str, *, with_token: bool) -> str:
    """Return a command that fetches what is at an address."""
    token = ' -H "authorization: Bearer $HEARSAY_TOKEN"' if with_token else ""
    return f"curl -sS --fail-with-body{token} {shlex.quote(address)}"


PAGES = (
    Page("/analyst", ANALYSTS, _surveys),
    Page("/analyst/{survey}", ANALYSTS, _survey),
    Page("/analyst/{survey}/{view}", ANALYSTS, _view),
    Page(
        "/analyst/{survey}/{view}.json", ANALYSTS, _posted, posts=True, largest=_LONGEST, asks=True
    ),
)
