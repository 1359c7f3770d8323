"""The interceptor that hands every call over gRPC to the guard.

Its handlers read a call's message themselves: gRPC would read it before the guard has looked at
the call, wait for ever for a message that does not come, and tell the caller of internal errors.
"""

import inspect
import math
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from hearsay_server.serving.auth import bearer
from hearsay_server.serving.guard import Guard
from hearsay_server.serving.status import Ended, unreadable

_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_Continue = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class Gate(grpc.aio.ServerInterceptor):
    """Put the guard before every method of a gRPC server."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._guarded: dict[str, _Handler] = {}

    async def intercept_service(
        self, continuation: _Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the method's guarded handler; None where there is no such method."""
        method = handler_call_details.method
        if method not in self._guarded:
            handler = await continuation(handler_call_details)
            if handler is None:
                return None
            self._guarded[method] = self._put_before(method.removeprefix("/"), handler)
        return self._guarded[method]

    def _put_before(self, method: str, handler: _Handler) -> _Handler:
        """Wrap the handler of a method ("service/name"), of whichever of the four kinds.

        To gRPC the result reads a stream; of a unary request it hands on the only message.
        """
        asked, answered = (
            "stream" if streaming else "unary"
            for streaming in (handler.request_streaming, handler.response_streaming)
        )
        inner = getattr(handler, f"{asked}_{answered}")
        yields = inspect.isasyncgenfunction(inner)

        async def guarded(messages: Any, context: Any) -> Any:
            try:
                async with self._guard.call(method, _bearer(context)) as call:
                    reads = handler.request_streaming
                    request = messages if reads else await _read(handler, context)
                    call.read()
                    if not yields:
                        return await inner(request, context)
                    await call.stream(inner(request, context), context.write)
            except Ended as error:
                await _abort(context, error)

        write = partial(_written, handler)
        if handler.response_streaming:
            read = handler.request_deserializer if handler.request_streaming else None
            return grpc.stream_stream_rpc_method_handler(guarded, read, write)
        return grpc.stream_unary_rpc_method_handler(guarded, None, write)


async def _read(handler: _Handler, context: Any) -> Any:
    data = await context.read()
    try:
        if data is not grpc.aio.EOF:
            read: Any = handler.request_deserializer
            return read(data)
    except DecodeError:
        pass
    raise unreadable()


def _written(handler: _Handler, answer: Any) -> bytes:
    """Serialise an answer; one of bytes was serialised in another process, so that we need not."""
    if isinstance(answer, bytes):
        return answer
    write: Any = handler.response_serializer
    data: bytes = write(answer)
    return data


async def _abort(context: Any, error: Ended) -> None:
    trailing: tuple[tuple[str, str], ...] = ()
    if error.retry_after is not None:
        trailing = (("retry-after-ms", str(math.ceil(1000 * error.retry_after))),)
    await context.abort(error.code, str(error), trailing)


def _bearer(context: Any) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization" and isinstance(value, str):
            return bearer(value)
    return None
