"""Batches of a real survey, and what is stored of them, for tests of the database."""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command

from hearsay.plans import plan
from hearsay.v1 import collector_pb2
from hearsay_server.ingest import merging
from hearsay_server.ingest.intake import Cohort, Limits, Terms, decode
from hearsay_server.ingest.judge import Outcome
from hearsay_server.storage import migrations, schema
from hearsay_server.storage.database import Database
from hearsay_server.storage.store import Store
from hearsay_server.surveys import survey as surveys
from ldp import Coins, Tally
from support import DAILY, SURVEY

NOW = datetime(2026, 7, 4, 12, tzinfo=UTC)
ONCE = surveys.resolve(surveys.from_toml(SURVEY, "test.toml"))
DAY = surveys.resolve(surveys.from_toml(DAILY, "test.toml"))
PLANS = {parsed.survey: parsed for parsed in map(plan.parse, (ONCE, DAY))}


def take_back(database: Database, version: int) -> None:
    """Make the tables of an older version, which are empty, instead of the newest."""
    with database.changing() as connection:
        for table in reversed(schema.metadata.sorted_tables):
            table.drop(connection)
        connection.exec_driver_sql("DROP TABLE alembic_version")
        command.upgrade(migrations._config(connection), str(version))
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql(f"PRAGMA user_version = {version}")


OLDER_ROW = ("t", "health", "once", 7, 0)
"""The row of the table `token_rows` of `write_older`, once it is upgraded."""


def write_older(file: Path) -> Path:
    """Write a backup as version 0.1 did before schema 4, with one row of a token."""
    engine = sa.create_engine(f"sqlite:///{file}")
    with engine.begin() as connection:
        command.upgrade(migrations._config(connection), "3")
        connection.exec_driver_sql("PRAGMA user_version = 3")
        connection.exec_driver_sql("INSERT INTO token_rows VALUES ('t', 'health', 'once', 7)")
    engine.dispose()
    return file


def register(store: Store) -> None:
    """Register "health", answered once, and "daily"."""
    store.create_survey("health", PLANS["health"].revision, ONCE)
    store.create_survey("daily", PLANS["daily"].revision, DAY)


@pytest.fixture
def store(where: Path | str) -> Iterator[Store]:
    """A store with both surveys, on SQLite and on PostgreSQL."""
    opened = Store(where)
    register(opened)
    yield opened
    opened.close()


def terms(now: datetime = NOW) -> Terms:
    return Terms(PLANS, now, Limits())


def decoded(batch: collector_pb2.Batch) -> Mapping[Cohort, Tally]:
    return decode(batch, terms())


def asked_of_decode(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the rows of every batch that is decoded from now on."""
    asked: list[int] = []

    def noted(message: collector_pb2.Batch, by: Terms) -> Mapping[Cohort, Tally]:
        asked.append(message.rows)
        return decode(message, by)

    monkeypatch.setattr(merging, "decode", noted)
    return asked


def add(store: Store, batches: Sequence[collector_pb2.Batch], now: datetime = NOW) -> list[Outcome]:
    """Store batches of one caller that has no token."""
    return store.add([("", each) for each in batches], now, Limits())


def add_and_die(folder: Path, batches: int) -> None:
    """Store the first so many batches, also those of earlier calls, and be killed: by a process of
    its own."""
    store = Store(folder)
    register(store)
    for number in range(batches):
        add(store, [batch(number)])
    os.kill(os.getpid(), signal.SIGKILL)


def batch(number: int, survey: str = "health", period: str = "once") -> collector_pb2.Batch:
    """Return a batch of one row, at one of the levels; a number has one content."""
    of = PLANS[survey]
    level = of.levels[("strict", "open")[number % 2]]
    message = collector_pb2.Batch(
        id=number.to_bytes(16, "big"), survey=survey, revision=of.revision, period=period, rows=1
    )
    for name, code in (("smokes", bytes([number % 3])), ("age", None)):
        mechanism = level.mechanisms[name]
        codes = code or mechanism.encode([mechanism.randomize(0.5, Coins())])
        message.columns.add(attribute=name, level=level.name, codes=codes)
    return message


def daily(number: int, days_ago: int = 0) -> collector_pb2.Batch:
    """Return a batch of the daily survey."""
    day = NOW - timedelta(days=days_ago)
    return batch(number, "daily", f"{day:%Y-%m-%d}")


def remembered(store: Store) -> dict[int, bool]:
    """Return the numbers whose ids are remembered, and whether their content is stored."""
    query = sa.select(schema.batches.c.id, schema.batches.c.batch.is_not(None))
    with store.database.reading() as connection:
        rows = connection.execute(query).all()
    return {int.from_bytes(id_, "big"): bool(stored) for id_, stored in rows}


def tallied(store: Store, survey: str) -> dict[Cohort, Tally]:
    """Return all tallies of a survey."""
    return {**store.tallies(survey, "smokes"), **store.tallies(survey, "age")}
