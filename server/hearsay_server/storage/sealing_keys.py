"""The private halves of a survey's sealing keys, each until its periods were over for 60 days.

A key that is deleted opens no record any more, whoever kept sealed records. It stays so long also
where an admin closed its periods earlier: requests to forget are sealed to the key of the period in
which they are made, and wait at a shuffler. The last key has no last period, and neither has the
only one of a survey without periods: they stay until the survey was closed for 60 days.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from hearsay.plans import period
from hearsay.plans.plan import Plan
from hearsay.sealed import hpke
from hearsay_server.ingest.intake import GRACE, NEVER, ends
from hearsay_server.storage import key_material, schema
from hearsay_server.storage.database import Database

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

_keys, _surveys = schema.sealing_keys, schema.surveys

_FRESH = 60.0
"""Seconds for which keys are remembered: another process may delete them."""


def insert(connection: sa.Connection, plan: Plan, privates: Sequence[bytes]) -> None:
    """Store the private halves of a new survey's keys, in the order of its plan: those that records
    are sealed to, or with two servers that of the server that leads."""
    rows: list[dict[str, object]] = [
        {"survey": plan.survey, "place": place, "until": _until(plan, place)}
        for place in range(len(privates))
    ]
    for place, private in enumerate(privates):
        sealed = key_material.seal(connection, _keys.c.private, private, plan.survey, place)
        rows[place]["private"] = sealed
    connection.execute(sa.insert(_keys), rows)


def _until(plan: Plan, place: int) -> int:
    """Return the end of a key's last period, in Unix time; `NEVER` where there is none."""
    if not (plan.sealing and plan.period and place + 1 < len(plan.sealing.publics)):
        return NEVER
    # The last period that begins before the next key's turn.
    turn = datetime.fromtimestamp(plan.sealing.since[place + 1], UTC)
    return ends(plan.period, period.label(plan.period, turn - timedelta(seconds=1)))


def lacking(keys: Keys, plan: Plan, now: datetime) -> list[int]:
    """Return the places of the plan's keys whose private half should be here and is not.

    Those alone whose last period has been over for 60 days may be gone. May wait for the database.
    """
    publics = () if plan.sealing is None else plan.sealing.publics
    held = {
        place: private.public_key().public_bytes_raw() for place, private in keys.of(plan).items()
    }
    passed = int((now - GRACE).timestamp())
    return [
        place
        for place, public in enumerate(publics)
        if held.get(place) != public and not (place not in held and _until(plan, place) <= passed)
    ]


def end(connection: sa.Connection, survey: str, until: int) -> None:
    """Let the last period of all keys of a survey that is closed for good end at a moment, in
    seconds since 1970."""
    mine = sa.update(_keys).where(_keys.c.survey == survey, _keys.c.until > until)
    connection.execute(mine.values(until=until))


def over(now: datetime) -> sa.ColumnElement[bool]:
    """Return the condition that a key's periods were over for 60 days and are closed, or its survey
    is gone."""
    closed = sa.select(_surveys.c.closed_before).where(
        _surveys.c.survey == _keys.c.survey, sa.not_(_surveys.c.deleted)
    )
    before = sa.func.coalesce(closed.scalar_subquery(), NEVER)
    gone = sa.not_(sa.exists(closed))
    passed = int((now - GRACE).timestamp())
    return sa.or_(gone, sa.and_(_keys.c.until <= before, _keys.c.until <= passed))


def delete(database: Database, now: datetime) -> bool:
    """Delete the keys that are `over`, and empty the log of what was deleted; return False: one
    call is enough. Where the log is in use it is emptied by a later call."""
    with database.changing() as connection:
        connection.execute(sa.delete(_keys).where(over(now)))
    database.wipe()
    return False


def drop(connection: sa.Connection, survey: str) -> None:
    """Delete all keys of a survey."""
    connection.execute(sa.delete(_keys).where(_keys.c.survey == survey))


class Keys:
    """The private keys of a database's surveys, as this process remembers them for a minute."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[bytes, tuple[float, dict[int, X25519PrivateKey]]] = {}

    def of(self, plan: Plan) -> dict[int, X25519PrivateKey]:
        """Return the keys of a plan by place, without those that were deleted. May wait for the
        database. Raises `KeyLost` where they are encrypted under a key that is not here."""
        now = time.monotonic()
        known = self._known.get(plan.revision)
        if known is not None and now < known[0] + _FRESH:
            return known[1]
        query = sa.select(_keys.c.place, _keys.c.private).join(
            _surveys, sa.and_(_surveys.c.survey == _keys.c.survey, sa.not_(_surveys.c.deleted))
        )
        mine = query.where(_keys.c.survey == plan.survey, _surveys.c.revision == plan.revision)
        with self._database.reading() as connection:
            found = {
                row.place: hpke.private_key(
                    key_material.opened(
                        connection, _keys.c.private, row.private, plan.survey, row.place
                    )
                )
                for row in connection.execute(mine)
            }
        # Whole, since other threads read it and write it, too.
        known_now = {r: kept for r, kept in [*self._known.items()] if now < kept[0] + _FRESH}
        self._known = known_now | {plan.revision: (now, found)}
        return found
