"""Sessions of the pages: who has a session's secret is let in as the token it was begun with.

The secret is 256 random bits, and only its plain SHA-256 is kept, as of tokens. A session ends
with its time, with a sign-out, and with its token: whoever looks one up asks whether that works.
"""

import secrets
import time
from collections.abc import Callable

import sqlalchemy as sa

from hearsay_server.storage import schema
from hearsay_server.storage.database import Database
from hearsay_server.storage.tokens import hashed

LASTS = 12 * 3600.0
"""Seconds that a session lasts."""

_MOST = 64
"""Sessions of one token; a newer one takes the place of the one that ends first."""

_sessions = schema.sessions


class Sessions:
    """The sessions of one database, which the caller opens and closes."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def begin(self, token: bytes) -> str:
        """Begin a session of the token with this hash; return its secret, which is kept nowhere."""
        secret = secrets.token_urlsafe(32)
        now = self._clock()
        newest = sa.select(_sessions.c.hash).where(_sessions.c.token == token)
        newest = newest.order_by(_sessions.c.expires.desc()).limit(_MOST - 1)
        with self._database.beside() as connection:
            connection.execute(sa.delete(_sessions).where(_sessions.c.expires <= now))
            kept = list(connection.scalars(newest))
            others = sa.and_(_sessions.c.token == token, _sessions.c.hash.not_in(kept))
            connection.execute(sa.delete(_sessions).where(others))
            row = {"hash": hashed(secret), "token": token, "expires": now + LASTS}
            connection.execute(sa.insert(_sessions), row)
        return secret

    def find(self, secret: str) -> bytes | None:
        """Return the hash of the token of a session; None where there is no such session.

        The time of the look-up by hash tells nothing: nobody can choose a hash's bytes.
        """
        query = sa.select(_sessions.c.token).where(
            _sessions.c.hash == hashed(secret), _sessions.c.expires > self._clock()
        )
        with self._database.reading() as connection:
            found: bytes | None = connection.execute(query).scalar_one_or_none()
        return found

    def end(self, secret: str) -> None:
        """End a session, if there is one."""
        session = sa.delete(_sessions).where(_sessions.c.hash == hashed(secret))
        with self._database.beside() as connection:
            connection.execute(session)
