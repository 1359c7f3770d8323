"""A file of SQLite that one process of another operator keeps for itself: a shuffler, or a helper.

What is deleted is overwritten, and there is no log that would keep the order of writes: SQLite's
journal is truncated after each transaction.
"""

import fcntl
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ldp.errors import InvalidInput, StorageFailed

_PLANS = """
CREATE TABLE IF NOT EXISTS plans (survey TEXT PRIMARY KEY, plan BLOB NOT NULL) WITHOUT ROWID;
"""


class OwnFile:
    """A file with the plans of surveys and tables of its owner's. Safe from several threads."""

    def __init__(self, folder: Path, name: str, schema: str, owner: str) -> None:
        """Open `name`.db in a folder, and make it, with the tables of `schema`, if missing.

        Raises `InvalidInput` where another process has it, and `StorageFailed` where it cannot be
        used.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._held = os.open(folder / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._held)
            raise InvalidInput(f"another {owner} has {folder}") from None
        except OSError as error:
            raise StorageFailed(f"cannot use {folder}: {error.strerror}") from None
        file = folder / f"{name}.db"
        os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        self._connection = opened(file)
        self._lock = threading.Lock()
        with translated():
            # A journal that is emptied, and no log, which would keep records in their order.
            self._connection.execute("PRAGMA journal_mode = TRUNCATE")
            self._connection.execute("PRAGMA synchronous = EXTRA")
            self._connection.execute("PRAGMA secure_delete = ON")
            self._connection.execute("PRAGMA temp_store = MEMORY")
            self._connection.executescript(_PLANS + schema)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        os.close(self._held)

    def plans(self) -> dict[str, bytes]:
        """Return the plans that were taken, by survey."""
        with self.reading() as connection:
            return dict(connection.execute("SELECT survey, plan FROM plans"))

    def keep_plan(self, survey: str, plan: bytes) -> bytes:
        """Keep the first plan of a survey for ever; return the one that is kept."""
        with self.writing() as connection:
            connection.execute("INSERT OR IGNORE INTO plans VALUES (?, ?)", (survey, plan))
            ((kept,),) = connection.execute("SELECT plan FROM plans WHERE survey = ?", (survey,))
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
