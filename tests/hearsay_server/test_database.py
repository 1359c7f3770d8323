"""Which errors say that the database cannot be had at present, and which that we are wrong."""

import contextlib
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa
from postgres import Postgres
from serving import held

from hearsay_server.storage import schema
from hearsay_server.storage.database import Database, is_away, open_database

WRONG = "SELECT * FROM nothing"


def ask(database: Database, query: str) -> Exception:
    """Return the error that a query ends with."""
    with pytest.raises(sa.exc.DBAPIError) as error, database.reading() as connection:
        connection.exec_driver_sql(query)
    return error.value


def test_what_is_wrong_with_a_query_is_our_own_fault(where: Path | str) -> None:
    with contextlib.closing(open_database(where)) as database:
        assert not is_away(ask(database, WRONG))
    assert not is_away(ValueError("database is locked"))


def test_a_locked_file_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hearsay_server.storage.database._BUSY", 0.01)
    with (
        contextlib.closing(open_database(tmp_path)) as database,
        held(tmp_path),
        pytest.raises(sa.exc.DBAPIError) as error,
        database.appending(),
    ):
        pass
    assert is_away(error.value)


def test_a_full_file_is_away(tmp_path: Path) -> None:
    with (
        contextlib.closing(open_database(tmp_path)) as database,
        pytest.raises(sa.exc.DBAPIError) as error,
        database.appending() as connection,
    ):
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # no more than there are
        connection.exec_driver_sql("CREATE TABLE more AS SELECT randomblob(100000)")
    assert is_away(error.value)


def test_a_server_that_is_down_is_away_and_one_that_is_back_is_not(postgres: Postgres) -> None:
    with contextlib.closing(open_database(postgres.create())) as database:
        with pytest.raises(sa.exc.DBAPIError) as error, database.reading() as connection:
            postgres.stop()
            connection.exec_driver_sql("SELECT 1")
        unreachable = ask(database, "SELECT 1")
        postgres.start()
        assert is_away(error.value)
        assert is_away(unreachable)
        assert not is_away(ask(database, WRONG))


def test_what_fails_in_the_driver_is_told_as_all_else(where: Path | str) -> None:
    wrong = sa.select(sa.column("one")).select_from(sa.table("nothing"))
    with (
        contextlib.closing(open_database(where)) as database,
        pytest.raises(sa.exc.DBAPIError, match="nothing") as error,
        database.reading() as connection,
    ):
        database.fetch(connection, wrong, ())
    assert not is_away(error.value)
    assert not error.value.connection_invalidated


def test_what_every_commit_executes_needs_a_transaction(where: Path | str) -> None:
    with contextlib.closing(open_database(where)) as database:
        insert = sa.insert(schema.sweeps)
        with (
            database.engine.connect() as connection,
            pytest.raises(RuntimeError, match="no transaction is under way"),
        ):
            database.change(connection, insert, [(7,)])
        with database.reading() as connection:
            assert connection.execute(sa.select(schema.sweeps)).all() == []


def test_a_session_that_is_cut_in_a_transaction_is_replaced_and_the_work_done_again(
    postgres: Postgres,
) -> None:
    url = postgres.create()
    one = sa.select(sa.func.pg_backend_pid())
    sessions = []

    def ask() -> None:
        with database.reading() as connection:
            ((session,),) = database.fetch(connection, one, ())
            sessions.append(session)
            if len(sessions) == 1:
                with psycopg.connect(url, autocommit=True) as other:
                    other.execute("SELECT pg_terminate_backend(%s)", [session])
            database.fetch(connection, one, ())

    with contextlib.closing(open_database(url)) as database:
        database.retrying(ask)
    assert len(set(sessions)) == 2


def test_a_full_file_is_away_to_what_every_commit_executes(tmp_path: Path) -> None:
    insert = sa.insert(schema.probes)
    with (
        contextlib.closing(open_database(tmp_path)) as database,
        pytest.raises(sa.exc.DBAPIError) as error,
        database.appending() as connection,
    ):
        connection.exec_driver_sql("PRAGMA max_page_count = 1")  # no more than there are
        database.change(connection, insert, [("here", 0.0, bytes(100_000))])
    assert is_away(error.value)


def test_a_server_without_a_session_to_spare_is_away(postgres: Postgres) -> None:
    engine = sa.create_engine(
        sa.make_url(postgres.create()).set(drivername="postgresql+psycopg"), poolclass=sa.NullPool
    )
    with contextlib.ExitStack() as stack, pytest.raises(sa.exc.DBAPIError) as error:
        for _ in range(100):
            stack.enter_context(engine.connect())
    assert is_away(error.value)


def test_a_session_that_was_cut_is_replaced(postgres: Postgres) -> None:
    url = postgres.create()
    with contextlib.closing(open_database(url)) as database:
        with database.reading() as connection:
            session = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        with psycopg.connect(url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [session])
        with database.reading() as connection:
            again = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    assert again != session
