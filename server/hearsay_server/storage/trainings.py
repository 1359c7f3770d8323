"""Trainings as they are stored: creating, listing, closing and deleting them.

A central training's noise is drawn from a seed of 32 random bytes, made when the training is
created. The seed takes the noise out of every model, so nothing but the aggregation reads it, and
it is deleted in the transaction that ends the training. Where updates are split between two
servers, the seed is the private key of this server's shares.
"""

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from hearsay.federated.declaration import SplitNoise, Training
from hearsay.federated.parsing import parse
from hearsay.sealed import hpke
from hearsay.v1 import training_pb2
from hearsay_server.storage import audit, key_material, models, schema, sealing
from hearsay_server.storage.database import Database
from ldp.errors import InvalidInput, NotReady

_log = logging.getLogger("hearsay.server")

_trainings, _rounds, _seeds = schema.trainings, schema.rounds, schema.seeds
_updates, _parts = schema.updates, schema.update_parts

SEED_BYTES = 32

_SEEDS = {"server": "seed of its noise", "one of two servers": "key of its shares"}

_PARTS_DELETED = 16
"""Parts of updates, each of 1 MiB at most, that one step deletes: reports wait for it."""

_IDS_DELETED = 1024
"""Ids of updates that one step deletes."""

PRESENT = _trainings.c.state != "deleted"


class NoTraining(InvalidInput):
    """There is no training of that name."""


class NameTaken(InvalidInput):
    """A survey, or another training, has the name."""


@dataclass(frozen=True)
class StoredTraining:
    """A registered training: what was declared, and how far it is.

    `state` is "running", "ended" or "closed"; `round` is the newest one. `updates` and `size` (in
    bytes) are those that were counted, in all rounds.
    """

    training: Training
    declared: bytes
    state: str
    created: int
    round: int
    model: bytes
    aggregated: int
    dropped: int
    updates: int
    size: int
    trouble: str


@dataclass(frozen=True)
class StoredRound:
    """A round; times in seconds since 1970, `closed` 0 while it is open.

    `state` is "open", "closed", "aggregated" or "dropped"; `model` is what its updates are to, and
    `result` the model that it made, or None.
    """

    round: int
    state: str
    updates: int
    size: int
    model: bytes
    result: bytes | None
    opened: int
    deadline: int
    closed: int


def create(
    database: Database,
    declared: bytes,
    now: datetime,
    caller: str = "",
    draw: Callable[[int], bytes] = os.urandom,
) -> StoredTraining:
    """Freeze a training, draw the seed of its noise, and open its first round.

    The same training again changes nothing. `caller` is the id of a token, or "" for none; `draw`
    returns so many random bytes. Raises `NameTaken`, and `InvalidInput` where the bytes are no
    training that can be, or its first model was not uploaded or is not of its dimension.
    """
    training, private = parse(declared), b""
    name, bare = training.name, without_key(declared)
    if isinstance(training.protection, SplitNoise):
        declared, private = _with_key(bare)
        training = parse(declared)
    with database.changing() as connection:
        stored = connection.execute(_select(name)).one_or_none()
        if stored is not None and without_key(stored.declared) == bare:
            if stored.state == "deleted":
                raise NotReady(f"{name!r} is being deleted: come again in a while")
            return _stored(connection, stored)
        surveys = schema.surveys
        query = sa.select(surveys.c.survey).where(surveys.c.survey == name)
        if stored is not None or connection.execute(query).first():
            what = "a survey" if stored is None else "another training"
            raise NameTaken(f"{what} has the name {name!r}: choose another one")
        models.take(connection, training)
        row: dict[str, object] = {"training": name, "revision": training.revision}
        row |= {"declared": declared, "created": _at(now), "state": "running", "trouble": ""}
        connection.execute(sa.insert(_trainings), {**row, "round": 0})
        if training.has_seed:
            seed = private or draw(SEED_BYTES)
            seed = key_material.seal(connection, _seeds.c.seed, seed, name)
            connection.execute(sa.insert(_seeds), {"training": name, "seed": seed})
        open_next(connection, training, 0, training.initial, now)
        made = {"revision": training.revision.hex()}
        audit.record(connection, "create training", token=caller, survey=name, detail=made)
        return _stored(connection, connection.execute(_select(name)).one())


def without_key(declared: bytes) -> bytes:
    """Return a training as it was before it was created: two servers' is given a key then."""
    wire = training_pb2.Training.FromString(declared)
    if wire.HasField("two_servers"):
        wire.two_servers.ClearField("leader_key")
    data: bytes = wire.SerializeToString(deterministic=True)
    return data


def _with_key(bare: bytes) -> tuple[bytes, bytes]:
    """Return a training with a new key of the server that leads, and its private half."""
    wire = training_pb2.Training.FromString(bare)
    private, wire.two_servers.leader_key = hpke.new_pair()
    return wire.SerializeToString(deterministic=True), private


def open_next(
    connection: sa.Connection, training: Training, number: int, model: bytes, now: datetime
) -> None:
    """Open the round after `number`, with updates to `model`; or end the training."""
    if number == training.rounds:
        end(connection, training.name, "ended")
        return
    sealing.new_key(connection, training.name)
    row = {
        "training": training.name,
        "round": number + 1,
        "state": "open",
        "model": model,
        "opened": _at(now),
        "deadline": _at(now) + training.round_seconds,
        "closed": 0,
        "updates": 0,
        "bytes": 0,
    }
    connection.execute(sa.insert(_rounds), row)
    mine = _trainings.c.training == training.name
    connection.execute(sa.update(_trainings).where(mine).values(round=number + 1))


def end(connection: sa.Connection, training: str, state: str) -> None:
    """Set a training's state, after which it has no rounds, readable updates or seed any more."""
    mine = _trainings.c.training == training
    connection.execute(sa.update(_trainings).where(mine).values(state=state))
    connection.execute(sa.delete(_seeds).where(_seeds.c.training == training))
    connection.execute(sa.delete(schema.sums).where(schema.sums.c.survey == training))
    sealing.drop_key(connection, training)
    begun = sa.and_(_updates.c.training == training, sa.not_(_updates.c.counted))
    connection.execute(sa.delete(_updates).where(begun))
    connection.execute(
        sa.update(_rounds).where(_rounds.c.training == training).values(optimizer=None)
    )


def trainings(database: Database) -> list[StoredTraining]:
    """Return all trainings by name."""
    query = sa.select(_trainings).where(PRESENT).order_by(_trainings.c.training)
    with database.reading() as connection:
        return [_stored(connection, row) for row in connection.execute(query).all()]


def training(database: Database, name: str) -> StoredTraining | None:
    """Return one training, or None."""
    with database.reading() as connection:
        row = connection.execute(_select(name).where(PRESENT)).one_or_none()
        return None if row is None else _stored(connection, row)


def declared(database: Database, name: str) -> bytes | None:
    """Return a training as it was frozen, or None."""
    query = sa.select(_trainings.c.declared).where(_trainings.c.training == name, PRESENT)
    with database.reading() as connection:
        return connection.execute(query).scalar_one_or_none()


def rounds(database: Database, name: str, after: int = 0, most: int = 1000) -> list[StoredRound]:
    """Return rounds of a training after one of them, in order."""
    c = _rounds.c
    query = (
        sa.select(c.round, c.state, c.updates, c.bytes, c.model, c.result)
        .add_columns(c.opened, c.deadline, c.closed)
        .where(c.training == name, c.round > after)
        .order_by(c.round)
        .limit(most)
    )
    with database.reading() as connection:
        return [StoredRound(*row) for row in connection.execute(query)]


def model_part(database: Database, name: str, model: bytes, offset: int) -> tuple[bytes, int]:
    """Return a part of a model as `models.part`; raise `NoTraining` where there is no training."""
    with database.reading() as connection:
        present(connection, name)
        return models.part(connection, name, model, offset)


def close(database: Database, name: str, now: datetime, caller: str = "") -> StoredTraining:
    """End a training for good; the round that is under way is dropped. Raises `NoTraining`."""
    with database.changing() as connection:
        row = present(connection, name)
        if row.state == "running":
            _drop_round(connection, name, row.round, now)
            end(connection, name, "closed")
            last = {"round": row.round}
            audit.record(connection, "close training", token=caller, survey=name, detail=last)
        return _stored(connection, connection.execute(_select(name)).one())


def _drop_round(connection: sa.Connection, name: str, number: int, now: datetime) -> None:
    mine = sa.and_(_rounds.c.training == name, _rounds.c.round == number)
    under_way = _rounds.c.state.in_(("open", "closed"))
    drop = sa.update(_rounds).where(mine, under_way)
    connection.execute(drop.values(state="dropped", closed=_at(now)))


def mark_deleted(database: Database, name: str, caller: str = "") -> StoredTraining:
    """Mark a training as deleted, for `delete_some` to delete its data; return what it was.

    Its updates and its seed are deleted at once. Raises `NoTraining`.
    """
    with database.changing() as connection:
        was = _stored(connection, present(connection, name))
        end(connection, name, "deleted")
        gone = {"rounds": was.round, "updates": was.updates}
        audit.record(connection, "delete training", token=caller, survey=name, detail=gone)
    return was


def delete_some(database: Database) -> bool:
    """Delete some data of a training that is marked deleted; return whether to call again."""
    query = sa.select(_trainings.c.training).where(_trainings.c.state == "deleted").limit(1)
    with database.changing() as connection:
        name = connection.execute(query).scalar_one_or_none()
        if name is None:
            return False
        some = (_delete_updates, models.delete_parts, _delete_ids)
        if not any(delete(connection, name) for delete in some):
            for table in (schema.models, _rounds, _trainings):
                connection.execute(sa.delete(table).where(table.c.training == name))
            _log.info("the training %r is deleted with all its models", name)
    return True


def delete_some_updates(database: Database) -> bool:
    """Delete some encrypted parts of rounds that are over; return whether to call again."""
    t, r = _trainings.c, _rounds.c
    running = sa.and_(t.state == "running", r.state.in_(("open", "closed")))
    query = sa.select(t.training, t.round, running.label("running")).join(_rounds, schema.NEWEST)
    with database.changing() as connection:
        for name, number, lasts in connection.execute(query).all():
            if _delete_updates(connection, name, number if lasts else number + 1):
                return True
    return False


def _delete_updates(connection: sa.Connection, name: str, before: int = 1 << 32) -> bool:
    """Delete some parts of updates to rounds before one; return whether there were any."""
    c = _parts.c
    some = sa.select(c.round, c.id, c.offset).where(c.training == name, c.round < before)
    rows = connection.execute(some.limit(_PARTS_DELETED)).all()
    if rows:
        key = (c.round == sa.bindparam("_r"), c.id == sa.bindparam("_i"))
        this = (c.training == name, *key, c.offset == sa.bindparam("_o"))
        keys = [{"_r": row.round, "_i": row.id, "_o": row.offset} for row in rows]
        connection.execute(sa.delete(_parts).where(*this), keys)
    return bool(rows)


def _delete_ids(connection: sa.Connection, name: str) -> bool:
    some = sa.select(_updates.c.id).where(_updates.c.training == name).limit(_IDS_DELETED)
    ids = connection.scalars(some).all()
    mine = sa.and_(_updates.c.training == name, _updates.c.id.in_(ids))
    connection.execute(sa.delete(_updates).where(mine))
    return bool(ids)


def restored(connection: sa.Connection, now: datetime) -> None:
    """Bring the trainings of a backup, which has neither seeds nor updates, into a good state.

    A training with a seed cannot go on, and is closed: after this backup was made, a round may have
    published a model. The same round again, of other updates under the same noise, would publish
    the exact difference of the two sums, and under other noise a second look at whoever was in
    both. Others go on: what their round had is dropped, and the next one opens.
    """
    for row in connection.execute(sa.select(_trainings).where(PRESENT)).all():
        if row.state != "running":
            continue
        training = parse(row.declared)
        this = sa.and_(_rounds.c.training == row.training, _rounds.c.round == row.round)
        model = connection.execute(sa.select(_rounds.c.model).where(this)).scalar_one()
        _drop_round(connection, row.training, row.round, now)
        if training.has_seed:
            end(connection, row.training, "closed")
            set_trouble(
                connection,
                row.training,
                f"it was restored from a backup, which has no {_SEEDS[training.trusted]}: create "
                "another training that begins with its newest model",
            )
        else:
            begun = sa.and_(_updates.c.training == row.training, sa.not_(_updates.c.counted))
            connection.execute(sa.delete(_updates).where(begun))
            open_next(connection, training, row.round, model, now)


def set_trouble(connection: sa.Connection, name: str, trouble: str) -> None:
    """Store why a training does not go on; "" where it does."""
    mine = sa.and_(_trainings.c.training == name, _trainings.c.trouble != trouble)
    connection.execute(sa.update(_trainings).where(mine).values(trouble=trouble))


def present(connection: sa.Connection, name: str) -> Any:
    """Return a training's row; raise `NoTraining`."""
    row = connection.execute(_select(name).where(PRESENT)).one_or_none()
    if row is None:
        raise NoTraining(f"there is no training {name!r} here")
    return row


def _select(name: str) -> sa.Select[Any]:
    return sa.select(_trainings).where(_trainings.c.training == name)


def _stored(connection: sa.Connection, row: Any) -> StoredTraining:
    c = _rounds.c
    how_many = (sa.func.count().filter(c.state == state) for state in ("aggregated", "dropped"))
    sums = (sa.func.coalesce(sa.func.sum(column), 0) for column in (c.updates, c.bytes))
    mine = c.training == row.training
    counts = connection.execute(sa.select(*how_many, *sums).where(mine)).one()
    aggregated, dropped, updates, size = map(int, counts)
    newest = sa.select(sa.func.coalesce(c.result, c.model)).where(mine, c.round == row.round)
    model = connection.execute(newest).scalar_one_or_none() or b""
    return StoredTraining(
        parse(row.declared),
        row.declared,
        row.state,
        row.created,
        row.round,
        model,
        aggregated,
        dropped,
        updates,
        size,
        row.trouble,
    )


def _at(now: datetime) -> int:
    return int(now.timestamp())
