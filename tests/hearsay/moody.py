"""A collector in this process that answers as a test says, and what clients of it wait for."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from connecting import over_http

from hearsay import Delivery
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from support import Server

QUICK = Delivery(batch_age=0.02, first_wait=0.02, longest_wait=0.1, timeout=2.0)


class Moody(collector_pb2_grpc.CollectorServicer):
    """A server that serves a plan and answers batches as it is told to."""

    def __init__(self, plan: bytes) -> None:
        self.plan = plan
        self.answers: list[Any] = []
        self.calls: list[float] = []
        self.tokens: list[str] = []
        self.forgotten: list[bytes] = []
        self.delay = "400"
        self.slow_plan = False
        self.patience = threading.Event()

    def GetPlan(self, request: object, context: object) -> object:
        if self.slow_plan:
            self.patience.wait(20)
        return collector_pb2.GetPlanResponse(plan=self.plan)

    def Submit(self, request: object, context: Any) -> object:
        self.calls.append(time.monotonic())
        self.tokens.append(dict(context.invocation_metadata()).get("authorization", ""))
        answer = self.answers.pop(0) if self.answers else collector_pb2.Result.STORED
        if answer == "exhausted":
            context.set_trailing_metadata([("retry-after-ms", self.delay)])
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many wait")
        if answer == "hang long":
            self.patience.wait(20)
        if answer == "hang":
            time.sleep(0.5)
        if isinstance(answer, collector_pb2.SubmitResponse):
            return answer
        result = collector_pb2.Result(status=answer) if isinstance(answer, int) else answer
        return collector_pb2.SubmitResponse(
            results=[result if isinstance(result, collector_pb2.Result) else collector_pb2.Result()]
        )

    def Forget(self, request: Any, context: object) -> object:
        self.forgotten += request.ids
        return collector_pb2.ForgetResponse()


@contextlib.contextmanager
def listening(
    servicer: collector_pb2_grpc.CollectorServicer,
    credentials: grpc.ServerCredentials | None = None,
    port: int = 0,
) -> Iterator[str]:
    """Serve on loopback while the context lasts; yield the address."""
    with futures.ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool)
        collector_pb2_grpc.add_CollectorServicer_to_server(servicer, server)
        address = f"127.0.0.1:{port}"
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
        server.start()
        yield f"127.0.0.1:{port}"
        server.stop(None).wait()


@pytest.fixture
def moody(server: Server) -> Iterator[tuple[Moody, str]]:
    """A moody server with the plan of "health", and what a device reaches it at."""
    servicer = Moody(server.show("health").plan)
    with (over_http if server.over == "http" else listening)(servicer) as target:
        yield servicer, target
