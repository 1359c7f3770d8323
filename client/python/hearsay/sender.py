"""The one thread that talks to the server: it fetches the plan, seals, sends, and waits."""

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from hearsay import outbox
from hearsay.store import Store
from hearsay.transport import Transport, Unreachable
from hearsay.trouble import Reason, Trouble
from hearsay.v1 import collector_pb2
from ldp import Coins, InvalidInput

_log = logging.getLogger("hearsay")

_FINAL = {
    collector_pb2.Result.STORED: "stored",
    collector_pb2.Result.DUPLICATE: "duplicate",
    collector_pb2.Result.REFUSED: "refused",
}
"""The statuses that end a batch, and how they are counted. Any other leaves it queued."""

_LONGEST_FLUSH_WAIT = 2.0
_TIDY = 5.0
"""Seconds between two looks at the ledger's log while the server is away."""
_IDLE = 60.0
"""Seconds between two looks at an empty queue, which another process may have left filled."""


@dataclass(frozen=True)
class Delivery:
    """When batches are sealed and sent, and how much may wait.

    A batch goes when `batch_rows` reports or `batch_bytes` wait, or one for `batch_age` seconds.
    At most `max_reports` and `max_bytes` wait; the oldest are dropped beyond that. A try that
    fails is followed by another after `first_wait` seconds, then twice that, up to
    `longest_wait`, each 50 to 100% of it, never before the server's own retry delay. `timeout`
    is that of one call, `exit_timeout` what the process's exit may be delayed by. `plan_age` is
    how old a plan gets before it is asked for again; where there is none yet, or it was refused,
    that is `longest_wait`. Times in seconds.
    Raises `InvalidInput` unless all are positive (`exit_timeout` may be 0).
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

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (value > 0 or (name == "exit_timeout" and value == 0)):
                raise InvalidInput(f"{name} must be > 0, got {value!r}")


class Sender:
    """Deliver one survey's reports from a store, in the background.

    `refresh` fetches and checks the plan (now, or where it is due) within so many seconds, and
    raises `Unreachable` where no plan comes; `allowed` tells whether there is consent. Nothing
    here raises into the app.
    """

    def __init__(
        self,
        store: Store,
        transport: Transport,
        survey: str,
        delivery: Delivery,
        *,
        refresh: Callable[[bool, float], None],
        allowed: Callable[[], bool],
        clock: Callable[[], datetime],
        coins: Coins,
    ) -> None:
        self._store = store
        self._transport = transport
        self._survey = survey
        self._delivery = delivery
        self._refresh = refresh
        self._allowed = allowed
        self._clock = clock
        self._coins = coins
        self.after_fork()

    def after_fork(self) -> None:
        """Start anew: threads and locks do not survive a fork."""
        self._abandoned = False
        self.sending = threading.Lock()
        """Held by whoever is talking to the server: this thread, or a flush."""
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._failures = 0
        self._not_before = 0.0  # monotonic; what the last failure asked for

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stop.is_set():
                    thread = threading.Thread(target=self._run, name="hearsay", daemon=True)
                    try:
                        thread.start()
                    except RuntimeError as error:  # no more threads: the next answer tries again
                        _log.error("nothing is sent for now: %s", error)
                        return
                    self._thread = thread

    def wake(self) -> None:
        """Have a look at the queue now."""
        self._wake.set()

    def pause(self, timeout: float) -> bool:
        """End the call under way and keep others from beginning, until `sending` is released;
        return whether that was so within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            # Again and again: the next call may have begun just then.
            self._transport.interrupt()
            if self.sending.acquire(timeout=0.02):
                return True
            if time.monotonic() >= deadline:
                return False

    def stop(self) -> None:
        """Stop for good, and end the call under way."""
        self._stop.set()
        self._wake.set()
        self._transport.interrupt()

    def abandon(self) -> None:
        """Stop for good, as nobody is left who could close store and transport: the thread does.

        Safe wherever the garbage collector runs: it waits for nothing.
        """
        if self._thread is not None and not self._stop.is_set():
            self._abandoned = True
            leaving.add(self)
        self._stop.set()
        self._wake.set()

    def join(self, timeout: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def flush(self, timeout: float) -> bool:
        """Send all that waits; return whether it was answered within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        if not self.sending.acquire(timeout=max(0.0, timeout)):
            return False
        held = True
        try:
            wait = min(0.1, self._delivery.first_wait)
            while True:
                try:
                    retry_after = self._send(deadline, everything=True)
                    if retry_after is None:
                        self._failures = 0
                        if not outbox.unanswered(self._store, self._survey):
                            return True
                        retry_after = 0.0  # another process has them under way
                except Unreachable as error:
                    retry_after = error.retry_after
                except Trouble as trouble:
                    _log.warning("nothing can be sent now: %s", trouble)
                    if trouble.status.reason is not Reason.LOCKED:
                        return False
                    retry_after = 0.0
                except Exception as error:  # flushing must not raise into the app
                    _log.warning("nothing can be sent: %s", _words(error))
                    return False
                pause = max(retry_after, wait * random.uniform(0.5, 1.0))
                if self._stop.is_set() or time.monotonic() + pause >= deadline:
                    return False
                # Others may send, revoke or fork meanwhile.
                self.sending.release()
                held = False
                time.sleep(pause)
                held = self.sending.acquire(timeout=max(0.0, deadline - time.monotonic()))
                if not held:
                    return False
                wait = min(2 * wait, _LONGEST_FLUSH_WAIT)
        finally:
            if held:
                self.sending.release()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                pause = self._turn()
            except Exception as error:  # a fault of ours must not end the delivery
                _log.error("delivery failed; it will be tried again: %s", _words(error))
                pause = self._delivery.longest_wait
            self._wake.wait(pause)
            self._wake.clear()
        if self._abandoned:
            self._leave()

    def _leave(self) -> None:
        try:
            self._transport.close()
            if self._store.file is None and not outbox.is_empty(self._store, self._survey):
                _log.error("a client was dropped without close(), and what waited is lost")
            self._store.release()
        except Exception as error:  # nobody is left to tell
            _log.error("a client that was dropped did not close: %s", _words(error))
        finally:
            leaving.discard(self)

    def _turn(self) -> float:
        """Do what is due; return the seconds until something is again."""
        while (delay := self._not_before - time.monotonic()) > 0 and not self._stop.is_set():
            # What arrives meanwhile waits as well: a failing server must not be asked by events.
            self._stop.wait(min(delay, _TIDY))
            self._tidy()
        if self._stop.is_set():
            return 0.0
        try:
            with self.sending:
                retry_after = self._send(float("inf"), everything=False)
        except Unreachable as error:
            _log.info("the server was not reached: %s", error)
            retry_after = error.retry_after
        except Trouble as trouble:
            _log.warning("nothing can be sent: %s", trouble)
            retry_after = 0.0
        if retry_after is None:
            self._failures = 0
            return self._until_due()
        delivery = self._delivery
        wait = min(delivery.longest_wait, delivery.first_wait * 2 ** float(min(self._failures, 30)))
        self._failures += 1
        # Spread retries out, so that a crowd of devices does not return at once.
        pause = max(retry_after, wait * random.uniform(0.5, 1.0))
        self._not_before = time.monotonic() + pause
        return pause

    def _tidy(self) -> None:
        try:
            self._store.checkpoint()
        except Trouble as trouble:
            _log.info("the ledger's log could not be moved yet: %s", trouble)

    def _until_due(self) -> float:
        try:
            _, _, oldest = outbox.waiting(self._store, self._survey)
        except Trouble:
            return self._delivery.batch_age
        age = self._clock().timestamp() - oldest
        return min(max(0.01, self._delivery.batch_age - age), self._delivery.longest_wait, _IDLE)

    def _send(self, deadline: float, *, everything: bool) -> float | None:
        """Send what is due; return None where nothing is left of it, else the seconds that the
        server asked to wait (0: it asked for nothing)."""
        if not self._allowed():
            self._ask_to_forget(deadline)
            return None
        remaining = deadline - time.monotonic()
        self._refresh(False, max(0.001, min(remaining, self._delivery.timeout)))
        delivery = self._delivery
        while True:
            reports, size, oldest = outbox.waiting(self._store, self._survey)
            now = self._clock().timestamp()
            due = everything or (
                reports >= delivery.batch_rows
                or size >= delivery.batch_bytes
                or now - oldest >= delivery.batch_age
                or oldest > now  # the clock was set back
            )
            if reports and due:
                rows, most = delivery.batch_rows, delivery.batch_bytes
                outbox.seal(self._store, self._survey, self._coins, rows=rows, size=most)
            batches = outbox.lease(self._store, self._survey, now)
            if not batches:
                return None
            try:
                retry_after = [self._deliver(batch, deadline) for batch in batches]
            finally:
                outbox.give_back(self._store, batches)
                self._tidy()
            if waits := [wait for wait in retry_after if wait is not None]:
                return max(waits)

    def _deliver(self, batch: collector_pb2.Batch, deadline: float) -> float | None:
        """Submit one batch; return None where it was answered for good, and so left the queue."""
        remaining = deadline - time.monotonic()
        if remaining <= 0 or self._stop.is_set() or not self._allowed():
            return 0.0
        try:
            result = self._transport.submit(batch, min(remaining, self._delivery.timeout))
        except Unreachable as error:
            _log.warning("a batch was not answered and stays queued: %s", error)
            # What one batch was refused for lack of room or of a server, all are.
            raise
        except InvalidInput as error:
            _log.error("the server refuses the request of a batch, which stays queued: %s", error)
            return 0.0
        became = _FINAL.get(result.status)
        if became is None:
            _log.warning("a batch stays queued: status %d, %s", result.status, result.detail)
            outbox.put_off(self._store, batch)
            if result.reason == collector_pb2.UNKNOWN_REVISION:
                self._refresh(True, self._delivery.timeout)
            return 0.0
        if became == "refused":
            _log.error("a batch was refused: reason %d, %s", result.reason, result.detail)
            if result.reason == collector_pb2.PERIOD_CLOSED:
                became = "period_closed"
        outbox.settle(self._store, batch, became, self._clock())
        return None

    def _ask_to_forget(self, deadline: float) -> None:
        for name, ids in outbox.to_forget(self._store, self._survey).items():
            remaining = min(deadline - time.monotonic(), self._delivery.timeout)
            if remaining > 0:
                try:
                    self._transport.forget(self._survey, name, ids, remaining)
                except InvalidInput as error:
                    _log.error("the server does not forget: %s", error)
                outbox.forgotten(self._store, ids)


leaving: set[Sender] = set()
"""Those that were abandoned, until they have closed what they had open: a fork waits for it."""


def _words(error: Exception) -> str:
    """Return an error's words where they are ours; those of others may have an answer in them."""
    return str(error) if isinstance(error, Trouble | InvalidInput) else type(error).__name__
