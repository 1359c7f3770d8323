"""Retention: close periods, drop the contents of batches, purge ids, delete surveys.

An id is remembered until its period is closed and the content of its batch is gone. Closing
comes first and is final, so no batch whose id is gone is ever taken again. Every step runs alone
(`Database.changing`), is short, and may be done by several processes.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from hearsay.plans.period import label
from hearsay.plans.plan import message
from hearsay_server.clock import Clock, system
from hearsay_server.ingest.intake import GRACE, NEVER, ends
from hearsay_server.storage import audit, models, schema, sealing_keys, shards, trainings
from hearsay_server.storage.database import Database
from hearsay_server.storage.shards import Counted
from hearsay_server.storage.writer import Writer
from ldp.errors import InvalidInput, NotReady

_log = logging.getLogger("hearsay.server")

_surveys, _batches, _token_rows = schema.surveys, schema.batches, schema.token_rows

_CHUNK = 1000
"""Rows that one step deletes, so that it holds nobody up for long."""

_EVERY = 3600.0
"""Seconds between sweeps."""

LEAP = timedelta(days=7)
"""Longest time since the last sweep, by a server's clock, for which that clock is trusted."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class NoSurvey(InvalidInput):
    """There is no survey of that name."""


def close_survey(
    database: Database, survey: str, period: str = "", caller: str = "", clock: Clock = system
) -> None:
    """Take no more reports of a survey, or of its periods up to one, for good.

    `caller` is the id of a token, or "" for none; `clock` says when all sealing keys of a whole
    survey had their last period. Raises `NoSurvey`, and `InvalidInput` where the
    survey has no such period.
    """
    with database.changing() as connection:
        stored = present(connection, survey)
        until = ends(stored.unit, period) if period else NEVER
        query = sa.update(_surveys).where(
            _surveys.c.survey == survey, _surveys.c.closed_before < until
        )
        connection.execute(query.values(closed_before=until))
        if not period:
            # Requests to forget are sealed for the period that runs, and leave once it is over.
            now = clock()
            runs = ends(stored.unit, label(stored.unit, now)) if stored.unit else now.timestamp()
            sealing_keys.end(connection, survey, int(runs))
        last = {"last_period": period} if period else {}
        audit.record(connection, "close survey", token=caller, survey=survey, detail=last)


def mark_deleted(database: Database, survey: str, caller: str = "") -> Counted:
    """Mark a survey as deleted, for `delete_some` to delete its data; return its counts.

    `caller` is the id of a token, or "" for none. Raises `NoSurvey`.
    """
    with database.changing() as connection:
        present(connection, survey)
        held = sum(shards.counted(connection, survey).values(), Counted())
        query = sa.update(_surveys).where(_surveys.c.survey == survey)
        connection.execute(query.values(closed_before=NEVER, deleted=True))
        sealing_keys.drop(connection, survey)
        gone = {"batches": held.batches, "records": held.records}
        audit.record(connection, "delete survey", token=caller, survey=survey, detail=gone)
    return held


def delete_some(database: Database) -> bool:
    """Delete some data of a survey that is marked deleted; return whether to call again."""
    with database.changing() as connection:
        query = sa.select(_surveys.c.survey).where(_surveys.c.deleted).limit(1)
        survey = connection.execute(query).scalar_one_or_none()
        if survey is None:
            return False
        some = sa.select(*schema.BATCH).where(_batches.c.survey == survey).limit(_CHUNK)
        if _delete(connection, some) < _CHUNK:
            of_it = (schema.tallies, schema.sums, schema.mixes, schema.counts, schema.token_rows)
            for table in (*of_it, _surveys):
                connection.execute(sa.delete(table).where(table.c.survey == survey))
            _log.info("the survey %r is deleted with all its data", survey)
    return True


def _delete(connection: sa.Connection, some: sa.Select[tuple[str, str, bytes]]) -> int:
    """Delete the batches whose keys a query returns; return how many there were."""
    keys = [schema.key(row) for row in connection.execute(some)]
    if keys:
        connection.execute(sa.delete(_batches).where(*schema.THIS), keys)
    return len(keys)


def close_periods(database: Database, now: datetime, grace: timedelta = GRACE) -> bool:
    """Close all periods that ended more than `grace` ago; return False: one call is enough."""
    until = int((now - grace).timestamp())
    late = sa.and_(_surveys.c.unit != "", _surveys.c.closed_before < until)
    with database.changing() as connection:
        connection.execute(sa.update(_surveys).where(late).values(closed_before=until))
    return False


def drop_some(database: Database, before: int) -> bool:
    """Drop some contents of batches that came before a day; return whether to call again.

    The day is counted from 1970. The batches stay counted in the tallies. Records that are split
    between two servers are in none before they are summed, and stay until their period is closed.
    """
    some = (
        sa.select(*schema.BATCH)
        .where(_batches.c.batch.is_not(None), _batches.c.day < before)
        .limit(_CHUNK)
    )
    closed = sa.exists().where(
        _surveys.c.survey == _batches.c.survey, _batches.c.ends <= _surveys.c.closed_before
    )
    with database.changing() as connection:
        plans = connection.execute(sa.select(_surveys.c.survey, _surveys.c.plan))
        split = [row.survey for row in plans if message(row.plan).survey.HasField("two_servers")]
        if split:
            some = some.where(sa.or_(_batches.c.survey.not_in(split), closed))
        rows = connection.execute(some).all()
        if rows:
            drop = sa.update(_batches).where(*schema.THIS).values(batch=None)
            connection.execute(drop, [schema.key(row) for row in rows])
        dropped: dict[shards.Period, Counted] = {}
        for row in rows:
            key = (row.survey, row.period)
            dropped[key] = dropped.get(key, Counted()) + Counted(dropped=1)
        shards.count(database, connection, dropped)
    return len(rows) == _CHUNK


def purge_some(database: Database) -> bool:
    """Delete some ids without content in closed periods; return whether to call again."""
    closed = sa.and_(
        _batches.c.survey == _surveys.c.survey, _batches.c.ends <= _surveys.c.closed_before
    )
    some = (
        sa.select(*schema.BATCH)
        .join(_surveys, closed)
        .where(_batches.c.batch.is_(None))
        .limit(_CHUNK)
    )
    with database.changing() as connection:
        return _delete(connection, some) == _CHUNK


def purge_token_rows(database: Database) -> bool:
    """Delete some tokens' row counts of a closed period; return whether to call again."""
    with database.changing() as connection:
        closed = _closed_of_tokens(connection)
        if closed is None:
            return False
        here = sa.and_(_token_rows.c.survey == closed[0], _token_rows.c.period == closed[1])
        some = sa.select(_token_rows.c.token).where(here).limit(_CHUNK)
        tokens = connection.scalars(some).all()
        connection.execute(sa.delete(_token_rows).where(here, _token_rows.c.token.in_(tokens)))
    return True


def _closed_of_tokens(connection: sa.Connection) -> tuple[str, str] | None:
    """Return a survey and a closed period for which row counts of tokens are kept, or None."""
    key = _token_rows.c.survey, _token_rows.c.period
    query = (
        sa.select(*key, _surveys.c.unit, _surveys.c.closed_before)
        .join(_surveys, _surveys.c.survey == _token_rows.c.survey)
        .order_by(*key)
        .limit(1)
    )
    last = ("", "")
    while row := connection.execute(query.where(sa.tuple_(*key) > sa.tuple_(*last))).first():
        last = (row.survey, row.period)
        if ends(row.unit, row.period) <= row.closed_before:
            return last
    return None


def remember(database: Database, now: datetime, leap: timedelta | None = None) -> None:
    """Store `now` as the time of the last sweep.

    Raises `NotReady`, with nothing changed, where the last sweep was more than `leap` before:
    then a clock may be wrong, and a sweep cannot be undone.
    """
    with database.changing() as connection:
        last = connection.execute(sa.select(schema.sweeps.c.at)).scalar_one_or_none()
        if leap is not None and last is not None and now.timestamp() > last + leap.total_seconds():
            raise NotReady(
                f"the clock says {now:%Y-%m-%d %H:%M}, and what was due was last done by one that "
                f"said {datetime.fromtimestamp(last, UTC):%Y-%m-%d %H:%M}: no period is closed and "
                "nothing dropped until they are closer; if the clock is right, run `hearsay "
                "retention`"
            )
        connection.execute(sa.delete(schema.sweeps))
        connection.execute(sa.insert(schema.sweeps), {"at": int(now.timestamp())})


def due(
    database: Database, now: datetime, keep_days: int = 0, grace: timedelta = GRACE
) -> Sequence[Callable[[], bool]]:
    """Return the due steps of a sweep; each is to be repeated as long as it returns True.

    Contents are kept for `keep_days` days after they came; 0 keeps them for ever.
    """
    kept = (now - _EPOCH).days - keep_days
    drop = [partial(drop_some, database, kept)] if keep_days else []
    close = partial(close_periods, database, now, grace)
    keys = partial(sealing_keys.delete, database, now)
    uploads = partial(models.purge_uploads, database, now)
    return [close, *drop, keys, uploads, *left_over(database)]


def hourly(database: Database, now: datetime, keep_days: int = 0) -> Sequence[Callable[[], bool]]:
    """Return a server's hourly steps: `due`, or `left_over` if its clock leapt since the last."""
    try:
        remember(database, now, LEAP)
    except NotReady as error:
        _log.error("%s", error)
        return left_over(database)
    return due(database, now, keep_days)


def left_over(database: Database) -> Sequence[Callable[[], bool]]:
    """Return the steps that need no clock: purge closed periods, delete what is marked deleted."""
    return [
        partial(purge_some, database),
        partial(purge_token_rows, database),
        partial(delete_some, database),
        partial(trainings.delete_some_updates, database),
        partial(trainings.delete_some, database),
    ]


@contextlib.asynccontextmanager
async def swept(
    writer: Writer, database: Database, keep_days: int, clock: Clock = system
) -> AsyncIterator[None]:
    """Sweep every hour on the thread that writes, between its commits, while the context lasts."""
    task = asyncio.create_task(_sweep(writer, database, keep_days, clock))
    try:
        yield
    finally:
        task.cancel()


async def _sweep(writer: Writer, database: Database, keep_days: int, clock: Clock) -> None:
    while True:
        try:
            for step in await writer.run(partial(hourly, database, clock(), keep_days)):
                while await writer.run(step):
                    pass
        except Exception:
            _log.exception("what is due to be dropped could not be, and will be in an hour")
        await asyncio.sleep(_EVERY)


def present(connection: sa.Connection, survey: str) -> Any:
    """Return a survey's row; raise `NoSurvey`."""
    query = sa.select(_surveys).where(_surveys.c.survey == survey, sa.not_(_surveys.c.deleted))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NoSurvey(f"there is no survey {survey!r} here")
    return row
