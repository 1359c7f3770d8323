"""What an operator sees of all surveys at a glance, without reading what came in."""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from hearsay_server.storage import schema
from hearsay_server.storage.database import Database

_DAY = 86_400

_batches, _surveys = schema.batches, schema.surveys


@dataclass(frozen=True)
class Glance:
    """One survey: the unit of its periods, and the records that came today, in UTC."""

    unit: str
    deleted: bool
    today: int


@dataclass(frozen=True)
class Space:
    """The bytes that the database takes, and those that are left; None where nobody can tell."""

    taken: int
    left: int | None


def surveys(database: Database, now: datetime) -> Mapping[str, Glance]:
    """Return all surveys by name, those included that are being deleted.

    Batches whose contents were dropped already are not among today's.
    """
    day = int(now.timestamp()) // _DAY
    came = (
        sa.select(_batches.c.survey, sa.func.sum(_batches.c.rows).label("rows"))
        .where(_batches.c.day == day, _batches.c.batch.is_not(None))
        .group_by(_batches.c.survey)
    )
    with database.reading() as connection:
        today = {row.survey: int(row.rows) for row in connection.execute(came)}
        columns = sa.select(_surveys.c.survey, _surveys.c.unit, _surveys.c.deleted)
        return {
            row.survey: Glance(row.unit, row.deleted, today.get(row.survey, 0))
            for row in connection.execute(columns)
        }


def space(database: Database) -> Space:
    """Return how much room the database takes, and how much is left on its disk."""
    if database.engine.dialect.name == "postgresql":
        query = sa.text("SELECT pg_database_size(current_database())")
        with database.reading() as connection:
            return Space(int(connection.execute(query).scalar_one()), None)
    file = database.engine.url.database
    assert file is not None
    with database.reading() as connection:
        pages = int(connection.exec_driver_sql("PRAGMA page_count").scalar_one())
        size = int(connection.exec_driver_sql("PRAGMA page_size").scalar_one())
    return Space(pages * size, shutil.disk_usage(file).free)
