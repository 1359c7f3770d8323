"""The gateway of a shuffler: requests that come by way of a relay are opened and answered here.

Source: RFC 9458, "Oblivious HTTP", sections 4 and 5. Repeats are not looked for (section 6.5): the
pools know a record that came before, whoever sends it again.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import grpc

from hearsay.sealed import binary_http, keys, oblivious
from hearsay_server.config import ShufflerConfig
from hearsay_server.serving.http.app import App
from hearsay_server.serving.http.exchange import Exchange
from hearsay_server.serving.status import Ended
from ldp.errors import InvalidInput

_MULTIPLE = 512
"""Answers are padded to a multiple of so many bytes: a relay cannot tell a refusal by its size."""

_SMALL = 4096
"""Bytes of a request beside the message inside: what encapsulates it, headers and padding."""

_UNKNOWN_KEY = "https://iana.org/assignments/http-problem-types#ohttp-key"

_Keys = Mapping[int, tuple[bytes, bytes]]


class Gateway:
    """An ASGI application that opens encapsulated requests, and has another answer them."""

    def __init__(self, app: App, pairs: _Keys, config: ShufflerConfig) -> None:
        """Have `app` answer; `pairs` are private and public keys by number, the newest first."""
        self._app = app
        self._privates = {number: private for number, (private, _) in pairs.items()}
        self._configs = keys.list_of(
            keys.key_config(number, public) for number, (_, public) in pairs.items()
        )
        self._most = config.max_message_bytes + _SMALL
        self._seconds = config.max_upload_seconds
        self._places = config.max_open_calls

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["raw_path"] != oblivious.PATH.encode():
            await self._app(scope, receive, send)
            return
        exchange = Exchange(scope, receive, send)
        try:
            await self._answer(exchange, scope)
        except Ended as error:
            await exchange.refuse(error)
        except InvalidInput as error:
            await _refuse(exchange, "about:blank", str(error))
        except asyncio.CancelledError:
            if not exchange.left:
                raise

    async def _answer(self, exchange: Exchange, scope: Mapping[str, Any]) -> None:
        exchange.check_once()
        if exchange.method in ("GET", "HEAD"):
            await exchange.respond(200, oblivious.KEYS_TYPE, self._configs)
            return
        kind = (exchange.header("content-type") or "").lower()
        if exchange.method != "POST" or kind != oblivious.REQUEST_TYPE:
            detail = f"a gateway takes POST with the content type {oblivious.REQUEST_TYPE}"
            raise Ended(grpc.StatusCode.UNIMPLEMENTED, detail)
        if not self._places:
            detail = "too many requests are under way already"
            raise Ended(grpc.StatusCode.RESOURCE_EXHAUSTED, detail, 1.0)
        self._places -= 1
        try:
            body = await self._read(exchange)
            if not oblivious.names_a_key(body, self._privates):
                await _refuse(exchange, _UNKNOWN_KEY, "the request names no key of this gateway")
                return
            message, opener = oblivious.decapsulated(body, self._privates)
            answer = await self._inside(binary_http.read_request(message), scope)
        finally:
            self._places += 1
        sealed = opener.sealed(answer.encode(_MULTIPLE))
        await exchange.respond(200, oblivious.RESPONSE_TYPE, sealed)

    async def _read(self, exchange: Exchange) -> bytes:
        try:
            async with asyncio.timeout(self._seconds):
                return await exchange.read(self._most)
        except TimeoutError:
            detail = f"the message did not come within {self._seconds:g} s"
            raise Ended(grpc.StatusCode.DEADLINE_EXCEEDED, detail) from None

    async def _inside(
        self, request: binary_http.Request, scope: Mapping[str, Any]
    ) -> binary_http.Response:
        """Have the application answer what was inside, and return its whole answer."""
        headers = [entry for entry in request.headers if entry[0] != b"host"]
        size = b"%d" % len(request.content)
        inner = {
            **scope,
            "method": request.method,
            "path": request.path,
            "raw_path": request.path.encode("ascii"),
            "query_string": b"",
            "headers": [
                *(entry for entry in headers if entry[0] != b"content-length"),
                (b"host", request.authority.encode("ascii")),
                (b"content-length", size),
            ],
        }
        came: list[Mapping[str, Any]] = []

        async def receive() -> Mapping[str, Any]:
            return {"type": "http.request", "body": request.content, "more_body": False}

        async def send(event: Mapping[str, Any]) -> None:
            came.append(event)

        await self._app(inner, receive, send)
        if not came:  # the relay hung up, which ends what was under way
            raise Ended(grpc.StatusCode.CANCELLED, "the relay has left")
        start, *parts = came
        return binary_http.Response(
            start["status"],
            {name.decode(): value.decode("latin-1") for name, value in start["headers"]},
            b"".join(part["body"] for part in parts),
        )


async def _refuse(exchange: Exchange, kind: str, words: str) -> None:
    """Answer in the clear why a request cannot be opened (RFC 9458, section 5.2)."""
    problem = json.dumps({"type": kind, "title": words}).encode()
    await exchange.respond(400, "application/problem+json", problem)
