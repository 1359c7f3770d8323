"""The key material in the database: which columns have it, and encrypting what is not yet.

A connection knows the keys that its database was opened with.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa

from hearsay_server.at_rest import NOT_ENCRYPTED, AtRest, KeyLost
from hearsay_server.storage import schema
from hearsay_server.storage.database import AT_REST, Database, said
from ldp.errors import InvalidInput, StorageFailed

_COLUMNS: dict[sa.Column[Any], str] = {
    schema.sealing_keys.c.private: "the sealing keys of {}: no record sealed to them can be opened",
    schema.seeds.c.seed: "the seed of {}: its rounds make no model",
    schema.round_keys.c.key: "the key of the newest round of {}: its updates cannot be read",
}
"""Each column of key material, and what is lost with the key that encrypts it."""


def seal(connection: sa.Connection, column: sa.Column[Any], secret: bytes, *row: object) -> bytes:
    """Return what to store of a secret in a column, in the row with this key."""
    return _keys(connection).seal(secret, str(column), *row)


def opened(connection: sa.Connection, column: sa.Column[Any], stored: bytes, *row: object) -> bytes:
    """Return the secret that is stored in the row with this key; raise as `AtRest.opened`."""
    return _keys(connection).opened(bytes(stored), str(column), *row)


def encrypt(database: Database) -> list[str]:
    """Encrypt under the first key what is stored as it is, or under another key.

    Returns what cannot be opened, and what is lost by it, where other keys than the one that it
    needs are given: it stays as it is. Raises `InvalidInput`, with nothing changed, where none is
    given: one server of several that has no key must not go on without.
    """
    try:
        lost, keys = _encrypt(database)
    except sa.exc.DatabaseError as error:
        raise StorageFailed(f"cannot encrypt the keys in the database: {said(error)}") from None
    if lost and not keys.keys:
        raise InvalidInput(
            "encryption_key is not set, and names the key of "
            f"{'; '.join(lost)}: set it as it was, or where the key is lost, to a new one"
        )
    return list(lost)


def _encrypt(database: Database) -> tuple[Iterable[str], AtRest]:
    """Do as `encrypt`; return the keys, too."""
    with database.reading() as connection:
        keys = _keys(connection)
        if all(keys.is_current(stored) for _, _, stored in _stored(connection)):
            return [], keys
    with database.changing() as connection:
        lost: dict[str, None] = {}
        for column, row, stored in list(_stored(connection)):
            try:
                secret = opened(connection, column, stored, *row.values())
            except KeyLost:
                lost[_COLUMNS[column].format(repr(next(iter(row.values()))))] = None
                continue
            if not keys.is_current(stored):
                this = [column.table.c[name] == value for name, value in row.items()]
                new = {column.name: seal(connection, column, secret, *row.values())}
                connection.execute(sa.update(column.table).where(*this).values(new))
    database.wipe()
    return lost, keys


def _keys(connection: sa.Connection) -> AtRest:
    keys: AtRest = connection.get_execution_options().get(AT_REST, NOT_ENCRYPTED)
    return keys


def _stored(connection: sa.Connection) -> Iterator[tuple[sa.Column[Any], dict[str, Any], bytes]]:
    """Yield each stored secret with its column and its row's key."""
    for column in _COLUMNS:
        key = list(column.table.primary_key)
        for row in connection.execute(sa.select(*key, column)).mappings():
            yield column, {each.name: row[each.name] for each in key}, bytes(row[column.name])
