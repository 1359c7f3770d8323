"""Test doubles for an app: capture batches without a server, or with one in this process.

Nothing in `hearsay` imports this module, and it imports only where tests run: a client that
records into a list instead of sending must not reach users by accident.
"""

import os
import sys
import threading
import time
from collections.abc import Sequence
from concurrent import futures
from types import TracebackType
from typing import Any, Self

import grpc

from hearsay.plans import presence
from hearsay.plans.plan import Plan, parse
from hearsay.sending.transport import Unreachable
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from ldp import InvalidInput, Tally

if not {"pytest", "unittest"} & set(sys.modules) and os.environ.get("HEARSAY_TESTING") != "1":
    raise ImportError(
        "hearsay.testing is for tests: run under pytest or unittest, or set HEARSAY_TESTING=1"
    )

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

    def interrupt(self) -> None:
        """Do nothing: no call waits."""

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def after_fork(self, *, usable: bool) -> None:
        """Do nothing: the lists are copied."""

    def tally(self, attribute: str, level: str) -> Tally:
        """Return the tally of the stored batches, from which a server would estimate.

        Raises `InvalidInput` for an unknown attribute or level, or codes that are none.
        """
        mechanisms = self.plan.level(level).mechanisms
        if attribute not in mechanisms:
            raise InvalidInput(f"{self.plan.survey!r} has no attribute {attribute!r}")
        mechanism = mechanisms[attribute]
        total = mechanism.tally(mechanism.decode(b"", 0))
        counted = set()
        for batch in self.batches:
            if batch.id in self._stored and batch.id not in counted:
                counted.add(batch.id)
                for column in batch.columns:
                    if (column.attribute, column.level) == (attribute, level):
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
    """A real gRPC server in this process, on a free port of 127.0.0.1, that keeps all batches.

    Use it as a context; give a client its `address`. `received` is a `RecordingTransport` with
    all batches, whose `answers` the server gives: an `Unreachable` among them becomes
    UNAVAILABLE, with its `retry_after`.
    """

    def __init__(self, plan: bytes) -> None:
        """Raise `InvalidInput` where the bytes are no plan."""
        self.received = RecordingTransport(plan)
        self.address = ""

    def __enter__(self) -> Self:
        self._pool = futures.ThreadPoolExecutor(4)
        self._server = grpc.server(self._pool)
        servicer = _Servicer(self.received)
        collector_pb2_grpc.add_CollectorServicer_to_server(servicer, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop(None).wait()
        self._pool.shutdown()


class _Servicer(collector_pb2_grpc.CollectorServicer):
    def __init__(self, received: RecordingTransport) -> None:
        self._received = received
        self._lock = threading.Lock()

    def GetPlan(  # noqa: N802
        self, request: collector_pb2.GetPlanRequest, context: Any
    ) -> collector_pb2.GetPlanResponse:
        try:
            return self._received.get_plan(request.survey, 0)
        except InvalidInput as error:
            context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            raise  # not reached: abort raises

    def Submit(  # noqa: N802
        self, request: collector_pb2.SubmitRequest, context: Any
    ) -> collector_pb2.SubmitResponse:
        try:
            with self._lock:
                responses = [self._received.submit(batch, 0) for batch in request.batches]
        except Unreachable as error:
            context.set_trailing_metadata([("retry-after-ms", str(int(error.retry_after * 1000)))])
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return collector_pb2.SubmitResponse(
            results=[response.results[0] for response in responses],
            server_time=responses[-1].server_time,
        )

    def Forget(  # noqa: N802
        self, request: collector_pb2.ForgetRequest, context: Any
    ) -> collector_pb2.ForgetResponse:
        with self._lock:
            return self._received.forget(request.survey, request.period, request.ids, 0)
