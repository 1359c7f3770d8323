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
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import sqlalchemy as sa

from hearsay_server import private
from hearsay_server.at_rest import NOT_ENCRYPTED, AtRest
from hearsay_server.clock import system
from hearsay_server.storage import (
    audit,
    encryption,
    key_material,
    migrations,
    schema,
    sealing_keys,
    trainings,
)
from hearsay_server.storage.database import Database, as_it_was, open_database, said
from ldp.errors import InvalidInput, StorageFailed

_log = logging.getLogger("hearsay.server")

_PAGE = 16
"""Rows in memory at once: each may be a batch as large as a message."""

_MARK, _DIGEST = 16, 32
"""Bytes of a seal's mark, and of its digest."""

_SEALED = 6
"""The first schema whose backups all have a seal."""

_CHUNK = 1 << 20
"""Bytes that are digested at once."""


def backup(database: Database, file: Path, recipients: Sequence[str] = ()) -> None:
    """Copy the database as it is now into a new file; servers may go on meanwhile.

    With `recipients` the file is encrypted for these public keys, as `encryption.recipients` takes
    them, and nothing in plaintext is left on the disk under any name, also if this is killed.
    The file appears when it is whole and on the disk. Raises `InvalidInput` where it exists
    already, and `StorageFailed` where it cannot be made.
    """
    if private.is_there(file):
        raise InvalidInput(f"{file} exists already: choose another name")
    keys = encryption.recipients(recipients) if recipients else []
    try:
        with database.beside() as connection:
            _record(connection, "back up", file, recipients)
    except sa.exc.DBAPIError as error:  # a full disk is when a backup is needed
        _log.warning("this backup is missing in the audit log: %s", error.orig)
    try:
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".hearsay-") as folder:
            whole = Path(folder) / "whole"
            with _made(whole, nameless=bool(keys)) as (copy, content):
                with database.reading() as source, _writing(copy) as target:
                    migrations.upgrade(target)
                    _copy(source, target)
                _seal(copy, content)
                if keys:
                    with whole.open("xb") as encrypted:
                        encryption.encrypt(content, encrypted, keys)
            whole.chmod(0o600)
            _sync(whole)
            whole.rename(file)
            _sync(file.parent)
    except OSError as error:
        raise StorageFailed(f"cannot write {file}: {error}") from None


def restore(file: Path, database: Database, identity: Path | None = None) -> None:
    """Copy a backup into an empty database, in one transaction.

    An encrypted one is decrypted with the private key in the file `identity`. A backup of an older
    schema is upgraded on the way. Raises `InvalidInput` where the database is not empty, `file` or
    `identity` cannot be read, or nothing of ours is in it, and `StorageFailed` where a byte of it
    has changed, it is no database, or was made by a newer version.
    """
    with _reading(file, identity) as source:
        _restore(file, source, database)


def restore_into(
    where: Path | str, file: Path, identity: Path | None = None, keys: AtRest = NOT_ENCRYPTED
) -> None:
    """Copy a backup as `restore` into a folder, or a database of PostgreSQL, that may be missing.

    `keys` are those of `open_database`: keys that the backup has as they are, are encrypted under
    them. Where this raises, a folder is as it was.
    """
    with (
        _reading(file, identity) as source,
        as_it_was(where),
        contextlib.closing(open_database(where, keys)) as database,
    ):
        _restore(file, source, database)
        if keys.keys:
            key_material.encrypt(database)


def _restore(file: Path, source: sa.Connection, database: Database) -> None:
    try:
        with database.changing() as target:
            for table in schema.metadata.sorted_tables:
                if table not in schema.PASSING and target.execute(sa.select(table)).first():
                    raise InvalidInput(f"the database is not empty: it has {table.name}")
            _copy(source, target)
            trainings.restored(target, system())
            _record(target, "restore", file)
    except sa.exc.DatabaseError as error:
        raise StorageFailed(f"cannot restore {file}: {said(error)}") from None


@contextlib.contextmanager
def _made(path: Path, *, nameless: bool) -> Iterator[tuple[sqlite3.Connection, IO[bytes]]]:
    """Make an empty database; yield the connection to it, and its bytes.

    A nameless file is gone when it is closed, and when the process is killed.
    """
    with (
        path.open("x+b") as content,
        contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection,
    ):
        if nameless:
            path.unlink()
        # All of it is in the one file.
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("PRAGMA temp_store = MEMORY")
        yield connection, content


@contextlib.contextmanager
def _nameless() -> Iterator[tuple[sqlite3.Connection, IO[bytes]]]:
    """Make an empty database without a name in the system's temporary folder."""
    with (
        tempfile.TemporaryDirectory(prefix="hearsay-") as folder,
        _made(Path(folder) / "nameless", nameless=True) as made,
    ):
        yield made


@contextlib.contextmanager
def _reading(file: Path, identity: Path | None) -> Iterator[sa.Connection]:
    """Read a backup where it lies; an encrypted or older one from a copy without a name."""
    if not os.access(file, os.R_OK) or not file.is_file():
        raise InvalidInput(f"cannot read {file}: is it there, and yours?")
    encrypted = encryption.is_encrypted(file)
    if encrypted and identity is None:
        raise InvalidInput(f"{file} is encrypted: give the file of its private key (--identity)")
    if identity is not None and not encrypted:
        raise InvalidInput(f"{file} is not encrypted: is it yours? Then leave out --identity")
    with contextlib.ExitStack() as stack:
        if identity is not None:
            keys = encryption.identities(identity)
            connection, content = stack.enter_context(_nameless())
            encryption.decrypt(file, content, keys)
            content.flush()
        else:
            content = stack.enter_context(file.open("rb"))
            # Immutable: it may lie where nothing can be written, not even a lock.
            address = f"{file.absolute().as_uri()}?mode=ro&immutable=1"
            opened = sqlite3.connect(address, uri=True, isolation_level=None)
            connection = stack.enter_context(contextlib.closing(opened))
        if _version(file, connection, content) != migrations.NEWEST:
            older = connection
            connection, _ = stack.enter_context(_nameless())
            older.backup(connection)
            with _writing(connection) as upgraded:
                migrations.upgrade(upgraded)
        with _engine(connection).connect() as source:
            yield source


@contextlib.contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[sa.Connection]:
    """Write to the one connection of a database in one transaction."""
    with _engine(connection).begin() as transaction:
        transaction.exec_driver_sql("BEGIN")
        yield transaction


def _engine(connection: sqlite3.Connection) -> sa.Engine:
    return sa.create_engine("sqlite://", creator=lambda: connection, poolclass=sa.StaticPool)


def _version(file: Path, connection: sqlite3.Connection, content: IO[bytes]) -> int:
    """Return the schema of a backup; raise `InvalidInput` where nothing of ours is in it, and
    `StorageFailed` where it is damaged, no database, or of a newer version."""
    try:
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        # A changed bit may also turn the number into that of a schema that had no seal.
        named = "SELECT 1 FROM sqlite_master WHERE name = 'seal'"
        has_seal = version >= _SEALED or connection.execute(named).fetchone() is not None
        if result == "ok" and has_seal and version <= migrations.NEWEST:
            seal = connection.execute("SELECT CAST(mark_and_digest AS BLOB) FROM seal")
            sealed = (seal.fetchone() or [b""])[0]
            if _digest(content, sealed[:_MARK])[0] != sealed[_MARK:]:
                result = "its checksum says that it is not what was written"
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # of a name that is damaged
        raise StorageFailed(f"{file} is no backup: {error}") from None
    if not version:
        raise InvalidInput(f"{file} is no backup: nothing of ours is in it")
    if result != "ok":
        raise StorageFailed(f"{file} is damaged: {result}")
    if version > migrations.NEWEST:
        raise StorageFailed(
            f"{file} holds data of schema {version}; this version knows up to {migrations.NEWEST}"
        )
    return int(version)


def _seal(connection: sqlite3.Connection, content: IO[bytes]) -> None:
    """Write the digest of a database into it."""
    mark = os.urandom(_MARK)
    connection.execute("CREATE TABLE seal (mark_and_digest BLOB NOT NULL)")
    connection.execute("INSERT INTO seal VALUES (?)", (mark + bytes(_DIGEST),))
    digest, place = _digest(content, mark)
    content.seek(place)
    content.write(digest)
    content.seek(0)


def _digest(stream: IO[bytes], mark: bytes) -> tuple[bytes, int]:
    """Return the digest of a file whose seal has this mark, and the place of the seal's digest."""
    digest = hashlib.sha256()
    with mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as content:
        place = content.find(mark) + len(mark)
        for begin, end in ((0, place), (place + _DIGEST, len(content))):
            for at in range(begin, end, _CHUNK):
                digest.update(content[at : min(at + _CHUNK, end)])
            if end == place:
                digest.update(bytes(_DIGEST))
    return digest.digest(), place


def _record(
    connection: sa.Connection, action: str, file: Path, recipients: Sequence[str] = ()
) -> None:
    detail: dict[str, object] = {"file": str(file.absolute())}
    if recipients:
        detail["recipients"] = list(recipients)
    audit.record(connection, action, os_user=audit.this_user(), detail=detail)


def _copy(source: sa.Connection, target: sa.Connection) -> None:
    options = {"stream_results": True, "yield_per": _PAGE}
    for table in schema.metadata.sorted_tables:
        if table in schema.PASSING:
            continue
        # In the order of their keys: the order in the file would be the order of arrival.
        query = sa.select(table).order_by(*table.primary_key)
        if table is schema.updates:  # others have lost their parts, and say which token began them
            query = query.where(table.c.counted)
        if table is schema.sealing_keys:  # those that no server has deleted yet
            query = query.where(sa.not_(sealing_keys.over(system())))
        rows = source.execute(query, execution_options=options)
        for page in rows.mappings().partitions(_PAGE):
            target.execute(sa.insert(table), [dict(row) for row in page])


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
