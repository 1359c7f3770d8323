"""Traces by OpenTelemetry: a span for each call, with its method and status and nothing else.

The instrumentation of gRPC that OpenTelemetry has would add the caller's address, and take the
caller's trace: an id that a device chose would join its calls.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

import grpc

from hearsay_server.build import version
from hearsay_server.serving.status import Ended
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


class Spans:
    """Makes a span for every call of a method that exists, whether or not it is let in."""

    def __init__(self, tracer: "Tracer") -> None:
        self._tracer = tracer

    @contextlib.contextmanager
    def call(self, name: str) -> Iterator[None]:
        """Put a call of a method ("service/name") into a span; an error's status is the span's."""
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind, StatusCode

        service, _, method = name.partition("/")
        attributes = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": method}
        # An empty context: the span has no parent.
        span = self._tracer.start_span(
            name, Context(), SpanKind.SERVER, attributes, record_exception=False
        )
        code = grpc.StatusCode.OK
        try:
            yield
        except Ended as error:
            code = error.code
            raise
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        finally:
            span.set_attribute("rpc.grpc.status_code", code.value[0])
            if code in _FAULTS:
                span.set_status(StatusCode.ERROR)
            span.end()


@contextlib.asynccontextmanager
async def exported(wanted: bool) -> AsyncIterator[Spans | None]:
    """Export spans by OTLP over HTTP, as the variables OTEL_* say, while the context lasts.

    Yields None unless `wanted`. On leaving, the spans that wait are sent.
    Raises `MissingExtra` without OpenTelemetry, and `InvalidInput` for another protocol.
    """
    if not wanted:
        yield None
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
        yield Spans(provider.get_tracer("hearsay", version()))
    finally:
        await asyncio.to_thread(provider.shutdown)
