"""Requests that a relay passes on and cannot read, and answers that it cannot read either.

Source: RFC 9458, "Oblivious HTTP", sections 3 and 4, by pyhpke, which is needed because a key is
exported from HPKE's context. The suite is `hpke`'s: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and
AES-128-GCM.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from hearsay.sealed.keys import AEAD_ID, KDF_ID, KEM_ID, key_config
from ldp import InvalidInput
from ldp.errors import needs

if TYPE_CHECKING:
    from pyhpke import CipherSuite, ContextInterface

PATH = "/.well-known/ohttp-gateway"
"""Where a gateway takes requests (RFC 9540, section 3)."""

KEYS_TYPE = "application/ohttp-keys"
REQUEST_TYPE = "message/ohttp-req"
RESPONSE_TYPE = "message/ohttp-res"

_HEAD = struct.Struct(">BHHH")
_ENCAPSULATED = 32
_KEY, _NONCE = 16, 12
_SALT = max(_KEY, _NONCE)


def check() -> None:
    """Raise `MissingExtra` without the package pyhpke."""
    _suite()


class Opener:
    """What the exchange of one request has for its answer: a secret, and the encapsulated key."""

    def __init__(self, encapsulated: bytes, context: ContextInterface) -> None:
        self._encapsulated = encapsulated
        self._secret = context.export(b"message/bhttp response", _SALT)

    def opened(self, answer: bytes) -> bytes:
        """Return what `sealed` got; raise `InvalidInput` where these bytes are not its."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key, nonce = self._derived(answer[:_SALT])
        try:
            return AESGCM(key).decrypt(nonce, answer[_SALT:], b"")
        except (InvalidTag, ValueError):
            raise InvalidInput("the answer is not what the gateway sealed") from None

    def sealed(self, message: bytes, salt: bytes | None = None) -> bytes:
        """Return an answer that the sender of the request alone can open; `salt` is for tests."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        salt = os.urandom(_SALT) if salt is None else salt
        key, nonce = self._derived(salt)
        return salt + AESGCM(key).encrypt(nonce, message, b"")

    def _derived(self, salt: bytes) -> tuple[bytes, bytes]:
        """Return the key and the nonce of an answer (RFC 9458, section 4.4)."""
        kdf = _suite().kdf
        extracted = kdf.extract(self._encapsulated + salt, self._secret)
        return kdf.expand(extracted, b"key", _KEY), kdf.expand(extracted, b"nonce", _NONCE)


def read_key(text: str) -> bytes:
    """Return a gateway's key (`keys.key_config`) from its hexadecimal digits.

    Raises `MissingExtra` without the package pyhpke, and `InvalidInput` for digits that are no key
    of this suite.
    """
    check()
    try:
        config = bytes.fromhex(text)
        place, public = config[0], config[3:35]
        if config == key_config(place, public):
            return config
    except (ValueError, IndexError, struct.error):
        pass
    raise InvalidInput(
        "a shuffler's key for requests through a relay has 82 hexadecimal digits, as `hearsay "
        f"shuffler key` prints it, got {text!r}"
    )


def encapsulated(config: bytes, message: bytes) -> tuple[bytes, Opener]:
    """Seal a request to a gateway's key, as `read_key` returns it; return it, and what opens the
    answer.

    Guarantee: without the key's private half nobody reads the request or the answer, or changes
    them unnoticed. Each call draws an ephemeral key. It does not say who sent it, and hides no
    length. Raises `InvalidInput` for a key with which everybody could read it.
    """
    suite = _suite()
    head = _HEAD.pack(config[0], KEM_ID, KDF_ID, AEAD_ID)
    public = suite.kem.deserialize_public_key(config[3:35])
    from pyhpke import PyHPKEError

    try:
        key, context = suite.create_sender_context(public, _info(head))
    except (PyHPKEError, ValueError) as error:
        raise InvalidInput(f"{config[3:35].hex()} is no X25519 key to seal to") from error
    return head + key + context.seal(message), Opener(key, context)


def names_a_key(request: bytes, privates: Mapping[int, bytes]) -> bool:
    """Tell whether a request names one of a gateway's keys, and the algorithms of this suite."""
    if len(request) < _HEAD.size:
        return False
    place, *suite_ids = _HEAD.unpack(request[: _HEAD.size])
    return place in privates and suite_ids == [KEM_ID, KDF_ID, AEAD_ID]


def decapsulated(request: bytes, privates: Mapping[int, bytes]) -> tuple[bytes, Opener]:
    """Open a request with the one of a gateway's keys that it names; return it, and what seals the
    answer.

    Raises `InvalidInput`, which does not say why, where it cannot be opened, or `names_a_key` says
    that its key is not there.
    """
    if not names_a_key(request, privates):
        raise InvalidInput("the request names a key or a suite that this gateway does not have")
    head, rest = request[: _HEAD.size], request[_HEAD.size :]
    suite = _suite()
    private = suite.kem.deserialize_private_key(privates[head[0]])
    key, sealed = rest[:_ENCAPSULATED], rest[_ENCAPSULATED:]
    from pyhpke import PyHPKEError

    try:
        context = suite.create_recipient_context(key, private, _info(head))
        message = context.open(sealed)
    except (PyHPKEError, ValueError):
        raise InvalidInput("the request cannot be opened with the key that it names") from None
    return message, Opener(key, context)


def _info(head: bytes) -> bytes:
    return b"message/bhttp request\0" + head


@lru_cache(maxsize=1)
def _suite() -> CipherSuite:
    with needs("requests through a relay", "ohttp"):
        from pyhpke import AEADId, CipherSuite, KDFId, KEMId
    return CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId.AES128_GCM)
