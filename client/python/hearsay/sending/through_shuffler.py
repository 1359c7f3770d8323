"""The way of a device whose records are sealed: plans come from the collector, records go to a
shuffler, and nothing else goes to either, but questions for evidence to the collector."""

from collections.abc import Sequence

from google.protobuf.message import Message

from hearsay.sending.transport import Answer, Transport, malformed
from hearsay.v1 import collector_pb2, shuffler_pb2
from ldp import InvalidInput

_SERVICE = "Shuffler/"


class ThroughShuffler:
    """A `Transport` of two servers: calls of the service Shuffler go to the second."""

    def __init__(self, collector: Transport, shuffler: Transport) -> None:
        self._collector = collector
        self._shuffler = shuffler

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        return self._collector.get_plan(survey, timeout)

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        raise InvalidInput("a client with a shuffler sends no batch to the collector")

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        raise InvalidInput("a client with a shuffler names no batch to the collector")

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        one = self._shuffler if method.startswith(_SERVICE) else self._collector
        return one.call(method, request, kind, timeout)

    def interrupt(self) -> None:
        self._collector.interrupt()
        self._shuffler.interrupt()

    def close(self) -> None:
        self._collector.close()
        self._shuffler.close()

    def after_fork(self, *, usable: bool) -> None:
        self._collector.after_fork(usable=usable)
        self._shuffler.after_fork(usable=usable)


def submit(
    transport: Transport, record: shuffler_pb2.SealedRecord, timeout: float
) -> shuffler_pb2.SubmitSealedResponse:
    """Submit a sealed record to the shuffler; return a response with its one result.

    Raises as `Transport.call`.
    """
    request = shuffler_pb2.SubmitSealedRequest(records=[record])
    answer = transport.call(
        f"{_SERVICE}SubmitSealed", request, shuffler_pb2.SubmitSealedResponse, timeout
    )
    if len(answer.results) != 1:
        raise malformed("the shuffler", f"one sealed record with {len(answer.results)} results")
    return answer
