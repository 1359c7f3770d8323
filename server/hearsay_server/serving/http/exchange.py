"""One request over HTTP and its answer."""

import asyncio
import contextlib
import html
import json
import re
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from email.utils import formatdate
from functools import lru_cache
from typing import Any

import grpc

from hearsay_server.serving.http.forms import error_of, retry
from hearsay_server.serving.status import HTTP_STATUS, Ended

_LINGER = 2.0
"""Seconds for which the rest of a refused request is thrown away.

A connection that is closed while bytes come is reset, and the caller may lose the answer.
"""

_ALONE = (b"host", b"origin", b"authorization", b"content-type", b"content-encoding")
"""Headers that must not be there twice: two readers of such a request may not agree."""

_REFUSED = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Hearsay does not answer here</title>
<h1>Hearsay does not answer here</h1>
<p>{text}.</p>
</html>
"""
_PAGE = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)

_TIMEOUT = re.compile(r"(\d{1,10})([HMSmun])")
_UNITS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class Left(asyncio.CancelledError):
    """The caller has left, which cancels the call: nobody waits for an answer."""


class Exchange:
    """A request, whose body is read on demand, and its response."""

    def __init__(
        self,
        scope: Mapping[str, Any],
        receive: Callable[[], Awaitable[Mapping[str, Any]]],
        send: Callable[[Mapping[str, Any]], Awaitable[None]],
    ) -> None:
        self._scope = scope
        self.method: str = scope["method"]
        self.path: str = scope["raw_path"].decode("latin-1")  # a proxy's rules see no other
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self._given: list[tuple[bytes, bytes]] = scope["headers"]
        self._receive = receive
        self._send = send
        self._on_lost: Callable[[Callable[[], None] | None], None] = scope["state"]["on_lost"]
        self._unread = self.method == "POST"
        self.left = False
        self.extra: list[tuple[bytes, bytes]] = []  # headers of every response to this request

    def header(self, name: str) -> str | None:
        """Return the value of a header, whose name is in lower case."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1").strip()

    def check_once(self) -> None:
        """Raise `Ended` where a header that decides something is there twice."""
        if len(self.headers) < len(self._given):
            names = [name for name, _ in self._given]
            for name in _ALONE:
                if names.count(name) > 1:
                    detail = f"the header {name.decode()} must be there once"
                    raise Ended(grpc.StatusCode.INVALID_ARGUMENT, detail)

    def deadline(self) -> float | None:
        """Return the seconds after which the caller gives up; None where it does not say."""
        text = self.header("grpc-timeout")
        if text is None:
            text = self.header("connect-timeout-ms")
            if text is None:
                return None
            text += "m"
        found = _TIMEOUT.fullmatch(text)
        if found is None:
            raise Ended(
                grpc.StatusCode.INVALID_ARGUMENT,
                "a timeout must be at most ten digits, in milliseconds for connect-timeout-ms",
            )
        return int(found[1]) * _UNITS[found[2]]

    async def read(self, most: int) -> bytes:
        """Return the body; raise `Ended` where it is larger than `most`, `Left` where it ends."""
        said = int(self.headers.get(b"content-length", b"0"))
        body = b""
        parts: list[bytes] = []
        size = 0
        while size <= most and said <= most:
            event = await self._event()
            body = event["body"]
            size += len(body)
            parts.append(body)
            if not event["more_body"]:
                self._unread = False
                if size > most:
                    break
                return body if len(parts) == 1 else b"".join(parts)
        raise Ended(
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            f"a message of this content type holds at most {most} bytes here, got {said or 'more'}",
        )

    async def _event(self) -> Mapping[str, Any]:
        event = await self._receive()
        if event["type"] == "http.disconnect":
            self.left = True
            raise Left
        return event

    @contextlib.contextmanager
    def attended(self) -> Iterator[None]:
        """Cancel what is in this context once the caller leaves; raise `Left` then.

        The connection tells: a task that waits for ASGI's event costs a call a third of our time.
        """
        task = asyncio.current_task()
        assert task is not None

        def leave() -> None:
            self.left = True
            task.cancel()

        self._on_lost(leave)
        try:
            yield
        except asyncio.CancelledError:
            if not self.left:
                raise
            task.uncancel()
            raise Left from None
        finally:
            self._on_lost(None)

    async def respond(self, status: int, content_type: str, body: bytes) -> None:
        """Answer with a whole body."""
        length = [] if status == 204 else [(b"content-length", b"%d" % len(body))]
        await self._start(status, content_type, *length)
        await self.end(body)

    async def refuse(self, error: Ended, status: int | None = None) -> None:
        """Answer with an error, as Connect writes it."""
        self.extra += [(name.encode(), value.encode()) for name, value in retry(error)]
        if error.code == grpc.StatusCode.UNAUTHENTICATED:
            self.extra.append((b"www-authenticate", b"Bearer"))
        body = json.dumps(error_of(error)).encode()
        await self.respond(status or HTTP_STATUS.get(error.code, 500), "application/json", body)

    async def refuse_reader(self, error: Ended, status: int) -> None:
        """Answer with an error in words, for a person who looks at it.

        It loads nothing: whatever the page asked for here would be refused, too.
        """
        self.extra += _PAGE
        text = html.escape(str(error))
        body = _REFUSED.format(text=text[:1].upper() + text[1:])
        await self.respond(status, "text/html; charset=utf-8", body.encode())

    async def start_stream(self, content_type: str) -> None:
        """Begin an answer of several parts."""
        # nginx, among others, holds a stream back until it has some kilobytes.
        await self._start(200, content_type, (b"x-accel-buffering", b"no"))

    async def send_part(self, part: bytes) -> None:
        """Send a part of an answer that has begun."""
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self, part: bytes) -> None:
        """Send the last part of an answer."""
        if self._unread:
            await self.send_part(part)
            await self._throw_away()
            part = b""
        await self._send({"type": "http.response.body", "body": part})

    async def pass_on(self, site: Callable[..., Awaitable[None]]) -> None:
        """Let another ASGI application answer. It reads the body, and bounds it."""

        async def receive() -> Mapping[str, Any]:
            event = await self._event()
            self._unread = self._unread and event["more_body"]
            return event

        async def send(event: Mapping[str, Any]) -> None:
            if event["type"] == "http.response.start":
                headers = [(b"date", _date(int(time.time()))), *event["headers"]]
                if self._unread:
                    headers.append((b"connection", b"close"))
                await self._send({**event, "headers": headers})
            elif event.get("more_body"):
                await self.send_part(event["body"])
            else:
                await self.end(event["body"])

        # The path as it came: decoded, a proxy's rules would not have seen it.
        with self.attended():
            await site({**self._scope, "path": self.path}, receive, send)

    async def _start(self, status: int, content_type: str, *more: tuple[bytes, bytes]) -> None:
        headers = [
            (b"date", _date(int(time.time()))),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            *more,
            *self.extra,
        ]
        if content_type:
            headers.append((b"content-type", content_type.encode()))
        if self._unread:
            headers.append((b"connection", b"close"))
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _throw_away(self) -> None:
        with contextlib.suppress(TimeoutError, Left):
            async with asyncio.timeout(_LINGER):
                while (await self._event())["more_body"]:
                    pass


@lru_cache(maxsize=1)
def _date(now: int) -> bytes:
    return formatdate(now, usegmt=True).encode()
