"""Backups: one state of the database, copied into a SQLite file, whatever it came from.

Such a file is the database of a folder, so a backup of either kind restores into either. It carries
a SHA-256 of itself, in a table of one row: a random mark, by which the row is found, and
behind it the digest of the file in which the digest's bytes are zero.
"""

import contextlib
import hashlib
import logging
import mmap
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import sqlalchemy as sa

from hearsay_server.storage import audit, migrations, schema
from hearsay_server.storage.database import Database, open_folder
from ldp.errors import InvalidInput, StorageFailed

_log = logging.getLogger("hearsay.server")

_PAGE = 16
"""Rows in memory at once: each may be a batch as large as a message."""

_MARK, _DIGEST = 16, 32
"""Bytes of a seal's mark, and of its digest."""

_CHUNK = 1 << 20
"""Bytes that are digested at once."""


def backup(database: Database, file: Path) -> None:
    """Copy the database as it is now into a new file; servers may go on meanwhile.

    The file appears when it is whole and on the disk. Raises `InvalidInput` where it exists
    already, and `StorageFailed` where it cannot be made.
    """
    if file.exists():
        raise InvalidInput(f"{file} exists already: choose another name")
    try:
        with database.beside() as connection:
            _record(connection, "back up", file)
    except sa.exc.DBAPIError as error:  # a full disk is when a backup is needed
        _log.warning("this backup is missing in the audit log: %s", error.orig)
    try:
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".hearsay-") as folder:
            copy = open_folder(Path(folder))
            try:
                with database.reading() as source, copy.changing() as target:
                    _copy(source, target)
            finally:
                copy.close()
            whole = Path(folder) / "hearsay.db"
            mark = os.urandom(_MARK)
            with contextlib.closing(sqlite3.connect(whole)) as connection:
                connection.execute("CREATE TABLE seal (mark_and_digest BLOB NOT NULL)")
                connection.execute("INSERT INTO seal VALUES (?)", (mark + bytes(_DIGEST),))
                connection.commit()
                connection.execute("PRAGMA journal_mode = DELETE")  # so that it is one file
            whole.chmod(0o600)
            digest, place = _digest(whole, mark)
            with whole.open("r+b") as stream:
                stream.seek(place)
                stream.write(digest)
            _sync(whole)
            whole.rename(file)
            _sync(file.parent)
    except OSError as error:
        raise StorageFailed(f"cannot write {file}: {error}") from None


def restore(file: Path, database: Database) -> None:
    """Copy a backup into an empty database, in one transaction.

    A backup of an older schema is upgraded on the way. Raises `InvalidInput` where the database
    is not empty, `file` cannot be read, or nothing of ours is in it, and `StorageFailed` where a
    byte of it has changed, it is no database, or was made by a newer version.
    """
    try:
        with _reading(file) as source, database.changing() as target:
            for table in schema.metadata.sorted_tables:
                if table not in schema.PASSING and target.execute(sa.select(table)).first():
                    raise InvalidInput(f"the database is not empty: it has {table.name}")
            _copy(source, target)
            _record(target, "restore", file)
    except sa.exc.DatabaseError as error:
        raise StorageFailed(f"cannot restore {file}: {error.orig}") from None


@contextlib.contextmanager
def _reading(file: Path) -> Iterator[sa.Connection]:
    """Read a backup where it lies; one of another schema from a copy that is upgraded."""
    if not os.access(file, os.R_OK):
        raise InvalidInput(f"cannot read {file}: is it there, and yours?")
    # Immutable: it may lie where nothing can be written, not even a lock.
    address = f"{file.absolute().as_uri()}?mode=ro&immutable=1"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True)

    if _version(file, connect) != migrations.NEWEST:
        with tempfile.TemporaryDirectory(prefix="hearsay-") as folder:
            shutil.copyfile(file, Path(folder) / "hearsay.db")
            with contextlib.closing(open_folder(Path(folder))) as copy, copy.reading() as source:
                yield source
        return
    engine = sa.create_engine("sqlite://", creator=connect, poolclass=sa.NullPool)
    with engine.connect() as source:
        yield source


def _version(file: Path, connect: Callable[[], sqlite3.Connection]) -> int:
    """Return the schema of a backup; raise `InvalidInput` where nothing of ours is in it, and
    `StorageFailed` where it is damaged or no database."""
    try:
        with contextlib.closing(connect()) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if result == "ok" and version == migrations.NEWEST:  # older ones have no seal
                seal = connection.execute("SELECT CAST(mark_and_digest AS BLOB) FROM seal")
                content = (seal.fetchone() or [b""])[0]
                if _digest(file, content[:_MARK])[0] != content[_MARK:]:
                    result = "its checksum says that it is not what was written"
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # of a name that is damaged
        raise StorageFailed(f"{file} is no backup: {error}") from None
    if not version:
        raise InvalidInput(f"{file} is no backup: nothing of ours is in it")
    if result != "ok":
        raise StorageFailed(f"{file} is damaged: {result}")
    return int(version)


def _digest(file: Path, mark: bytes) -> tuple[bytes, int]:
    """Return the digest of a file whose seal has this mark, and the place of the seal's digest."""
    digest = hashlib.sha256()
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as content:
        place = content.find(mark) + len(mark)
        for begin, end in ((0, place), (place + _DIGEST, len(content))):
            for at in range(begin, end, _CHUNK):
                digest.update(content[at : min(at + _CHUNK, end)])
            if end == place:
                digest.update(bytes(_DIGEST))
    return digest.digest(), place


def _record(connection: sa.Connection, action: str, file: Path) -> None:
    audit.record(
        connection, action, os_user=audit.this_user(), detail={"file": str(file.absolute())}
    )


def _copy(source: sa.Connection, target: sa.Connection) -> None:
    options = {"stream_results": True, "yield_per": _PAGE}
    for table in schema.metadata.sorted_tables:
        if table in schema.PASSING:
            continue
        # In the order of their keys: the order in the file would be the order of arrival.
        rows = source.execute(
            sa.select(table).order_by(*table.primary_key), execution_options=options
        )
        for page in rows.mappings().partitions(_PAGE):
            target.execute(sa.insert(table), [dict(row) for row in page])


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
