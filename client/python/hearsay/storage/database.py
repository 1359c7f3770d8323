"""Transactions of a device's file, with errors raised as `Trouble`."""

import contextlib
import errno
import functools
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from hearsay.interrupts import is_from_handler
from hearsay.storage.wal import LONG_LOG, MAY_GO, Transact
from hearsay.trouble import Reason, Trouble

R = TypeVar("R")
Work = Callable[[sqlite3.Connection], R]

_REASONS = {
    sqlite3.SQLITE_BUSY: Reason.LOCKED,
    sqlite3.SQLITE_LOCKED: Reason.LOCKED,
    sqlite3.SQLITE_CORRUPT: Reason.CORRUPT,
    sqlite3.SQLITE_NOTADB: Reason.CORRUPT,
}
"""Reasons by SQLite's error code; any other error of the database is one of the disk."""


def transact(connection: sqlite3.Connection, begin: str, work: Work[R], wait: float = 0.0) -> R:
    """Run `work` in one transaction, all or nothing; raise `Trouble` for errors of SQLite."""
    try:
        try:
            if connection.in_transaction:
                connection.rollback()  # a second exception had interrupted the first one's
            _begin(connection, begin, time.monotonic() + wait)
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.rollback()
            raise
    except sqlite3.Error as error:
        raise Trouble(reason(error), str(error)) from error
    return result


def _begin(connection: sqlite3.Connection, begin: str, deadline: float) -> None:
    """Begin a transaction, trying again while another process has one.

    SQLite by itself waits longer and longer between two tries, up to 0.1 s; among processes that
    write all the time, a process that waits like this never gets its turn.
    """
    while True:
        try:
            connection.execute(begin)
            return
        except sqlite3.OperationalError as error:
            if code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise


def on(connection: sqlite3.Connection) -> Transact:
    """Return a function that runs its argument in one transaction of a connection."""
    return functools.partial(transact, connection, "BEGIN IMMEDIATE")


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise errors of SQLite and of the file system as `Trouble` while the context lasts."""
    try:
        yield
    except sqlite3.Error as error:
        raise Trouble(reason(error), str(error)) from error
    except OSError as error:
        if is_from_handler(error):
            raise
        raise Trouble(Reason.DISK, str(error)) from error


def reason(error: sqlite3.Error) -> Reason:
    return _REASONS.get(code(error), Reason.DISK)


def code(error: BaseException | None) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_full(error: sqlite3.Error | Trouble) -> bool:
    """Tell whether an error says that the disk has no space."""
    cause = error.__cause__ if isinstance(error, Trouble) else error
    return code(cause) == sqlite3.SQLITE_FULL or getattr(cause, "errno", 0) == errno.ENOSPC


def size_of(file: Path) -> int | None:
    """Return how many bytes a file has; None where there is no file.

    `Path.exists` will not do: it takes a ValueError of a signal handler for a missing file.
    """
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None


def connect(file: Path, wait: float) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{file.as_uri()}?mode=rw",
        uri=True,
        timeout=wait,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=64,
    )
    try:
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # does not open the log yet
        connection.execute(MAY_GO)
        # A commit does not wait for the disk, a checkpoint does; the store does both by itself.
        for pragma in (
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "checkpoint_fullfsync = ON",
            f"journal_size_limit = {4 * LONG_LOG}",
        ):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def check_pages(connection: sqlite3.Connection) -> None:
    """Raise SQLite's error for a damaged file where `quick_check` finds damage."""
    if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
        error = sqlite3.DatabaseError("the ledger is damaged")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error
