"""Traces by OpenTelemetry: a span for each call, with its method and status and nothing else.

The instrumentation of gRPC that OpenTelemetry has would add the caller's address, and take the
caller's trace: an id that a device chose would join its calls.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc

from hearsay_server.build import version
from ldp.errors import InvalidInput, needs

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_PROTOCOL = "http/protobuf"

_FAULTS = {
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
}
"""Statuses that make a span an error: the server's own, and none of the caller's."""

_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}

_Continue = Callable[[grpc.HandlerCallDetails], Awaitable[Any]]


class Tracing(grpc.aio.ServerInterceptor):
    """Make a span for every call of a method that exists, whether or not it is let in.

    It stands before the gate, whose handlers read a stream whatever the method takes.
    """

    def __init__(self, tracer: "Tracer") -> None:
        self._tracer = tracer

    async def intercept_service(
        self, continuation: _Continue, handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """Return the method's handler within a span; None where there is no such method."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None
        name = handler_call_details.method.removeprefix("/")
        inner = handler.stream_stream or handler.stream_unary

        async def traced(messages: Any, context: Any) -> Any:
            with self._span(name, context):
                return await inner(messages, context)

        make = (
            grpc.stream_stream_rpc_method_handler
            if handler.response_streaming
            else grpc.stream_unary_rpc_method_handler
        )
        return make(traced, handler.request_deserializer, handler.response_serializer)

    @contextlib.contextmanager
    def _span(self, name: str, call: Any) -> Iterator[None]:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, StatusCode

        service, _, method = name.partition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        # An empty context: the span has no parent.
        span = self._tracer.start_span(
            name, Context(), SpanKind.SERVER, attributes, record_exception=False
        )
        code = None
        try:
            yield
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        finally:
            code = code or _code(call)
            span.set_attribute("rpc.grpc.status_code", code.value[0])
            if code in _FAULTS:
                span.set_status(StatusCode.ERROR)
            span.end()


def _code(call: Any) -> grpc.StatusCode:
    """Return the status of a call that has ended; gRPC gives a number or nothing for OK."""
    code = call.code()
    if isinstance(code, grpc.StatusCode):
        return code
    return _BY_NUMBER.get(code or 0, grpc.StatusCode.UNKNOWN)


@contextlib.asynccontextmanager
async def exported(wanted: bool) -> AsyncIterator[list[grpc.aio.ServerInterceptor]]:
    """Export spans by OTLP over HTTP, as the variables OTEL_* say, while the context lasts.

    Yields the interceptor, or none unless `wanted`. On leaving, the spans that wait are sent.
    Raises `MissingExtra` without OpenTelemetry, and `InvalidInput` for another protocol.
    """
    if not wanted:
        yield []
        return
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if (protocol := os.environ.get(variable, _PROTOCOL)) != _PROTOCOL:
            raise InvalidInput(f"{variable} must be {_PROTOCOL}, got {protocol!r}")
    with needs("traces", "otel"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({"service.version": version()})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "hearsay"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield [Tracing(provider.get_tracer("hearsay", version()))]
    finally:
        await asyncio.to_thread(provider.shutdown)
