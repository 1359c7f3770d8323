"""Who visits a page: by a session's cookie, by a token in a header, or nobody in particular."""

import asyncio
import re
from dataclasses import dataclass

from starlette.requests import Request

from hearsay_server.serving.auth import ALSO, ROLES, Proof, bearer
from hearsay_server.serving.inside import Inside
from hearsay_server.serving.status import Ended
from hearsay_server.storage.sessions import Sessions
from hearsay_server.storage.tokens import Token


@dataclass(frozen=True)
class Caller:
    """A visitor: what the calls of this visit come with, and the token behind it."""

    proof: Proof
    token: Token | None
    is_open: bool
    """No token was ever made, on loopback: everybody may do everything, as by calls."""

    def may(self, method: str) -> bool:
        """Tell whether a method, such as `OPERATORS`, is this caller's to call."""
        if self.is_open:
            return True
        role = ROLES.get(method.partition("/")[0], "admin")
        return self.token is not None and self.token.role in (role, ALSO.get(method))


async def find(request: Request, inside: Inside, sessions: Sessions) -> Caller:
    """Return who made a request; raise `Ended` for a token in a header that does not work."""
    if not await inside.policy.asks():
        return Caller(None, None, is_open=True)
    header = request.headers.get("authorization")
    given = None if header is None else bearer(header)
    if given is not None:
        return Caller(given, await inside.guard.working(given), is_open=False)
    secret = session_secret(request)
    hash_ = None if secret is None else await asyncio.to_thread(sessions.find, secret)
    if hash_ is not None:
        try:
            return Caller(hash_, await inside.policy.working(hash_), is_open=False)
        except Ended:  # the token was revoked or has expired, and with it the session ends
            pass
    return Caller(None, None, is_open=False)


_SECRET = re.compile(r"[A-Za-z0-9_-]{43}")
"""What a session's cookie holds."""


def cookie(request: Request, *, secure: bool) -> str:
    """Return the name of the session's cookie.

    Cookies know no ports: with the port in the name, servers on one host keep theirs apart.
    """
    found = re.search(r":(\d+)$", request.headers.get("host", ""))
    port = found[1] if found else ("443" if secure else "80")
    return f"{'__Host-' if secure else ''}hearsay-{port}"


def session_secret(request: Request) -> str | None:
    """Return what the session's cookie holds; None without one, or where it cannot be ours.

    Over TLS the cookie that is bound to this host is taken alone.
    """
    secure = request.url.scheme == "https" or request.headers.get("origin", "")[:6] == "https:"
    names = [cookie(request, secure=True), *([] if secure else [cookie(request, secure=False)])]
    found = [value for name in names if (value := request.cookies.get(name))]
    return found[0] if found and _SECRET.fullmatch(found[0]) else None
