"""Parts of updates are stored encrypted, with a key of their round, so that it can be forgotten.

A round may have gigabytes of updates. To overwrite them takes longer than reports can wait for
the database, but to delete a key of 32 bytes takes no time, and then nobody can read them any more.
So the transaction that ends a round deletes its key; the encrypted bytes follow piece by piece. The
key lies in the same database: unless it is encrypted itself (see `key_material`), it hides nothing
from who reads that while the round lasts.
"""

import os
from typing import Any

import sqlalchemy as sa

from hearsay_server.storage import key_material, schema
from ldp.errors import StorageFailed

_keys = schema.round_keys

KEY_BYTES = 32
_NONCE_BYTES = 12


def new_key(connection: sa.Connection, training: str) -> None:
    """Draw the key of a training's next round, and delete the one of the round before."""
    drop_key(connection, training)
    drawn = key_material.seal(connection, _keys.c.key, os.urandom(KEY_BYTES), training)
    connection.execute(sa.insert(_keys), {"training": training, "key": drawn})


def drop_key(connection: sa.Connection, training: str) -> None:
    """Delete the key of a training's round: nobody can read its updates any more."""
    connection.execute(sa.delete(_keys).where(_keys.c.training == training))


def key(connection: sa.Connection, training: str) -> bytes:
    """Return the key of a training's round.

    Raises `StorageFailed` where it is over, and `KeyLost` as `key_material.opened`.
    """
    query = sa.select(_keys.c.key).where(_keys.c.training == training)
    found = connection.execute(query).scalar_one_or_none()
    if found is None:
        raise StorageFailed(f"the round of {training!r} is over, and its updates are gone")
    return key_material.opened(connection, _keys.c.key, found, training)


def seal(key: bytes, data: bytes) -> bytes:
    """Encrypt a part, by AES-256-GCM with a random nonce that stands before it."""
    nonce = os.urandom(_NONCE_BYTES)
    sealed: bytes = _cipher(key).encrypt(nonce, data, None)
    return nonce + sealed


def opened(key: bytes, sealed: bytes) -> bytes:
    """Decrypt a part; raise `StorageFailed` where a byte of it is changed or missing."""
    from cryptography.exceptions import InvalidTag

    try:
        data: bytes = _cipher(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], None)
    except (InvalidTag, ValueError):
        raise StorageFailed("a stored part of an update is damaged") from None
    return data


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
