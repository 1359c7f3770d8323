"""Old data is brought forward, newer data is left alone, and the steps lead to the tables."""

import contextlib
import hashlib
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from postgres import Postgres
from stored import DAY, ONCE, PLANS, add, batch, daily, register, remembered, take_back, tallied

import hearsay_server.storage.migrations.versions as steps
from hearsay_server.storage import migrations, schema
from hearsay_server.storage.database import Database, open_database
from hearsay_server.storage.store import Store
from ldp.errors import NotReady

OLD = """
CREATE TABLE surveys (survey TEXT NOT NULL, revision BLOB NOT NULL, plan BLOB NOT NULL,
    batches BIGINT NOT NULL, records BIGINT NOT NULL, PRIMARY KEY (survey));
CREATE TABLE batches (id BLOB NOT NULL, survey TEXT NOT NULL, batch BLOB NOT NULL,
    PRIMARY KEY (id), FOREIGN KEY(survey) REFERENCES surveys (survey));
CREATE TABLE tallies (survey TEXT NOT NULL, revision BLOB NOT NULL, attribute TEXT NOT NULL,
    level TEXT NOT NULL, period TEXT NOT NULL, tally BLOB NOT NULL,
    PRIMARY KEY (survey, revision, attribute, level, period),
    FOREIGN KEY(survey) REFERENCES surveys (survey));
PRAGMA user_version = 1;
"""
"""What the first version made."""


FROZEN = {
    "schema_1": "e0bf61e85a798d234f6df659180111357a1476d8341e8916c3c29efedd463db4",
    "schema_2": "5f0d62d60f90003186aa6d4340d520f8696fd7daefa0d58750adb7e11d32a683",
    "schema_3": "99092466f0f26b60b65eea5c71510746aa047add261d3ee764d4baa1a45923f8",
    "schema_4": "b29c64cd04494117c5bc95456606f43a21a37ffc8abf3633e4c3f425c2719e88",
    "schema_5": "b587546adecbf8487c4dfe820096b161fb4a9f687fcbff81b0c04d5f0972aa2f",
    "schema_6": "dde482de50ea1d9c531e6ffa182c7ab0fec4d35a1ff51d30e5ff164f0d845afe",
    "schema_7": "6f1f26ea403e1b577306f759b7a972ff8bda6f06b3fd721b4dc5f3c37b742f4c",
    "schema_8": "811b790c023d21f96374bebd6c99527fdd5da6f1ba4c7e35c528e568e030ef48",
    "schema_9": "0ca11a874fbe102aa0cfea1921e54a50c90ec5c39ca5f2bb81bff17b892233f6",
    "schema_10": "63a938938abd3a0ef5521c7c0dabc3ca013f2087b0623f49e1a8d3fbdc439b07",
    "schema_11": "1e7af280ffe0d53f4c275fb7493ba9ca42e31b8ffa78e54c41e9315db0879aea",
    "schema_12": "56ce99cf5eb7e7982a3d3fbcbd6a1fa049146782fdb9ecf489465a98d4de5d83",
    "schema_13": "a5dacce25e663f051ddc25d5cc76170f789a84d6814bcf089f964ed9fc74199b",
    "schema_14": "8f953df1f13ae681a84fbc89d90b802a3a6290da46fc0cf3c74c78cae40159ba",
    "schema_15": "d807e18c9315e44fd2c93c395ea0272e069c0569854d0460e0459d09412ccc43",
}
"""The SHA-256 of each step's file. A released step never changes: where its hash differs, undo the
change and add a step. The hash of a step that no version was released with changes with it."""


def test_a_released_step_never_changes() -> None:
    (folder,) = steps.__path__
    files = Path(folder).glob("schema_*.py")
    hashes = {file.stem: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert hashes == FROZEN
    assert len(hashes) == migrations.NEWEST


def _structure(connection: sa.Connection) -> dict[str, object]:
    """Return columns, keys and indexes of all tables; for SQLite also whether rows have numbers."""
    found, where = sa.inspect(connection), f"{connection.dialect.name}_where"
    structure: dict[str, object] = {}
    for table in found.get_table_names():
        if table == "alembic_version":
            continue
        columns = sorted(
            (c["name"], str(c["type"]), c["nullable"]) for c in found.get_columns(table)
        )
        indexes = [
            (i["name"], i["column_names"], i["unique"], str(i["dialect_options"].get(where)))
            for i in found.get_indexes(table)
        ]
        key = found.get_pk_constraint(table)["constrained_columns"]
        structure[table] = (columns, key, sorted(indexes), found.get_foreign_keys(table))
    if connection.dialect.name == "sqlite":
        tables = connection.exec_driver_sql("PRAGMA main.table_list").mappings()
        structure["without rowid"] = {row["name"] for row in tables if row["wr"]}
    return structure


def _opened_again(where: Path | str) -> Database:
    """Open a database, once PostgreSQL has noticed that it was closed."""
    for _ in range(100):
        with contextlib.suppress(NotReady):
            return open_database(where)
        time.sleep(0.05)
    return open_database(where)


@pytest.mark.parametrize("version", range(migrations.NEWEST))
def test_from_every_version_the_steps_lead_to_the_tables_that_the_code_knows(
    where: Path | str, version: int
) -> None:
    database = open_database(where)
    if version:
        take_back(database, version)
        database.close()
        database = _opened_again(where)
    with database.changing() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, schema.metadata) == []
        assert migrations.version(connection) == migrations.NEWEST
        upgraded = _structure(connection)
        for table in reversed(schema.metadata.sorted_tables):
            table.drop(connection)
        schema.metadata.create_all(connection)
        assert upgraded == _structure(connection)
    database.close()


def test_data_of_the_first_version_is_brought_forward(tmp_path: Path) -> None:
    sent = [batch(number) for number in range(5)] + [daily(10), daily(11, 1)]
    before = Store(tmp_path / "now")
    register(before)
    add(before, sent)
    old = sqlite3.connect(tmp_path / "hearsay.db")
    old.executescript(OLD)
    for survey, frozen, count in (("health", ONCE, 5), ("daily", DAY, 2)):
        row = (survey, PLANS[survey].revision, frozen, count, count)
        old.execute("INSERT INTO surveys VALUES (?, ?, ?, ?, ?)", row)
        for c, tally in tallied(before, survey).items():
            key = (c.survey, c.revision, c.attribute, c.level, c.period)
            dense = tally.n.to_bytes(8, "little") + tally.counts.astype("<i8").tobytes()
            old.execute("INSERT INTO tallies VALUES (?, ?, ?, ?, ?, ?)", (*key, dense))
    for message in sent:
        data = message.SerializeToString(deterministic=True)
        old.execute("INSERT INTO batches VALUES (?, ?, ?)", (message.id, message.survey, data))
    old.commit()
    old.close()

    after = Store(tmp_path)
    assert after.surveys() == before.surveys()
    assert remembered(after) == remembered(before)
    for survey in PLANS:
        assert tallied(after, survey) == tallied(before, survey)
    query = sa.select(*(c for c in schema.batches.c if c.name != "day")).order_by("id")
    with after.database.reading() as new, before.database.reading() as same:
        assert new.execute(query).all() == same.execute(query).all()
    assert add(after, sent) == [False] * 7
    after.close()
    before.close()
    Store(tmp_path).close()  # and it need not be brought forward again


def test_data_with_an_order_of_arrival_loses_it(where: Path | str) -> None:
    last = batch(1)
    database = open_database(where)
    take_back(database, 3)
    with database.changing() as connection:
        for number in (9, 3, 1):
            row = {"id": number.to_bytes(16, "big"), "survey": "health", "period": "once"}
            row |= {"ends": 1, "day": 2, "rows": 3, "batch": last.SerializeToString()}
            _insert(connection, "batches", row)
        sent = {"token": "t", "survey": "health", "period": "once", "rows": 3}
        _insert(connection, "token_rows", sent)
    database.close()
    database = open_database(where)
    with database.reading() as connection:
        context = MigrationContext.configure(connection)
        assert compare_metadata(context, schema.metadata) == []
        rows = connection.execute(sa.select(schema.batches).order_by("id")).all()
        assert [int.from_bytes(row.id, "big") for row in rows] == [1, 3, 9]
        assert {row[:2] for row in rows} == {("health", "once")}
        assert {row[3:] for row in rows} == {(1, 2, 3, last.SerializeToString())}
        kept = connection.execute(sa.select(schema.token_rows)).one()
        assert kept == ("t", "health", "once", 3, 0)
    database.close()


@pytest.mark.parametrize("version", [7, 8])
def test_tallies_without_maps_and_groups_are_of_those_who_had_none(
    where: Path | str, version: int
) -> None:
    database = open_database(where)
    take_back(database, version)
    row: dict[str, object] = {"survey": "s", "revision": b"r", "attribute": "a", "level": "l"}
    row |= {"period": "once", **({"map": "m"} if version == 8 else {})}
    with database.changing() as connection:
        for writer in (1, 2):
            _insert(connection, "tallies", {**row, "writer": writer, "tally": b"t"})
    database.close()
    database = _opened_again(where)
    with database.reading() as connection:
        found = connection.execute(sa.select(schema.tallies).order_by("writer")).mappings().all()
    assert [dict(each) for each in found] == [
        {"map": "", "panel": 0, "group": "", **row, "writer": writer, "tally": b"t"}
        for writer in (1, 2)
    ]
    database.close()


def _insert(connection: sa.Connection, table: str, row: dict[str, object]) -> None:
    columns = [sa.column(name) for name in row]
    connection.execute(sa.insert(sa.table(table, *columns)), row)


@pytest.mark.parametrize("table", ["batches", "token_rows"])
def test_sqlite_keeps_no_order_of_arrival(tmp_path: Path, table: str) -> None:
    Store(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "hearsay.db")
    with pytest.raises(sqlite3.OperationalError, match="no such column: rowid"):
        connection.execute(f"SELECT rowid FROM {table}")
    connection.close()


def test_data_is_not_upgraded_under_those_who_use_it(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = Store(where)
    monkeypatch.setattr(migrations, "NEWEST", migrations.NEWEST + 1)
    with pytest.raises(NotReady, match="others have it open: stop them, and start one first"):
        Store(where)
    register(running)  # it goes on
    running.close()


def test_an_upgrade_waits_for_a_session_that_is_just_ending(postgres: Postgres) -> None:
    url = postgres.create()
    running = open_database(url)
    take_back(running, 3)
    ending = threading.Timer(0.3, running.close)
    ending.start()
    with contextlib.closing(open_database(url)) as database, database.reading() as connection:
        assert migrations.version(connection) == migrations.NEWEST
    ending.join()


@pytest.mark.parametrize("old", [False, True], ids=["nothing", "old data"])
def test_those_who_open_it_at_once_all_get_it(where: Path | str, old: bool) -> None:
    if old:
        with contextlib.closing(open_database(where)) as database:
            take_back(database, 3)
    together = threading.Barrier(4)

    def opened(_: int) -> Database:
        together.wait()
        return open_database(where)

    with ThreadPoolExecutor(together.parties) as pool:
        for database in list(pool.map(opened, range(together.parties))):
            with database.reading() as connection:
                assert migrations.version(connection) == migrations.NEWEST
            database.close()


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    old = sqlite3.connect(tmp_path / "hearsay.db")
    old.executescript(OLD)
    row = ("health", PLANS["health"].revision, b"\xff this is no plan", 0, 0)
    old.execute("INSERT INTO surveys VALUES (?, ?, ?, ?, ?)", row)
    old.commit()
    for _ in range(2):
        with pytest.raises(Exception, match="Error parsing message"):
            Store(tmp_path)
    tables = old.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    assert [name for (name,) in tables] == ["batches", "surveys", "tallies"]
    old.close()
