"""Recount the updates of trainings, check those that are stored, and the models' SHA-256."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from hearsay.federated import encoding
from hearsay.federated.declaration import Training
from hearsay.federated.parsing import parse
from hearsay_server.at_rest import KeyLost
from hearsay_server.storage import rounds, schema, trainings
from ldp.errors import StorageFailed

_rounds, _updates = schema.rounds, schema.updates
_models, _model_parts = schema.models, schema.model_parts


@dataclass(frozen=True)
class Checked:
    """What of a training was kept, what was found, and what is wrong, if anything is."""

    training: str
    what: str
    kept: int
    found: int
    detail: str = ""


def verify(connection: sa.Connection) -> Iterator[Checked]:
    """Check each training; memory: one update, or one model."""
    query = sa.select(schema.trainings).where(trainings.PRESENT)
    for row in connection.execute(query.order_by(schema.trainings.c.training)).all():
        training = parse(row.declared)
        yield from _rounds_of(connection, training)
        yield _models_of(connection, training)
        if training.has_seed:
            yield _seed_of(connection, row)


def _rounds_of(connection: sa.Connection, training: Training) -> Iterator[Checked]:
    mine = _rounds.c.training == training.name
    ids = (
        sa.select(_updates.c.round, sa.func.count().label("updates"))
        .where(_updates.c.training == training.name, _updates.c.counted)
        .group_by(_updates.c.round)
    )
    found = {row.round: int(row.updates) for row in connection.execute(ids)}
    c = _rounds.c
    for row in connection.execute(sa.select(c.round, c.state, c.updates).where(mine)).all():
        counted = found.pop(row.round, 0)
        detail = ""
        if counted != row.updates:
            detail = f"{row.updates} updates were counted, and {counted} ids are stored"
        elif row.state in ("open", "closed"):
            detail = _damaged(connection, training, row.round)
        yield Checked(training.name, f"round {row.round}", row.updates, counted, detail)
    for number, counted in sorted(found.items()):
        detail = "updates of a round that is not stored"
        yield Checked(training.name, f"round {number}", 0, counted, detail)


def _damaged(connection: sa.Connection, training: Training, number: int) -> str:
    """Return what is wrong with the stored updates of a round; "" where nothing is."""
    mine = _updates.c.training == training.name, _updates.c.round == number
    query = sa.select(_updates.c.id).where(*mine, _updates.c.counted).order_by(_updates.c.id)
    for id_ in connection.scalars(query).all():
        try:
            payload = rounds.payload_in(connection, training.name, number, id_)
            encoding.check(training, payload)
        except KeyLost:  # it says nothing of the update
            raise
        except (encoding.UpdateRefused, StorageFailed) as error:
            return f"the update {id_.hex()} is damaged: {error}"
    return ""


def _models_of(connection: sa.Connection, training: Training) -> Checked:
    c = _rounds.c
    mine = c.training == training.name
    named = sa.union(
        sa.select(c.model).where(mine), sa.select(c.result).where(mine, c.result.is_not(None))
    )
    wanted = set(connection.scalars(named))
    good = 0
    for model in sorted(wanted):
        here = _model_parts.c.training == training.name, _model_parts.c.model == model
        parts = sa.select(_model_parts.c.data).where(*here).order_by(_model_parts.c.offset)
        digest = hashlib.sha256()
        for data in connection.scalars(parts):
            digest.update(data)
        good += digest.digest() == model
    detail = "" if good == len(wanted) else f"{len(wanted) - good} models are damaged or missing"
    return Checked(training.name, "models", len(wanted), good, detail)


def _seed_of(connection: sa.Connection, row: Any) -> Checked:
    """Check that a training that is running has a seed, and no other one has."""
    seeds = schema.seeds
    query = sa.select(sa.func.count()).where(seeds.c.training == row.training)
    found, kept = int(connection.execute(query).scalar_one()), int(row.state == "running")
    detail = "" if found == kept else f"it is {row.state} and has {found} seeds"
    return Checked(row.training, "seed", kept, found, detail)
