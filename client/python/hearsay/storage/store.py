"""A device's file, one SQLite database: accounts, memos, waiting reports and sent batches.

A transaction of `Store.write` is atomic, and survives the death of the process. `Store.secure`
puts all that was written before on the disk, in the main file. So an answer costs no fsync, and a
batch costs a few before it leaves. Only where the disk has little space left does an answer wait
until the log was moved into the main file.

Signal handlers may raise. Python runs them when a Python function begins, at the end of a turn of
a loop, and after a call of a function written in C. So cleaning up that must happen is one call of
a C function, as the first thing in an `except` or `finally`.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from hearsay.interrupts import is_from_handler
from hearsay.storage import anchors
from hearsay.storage.alone import alone_in
from hearsay.storage.anchors import Anchor, Mark
from hearsay.storage.checkpoints import let_go, renew
from hearsay.storage.database import (
    R,
    Work,
    check_pages,
    connect,
    is_full,
    on,
    reason,
    size_of,
    transact,
    translated,
)
from hearsay.storage.main_file import count_once, expects_log, mismatch_of, own_mark, start_over
from hearsay.storage.new_ledger import in_memory, make
from hearsay.storage.turns import Turn
from hearsay.storage.wal import LONG_LOG, MAY_GO, Log
from hearsay.trouble import Reason, Trouble

_SQLITE = b"SQLite format 3\0"
"""The first bytes of every SQLite database."""
_MANY = 32
"""Transactions between two checks whether the log is long, on a disk with space."""
_REOPEN = 1.0
"""Seconds between two tries to open a file that could not be opened."""
_TRY = 10
"""Milliseconds that SQLite waits for another process's transaction before it is asked again."""


class Store:
    """The database of one installation; safe to share between threads.

    It is opened at the first use, and again after `release`.

    - A missing file is made. Nobody vouched for it, and `created` says when it was made.
    - A damaged file is set aside as FILE.corrupt-TIME, and a new one is made in its place.
    - A file whose log is missing or older is an earlier state of the ledger, and so is one that
      was secured less often than the anchor counts. It becomes one that nobody vouched for, and
      `lost` says why.

    A function that runs in a transaction must read every cursor to its end (`fetchone`,
    `fetchall`). Whatever the function raises, the transaction is rolled back.
    """

    _owner = 0
    _connection: sqlite3.Connection | None = None
    _checkpointer: sqlite3.Connection | None = None
    _log: Log | None = None

    def __init__(
        self,
        file: Path | None,
        clock: Callable[[], datetime],
        *,
        wait: float = 2.0,
        anchor: Anchor | None = None,
    ) -> None:
        """Name the file; None keeps all in memory, for as long as this process lives.

        `wait` is how many seconds a transaction waits for other processes' transactions.
        """
        self.file = None if file is None else file.absolute()
        self._name = str(self.file)
        self._clock = clock
        self._wait = wait
        self._anchor = anchor
        self.created: datetime | None = None
        """When the ledger was made, where nobody vouched that it is the first; else None."""
        self.is_confirmed = True
        """Whether `created` needs no `confirm_created`: it was confirmed, or is None."""
        self.lost = ""
        """Why this is not the latest state of the ledger; "" where it is."""
        self.salt = b""
        """The key of the hash of persons' names."""
        self._syncing = Turn()  # one wait for the disk at a time; taken first
        self._turn = Turn()  # guards all below, and one transaction at a time
        self._owner = os.getpid()
        self._written = 0  # transactions since the log's size was looked at
        self._is_tight = False  # whether the disk has so little space that each one counts
        self._inode = (0, 0)
        self._checked = (0, 0)  # the inode whose pages were checked
        self._failed: tuple[float, Trouble] | None = None

    def __del__(self) -> None:
        """Close the file, where nobody did."""
        if self._owner == os.getpid():
            self._close()

    def write(self, work: Work[R]) -> R:
        """Run `work` in one transaction, which outlives this process, and return its result.

        Raises `Trouble`, then nothing is written.
        """

        def write(connection: sqlite3.Connection) -> R:
            self._written += 1
            return work(connection)

        result = self._run("BEGIN IMMEDIATE", write)
        if self._is_tight:
            # The disk could be full before the sender's thread comes to it.
            with contextlib.suppress(Trouble):  # the transaction is committed all the same
                self._tidy(last=False, wait=self._wait)
        return result

    def read(self, work: Work[R]) -> R:
        """Run `work` on one state of the file, and return its result.

        Raises `Trouble` where that cannot be.
        """
        return self._run("BEGIN", work)

    def _run(self, begin: str, work: Work[R]) -> R:
        """Run `work` in one transaction; waits for other threads and processes for `wait` seconds
        in all."""
        deadline = time.monotonic() + self._wait

        def run() -> R:
            return transact(self._open(), begin, work, deadline - time.monotonic())

        return self._turn.take(run, self._wait)

    def confirm_created(self, moment: datetime) -> None:
        """Set `created`, once, to a confirmed time, where the ledger was made by a clock that may
        have been wrong.

        Raises `Trouble` where that cannot be written.
        """

        def confirm(connection: sqlite3.Connection) -> None:
            if {"created", "confirmed"} & _settings(connection).keys() == {"created"}:
                connection.executemany(
                    "INSERT OR REPLACE INTO settings VALUES (?, ?)",
                    [("created", moment.isoformat()), ("confirmed", 1)],
                )

        self.write(confirm)
        self.read(self._read_settings)  # another process may have been the first

    def probe(self) -> None:
        """Write 4 KiB to the file; raise `Trouble` where that fails."""
        self.write(
            lambda connection: connection.execute(
                "INSERT OR REPLACE INTO settings VALUES ('probe', zeroblob(4096))"
            )
        )

    def secure(self) -> None:
        """Move all committed transactions into the main file, and count that in the anchor.

        From then on an older file, or a file without its log, is found out. To be called before a
        batch leaves. Where the disk has no space for the main file to grow, the log is synced and
        stays. Raises `Trouble` where nothing may leave.
        """
        if self.file is not None:
            self._syncing.take(lambda: self._move(count=self._anchor is not None, last=True))

    @property
    def log_is_long(self) -> bool:
        """Whether it is time to `tidy`."""
        return self._written >= (1 if self._is_tight else _MANY) and self.file is not None

    def tidy(self) -> None:
        """Move the log into the main file where it has grown long, for the space on its disk."""
        self._tidy(last=True, wait=-1)

    def release(self) -> None:
        """Close the file until the next use. The last one who closes it moves the log into it."""

        def release() -> None:
            if self._log is not None and self._connection is not None and not self._log.trusted:
                with contextlib.suppress(Trouble):
                    self._log.sync(on(self._connection))  # closing moves it, too
            self._close()

        if self.file is not None:
            self._syncing.take(lambda: self._turn.take(release))

    def hold(self, timeout: float) -> bool:
        """Keep transactions from beginning, as before a fork; return whether none is under way."""
        held = False
        try:
            held = self._syncing.lock.acquire(timeout=timeout) and self._turn.lock.acquire(
                timeout=timeout
            )
            return held
        finally:
            if not held:
                for turn in (self._turn, self._syncing):
                    try:
                        turn.lock.release()
                    except RuntimeError as error:  # it was not taken
                        if is_from_handler(error):
                            raise

    def let_go(self) -> None:
        """Let transactions begin again, after `hold`."""
        self._turn.lock.release()
        self._syncing.lock.release()

    def after_fork(self, *, usable: bool) -> None:
        """Drop the parent's connections in a forked child. Unless the file was held, and so closed,
        SQLite in this process cannot be trusted with it any more: no answer is taken then."""
        self._turn, self._syncing = Turn(), Turn()
        if self.file is not None:
            if usable:
                self._owner = os.getpid()
            # Closing them here would drop the parent's place in the file.
            _abandoned.extend(c for c in (self._connection, self._checkpointer) if c)
            self._connection = self._checkpointer = None
            if self._log is not None:
                self._log.close()
                self._log = None

    def _tidy(self, *, last: bool, wait: float) -> None:
        """Move the log where it is long; for `wait` see `Turn.take`."""

        def tidy() -> None:
            if self._log is not None and self._looks_long(self._log):
                self._move(count=False, last=last)

        if self.file is not None:
            with translated(), _unless_closed():
                self._syncing.take(tidy, wait)

    def _looks_long(self, log: Log) -> bool:
        """Tell whether the log is long, and note whether to look after every transaction."""
        limit = log.limit()
        self._written, self._is_tight = 0, limit < LONG_LOG
        return log.size() >= limit

    def _move(self, *, count: bool, last: bool) -> None:
        """Move the log into the main file; `_syncing` is taken."""
        self._written = 0
        log = self._turn.take(self._opened_log)
        try:
            with translated(), _unless_closed():
                if self._checkpointer is None:
                    assert self.file is not None
                    self._checkpointer = connect(self.file, self._wait)
                self._checkpoint(self._checkpointer, log, count=count, last=last)
        except Trouble as trouble:
            self._set_aside_if_corrupt(trouble)
            raise

    def _set_aside_if_corrupt(self, trouble: Trouble) -> None:
        def set_aside() -> None:
            if self._is_there():  # else another process did it, and the name is a new ledger's
                self._set_aside("corrupt", "", "-wal", "-shm")

        if trouble.status.reason is Reason.CORRUPT:
            with translated():
                self._turn.take(lambda: self._alone(set_aside))

    def _opened_log(self) -> Log:
        self._open()
        assert self._log is not None
        return self._log

    def _open(self) -> sqlite3.Connection:
        if self._owner != os.getpid():
            raise Trouble(
                Reason.FORKED,
                "the ledger is in the memory of the parent process, or was in use at the fork",
            )
        if self._connection is not None and self._is_there():
            return self._connection
        if self._failed is not None and time.monotonic() < self._failed[0]:
            raise self._failed[1]
        self._close()
        try:
            with translated():
                self._connection = self._opened()  # kept at once: nobody else would close it
                return self._connection
        except Trouble as trouble:
            self._failed = (time.monotonic() + _REOPEN, trouble)
            raise

    def _close(self) -> None:
        # Each is taken out first: one that is closed must not be found here.
        log, self._log = self._log, None
        checkpointer, self._checkpointer = self._checkpointer, None
        if checkpointer is not None:
            checkpointer.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            try:
                connection.rollback()
                if log is None:
                    connection.execute(MAY_GO)
                else:
                    log.room.give()  # to this note, and to the pages that closing moves
                    let_go(connection, log)
            except (sqlite3.Error, Trouble, OSError, ValueError) as error:
                if is_from_handler(error):
                    raise
            finally:
                connection.close()
        if log is not None:
            log.close()

    def _is_there(self) -> bool:
        """Tell whether the path still leads to the open file: somebody may have removed it."""
        # For every answer, so by the name as a string: a Path takes three times as long.
        if self.file is None:
            return True
        try:
            found = os.stat(self._name)  # noqa: PTH116
        except OSError as error:
            if is_from_handler(error):
                raise
            return False
        return (found.st_dev, found.st_ino) == self._inode

    def _opened(self) -> sqlite3.Connection:
        if self.file is None:
            connection = in_memory(created=None)
            self._read_settings(connection)
            return connection
        with _unless_corrupt():
            if size_of(self.file) and not mismatch_of(self.file):
                return self._join(self.file)
        # Other processes may have found the same. One sets aside and makes what must be; the next
        # looks again, or it would set aside the new files, which are in use by then.
        return self._alone(self._mended)

    def _alone(self, work: Callable[[], R]) -> R:
        """Run `work`, which sets files aside, while no other process does."""
        assert self.file is not None
        return alone_in(self.file.parent, self._wait, work)

    def _mended(self) -> sqlite3.Connection:
        """Open the file, or a new one where it is missing or damaged; to be run alone."""
        assert self.file is not None
        with _unless_corrupt():
            return self._matched(self.file)
        # A path to something else must not cost the host that file.
        if not _is_database(self.file) and size_of(Path(f"{self._name}-wal")) is None:
            raise Trouble(Reason.NOT_A_LEDGER, f"{self.file} is no ledger; give another path")
        self._set_aside("corrupt", "", "-wal", "-shm")
        return self._matched(self.file)

    def _matched(self, file: Path) -> sqlite3.Connection:
        """Open the file without a log that is not its own; to be run alone."""
        if not size_of(file):
            self._set_aside("lost", "-wal", "-shm")
            make(file, self._clock())
        lost = mismatch_of(file)
        if lost:
            self._set_aside("lost", "-wal", "-shm")
        return self._join(file, lost)

    def _join(self, file: Path, lost: str = "") -> sqlite3.Connection:
        """Open the file, which other processes may have open, with the log that it expects.

        `lost` says why it is not the latest state of the ledger.
        """
        mark = None if self._anchor is None else anchors.load(self._anchor)
        connection, log = connect(file, self._wait), None
        try:
            self._inode = _inode(file)
            if self._checked != self._inode:
                check_pages(connection)
            self._checked = self._inode
            log = Log(file)
            # Read after the anchor, so that this is not behind another process at work.
            lost = lost or self._restored(connection, mark)
            if lost:
                why, count = lost, 0 if mark is None else mark.count
                on(connection)(lambda c: start_over(c, why, self._clock(), count))
            if lost or not expects_log(file):
                counts = bool(lost) and self._anchor is not None
                self._checkpoint(connection, log, count=counts, last=False)
            log.room.take()
            self._looks_long(log)
            self._read_settings(connection)
            connection.execute(f"PRAGMA busy_timeout = {_TRY}")  # `_begin` tries again
        except BaseException:
            connection.close()
            if log is not None:
                log.close()
            raise
        self._log = log
        return connection

    def _restored(self, connection: sqlite3.Connection, mark: Mark | None) -> str:
        """Return why the anchor shows this ledger to be a copy; "" where it does not."""
        if self._anchor is None:
            return ""
        own = own_mark(connection)
        if mark is not None:
            return mark.differs(own)
        return (
            "the anchor is empty, but this ledger has used one: it is a copy on another device"
            if own.count
            else ""
        )

    def _read_settings(self, connection: sqlite3.Connection) -> None:
        settings = _settings(connection)
        created = settings.get("created")
        self.is_confirmed = created is None or "confirmed" in settings
        self.created = None if created is None else datetime.fromisoformat(created)
        self.lost = settings.get("lost", "")
        self.salt = settings["salt"]

    def _checkpoint(
        self, connection: sqlite3.Connection, log: Log, *, count: bool, last: bool
    ) -> None:
        """Move the log into the main file, which then expects the next life of the log.

        With `count` the anchor learns of it. With `last` the reserved space is used on a full
        disk; where this is not enough, the log is synced and stays.
        """

        def attempt(*, excuse: bool) -> None:
            run = on(connection)
            if count:
                run(count_once)
            log.sync(run)  # frames that the disk may have lost must not be moved
            try:
                assert self.file is not None
                renew(self.file, connection, log)
            except (sqlite3.Error, Trouble) as error:
                if not (excuse and is_full(error)):
                    raise
            if count:
                assert self._anchor is not None
                anchors.store(self._anchor, own_mark(connection))

        def checkpoint() -> None:
            if self._is_tight:
                # The next life begins with so much of the file; the disk gets the rest.
                connection.execute(f"PRAGMA journal_size_limit = {log.limit()}")
            try:
                attempt(excuse=False)
            except (sqlite3.Error, Trouble) as error:
                if not (last and is_full(error)):
                    raise
                log.room.give()
                attempt(excuse=True)
            finally:
                log.room.take()

        log.alone(self._wait, checkpoint)

    def _set_aside(self, why: str, *endings: str) -> None:
        """Rename files of the ledger: the next process that opens it makes new ones."""
        aside = f"{self._name}.{why}-{time.time_ns()}"
        for ending in endings:
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self._name}{ending}").rename(f"{aside}{ending}")


_abandoned: list[sqlite3.Connection] = []
"""Connections of a parent process, kept from being closed."""


@contextlib.contextmanager
def _unless_corrupt() -> Iterator[None]:
    """Leave the context where SQLite finds the file to be damaged."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if reason(error) is not Reason.CORRUPT:
            raise


@contextlib.contextmanager
def _unless_closed() -> Iterator[None]:
    """Raise `Trouble` where another thread closes the log: it found that the file was removed."""
    try:
        yield
    except ValueError as error:
        if is_from_handler(error):
            raise
        raise Trouble(Reason.DISK, f"the ledger was removed meanwhile ({error})") from error


def _settings(connection: sqlite3.Connection) -> dict[str, Any]:
    return dict(connection.execute("SELECT name, value FROM settings"))


def _is_database(file: Path) -> bool:
    """Tell whether a file begins as a SQLite database does, or is empty or gone by now."""
    try:
        with file.open("rb") as content:
            return content.read(len(_SQLITE)) in (_SQLITE, b"")
    except FileNotFoundError:
        return True


def _inode(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_dev, found.st_ino
