"""The interceptor before every service: who is let in, how many at once, and for how long.

The interceptor looks at a call before any of its message is read, and its handler reads the
message itself: so a message that does not come can be given up, and internal errors can be kept
from the caller.
"""

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from hearsay_server.limits import TooMany
from hearsay_server.serving import auth
from hearsay_server.serving.auth import EVERYBODY, Denied, Policy
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.status import MENDED, abort, put_off, refuse
from hearsay_server.storage.database import is_away

_log = logging.getLogger("hearsay.server")

FOR_EVERYBODY = 64
"""Calls at once to services that need no token: a newer one takes the place of the oldest."""

_LOOKED_UP = 1.0
"""Seconds between two looks whether the token of a call that streams works still."""

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Continue = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class Gate(grpc.aio.ServerInterceptor):
    """Let calls in by `policy`, at most `max_open_calls` at once; services open to all count apart.

    A call is open from its first byte to its end; its message must come in `max_upload` seconds.
    """

    def __init__(
        self, policy: Policy, metrics: Metrics, max_open_calls: int, max_upload: float
    ) -> None:
        self._policy = policy
        self._metrics = metrics
        self._max = max_open_calls
        self._max_upload = max_upload
        self._open = 0
        self._for_everybody: dict[asyncio.Timeout, None] = {}  # oldest first
        self._guarded: dict[str, _Handler] = {}
        metrics.open_calls.set_function(lambda: self._open)

    async def intercept_service(
        self, continuation: _Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the method's guarded handler, or a handler that answers why the call is denied."""
        method = handler_call_details.method
        service = method.rpartition("/")[0].removeprefix("/")
        try:
            token = _bearer(handler_call_details.invocation_metadata)
            auth.called_by(await self._policy.admit(service, token, method))
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
            self._guarded[method] = self._guard(method.removeprefix("/"), handler)
        return self._guarded[method]

    def _guard(self, method: str, handler: _Handler) -> _Handler:
        """Wrap the handler of a method ("service/name"), of whichever of the four kinds.

        To gRPC the result reads a stream; of a unary request it hands on the only message.
        """
        asked, answered = (
            "stream" if streaming else "unary"
            for streaming in (handler.request_streaming, handler.response_streaming)
        )
        inner = getattr(handler, f"{asked}_{answered}")
        yields = inspect.isasyncgenfunction(inner)
        service = method.partition("/")[0]
        seconds = self._metrics.call_seconds.labels(method)

        async def guarded(messages: Any, context: Any) -> Any:
            begin = time.perf_counter()
            limit = asyncio.timeout(None if handler.request_streaming else self._max_upload)
            try:
                async with limit:
                    with self._place(service, limit):
                        request = messages
                        if not handler.request_streaming:
                            request = await _read(handler, context)
                            limit.reschedule(None)
                        if not yields:
                            return await inner(request, context)
                        await self._stream(service, inner(request, context), context)
            except grpc.aio.AbortError:
                raise
            except Exception as error:
                await self._fail(context, _overdue(limit, error))
            finally:
                seconds.observe(time.perf_counter() - begin)

        write = partial(_written, handler)
        if handler.response_streaming:
            read = handler.request_deserializer if handler.request_streaming else None
            return grpc.stream_stream_rpc_method_handler(guarded, read, write)
        return grpc.stream_unary_rpc_method_handler(guarded, None, write)

    @contextlib.contextmanager
    def _place(self, service: str, call: asyncio.Timeout) -> Iterator[None]:
        """Count a call while it lasts; raise `TooMany` where the limit is reached."""
        if service in EVERYBODY:
            if len(self._for_everybody) >= FOR_EVERYBODY:
                oldest = next(iter(self._for_everybody))
                del self._for_everybody[oldest]
                if not oldest.expired():
                    oldest.reschedule(0)
            self._for_everybody[call] = None
            try:
                yield
            finally:
                self._for_everybody.pop(call, None)
            return
        if self._open >= self._max:
            raise TooMany(f"{self._max} calls are under way already", "calls", retry_after=1.0)
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    async def _stream(self, service: str, answers: Any, context: Any) -> None:
        """Send answers until they end, or raise `Denied` once the caller's token works no more."""
        tasks = [asyncio.create_task(self._send(service, answers, context))]
        if service not in EVERYBODY:
            tasks.append(asyncio.create_task(self._admitted(service, context)))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _send(self, service: str, answers: Any, context: Any) -> None:
        async with contextlib.aclosing(answers):
            async for answer in answers:
                await self._policy.admit(service, _bearer(context.invocation_metadata()))
                await context.write(answer)

    async def _admitted(self, service: str, context: Any) -> NoReturn:
        """Raise `Denied` once the caller's token works no more."""
        while True:
            await asyncio.sleep(_LOOKED_UP)
            await self._policy.admit(service, _bearer(context.invocation_metadata()))

    async def _fail(self, context: Any, error: Exception) -> NoReturn:
        """End a call with a status: the caller's own errors in detail, internal ones without."""
        if isinstance(error, TooMany):
            self._metrics.limited.labels(error.limit).inc()
            await refuse(context, error)
        if isinstance(error, Denied):
            self._metrics.denied.labels(error.reason).inc()
            await abort(context, error.code, str(error))
        if isinstance(error, _Unreadable):
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
        _log.error("a call failed", exc_info=error)
        if is_away(error):
            detail = "the database does not answer"
            await put_off(context, grpc.StatusCode.UNAVAILABLE, detail, MENDED)
        await abort(context, grpc.StatusCode.INTERNAL, "the server failed to answer")


class _Unreadable(Exception):
    """A message is not of its type: gRPC itself would tell the caller why not."""


async def _read(handler: _Handler, context: Any) -> Any:
    data = await context.read()
    try:
        if data is not grpc.aio.EOF:
            read: Any = handler.request_deserializer
            return read(data)
    except DecodeError:
        pass
    raise _Unreadable("the message is not of the type that this method takes")


def _written(handler: _Handler, answer: Any) -> bytes:
    """Serialise an answer; one of bytes was serialised in another process, so that we need not."""
    if isinstance(answer, bytes):
        return answer
    write: Any = handler.response_serializer
    data: bytes = write(answer)
    return data


def _overdue(limit: asyncio.Timeout, error: Exception) -> Exception:
    """Return `TooMany` where our time limit ended a call; another error as it is."""
    if not isinstance(error, TimeoutError) or not limit.expired():
        return error
    if limit.when() == 0:
        return TooMany("newer calls took its place", "calls", retry_after=1.0)
    return TooMany("the message took too long to come", "upload", retry_after=1.0)


def _answering(error: Exception) -> _Handler:
    """Return a handler that answers any kind of call with an error, its message unread."""

    async def answer(requests: Any, context: Any) -> None:
        if isinstance(error, Denied):
            await abort(context, error.code, str(error))
        else:
            detail = "tokens cannot be looked up now"
            await put_off(context, grpc.StatusCode.UNAVAILABLE, detail, MENDED)

    return grpc.stream_stream_rpc_method_handler(answer)


def _bearer(metadata: Any) -> str | None:
    for key, value in metadata or ():
        if key == "authorization" and isinstance(value, str):
            scheme, _, token = value.partition(" ")
            if scheme.lower() == "bearer":
                return token.strip()
    return None
