"""HPKE as this project uses it, by the package cryptography: one suite, mode base, single-shot.

Source: RFC 9180, "Hybrid Public Key Encryption", with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and
AES-128-GCM, all of which browsers have too.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from ldp import InvalidInput
from ldp.errors import needs

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.hpke import Suite

OVERHEAD_BYTES = 32 + 16
"""Bytes of the encapsulated key and of the cipher's tag."""


def new_pair() -> tuple[bytes, bytes]:
    """Draw a key pair; return its private and its public half, 32 bytes each."""
    _suite()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    private = X25519PrivateKey.generate()
    return private.private_bytes_raw(), private.public_key().public_bytes_raw()


def private_key(data: bytes) -> X25519PrivateKey:
    """Return the private half of a key, for `decrypted`; raise `InvalidInput` unless 32 bytes."""
    _suite()
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

    try:
        return X25519PrivateKey.from_private_bytes(data)
    except ValueError as error:
        raise InvalidInput(f"a private key has 32 bytes, got {len(data)}") from error


def encrypted(message: bytes, public: bytes, info: bytes) -> bytes:
    """Return the encapsulated key and the ciphertext of a message, bound to `info`.

    Raises `InvalidInput` for a public key with which everybody could decrypt (RFC 9180, 7.1.4).
    """
    try:
        return _suite().encrypt(message, _public(public), info)
    except ValueError as error:
        raise InvalidInput(f"{public.hex()} is no X25519 key that can be sealed to") from error


def decrypted(sealed: bytes, private: X25519PrivateKey, info: bytes) -> bytes:
    """Return what `encrypted` got; raise `InvalidInput`, which does not say why, where it cannot
    have been these bytes, this key and this `info`."""
    suite = _suite()
    from cryptography.exceptions import InvalidTag

    try:
        return suite.decrypt(sealed, private, info)
    except (InvalidTag, ValueError):
        raise InvalidInput(
            "it cannot be opened: it is damaged, or was sealed to another key, or for another "
            "survey, plan or period"
        ) from None


@lru_cache(maxsize=1)
def _suite() -> Suite:
    with needs("sealing records", "sealed"):
        from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
    return Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


@lru_cache(maxsize=256)
def _public(data: bytes) -> X25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

    return X25519PublicKey.from_public_bytes(data)
