"""Who is calling, and whether they may: what stands before every service.

An interceptor looks at a call before any of its message is read. It settles the caller's role,
counts calls under way, and keeps what goes wrong inside from the caller.
"""

import asyncio
import inspect
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health
from grpc_reflection.v1alpha import reflection

from hearsay_server.database import is_away
from hearsay_server.limits import TooMany
from hearsay_server.metrics import Metrics
from hearsay_server.services.answers import MENDED, abort, put_off, refuse
from hearsay_server.tokens import Token, Tokens, hashed

_log = logging.getLogger("hearsay.server")

ROLES = {
    "hearsay.v1.Collector": "device",
    "hearsay.v1.Analyst": "analyst",
    "hearsay.v1.Admin": "admin",
}
"""Whom each service is for."""

_EVERYBODY = {health.SERVICE_NAME, reflection.SERVICE_NAME}
"""Services that tell no data. What is in neither is for admins."""

_FRESH = 1.0
"""Seconds that a look at the tokens is good for: a revocation takes as long."""

_REMEMBERED = 1 << 16
"""Tokens of which the last look is remembered."""

_caller: ContextVar[str] = ContextVar("hearsay_caller", default="")

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Continue = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


def caller() -> str:
    """Return the id of the token that the call under way was made with; "" for none."""
    return _caller.get()


class Denied(Exception):
    """Why a call is not let in."""

    def __init__(self, code: grpc.StatusCode, detail: str, reason: str) -> None:
        super().__init__(detail)
        self.code = code
        self.reason = reason


@dataclass(frozen=True)
class _Look:
    token: Token | None
    until: float


class Policy:
    """Decide by a call's service and token whether it may be made."""

    def __init__(self, tokens: Tokens, *, loopback: bool, require_device_token: bool) -> None:
        """Ask for tokens: always off loopback, and on it as soon as one was ever made."""
        self._tokens = tokens
        self._required = not loopback or tokens.any()  # known before the first call comes
        self._require_device_token = require_device_token
        self._looks: dict[bytes, _Look] = {}  # by hash: a secret is not kept, even in memory
        self._checked = -_FRESH

    async def admit(self, service: str, text: str | None) -> str:
        """Return the id of the caller's token, "" for none; raise `Denied`.

        `text` is the token that the call came with.
        """
        if service in _EVERYBODY:
            return ""
        role = ROLES.get(service, "admin")
        asked = await self._asks()
        needed = self._require_device_token if role == "device" else asked
        if not needed and (text is None or not asked):
            return ""
        if text is None:
            detail = f"{service} needs `authorization: Bearer TOKEN` with a token of role {role}"
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, detail, "missing")
        token = await self._find(text)
        if token is None:
            detail = "the token is not known, has expired or was revoked"
            raise Denied(grpc.StatusCode.UNAUTHENTICATED, detail, "unknown")
        if token.role != role:
            detail = f"{service} needs a token of role {role}, this one is of role {token.role}"
            raise Denied(grpc.StatusCode.PERMISSION_DENIED, detail, "wrong_role")
        return token.id

    async def _asks(self) -> bool:
        """Tell whether tokens are asked for at all."""
        now = time.monotonic()
        if not self._required and now - self._checked >= _FRESH:
            self._checked = now
            self._required = await asyncio.to_thread(self._tokens.any)
        return self._required

    async def _find(self, text: str) -> Token | None:
        now = time.monotonic()
        hash_ = hashed(text)
        look = self._looks.get(hash_)
        if look is None or look.until <= now:
            if len(self._looks) >= _REMEMBERED:
                self._looks.clear()
            look = _Look(await asyncio.to_thread(self._tokens.find, hash_), now + _FRESH)
            self._looks[hash_] = look
        return look.token


class Gate(grpc.aio.ServerInterceptor):
    """Let calls in by `policy`, at most `max_open_calls` at once."""

    def __init__(self, policy: Policy, metrics: Metrics, max_open_calls: int) -> None:
        self._policy = policy
        self._metrics = metrics
        self._max = max_open_calls
        self._open = 0
        self._guarded: dict[str, _Handler] = {}
        metrics.open_calls.set_function(lambda: self._open)

    async def intercept_service(
        self, continuation: _Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the method's handler, guarded, or one that answers why not."""
        method = handler_call_details.method
        try:
            if self._open >= self._max:
                detail = f"{self._max} calls are under way already"
                raise TooMany(detail, "calls", retry_after=1.0)
            service = method.rpartition("/")[0].removeprefix("/")
            _caller.set(await self._policy.admit(service, _bearer(handler_call_details)))
        except TooMany as error:
            self._metrics.limited.labels(error.limit).inc()
            return _answering(error)
        except Denied as error:
            self._metrics.denied.labels(error.reason).inc()
            return _answering(error)
        except Exception as error:
            _log.exception("a caller's token could not be looked up")
            return _answering(error)
        if method not in self._guarded:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._guarded[method] = self._guard(handler)
        return self._guarded[method]

    def _guard(self, handler: _Handler) -> _Handler:
        """Wrap a handler, of whichever of the four kinds, so that it counts and is discreet."""
        asked, answered = (
            "stream" if streaming else "unary"
            for streaming in (handler.request_streaming, handler.response_streaming)
        )
        inner = getattr(handler, f"{asked}_{answered}")
        make = getattr(grpc, f"{asked}_{answered}_rpc_method_handler")
        read = handler.request_deserializer
        if read is not None and not handler.request_streaming:
            read = _or_unreadable(read)

        async def awaited(request: Any, context: Any) -> Any:
            self._open += 1
            try:
                await _check_readable(request, context)
                return await inner(request, context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await _fail(context, error)
            finally:
                self._open -= 1

        async def generated(requests: Any, context: Any) -> AsyncIterator[Any]:
            self._open += 1
            try:
                await _check_readable(requests, context)
                async for answer in inner(requests, context):
                    yield answer
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await _fail(context, error)
            finally:
                self._open -= 1

        outer = generated if inspect.isasyncgenfunction(inner) else awaited
        guarded: _Handler = make(outer, read, handler.response_serializer)
        return guarded


_UNREADABLE = object()
"""Stands for a message that is not one of its type: gRPC itself would tell the caller why not."""


def _or_unreadable(read: Callable[[bytes], object]) -> Callable[[bytes], object]:
    def tried(data: bytes) -> object:
        try:
            return read(data)
        except DecodeError:
            return _UNREADABLE

    return tried


async def _check_readable(request: object, context: Any) -> None:
    if request is _UNREADABLE:
        detail = "the message is not of the type that this method takes"
        await abort(context, grpc.StatusCode.INVALID_ARGUMENT, detail)


async def _fail(context: Any, error: Exception) -> NoReturn:
    """Log what a handler did not expect, and tell the caller no more than that it failed."""
    _log.exception("a call failed")
    if is_away(error):
        await put_off(context, grpc.StatusCode.UNAVAILABLE, "the database does not answer", MENDED)
    await abort(context, grpc.StatusCode.INTERNAL, "the server failed to answer")


def _answering(error: Exception) -> _Handler:
    """Return a handler that answers any kind of call with an error, its message unread."""

    async def answer(requests: Any, context: Any) -> None:
        if isinstance(error, TooMany):
            await refuse(context, error)
        elif isinstance(error, Denied):
            await abort(context, error.code, str(error))
        else:
            detail = "tokens cannot be looked up now"
            await put_off(context, grpc.StatusCode.UNAVAILABLE, detail, MENDED)

    return grpc.stream_stream_rpc_method_handler(answer)


def _bearer(details: grpc.HandlerCallDetails) -> str | None:
    for key, value in details.invocation_metadata or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer":
                return token.strip()
    return None
