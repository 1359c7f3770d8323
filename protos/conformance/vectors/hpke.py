"""HPKE written from RFC 9180 alone, in mode base with this project's suite: what a given ephemeral
key gives, which no library says. X25519 and AES-GCM are the package cryptography's."""

import hashlib
import hmac

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_KEM = b"KEM" + (0x0020).to_bytes(2, "big")
_SUITE = b"HPKE" + b"".join(each.to_bytes(2, "big") for each in (0x0020, 0x0001, 0x0001))


def sealed(message: bytes, public: bytes, info: bytes, ephemeral: bytes, aad: bytes = b"") -> bytes:
    """Seal with the ephemeral private key `ephemeral`; return the encapsulated key and the
    ciphertext (sections 4.1, 5.1 and 6.1)."""
    own = X25519PrivateKey.from_private_bytes(ephemeral)
    encapsulated = own.public_key().public_bytes_raw()
    agreed = own.exchange(X25519PublicKey.from_public_bytes(public))
    secret = _expand(
        _extract(b"", b"eae_prk", agreed, _KEM), b"shared_secret", encapsulated + public, 32, _KEM
    )
    context = b"\0" + b"".join(
        _extract(b"", label, value, _SUITE)
        for label, value in ((b"psk_id_hash", b""), (b"info_hash", info))
    )
    schedule = _extract(secret, b"secret", b"", _SUITE)
    key, nonce = (
        _expand(schedule, label, context, length, _SUITE)
        for label, length in ((b"key", 16), (b"base_nonce", 12))
    )
    return encapsulated + AESGCM(key).encrypt(nonce, message, aad)


def _extract(salt: bytes, label: bytes, secret: bytes, suite: bytes) -> bytes:
    return hmac.digest(salt or bytes(32), b"HPKE-v1" + suite + label + secret, "sha256")


def _expand(key: bytes, label: bytes, info: bytes, length: int, suite: bytes) -> bytes:
    labeled = length.to_bytes(2, "big") + b"HPKE-v1" + suite + label + info
    assert length <= hashlib.sha256().digest_size  # one block
    return hmac.digest(key, labeled + b"\1", "sha256")[:length]
