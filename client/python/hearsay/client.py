"""The device's side: randomise here, send only that."""

import atexit
import json
import logging
import math
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar

from hearsay import outbox
from hearsay.choices import Caps, Choices, Terms
from hearsay.ledger import Ledger, Spending
from hearsay.outbox import Outbox
from hearsay.plan import Plan, parse
from hearsay.sender import Delivery, Sender, leaving
from hearsay.store import Store
from hearsay.transport import GrpcTransport, Tls, Token, Transport
from hearsay.trouble import Reason, Status, Trouble
from ldp import Coins, InvalidInput

if TYPE_CHECKING:
    import sqlite3

_log = logging.getLogger("hearsay")


_P = ParamSpec("_P")
_R = TypeVar("_R")

_NO_CAPS = Caps()
_USUAL = Delivery()


class _Memory:
    """The type of `MEMORY`."""

    def __repr__(self) -> str:
        return "hearsay.MEMORY"


MEMORY: Final = _Memory()
"""As a client's ledger: keep it in this process's memory, and lose it with the process. Whoever
runs the process again may spend a period's epsilon again."""


class Client:
    """Record answers: randomise each on this device, queue it, send the codes.

    Guarantee: all that leaves the device for one person and period is epsilon-LDP for the whole
    record, epsilon being `record_epsilon`, at most the chosen level's where no attribute has
    another; over periods epsilons add up, and the caps for life bound the sum. A memoised
    attribute costs its memo's epsilon once per distinct value, which bounds what all its reports
    tell between lives that change at the same times (`Memoizer`), and no others. Each attribute is
    randomised at most once per person and period; a repeated answer is dropped and counted. It
    holds across crashes, restarts, threads, forks and processes that share the ledger's file.
    Where the survey declares sensitive values or classes of an attribute, its policy takes the
    place of its epsilon, and its ordinary values may be revealed: only those that `may_reveal`
    names are sent like that. What is in the clear: the survey, the levels, which attributes
    were answered, the period, and the time of contact.

    A client that is dropped without `close` stops sending: what waits stays in the file.

    Nothing is taken before `grant` (or `consent=True`). Nothing that the network, the disk or
    the server does raises, or blocks for longer than a transaction of the file; what is dropped
    is counted in `counters` by its reason, and `status` says why.
    """

    def __init__(
        self,
        target: str | Transport,
        survey: str,
        *,
        level: str,
        ledger: str | os.PathLike[str] | _Memory,
        consent: bool = False,
        levels: Mapping[str, str] = MappingProxyType({}),
        caps: Caps = _NO_CAPS,
        withhold: Collection[str] = (),
        may_reveal: Collection[str] = (),
        may_tell_changes: Collection[str] = (),
        revision: str | None = None,
        tls: Tls | None = None,
        token: Token | None = None,
        insecure: bool = False,
        delivery: Delivery = _USUAL,
        strict: bool = False,
        coins: Coins | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepare to answer a survey of the server at "host:port"; return at once.

        The plan is fetched in the background, checked, and kept in the ledger with its
        revision; `ready` waits for it. `ledger` is the file of this installation (one for all
        its surveys, users and processes; see `create_ledger`), or `MEMORY`. `consent` grants,
        as `grant` does; without it what was granted in the ledger's file holds.

        Decide these before any answer is known: `level` names the user's epsilon, `levels` that
        of some attributes, by name; `caps` are the app's; `withhold` names the attributes that
        are never answered, whatever `record` is given; `may_reveal` those whose ordinary values
        may be revealed, `may_tell_changes` the memoised ones, whose reports tell when an answer
        changes. `revision`, the hex SHA-256 that `hearsay survey show` prints, refuses
        any other plan. Without it another plan is taken as long as it does not spend more on a
        record than the first one did, or than `caps.record` where that is given.

        TLS is used for any host that is not loopback unless `insecure`; `tls` names its files,
        `token` what the server knows this app by. `strict` is for development: what the
        programmer can mend raises. `coins` and `clock` are for tests and simulations.
        Raises `InvalidInput` where a file of `tls` cannot be read.
        """
        if isinstance(target, str):
            if tls is not None:
                tls.credentials()
            target = GrpcTransport(target, tls=tls, token=token, insecure=insecure)
        self._survey = survey
        self._choices = Choices(
            level=level,
            levels=dict(levels),
            withhold=frozenset(withhold),
            may_reveal=frozenset(may_reveal),
            may_tell_changes=frozenset(may_tell_changes),
            revision=revision,
        )
        self._caps = caps
        self._delivery = delivery
        self._strict = strict
        self._coins = coins or Coins()
        self._clock = clock
        self._transport = target
        self._store = Store(None if isinstance(ledger, _Memory) else Path(ledger), clock)
        self._ledger = Ledger(self._store, survey)
        self._terms: Terms | None = None
        self._fetched = 0.0  # when the plan was, by the clock, in seconds since 1970
        self._refused = Status(Reason.NO_PLAN, "no plan has come yet")
        self._settled = threading.Event()  # there are terms, or a plan was refused
        self._dropped: Counter[str] = Counter()  # not in the file yet
        self._counting = threading.RLock()
        self._keeping = threading.RLock()  # one writer of counters at a time; taken first
        self._last = Status(Reason.READY)  # of the last answer
        self._closed = self._emptied = False
        self._revoked = False  # whatever the file says: it may not have been possible to note it
        self._forget = False
        self._catching = threading.RLock()  # guards these three and the next
        self._behind = True  # the file could not be read or written when it should have been
        self._consenting = consent
        self._quiet = self._paused = False  # while the process forks
        self._held: list[threading.RLock] = []
        self._sender = Sender(
            self._store,
            self._transport,
            survey,
            delivery,
            refresh=_while_it_lives(self._refresh),
            allowed=_while_it_lives(self._may_send),
            clock=clock,
            coins=self._coins,
        )
        # At the exit of the process there is a flush instead.
        weakref.finalize(self, self._sender.abandon).atexit = False
        try:
            self._catch_up()
        except Trouble as trouble:
            self._last = trouble.status
        with _births:
            _living.add(self)
        self._sender.start()

    def record(self, /, **answers: object) -> tuple[str, ...]:
        """Randomise answers by attribute name and queue them; return the names that were taken.

        Where the survey samples attributes, the record of a period reports the few that were
        drawn for it, whatever the answers are; the others are dropped and counted as "idle".

        A category is given as its value, or as an integer that spells it; a number as anything
        with an exact float. An attribute that is left out or None is withheld: that it was is
        visible, its answer is not. So do not withhold because of the answer: leaving out what
        lies outside the domain tells that it did. Survey such numbers with `clamp`, and give
        categories an "other". An attribute that was answered in this period already, or whose
        epsilon a cap does not allow, is dropped and counted as "spent".

        Never raises, unless `strict`: then `InvalidInput`, before anything is spent, for an
        unknown attribute, for an answer outside its domain (the message does not repeat the
        answer), where the plan is refused, and after `close`. Otherwise those are dropped,
        counted as "invalid" and logged. Takes some 50 µs. The answer itself is not kept; of a
        memoised attribute, which values have a memo is (under keyed hashes, with the key beside
        them).
        """
        return self._record("", answers)

    def person(self, name: str) -> "Person":
        """Return what records the answers of one of several people who share this device.

        Each has an account of their own; the file knows them by a keyed hash of `name`. For a
        web backend, say, which answers for its users.
        """
        return Person(self, name)

    def ready(self, timeout: float = 10.0) -> bool:
        """Wait until there is a plan; return whether answers are taken now.

        Without consent there is nothing to wait for: the server is not even asked.

        With `strict`, raises `InvalidInput` where the server's plan is refused.
        """
        deadline = time.monotonic() + timeout
        while (status := self.status()).reason in (Reason.NO_PLAN, Reason.LOCKED):
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                break
            if self._settled.is_set():
                time.sleep(min(remaining, 0.01))
            else:
                self._settled.wait(min(remaining, 0.1))
        if self._strict and status.reason is Reason.PLAN_REFUSED:
            raise InvalidInput(status.detail)
        return status.ready

    def status(self) -> Status:
        """Return whether answers are taken now, and if not, why."""
        if self._closed:
            return Status(Reason.CLOSED)
        if self._revoked:
            return Status(Reason.NO_CONSENT)
        try:
            self._catch_up()
            if not self._has_consent():
                return Status(Reason.NO_CONSENT)
            if self._terms is None:
                return self._refused
            self._ledger.check("", self._terms, now=self._clock(), caps=self._caps)
        except Trouble as trouble:
            return trouble.status
        if self._last.reason in _OF_WRITING:  # looking may go well where writing does not
            try:
                self._store.probe()
                self._last = Status(Reason.READY)
            except Trouble as trouble:
                return trouble.status
        return Status(Reason.READY)

    def grant(self) -> None:
        """Note the user's consent to this survey in the ledger; raise nothing.

        Where that is not possible now, it is tried again, and `status` says why.
        """
        with self._catching:
            self._revoked = False
            self._consenting = self._behind = True
        try:
            self._catch_up()
        except Trouble as trouble:
            self._last = trouble.status
        self._sender.wake()

    def revoke(self, *, forget: bool = False) -> None:
        """Stop taking and sending at once, note it in the ledger, and empty the queue; raise
        nothing. Where noting is not possible now, it is tried again.

        With `forget`, the server is asked to delete the batches that were under way and may
        have reached it. What it acknowledged stays counted, and what was spent stays spent.
        """
        with self._catching:
            self._revoked = self._behind = True
            self._consenting = False
            self._forget |= forget
        paused = self._sender.pause(_REVOKE_WAIT)
        try:
            deadline = time.monotonic() + _REVOKE_WAIT
            while True:
                try:
                    self._catch_up()
                    break
                except Trouble as trouble:
                    if time.monotonic() >= deadline:
                        _log.error("not noted yet, but nothing is sent: %s", trouble)
                        break
                    time.sleep(0.02)
        finally:
            if paused:
                self._sender.sending.release()
        self._sender.wake()

    def limit(self, caps: Caps) -> None:
        """Set the user's own caps, kept in the ledger; of them and the app's the lower hold.

        That for life is for all surveys and people of the ledger, the others for this survey.

        Raises `InvalidInput` where they cannot be kept.
        """
        try:
            self._ledger.set_own_caps(caps)
            self._take_known_plan()
        except Trouble as trouble:
            raise InvalidInput(f"the caps could not be kept: {trouble}") from None

    def ledger(self, person: str = "") -> tuple[Spending, ...]:
        """Return what was spent and what is left, by attribute; empty without a plan."""
        if self._terms is None:
            return ()
        try:
            return tuple(self._ledger.spendings(person, self._terms, self._caps, self._clock()))
        except Trouble:
            return ()

    def outbox(self) -> Outbox:
        """Return what waits and what left, decoded: exactly what the server gets to see."""
        try:
            return outbox.view(self._store, self._survey)
        except Trouble:
            return Outbox((), (), ())

    @property
    def counters(self) -> Mapping[str, int]:
        """Records queued ("recorded"); answers and reports dropped, by reason: "spent", "idle",
        "invalid", "overflow" (reports beyond the queue), "revoked", "period_closed", and those
        of `Reason`; batches by what became of them: "stored", "duplicate", "refused". Kept in
        the ledger."""
        with self._keeping:
            try:
                self._keep_counters()
                kept = outbox.counters(self._store, self._survey)
            except Trouble:
                kept = {}
            with self._counting:
                return MappingProxyType(dict(Counter(kept) + self._dropped))

    def flush(self, timeout: float = 30.0) -> bool:
        """Send what waits; return whether all of it was answered within `timeout` seconds.

        A batch without an answer for good stays queued, and goes again with the same id and
        bytes, so the server counts it once. A batch that the server refuses is dropped, counted
        and logged with its reason.
        """
        if self._closed:
            return self._emptied
        return self._sender.flush(timeout) and self._is_empty()

    def close(self, timeout: float = 30.0) -> bool:
        """Flush, then disconnect; return whether nothing is left behind.

        What could not be sent waits in the ledger's file for the next client of it; with a
        ledger in memory it is lost, and logged as an error. Closing again does nothing.
        """
        if not self._closed:
            sent = self._is_empty() or self._sender.flush(timeout)
            self._closed = True
            self._sender.stop()
            self._sender.join(timeout=0.2)
            self._transport.close()
            if not sent and self._store.file is None and (left := self._left()):
                _log.error("closed with %d reports that were never answered: they are lost", left)
            self._emptied = self._is_empty()
            try:
                self._keep_counters()
            except Trouble as trouble:
                _log.warning("the counters could not be kept: %s", trouble)
            self._store.release()
        return self._emptied

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
    def plan(self) -> Plan:
        """The plan; raises `InvalidInput` where there is none yet."""
        return self._known_terms().plan

    @property
    def record_epsilon(self) -> float:
        """The most that one record spends; raises `InvalidInput` without a plan."""
        return self._known_terms().record_epsilon

    def _known_terms(self) -> Terms:
        if self._terms is None:
            raise InvalidInput(f"{self._refused.detail}: wait for ready()")
        return self._terms

    def _record(self, person: str, answers: Mapping[str, object]) -> tuple[str, ...]:
        try:
            return self._try_to_record(person, answers)
        except Exception as error:
            if self._strict:
                raise
            # Without its message, which may have the answer in it.
            _log.error("an answer could not be recorded: %s", type(error).__name__)
            self._drop("failed", len(answers))
            return ()

    def _try_to_record(self, person: str, answers: Mapping[str, object]) -> tuple[str, ...]:
        try:
            terms = self._check_answering()
            values = terms.encode(answers)
        except InvalidInput as error:
            if self._strict:
                raise
            _log.error("an answer was dropped: %s", error)
            self._drop("invalid")
            return ()
        except Trouble as trouble:
            if self._strict and trouble.status.reason in (Reason.PLAN_REFUSED, Reason.CLOSED):
                raise InvalidInput(str(trouble)) from None
            self._last = trouble.status
            self._drop(trouble.status.reason, len(answers))
            return ()
        if not values:
            return ()
        try:
            taken, dropped, (reports, size) = self._ledger.record(
                person,
                terms,
                values,
                now=self._clock(),
                caps=self._caps,
                limits=(self._delivery.max_reports, self._delivery.max_bytes),
                coins=self._coins,
            )
        except Trouble as trouble:
            self._last = trouble.status
            self._drop(trouble.status.reason, len(values))
            return ()
        self._last = Status(Reason.READY)
        if taken or dropped:
            with self._counting:
                if dropped:
                    self._dropped.update(dropped)
                self._dropped["recorded"] += bool(taken)
        self._sender.start()  # a forked child has none yet
        delivery = self._delivery
        if reports == 1 or reports >= delivery.batch_rows or size >= delivery.batch_bytes:
            self._sender.wake()
        return tuple(taken)

    def _check_answering(self) -> Terms:
        if self._closed:
            raise Trouble(Reason.CLOSED, "this client is closed; make a new one to record")
        if self._revoked:
            raise Trouble(Reason.NO_CONSENT)
        terms = self._terms
        if terms is None:
            self._sender.start()
            if not self._has_consent():  # or the ledger is shut, which raises
                raise Trouble(Reason.NO_CONSENT)
            raise Trouble(self._refused.reason, self._refused.detail)
        return terms

    def _drop(self, reason: str, answers: int = 1) -> None:
        with self._counting:
            self._dropped[str(reason)] += answers

    def _keep_counters(self) -> None:
        with self._keeping:
            with self._counting:
                dropped = self._dropped.copy()
            if dropped:
                outbox.count(self._store, self._survey, dropped)
                with self._counting:
                    self._dropped -= dropped

    def _left(self) -> int:
        waiting = self.outbox()
        return len(waiting.reports) + sum(batch.rows for batch in waiting.batches)

    def _is_empty(self) -> bool:
        try:
            return outbox.is_empty(self._store, self._survey)
        except Trouble:
            return False

    def _has_consent(self) -> bool:
        if self._revoked:
            return False
        with self._store.read() as connection:
            found = connection.execute(
                "SELECT consent FROM surveys WHERE survey = ?", (self._survey,)
            ).fetchone()
        return bool(found and found[0])

    def _may_send(self) -> bool:
        self._catch_up()
        self._keep_counters()
        return self._has_consent()

    def _catch_up(self) -> None:
        """Do what is due with the file since the start, a grant or a revocation."""
        if not self._behind:
            return
        with self._catching:
            if self._revoked:
                outbox.revoke(self._store, self._survey, self._clock(), forget=self._forget)
                self._revoked = False
            else:
                if self._terms is None:
                    self._take_known_plan()
                if self._consenting and not self._has_consent():
                    outbox.grant(self._store, self._survey)
            self._behind = self._forget = False

    def _take_known_plan(self) -> None:
        """Take the plan that an earlier run has kept, if any."""
        with self._store.read() as connection:
            data, fetched, _ = self._kept(connection)
        if data:
            self._take(data, fetched=fetched)

    def _kept(self, connection: "sqlite3.Connection") -> tuple[bytes, float, str]:
        """Return the plan that is kept, when it was fetched, and what is trusted."""
        found = connection.execute(
            "SELECT plan, fetched, trusted FROM surveys WHERE survey = ?", (self._survey,)
        ).fetchone()
        return found or (b"", 0.0, "{}")

    def _refresh(self, now: bool, timeout: float) -> None:
        """Fetch the plan where there is none or an old one, or `now`."""
        moment = self._clock().timestamp()
        age = moment - self._fetched
        delivery = self._delivery
        lasts = delivery.plan_age if self._terms else min(delivery.plan_age, delivery.longest_wait)
        if not now and self._settled.is_set() and 0 <= age < lasts:
            return
        try:
            data = self._transport.get_plan(self._survey, timeout)
        except InvalidInput as error:  # there is no such survey, say
            if self._terms is None:
                self._refuse(str(error))
            self._fetched = moment
            return
        self._take(data, fetched=moment)

    def _take(self, data: bytes, *, fetched: float) -> None:
        """Take a plan, and keep it, if it keeps all promises; else keep the reason why not."""
        self._fetched = fetched
        try:
            plan = parse(data)
            if plan.survey != self._survey:
                raise InvalidInput(f"asked for the survey {self._survey!r}, got {plan.survey!r}")
            terms = self._choices.against(plan)
            with self._store.read() as connection:
                terms.check_caps(self._caps.lower(self._ledger.own_caps(connection)))
                kept = self._kept(connection)
            trusted = self._trusted(json.loads(kept[2]), terms)
            if kept != (data, fetched, trusted):
                with self._store.write() as connection:
                    connection.execute(
                        "INSERT INTO surveys (survey, plan, fetched, trusted) VALUES (?, ?, ?, ?)"
                        " ON CONFLICT DO UPDATE SET plan = excluded.plan,"
                        " fetched = excluded.fetched, trusted = excluded.trusted",
                        (self._survey, data, fetched, trusted),
                    )
        except InvalidInput as error:
            self._refuse(str(error))
            return
        self._terms = terms
        self._settled.set()

    def _trusted(self, trusted: dict[str, Any], terms: Terms) -> str:
        """Return what is trusted from now on: the costs of the first plan, or those allowed since.

        Raises `InvalidInput` for a plan of another period, or whose record, or memos, cost more
        where no cap bounds them.
        """
        unit = trusted.setdefault("period", terms.plan.period)
        if unit != terms.plan.period:
            raise InvalidInput(
                f"the plan of {self._survey!r} now has the period {terms.plan.period!r}; it was "
                f"{unit!r}: what was spent in one cannot be held against the other"
            )
        choices = self._choices
        key = repr((choices.level, sorted(choices.levels.items()), sorted(choices.withhold)))
        known = trusted.setdefault(key, {"record": terms.record_epsilon, "memos": {}})
        if self._caps.record is None and terms.record_epsilon > known["record"]:
            raise InvalidInput(
                f"the plan of {self._survey!r} now spends epsilon {terms.record_epsilon:g} on a "
                f"record; it was {known['record']:g}: if that is meant, allow it by caps.record"
            )
        known["record"] = max(known["record"], terms.record_epsilon)
        memos = {name: memoizer.epsilon for name, memoizer in terms.memoizers.items()}
        for name, epsilon in known["memos"].items():
            bounded = self._caps.life is not None or name in self._caps.attribute_life
            if not bounded and name in terms.levels and memos.get(name, math.inf) > epsilon:
                now = f"costs {memos[name]:g}" if name in memos else "is drawn for every report"
                raise InvalidInput(
                    f"a memo of {name!r} cost epsilon {epsilon:g}, and now {now}; if that is "
                    "meant, bound it by a cap for life"
                )
        known["memos"] |= memos
        return json.dumps(trusted)

    def _refuse(self, why: str) -> None:
        if self._refused != (refused := Status(Reason.PLAN_REFUSED, why)):
            _log.error("the plan of %r is refused: %s", self._survey, why)
        self._refused = refused
        self._terms = None
        self._settled.set()

    def _before_fork(self, deadline: float) -> None:
        self._quiet = self._sender.pause(max(0.0, deadline - time.monotonic()))
        self._held = [
            lock
            for lock in (self._catching, self._keeping, self._counting)
            if lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
        ]
        # The file must not be open in two processes, so it is not while there are two.
        self._paused = self._store.hold(max(0.0, deadline - time.monotonic()))
        if self._paused:
            self._store.release()

    def _after_fork(self, *, child: bool) -> None:
        if child:
            self._counting, self._keeping = threading.RLock(), threading.RLock()
            self._catching = threading.RLock()
            self._dropped = Counter()  # the parent counts them
            settled = self._settled.is_set()
            self._settled = threading.Event()
            if settled:
                self._settled.set()
            self._sender.after_fork()
            self._store.after_fork(usable=self._paused)
            self._transport.after_fork(usable=self._quiet)
            return
        if self._paused:
            self._store.let_go()
        for lock in self._held:
            lock.release()
        if self._quiet:
            self._sender.sending.release()


class Person:
    """One of several people whose answers a client records."""

    def __init__(self, client: Client, name: str) -> None:
        if not name:
            raise InvalidInput("a person needs a name")
        self._client = client
        self._name = name

    def record(self, /, **answers: object) -> tuple[str, ...]:
        """Record this person's answers, as `Client.record` does."""
        return self._client._record(self._name, answers)

    def ledger(self) -> tuple[Spending, ...]:
        """Return what was spent on this person, as `Client.ledger` does."""
        return self._client.ledger(self._name)


def _while_it_lives(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return what calls a method without keeping its object alive, or raises `Trouble`."""
    reference = weakref.WeakMethod(method)

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        living = reference()
        if living is None:
            raise Trouble(Reason.CLOSED, "the client was dropped without close()")
        return living(*args, **kwargs)

    return call


_OF_WRITING = (Reason.DISK, Reason.LOCKED)
"""What only an answer finds out."""

_REVOKE_WAIT = 1.0
"""Seconds that `revoke` waits for a call under way to end."""

_FORK_WAIT = 2.0
"""Seconds that a fork waits for a call and a transaction under way to end."""

_living: "weakref.WeakSet[Client]" = weakref.WeakSet()
"""The clients that a fork and the process's exit concern."""

_births = threading.RLock()
"""Guards `_living`; held while the process forks, so that no client appears in the middle."""


def _before_fork() -> None:
    _births.acquire()
    deadline = time.monotonic() + _FORK_WAIT
    for sender in list(leaving):
        sender.stop()
        sender.join(max(0.0, deadline - time.monotonic()))
    for client in list(_living):
        try:
            client._before_fork(deadline)
        except Exception as error:  # the host's fork must go on
            _log.error("a client was not ready for a fork: %s", type(error).__name__)


def _after_fork(*, child: bool) -> None:
    global _births
    for client in list(_living):
        try:
            client._after_fork(child=child)
        except Exception as error:
            _log.error("a client did not take a fork well: %s", type(error).__name__)
    if child:
        _births = threading.RLock()
        leaving.clear()
    else:
        _births.release()


@atexit.register
def _flush_at_exit() -> None:
    """Send what waits, for a bounded time; the rest waits in the file."""
    begin = time.monotonic()
    with _births:
        clients = list(_living)
    for client in clients:
        spent = time.monotonic() - begin
        try:
            if not client._closed:
                client.close(max(0.0, client._delivery.exit_timeout - spent))
        except Exception as error:
            _log.error("a client could not be closed: %s", type(error).__name__)


if hasattr(os, "register_at_fork"):  # there is no fork on Windows
    os.register_at_fork(
        before=_before_fork,
        after_in_parent=lambda: _after_fork(child=False),
        after_in_child=lambda: _after_fork(child=True),
    )
