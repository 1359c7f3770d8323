"""What evidence is, what it claims, and the value that ties it to a key."""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from hearsay.plain import on_one_line
from ldp.errors import HearsayError, InvalidInput

KINDS = ("tdx", "sgx", "nitro", "test")

SEALING = b"sealing keys of the plan"
"""Stands for the keys in `binding` where records are sealed: the revision says which they are."""


class Condition(StrEnum):
    """The condition of a policy that evidence did not meet."""

    KIND = "kind"
    EVIDENCE = "evidence"
    """The signature, the chain or the collateral does not hold at this time."""
    DEBUG = "debug"
    STATUS = "status"
    MEASUREMENT = "measurement"
    BINDING = "binding"
    """The evidence is of another key, another plan, or another nonce (a replay)."""
    AGE = "age"


class AttestationRefused(HearsayError):
    """The evidence does not meet the app's policy; `condition` says in what."""

    def __init__(self, condition: Condition, message: str) -> None:
        # What a server sent may stand in it, signed by nobody.
        super().__init__(f"attestation refused ({condition}): {on_one_line(message)}")
        self.condition = condition


@dataclass(frozen=True)
class Evidence:
    """A quote or document, as the platform made it.

    `collateral` is the JSON of Intel's collateral for "tdx" and "sgx", and empty for the others.
    """

    kind: str
    document: bytes
    collateral: bytes = b""


@dataclass(frozen=True)
class Claims:
    """What verified evidence says. `made` is in seconds since 1970, None where it says no time."""

    kind: str
    measurement: str
    bound: bytes
    status: str
    debug: bool
    made: float | None = None
    advisories: tuple[str, ...] = ()


def binding(spki: bytes, revision: bytes, nonce: bytes) -> bytes:
    """Return the 64 bytes that evidence must carry as report_data or user_data.

    `spki` is the DER SubjectPublicKeyInfo of the TLS key, or `SEALING`. `revision` and `nonce` have
    32 bytes each, so that no two inputs are joined to the same bytes. Quotes of TDX and SGX have no
    other field for a nonce.
    """
    if not spki or len(revision) != 32 or len(nonce) != 32:
        raise InvalidInput(
            "a binding needs a key, a revision of 32 bytes and a nonce of 32 bytes, got "
            f"{len(spki)}, {len(revision)} and {len(nonce)} bytes"
        )
    return hashlib.sha512(b"\0".join((b"hearsay/v1/tee", spki, revision, nonce))).digest()
