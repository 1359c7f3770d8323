"""The updates of devices: taking parts of them, and counting each whole one once.

An update counts in the transaction that marks it counted and adds one to its round, which never
has more than `updates_per_round`. Its bytes were checked before that. A round that is full closes
in the same transaction.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from hearsay.federated.declaration import Training
from hearsay.federated.parsing import parse
from hearsay.v1 import collector_pb2, trainer_pb2
from hearsay_server.limits import TooMany
from hearsay_server.storage import rounds, schema, sealing
from hearsay_server.storage.database import Database
from hearsay_server.storage.trainings import PRESENT

Status = collector_pb2.Result
Part = trainer_pb2.SubmitUpdateRequest

_trainings, _rounds = schema.trainings, schema.rounds
_updates, _parts = schema.updates, schema.update_parts

ID_BYTES = 16

_UNFINISHED = 1 << 30
"""Most bytes of updates that are not whole, in one round; at least `_LEAST` updates fit."""

_UNFINISHED_OF_ONE = 64 << 20
"""Most of these bytes that one token sent; at least two updates fit."""

_LEAST = 16

_RETRY = 30.0
"""Seconds after which a device whose part found no room may come again."""

_TRIES = 5


@dataclass(frozen=True)
class Outcome:
    """What became of a part: a status, why it was refused, and the first byte that is missing."""

    status: Status.Status
    refusal: trainer_pb2.Refusal = trainer_pb2.REFUSAL_UNSPECIFIED
    detail: str = ""
    next: int = 0


@dataclass(frozen=True)
class Place:
    """The newest round of a training, and the known state of one update of it."""

    training: Training
    running: bool
    round: int
    open: bool
    updates: int
    deadline: int
    model: bytes
    known: Any
    """The row of the update's id, or None."""

    @property
    def received(self) -> int:
        """The bytes of the update that are stored."""
        return 0 if self.known is None else int(self.known.received)


class _Changed(Exception):
    """Something changed since it was looked at: look again."""


def refused(refusal: trainer_pb2.Refusal, detail: str) -> Outcome:
    """Return the outcome of an update that will never be taken."""
    return Outcome(Status.REFUSED, refusal, detail)


def look(database: Database, part: Part, now: datetime) -> Outcome | Place:
    """Return what becomes of a part without writing, or the place where it is to be stored."""
    with database.reading() as connection:
        return _place(connection, part, now)


def _place(
    connection: sa.Connection, part: Part, now: datetime, *, lock: bool = False
) -> Outcome | Place:
    """Find a part's place; with `lock` its round cannot close before this transaction ends."""
    query = (
        sa.select(_trainings.c.declared, _trainings.c.state.label("is"), _rounds)
        .join(_rounds, schema.NEWEST)
        .where(_trainings.c.training == part.training, PRESENT)
    )
    if lock:
        query = query.with_for_update(read=True, of=_rounds)
    row = connection.execute(query).one_or_none()
    if row is None:
        detail = f"there is no training {part.training!r} here"
        return refused(trainer_pb2.UNKNOWN_TRAINING, detail)
    place = Place(
        training=parse(row.declared),
        running=getattr(row, "is") == "running",
        round=row.round,
        open=row.state == "open" and now.timestamp() < row.deadline,
        updates=row.updates,
        deadline=row.deadline,
        model=row.model,
        known=connection.execute(sa.select(_updates).where(_mine(part))).one_or_none(),
    )
    return _judged(place, part) or place


def _judged(place: Place, part: Part) -> Outcome | None:
    """Return the outcome of a part that is not to be stored; None for others."""
    training, known = place.training, place.known
    if part.revision != training.revision:
        detail = (
            f"{training.name!r} is at revision {training.revision.hex()[:12]}, got "
            f"{part.revision.hex()[:12] or 'none'}"
        )
        return refused(trainer_pb2.OTHER_REVISION, detail)
    if known is not None and known.round != part.round:
        detail = f"an update of round {known.round} has this id, and this one is of {part.round}"
        return refused(trainer_pb2.BAD_UPDATE_ID, detail)
    if known is not None and known.counted:
        return Outcome(Status.DUPLICATE, next=part.size)
    if part.round > place.round and place.running:
        return Outcome(Status.RETRY, detail=f"the newest round is {place.round}")
    if part.round != place.round or not place.open:
        full = part.round == place.round and place.updates >= training.updates_per_round
        return _full(training) if full else _closed(part.round)
    if part.model != place.model:
        detail = f"round {part.round} is of the model {place.model.hex()[:12]}"
        return refused(trainer_pb2.OTHER_MODEL, detail)
    return None


def _closed(number: int) -> Outcome:
    return refused(trainer_pb2.ROUND_CLOSED, f"round {number} takes no updates")


def _full(training: Training) -> Outcome:
    detail = f"the round has its {training.updates_per_round} updates already"
    return refused(trainer_pb2.ROUND_FULL, detail)


def add_part(database: Database, part: Part, caller: str, now: datetime) -> Outcome:
    """Store a part of an update; RETRY says the first byte that is missing, REFUSED why not.

    A part that does not begin there is not stored. Raises `TooMany` where unfinished updates take
    too much room: of all callers, or of `caller` (the id of a token, "" for none).
    """
    with database.appending() as connection:
        place = _place(connection, part, now, lock=True)
        if isinstance(place, Outcome):
            return place
        received = place.received
        if part.offset != received or not part.data:
            return Outcome(Status.RETRY, next=received)
        _check_room(connection, part, caller)
        key = {"training": part.training, "id": part.id}
        new = {**key, "round": part.round, "counted": False, "received": 0, "caller": caller}
        if place.known is None:
            connection.execute(database.insert(_updates).on_conflict_do_nothing(), new)
        end = received + len(part.data)
        first = sa.update(_updates).where(_mine(part), _updates.c.received == received)
        if connection.execute(first.values(received=end)).rowcount:
            _insert_part(connection, part, received)
            received = end
    return Outcome(Status.RETRY, next=received)


def _check_room(connection: sa.Connection, part: Part, caller: str) -> None:
    c = _updates.c
    mine = sa.case((c.caller == caller, c.received), else_=0)
    here = c.training == part.training, c.round == part.round, sa.not_(c.counted)
    sums = sa.select(sa.func.sum(c.received), sa.func.sum(mine)).where(*here)
    whole, own = (int(found or 0) for found in connection.execute(sums).one())
    limits = [(whole, max(_UNFINISHED, _LEAST * part.size), "the round")]
    if caller:
        limits.append((own, max(_UNFINISHED_OF_ONE, 2 * part.size), "this token"))
    for held, most, whose in limits:
        if held + len(part.data) > most:
            detail = f"unfinished updates of {whose} have {held:,} bytes of {most:,} already"
            raise TooMany(detail, "parts", _RETRY)


def forget(database: Database, part: Part) -> None:
    """Delete an update that was not counted."""
    begun = sa.delete(_updates).where(_mine(part), sa.not_(_updates.c.counted))
    with database.appending() as connection:
        if connection.execute(begun).rowcount:
            _delete_parts(connection, part)


def count(database: Database, part: Part, now: datetime) -> Outcome:
    """Count an update whose bytes were checked: `part` is the whole of it, or its last part.

    STORED, once: the round then has one update more, and closes where it is full.
    """
    for _ in range(_TRIES):
        try:
            with database.appending() as connection:
                return _count(database, connection, part, now)
        except _Changed:
            continue
    raise RuntimeError(f"the update changed {_TRIES} times while it was counted")


def _count(database: Database, connection: sa.Connection, part: Part, now: datetime) -> Outcome:
    place = _place(connection, part, now)
    if isinstance(place, Outcome):
        return place
    c, training = _rounds.c, place.training
    room = c.state == "open", c.updates < training.updates_per_round, c.deadline > now.timestamp()
    one_more = sa.update(_rounds).where(c.training == part.training, c.round == part.round, *room)
    # First of all writes: it holds the round's row, so that the round cannot close meanwhile.
    if not connection.execute(
        one_more.values(updates=c.updates + 1, bytes=c.bytes + part.size)
    ).rowcount:
        raise _Changed
    if len(part.data) == part.size:
        _insert_whole(database, connection, part, place)
    else:
        u = _updates.c
        mark = sa.update(_updates).where(_mine(part), u.received == part.size, sa.not_(u.counted))
        if not connection.execute(mark.values(counted=True, caller="")).rowcount:
            raise _Changed
    # Of two at once the second saw the row before the first changed it; the row itself knows.
    here = sa.select(c.updates).where(c.training == part.training, c.round == part.round)
    if connection.execute(here).scalar_one() >= training.updates_per_round:
        rounds.close_in(connection, training, part.round, now)
    return Outcome(Status.STORED, next=part.size)


def _insert_whole(database: Database, connection: sa.Connection, part: Part, place: Place) -> None:
    key = {"training": part.training, "id": part.id}
    if place.known is not None:  # begun in parts, and sent again as one
        begun = sa.delete(_updates).where(_mine(part), sa.not_(_updates.c.counted))
        if not connection.execute(begun).rowcount:
            raise _Changed
        _delete_parts(connection, part)
    row = {**key, "round": part.round, "counted": True, "received": part.size, "caller": ""}
    if not connection.execute(database.insert(_updates).on_conflict_do_nothing(), row).rowcount:
        raise _Changed
    _insert_part(connection, part, 0)


def _insert_part(connection: sa.Connection, part: Part, offset: int) -> None:
    sealed = sealing.seal(sealing.key(connection, part.training), part.data)
    row = {"training": part.training, "round": part.round, "id": part.id}
    connection.execute(sa.insert(_parts), {**row, "offset": offset, "data": sealed})


def _delete_parts(connection: sa.Connection, part: Part) -> None:
    mine = (
        _parts.c.training == part.training,
        _parts.c.round == part.round,
        _parts.c.id == part.id,
    )
    connection.execute(sa.delete(_parts).where(*mine))


def _mine(part: Part) -> sa.ColumnElement[bool]:
    """Return the condition of the update that a part is of."""
    return sa.and_(_updates.c.training == part.training, _updates.c.id == part.id)
