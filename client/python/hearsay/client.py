"""The device's side: randomise here, send only that."""

import logging
import math
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from types import MappingProxyType, TracebackType
from typing import Self

import grpc
import numpy as np

from hearsay import period
from hearsay.plan import Categorical, Plan, parse
from hearsay.transport import call, open_channel
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from ldp import Coins, InvalidInput
from ldp.budget import Budget

_log = logging.getLogger("hearsay")

_FIRST_WAIT, _LONGEST_WAIT = 0.1, 10.0
"""Seconds between tries; each is drawn between half of it and the whole, then doubled."""

_CALL_TIMEOUT = 10.0
"""Seconds that one call may take."""

_FINAL = {
    collector_pb2.Result.STORED: "stored",
    collector_pb2.Result.DUPLICATE: "duplicate",
    collector_pb2.Result.REFUSED: "refused",
}
"""The statuses that end a batch, and how they are counted. Any other leaves it queued."""


@dataclass(frozen=True)
class _Row:
    """One record, already randomised: the encoded code of each attribute that was answered."""

    period: str
    codes: Mapping[str, bytes]


class Client:
    """Record one user's answers: randomise each on this device, queue it, send the codes.

    Guarantee: all that leaves the device for one period is epsilon-LDP for the whole record,
    epsilon being `record_epsilon`, at most the chosen level's where no attribute has another.
    Each attribute is randomised at most once per period; a repeated answer is dropped and
    counted, not sent. Where the survey declares sensitive values or classes of an attribute,
    its policy takes the place of its epsilon, and its ordinary values may be revealed: only
    those that `may_reveal` names are sent like that. What is in the clear: the survey, the
    levels, which attributes were answered, the period, and the time of contact.

    The ledger of what was spent lives as long as this object: make one per user, keep it, and
    do not make a second one for the same user within a period. Safe to share between threads.
    """

    def __init__(
        self,
        target: str,
        survey: str,
        *,
        level: str,
        levels: Mapping[str, str] = MappingProxyType({}),
        max_epsilon: float | None = None,
        max_lifetime_epsilon: float | None = None,
        withhold: Collection[str] = (),
        may_reveal: Collection[str] = (),
        revision: str | None = None,
        insecure: bool = False,
        timeout: float = _CALL_TIMEOUT,
        coins: Coins | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Fetch the survey's plan from "host:port", check it and pin its revision.

        `level` names the user's epsilon and is chosen before any answer is known; so is another
        one for some attributes, by name, in `levels`. `max_epsilon` is the user's own cap on
        one record, `max_lifetime_epsilon` on all that this object ever sends: an answer that
        would exceed it is dropped and counted as "spent". `withhold` names the attributes that
        this user never answers, whatever `record` is given; decide it before the answers are
        known. `may_reveal` names the attributes whose ordinary values may be revealed.
        `revision`, the hex SHA-256 that
        `hearsay survey show` prints, refuses any other plan: without it the server may serve
        this object another plan than it served an earlier one. TLS is used for any host that
        is not loopback unless `insecure`. `coins` and `clock` are for tests and simulations.

        Raises `InvalidInput` where the survey, a level or an attribute does not exist, where
        the plan is not of that revision, where it breaks its own promise, where a record's
        epsilon exceeds `max_epsilon`, or where a value that is not in `may_reveal` could be
        revealed; `Unreachable` where no plan comes within `timeout` seconds.
        """
        self._channel = open_channel(target, insecure=insecure)
        try:
            self._stub = collector_pb2_grpc.CollectorStub(self._channel)
            request = collector_pb2.GetPlanRequest(survey=survey)
            self.plan: Plan = parse(call(self._stub.GetPlan, request, timeout).plan)
            if self.plan.survey != survey:
                raise InvalidInput(f"asked for the survey {survey!r}, got {self.plan.survey!r}")
            if revision is not None and self.plan.revision.hex() != revision:
                raise InvalidInput(
                    f"expected revision {revision!r} of {survey!r}, "
                    f"the server has {self.plan.revision.hex()}"
                )
            self.level = self.plan.level(level)
            self._levels = dict.fromkeys(self.plan.attributes, self.level)
            for name, other in levels.items():
                self._check_attribute(name)
                self._levels[name] = self.plan.level(other)
            self._budget = self._own_budget()
            for name in withhold:
                self._check_attribute(name)
            self._withheld = frozenset(withhold)
            allowed = max(chosen.epsilon for chosen in (self.level, *self._levels.values()))
            if self.record_epsilon > allowed:
                raise InvalidInput(
                    f"these levels together spend epsilon {self.record_epsilon:g} on a record, "
                    f"more than the loosest of them, {allowed:g}: the plan does not go by levels"
                )
            if max_epsilon is not None and not self.record_epsilon <= max_epsilon:
                raise InvalidInput(
                    f"level {level!r} spends epsilon {self.record_epsilon:g} on a record, "
                    f"above the user's cap of {max_epsilon:g}"
                )
            for name in may_reveal:
                self._check_attribute(name)
            self._check_revealing(may_reveal)
            if max_lifetime_epsilon is not None and not 0 <= max_lifetime_epsilon < math.inf:
                raise InvalidInput(
                    f"max_lifetime_epsilon must be finite and >= 0, got {max_lifetime_epsilon!r}"
                )
        except BaseException:
            self._channel.close()
            raise
        self._coins = coins or Coins()
        self._clock = clock
        self._allowance = None if max_lifetime_epsilon is None else Fraction(max_lifetime_epsilon)
        self._lock = threading.Lock()  # guards all below
        self._drawn: dict[str, frozenset[str]] = {}  # by period, what its record reports
        self._spent: set[tuple[str, str]] = set()  # (period, attribute)
        self._lifetime = Fraction(0)  # epsilon
        self._rows: list[_Row] = []
        self._batches: list[collector_pb2.Batch] = []  # sealed from rows, with an id for good
        self._counters: Counter[str] = Counter()
        self._closed = False
        self._sending = threading.Lock()  # one flush at a time; never taken while holding _lock

    def record(self, /, **answers: object) -> tuple[str, ...]:
        """Randomise answers by attribute name and queue them; return the names that were taken.

        Where the survey samples attributes, the record of a period reports the few that were
        drawn for it, whatever the answers are; the others are dropped and counted as "idle".

        A category is given as its value, or as an integer that spells it; a number as anything
        with an exact float. An attribute that is left out or None is withheld: that it was is
        visible, its answer is not. So do not withhold because of the answer: leaving out what
        lies outside the domain tells that it did. Survey such numbers with `clamp`, and give
        categories an "other". An attribute that was answered in this period already is dropped
        and counted as "spent".

        Raises `InvalidInput`, before anything is spent, for an unknown attribute, for an
        answer outside its domain (the message does not repeat the answer), and after `close`.
        """
        given = {name: answer for name, answer in answers.items() if answer is not None}
        values = {name: self._encode(name, answer) for name, answer in given.items()}
        values = {name: value for name, value in values.items() if name not in self._withheld}
        now = period.label(self.plan.period, self._clock())
        with self._lock:
            if self._closed:
                raise InvalidInput("this client is closed; make a new one to record")
            taken = [name for name in values if self._may_spend(now, name)]
            codes = {}
            for name in taken:
                mechanism = self._levels[name].mechanisms[name]
                codes[name] = mechanism.encode([mechanism.randomize(values[name], self._coins)])
            if codes:
                self._rows.append(_Row(now, codes))
                self._counters["recorded"] += 1
        return tuple(taken)

    def flush(self, timeout: float = 30.0) -> bool:
        """Send what is queued; return whether all of it was answered within `timeout` seconds.

        A batch without an answer for good stays queued, and goes again with the same id and
        bytes at the next flush, so the server counts it once. Neither the network nor the
        server makes this raise. A batch that the server refuses is dropped, counted as
        "refused" and logged with its reason.
        """
        return self._flush(timeout) if not self._closed else not self.outbox()

    def _flush(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        if not self._sending.acquire(timeout=max(0.0, timeout)):
            return not self.outbox()
        try:
            return self._send_all(deadline)
        finally:
            self._sending.release()

    def outbox(self) -> Sequence[collector_pb2.Batch]:
        """Return the batches that wait for an answer: exactly what leaves this device."""
        with self._lock:
            self._batches += self._seal(self._rows)
            self._rows = []
            return tuple(self._batches)

    @property
    def counters(self) -> Mapping[str, int]:
        """Records queued ("recorded"), answers dropped because their epsilon is "spent" or
        their attribute was not drawn ("idle"), and batches by what became of them: "stored",
        "duplicate", "refused"."""
        with self._lock:
            return MappingProxyType(dict(self._counters))

    def close(self, timeout: float = 30.0) -> bool:
        """Flush, then disconnect; return whether nothing is left behind.

        What could not be sent is lost with this object, and logged as an error. Closing again
        does nothing.
        """
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._flush(timeout)
            self._channel.close()
            if lost := len(self.outbox()):
                _log.error("closed with %d batches that were never answered: they are lost", lost)
        return not self.outbox()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def record_epsilon(self) -> float:
        """The most that one record spends: all attributes that it can report together."""
        names = enumerate(self.plan.attributes)
        return self._budget.epsilon_of([j for j, name in names if name not in self._withheld])

    def _own_budget(self) -> Budget:
        """The level's budget, with the epsilon of each attribute that has another level."""
        budget = self.level.budget
        for position, (name, level) in enumerate(self._levels.items()):
            if level is not self.level:
                budget = budget.with_epsilon(position, level.mechanisms[name].epsilon)
        return budget

    def _check_attribute(self, name: str) -> None:
        if name not in self.plan.attributes:
            raise InvalidInput(
                f"{self.plan.survey!r} has no attribute {name!r}; "
                f"it has {', '.join(self.plan.attributes)}"
            )

    def _check_revealing(self, may_reveal: Collection[str]) -> None:
        for name, attribute in self.plan.attributes.items():
            domain = attribute.domain
            if name in self._withheld or not isinstance(domain, Categorical):
                continue
            if domain.ordinary and name not in may_reveal:
                raise InvalidInput(
                    f"a report of {name!r} may reveal {' or '.join(domain.ordinary)}; "
                    f"if that is meant, pass may_reveal=[{name!r}]"
                )

    def _may_spend(self, now: str, name: str) -> bool:
        """Tell whether an attribute may be randomised now, and if so book its epsilon."""
        if now not in self._drawn:
            names = list(self.plan.attributes)
            self._drawn[now] = frozenset(names[j] for j in self._budget.draw(self._coins))
        if name not in self._drawn[now]:
            self._counters["idle"] += 1
            return False
        cost = Fraction(self._levels[name].mechanisms[name].epsilon)
        used_up = self._allowance is not None and self._lifetime + cost > self._allowance
        if (now, name) in self._spent or used_up:
            self._counters["spent"] += 1
            return False
        self._spent.add((now, name))
        self._lifetime += cost
        return True

    def _encode(self, name: str, answer: object) -> int | float:
        self._check_attribute(name)
        try:
            return self.plan.attributes[name].domain.encode(answer)
        except InvalidInput as error:
            raise InvalidInput(f"{name} {error}") from None

    def _seal(self, rows: Sequence[_Row]) -> list[collector_pb2.Batch]:
        """Turn rows into batches: one period each, in random order."""
        batches = []
        for name in dict.fromkeys(row.period for row in rows):
            mine = [row for row in rows if row.period == name]
            order = self._coins.permutation(len(mine))
            batches.append(self._batch(name, [mine[i] for i in order]))
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
                        attribute=attribute,
                        level=self._levels[attribute].name,
                        codes=codes,
                        present=bits,
                    )
                )
        return collector_pb2.Batch(
            id=os.urandom(16),  # never from seeded coins: two simulations must not share ids
            survey=self.plan.survey,
            revision=self.plan.revision,
            period=name,
            rows=len(rows),
            columns=columns,
        )

    def _send_all(self, deadline: float) -> bool:
        wait = _FIRST_WAIT
        pending = list(self.outbox())
        while pending:
            left = []
            for batch in pending:
                remaining = deadline - time.monotonic()
                if remaining <= 0 or not self._deliver(batch, min(remaining, _CALL_TIMEOUT)):
                    left.append(batch)
            # Spread retries out, so that a crowd of devices does not return at once.
            pause = wait * random.uniform(0.5, 1.0)
            if left and time.monotonic() + pause >= deadline:
                return False
            if left:
                time.sleep(pause)
            wait = min(2 * wait, _LONGEST_WAIT)
            pending = left
        return True

    def _deliver(self, batch: collector_pb2.Batch, timeout: float) -> bool:
        """Submit one batch; return whether it was answered for good, and so left the queue."""
        request = collector_pb2.SubmitRequest(batches=[batch])
        try:
            (result,) = self._stub.Submit(request, timeout=timeout).results
        except (grpc.RpcError, ValueError) as error:  # ValueError: not one result per batch
            code = getattr(error, "code", None)
            _log.warning("a batch was not answered and stays queued: %s", code() if code else error)
            return False
        became = _FINAL.get(result.status)
        if became is None:
            _log.warning("a batch stays queued: status %d, %s", result.status, result.detail)
            return False
        if became == "refused":
            _log.error("a batch was refused: reason %d, %s", result.reason, result.detail)
        with self._lock:
            self._batches.remove(batch)
            self._counters[became] += 1
        return True
