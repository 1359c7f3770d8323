"""Calls over HTTP: the transport of targets such as "https://host".

It speaks the Connect protocol (https://connectrpc.com/docs/protocol) over HTTP/1.1, through the
standard library alone. Nothing is followed, decompressed, or kept in a jar.
"""

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError, Message

from hearsay.plain import on_one_line
from hearsay.sending import failures
from hearsay.sending.connection import (
    LARGEST,
    LARGEST_ANSWER,
    UNUSED,
    Call,
    Connection,
    Interrupted,
)
from hearsay.sending.dialing import Site, open_connection, site
from hearsay.sending.failures import OUR_FAULT, TOLD
from hearsay.sending.framing import Answered, CutOff, Malformed, Response
from hearsay.sending.http_failures import explained
from hearsay.sending.transport import (
    Answer,
    ServerTransport,
    Tls,
    Token,
    Unreachable,
    bearer,
    malformed,
)
from ldp.errors import InvalidInput, NotReady

PATH = "/hearsay.v1."

UNARY, _STREAM = "application/proto", "application/connect+proto"

_ERROR = 64 << 10
"""Bytes of the largest answer that says why a call failed."""

_LAST = 0x02
"""The flag of the envelope that ends a stream."""

_LINGER = 0.1
"""Seconds that the end of a stream's body may take after its last envelope."""

_MOST = 8
"""Connections to a server that are kept for the next calls; more are under way only at once."""

_CODES = {
    "canceled": "CANCELLED",
    "unknown": "UNKNOWN",
    "invalid_argument": "INVALID_ARGUMENT",
    "deadline_exceeded": "DEADLINE_EXCEEDED",
    "not_found": "NOT_FOUND",
    "already_exists": "ALREADY_EXISTS",
    "permission_denied": "PERMISSION_DENIED",
    "resource_exhausted": "RESOURCE_EXHAUSTED",
    "failed_precondition": "FAILED_PRECONDITION",
    "aborted": "ABORTED",
    "out_of_range": "OUT_OF_RANGE",
    "unimplemented": "UNIMPLEMENTED",
    "internal": "INTERNAL",
    "unavailable": "UNAVAILABLE",
    "data_loss": "DATA_LOSS",
    "unauthenticated": "UNAUTHENTICATED",
}
"""gRPC's names of the codes that Connect has."""


class _Status(Exception):
    """The server ended a call with an error of its own."""

    def __init__(self, code: str, details: str, retry_after: float, *, answered: bool) -> None:
        super().__init__(details)
        self.code = code
        self.retry_after = retry_after
        self.answered = answered


class _Pool:
    """Connections to a server that wait for their next call. Safe from several threads."""

    def __init__(self) -> None:
        self.waiting: list[Connection] = []
        self._process = os.getpid()

    def take(self) -> Connection | None:
        """Return a connection that can be used, None where there is none."""
        self.after_fork()
        while (connection := self._pop()) is not None:
            if connection.is_usable():
                return connection
            connection.close()
        return None

    def put(self, connection: Connection) -> bool:
        """Let a connection wait for its next call, unless enough do; return whether it does."""
        if len(self.waiting) >= _MOST:
            return False
        self.waiting.append(connection)
        return True

    def close(self, waited: float = 0.0) -> None:
        """Hang up the connections that have waited for so many seconds."""
        self.after_fork()
        for _ in range(len(self.waiting)):
            if (connection := self._pop()) is None:
                break
            if connection.waited() >= waited:
                connection.close()
            else:
                self.waiting.append(connection)

    def after_fork(self) -> None:
        """Drop the parent's connections, in a forked child."""
        if self._process != os.getpid():
            while (connection := self._pop()) is not None:
                connection.abandon()
            self._process = os.getpid()

    def _pop(self) -> Connection | None:
        try:
            return self.waiting.pop(0)
        except IndexError:  # another thread may have been first
            return None


_shared: dict[Site, _Pool] = {}
"""The connections that the transports of this process share."""


class Server:
    """A server, and how its methods are called."""

    def __init__(
        self, target: str, tls: Tls | None, token: Token | None, insecure: bool, *, shared: bool
    ) -> None:
        self.site = site(target, tls=tls, insecure=insecure)
        self.pool = _shared.setdefault(self.site, _Pool()) if shared else _Pool()
        self.largest = LARGEST if shared else LARGEST_ANSWER
        self._token = token

    @property
    def answers(self) -> Site:
        """Who answers calls, for messages."""
        return self.site

    def unary(
        self, call: Call, method: str, request: Message, timeout: float | None, again: bool
    ) -> bytes:
        """Return the bytes of the answer to a request.

        With `again` the request goes once more where a connection that was used before turns out
        to be closed. Raises `_Status`, and `Unreachable` where there is no answer.
        """
        body = request.SerializeToString()
        entries = self._entries(UNARY, timeout)
        connection, response = self._asked(call, PATH + method, entries, body, again)
        try:
            self._check_answer(connection, response, UNARY)
            return connection.body(response, self.largest)
        except Exception as error:
            raise self._told(error) from None
        finally:
            self._end(call, connection, response)

    def stream(
        self, call: Call, method: str, request: Message, timeout: float | None
    ) -> Iterator[bytes]:
        """Yield the bytes of each answer to a request; raise as `unary`."""
        body = _envelope(request.SerializeToString())
        entries = self._entries(_STREAM, timeout)
        connection, response = self._asked(call, PATH + method, entries, body, again=True)
        try:
            self._check_answer(connection, response, _STREAM)
            response.expect_body()
            while True:
                call.room = self.largest + (self.largest >> 4)
                flags, message = _part(response, self.largest)
                if flags & _LAST:
                    break
                if flags:
                    raise Answered("with a compressed part, which was not asked for")
                yield message
            if (status := _ended(message)) is not None:
                raise status
            call.hurry(_LINGER)
            with contextlib.suppress(OSError, Answered, Malformed):  # the answer itself is there
                response.read(1)
        except Exception as error:
            raise self._told(error) from None
        finally:
            self._end(call, connection, response)

    def _entries(self, kind: str, timeout: float | None) -> list[str]:
        token = bearer(self._token)
        entries = [f"Host: {self.site.authority}", f"Content-Type: {kind}"]
        entries += ["Accept-Encoding: identity", "Connect-Protocol-Version: 1"]
        if timeout is not None:
            entries.append(f"Connect-Timeout-Ms: {math.ceil(min(timeout * 1000, 10**10 - 1))}")
        return entries if token is None else [*entries, f"Authorization: {token}"]

    def _asked(
        self, call: Call, path: str, entries: list[str], body: bytes, again: bool
    ) -> tuple[Connection, Response]:
        """Send a request; return the connection, and the answer whose head was read."""
        while True:
            connection, is_new = None, False
            try:
                connection = self.pool.take()
                if connection is None:
                    for pool in list(_shared.values()):
                        pool.close(UNUSED)
                    connection, is_new = open_connection(self.site, call), True
                request = self._request(connection, path, entries, body)
                return connection, connection.ask(call, request)
            except BaseException as error:
                if connection is not None:
                    connection.close(call)
                    # The server hung up while nothing was under way: it has not read the request.
                    hung_up = isinstance(error, OSError) and not isinstance(error, TimeoutError)
                    if again and hung_up and not is_new and not connection.was_answered:
                        continue
                if isinstance(error, Exception):
                    raise self._told(error) from None
                raise

    def _request(self, connection: Connection, path: str, entries: list[str], body: bytes) -> bytes:
        if connection.proxy is not None:  # which learns the server from the request's line
            path = f"http://{self.site.authority}{path}"
            if connection.proxy.authorization is not None:
                entries = [*entries, f"Proxy-Authorization: {connection.proxy.authorization}"]
        head = [f"POST {path} HTTP/1.1", *entries, f"Content-Length: {len(body)}", "", ""]
        return "\r\n".join(head).encode("ascii") + body

    def _end(self, call: Call, connection: Connection, response: Response) -> None:
        """Keep a connection for the next call where it can be used again; else hang up."""
        call.let_go()
        if not (connection.keeps(response) and self.pool.put(connection)):
            connection.close()

    def _check_answer(self, connection: Connection, response: Response, kind: str) -> None:
        body = partial(connection.body, response, _ERROR)
        self._check(response.status, response.headers, kind, body)

    def _check(
        self, status: int, headers: Mapping[str, str], kind: str, body: Callable[[], bytes]
    ) -> None:
        """Raise an exception unless this is an answer of the expected content type."""
        given = headers.get("content-type", "").partition(";")[0].strip().lower()
        if status == 200 and given == kind:
            return
        if given == "application/json" and status >= 400:
            found = _json(body())
            if found is not None and str(found.get("code")) in _CODES:
                raise _status(found, headers)
        raise _foreign(status, given, headers)

    def _told(self, error: Exception) -> Exception:
        """Return the error to raise for an exception of a connection."""
        if isinstance(error, (_Status, Unreachable)):
            return error
        if isinstance(error, Interrupted):
            return Unreachable("the call was interrupted")
        known = (OSError, Malformed, Answered)
        if not isinstance(error, known):
            return error
        reason, words = explained(error, self.site)
        return Unreachable(words, reason=reason)


class HttpTransport(ServerTransport):
    """The services for devices of a real server, over HTTP.

    The connection is made when it is needed, and used again for the next call of any transport of
    the process with the same URL and TLS files, unless that comes more than a minute later; each
    call carries its own transport's `token`. One call at a time.
    Raises `InvalidInput` unless the target is "https://host[:port]", or "http://" on loopback or
    with `insecure`, and for files of `tls` that cannot be read.
    """

    def __init__(
        self,
        target: str,
        *,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
    ) -> None:
        self._use(Server(target, tls, token, insecure, shared=True))

    def _use(self, server: Server) -> None:
        """Make this the server that is called, before anything else."""
        self._server = server
        self._where = server.answers.url
        self._call: Call | None = None
        self._usable = True

    def interrupt(self) -> None:
        call = self._call
        if call is not None:
            call.interrupt()

    def after_fork(self, *, usable: bool) -> None:
        self._server.pool.after_fork()
        if self._call is not None:
            self._call.abandon()
            _abandoned.append(self._call)
        self._call = None
        self._usable = usable

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        if not self._usable:
            raise Unreachable("this process was forked in the middle of a call; others will send")
        call = self._call = Call(timeout)
        try:
            # Plans, and batches and updates with their ids: another time changes nothing. A device
            # does not tell how long it waits: it hangs up.
            data = self._server.unary(call, method, request, None, again=True)
        except _Status as status:
            raise _translated(status, self._server.answers) from None
        finally:
            self._call = None
        return _parsed(data, kind, self._server.answers)


_abandoned: list[Call] = []
"""The parent's calls in a forked child: what they hold of TLS may have been in the middle of
something, and is not freed."""


class HttpCalls:
    """`Calls` over HTTP. A question that streams its answers has a connection of its own."""

    def __init__(
        self,
        target: str,
        *,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
    ) -> None:
        """Raise as `HttpTransport`."""
        self._server = Server(target, tls, token, insecure, shared=False)

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        """Return the answer, as `Calls.call` does."""
        again = not method.startswith("Admin/")  # which changes things
        try:
            data = self._server.unary(
                Call(timeout, LARGEST_ANSWER), method, request, timeout, again
            )
        except _Status as status:
            raise self._translated(status) from None
        return _parsed(data, kind, self._server.site)

    def stream(
        self, method: str, request: Message, kind: type[Answer], timeout: float | None = None
    ) -> Iterator[Answer]:
        """Yield the answers, as `Calls.stream` does."""
        answers = self._server.stream(Call(timeout), method, request, timeout)
        try:
            for data in answers:
                yield _parsed(data, kind, self._server.site)
        except _Status as status:
            raise self._translated(status) from None
        finally:
            answers.close()  # type: ignore[attr-defined]  # a generator

    def close(self) -> None:
        """Hang up."""
        self._server.pool.close()

    def __del__(self) -> None:
        if hasattr(self, "_server"):  # a socket that is forgotten would be warned of
            self.close()

    def _translated(self, status: _Status) -> Exception:
        words = on_one_line(str(status), TOLD)
        if status.code == "FAILED_PRECONDITION":
            return NotReady(words)
        return (
            InvalidInput(words)
            if status.code in OUR_FAULT
            else _unreachable(status, self._server.site)
        )


def _translated(status: _Status, to: Site) -> Exception:
    if status.code in OUR_FAULT:
        return InvalidInput(on_one_line(str(status)))
    return _unreachable(status, to)


def _unreachable(status: _Status, to: Site) -> Unreachable:
    details, answered = str(status), status.answered
    reason, words = failures.explained(status.code, details, to.url, answered=answered)
    return Unreachable(words, status.retry_after, reason)


def _parsed(data: bytes, kind: type[Answer], to: Site) -> Answer:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise malformed(to.url, f"bytes that are no {kind.DESCRIPTOR.name}") from None


def _envelope(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def _part(response: Response, largest: int) -> tuple[int, bytes]:
    """Return the flags and the message of the next envelope of a stream."""
    head = response.read(5)
    size = int.from_bytes(head[1:], "big")
    if size > largest:
        raise Answered(f"with more than {largest} bytes at once")
    message = response.read(size) if size else b""
    if len(head) < 5 or len(message) < size:
        raise CutOff("an envelope that was cut off")
    return head[0], message


def _ended(data: bytes) -> _Status | None:
    """Return the error in the last envelope of a stream, None where there is none."""
    found = _json(data)
    if found is None:
        raise Answered("with an end that is no JSON")
    error, metadata = found.get("error"), found.get("metadata")
    if not isinstance(error, dict):
        return None
    metadata = metadata if isinstance(metadata, dict) else {}
    lower = {str(name).lower(): values for name, values in metadata.items()}
    said = {
        name: values[0] for name, values in lower.items() if isinstance(values, list) and values
    }
    return _status(error, said)


def _json(data: bytes) -> dict[str, Any] | None:
    """Return an object in JSON; None for bytes that are none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _status(error: dict[str, Any], said: Any) -> _Status:
    """Return the status of an error of Connect; `said` are its headers, or its metadata."""
    message = error.get("message", "")
    code = _CODES.get(str(error.get("code")), "UNKNOWN")
    wait, answered = _delay(said)
    return _Status(code, message if isinstance(message, str) else "", wait, answered=answered)


def _delay(said: Any) -> tuple[float, bool]:
    """Return the seconds for which a server wants to be left alone, and whether it says so."""
    exact, rough = said.get(failures.RETRY_AFTER), said.get("retry-after")
    if exact is not None:
        return failures.delay(str(exact).strip()), True
    if rough is not None:
        return failures.delay(str(rough).strip(), unit=1.0), True
    return 0.0, False


def _foreign(status: int, given: str, headers: Any) -> Exception:
    """Return the error for an answer that is not Connect's: a proxy's, or of another service."""
    if status in (401, 403):
        code = "UNAUTHENTICATED" if status == 401 else "PERMISSION_DENIED"
        return _Status(code, f"status {status} of HTTP", 0.0, answered=True)
    if status == 407:
        return Unreachable("the proxy asks for a login, as http://USER:PASSWORD@HOST:PORT")
    if status == 429 or status >= 500:
        wait, _ = _delay(headers)
        return _Status("UNAVAILABLE", f"status {status} of HTTP", wait, answered=True)
    if 300 <= status < 400:
        return Answered(
            f"with a redirect ({status}), which is not followed: give the address itself"
        )
    kind = on_one_line(given)[:80] or "no content type"
    return Answered(f"with status {status} and {kind}: it is no server of Hearsay")
