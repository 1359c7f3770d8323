"""The files of models, in parts: those of trainings, and first ones that wait for theirs."""

import hashlib
from datetime import datetime

import sqlalchemy as sa

from hearsay.federated import models as files
from hearsay.federated.calls import PART
from hearsay.federated.declaration import Training
from hearsay.federated.parsing import MOST_PARAMETERS
from hearsay_server.storage import schema
from hearsay_server.storage.database import Database
from ldp.errors import InvalidInput

_models, _model_parts = schema.models, schema.model_parts

_DELETED = 64
"""Parts of models that one step deletes."""

_UNUSED = 24 * 3600
"""Seconds for which an uploaded model waits for its training."""


def put(
    database: Database, model: bytes, size: int, offset: int, data: bytes, now: datetime
) -> int:
    """Store a part of a first model; return the offset of the first byte that is missing.

    A part that does not begin there is not stored. Raises `InvalidInput` for a part that cannot be,
    and, with all of it forgotten, where the whole has another SHA-256.
    """
    if len(model) != 32:
        raise InvalidInput(f"a model is named by the 32 bytes of its SHA-256, got {len(model)}")
    most = files.largest(MOST_PARAMETERS)
    if not 0 < size <= most:
        raise InvalidInput(f"a model has 1 to {most:,} bytes, got {size:,}")
    if len(data) > PART or offset + len(data) > size:
        raise InvalidInput(
            f"a part has at most {PART:,} bytes and ends by byte {size:,}, got {len(data):,} from "
            f"byte {offset:,} on"
        )
    mine = _of(_models, "", model)
    with database.appending() as connection:
        row = {"training": "", "model": model, "size": size, "received": 0}
        new = database.insert(_models).on_conflict_do_nothing()
        connection.execute(new, {**row, "created": int(now.timestamp())})
        found = connection.execute(sa.select(_models).where(mine).with_for_update()).one()
        if found.size != size:
            raise InvalidInput(f"this model was begun with {found.size:,} bytes, not {size:,}")
        if offset != found.received or not data:
            return int(found.received)
        part = {"training": "", "model": model, "offset": offset, "data": data}
        connection.execute(sa.insert(_model_parts), part)
        received = offset + len(data)
        connection.execute(sa.update(_models).where(mine).values(received=received))
        if received < size or hashlib.sha256(whole(connection, "", model)).digest() == model:
            return received
        for table in (_model_parts, _models):
            connection.execute(sa.delete(table).where(_of(table, "", model)))
    raise InvalidInput(f"the {size:,} bytes that came have another SHA-256 than {model.hex()}")


def take(connection: sa.Connection, training: Training) -> None:
    """Give a first model that was uploaded to its training.

    Raises `InvalidInput` where it was not uploaded, or is not of the training's dimension.
    """
    uploaded = _of(_models, "", training.initial)
    found = connection.execute(sa.select(_models).where(uploaded)).one_or_none()
    if found is None or found.received < found.size:
        raise InvalidInput(
            f"initial: the model {training.initial.hex()} was not uploaded yet: upload it first"
        )
    files.read(whole(connection, "", training.initial), training.dimension)
    for table in (_models, _model_parts):
        mine = _of(table, "", training.initial)
        connection.execute(sa.update(table).where(mine).values(training=training.name))


def part(connection: sa.Connection, name: str, model: bytes, offset: int) -> tuple[bytes, int]:
    """Return at most `PART` bytes of a model from an offset on, and the bytes of the whole.

    None are returned at the end. Raises `InvalidInput` where the training has no such model, or the
    offset is beyond its end.
    """
    query = sa.select(_models.c.size).where(_of(_models, name, model))
    size = connection.execute(query).scalar_one_or_none()
    if size is None:
        raise InvalidInput(f"{name!r} has no model {model.hex() or 'of no name'}")
    if offset > size:
        raise InvalidInput(f"the model has {size:,} bytes, and the offset is {offset:,}")
    begin = (
        sa.select(_model_parts.c.offset, _model_parts.c.data)
        .where(_of(_model_parts, name, model), _model_parts.c.offset <= offset)
        .order_by(_model_parts.c.offset.desc())
        .limit(1)
    )
    found = connection.execute(begin).one()
    return found.data[offset - found.offset :], int(size)


def whole(connection: sa.Connection, name: str, model: bytes) -> bytes:
    """Return the whole file of a model of a training."""
    parts = sa.select(_model_parts.c.data).where(_of(_model_parts, name, model))
    return b"".join(connection.scalars(parts.order_by(_model_parts.c.offset)))


def store(
    database: Database, connection: sa.Connection, name: str, file: bytes, now: datetime
) -> bytes:
    """Store the file of a model of a training; return its SHA-256. It may be stored already."""
    model = hashlib.sha256(file).digest()
    row = {"training": name, "model": model, "size": len(file), "received": len(file)}
    insert = database.insert(_models).on_conflict_do_nothing()
    if connection.execute(insert, {**row, "created": int(now.timestamp())}).rowcount:
        key = {"training": name, "model": model}
        for offset in range(0, len(file), PART):
            data = file[offset : offset + PART]
            connection.execute(sa.insert(_model_parts), {**key, "offset": offset, "data": data})
    return model


def delete_parts(connection: sa.Connection, name: str) -> bool:
    """Delete some parts of models of a training; return whether there were any."""
    c = _model_parts.c
    some = sa.select(c.model, c.offset).where(c.training == name).limit(_DELETED)
    rows = connection.execute(some).all()
    this = (c.training == name, c.model == sa.bindparam("_m"), c.offset == sa.bindparam("_o"))
    if rows:
        keys = [{"_m": row.model, "_o": row.offset} for row in rows]
        connection.execute(sa.delete(_model_parts).where(*this), keys)
    return bool(rows)


def purge_uploads(database: Database, now: datetime) -> bool:
    """Delete the first models that nobody used for a day; return False: one call is enough."""
    old = sa.and_(_models.c.training == "", _models.c.created < int(now.timestamp()) - _UNUSED)
    with database.changing() as connection:
        for model in connection.scalars(sa.select(_models.c.model).where(old)).all():
            for table in (_model_parts, _models):
                connection.execute(sa.delete(table).where(_of(table, "", model)))
    return False


def _of(table: sa.Table, name: str, model: bytes) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.training == name, table.c.model == model)
