"""The start page, and signing in and out."""

import asyncio
import logging
import re
from urllib.parse import quote

import grpc
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from hearsay_server.pages.caller import cookie, session_secret
from hearsay_server.pages.page import AWAY, PUBLIC, Page
from hearsay_server.pages.visit import Visit
from hearsay_server.serving.status import Ended
from hearsay_server.storage.database import is_away
from hearsay_server.storage.sessions import LASTS
from hearsay_server.storage.tokens import hashed

_log = logging.getLogger("hearsay.server")

_OURS = re.compile(r"/(?:[a-z0-9_.-][a-zA-Z0-9_./-]*)?(?:\?[!-\[\]-~]*)?", re.ASCII)
"""Addresses of our own pages: "//host" and "/\\host" would lead to another server."""


def sign_in_address(to: str) -> str:
    """Return the address of the sign-in that leads on to a page."""
    return f"/sign-in?to={quote(to, safe='')}" if _is_ours(to) and to != "/" else "/sign-in"


async def _start(visit: Visit) -> Response:
    return visit.page("start.html", token=visit.caller.token)


async def _show_sign_in(visit: Visit) -> Response:
    visit.shared.asking.warm()  # whoever signs in may ask next
    to = visit.request.query_params.get("to", "/")
    return visit.page("sign_in.html", to=to if _is_ours(to) else "/", trouble="")


async def _sign_in(visit: Visit) -> Response:
    """Take a token once, and begin a session; the token goes nowhere else."""
    async with visit.closing_form() as form:
        given, to = form.get("token"), form.get("to")
    to = to if isinstance(to, str) and _is_ours(to) else "/"
    text = given.strip() if isinstance(given, str) else ""
    if visit.caller.is_open:
        return visit.go(to)
    try:
        token = await visit.inside.guard.working(text)
        if token.role == "device":
            detail = "this is a device's token: it opens no pages, and an app alone uses it"
            raise Ended(grpc.StatusCode.PERMISSION_DENIED, detail)
    except Ended as error:
        status = 403 if error.code == grpc.StatusCode.PERMISSION_DENIED else 401
        if error.code not in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
            raise
        return visit.page("sign_in.html", status, to=to, trouble=str(error))
    old = session_secret(visit.request)
    if old is not None:
        await asyncio.to_thread(visit.shared.sessions.end, old)
    secret = await asyncio.to_thread(visit.shared.sessions.begin, hashed(text))
    if to == "/":
        to = {"admin": "/operator", "analyst": "/analyst"}[token.role]
    answer = visit.go(to)
    _set_cookie(answer, visit.request, secret, LASTS)
    return answer


async def _sign_out(visit: Visit) -> Response:
    """End the session; where that cannot be written, the browser forgets it all the same."""
    secret = session_secret(visit.request)
    answer = visit.go("/")
    try:
        if secret is not None:
            await asyncio.to_thread(visit.shared.sessions.end, secret)
    except Exception as error:
        if not is_away(error):
            raise
        _log.exception("a session could not be ended")
        detail = (
            f"This browser has forgotten the session, but the server could not end it: {AWAY}. Who "
            "has a copy of the cookie can use it for up to 12 hours. Revoke the token to end it."
        )
        html = visit.html("error.html", status=503, phrase="Not signed out", detail=detail)
        answer = HTMLResponse(html, 503)
    _set_cookie(answer, visit.request, "", 0)
    return answer


def _set_cookie(answer: Response, request: Request, secret: str, seconds: float) -> None:
    """Set the session's cookie: of this host alone, of our own requests, and out of scripts' reach.

    A proxy may have the TLS: then the browser's own word for our origin says so.
    """
    secure = request.url.scheme == "https" or request.headers.get("origin", "")[:6] == "https:"
    answer.set_cookie(
        cookie(request, secure=secure),
        secret,
        max_age=int(seconds),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def _is_ours(address: str) -> bool:
    return _OURS.fullmatch(address) is not None


PAGES = (
    Page("/", PUBLIC, _start),
    Page("/sign-in", PUBLIC, _show_sign_in),
    Page("/sign-in", PUBLIC, _sign_in, posts=True),
    Page("/sign-out", PUBLIC, _sign_out, posts=True),
)
