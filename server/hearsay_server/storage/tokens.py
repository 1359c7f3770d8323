"""The tokens of callers, kept as hashes, each with its role.

A token is 256 random bits, so its plain SHA-256 can neither be inverted nor guessed. The name of
a token (`id`) is no secret, and stays the same when the token is rotated.
"""

import hashlib
import hmac
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import sqlalchemy as sa

from hearsay.v1 import collector_pb2
from hearsay_server.ingest.intake import Reason, Refused
from hearsay_server.storage import audit, schema
from hearsay_server.storage.database import Database
from ldp import InvalidInput

ROLES = ("device", "shuffler", "leader", "analyst", "admin")

_PREFIX = "hearsay-"
"""The start of every token, by which people and scanners for leaked secrets recognise one."""

_ID_BYTES = 8

_DAY = 24 * 3600

_LATEST = 253_402_300_800
"""The first second, since 1970, of the year 10000, which dates do not reach."""

_tokens, _token_rows = schema.tokens, schema.token_rows
_KEY = [_token_rows.c.token, _token_rows.c.survey, _token_rows.c.period]
_Key = tuple[str, str, str]
_OVER = sa.select(*_KEY, _token_rows.c.rows).where(
    sa.tuple_(*_KEY).in_(sa.bindparam("keys", expanding=True)),
    _token_rows.c.rows > sa.bindparam("cap"),
)


@dataclass(frozen=True)
class Token:
    """The record of a token, without the token itself; times in seconds since 1970."""

    id: str
    role: str
    label: str
    created: float
    expires: float | None
    revoked: float | None = None
    used: int | None = None
    """The day of its last use, counted from 1970; None where none is recorded."""

    def state(self, now: float) -> Literal["works", "expired", "revoked"]:
        """Return the state at `now` (seconds since 1970)."""
        if self.revoked is not None:
            return "revoked"
        return "works" if self.expires is None or now < self.expires else "expired"

    def use_is_due(self, now: float) -> bool:
        """Tell whether a use at `now` is to be recorded: once a day.

        A device's is never: a token may be one person's, and the day would say when that person
        last took part.
        """
        due = self.state(now) == "works" and self.used != int(now) // _DAY
        return due and self.role != "device"


def hashed(text: str) -> bytes:
    """Return the SHA-256 of a token, which is stored in place of the token."""
    return hashlib.sha256(text.encode(errors="surrogateescape")).digest()


class Tokens:
    """The tokens of one database, which the caller opens and closes."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self.clock = clock

    def create(
        self, role: str, label: str = "", expires: float | None = None, caller: str | None = None
    ) -> tuple[Token, str]:
        """Make a token; return its record, and the token itself, which is kept nowhere.

        It works until `expires` (seconds since 1970), or without one until it is revoked.
        `caller` is the id of the token that asks for it, "" for nobody's; None where the user of
        this process does, as in all calls here.
        """
        if role not in ROLES:
            raise InvalidInput(f"a role is one of {', '.join(ROLES)}, got {role!r}")
        now = self.clock()
        _check_end(expires, now)
        with self._database.beside() as connection:
            token = Token(_free_id(connection), role, label, now, expires)
            _record(connection, "create token", token, caller)
            return token, _insert(connection, token)

    def list(self) -> list[Token]:
        """Return the records of all tokens, expired ones included, oldest first."""
        query = sa.select(_tokens).order_by(_tokens.c.created, _tokens.c.id)
        with self._database.reading() as connection:
            return [_token(row) for row in connection.execute(query)]

    def rotate(
        self, id_: str, grace: float, expires: float | None = None, caller: str | None = None
    ) -> tuple[Token, str]:
        """Make another token of the same id, role and label; the old end in `grace` seconds.

        Without `expires` the new one works for as long as the old one was made for. Raises
        `InvalidInput` where no token of that id works.
        """
        if not 0 <= grace < float("inf"):
            raise InvalidInput(f"the grace must be finite and >= 0 seconds, got {grace!r}")
        now = self.clock()
        _check_end(expires, now)
        with self._database.beside() as connection:
            old = _working(connection, id_, now)
            if expires is None and old.expires is not None:
                expires = now + (old.expires - old.created)
            still = sa.or_(_tokens.c.expires.is_(None), _tokens.c.expires > now + grace)
            end = sa.update(_tokens).where(_tokens.c.id == id_, still)
            connection.execute(end.values(expires=now + grace))
            token = Token(id_, old.role, old.label, now, expires)
            _record(connection, "rotate token", token, caller)
            return token, _insert(connection, token)

    def revoke(self, id_: str, caller: str | None = None) -> Token:
        """End a token and all it was rotated from, also on a full disk, which it may have filled.

        Raises `InvalidInput` where none works.
        """
        now = self.clock()
        with self._database.beside(on_a_full_disk=True) as connection:
            token = _working(connection, id_, now)
            all_ = sa.update(_tokens).where(_tokens.c.id == id_, _tokens.c.revoked.is_(None))
            connection.execute(all_.values(revoked=now))
            _record(connection, "revoke token", token, caller)
        return token

    def use(self, given: bytes) -> None:
        """Record that the token with this hash is used today, unless that is recorded."""
        today = int(self.clock()) // _DAY
        earlier = sa.or_(_tokens.c.used.is_(None), _tokens.c.used < today)
        with self._database.beside() as connection:
            token = sa.update(_tokens).where(_tokens.c.hash == given, earlier)
            connection.execute(token.values(used=today))

    def any(self) -> bool:
        """Tell whether a token was ever made: if so, callers are asked for one."""
        with self._database.reading() as connection:
            return connection.execute(sa.select(_tokens.c.hash).limit(1)).first() is not None

    def find(self, given: bytes) -> Token | None:
        """Return the record of the token with this hash, also of an ended one; None for none."""
        with self._database.reading() as connection:
            row = connection.execute(sa.select(_tokens).where(_tokens.c.hash == given)).first()
        # The time of the look-up by hash tells nothing: nobody can choose a hash's bytes.
        if row is None or not hmac.compare_digest(row.hash, given):
            return None
        return _token(row)


def charge(
    database: Database,
    connection: sa.Connection,
    sent: Sequence[tuple[str, collector_pb2.Batch]],
    cap: int,
) -> dict[int, Refused]:
    """Count batches' rows toward their tokens and periods, in the transaction that stores them.

    Returns, by position, refusals of batches that with the batches before them would exceed `cap`.
    Refused batches are not counted. A transaction that fails counts nothing, so that a batch
    counts as often as it is stored: once.
    """
    keys = [(token, batch.survey, batch.period) for token, batch in sent]
    added: defaultdict[_Key, int] = defaultdict(int)
    for key, (_, batch) in zip(keys, sent, strict=True):
        added[key] += batch.rows
    _count(database, connection, added)
    # Our rows are locked now: counts that others add meanwhile are not part of the totals.
    over = connection.execute(_OVER, {"keys": list(added), "cap": cap})
    left = {}  # the rows that were left of the cap, where more were sent
    for row in over:
        key = (row.token, row.survey, row.period)
        left[key] = cap - (row.rows - added[key])
    refused: dict[int, Refused] = {}
    back: defaultdict[_Key, int] = defaultdict(int)
    for position, (key, (_, batch)) in enumerate(zip(keys, sent, strict=True)):
        if key not in left:
            continue
        if batch.rows <= left[key]:
            left[key] -= batch.rows
            continue
        refused[position] = Refused(
            Reason.OVER_QUOTA,
            f"a device's token may send {cap} rows of {batch.survey!r} in {batch.period!r}, "
            f"and these {batch.rows} would exceed them",
        )
        back[key] -= batch.rows
    _count(database, connection, back)
    return refused


def _count(database: Database, connection: sa.Connection, more: Mapping[_Key, int]) -> None:
    rows = [  # always in the same order, so that two processes do not wait for each other
        (*key, more[key], 0) for key in sorted(more)
    ]
    if rows:
        database.change(connection, _counting(database.insert), rows)


@cache
def _counting(insert: Callable[[sa.Table], Any]) -> sa.ClauseElement:
    new = insert(_token_rows)
    more = {"rows": _token_rows.c.rows + new.excluded.rows}
    counted: sa.ClauseElement = new.on_conflict_do_update(index_elements=_KEY, set_=more)
    return counted


def _free_id(connection: sa.Connection) -> str:
    """Draw an id that no token has or had, since limits and revocations go by the id."""
    while True:
        id_ = secrets.token_hex(_ID_BYTES)
        if connection.execute(sa.select(_tokens.c.id).where(_tokens.c.id == id_)).first() is None:
            return id_


def _insert(connection: sa.Connection, token: Token) -> str:
    text = _PREFIX + secrets.token_urlsafe(32)
    connection.execute(sa.insert(_tokens), {**vars(token), "hash": hashed(text)})
    return text


def _working(connection: sa.Connection, id_: str, now: float) -> Token:
    query = sa.select(_tokens).where(_tokens.c.id == id_).order_by(_tokens.c.created.desc())
    tokens = map(_token, connection.execute(query))
    found = [token for token in tokens if token.state(now) == "works"]
    if not found:
        raise InvalidInput(f"there is no working token {id_!r}: see `hearsay token list`")
    return found[0]


def _check_end(expires: float | None, now: float) -> None:
    if expires is not None and not now < expires < _LATEST:
        raise InvalidInput(
            "a token must end in the future and before the year 10000, got "
            f"{expires - now:.0f} seconds from now"
        )


def _record(
    connection: sa.Connection, action: str, token: Token, caller: str | None = None
) -> None:
    """Write into the audit log what a caller, or the user of this process, does with a token."""
    detail = {"token": token.id, "role": token.role, "label": token.label}
    user = audit.this_user() if caller is None else ""
    audit.record(connection, action, token=caller or "", os_user=user, detail=detail)


def _token(row: sa.Row[tuple[object, ...]]) -> Token:
    return Token(row.id, row.role, row.label, row.created, row.expires, row.revoked, row.used)
