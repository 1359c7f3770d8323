"""Evidence of kind "test": signed by a key that a test made, it proves nothing of a machine."""

import json
from typing import Any

from hearsay.attestation.claims import AttestationRefused, Claims, Condition, Evidence
from ldp.errors import needs


class TestAttester:
    """Sign evidence of kind "test" by a fresh Ed25519 key, whose public half is `root`."""

    __test__ = False  # no class of tests, for pytest

    def __init__(self, measurement: str = "test") -> None:
        with needs("attestation", "attestation"):
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key: Any = Ed25519PrivateKey.generate()
        self._measurement = measurement
        self.root: bytes = self._key.public_key().public_bytes_raw()

    def evidence(self, bound: bytes, now: float) -> Evidence:
        """Return signed evidence that carries `bound`, made at `now` (seconds since 1970)."""
        said = {"kind": "test", "measurement": self._measurement, "bound": bound.hex(), "made": now}
        body = json.dumps(said).encode()
        return Evidence("test", self._key.sign(body) + body)


def verify(evidence: Evidence, root: bytes) -> Claims:
    """Return what test evidence says. Raises AttestationRefused where `root` did not sign it."""
    with needs("attestation", "attestation"):
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    signature, body = evidence.document[:64], evidence.document[64:]
    try:
        Ed25519PublicKey.from_public_bytes(root).verify(signature, body)
    except (InvalidSignature, ValueError) as error:
        raise AttestationRefused(Condition.EVIDENCE, "not signed by the test root") from error
    said = json.loads(body)
    bound = bytes.fromhex(said["bound"])
    return Claims("test", said["measurement"], bound, status="", debug=False, made=said["made"])
