"""Exceptions of signal handlers at any point: no lock stays, and what was committed is there."""

import gc
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import pytest
from hostile import uncollected

from hearsay.storage.new_ledger import create_ledger
from hearsay.storage.store import Store
from hearsay.trouble import Trouble

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # `uncollected` says why

_POINTS = 25
"""At how many points of an operation an exception is raised, for each kind of exception."""


class Interrupted(BaseException):
    """As a KeyboardInterrupt."""


class OutOfTime(TimeoutError):
    """As a soft time limit; the store handles errors of this type itself."""


class NoValue(ValueError):
    """As a closed file raises."""


class NoRun(RuntimeError):
    """As a lock raises that is not held."""


class Alarm:
    """Raises within what it runs, after a random time, once or a few times in a row."""

    def __init__(self, kind: type[BaseException], seed: int, in_a_row: int) -> None:
        self._kind = kind
        self._chance = random.Random(seed)
        self._in_a_row = in_a_row
        self._left = 0
        self.raised = 0
        """How many of the calls had an exception raised in them."""

    def handle(self, signum: int, frame: FrameType | None) -> None:
        # No function of C is called here: it fails where the signal comes within another one.
        if self._left:
            self._left -= 1
            raise self._kind

    def run(self, call: Callable[[], object], lasts: float) -> None:
        """Run a call that lasts about so many seconds."""
        returned = False
        self._left = self._in_a_row
        try:
            again = self._chance.uniform(2e-5, 1e-4) if self._in_a_row > 1 else 0
            first = self._chance.uniform(1e-6, 1.2 * lasts)
            signal.setitimer(signal.ITIMER_REAL, first, again)
            call()
            returned = True
            assert self._left or self._in_a_row > 1, "an exception did not reach the host"
            self._left = 0
        except self._kind:
            pass
        except Trouble:
            # The second of two exceptions may come while the first one is being handled.
            assert self._in_a_row > 1
        finally:
            self.raised += self._left < self._in_a_row and not returned
            self._left = 0
            signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.fixture
def handler() -> Iterator[Callable[[Alarm], None]]:
    """Makes an alarm the handler of the timer's signal."""
    before = signal.getsignal(signal.SIGALRM)
    with uncollected():
        yield lambda alarm: (signal.signal(signal.SIGALRM, alarm.handle), None)[1]
        signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def names(connection: sqlite3.Connection) -> set[int]:
    return {
        int(name) for (name,) in connection.execute("SELECT name FROM counters WHERE survey = 's'")
    }


def others_can_write(file: Path) -> None:
    """Fail where another connection would have to wait."""
    other = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        other.execute("BEGIN IMMEDIATE")
        other.execute("INSERT OR REPLACE INTO settings VALUES ('other', 1)")
        other.execute("COMMIT")
    finally:
        other.close()


def threads_can_write(store: Store) -> None:
    """Fail where another thread would have to wait."""
    threads = [threading.Thread(target=call, daemon=True) for call in (store.probe, store.secure)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


# An exception between the opening of a file and its assignment leaves the closing to Python.
@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize(
    ("kind", "in_a_row"),
    [
        (Interrupted, 1),
        (OutOfTime, 3),
        *(
            pytest.param(kind, in_a_row, marks=pytest.mark.slow)
            for kind in (Interrupted, OutOfTime, NoValue, NoRun)
            for in_a_row in (1, 3)
            if (kind, in_a_row) not in ((Interrupted, 1), (OutOfTime, 3))
        ),
    ],
)
@pytest.mark.parametrize("operation", ["write", "read", "secure", "open", "release", "memory"])
def test_an_exception_of_a_signal_handler_leaves_nothing_locked_and_nothing_half_done(
    tmp_path: Path,
    handler: Callable[[Alarm], None],
    operation: str,
    in_a_row: int,
    kind: type[BaseException],
) -> None:
    file = None if operation == "memory" else tmp_path / "ledger.db"
    if file is not None:
        create_ledger(file)

    def a_store() -> Store:
        return Store(file, lambda: datetime.now(UTC), wait=0.5)

    store = a_store()
    begun, committed = 0, set[int]()

    def insert(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO counters VALUES ('s', ?, 1)", (str(begun),))
        connection.execute("INSERT INTO memos VALUES ('', '', '', '', ?, '')", (begun,))

    def use() -> None:
        nonlocal begun
        # The short ones several times in a row, since no timer is as short.
        for _ in range(50 if operation in ("write", "read", "memory") else 1):
            begun += 1
            match operation:
                case "write" | "memory":
                    store.write(insert)
                case "read":
                    store.read(names)
                case "secure":
                    store.write(insert)
                    store.secure()
                case "open":
                    store.write(insert)
                case "release":
                    store.write(insert)
                    store.release()
            if operation != "read":
                committed.add(begun)

    def prepare() -> None:
        if operation == "open":
            store.release()
        if operation in ("secure", "release"):
            store.probe()

    began = time.perf_counter()
    for _ in range(10):
        prepare()
        use()
    lasts = (time.perf_counter() - began) / 10
    alarm = Alarm(kind, seed=in_a_row, in_a_row=in_a_row)
    handler(alarm)
    limit = time.monotonic() + 30
    while alarm.raised < _POINTS and time.monotonic() < limit:
        prepare()
        alarm.run(use, lasts)
        if in_a_row > 1:
            store.read(names)  # which finishes what a second exception prevented
        if file is not None:
            others_can_write(file)
        found = store.read(names)
        # One that was interrupted may have been committed all the same.
        assert committed <= found <= committed | {begun}
        committed = found
    assert alarm.raised >= _POINTS
    threads_can_write(store)
    assert store.read(lambda c: c.execute("SELECT count(*) FROM memos").fetchone()) == (
        len(committed),
    )
    assert store.lost == ""
    store.release()
    if file is not None:
        gc.collect()  # what an exception kept from being assigned may be in a cycle with it
        assert sorted(name.name for name in tmp_path.iterdir()) == ["ledger.db"]
        again = a_store()
        assert again.read(names) == committed
        assert again.lost == ""
        assert again.created is None
        again.release()
