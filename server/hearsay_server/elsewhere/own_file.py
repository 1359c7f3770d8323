"""A file of SQLite that one process of another operator keeps for itself: a shuffler, or a helper.

What is deleted is overwritten, and there is no log that would keep the order of writes: SQLite's
journal is truncated after each transaction.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from hearsay_server import private
from ldp.errors import InvalidInput, StorageFailed

_DECLARED = """
CREATE TABLE IF NOT EXISTS plans (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trainings (name TEXT PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID;
"""

What = Literal["survey", "training"]

_TABLES: Mapping[What, str] = {"survey": "plans", "training": "trainings"}


class OwnFile:
    """A file with plans, trainings and its owner's tables. Safe from several threads."""

    def __init__(self, folder: Path, name: str, schema: str, owner: str) -> None:
        """Open `name`.db in a folder, and make it, with the tables of `schema`, if missing.

        Raises `InvalidInput` where another process has it, and `StorageFailed` where it cannot be
        used.
        """
        try:
            private.make_folder(folder)
            file = folder / f"{name}.db"
            private.make_file(file)
            self._held = private.open_file(folder / f"{name}.lock")
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._held)
            raise InvalidInput(f"another {owner} has {folder}") from None
        except OSError as error:
            raise StorageFailed(f"cannot use {folder}: {error.strerror}") from None
        self._connection = opened(file)
        self._lock = threading.Lock()
        with translated():
            # A journal that is emptied, and no log, which would keep records in their order.
            self._connection.execute("PRAGMA journal_mode = TRUNCATE")
            self._connection.execute("PRAGMA synchronous = EXTRA")
            self._connection.execute("PRAGMA secure_delete = ON")
            self._connection.execute("PRAGMA temp_store = MEMORY")
            self._connection.executescript(_DECLARED + schema)

    def close(self) -> None:
        """Close the file once no other thread reads or writes it; what comes later is refused.

        SQLite's memory is gone with the connection: a thread that still read it ended the process.
        """
        with self._lock:
            self._connection.close()
        os.close(self._held)

    def declared(self, what: What) -> dict[str, bytes]:
        """Return the plans, or the trainings, that were taken, by name."""
        with self.reading() as connection:
            return read_declared(connection, what)

    def keep(self, what: What, name: str, data: bytes) -> bytes:
        """Keep the first plan of a survey, or a training, for ever; return the one that is kept."""
        table = _TABLES[what]
        with self.writing() as connection:
            connection.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?)", (name, data))
            ((kept,),) = connection.execute(f"SELECT data FROM {table} WHERE name = ?", (name,))
            return bytes(kept)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection, to nobody else meanwhile."""
        with self._lock, translated():
            yield self._connection

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection in one durable transaction, which an error takes back."""
        with self._lock, translated():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise


def read_declared(connection: sqlite3.Connection, what: What) -> dict[str, bytes]:
    """Return the plans, or the trainings, in a file, by name."""
    return dict(connection.execute(f"SELECT name, data FROM {_TABLES[what]}"))


def opened(file: Path, options: str = "") -> sqlite3.Connection:
    """Open a file, with options of SQLite's URIs; raise `StorageFailed` where that cannot be."""
    with translated():
        return sqlite3.connect(
            f"{file.absolute().as_uri()}{options}",
            uri=True,
            timeout=10.0,
            isolation_level=None,
            check_same_thread=False,
        )


@contextmanager
def translated() -> Iterator[None]:
    """Raise SQLite's errors as `StorageFailed`."""
    try:
        yield
    except sqlite3.Error as error:
        raise StorageFailed(f"the file cannot be used: {error}") from error
