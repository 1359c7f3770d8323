"""The device's side: randomise here, send only that."""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType, TracebackType
from typing import Self

import grpc
import numpy as np

from hearsay import period
from hearsay.plan import Plan, parse
from hearsay.transport import Unreachable, call, open_channel
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from ldp import Coins, InvalidInput

_log = logging.getLogger("hearsay")

_MAX_ROWS = 1000
_MAX_BATCH_BYTES = 1 << 20
"""A batch stays well below gRPC's default limit of 4 MiB a message."""

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0
"""Seconds between tries; each is drawn between half of it and the whole, then doubled."""

_CALL_TIMEOUT = 10.0
"""Seconds that one call may take."""


@dataclass(frozen=True)
class _Row:
    """One record, already randomised: the encoded code of each attribute that was answered."""

    period: str
    codes: Mapping[str, bytes]


@dataclass
class _Outbox:
    """What waits to leave: rows, and batches sealed from them that have an id for good."""

    rows: list[_Row] = field(default_factory=list)
    batches: list[collector_pb2.Batch] = field(default_factory=list)


class Client:
    """Record one user's answers: randomise each on this device, queue it, send the codes.

    Guarantee: all that leaves the device for one period is epsilon-LDP for the whole record,
    epsilon being the chosen level's. Each attribute is randomised at most once per period; a
    repeated answer is dropped and counted, not sent. What is in the clear: the survey, the
    level, which attributes were answered, the period, and the time of contact.

    The ledger of what was spent lives as long as this object: make one per user, keep it, and
    do not make a second one for the same user within a period. Safe to share between threads.
    """

    def __init__(
        self,
        target: str,
        survey: str,
        *,
        level: str,
        max_epsilon: float | None = None,
        insecure: bool = False,
        timeout: float = _CALL_TIMEOUT,
        coins: Coins | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Fetch the survey's plan from "host:port", check it and pin its revision.

        `level` names the user's epsilon and is chosen before any answer is known.
        `max_epsilon` is the user's own cap on one record. TLS is used for any host that is not
        loopback unless `insecure`. `coins` and `clock` are for tests and simulations.

        Raises `InvalidInput` where the survey or level does not exist, where the plan breaks
        its own promise, or where the level's epsilon exceeds `max_epsilon`; `Unreachable`
        where no plan comes within `timeout` seconds.
        """
        self._channel = open_channel(target, insecure=insecure)
        try:
            self._stub = collector_pb2_grpc.CollectorStub(self._channel)
            request = collector_pb2.GetPlanRequest(survey=survey)
            self.plan: Plan = parse(call(self._stub.GetPlan, request, timeout).plan)
            if self.plan.survey != survey:
                raise InvalidInput(f"asked for the survey {survey!r}, got {self.plan.survey!r}")
            self.level = self.plan.level(level)
            if max_epsilon is not None and not self.level.epsilon <= max_epsilon:
                raise InvalidInput(
                    f"level {level!r} spends epsilon {self.level.epsilon:g} on a record, "
                    f"above the user's cap of {max_epsilon:g}"
                )
        except BaseException:
            self._channel.close()
            raise
        self._coins = coins or Coins()
        self._clock = clock
        self._lock = threading.Lock()  # guards the four below
        self._spent: set[tuple[str, str]] = set()  # (period, attribute)
        self._outbox = _Outbox()
        self._counters: Counter[str] = Counter()
        self._closed = False
        self._sending = threading.Lock()  # one flush at a time; never taken while holding _lock

    def record(self, **answers: object) -> tuple[str, ...]:
        """Randomise answers by attribute name and queue them; return the names that were taken.

        A category is given as its value, or as an integer that spells it; a number as anything
        with an exact float. An attribute that is left out or None is withheld: that it was is
        visible, its answer is not. One that was answered in this period already is dropped and
        counted as "spent".

        Raises `InvalidInput`, before anything is spent, for an unknown attribute, for an
        answer outside its domain (the message does not repeat the answer), and after `close`.
        """
        given = {name: answer for name, answer in answers.items() if answer is not None}
        values = {name: self._encode(name, answer) for name, answer in given.items()}
        now = period.label(self.plan.period, self._clock())
        with self._lock:
            if self._closed:
                raise InvalidInput("this client is closed; make a new one to record")
            taken = [name for name in values if (now, name) not in self._spent]
            self._counters["spent"] += len(values) - len(taken)
            codes = {}
            for name in taken:
                mechanism = self.level.mechanisms[name]
                self._spent.add((now, name))
                codes[name] = mechanism.encode([mechanism.randomize(values[name], self._coins)])
            if codes:
                self._outbox.rows.append(_Row(now, codes))
                self._counters["recorded"] += 1
        return tuple(taken)

    def flush(self, timeout: float = 30.0) -> bool:
        """Send what is queued; return whether all of it was answered within `timeout` seconds.

        Batches that are not answered stay queued, and go again with the same id and bytes at
        the next flush, so the server counts each once. Network trouble never raises. A batch
        that the server refuses is dropped, counted as "refused" and logged with its reason.
        """
        deadline = time.monotonic() + timeout
        wait = _FIRST_WAIT
        with self._sending:
            pending = list(self.outbox())
            while pending:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                if self._deliver(pending[0], min(left, _CALL_TIMEOUT)):
                    with self._lock:
                        self._outbox.batches.remove(pending.pop(0))
                    wait = _FIRST_WAIT
                else:
                    # Spread retries out, so that a crowd of devices does not return at once.
                    pause = wait * random.uniform(0.5, 1.0)
                    time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
                    wait = min(2 * wait, _LONGEST_WAIT)
        return True

    def outbox(self) -> Sequence[collector_pb2.Batch]:
        """Return the batches that wait for an answer: exactly what leaves this device."""
        with self._lock:
            self._outbox.batches += self._seal(self._outbox.rows)
            self._outbox.rows = []
            return tuple(self._outbox.batches)

    @property
    def counters(self) -> Mapping[str, int]:
        """Records queued ("recorded"), and batches and answers by what became of them:
        "stored", "duplicate", "refused", "spent"."""
        with self._lock:
            return MappingProxyType(dict(self._counters))

    def close(self, timeout: float = 30.0) -> bool:
        """Flush, then disconnect; return what `flush` did. Closing again does nothing."""
        with self._lock:
            if self._closed:
                return True
            self._closed = True
        try:
            return self.flush(timeout)
        finally:
            self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _encode(self, name: str, answer: object) -> int | float:
        if name not in self.plan.attributes:
            raise InvalidInput(
                f"{self.plan.survey!r} has no attribute {name!r}; "
                f"it has {', '.join(self.plan.attributes)}"
            )
        try:
            return self.plan.attributes[name].domain.encode(answer)
        except InvalidInput as error:
            raise InvalidInput(f"{name} {error}") from None

    def _seal(self, rows: Sequence[_Row]) -> list[collector_pb2.Batch]:
        """Turn rows into batches: one period each, in random order, bounded in size."""
        width = sum(mechanism.code_bytes for mechanism in self.level.mechanisms.values())
        step = max(1, min(_MAX_ROWS, _MAX_BATCH_BYTES // width))
        batches = []
        for name in dict.fromkeys(row.period for row in rows):
            mine = [row for row in rows if row.period == name]
            mine = [mine[i] for i in self._coins.permutation(len(mine))]
            batches += [self._batch(name, mine[i : i + step]) for i in range(0, len(mine), step)]
        return batches

    def _batch(self, name: str, rows: Sequence[_Row]) -> collector_pb2.Batch:
        columns = []
        for attribute in self.plan.attributes:
            present = [attribute in row.codes for row in rows]
            if any(present):
                bits = b"" if all(present) else np.packbits(present, bitorder="little").tobytes()
                codes = b"".join(row.codes[attribute] for row in rows if attribute in row.codes)
                columns.append(
                    collector_pb2.Column(
                        attribute=attribute, level=self.level.name, codes=codes, present=bits
                    )
                )
        return collector_pb2.Batch(
            id=self._coins.words(2).tobytes(),
            survey=self.plan.survey,
            revision=self.plan.revision,
            period=name,
            rows=len(rows),
            columns=columns,
        )

    def _deliver(self, batch: collector_pb2.Batch, timeout: float) -> bool:
        """Submit one batch; return whether it was answered for good."""
        request = collector_pb2.SubmitRequest(batches=[batch])
        try:
            (result,) = self._stub.Submit(request, timeout=timeout).results
        except (grpc.RpcError, ValueError) as error:  # ValueError: not one result per batch
            _log.warning("a batch was not answered and stays queued: %s", _describe(error))
            return False
        status = collector_pb2.Result.Status.Name(result.status).lower()
        if status not in ("stored", "duplicate", "refused"):
            _log.warning("a batch was answered with status %s and stays queued", status)
            return False
        if status == "refused":
            reason = collector_pb2.Reason.Name(result.reason)
            _log.error("the server refused a batch: %s: %s", reason, result.detail)
        with self._lock:
            self._counters[status] += 1
        return True


def _describe(error: Exception) -> str:
    code = getattr(error, "code", None)
    return code().name if code else str(error)


__all__ = ["Client", "Unreachable"]
