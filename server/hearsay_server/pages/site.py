"""The site: every page, behind the checks that all of them have in common."""

import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus
from typing import Any

import grpc
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route, Router

from hearsay_server.pages import analyst, operator, planner, start
from hearsay_server.pages.caller import Caller, cookie, find, session_secret
from hearsay_server.pages.calling import Asking
from hearsay_server.pages.fragments import Fragments, Lately
from hearsay_server.pages.page import ANALYSTS, AWAY, OPERATORS, PUBLIC, Page
from hearsay_server.pages.person import pages as person
from hearsay_server.pages.rendering import HEADERS, Statics, Templates
from hearsay_server.pages.visit import Shared, Visit
from hearsay_server.serving.inside import Inside
from hearsay_server.serving.status import HTTP_STATUS, MENDED, Ended
from hearsay_server.storage.database import is_away
from hearsay_server.storage.sessions import Sessions

_log = logging.getLogger("hearsay.server")

PAGES: tuple[Page, ...] = (
    *start.PAGES,
    *operator.PAGES,
    *analyst.PAGES,
    *person.PAGES,
    *planner.PAGES,
)

_OPEN = 128
"""Requests at once of those who are signed in, and as many of all others."""

_CROWDS = 1 << 14
"""Public surveys whose results are kept: no visitor has one found out again before its time."""

_YEAR = 365 * 86_400

_STATUS = HTTP_STATUS | {
    grpc.StatusCode.CANCELLED: 500,  # 499 has no phrase
    grpc.StatusCode.FAILED_PRECONDITION: 409,
    grpc.StatusCode.DEADLINE_EXCEEDED: 408,  # of a form that does not come
    grpc.StatusCode.OUT_OF_RANGE: 413,  # of a form that is too large
}
"""As calls have them, but for what a browser should say of them."""


def make_site(inside: Inside) -> "Site":
    """Return the site of a server."""
    return Site(inside, PAGES)


class Site:
    """An ASGI application of pages."""

    def __init__(self, inside: Inside, pages: Iterable[Page]) -> None:
        self._statics = Statics()
        templates = Templates(self._statics)
        sessions = Sessions(inside.database, lambda: inside.clock().timestamp())
        lately = Lately()
        self._shared = Shared(
            inside,
            sessions,
            templates,
            Fragments(lately),
            lately,
            Lately(_CROWDS),
            Asking(inside),
        )
        self._open = {True: 0, False: 0}
        nowhere = [Page("/{rest:path}", PUBLIC, _nowhere, posts) for posts in (False, True)]
        routes = [
            Route(page.address, self._answering(page), methods=["POST" if page.posts else "GET"])
            for page in (*pages, *nowhere)
        ]
        files = Route("/static/{hash}/{name:path}", self._static)
        self._router = Router([files, *routes], redirect_slashes=False)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        started = False

        async def sending(event: Any) -> None:
            nonlocal started
            if event["type"] == "http.response.start":
                started = True
                given = {name for name, _ in event["headers"]}
                ours = [(n.encode(), v.encode()) for n, v in HEADERS.items()]
                more = [(name, value) for name, value in ours if name not in given]
                event = {**event, "headers": [*event["headers"], *more]}
            await send(event)

        request = Request(scope, receive)
        try:
            await self._router(scope, receive, sending)
        except Ended as error:
            if started:
                raise
            await self._failed(request, _NOBODY, error)(scope, receive, sending)

    def _answering(self, page: Page) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            bounded = Request(request.scope, _bounded(request.receive, page.largest))
            caller = _NOBODY
            inside = self._shared.inside
            try:
                self._check_own(bounded, asks=page.asks)
                # A made-up cookie costs a look into the database: strangers share their places.
                with self._place(False) if session_secret(bounded) else contextlib.nullcontext():
                    caller = await find(bounded, inside, self._shared.sessions)
                known = caller.proof is not None or caller.is_open
                with self._place(known):
                    if page.who != PUBLIC:
                        await self._admit(page, caller)
                    return await page.answer(Visit(bounded, caller, self._shared))
            except Ended as error:
                return self._failed(bounded, caller, error)
            except Exception as error:
                _log.exception("a page failed")
                fault = Ended(grpc.StatusCode.INTERNAL, "the server failed to answer")
                if is_away(error):
                    fault = Ended(grpc.StatusCode.UNAVAILABLE, AWAY, MENDED)
                return self._failed(bounded, caller, fault)

        return answer

    def _check_own(self, request: Request, *, asks: bool = False) -> None:
        _check_own(request, self._shared.inside.config.tls_certificate is not None, asks)

    async def _admit(self, page: Page, caller: Caller) -> None:
        """Raise `Ended` where the caller may not see a page, in the words of the pages."""
        try:
            await self._shared.inside.guard.admit(page.who, caller.proof)
        except Ended as error:
            if error.code != grpc.StatusCode.PERMISSION_DENIED:
                raise
            role = {OPERATORS: "admin", ANALYSTS: "analyst"}.get(page.who, "admin or analyst")
            own = caller.token.role if caller.token else "none"
            detail = f"This page needs a token of role {role}; yours is of role {own}."
            raise Ended(error.code, detail) from None

    def _place(self, known: bool) -> "_Place":
        return _Place(self._open, known)

    def _failed(self, request: Request, caller: Caller, error: Ended) -> Response:
        """Answer with an error: sign-in first, where that may help."""
        status = _STATUS.get(error.code, 500)
        address = request.url.path
        to = address + (f"?{request.url.query}" if request.url.query else "")
        sign_in = start.sign_in_address(to if request.method == "GET" else "/")
        headers = {}
        if error.retry_after is not None:
            headers["retry-after"] = str(max(1, round(error.retry_after)))
        if address.endswith(".json"):  # for programs
            return JSONResponse({"error": str(error)}, status, headers)
        is_shown = "text/html" in request.headers.get("accept", "")  # by a browser, which asks so
        if address.endswith((".csv", ".png")) and not is_shown:
            return PlainTextResponse(f"{error}\n", status, headers)
        if status == 401 and request.method == "GET" and "authorization" not in request.headers:
            if "hx-request" in request.headers:
                return Response(status_code=401, headers={"hx-redirect": sign_in})
            return RedirectResponse(sign_in, 303)
        html = self._shared.templates.render(
            "error.html",
            visitor=caller,
            address=address,
            status=status,
            phrase=HTTPStatus(status).phrase,
            detail=str(error),
            sign_in=sign_in,
        )
        return HTMLResponse(html, status, headers)

    async def _static(self, request: Request) -> Response:
        self._check_own(request)
        name = request.path_params["name"]
        data = self._statics.files.get(name)
        if data is None or request.path_params["hash"] != self._statics.hash:
            raise _no_page()
        kept = {"cache-control": f"public, max-age={_YEAR}, immutable"}
        return Response(data, media_type=self._statics.kind(name), headers=kept)


class _Place:
    """A place among the requests under way."""

    def __init__(self, taken: dict[bool, int], known: bool) -> None:
        self._taken, self._known = taken, known

    def __enter__(self) -> None:
        if self._taken[self._known] >= _OPEN:
            detail = f"{_OPEN} pages are being made already: come again in a moment"
            raise Ended(grpc.StatusCode.UNAVAILABLE, detail, 1.0)
        self._taken[self._known] += 1

    def __exit__(self, *error: object) -> None:
        self._taken[self._known] -= 1


_NOBODY = Caller(None, None, is_open=False)


def _check_own(request: Request, is_tls: bool, asks: bool) -> None:
    """Raise `Ended` for a request that a page of another origin has made.

    A browser names the origin of each POST, and with `sec-fetch-site` who began the request. A
    link that somebody follows from elsewhere is let through: it comes without our cookie. So is
    what `asks` alone and comes from no browser: without a cookie, it is in nobody's name.
    """
    host = request.headers.get("host", "").lower()
    own = {f"https://{host}"} if is_tls else {f"http://{host}", f"https://{host}"}
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site")
    from_elsewhere = site in ("cross-site", "same-site")
    if request.method == "POST":
        if asks and origin is None and site is None and "cookie" not in request.headers:
            return
        if from_elsewhere or (origin not in own and not (origin is None and site == "same-origin")):
            raise _other_origin()
        # A page without TLS may not act for a session that was begun with it.
        if origin == f"http://{host}" and cookie(request, secure=True) in request.cookies:
            raise _other_origin()
        return
    is_link = request.headers.get("sec-fetch-mode") == "navigate"
    if (origin is not None and origin not in own) or (from_elsewhere and not is_link):
        raise _other_origin()


def _other_origin() -> Ended:
    return Ended(grpc.StatusCode.PERMISSION_DENIED, "pages of this server alone may ask for this")


def _no_page() -> Ended:
    return Ended(grpc.StatusCode.NOT_FOUND, "there is no page at this address")


async def _nowhere(visit: Visit) -> Response:
    raise _no_page()


def _bounded(receive: Callable[[], Awaitable[Any]], largest: int) -> Callable[[], Awaitable[Any]]:
    """Raise `Ended` once a body has more bytes than that."""
    size = 0

    async def bounded() -> Any:
        nonlocal size
        event = await receive()
        size += len(event.get("body", b""))
        if size > largest:
            detail = f"a form holds at most {largest} bytes here"
            raise Ended(grpc.StatusCode.OUT_OF_RANGE, detail)
        return event

    return bounded
