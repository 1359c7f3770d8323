"""Calls of a shuffler by way of a relay, which learns who calls and not what is said.

Source: RFC 9458, "Oblivious HTTP". The shuffler learns what is said, and the relay's address in the
place of the device's.
"""

import re

from google.protobuf.message import Message

from hearsay.sealed import binary_http, oblivious
from hearsay.sending.connection import LARGEST, Call
from hearsay.sending.dialing import Site, site
from hearsay.sending.framing import Answered
from hearsay.sending.over_http import PATH, UNARY, HttpTransport, Server
from hearsay.sending.transport import Tls, Token, Unreachable
from hearsay.trouble import Reason
from ldp.errors import InvalidInput

_PARTS = re.compile(r"(?P<site>https?://[^/]*)(?P<path>/[!-~]*)?", re.IGNORECASE)

_MULTIPLE = 1024
"""Requests are padded to a multiple of so many bytes, so that a relay learns little by their size.
"""


class _Server(Server):
    """A server that is called through a relay."""

    def __init__(
        self,
        relay: str,
        target: str,
        key: str,
        tls: Tls | None,
        token: Token | None,
        insecure: bool,
    ) -> None:
        found = _PARTS.fullmatch(relay)
        if found is None or "#" in relay:
            raise InvalidInput('a relay is written as "https://host/path"')
        super().__init__(found["site"], tls, token, insecure, shared=True)
        self._path = found["path"] or "/"
        self._target = site(target, tls=None, insecure=insecure)
        self._key = oblivious.read_key(key)

    @property
    def answers(self) -> Site:
        return self._target

    def unary(
        self, call: Call, method: str, request: Message, timeout: float | None, again: bool
    ) -> bytes:
        given = [entry.partition(": ") for entry in self._entries(UNARY, timeout)]
        headers = [
            (name.lower().encode("ascii"), value.encode("ascii"))
            for name, _, value in given
            if name != "Host"
        ]
        to = self._target
        scheme = "https" if to.is_tls else "http"
        body = request.SerializeToString()
        inner = binary_http.Request(
            "POST", scheme, to.authority, PATH + method, tuple(headers), body
        )
        sealed, opener = oblivious.encapsulated(self._key, inner.encode(_MULTIPLE))
        entries = [f"Host: {self.site.authority}", f"Content-Type: {oblivious.REQUEST_TYPE}"]
        entries.append("Accept-Encoding: identity")
        connection, response = self._asked(call, self._path, entries, sealed, again)
        try:
            kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            if response.status != 200 or kind != oblivious.RESPONSE_TYPE:
                raise _refused(response.status, kind)
            try:
                opened = opener.opened(connection.body(response, LARGEST))
                answer = binary_http.read_response(opened)
            except InvalidInput as error:
                raise Answered(f"for the shuffler, but {error}") from None
            self._check(answer.status, answer.headers, UNARY, lambda: answer.content)
            return answer.content
        except Exception as error:
            raise self._told(error) from None
        finally:
            self._end(call, connection, response)


class RelayedTransport(HttpTransport):
    """The services for devices of a server that a relay stands before.

    The relay's own answers are never taken for the server's, which are sealed. Raises
    `InvalidInput` for a `relay` that is not "https://host/path", a `target` that is not
    "https://host" ("http://" for both on loopback, or with `insecure`), and a `key` that is not one
    of `hearsay shuffler key`; `MissingExtra` without the package pyhpke.
    """

    def __init__(
        self,
        relay: str,
        target: str,
        key: str,
        *,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
    ) -> None:
        self._use(_Server(relay, target, key, tls, token, insecure))


def _refused(status: int, kind: str) -> Exception:
    """Return the error for an answer of the relay itself, or of a gateway that cannot open."""
    if kind == "application/problem+json" and status in (400, 422):
        words = "the shuffler has another key: compare shuffler_key with `hearsay shuffler key`"
        return Unreachable(words, reason=Reason.SERVER_REFUSED)
    return Answered(f"with status {status} in the place of the shuffler's answer")
