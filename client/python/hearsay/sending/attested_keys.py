"""The way of a device whose records are sealed to the keys of an attested server."""

import logging
import random
from collections.abc import Callable, Sequence
from datetime import datetime

from google.protobuf.message import Message

from hearsay.attestation import Policy
from hearsay.attestation.claims import SEALING
from hearsay.sending import evidence
from hearsay.sending.backoff import backoff
from hearsay.sending.transport import Answer, Transport, Unreachable
from hearsay.sending.uptime import uptime
from hearsay.trouble import Reason
from hearsay.v1 import collector_pb2, shuffler_pb2

_log = logging.getLogger("hearsay")

_SOONEST, _LATEST = 0.5, 0.9
"""Between which shares of `max_age` evidence is asked for anew, by chance."""


class AttestedKeys:
    """A `Transport` that submits no sealed record without evidence of the plan's keys.

    What fails is `Unreachable`, in words that name the condition: the records stay queued, and
    requests to forget as well. Submitting asks for nothing: the collector, which answers, would
    learn when this device sends. `ask` does, by a clock that knows nothing of the queue.
    """

    def __init__(
        self,
        server: Transport,
        policy: Policy,
        clock: Callable[[], datetime],
        *,
        first_wait: float,
        longest_wait: float,
    ) -> None:
        """Submit through `server`, whose calls of the service Attestation go to the collector. The
        waits are those of a `Delivery`, for questions that fail."""
        self._server = server
        self._policy = policy
        self._clock = clock
        self._first_wait = first_wait
        self._longest_wait = longest_wait
        self._accepted: dict[bytes, float] = {}
        """When, by the steady clock, the evidence for a revision was last accepted."""
        self._next: dict[bytes, float] = {}
        """When it is asked for again."""
        self._failures = 0
        self._refused = Unreachable(
            "the server has given no evidence of what it runs so far", reason=Reason.SERVER_REFUSED
        )

    def due_in(self, revision: bytes) -> float:
        """Return the seconds until evidence for the plan of this revision is asked for: 0 for now.

        It is asked for at once where it never was, again before it is `max_age` old, and after a
        failure as calls are tried again.
        """
        return max(0.0, self._next.get(revision, -float("inf")) - uptime())

    def ask(self, survey: str, revision: bytes, timeout: float) -> None:
        """Ask for evidence, and note what came of it and when to ask again."""
        asked = uptime()
        try:
            evidence.ask(
                self._server,
                self._policy,
                self._clock,
                survey=survey,
                revision=revision,
                key=SEALING,
                timeout=timeout,
            )
        except Unreachable as error:
            if str(error) != str(self._refused):
                _log.warning("no record of %r leaves without evidence: %s", survey, error)
            self._refused = error
            wait = backoff(self._first_wait, self._longest_wait, self._failures, error.retry_after)
            self._failures += 1
            self._next[revision] = uptime() + wait
        else:
            self._failures = 0
            self._accepted[revision] = asked
            self._next[revision] = asked + self._policy.max_age * random.uniform(_SOONEST, _LATEST)

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
                self._check(record.revision)
        return self._server.call(method, request, kind, timeout)

    def interrupt(self) -> None:
        self._server.interrupt()

    def close(self) -> None:
        self._server.close()

    def after_fork(self, *, usable: bool) -> None:
        self._server.after_fork(usable=usable)

    def _check(self, revision: bytes) -> None:
        """Raise `Unreachable` unless evidence was accepted lately."""
        age = uptime() - self._accepted.get(revision, -float("inf"))
        if age >= self._policy.max_age:
            raise Unreachable(str(self._refused), reason=self._refused.reason)
