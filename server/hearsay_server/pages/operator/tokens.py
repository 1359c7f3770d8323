"""Tokens: made and shown once, listed, rotated, and revoked."""

import asyncio
from datetime import date

import grpc
from starlette.responses import Response

from hearsay_server.pages import words
from hearsay_server.pages.page import OPERATORS, Page
from hearsay_server.pages.visit import Visit
from hearsay_server.serving import auth
from hearsay_server.serving.status import Ended
from hearsay_server.storage.tokens import ROLES, Token, Tokens
from ldp import InvalidInput

_DAYS = (1, 7, 30, 90, 365)
"""How long a token may work that is made here: without an end, only by the command."""

_GRACES = (0, 1, 24, 168)
"""Hours for which a token may work that another one takes the place of."""

_DAY = 86_400
_EPOCH = date(1970, 1, 1).toordinal()
_LONGEST = 200
"""Characters of the longest label."""


async def _list(visit: Visit) -> Response:
    return await _shown(visit)


async def _create(visit: Visit) -> Response:
    async with visit.closing_form() as form:
        role, label, days = (str(form.get(name, "")) for name in ("role", "label", "days"))
    if role not in _roles(visit):
        raise _wrong(f"a role is one of {', '.join(_roles(visit))}, got {role!r}")
    if days not in map(str, _DAYS):
        raise _wrong(f"a token made here works for {', '.join(map(str, _DAYS))} days, got {days!r}")
    if len(label) > _LONGEST or not label.isprintable():
        raise _wrong(f"a label is at most {_LONGEST} printable characters")
    tokens, caller = _tokens(visit), auth.caller()
    expires = tokens.clock() + int(days) * _DAY
    made = await asyncio.to_thread(tokens.create, role, label.strip(), expires, caller)
    return await _shown(visit, made)


async def _ask_to_rotate(visit: Visit) -> Response:
    token = await _named(visit)
    is_own = token.id == auth.caller()
    return visit.page(
        "operator/rotate.html", token=token, is_own=is_own, days=_DAYS, graces=_GRACES
    )


async def _rotate(visit: Visit) -> Response:
    async with visit.closing_form() as form:
        days, grace = (str(form.get(name, "")) for name in ("days", "grace"))
    if days not in map(str, _DAYS):
        raise _wrong(f"a token made here works for {', '.join(map(str, _DAYS))} days, got {days!r}")
    if grace not in map(str, _GRACES):
        hours = ", ".join(map(str, _GRACES))
        raise _wrong(f"the old token may work for {hours} more hours, got {grace!r}")
    tokens, caller = _tokens(visit), auth.caller()
    end = tokens.clock() + int(days) * _DAY
    asked = (visit.path["id"], int(grace) * 3600.0, end, caller)
    try:
        made = await asyncio.to_thread(tokens.rotate, *asked)
    except InvalidInput as error:
        raise Ended(grpc.StatusCode.NOT_FOUND, str(error)) from None
    return await _shown(visit, made)


async def _ask_to_revoke(visit: Visit) -> Response:
    token = await _named(visit)
    return visit.page("operator/revoke.html", token=token, is_own=token.id == auth.caller())


async def _named(visit: Visit) -> Token:
    """Return the newest token of the address's id; raise `Ended` where there is none."""
    found = await asyncio.to_thread(_tokens(visit).list)
    mine = [token for token in found if token.id == visit.path["id"]]
    if not mine:
        raise Ended(grpc.StatusCode.NOT_FOUND, "there is no token of this id")
    return mine[-1]


async def _revoke(visit: Visit) -> Response:
    async with visit.closing_form() as form:
        sure = form.get("sure")
    if sure != "yes":
        raise _wrong("tick the box that says that this cannot be undone")
    try:
        await asyncio.to_thread(_tokens(visit).revoke, visit.path["id"], auth.caller())
    except InvalidInput as error:
        raise Ended(grpc.StatusCode.NOT_FOUND, str(error)) from None
    return visit.go("/operator/tokens")


async def _shown(visit: Visit, made: tuple[Token, str] | None = None) -> Response:
    tokens = _tokens(visit)
    found = await asyncio.to_thread(tokens.list)
    now = tokens.clock()
    rows = [_row(token, now) for token in reversed(found)]
    return visit.page("operator/tokens.html", rows=rows, made=made, roles=_roles(visit), days=_DAYS)


def _tokens(visit: Visit) -> Tokens:
    return Tokens(visit.inside.database)


def _roles(visit: Visit) -> tuple[str, ...]:
    """Return the roles that a new token may have.

    The first of all tokens is an admin's: with any other, nobody could make a second one here.
    """
    return ("admin",) if visit.caller.is_open else ROLES


def _row(token: Token, now: float) -> dict[str, object]:
    state = token.state(now)
    ends = {
        "works": "no end" if token.expires is None else f"until {words.moment(token.expires)}",
        "expired": words.moment(token.expires or 0),
        "revoked": words.moment(token.revoked or 0),
    }
    used = words.NONE if token.used is None else date.fromordinal(_EPOCH + token.used).isoformat()
    return {
        "id": token.id,
        "role": token.role,
        "label": token.label,
        "created": words.moment(token.created),
        "used": "not recorded" if token.role == "device" else used,
        "state": state,
        "ends": ends[state],
    }


def _wrong(detail: str) -> Ended:
    return Ended(grpc.StatusCode.INVALID_ARGUMENT, f"nothing was changed: {detail}")


PAGES = (
    Page("/operator/tokens", OPERATORS, _list),
    Page("/operator/tokens", OPERATORS, _create, posts=True),
    Page("/operator/tokens/{id}/rotate", OPERATORS, _ask_to_rotate),
    Page("/operator/tokens/{id}/rotate", OPERATORS, _rotate, posts=True),
    Page("/operator/tokens/{id}/revoke", OPERATORS, _ask_to_revoke),
    Page("/operator/tokens/{id}/revoke", OPERATORS, _revoke, posts=True),
)
