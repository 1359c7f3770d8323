"""The file that a device keeps: what was spent, which memos, what waits. One SQLite database.

A transaction of `Store.write` is atomic, and survives the death of the process; one of
`Store.write_durably` is on the disk when it returns, and with it all that was written before.
So an answer costs no fsync, and a batch costs one before it leaves.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from types import TracebackType

from hearsay.trouble import Reason, Trouble
from hearsay.wal import Log
from ldp import InvalidInput

_APPLICATION = 0x48525359  # "HRSY"
_SCHEMA = 1

_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE surveys (
    survey TEXT PRIMARY KEY,
    consent INTEGER NOT NULL DEFAULT 0,
    caps TEXT NOT NULL DEFAULT '{}',    -- the user's own
    plan BLOB NOT NULL DEFAULT x'',
    fetched REAL NOT NULL DEFAULT 0,    -- when, in seconds since 1970
    trusted TEXT NOT NULL DEFAULT '{}', -- what a record may cost, by the choices made
    latest TEXT NOT NULL DEFAULT ''     -- period that was answered
) WITHOUT ROWID;
CREATE TABLE accounts (person BLOB PRIMARY KEY, account TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE memos (                    -- keys are hashed, with the salt
    person BLOB, survey TEXT, attribute TEXT, mechanism BLOB, key BLOB, memo BLOB NOT NULL,
    PRIMARY KEY (person, survey, attribute, mechanism, key)
) WITHOUT ROWID;
CREATE TABLE reports (
    survey TEXT, seq INTEGER,           -- the how-manieth of the survey's
    size INTEGER NOT NULL,              -- the bytes of all of them up to this one
    at REAL NOT NULL,
    report BLOB NOT NULL,               -- a Batch of one row, without an id
    PRIMARY KEY (survey, seq)
) WITHOUT ROWID;
CREATE TABLE batches (
    seq INTEGER PRIMARY KEY, id BLOB NOT NULL UNIQUE, survey TEXT NOT NULL,
    period TEXT NOT NULL, rows INTEGER NOT NULL, size INTEGER NOT NULL, batch BLOB NOT NULL,
    leased REAL NOT NULL DEFAULT 0, left INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE forgets (                  -- batches that may have come, and wait no more
    id BLOB PRIMARY KEY, survey TEXT NOT NULL, period TEXT NOT NULL,
    asked INTEGER NOT NULL              -- whether the server is to forget it, or only could be
) WITHOUT ROWID;
CREATE TABLE sent (
    seq INTEGER PRIMARY KEY, survey TEXT NOT NULL, at REAL NOT NULL,
    became TEXT NOT NULL, batch BLOB NOT NULL
);
CREATE TABLE totals (                   -- of a survey's reports and their bytes, ever:
    survey TEXT PRIMARY KEY,
    seq INTEGER NOT NULL, size INTEGER NOT NULL,          -- of those that left the table reports
    gone INTEGER NOT NULL, gone_size INTEGER NOT NULL     -- of those that wait no more
) WITHOUT ROWID;
CREATE TABLE counters (
    survey TEXT, name TEXT, count INTEGER NOT NULL, PRIMARY KEY (survey, name)
) WITHOUT ROWID;
"""

_BUSY = 0.05
"""Seconds that an answer waits for another process's transaction."""
_LONG_LOG = 1 << 20
"""Bytes of the log from which it is worth a checkpoint."""
_REOPEN = 1.0
"""Seconds between two tries to open what could not be opened."""

_REASONS = {
    sqlite3.SQLITE_BUSY: Reason.LOCKED,
    sqlite3.SQLITE_LOCKED: Reason.LOCKED,
    sqlite3.SQLITE_CORRUPT: Reason.CORRUPT,
    sqlite3.SQLITE_NOTADB: Reason.CORRUPT,
}
"""Any other error of the database is one of the disk."""


class Store:
    """The database of one installation; safe to share between threads.

    It is opened at the first use, and again after `release`. A file that is missing is made,
    and one that is damaged is set aside as FILE.corrupt-TIME; what is then made has not been
    vouched for: `created` says since when it counts.
    """

    def __init__(self, file: Path | None, clock: Callable[[], datetime]) -> None:
        """Name the file; None keeps all in memory, for as long as this process lives."""
        self.file = file
        self._name = str(file)
        self._clock = clock
        self.created: datetime | None = None
        """When the ledger was made, where nobody vouched that it is the first; else None."""
        self.salt = b""
        """What persons' names are hashed with."""
        self._owner = os.getpid()
        self._syncing = threading.RLock()  # one wait for the disk at a time; taken first
        self._lock = threading.RLock()  # guards all below, and one transaction at a time
        self._connection: sqlite3.Connection | None = None
        self._checkpointer: sqlite3.Connection | None = None
        self._log: Log | None = None
        self._inode = (0, 0)
        self._checked = (0, 0)  # the inode whose pages were checked
        self._failed: tuple[float, Trouble] | None = None

    def write(self) -> AbstractContextManager[sqlite3.Connection]:
        """Run one transaction, which outlives this process; raise `Trouble`, then nothing is
        written."""
        return _Transaction(self._lock, self._open, "BEGIN IMMEDIATE")

    def read(self) -> AbstractContextManager[sqlite3.Connection]:
        """Look at one state of the file; raise `Trouble` where that cannot be."""
        return _Transaction(self._lock, self._open, "BEGIN")

    @contextlib.contextmanager
    def write_durably(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction that is on the disk, with all before it, when this returns."""
        with self._syncing:
            with self.write() as connection:
                log = self._log
                yield connection
            # A file has one cache, so this takes with it what others wrote to the log before. A
            # checkpoint that emptied the log in between has synced what it moved.
            if log is not None:
                self._sync(log)

    def probe(self) -> None:
        """Write something; raise `Trouble` where that cannot be."""
        with self.write() as connection:
            connection.execute("INSERT OR REPLACE INTO settings VALUES ('probe', zeroblob(4096))")

    def checkpoint(self) -> None:
        """Move what was written from the log into the database, without holding up anybody."""
        if self.file is not None:
            with self._syncing, _translated():
                file, log = Path(f"{self.file}-wal"), self._log
                if log is None or not file.exists() or file.stat().st_size < _LONG_LOG:
                    return
                self._sync(log)  # what the disk may have lost must not be moved
                if self._checkpointer is None:
                    self._checkpointer = _connect(self.file, _BUSY)
                self._checkpointer.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _sync(self, log: Log) -> None:
        try:
            log.sync(self.write)
        except Trouble as trouble:
            if trouble.status.reason is Reason.CORRUPT:
                with self._lock, _translated():
                    self._set_aside()
            raise

    def release(self) -> None:
        """Close the file until the next use."""
        with self._syncing, self._lock:
            if self.file is not None:
                if self._log is not None and not self._log.trusted:
                    with contextlib.suppress(Trouble):
                        self._sync(self._log)  # closing moves it, too
                self._close()

    def hold(self, timeout: float) -> bool:
        """Keep transactions from beginning, as before a fork; return whether none is under way."""
        if not self._syncing.acquire(timeout=timeout):
            return False
        if not self._lock.acquire(timeout=timeout):
            self._syncing.release()
            return False
        return True

    def let_go(self) -> None:
        """End what `hold` began."""
        self._lock.release()
        self._syncing.release()

    def after_fork(self, *, usable: bool) -> None:
        """Forget, in the child, what belongs to the parent. Unless it was held, and so closed,
        SQLite in this process cannot be trusted with the file any more: nothing is taken then."""
        self._lock, self._syncing = threading.RLock(), threading.RLock()
        if self.file is not None:
            if usable:
                self._owner = os.getpid()
            # Closing them here would drop the parent's place in the file.
            _abandoned.extend(c for c in (self._connection, self._checkpointer) if c)
            self._connection = self._checkpointer = None
            if self._log is not None:
                self._log.close()
                self._log = None

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
            with _translated():
                connection = self._opened()
        except Trouble as trouble:
            self._failed = (time.monotonic() + _REOPEN, trouble)
            raise
        self._failed = None
        self._connection = connection
        return connection

    def _close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None
        for connection in (self._checkpointer, self._connection):
            if connection is not None:
                connection.close()
        self._connection = self._checkpointer = None

    def _is_there(self) -> bool:
        """Tell whether the file is still the one that is open: somebody may have removed it."""
        # For every answer, so by the name as a string: a Path takes three times as long.
        if self.file is None:
            return True
        try:
            found = os.stat(self._name)  # noqa: PTH116
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self._inode

    def _opened(self) -> sqlite3.Connection:
        if self.file is None:
            connection = _connect(None, _BUSY)
            _create(connection, created=None)
        else:
            if not self.file.exists():
                self.file.touch(mode=0o600)
            try:
                connection = _connect(self.file, _BUSY)
                if self._checked != _inode(self.file):
                    _check_pages(connection)
            except sqlite3.DatabaseError as error:
                if _reason(error) is not Reason.CORRUPT:
                    raise
                self._set_aside()
                connection = _connect(self.file, _BUSY)
            self._inode = self._checked = _inode(self.file)
            _create(connection, created=self._clock())
            self._log = Log(self.file)
        settings = dict(connection.execute("SELECT name, value FROM settings"))
        self.salt = settings["salt"]
        created = settings.get("created")
        self.created = None if created is None else datetime.fromisoformat(created)
        return connection

    def _set_aside(self) -> None:
        """Give a damaged file another name: whoever opens it next makes a new one."""
        assert self.file is not None
        aside = self.file.with_name(f"{self.file.name}.corrupt-{time.time_ns()}")
        self.file.rename(aside)
        for ending in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                Path(f"{self.file}{ending}").rename(f"{aside}{ending}")


def create_ledger(file: str | os.PathLike[str]) -> None:
    """Make the ledger of a new installation, and vouch that it never had another one.

    A ledger that a client finds missing and makes by itself may stand for one that was lost: it
    takes nothing before a period begins that the lost one cannot have seen, and nothing at all
    where something counts for life. This one takes answers at once.
    Raises `InvalidInput` where there is such a file or none can be made.
    """
    path = Path(file)
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        raise InvalidInput(f"{path} exists: a ledger that was used must not start anew") from None
    except OSError as error:
        raise InvalidInput(f"cannot make a ledger: {error}") from None
    try:
        with _translated():
            connection = _connect(path, _BUSY)
            try:
                _create(connection, created=None)
            finally:
                connection.close()
    except Trouble as trouble:
        path.unlink()
        raise InvalidInput(f"cannot make a ledger: {trouble}") from None


_abandoned: list[sqlite3.Connection] = []
"""Connections of a parent process, kept from being closed."""


def _connect(file: Path | None, busy: float) -> sqlite3.Connection:
    name = ":memory:" if file is None else str(file)
    connection = sqlite3.connect(
        name, timeout=busy, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    try:
        _check(connection)
        # A commit does not wait for the disk, a checkpoint does; the sender does both by itself.
        for pragma in (
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "wal_autocheckpoint = 0",
            "checkpoint_fullfsync = ON",
            f"journal_size_limit = {4 * _LONG_LOG}",
        ):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _check(connection: sqlite3.Connection) -> None:
    """Raise `Trouble` unless the database is a ledger that this version knows, or new."""
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if application != _APPLICATION and (application or version or tables):
        raise Trouble(Reason.NOT_A_LEDGER, "the file is a database of something else")
    if version > _SCHEMA:
        raise Trouble(
            Reason.NEWER_SCHEMA, f"the file has schema {version}; this version knows {_SCHEMA}"
        )


def _check_pages(connection: sqlite3.Connection) -> None:
    """Raise what SQLite raises for a damaged file, where it is one."""
    if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        connection.close()
        error = sqlite3.DatabaseError("the ledger is damaged")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _create(connection: sqlite3.Connection, created: datetime | None) -> None:
    """Make the tables where there are none; another process may be doing so too."""
    with _Transaction(threading.RLock(), lambda: connection, "BEGIN IMMEDIATE"):
        if connection.execute("PRAGMA user_version").fetchone() == (_SCHEMA,):
            return
        for statement in _TABLES.split(";\n"):
            connection.execute(statement)
        settings: dict[str, bytes | str] = {"salt": os.urandom(16)}
        if created is not None:
            settings["created"] = created.isoformat()
        connection.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
        connection.execute(f"PRAGMA application_id = {_APPLICATION}")
        connection.execute(f"PRAGMA user_version = {_SCHEMA}")


class _Transaction:
    """All of what is done within it, or nothing; `Trouble` for what goes wrong with the file.

    A class, because every answer goes through it, and a generator would cost more than a look
    at the file.
    """

    __slots__ = ("_begin", "_connection", "_lock", "_open")

    def __init__(
        self, lock: threading.RLock, open_: Callable[[], sqlite3.Connection], begin: str
    ) -> None:
        self._lock = lock
        self._open = open_
        self._begin = begin

    def __enter__(self) -> sqlite3.Connection:
        self._lock.acquire()
        try:
            self._connection = self._open()
            self._connection.execute(self._begin)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, sqlite3.Error):
                raise Trouble(_reason(error), str(error)) from error
            raise
        return self._connection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                try:
                    self._connection.execute("COMMIT")
                    return
                except sqlite3.Error as failure:
                    error = failure
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise Trouble(_reason(error), str(error)) from error
        finally:
            self._lock.release()


@contextlib.contextmanager
def _translated() -> Iterator[None]:
    """Raise `Trouble` for what goes wrong with the file."""
    try:
        yield
    except sqlite3.Error as error:
        raise Trouble(_reason(error), str(error)) from error
    except OSError as error:
        raise Trouble(Reason.DISK, str(error)) from error


def _inode(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_dev, found.st_ino


def _reason(error: sqlite3.Error) -> Reason:
    return _REASONS.get(getattr(error, "sqlite_errorcode", 0) & 0xFF, Reason.DISK)
