"""The database, SQLite or PostgreSQL: opening it, and its kinds of transaction.

Reading sees one state. Appending adds rows that nobody else adds, beside other appending processes.
Changing runs alone: it waits until appending transactions are done, and they wait for it. Tokens
themselves, the audit log, and probes whether the disk can be written, are written beside either.
SQLite lets one transaction write at a time anyhow; in PostgreSQL a gate, an advisory lock, is
shared by appending transactions and held by a changing one alone.
"""

import contextlib
import fcntl
import logging
import os
import random
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from hearsay_server import private
from hearsay_server.at_rest import NOT_ENCRYPTED, AtRest
from hearsay_server.storage import migrations
from hearsay_server.storage.reserve import Reserve
from ldp.errors import InvalidInput, NotReady, StorageFailed, needs

_T = TypeVar("_T")
_log = logging.getLogger("hearsay.server")

_LOCKS = 0x48656172  # "Hear": the first key of our advisory locks, so that others' do not collide
_GATE, _PRESENCE, _UPGRADE, _SHARDS = 0, 1, 2, 16
_MAX_SHARDS = 64

_MOST_PORT = 65535

_TRIES = 5
_PASSING = {"40001", "40P01", "23505"}  # serialisation, deadlock, a row that another one made first

_AWAY = ("08", "53", "57P", "58")  # connections, resources, shutting or starting up, the system
_AWAY_SQLITE = {5, 6, 10, 13, 14}  # busy, locked, input or output, full, cannot open

_IO, _FULL = 10, 13
"""SQLite's errors on a full disk: which of them, depends on the file that it writes."""
_DISK_FULL = "53100"

_WRITE = {"hearsay_write": True}

AT_REST = "hearsay_at_rest"
"""The option of connections with the keys that key material is encrypted under."""

_BUSY = 10.0
"""Seconds that a write to SQLite waits for another write to end."""

_ENDING = 1.0
"""Seconds that an upgrade of PostgreSQL waits for sessions that are ending."""

_MOMENT = 0.1
"""Seconds that emptying SQLite's log waits for those who read it, and between two such looks."""

_PATIENCE = {
    # Give up on a server that is gone, rather than hold everyone up until the kernel does.
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    # A process that is stopped in the middle must not hold the gate for ever.
    "options": "-c idle_in_transaction_session_timeout=60s",
}


class Database:
    """An open database, and the number of the shard that this process alone adds to."""

    def __init__(
        self, engine: sa.Engine, shard: int, close: Callable[[], object], reserve: Reserve
    ) -> None:
        """Take an engine whose schema is current, and a function that closes it and its locks."""
        self.engine = engine
        self._reserve = reserve
        self.shard = shard
        self.close = close
        assert engine.dialect.dbapi
        self._error = engine.dialect.dbapi.Error
        dialect = {"sqlite": sqlite, "postgresql": postgresql}[engine.dialect.name]
        self.insert: Callable[[sa.Table], Any] = dialect.insert  # with its on_conflict clauses
        self._texts: dict[sa.ClauseElement, str] = {}

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Read one state of the database, whatever is written meanwhile."""
        with self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection = connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with connection.begin():
                yield connection

    @contextlib.contextmanager
    def appending(self) -> Iterator[sa.Connection]:
        """Write in one transaction, beside others that append."""
        with _writing(self.engine) as connection:
            _lock(connection, "pg_advisory_xact_lock_shared", _GATE)
            yield connection

    @contextlib.contextmanager
    def changing(self) -> Iterator[sa.Connection]:
        """Write in one transaction while nobody appends or changes."""
        with _writing(self.engine) as connection:
            _lock(connection, "pg_advisory_xact_lock", _GATE)
            yield connection

    @contextlib.contextmanager
    def beside(self, *, on_a_full_disk: bool = False) -> Iterator[sa.Connection]:
        """Write tokens, the audit log or probes in one transaction, beside any other one.

        A transaction that must do on a full disk has the room of the reserve. Nobody else takes it:
        it is given once SQLite lets nobody else write.
        """
        with _writing(self.engine) as connection:
            if on_a_full_disk:
                self._reserve.give()
            yield connection
        if on_a_full_disk:
            self._reserve.take()

    def wipe(self) -> bool:
        """Empty SQLite's log, so that it has nothing any more that was deleted.

        Deleted content is overwritten in the database's file by the transaction that deletes it,
        and stays in the log until that is written over. Returns False, with the log as it was,
        where somebody reads or writes just now. PostgreSQL overwrites when it vacuums.
        """
        if self.engine.dialect.name != "sqlite":
            return True
        with contextlib.closing(self.engine.raw_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"PRAGMA busy_timeout = {int(1000 * _MOMENT)}")
            try:
                (busy, *_) = cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                cursor.execute(f"PRAGMA busy_timeout = {int(1000 * _BUSY)}")
        return not busy

    def fetch(
        self, connection: sa.Connection, statement: sa.ClauseElement, parameters: Sequence[object]
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a statement that every commit executes.

        `fetch` and `change` give the driver the statement's text and its parameters, in the order
        in which they stand there, as they are: SQLAlchemy takes ten times as long as SQLite for a
        small statement. Use them for statements that are made once, with values that the columns'
        types would not convert.
        """
        with self._cursor(connection) as cursor:
            rows: list[tuple[Any, ...]] = cursor.execute(
                self._text(statement), parameters
            ).fetchall()
            return rows

    def change(
        self,
        connection: sa.Connection,
        statement: sa.ClauseElement,
        rows: Sequence[Sequence[object]],
    ) -> int:
        """Execute a statement for each row of parameters; return how many rows it changed."""
        with self._cursor(connection) as cursor:
            cursor.executemany(self._text(statement), rows)
            changed: int = cursor.rowcount
            return changed

    def _text(self, statement: sa.ClauseElement) -> str:
        if statement not in self._texts:
            dialect: Any = type(self.engine.dialect)
            style = {"sqlite": "qmark", "postgresql": "format"}[dialect.name]
            self._texts[statement] = str(statement.compile(dialect=dialect(paramstyle=style)))
        return self._texts[statement]

    @contextlib.contextmanager
    def _cursor(self, connection: sa.Connection) -> Iterator[Any]:
        """Yield a cursor of the driver's whose errors are SQLAlchemy's, as all others are."""
        if not connection.in_transaction():  # the driver would commit each statement by itself
            raise RuntimeError("no transaction is under way on this connection")
        dialect, pooled = connection.dialect, connection.connection
        cursor = pooled.cursor()
        try:
            yield cursor
        except self._error as error:
            lost = dialect.is_disconnect(error, pooled.dbapi_connection, cursor)
            if lost:
                connection.invalidate(error)
            raise sa.exc.DBAPIError.instance(
                None, None, error, self._error, connection_invalidated=lost, dialect=dialect
            ) from error
        finally:
            cursor.close()

    def retrying(self, work: Callable[[], _T]) -> _T:
        """Run one transaction, retrying on lost connections, deadlocks and races.

        A race is a row that two processes made at once. Where the connection breaks in the commit,
        nobody knows whether that was done: `work` must find out by looking, as it does for a
        client that comes again.
        """
        for _ in range(_TRIES - 1):
            try:
                return work()
            except sa.exc.DBAPIError as error:
                state = getattr(error.orig, "sqlstate", None)
                if not error.connection_invalidated and state not in _PASSING:
                    raise
        return work()


def open_database(where: Path | str, keys: AtRest = NOT_ENCRYPTED) -> Database:
    """Open a folder with SQLite, or a "postgresql://" URL; make missing files and tables.

    Key material is encrypted under `keys`. Raises as `open_folder` and `open_url` do.
    """
    return open_url(where, keys) if isinstance(where, str) else open_folder(where, keys)


def is_away(error: BaseException) -> bool:
    """Tell whether an error says that the disk or the database cannot be had at present."""
    if isinstance(error, sa.exc.TimeoutError):  # no connection was free
        return True
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    if isinstance(error.orig, sqlite3.Error):
        return getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in _AWAY_SQLITE
    state = getattr(error.orig, "sqlstate", None)
    lost = error.connection_invalidated or isinstance(error, sa.exc.OperationalError)
    return lost if state is None else state.startswith(_AWAY)


def said(error: sa.exc.DBAPIError) -> str:
    """Return what is wrong in one line, and what to do where the disk is full, or may be."""
    words = " ".join(str(error.orig).split())
    code = getattr(error.orig, "sqlite_errorcode", 0) & 0xFF
    if code == _FULL or getattr(error.orig, "sqlstate", None) == _DISK_FULL:
        return f"{words}: make room on its disk"
    return f"{words}: make room on its disk if that is full" if code == _IO else words


def open_folder(folder: Path, keys: AtRest = NOT_ENCRYPTED) -> Database:
    """Open the SQLite database in `folder`; make both, for their owner alone, if they are missing.

    Several processes of one machine may have it open. Raises `NotReady` where it is being
    upgraded or is served by an older version, and `StorageFailed` where the folder cannot be used,
    or holds a database that is damaged or was written by a newer version.
    """
    try:
        private.make_folder(folder)
        file = folder / "hearsay.db"
        with _opening(folder):
            private.make_file(file)
        presence: IO[bytes] = os.fdopen(private.open_file(folder / "lock"), "ab")
    except OSError as error:
        raise StorageFailed(f"cannot keep data in {folder}: {error}") from None
    engine = sa.create_engine(
        sa.URL.create("sqlite", database=str(file)),
        connect_args={"timeout": _BUSY},
        execution_options={AT_REST: keys},
        hide_parameters=True,  # no reports in the log of an error
    )
    sa.event.listen(engine, "connect", _configure_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    reserve = Reserve(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(presence.close)
        stack.callback(engine.dispose)
        try:
            with _opening(folder):
                with _with_room(engine, reserve) as connection:
                    _bring_up(connection, str(folder), lambda: _alone(presence))
                fcntl.flock(presence, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise NotReady(
                f"{folder} is in use by another hearsay server, of an older version or upgrading"
            ) from None
        except sa.exc.DatabaseError as error:
            raise StorageFailed(f"cannot open {file}: {said(error)}") from None
        reserve.take()
        return Database(engine, 0, stack.pop_all().close, reserve)


@contextlib.contextmanager
def _with_room(engine: sa.Engine, reserve: Reserve) -> Iterator[sa.Connection]:
    """Begin to write; where the disk has no room for the index of SQLite's log, free some."""
    try:
        engine.connect().close()
    except sa.exc.OperationalError:
        reserve.give()
    with _writing(engine) as connection:
        yield connection


@contextlib.contextmanager
def _opening(folder: Path) -> Iterator[None]:
    """Let processes that start at once open the folder one after the other.

    The first one upgrades: those that wait are not present yet. And SQLite does not wait for
    another process that sets the journal's mode.
    """
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def parsed(url: str) -> sa.URL:
    """Return the URL of a PostgreSQL database; raise `InvalidInput` for any other text, which may
    hold a password and is not quoted."""
    address = None
    with contextlib.suppress(sa.exc.ArgumentError, ValueError):
        address = sa.make_url(url)
    if address is None or address.get_backend_name() not in ("postgresql", "postgres"):
        raise InvalidInput(
            "a database is given as postgresql://USER:PASSWORD@HOST:PORT/NAME, with a port that is "
            "a number"
        )
    if "@" in (address.host or "") or not 0 < (address.port or 1) <= _MOST_PORT:
        raise InvalidInput(
            f"a database's URL has a port from 1 to {_MOST_PORT}, and %40 for each @ in a password"
        )
    return address


def shown(url: sa.URL) -> str:
    """Return a URL without its passwords: libpq also takes them as parameters."""
    hidden = {name: "***" for name in url.query if "password" in name}
    return url.update_query_dict(hidden).render_as_string(hide_password=True)


@contextlib.contextmanager
def as_it_was(where: Path | str) -> Iterator[None]:
    """Take away the database and the folder that are made in this context, if it fails.

    Nothing is taken away that somebody else has opened meanwhile.
    """
    if isinstance(where, str) or private.is_there(where / "hearsay.db"):
        yield
        return
    missing = [path for path in (where, *where.parents) if not path.exists()]
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            _take_away(where)
        with contextlib.suppress(OSError):  # somebody has put something there
            for folder in missing:
                folder.rmdir()
        raise


def _take_away(folder: Path) -> None:
    with _opening(folder), (folder / "lock").open("ab") as presence:
        if _alone(presence):
            for name in ("hearsay.db", "hearsay.db-wal", "hearsay.db-shm", "reserve", "lock"):
                (folder / name).unlink(missing_ok=True)


def open_url(url: str, keys: AtRest = NOT_ENCRYPTED) -> Database:
    """Open the PostgreSQL database at `postgresql://USER:PASSWORD@HOST/NAME`, or `postgres://`.

    Any number of processes on any number of machines may have it open. Raises `InvalidInput`
    for any other URL, `MissingExtra` without psycopg, `StorageFailed` where the database cannot be
    reached or a newer version wrote it, and `NotReady` where it would have to be upgraded while
    servers of another version have it open.
    """
    address = parsed(url).set(drivername="postgresql+psycopg")
    options = {key: value for key, value in _PATIENCE.items() if key not in address.query}
    with needs("PostgreSQL", "postgres"):
        engine = sa.create_engine(
            address,
            connect_args=options,
            execution_options={AT_REST: keys},
            hide_parameters=True,
            isolation_level="READ COMMITTED",
            pool_timeout=_BUSY,
            pool_pre_ping=True,  # a database that came back is used at once, by readers too
        )
    sa.event.listen(engine, "connect", _configure_postgres)
    name = shown(address.set(drivername="postgresql"))
    with contextlib.ExitStack() as stack:
        stack.callback(engine.dispose)
        try:
            with _writing(engine) as connection:
                _lock(connection, "pg_advisory_xact_lock", _UPGRADE)
                _bring_up(connection, name, partial(_alone_on, connection))
            with engine.begin() as connection:
                shard = _free_shard(connection)
                present = partial(_be_present, name, shard)
                present(connection.connection.driver_connection, None)
        except sa.exc.DBAPIError as error:
            raise StorageFailed(f"cannot open {name}: {said(error)}") from None
        sa.event.listen(engine, "connect", present)
        return Database(engine, shard, stack.pop_all().close, Reserve(None))


@contextlib.contextmanager
def _writing(engine: sa.Engine) -> Iterator[sa.Connection]:
    with engine.execution_options(**_WRITE).begin() as connection:
        yield connection


def _bring_up(connection: sa.Connection, name: str, alone: Callable[[], bool]) -> None:
    found = migrations.version(connection)
    if found > migrations.NEWEST:
        raise StorageFailed(
            f"{name} holds data of schema {found}; this version knows up to {migrations.NEWEST}"
        )
    if found < migrations.NEWEST:
        if found and not alone():
            raise NotReady(
                f"{name} holds data of schema {found}, to be upgraded to {migrations.NEWEST}, but "
                "others have it open: stop them, and start one first"
            )
        migrations.upgrade(connection)
        if found:
            _log.info("%s is of schema %d now, was %d", name, migrations.NEWEST, found)


def _alone(presence: IO[bytes]) -> bool:
    try:
        fcntl.flock(presence, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _alone_on(connection: sa.Connection) -> bool:
    """Tell whether nobody else has the database open; wait for sessions that are just ending.

    PostgreSQL ends the session of a process that closed it, or died, a moment later.
    """
    end = time.monotonic() + _ENDING
    while not _lock(connection, "pg_try_advisory_xact_lock", _PRESENCE):
        if time.monotonic() > end:
            return False
        time.sleep(_MOMENT)
    return True


def _lock(connection: sa.Connection, function: str, key: int) -> bool:
    """Call one of PostgreSQL's advisory lock functions; SQLite needs none of them."""
    if connection.dialect.name != "postgresql":
        return True
    taken = connection.exec_driver_sql(f"SELECT {function}({_LOCKS}, {key})").scalar_one()
    return taken is not False  # functions that wait for the lock return nothing


def _free_shard(connection: sa.Connection) -> int:
    """Lock a free shard on this connection, and return it; a random one if none is free."""
    for shard in range(_MAX_SHARDS):
        if _lock(connection, "pg_try_advisory_lock", _SHARDS + shard):
            _lock(connection, "pg_advisory_lock_shared", _SHARDS + shard)
            _lock(connection, "pg_advisory_unlock", _SHARDS + shard)
            return shard
    return random.randrange(_MAX_SHARDS)  # shared: its processes wait for each other's commits


def _be_present(name: str, shard: int, connection: Any, _record: object) -> None:
    """Take the locks that tell others that we have the database open, and our shard.

    Locks are a session's, and a session ends with a database that restarts: so every connection
    has them, and the next one takes them again. Another version may have come in between.
    """
    locks = ", ".join(
        f"pg_advisory_lock_shared({_LOCKS}, {key})" for key in (_PRESENCE, _SHARDS + shard)
    )
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {locks}")
        (found,) = cursor.execute("SELECT version_num FROM alembic_version").fetchone()
    connection.commit()
    if int(found) > migrations.NEWEST:
        connection.close()
        detail = f"{name} was upgraded to schema {found} meanwhile: install that version here too"
        raise sa.exc.OperationalError("SELECT version_num", None, StorageFailed(detail))


def _configure_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # sqlite3 must not begin transactions of its own
    # Deleted content is overwritten, as far as files can promise that.
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
        connection.execute(f"PRAGMA {pragma}")


def _configure_postgres(connection: Any, _record: object) -> None:
    # Acknowledged means on the disk; stricter settings, with standbys, stay as they are.
    with connection.cursor() as cursor:
        (level,) = cursor.execute("SHOW synchronous_commit").fetchone()
        if level == "off":
            cursor.execute("SET synchronous_commit = on")
    connection.commit()


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes fails at once where another one wrote in
    # between; one that says at its start that it will write waits for its turn.
    write = connection.get_execution_options().get("hearsay_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")
