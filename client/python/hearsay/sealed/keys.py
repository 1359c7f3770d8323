"""The keys of a plan as other programs and people compare them.

Source: RFC 9458, "Oblivious HTTP", section 3: KeyConfig, and the list of them that has the type
application/ohttp-keys.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence

KEM_ID, KDF_ID, AEAD_ID = 0x0020, 0x0001, 0x0001
"""DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM, as RFC 9180 numbers them."""

_FINGERPRINT_DIGITS = 16


def key_config(place: int, public: bytes) -> bytes:
    """Return the KeyConfig of the X25519 key at a place of a plan, 0 to 255."""
    suites = struct.pack(">HH", KDF_ID, AEAD_ID)
    return struct.pack(">BH32sH", place, KEM_ID, public, len(suites)) + suites


def key_configs(publics: Sequence[bytes]) -> bytes:
    """Return all keys of a plan as application/ohttp-keys: each KeyConfig after its length."""
    return list_of(key_config(place, public) for place, public in enumerate(publics))


def list_of(configs: Iterable[bytes]) -> bytes:
    """Return KeyConfigs as application/ohttp-keys."""
    return b"".join(struct.pack(">H", len(config)) + config for config in configs)


def fingerprint(publics: Sequence[bytes]) -> str:
    """Return 16 hexadecimal digits that stand for all keys of a plan, for people to compare.

    They are the beginning of the SHA-256 of `key_configs`. The plan's revision stands for the
    keys, too, in full.
    """
    return hashlib.sha256(key_configs(publics)).hexdigest()[:_FINGERPRINT_DIGITS]
