"""The way of a device whose records are sealed to the keys of an attested server."""

import time
from collections.abc import Callable, Sequence
from datetime import datetime

from google.protobuf.message import Message

from hearsay.attestation import Policy
from hearsay.attestation.claims import SEALING
from hearsay.sending import evidence
from hearsay.sending.transport import Answer, Transport
from hearsay.v1 import collector_pb2, shuffler_pb2


class AttestedKeys:
    """A `Transport` that submits no sealed record before there is evidence of the plan's keys.

    What fails is `Unreachable`, in words that name the condition: the records stay queued, and
    requests to forget as well.
    """

    def __init__(self, server: Transport, policy: Policy, clock: Callable[[], datetime]) -> None:
        """Submit through `server`, whose calls of the service Attestation go to the collector."""
        self._server = server
        self._policy = policy
        self._clock = clock
        self._checked: dict[bytes, float] = {}
        """When, by the steady clock, the evidence for a revision was last accepted."""

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        return self._server.get_plan(survey, timeout)

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        return self._server.submit(batch, timeout)

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        return self._server.forget(survey, period, ids, timeout)

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        if isinstance(request, shuffler_pb2.SubmitSealedRequest):
            for record in request.records:
                self._check(record.survey, record.revision, timeout)
        return self._server.call(method, request, kind, timeout)

    def interrupt(self) -> None:
        self._server.interrupt()

    def close(self) -> None:
        self._server.close()

    def after_fork(self, *, usable: bool) -> None:
        self._server.after_fork(usable=usable)

    def _check(self, survey: str, revision: bytes, timeout: float) -> None:
        """Ask for evidence, unless that was done lately; raise `Unreachable` where it fails."""
        now = time.monotonic()
        if now - self._checked.get(revision, -float("inf")) < self._policy.max_age:
            return
        evidence.ask(
            self._server,
            self._policy,
            self._clock,
            survey=survey,
            revision=revision,
            key=SEALING,
            timeout=timeout,
        )
        self._checked[revision] = now
