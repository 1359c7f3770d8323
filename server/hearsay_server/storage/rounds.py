"""The state of a round: open, closed or dropped, aggregated. Each step is one transaction.

    open --(full, or its deadline with enough updates)--> closed --> aggregated
      \\--(its deadline with fewer, or its training is closed)--> dropped

The step that aggregates stores the model, deletes the key of the updates that it was made of (see
`sealing`), and opens the next round. A process that is killed before it is done leaves the round
closed, with all updates: another one makes the same model of the same updates and the same noise. A
step is taken by the process that finds the round in the state before it, so none is taken twice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from hearsay.federated.declaration import Training
from hearsay.federated.parsing import parse
from hearsay_server.storage import key_material, models, schema, sealing, trainings
from hearsay_server.storage.database import Database

_trainings, _rounds, _seeds = schema.trainings, schema.rounds, schema.seeds
_updates, _parts = schema.updates, schema.update_parts

_RUNNING = (
    sa.select(_trainings.c.training, _trainings.c.declared, _rounds.c.round, _rounds.c.state)
    .add_columns(_rounds.c.deadline, _rounds.c.model)
    .join(_rounds, schema.NEWEST)
    .where(_trainings.c.state == "running")
    .order_by(_trainings.c.training)
)

_PAGE = 1000
"""Ids of updates that are read at once."""


@dataclass(frozen=True)
class Due:
    """What is to be done now, as (training, round), and when the next round closes by itself."""

    to_close: list[tuple[Training, int]]
    to_aggregate: list[tuple[Training, int]]
    next_deadline: int | None
    running: frozenset[str]
    """The names of all trainings that are not over."""


@dataclass(frozen=True)
class Work:
    """A closed round: what its model is made of, besides the updates."""

    training: Training
    round: int
    file: bytes
    """The model that its updates are to."""
    updates: int
    since: int
    """The last round that made a model; 0 before the first."""
    seed: bytes | None
    optimizer: bytes | None
    """The optimizer's state after the last round that made a model; None before the first."""


def due(database: Database, now: datetime) -> Due:
    """Return what is to be done."""
    with database.reading() as connection:
        rows = connection.execute(_RUNNING).all()
    open_ = [row for row in rows if row.state == "open"]
    late = [row for row in open_ if row.deadline <= now.timestamp()]
    return Due(
        [(parse(row.declared), row.round) for row in late],
        [(parse(row.declared), row.round) for row in rows if row.state == "closed"],
        min((row.deadline for row in open_ if row not in late), default=None),
        frozenset(row.training for row in rows),
    )


def close(database: Database, training: Training, number: int, now: datetime) -> str:
    """Close an open round; return "closed", "dropped", or "" where another process was first."""
    with database.appending() as connection:
        return close_in(connection, training, number, now)


def close_in(connection: sa.Connection, training: Training, number: int, now: datetime) -> str:
    """Close an open round in a transaction that is under way; return as `close`."""
    name = training.name
    mine = _of(_rounds, name, number)
    close_ = sa.update(_rounds).where(mine, _rounds.c.state == "open")
    if not connection.execute(close_.values(state="closed", closed=int(now.timestamp()))).rowcount:
        return ""
    unfinished = sa.and_(_of(_updates, name, number), sa.not_(_updates.c.counted))
    connection.execute(sa.delete(_updates).where(unfinished))
    row = connection.execute(sa.select(_rounds.c.updates, _rounds.c.model).where(mine)).one()
    if row.updates >= training.min_updates:
        return "closed"
    connection.execute(sa.update(_rounds).where(mine).values(state="dropped"))
    trainings.open_next(connection, training, number, row.model, now)
    return "dropped"


def work(database: Database, training: Training, number: int) -> Work | None:
    """Return what a closed round's model is made of; None where it is not closed any more."""
    name = training.name
    with database.reading() as connection:
        query = sa.select(_rounds).where(_of(_rounds, name, number), _rounds.c.state == "closed")
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        last = sa.select(_rounds.c.optimizer).where(
            _rounds.c.training == name, _rounds.c.optimizer.is_not(None)
        )
        since = sa.select(sa.func.max(_rounds.c.round)).where(
            _rounds.c.training == name, _rounds.c.state == "aggregated"
        )
        stored = sa.select(_seeds.c.seed).where(_seeds.c.training == name)
        seed = connection.execute(stored).scalar_one_or_none()
        if seed is not None:
            seed = key_material.opened(connection, _seeds.c.seed, seed, name)
        return Work(
            training,
            number,
            models.whole(connection, name, row.model),
            row.updates,
            connection.execute(since).scalar_one() or 0,
            seed,
            connection.execute(last).scalar_one_or_none(),
        )


def ids(database: Database, training: Training, number: int) -> Iterator[bytes]:
    """Yield the ids of the counted updates of a round, rising."""
    mine, last = _of(_updates, training.name, number), b""
    while True:
        query = sa.select(_updates.c.id).where(mine, _updates.c.counted, _updates.c.id > last)
        with database.reading() as connection:
            found = connection.scalars(query.order_by(_updates.c.id).limit(_PAGE)).all()
        yield from found
        if len(found) < _PAGE:
            return
        last = found[-1]


def payloads(database: Database, training: Training, number: int) -> Iterator[bytes]:
    """Yield the bytes of the counted updates of a round in the order of their ids, one at a time.

    Each is read in a transaction of its own, so that nobody waits for a long reading. Raises
    `StorageFailed` as `payload`.
    """
    for id_ in ids(database, training, number):
        yield payload(database, training.name, number, id_)


def payload(database: Database, name: str, number: int, id_: bytes) -> bytes:
    """Return the bytes of an update of a round that are stored.

    Raises `StorageFailed` where the round is over, or what is stored is damaged.
    """
    with database.reading() as connection:
        return payload_in(connection, name, number, id_)


def payload_in(connection: sa.Connection, name: str, number: int, id_: bytes) -> bytes:
    """Return the bytes of an update in a transaction that is under way; raise as `payload`."""
    key = sealing.key(connection, name)
    parts = sa.select(_parts.c.data).where(_of(_parts, name, number), _parts.c.id == id_)
    found = connection.scalars(parts.order_by(_parts.c.offset))
    return b"".join(sealing.opened(key, sealed) for sealed in found)


def store(
    database: Database, done: Work, file: bytes, optimizer: bytes | None, now: datetime
) -> bool:
    """Store the model of a closed round, delete the key of its updates and open the next round.

    Returns False, with nothing changed, where the round is not closed any more.
    """
    name, number = done.training.name, done.round
    with database.appending() as connection:
        mine = _of(_rounds, name, number)
        take = sa.update(_rounds).where(mine, _rounds.c.state == "closed")
        if not connection.execute(take.values(state="aggregated")).rowcount:
            return False
        result = models.store(database, connection, name, file, now)
        earlier = sa.and_(_rounds.c.training == name, _rounds.c.optimizer.is_not(None))
        connection.execute(sa.update(_rounds).where(earlier).values(optimizer=None))
        kept = {"result": result, "optimizer": optimizer}
        connection.execute(sa.update(_rounds).where(mine).values(kept))
        connection.execute(sa.delete(schema.sums).where(schema.sums.c.survey == name))
        trainings.set_trouble(connection, name, "")
        trainings.open_next(connection, done.training, number, result, now)
    return True


def drop(database: Database, training: Training, number: int, now: datetime) -> bool:
    """Drop a closed round of which too few updates can be summed, and open the next one; return
    whether this call did."""
    with database.appending() as connection:
        mine = _of(_rounds, training.name, number)
        take = sa.update(_rounds).where(mine, _rounds.c.state == "closed")
        if not connection.execute(take.values(state="dropped")).rowcount:
            return False
        model = connection.execute(sa.select(_rounds.c.model).where(mine)).scalar_one()
        trainings.open_next(connection, training, number, model, now)
    return True


def failed(database: Database, training: Training, why: str) -> None:
    """Store why a round of a training could not be aggregated."""
    with database.appending() as connection:
        trainings.set_trouble(connection, training.name, why)


def newest(database: Database, name: str) -> Any:
    """Return the newest round of a training, and as `of_training` that one's state; or None."""
    query = (
        sa.select(_trainings.c.state.label("of_training"))
        .add_columns(_rounds.c.round, _rounds.c.state, _rounds.c.deadline)
        .add_columns(_rounds.c.model, _rounds.c.result)
        .join(_rounds, schema.NEWEST)
        .where(_trainings.c.training == name, trainings.PRESENT)
    )
    with database.reading() as connection:
        return connection.execute(query).one_or_none()


def _of(table: sa.Table, name: str, number: int) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.training == name, table.c.round == number)
