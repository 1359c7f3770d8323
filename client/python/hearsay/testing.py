"""Test doubles for an app: capture batches without a server, or with one in this process.

Nothing in `hearsay` imports this module, and it imports only where tests run: a client that
records into a list instead of sending must not reach users by accident.
"""

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

from google.protobuf.message import DecodeError, Message

from hearsay.plans import presence
from hearsay.plans.plan import Plan, parse
from hearsay.sending.failures import RETRY_AFTER
from hearsay.sending.transport import Unreachable
from hearsay.v1 import collector_pb2
from ldp import InvalidInput, Tally

if not {"pytest", "unittest"} & set(sys.modules) and os.environ.get("HEARSAY_TESTING") != "1":
    raise ImportError(
        "hearsay.testing is for tests: run under pytest or unittest, or set HEARSAY_TESTING=1"
    )

M = TypeVar("M", bound=Message)

Answer = collector_pb2.Result | Exception
"""The answer to a batch: a result, or an error such as `Unreachable` that is raised."""


class RecordingTransport:
    """A transport that keeps batches instead of sending: `Client(RecordingTransport(plan), ...)`.

    `plan` is the survey's plan, as `hearsay survey plan SURVEY.toml --out FILE` writes it.
    `batches` are all that were handed over, retries included; `forgotten` the ids that the server
    was asked to forget. Each batch is answered with the next of `answers`, and where none is
    left with STORED, or DUPLICATE where its id was stored before. Answers carry `server_time`,
    seconds since 1970 that a test may set; None is the present.
    """

    def __init__(self, plan: bytes) -> None:
        """Raise `InvalidInput` where the bytes are no plan."""
        self.plan: Plan = parse(plan)
        self.batches: list[collector_pb2.Batch] = []
        self.forgotten: list[bytes] = []
        self.answers: list[Answer] = []
        self.server_time: int | None = None
        self._plan = plan
        self._stored: set[bytes] = set()

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        """Return the plan; raise `InvalidInput` for another survey."""
        if survey != self.plan.survey:
            raise InvalidInput(f"there is no survey {survey!r} here")
        return collector_pb2.GetPlanResponse(plan=self._plan, server_time=self._now())

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        """Keep a batch and answer it."""
        result = self._take(batch)
        return collector_pb2.SubmitResponse(results=[result], server_time=self._now())

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        """Keep the ids in `forgotten`, and answer that each is forgotten."""
        self.forgotten += ids
        results = [collector_pb2.ForgetResponse.FORGOTTEN] * len(ids)
        return collector_pb2.ForgetResponse(results=results, server_time=self._now())

    def call(self, method: str, request: Message, kind: type[M], timeout: float) -> M:
        """Raise `InvalidInput`: this transport has one survey, and no training."""
        raise InvalidInput(f"there is no {method} here")

    def interrupt(self) -> None:
        """Do nothing: no call waits."""

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def after_fork(self, *, usable: bool) -> None:
        """Do nothing: the lists are copied."""

    def tally(
        self,
        attribute: str,
        level: str,
        chosen: str = "",
        *,
        panel: int = 0,
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> Tally:
        """Return the tally of the stored batches, from which a server would estimate.

        Of a view the attribute is its name, such as "smokes+diagnosis"; `chosen` is the map that
        people chose, "" standing for none. With `panel`, only that panel's reports count, and with
        `properties` only those that were sent with these values. Raises `InvalidInput` for an
        unknown attribute, level, map, property or value, or codes that are none.
        """
        groups = self.plan.properties.groups({name: [value] for name, value in properties.items()})
        if attribute not in self.plan.attributes:
            raise InvalidInput(f"{self.plan.survey!r} has no attribute {attribute!r}")
        mechanism = self.plan.mechanism(level, attribute, chosen)
        wanted = attribute, level, chosen
        total = mechanism.tally(mechanism.decode(b"", 0))
        counted = set()
        for batch in self.batches:
            if batch.id in self._stored and batch.id not in counted:
                counted.add(batch.id)
                group = self.plan.properties.group(batch.properties)
                if (panel and batch.panel != panel) or group not in groups:
                    continue
                for column in batch.columns:
                    if (column.attribute, column.level, column.map) == wanted:
                        n = int(presence.unpack(column.present, batch.rows).sum())
                        total = total + mechanism.tally(mechanism.decode(column.codes, n))
        return total

    def _now(self) -> int:
        return int(time.time()) if self.server_time is None else self.server_time

    def _take(self, batch: collector_pb2.Batch) -> collector_pb2.Result:
        self.batches.append(batch)
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            if answer.status != collector_pb2.Result.STORED:
                return answer
        if batch.id in self._stored:
            return collector_pb2.Result(status=collector_pb2.Result.DUPLICATE)
        self._stored.add(batch.id)
        return collector_pb2.Result(status=collector_pb2.Result.STORED)


class Collector:
    """A real server in this process, on a free port of 127.0.0.1, that keeps all batches.

    It speaks gRPC, or with `http` Connect over HTTP. Use it as a context; give a client its
    `address`. `received` is a `RecordingTransport` with all batches, whose `answers` the server
    gives: an `Unreachable` among them becomes UNAVAILABLE, with its `retry_after`.
    """

    def __init__(self, plan: bytes, *, http: bool = False) -> None:
        """Raise `InvalidInput` where the bytes are no plan."""
        self.received = RecordingTransport(plan)
        self.address = ""
        self._serving = (_over_http if http else _over_grpc)(_Answers(self.received))

    def __enter__(self) -> Self:
        self.address = self._serving.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._serving.__exit__(None, None, None)


_REQUESTS: dict[str, type[Message]] = {
    "GetPlan": collector_pb2.GetPlanRequest,
    "Submit": collector_pb2.SubmitRequest,
    "Forget": collector_pb2.ForgetRequest,
}


class _Answers:
    """The methods of the Collector, which raise `InvalidInput` and `Unreachable`."""

    def __init__(self, received: RecordingTransport) -> None:
        self._received = received
        self._lock = threading.Lock()

    def answer(self, request: Any) -> Message:
        with self._lock:
            match request:
                case collector_pb2.GetPlanRequest():
                    return self._received.get_plan(request.survey, 0)
                case collector_pb2.ForgetRequest():
                    return self._received.forget(request.survey, request.period, request.ids, 0)
            responses = [self._received.submit(batch, 0) for batch in request.batches]
        return collector_pb2.SubmitResponse(
            results=[response.results[0] for response in responses],
            server_time=responses[-1].server_time if responses else 0,
        )


@contextlib.contextmanager
def _over_grpc(answers: _Answers) -> Iterator[str]:
    import grpc  # not for tests of a client over HTTP

    def answer(request: Message, context: Any) -> Message:
        try:
            return answers.answer(request)
        except InvalidInput as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except Unreachable as error:
            context.set_trailing_metadata([(RETRY_AFTER, _milliseconds(error))])
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        raise AssertionError("abort raises")

    def written(message: Message) -> bytes:
        return message.SerializeToString()

    methods = {
        name: grpc.unary_unary_rpc_method_handler(answer, kind.FromString, written)
        for name, kind in _REQUESTS.items()
    }
    handlers = grpc.method_handlers_generic_handler("hearsay.v1.Collector", methods)
    with futures.ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers((handlers,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


@contextlib.contextmanager
def _over_http(answers: _Answers) -> Iterator[str]:
    handler = type("_Handler", (_Handler,), {"answers": answers})
    with _HttpServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of a client that hung up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    answers: _Answers

    def do_POST(self) -> None:
        """Answer a call as Connect has it."""
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        package, _, name = self.path.rpartition("/")
        if package != "/hearsay.v1.Collector" or name not in _REQUESTS:
            return self._refuse(404, "unimplemented", "there is nothing at this path")
        try:
            answer = self.answers.answer(_REQUESTS[name].FromString(body))
        except DecodeError:
            self._refuse(400, "invalid_argument", "the body is no such request")
        except InvalidInput as error:
            self._refuse(404, "not_found", str(error))
        except Unreachable as error:
            self._refuse(503, "unavailable", str(error), _milliseconds(error))
        else:
            self._respond(200, "application/proto", answer.SerializeToString())
        return None

    def _refuse(self, status: int, code: str, message: str, retry_after: str = "") -> None:
        body = json.dumps({"code": code, "message": message}).encode()
        self._respond(status, "application/json", body, retry_after)

    def _respond(self, status: int, kind: str, body: bytes, retry_after: str = "") -> None:
        self.send_response(status)
        if retry_after:
            self.send_header(RETRY_AFTER, retry_after)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Write no log."""


def _milliseconds(error: Unreachable) -> str:
    return str(math.ceil(error.retry_after * 1000))
