"""Forgetting: delete the batches of a device that revoked consent, and subtract their tallies."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Cohort, Reason, Refused, check_period, ends, tallies_of
from hearsay_server.limits import TooMany
from hearsay_server.storage import schema, shards
from hearsay_server.storage.database import Database
from hearsay_server.storage.retention import present
from hearsay_server.storage.shards import Counted
from ldp import InvalidInput, Tally
from ldp.core.tally import add_up
from ldp.errors import StorageFailed

FORGOTTEN, SUMMED = collector_pb2.ForgetResponse.FORGOTTEN, collector_pb2.ForgetResponse.SUMMED

_batches, _barred = schema.batches, schema.token_rows

_MAX_BARRED = 1_000_000
"""Ids of a survey's open periods that one token, or all without one, can bar before they came."""

_HOUR = 3600.0


def forget(
    database: Database,
    plan: Plan,
    period: str,
    ids: Sequence[bytes],
    now: datetime,
    caller: str = "",
    token_rows: int = 0,
) -> list[collector_pb2.ForgetResponse.Status]:
    """Delete batches of a survey and subtract their tallies; bar ids that have not come.

    Returns the status of each id. Raises, with nothing changed, `InvalidInput` for an id of the
    wrong length, and for a period that is none or has not begun; `NoSurvey`; and `StorageFailed`
    where the tallies are less than the stored batches. Raises `TooMany`, with all stored batches
    forgotten, where `caller` (the id of a token, or "" for none) would bar more ids than the
    server is willing to remember: `token_rows` in a period, as no token can have sent more batches
    than rows, unless that is 0, and `_MAX_BARRED` in all open periods.
    """
    if any(len(id_) != 16 for id_ in ids):
        raise InvalidInput("a batch id is 16 bytes")
    until = ends(plan.period, period)
    try:
        check_period(plan.period, period, now)
        closed = False
    except Refused as refused:
        if refused.reason != Reason.PERIOD_CLOSED:
            raise
        closed = True
    here = _batches.c.survey == plan.survey, _batches.c.period == period
    with database.changing() as connection:
        closed = closed or until <= present(connection, plan.survey).closed_before
        query = sa.select(_batches).where(*here, _batches.c.id.in_(set(ids)))
        known = {row.id: row for row in connection.execute(query)}
        stored = [row for row in known.values() if row.batch is not None]
        if stored:
            _forget_stored(database, connection, plan, stored)
        unknown = [] if closed else sorted(set(ids) - set(known))
        new = {"survey": plan.survey, "period": period, "ends": until}
        most = min(token_rows or _MAX_BARRED, _MAX_BARRED)
        too_many = _bar(database, connection, caller, new, unknown, most) if unknown else None
    if too_many:
        raise too_many
    # No content and rows > 0: dropped by retention. No content and rows = 0: forgotten.
    summed = {row.id for row in known.values() if row.batch is None and row.rows}
    if closed:
        summed |= set(ids) - set(known)
    return [SUMMED if id_ in summed else FORGOTTEN for id_ in ids]


def _forget_stored(
    database: Database, connection: sa.Connection, plan: Plan, rows: Sequence[Any]
) -> None:
    sums: dict[Cohort, Tally] = {}
    counted: dict[shards.Period, Counted] = {}
    for row in rows:
        batch = collector_pb2.Batch.FromString(row.batch)
        add_up(sums, tallies_of(batch, plan).items())
        key = (row.survey, row.period)
        counted[key] = counted.get(key, Counted()) + Counted(-1, -row.rows)
    try:
        shards.subtract(database, connection, sums)
    except InvalidInput as error:
        raise StorageFailed("the tallies lack what is stored: see `hearsay verify`") from error
    shards.count(database, connection, counted)
    forgotten = sa.update(_batches).where(*schema.THIS).values(batch=None, rows=0)
    connection.execute(forgotten, [schema.key(row) for row in rows])


def _bar(
    database: Database,
    connection: sa.Connection,
    caller: str,
    row: Mapping[str, object],
    ids: Sequence[bytes],
    most: int,
) -> TooMany | None:
    """Store ids that never came, of the survey and period in `row`; or return why not.

    There may be `most` of the period, and `_MAX_BARRED` of all periods.
    """
    period = row["period"]
    key = {"token": caller, "survey": row["survey"], "period": period}
    mine = (_barred.c.token == caller, _barred.c.survey == row["survey"])
    here = sa.case((_barred.c.period == period, _barred.c.barred), else_=0)
    query = sa.select(sa.func.sum(_barred.c.barred), sa.func.sum(here)).where(*mine)
    everywhere, count = (int(found or 0) for found in connection.execute(query).one())
    if count + len(ids) > most or everywhere + len(ids) > _MAX_BARRED:
        detail = f"{everywhere} batches of {row['survey']!r} are barred already, {count} of "
        return TooMany(f"{detail}{period!r}", "forget", retry_after=_HOUR)
    new = {**row, "day": 0, "rows": 0, "batch": None}
    connection.execute(sa.insert(_batches), [{**new, "id": id_} for id_ in ids])
    insert = database.insert(_barred)
    counted = insert.on_conflict_do_update(
        index_elements=list(key),
        set_={"barred": _barred.c.barred + insert.excluded.barred},
    )
    connection.execute(counted, {**key, "rows": 0, "barred": len(ids)})
    return None
