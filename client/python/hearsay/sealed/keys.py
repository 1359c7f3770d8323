"""The keys of a plan as other programs and people compare them.

Source: RFC 9458, "Oblivious HTTP", section 3: KeyConfig, and the list of them that has the type
application/ohttp-keys.
"""

import hashlib
import struct
from collections.abc import Iterable

from hearsay.plans.sealing import Sealing

KEM_ID, KDF_ID, AEAD_ID = 0x0020, 0x0001, 0x0001
"""DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM, as RFC 9180 numbers them."""

_SCHEDULE = b"hearsay/v1/sealing\0"

_FINGERPRINT_DIGITS = 32


def key_config(place: int, public: bytes) -> bytes:
    """Return the KeyConfig of the X25519 key at a place of a plan, 0 to 255."""
    suites = struct.pack(">HH", KDF_ID, AEAD_ID)
    return struct.pack(">BH32sH", place, KEM_ID, public, len(suites)) + suites


def list_of(configs: Iterable[bytes]) -> bytes:
    """Return KeyConfigs as application/ohttp-keys."""
    return b"".join(struct.pack(">H", len(config)) + config for config in configs)


def fingerprint(sealing: Sealing) -> str:
    """Return 32 hexadecimal digits, in groups of four, that stand for the keys of a plan and their
    turns, for people to compare.

    Who makes two schedules needs 2^64 hashes to have both show the same digits. The plan's revision
    stands for the schedule, too, in full.
    """
    schedule = b"".join(
        struct.pack(">q32s", since, public)
        for since, public in zip(sealing.since, sealing.publics, strict=True)
    )
    digits = hashlib.sha256(_SCHEDULE + schedule).hexdigest()[:_FINGERPRINT_DIGITS]
    return " ".join(digits[place : place + 4] for place in range(0, len(digits), 4))
