"""Encryption of key material at rest, under a key that an operator keeps elsewhere.

Key material is what opens or takes back what is protected otherwise: private halves of keys, seeds
of noise, keys of rounds. AES-256-GCM of the library `cryptography` encrypts each with a random
nonce; its associated data name the column and the row, so that none can stand in another's place.
What is stored begins with a mark and with which key it needs; what does not was stored as it is, by
an earlier version or without a key, and is read all the same.
"""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ldp.errors import InvalidInput, StorageFailed

_MARK = b"hrsy:gcm"
"""32 random bytes begin so once in 2**64 times."""

KEY_BYTES = 32
_ID_BYTES, _NONCE_BYTES = 8, 12
_HEAD = len(_MARK) + _ID_BYTES


class KeyLost(StorageFailed):
    """Key material is encrypted under a key that this process was not given."""


@dataclass(frozen=True)
class AtRest:
    """The keys that key material is encrypted under: the first encrypts, and each decrypts.

    Without any it is stored as it is.
    """

    keys: tuple[bytes, ...] = field(default=(), repr=False)

    def seal(self, secret: bytes, *place: object) -> bytes:
        """Return what to store of a secret in a place: a column's name, and a row's key."""
        if not self.keys:
            return secret
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        sealed: bytes = AESGCM(self.keys[0]).encrypt(nonce, secret, _bound(place))
        return _MARK + key_id(self.keys[0]) + nonce + sealed

    def opened(self, stored: bytes, *place: object) -> bytes:
        """Return the secret that is stored in a place.

        Raises `KeyLost` where none of the keys is the one that it needs, and `StorageFailed` where
        a byte was changed, or it is another place's.
        """
        if not stored.startswith(_MARK):
            return stored
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        needed = stored[len(_MARK) : _HEAD]
        key = next((key for key in self.keys if key_id(key) == needed), None)
        if key is None:
            raise KeyLost(
                f"{_named(place)} is encrypted under the key {needed.hex()}, which encryption_key "
                + ("does not hold" if self.keys else "must name: it is not set")
            )
        sealed = stored[_HEAD:]
        try:
            secret: bytes = AESGCM(key).decrypt(
                sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _bound(place)
            )
        except (InvalidTag, ValueError):
            raise StorageFailed(f"{_named(place)} is damaged, or not the one of its row") from None
        return secret

    def is_current(self, stored: bytes) -> bool:
        """Tell whether this is stored as `seal` would store it."""
        if not self.keys:
            return not stored.startswith(_MARK)
        return stored.startswith(_MARK + key_id(self.keys[0]))


NOT_ENCRYPTED = AtRest()


def key_id(key: bytes) -> bytes:
    """Return what tells a key from others, and tells nothing of it."""
    return hashlib.sha256(b"hearsay: which key" + key).digest()[:_ID_BYTES]


def read(file: Path | None, where: Path | str) -> AtRest:
    """Read a file of keys, one a line in 64 hex digits; None is for no encryption.

    `where` is the folder, or the URL of the database, whose content they protect. Raises
    `InvalidInput` where the file cannot be read, holds anything else, or lies in that folder.
    """
    if file is None:
        return NOT_ENCRYPTED
    if isinstance(where, Path) and file.resolve().is_relative_to(where.resolve()):
        raise InvalidInput(
            f"encryption_key {file} lies in the folder {where}, whose keys it encrypts: who reads "
            "the folder would have both; keep it elsewhere"
        )
    try:
        lines = file.read_bytes().decode("ascii").split()
        keys = tuple(bytes.fromhex(line) for line in lines)
    except OSError as error:
        raise InvalidInput(f"cannot read encryption_key {file}: {error.strerror}") from None
    except ValueError:
        keys = ()
    if not keys or any(len(key) != KEY_BYTES for key in keys):  # what is wrong is not quoted
        raise InvalidInput(
            f"encryption_key {file} must hold keys of {2 * KEY_BYTES} hex digits, each on a line: "
            "make one with `openssl rand -hex 32`"
        )
    return AtRest(keys)


def _bound(place: Sequence[object]) -> bytes:
    """Return a place as associated data: names have no NUL, so no two places are alike."""
    return "\0".join(map(str, place)).encode()


def _named(place: Sequence[object]) -> str:
    column, *row = map(str, place)
    return f"{column} of {' '.join(map(repr, row))}" if row else column
