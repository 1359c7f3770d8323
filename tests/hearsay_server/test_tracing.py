"""What a real collector of OpenTelemetry is told of calls, and that it is nothing of callers."""

import asyncio
import contextlib
import gzip
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from over_http import GET_PLAN, JSON, LIST, answering
from serving import batch, connected, register, serving, submit, tokens_of

from hearsay import Analyst
from hearsay.v1 import analyst_pb2, analyst_pb2_grpc, collector_pb2, collector_pb2_grpc
from hearsay_server.build import version
from hearsay_server.config import Config
from hearsay_server.serving.serve import running
from hearsay_server.storage.database import open_folder
from ldp.errors import InvalidInput, MissingExtra
from support import free_port


class Collected:
    """A collector of OTLP over HTTP: the requests that came."""

    def __init__(self) -> None:
        self.requests: list[ExportTraceServiceRequest] = []

    def spans(self) -> list[Span]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def statuses(self) -> dict[str, list[int]]:
        """Return the gRPC statuses of all calls by method."""
        found: dict[str, list[int]] = {}
        for span in self.spans():
            attributes = {each.key: each.value for each in span.attributes}
            code = attributes["rpc.grpc.status_code"].int_value
            found.setdefault(span.name, []).append(code)
        return found


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collected]:
    came = Collected()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                data = gzip.decompress(data)
            assert self.path == "/v1/traces"
            came.requests.append(ExportTraceServiceRequest.FromString(data))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    yield came
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_call_is_a_span_with_its_method_and_status(
    tmp_path: Path, collected: Collected
) -> None:
    known = tokens_of(tmp_path)
    admin, analyst = (known.create(role)[1] for role in ("admin", "analyst"))
    with serving(tmp_path, traces=True) as address:
        submit(address, batch(register(address, admin)))
        with Analyst(address, token=analyst) as asking:
            asking.estimate("health", "smokes")
        with connected(address) as channel:
            stub = collector_pb2_grpc.CollectorStub(channel)
            with pytest.raises(grpc.RpcError):
                stub.GetPlan(collector_pb2.GetPlanRequest(survey="missing"), timeout=5)
            with pytest.raises(grpc.RpcError):
                channel.unary_unary("/hearsay.v1.Collector/Missing")(b"", timeout=5)
        with pytest.raises(grpc.RpcError):
            register(address)  # without a token
    assert collected.statuses() == {
        "hearsay.v1.Admin/CreateSurvey": [0, 16],
        "hearsay.v1.Admin/ShowSurvey": [0],  # by whose plan the analyst checks what is answered
        "hearsay.v1.Collector/Submit": [0],
        "hearsay.v1.Answers/Estimate": [0],
        "hearsay.v1.Collector/GetPlan": [5],
    }
    for span in collected.spans():
        assert span.kind == Span.SPAN_KIND_SERVER
        assert span.end_time_unix_nano > span.start_time_unix_nano
        assert span.status.code == Status.STATUS_CODE_UNSET  # the caller's own faults
    (resource,) = {
        r.resource.SerializeToString() for q in collected.requests for r in q.resource_spans
    }
    assert b"hearsay" in resource
    assert version().encode() in resource


def test_a_span_tells_nothing_of_the_caller(tmp_path: Path, collected: Collected) -> None:
    admin = tokens_of(tmp_path).create("admin")[1]
    trace = "0af7651916cd43dd8448eb211c80319c"
    with serving(tmp_path, traces=True) as address:
        sent = batch(register(address, admin))
        with connected(address) as channel:
            stub = collector_pb2_grpc.CollectorStub(channel)
            metadata = (("traceparent", f"00-{trace}-b7ad6b7169203331-01"), ("baggage", "user=ada"))
            stub.Submit(collector_pb2.SubmitRequest(batches=[sent]), metadata=metadata, timeout=9)
    (span,) = [span for span in collected.spans() if span.name.endswith("/Submit")]
    assert {each.key for each in span.attributes} == {
        *("rpc.system", "rpc.service", "rpc.method", "rpc.grpc.status_code")
    }
    assert (span.parent_span_id, list(span.links), list(span.events)) == (b"", [], [])
    assert span.trace_id != bytes.fromhex(trace)
    told = b"".join(request.SerializeToString() for request in collected.requests)
    for word in (b"127.0.0.1", admin.encode(), sent.id, b"health", b"smokes", b"ada"):
        assert word not in told


def test_a_stream_whose_caller_leaves_and_a_fault_have_their_status(
    tmp_path: Path, collected: Collected
) -> None:
    with serving(tmp_path, traces=True) as address:
        submit(address, batch(register(address)))
        question = analyst_pb2.EstimateRequest(survey="health", attribute="smokes")
        with connected(address) as channel:
            watch = analyst_pb2_grpc.AnswersStub(channel).Watch(
                analyst_pb2.WatchRequest(question=question), timeout=30
            )
            next(watch)
            watch.cancel()
            time.sleep(0.2)
            with (
                contextlib.closing(open_folder(tmp_path)) as database,
                database.changing() as connection,
            ):
                connection.exec_driver_sql("DROP TABLE audit")
            with pytest.raises(grpc.RpcError, match="failed to answer"):
                export = analyst_pb2.ExportRowsRequest(survey="health")
                list(analyst_pb2_grpc.AnswersStub(channel).ExportRows(export, timeout=9))
    assert collected.statuses()["hearsay.v1.Answers/Watch"] == [1]
    assert collected.statuses()["hearsay.v1.Answers/ExportRows"] == [13]
    faults = [
        span.name for span in collected.spans() if span.status.code == Status.STATUS_CODE_ERROR
    ]
    assert faults == ["hearsay.v1.Answers/ExportRows"]


def test_a_call_over_http_is_a_span_like_any_other(tmp_path: Path, collected: Collected) -> None:
    with answering(tmp_path, traces=True) as door:
        assert door.ask(GET_PLAN, '{"survey": "missing"}').status == 404
        assert door.ask(LIST).status == 200
        assert door.ask(LIST, headers=JSON | {"host": "evil.example"}).status == 421  # no call
    assert collected.statuses() == {
        "hearsay.v1.Collector/GetPlan": [5],
        "hearsay.v1.Admin/ListSurveys": [0],
    }


def test_a_collector_that_is_away_stops_no_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    begin = time.monotonic()
    with serving(tmp_path, traces=True) as address:
        submit(address, batch(register(address)))
    assert time.monotonic() - begin < 10


def test_another_protocol_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    message = "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf, got 'grpc'"
    with pytest.raises(InvalidInput, match=message):
        _start(tmp_path)


def test_without_opentelemetry_the_error_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(MissingExtra, match=r"pip install 'hearsay-ldp\[otel\]'"):
        _start(tmp_path)


def _start(folder: Path) -> None:
    async def start() -> None:
        async with running(Config(data=folder, listen="127.0.0.1:0", traces=True)):
            raise AssertionError("it started")

    asyncio.run(start())
