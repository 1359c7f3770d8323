"""The one thread that talks to the server: it fetches the plan, packs, sends, and waits.

No other thread waits for the network. An app's thread that flushes waits for this one, for as
long as it wants to, so that an exception of a signal handler, or the end of the process, finds
nothing that it could break.
"""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import ParamSpec

from hearsay.plain import on_one_line
from hearsay.plans.period import label
from hearsay.plans.plan import Plan
from hearsay.recording import envelopes, outbox
from hearsay.recording.consent import Consent
from hearsay.recording.counters import LOST, Counters
from hearsay.sealed import records
from hearsay.sending import packing, through_shuffler
from hearsay.sending.attested_keys import AttestedKeys
from hearsay.sending.backoff import backoff
from hearsay.sending.plan_keeper import Held, Look, PlanKeeper
from hearsay.sending.transport import Transport, Unreachable
from hearsay.storage.store import Store
from hearsay.trouble import Reason, Trouble
from hearsay.v1 import collector_pb2, shuffler_pb2
from ldp import Coins, InvalidInput
from ldp.errors import HearsayError

_log = logging.getLogger("hearsay")

P = ParamSpec("P")

_FINAL = {
    collector_pb2.Result.STORED: "stored",
    collector_pb2.Result.DUPLICATE: "duplicate",
    collector_pb2.Result.REFUSED: "refused",
}
"""The statuses that end a batch, and how they are counted. Any other leaves it queued."""

_TIDY = 5.0
"""Seconds between two looks at the ledger's log while the server is away."""
_IDLE = 60.0
"""Seconds between two looks at an empty queue, which another process may have left filled."""
_KEEP = 5.0
"""Seconds for which new counts may be in memory only."""
_LONGEST_CALL = 24 * 3600.0
"""Seconds of the longest call; nothing could wait for an infinite one."""
_NOTHING_WAITS = Look(Held.NOTHING, b"")
_AGAIN = 0.1
"""Seconds after which a flush looks again where another process has a batch under way."""


@dataclass(frozen=True)
class Delivery:
    """When batches are packed and sent, how much may wait, and for how long.

    A batch goes when `batch_rows` reports or `batch_bytes` wait, or one for `batch_age` seconds.
    At most `max_reports` and `max_bytes` wait; the oldest are dropped beyond that. A try that
    fails is followed by another after `first_wait` seconds, then twice that, up to
    `longest_wait`, each 50 to 100% of it, never before the server's own retry delay; a flush
    keeps to that, too. `timeout` is for one call, `exit_timeout` the longest delay of the process's
    exit. `plan_age` is how old a plan gets before the server is asked again whether it
    is still the same; where there is none yet, that is `longest_wait`. `record_wait` is how long
    an answer may wait for another process that writes to the ledger. Times in seconds.
    Raises `InvalidInput` unless all are positive (`exit_timeout` may be 0), and `timeout` is at
    most a day.
    """

    batch_rows: int = 512
    batch_bytes: int = 1 << 20
    batch_age: float = 5.0
    max_reports: int = 10_000
    max_bytes: int = 8 << 20
    first_wait: float = 1.0
    longest_wait: float = 300.0
    timeout: float = 10.0
    exit_timeout: float = 1.0
    plan_age: float = 24 * 3600.0
    record_wait: float = 2.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (value > 0 or (name == "exit_timeout" and value == 0)):
                raise InvalidInput(f"{name} must be > 0, got {value!r}")
        if self.timeout > _LONGEST_CALL:
            raise InvalidInput(f"timeout must be <= {_LONGEST_CALL:.0f}, got {self.timeout!r}")


@dataclass(frozen=True)
class DeliveryState:
    """How delivery goes: when a batch was last answered for good (UTC; None: never in this
    process), the last error in words ("": none since), and for how many seconds the oldest report
    has been waiting (None: nothing waits)."""

    last_success: datetime | None
    last_error: str
    oldest: float | None


class _Flush:
    """A request to send all waiting reports, whose caller waits for the result."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.sent = False
        # A lock of the interpreter's own: an exception of a signal handler in the waiting thread
        # cannot keep the sender's from releasing it.
        self._done = threading.Lock()
        self._done.acquire()

    def answer(self, sent: bool) -> None:
        self.sent = sent
        self._done.release()

    def wait(self) -> bool:
        return self._done.acquire(timeout=max(0.0, self.deadline - time.monotonic())) and self.sent


class Sender:
    """Deliver one survey's reports from a store, in the background. Nothing here raises into
    the app."""

    def __init__(
        self,
        store: Store,
        transport: Transport,
        survey: str,
        delivery: Delivery,
        *,
        keeper: PlanKeeper,
        consent: Consent,
        counters: Counters,
        clock: Callable[[], datetime],
        coins: Coins,
        attested: AttestedKeys | None = None,
    ) -> None:
        """Deliver over a transport; where `attested` is a part of it, ask it for evidence as well,
        by its own clock."""
        self._store = store
        self._transport = transport
        self._survey = survey
        self._delivery = delivery
        self._keeper = keeper
        self._consent = consent
        self._counters = counters
        self._clock = clock
        self._coins = coins
        self._attested = attested
        self._may_ask = True
        self.last_success: datetime | None = None
        self.last_error = ""
        self.after_fork()

    def after_fork(self) -> None:
        """Start anew: threads and locks do not survive a fork."""
        self._thread: threading.Thread | None = None
        self._starting = threading.RLock()
        # Held by the one thread that runs. An exception of a signal handler may come after a
        # thread was started and before that could be noted: the next one finds it held, and ends.
        self._running = threading.Lock()
        self._calls: queue.SimpleQueue[_Flush | None] = queue.SimpleQueue()
        self._flushes: list[_Flush] = []
        self._leased: list[collector_pb2.Batch] = []
        self._pauses: dict[object, float] = {}  # until when, monotonic
        self._is_talking = False
        self._stopped = False
        self._answered: dict[bytes, str] = {}  # answered, but the disk is too full to note it
        self._failures = 0
        self._not_before = 0.0  # monotonic; set by the last failure
        self._forget_failures = 0
        self._forget_at = 0.0  # monotonic; the same for asking the server to forget
        self._looked = _NOTHING_WAITS

    def start(self) -> bool:
        """Start the thread, unless it runs; return whether it runs, or is about to."""
        if self._thread is None and not self._stopped:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name="hearsay", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:  # no more threads: the next answer tries again
                        _log.error("nothing is sent for now: %s", error)
                        return False
        return not self._stopped

    def wake(self) -> None:
        """Make the thread look at the queue now; start it first in a forked child."""
        self.start()
        if self._calls.empty():
            self._calls.put(None)

    def flush(self, timeout: float) -> bool:
        """Send all waiting reports; return whether all were answered within `timeout` seconds.

        Where the server asked to be left alone for longer than that, it is not asked.
        """
        request = _Flush(time.monotonic() + timeout)
        if not self.start():
            return False
        self._calls.put(request)
        return request.wait()

    def pause(self, token: object, timeout: float, *, most: float = math.inf) -> None:
        """End the call under way and keep others from beginning until `resume` of this token.

        Waits at most `timeout` seconds; `is_quiet` tells whether that was enough. The pause ends by
        itself after `most` seconds: an exception of a signal handler may keep the caller from
        ending it.
        """
        self._pauses[token] = time.monotonic() + most
        deadline = time.monotonic() + timeout
        while not self.is_quiet and time.monotonic() < deadline:
            self._transport.interrupt()  # again and again: the next call may just have begun
            time.sleep(0.002)

    @property
    def is_quiet(self) -> bool:
        """Whether this is paused and no call is under way."""
        return self._is_paused and not self._is_talking

    @property
    def _is_paused(self) -> bool:
        return any(until > time.monotonic() for until in list(self._pauses.values()))

    def resume(self, token: object) -> None:
        """End a pause."""
        self._pauses.pop(token, None)
        self.wake()

    def stop(self) -> None:
        """Stop for good, and end the call under way; the thread then closes store and transport."""
        self.abandon()
        self._transport.interrupt()

    def abandon(self) -> None:
        """Stop for good after the call under way.

        Safe wherever the garbage collector runs, since it waits for nothing.
        """
        if self._thread is not None and not self._stopped:
            leaving.add(self)
        self._stopped = True
        self._calls.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(max(0.0, timeout))

    def _run(self) -> None:
        if not self._running.acquire(blocking=False):
            return
        self._thread = threading.current_thread()
        pause = 0.0
        while not self._stopped:
            self._receive(pause)
            try:
                self._ask()
                pause = min(self._turn(), self._until_asked())
            except Exception as error:  # a fault of ours must not end the delivery
                self._failed(_words(error))
                pause = self._wait_after(0.0)
                self._answer_flushes(pause)
        self._receive(0.0)
        for flush in self._flushes:
            flush.answer(False)
        self._leave()

    def _receive(self, timeout: float) -> None:
        """Wait at most `timeout` seconds for a call, and collect all requests for a flush."""
        try:
            call = self._calls.get(timeout=timeout) if timeout > 0 else self._calls.get_nowait()
            while True:
                if call is not None:
                    self._flushes.append(call)
                call = self._calls.get_nowait()
        except queue.Empty:
            pass

    def _leave(self) -> None:
        try:
            self._transport.close()
            if self._store.file is None and (left := outbox.left(self._store, self._survey)):
                detail = f"a client ended, and {left} reports that it had in memory are lost"
                self._counters.add(LOST, left, detail)
            self._store.release()
        except Exception as error:  # nobody is left to tell
            _log.error("a client did not close: %s", _words(error))
        finally:
            leaving.discard(self)

    def _ask(self) -> None:
        """Ask for evidence of the sealing keys if it is due, whatever waits, and before a failure's
        wait: who answers must not learn from the question that a record is about to leave."""
        if self._attested is None or self._stopped:
            return
        self._is_talking = True
        try:
            if self._is_paused:
                return
            self._keeper.look()
            plan = self._sealing
            if plan is not None and self._attested.due_in(plan.revision) == 0:
                waits = outbox.waiting(self._store, self._survey, self._now())
                self._may_ask = waits.consent or waits.forgets
                if self._may_ask:
                    self._attested.ask(self._survey, plan.revision, self._delivery.timeout)
        except Trouble as trouble:
            _log.debug("no evidence is asked for: %s", trouble)  # the turn says it, too
        finally:
            self._is_talking = False

    def _until_asked(self) -> float:
        """Return the seconds until evidence may be due; infinity where none is asked for."""
        plan = self._sealing
        if self._attested is None or plan is None:
            return math.inf
        wait = self._attested.due_in(plan.revision)
        return max(wait, 0.01) if wait > 0 or self._may_ask else math.inf

    def _turn(self) -> float:
        """Fetch the plan and send batches where due; return the seconds until the next turn."""
        if self._stopped:
            return 0.0
        if self._is_paused:
            return 0.01
        delay = self._not_before - time.monotonic()
        if delay > 0:  # a failing server must not be asked by events
            self._tidy()
            self._answer_flushes(delay)
            return min(delay, _TIDY)
        self._is_talking = True
        try:
            if self._is_paused:
                return 0.01
            everything = bool(self._flushes)
            retry_after, waits = self._send(everything=everything)
        except Unreachable as error:
            self._keeper.failed(error)
            self._failed(str(error))
            retry_after, waits = error.retry_after, None
        except Trouble as trouble:
            self._failed(str(trouble))
            retry_after, waits = 0.0, None
        finally:
            self._is_talking = False
        if retry_after is not None or waits is None:
            if self._is_paused or self._stopped:  # the call was ended, not failed
                return 0.01
            wait = self._wait_after(retry_after or 0.0)
            self._answer_flushes(wait)
            return wait
        self._failures, self._not_before = 0, 0.0
        if everything and (waits.batches or waits.reports):  # another process has some under way
            self._answer_flushes(_AGAIN)
            return _AGAIN
        if everything:
            self._answer_flushes(float("inf"), sent=True)
        idle = min(_IDLE, max(0.01, self._forget_at - time.monotonic())) if waits.forgets else _IDLE
        if not waits.reports or self._looked.held is not Held.NOTHING:
            lacking = self._keeper.lacks_something
            return min(idle, self._delivery.longest_wait) if lacking else idle
        age = self._now() - waits.oldest
        return min(max(0.01, self._delivery.batch_age - age), self._delivery.longest_wait, idle)

    def _wait_after(self, retry_after: float) -> float:
        """Set, and return, the seconds to wait after a failure."""
        pause = self._backoff(self._failures, retry_after)
        self._failures += 1
        self._not_before = time.monotonic() + pause
        _log.debug("the next try is in %.1f s: %s", pause, self.last_error)
        return pause

    def _backoff(self, failures: int, retry_after: float) -> float:
        """Return the seconds to wait after another failure: never less than the server asked."""
        delivery = self._delivery
        return backoff(delivery.first_wait, delivery.longest_wait, failures, retry_after)

    def _answer_flushes(self, next_try: float, *, sent: bool = False) -> None:
        """Answer the flushes that time out before the next try, in `next_try` seconds."""
        until = time.monotonic() + next_try
        for flush in [flush for flush in self._flushes if flush.deadline < until]:
            self._flushes.remove(flush)
            flush.answer(sent)

    def _tidy(self) -> None:
        try:
            self._store.tidy()
        except Trouble as trouble:
            _log.info("the ledger's log could not be moved yet: %s", trouble)

    def _send(self, *, everything: bool) -> tuple[float | None, outbox.Waiting]:
        """Send due batches; return None where none of them is left, else the seconds that the
        server asked to wait (0: it asked for nothing), and the state of the queue."""
        self._keeper.look()
        _unless_full(self._consent.catch_up)
        _unless_full(self._counters.keep, _KEEP)
        self._give_back()
        while True:
            full: Trouble | None = None
            now = self._now()
            waits = outbox.waiting(self._store, self._survey, now)
            if waits.forgets:
                waits = waits._replace(forgets=not self._forget())
            if not waits.consent:
                return None, waits
            delivery = self._delivery
            if self._keeper.is_due(delivery.plan_age, delivery.longest_wait):
                full = _unless_full(self._keeper.fetch, delivery.timeout)
            due = waits.reports > 0 and (
                everything
                or waits.reports >= delivery.batch_rows
                or waits.size >= delivery.batch_bytes
                or not 0 <= now - waits.oldest < delivery.batch_age  # or the clock was set back
            )
            self._looked = self._keeper.held() if due or waits.free else _NOTHING_WAITS
            if self._looked.held is Held.ALL:
                return None, waits
            if due and self._looked.held is Held.NOTHING:
                rows, size = delivery.batch_rows, delivery.batch_bytes
                plan = self._keeper.plan
                if plan is not None and (plan.sealing or plan.two_servers):
                    full = _unless_full(packing.seal, self._store, self._coins, plan)
                else:
                    of = (self._store, self._survey, self._looked.revision, self._coins)
                    full = _unless_full(packing.pack, *of, rows=rows, size=size)
            elif not waits.free:
                self._tidy()
                return None, waits
            batches = outbox.lease(self._store, self._survey, now)
            if not batches:
                if full is not None:
                    raise full
                return None, waits
            late: list[float] = []
            self._leased += batches
            try:
                for batch in batches:
                    wait = self._deliver(batch)
                    if wait is None:
                        self._leased.remove(batch)
                    else:
                        late.append(wait)
            finally:
                self._give_back()
            if late:
                return max(late), waits

    @property
    def _sealing(self) -> Plan | None:
        """The plan where its records are sealed and go to a shuffler; else None."""
        plan = self._keeper.plan
        return None if plan is None or plan.sealing is None else plan

    def _submit(
        self, batch: collector_pb2.Batch
    ) -> collector_pb2.SubmitResponse | shuffler_pb2.SubmitSealedResponse:
        """Submit a batch, or in its place the sealed record that it was made into."""
        timeout = self._delivery.timeout
        if self._sealing is None:
            return self._transport.submit(batch, timeout)
        record = envelopes.find(self._store, batch.id)
        if record is None:  # dropped meanwhile, with its batch
            raise Unreachable("a sealed record is gone from the ledger")
        return through_shuffler.submit(self._transport, record, timeout)

    def _give_back(self) -> None:
        """End the lease of unanswered batches: the next try or other processes may send them."""
        if self._leased and not _unless_full(outbox.give_back, self._store, self._leased):
            self._leased = []

    def _deliver(self, batch: collector_pb2.Batch) -> float | None:
        """Submit one batch; return None once it left the queue, else the seconds to wait."""
        if self._stopped or self._is_paused or not self._consent.may_send:
            return 0.0
        if not outbox.is_queued(self._store, batch):
            return None  # another process has dropped it since: its person took back the consent
        if batch.id in self._answered:
            return self._settle(batch, self._answered[batch.id])
        name, size = batch.id.hex()[:12], batch.ByteSize()
        if batch.revision != self._looked.revision:
            held, revision = self._keeper.held()
            if (
                held is Held.ALL or revision != self._looked.revision
            ):  # by a release, since we looked
                return 0.0
            # Its own plan may have had it sealed, split, or kept from servers without evidence.
            detail = f"a batch of revision {batch.revision.hex()[:12]} waited for another plan"
            _log.error("%s: it is dropped", detail)
            self._counters.tell("refused", 1, detail)
            return self._settle(batch, "refused")
        _log.debug("send batch %s of %s: %d rows, %d bytes", name, batch.period, batch.rows, size)
        try:
            answer = self._submit(batch)
        except InvalidInput as error:
            self._failed(f"the server refuses a batch's request, and it stays queued: {error}")
            return 0.0
        self._keeper.succeeded(answer.server_time)
        (result,) = answer.results
        detail = on_one_line(result.detail)
        became = _FINAL.get(result.status)
        if became is None:
            self._failed(f"the server does not take a batch yet, and it stays queued: {detail}")
            _unless_full(outbox.put_off, self._store, batch)
            return 0.0
        if became == "refused":
            _log.error("a batch was refused: reason %d, %s", result.reason, detail)
            if result.reason == collector_pb2.PERIOD_CLOSED:
                became = "period_closed"
            self._counters.tell(became, 1, detail)
        _log.debug("batch %s: %s", name, became)
        self.last_success, self.last_error = datetime.now(UTC), ""
        return self._settle(batch, became)

    def _settle(self, batch: collector_pb2.Batch, became: str) -> float | None:
        """Note a batch's final answer. On a full disk it stays queued, and is not sent again."""
        server_time = self._keeper.server_time
        now = self._clock()
        if _unless_full(outbox.settle, self._store, batch, became, now, server_time) is None:
            self._answered.pop(batch.id, None)
            return None
        self._answered[batch.id] = became
        return 0.0

    def _forget(self) -> bool:
        """Ask the server to forget, if that is due; return whether it has answered for all ids.

        It is asked again until it has: a server that refuses holds up nothing else.
        """
        if time.monotonic() < self._forget_at:
            return False
        for period, ids in outbox.to_forget(self._store, self._survey):
            try:
                server_time = self._ask_to_forget(period, ids)
            except (InvalidInput, Unreachable) as error:
                _log.warning("the server has not forgotten yet, and is asked again: %s", error)
                asked = error.retry_after if isinstance(error, Unreachable) else 0.0
                wait = self._backoff(self._forget_failures, asked)
                self._forget_at = time.monotonic() + wait
                self._forget_failures += 1
                return False
            self._keeper.succeeded(server_time)
            outbox.forgotten(self._store, ids)
        self._forget_failures = 0
        return True

    def _ask_to_forget(self, period: str, ids: Sequence[bytes]) -> int:
        """Ask the server to forget batches, or the shuffler to pass sealed requests on, one for
        each; return the time by the clock of who answered."""
        plan, timeout = self._sealing, self._delivery.timeout
        if plan is None:
            if self._keeper.held().held is Held.ALL:
                raise Unreachable("requests to forget stay with what waits, for their plan")
            return self._transport.forget(self._survey, period, ids, timeout).server_time
        server_time = 0
        for id_ in ids:
            record = envelopes.find(self._store, id_, forget=True)
            if record is None:
                # In the period that runs: its records are forwarded when it is over.
                now = label(plan.period, self._clock())
                forget = shuffler_pb2.Forget(period=period, id=id_)
                record = records.seal(plan, now, shuffler_pb2.Sealed(forget=forget))
                kept = [(id_, record)]
                self._store.write(partial(envelopes.keep, sealed=kept, forget=True))
                self._store.secure()
            answer = through_shuffler.submit(self._transport, record, timeout)
            (result,) = answer.results
            if result.status == collector_pb2.Result.REFUSED:  # its period is over, say
                envelopes.drop(self._store, id_, forget=True)
            if _FINAL.get(result.status) in (None, "refused"):
                raise Unreachable(f"the shuffler says: {on_one_line(result.detail)}")
            server_time = answer.server_time
            outbox.forgotten(self._store, [id_])
        return server_time

    def _failed(self, why: str) -> None:
        if self.last_error != why:
            _log.warning("nothing was delivered, and it will be tried again: %s", why)
        self.last_error = why

    def _now(self) -> float:
        return self._clock().timestamp()


leaving: set[Sender] = set()
"""Stopped senders whose threads have not closed store and transport yet: a fork waits for them."""


def _unless_full(write: Callable[P, object], *args: P.args, **options: P.kwargs) -> Trouble | None:
    """Write to the ledger; return the `Trouble` where the disk fails, and raise any other.

    Sending goes on where the disk is full: a packed batch needs no space.
    """
    try:
        write(*args, **options)
    except Trouble as trouble:
        if trouble.status.reason is not Reason.DISK:
            raise
        return trouble
    return None


def _words(error: Exception) -> str:
    """Return the message of our own error, else the type: another message may hold an answer."""
    return str(error) if isinstance(error, HearsayError) else type(error).__name__
