"""Records that are split between two servers: those that wait, sets that are claimed, and sums."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.storage import schema, shards
from hearsay_server.storage.database import Database
from hearsay_server.storage.shards import Counted

_batches, _sums = schema.batches, schema.sums


@dataclass(frozen=True)
class Claimed:
    """A set whose records are dropped here, and whose sum the helper still has to complete."""

    period: str
    ids_hash: bytes
    ids: bytes
    own: bytes


@dataclass(frozen=True)
class Sum:
    """The sum of so many records of a period, with their noise: 64-bit integers, little-endian."""

    period: str
    records: int
    total: bytes


def waiting(database: Database, survey: str) -> dict[str, int]:
    """Return how many records of each period wait to be summed."""
    query = (
        sa.select(_batches.c.period, sa.func.count())
        .where(_batches.c.survey == survey, _batches.c.batch.is_not(None))
        .group_by(_batches.c.period)
        .order_by(_batches.c.period)
    )
    with database.reading() as connection:
        return {period: int(count) for period, count in connection.execute(query)}


def ids(database: Database, survey: str, period: str, most: int) -> list[bytes]:
    """Return the ids of at most so many records that wait, rising."""
    query = _waiting(survey, period).with_only_columns(_batches.c.id)
    with database.reading() as connection:
        found = connection.scalars(query.order_by(_batches.c.id).limit(most))
        return [bytes(id_) for id_ in found]


def codes(
    database: Database, survey: str, period: str, some: Sequence[bytes]
) -> dict[bytes, bytes]:
    """Return the sealed shares of records that wait, by id."""
    query = _waiting(survey, period).where(_batches.c.id.in_(some))
    with database.reading() as connection:
        found = connection.execute(query.with_only_columns(_batches.c.id, _batches.c.batch)).all()
    return {
        bytes(id_): collector_pb2.Batch.FromString(batch).columns[0].codes for id_, batch in found
    }


def claim(database: Database, plan: Plan, period: str, some: Sequence[bytes], own: bytes) -> bool:
    """Claim a set of records, given by rising ids: keep our own sum of it, and drop its records.

    Returns False, with nothing changed, where one of them does not wait any more: it was
    forgotten, or another process claimed it. From now on a request to forget one of them is
    answered as summed.
    """

    def work() -> bool:
        with database.changing() as connection:
            keys = [{"_survey": plan.survey, "_period": period, "_id": id_} for id_ in some]
            query = sa.update(_batches).where(*schema.THIS, _batches.c.batch.is_not(None))
            here = _waiting(plan.survey, period).with_only_columns(_batches.c.id)
            if not {bytes(id_) for id_ in connection.scalars(here)}.issuperset(some):
                return False
            connection.execute(query.values(batch=None), keys)
            connection.execute(sa.insert(_sums), _row(plan.survey, period, some, own))
            dropped = {(plan.survey, period): Counted(dropped=len(some))}
            shards.count(database, connection, dropped)
            return True

    return database.retrying(work)


def claim_round(
    database: Database, training: str, period: str, some: Sequence[bytes], own: bytes
) -> None:
    """Claim a set of updates to a round, given by rising ids, with our own sum of it; unless one is
    claimed already."""

    def work() -> None:
        with database.changing() as connection:
            mine = (_sums.c.survey == training, _sums.c.period == period)
            if connection.execute(sa.select(_sums.c.ids_hash).where(*mine)).first() is None:
                connection.execute(sa.insert(_sums), _row(training, period, some, own))

    database.retrying(work)


def _row(name: str, period: str, some: Sequence[bytes], own: bytes) -> dict[str, object]:
    joined = b"".join(some)
    return {
        "survey": name,
        "period": period,
        "ids_hash": hashlib.sha256(joined).digest(),
        "records": len(some),
        "ids": joined,
        "own": own,
    }


def claimed(database: Database, survey: str) -> list[Claimed]:
    """Return the sets that the helper has not summed yet."""
    columns = (_sums.c.period, _sums.c.ids_hash, _sums.c.ids, _sums.c.own)
    query = sa.select(*columns).where(_sums.c.survey == survey, _sums.c.total.is_(None))
    with database.reading() as connection:
        return [Claimed(*row) for row in connection.execute(query)]


def complete(database: Database, survey: str, one: Claimed, total: bytes) -> None:
    """Store the sum of a set, and delete what it was made of."""

    def work() -> None:
        with database.changing() as connection:
            this = (
                _sums.c.survey == survey,
                _sums.c.period == one.period,
                _sums.c.ids_hash == one.ids_hash,
            )
            update = sa.update(_sums).where(*this)
            connection.execute(update.values(total=total, ids=None, own=None))

    database.retrying(work)


def read(database: Database, survey: str, has: Callable[[str], bool]) -> list[Sum]:
    """Return the sums of the periods that are asked for, in time's order."""
    query = sa.select(_sums.c.period, _sums.c.records, _sums.c.total).where(
        _sums.c.survey == survey, _sums.c.total.is_not(None)
    )
    with database.reading() as connection:
        found = [Sum(*row) for row in connection.execute(query.order_by(_sums.c.period))]
    return [each for each in found if has(each.period)]


def _waiting(survey: str, period: str) -> sa.Select[tuple[object, ...]]:
    here = (_batches.c.survey == survey, _batches.c.period == period)
    return sa.select(_batches).where(*here, _batches.c.batch.is_not(None))
