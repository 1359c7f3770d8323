"""The app's policy: which evidence it accepts. What a server says of itself never counts."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hearsay.attestation import dcap, nitro, testing
from hearsay.attestation.claims import (
    KINDS,
    AttestationRefused,
    Claims,
    Condition,
    Evidence,
    binding,
)
from ldp.errors import InvalidInput

_log = logging.getLogger(__name__)
_DOCUMENT, _COLLATERAL = 1 << 16, 1 << 20
"""Bytes of evidence that are looked at. Real documents and quotes have about 5,000; what a server
sends is parsed before its signature is known."""

_AHEAD = 60.0
"""Seconds by which the clock of an enclave may be ahead."""


@dataclass(frozen=True)
class Policy:
    """Name the evidence that an app accepts.

    Arguments:
        measurements: for each kind that is accepted, its measurements in lower-case hex.
        statuses: the statuses of Intel's TCB that are accepted for "tdx" and "sgx".
        max_age: seconds; older Nitro and test evidence is refused.
        insecure_test_attestation: whether evidence of kind "test", which proves nothing, is
            accepted. It is logged each time.
        test_root: the TestAttester's root.
        nitro_root: SHA-256 of the root certificate in hex; AWS's, but in tests.

    Raises InvalidInput for a policy that accepts nothing, or a test without the flag.
    """

    measurements: Mapping[str, Collection[str]]
    statuses: Collection[str] = ("UpToDate",)
    max_age: float = 300.0
    insecure_test_attestation: bool = False
    test_root: bytes = b""
    nitro_root: str = nitro.AWS_ROOT

    def __post_init__(self) -> None:
        if not self.measurements or not set(self.measurements) <= set(KINDS):
            raise InvalidInput(f"measurements must have kinds of {KINDS}, got {self.kinds}")
        for kind, accepted in self.measurements.items():
            if isinstance(accepted, str) or not accepted:
                raise InvalidInput(f"measurements of {kind} must be a set of at least one")
        if isinstance(self.statuses, str):
            raise InvalidInput(f"statuses must be a collection of names, got {self.statuses!r}")
        if not 0 < self.max_age < float("inf"):
            raise InvalidInput(f"max_age must be finite and > 0, got {self.max_age}")
        if not isinstance(self.test_root, bytes):
            raise InvalidInput(
                "test_root must be bytes, bytes.fromhex(...) of the root that the server logs, got "
                f"{self.test_root!r}"
            )
        if "test" in self.measurements and not self.insecure_test_attestation:
            raise InvalidInput('kind "test" needs insecure_test_attestation=True')

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that are accepted."""
        return tuple(self.measurements)

    def check(
        self, evidence: Evidence, *, spki: bytes, revision: bytes, nonce: bytes, now: float
    ) -> Claims:
        """Return what the evidence says, if it meets every condition.

        `nonce` are 32 random bytes that the caller drew for this one question; `now` is in seconds
        since 1970. Raises AttestationRefused, whose `condition` is the first that failed.
        """
        expected = binding(spki, revision, nonce)
        if evidence.kind not in self.measurements:
            given = f"{evidence.kind!r} is none of the policy's kinds {self.kinds}"
            raise AttestationRefused(Condition.KIND, given)
        if len(evidence.document) > _DOCUMENT or len(evidence.collateral) > _COLLATERAL:
            most = f"a document has at most {_DOCUMENT:,} bytes, and collateral {_COLLATERAL:,}"
            raise AttestationRefused(Condition.EVIDENCE, most)
        claims = self._claims(evidence, now)
        failed = self._failed(claims, evidence.kind, expected, now)
        if failed is not None:
            raise AttestationRefused(*failed)
        if claims.kind == "test":
            _log.warning("test attestation accepted: it proves nothing of the server")
        return claims

    def _claims(self, evidence: Evidence, now: float) -> Claims:
        if evidence.kind == "test":
            return testing.verify(evidence, self.test_root)
        if evidence.kind == "nitro":
            return nitro.verify(evidence, now, self.nitro_root)
        return dcap.verify(evidence, now)

    def _failed(
        self, claims: Claims, kind: str, expected: bytes, now: float
    ) -> tuple[Condition, str] | None:
        if claims.kind != kind:
            return Condition.KIND, f"the evidence is {claims.kind}, and was sent as {kind}"
        if claims.debug:
            return Condition.DEBUG, "the enclave runs in debug mode: its host can read its memory"
        if kind in ("tdx", "sgx") and claims.status not in self.statuses:
            known = ", ".join(claims.advisories) or "none"
            return Condition.STATUS, f"{claims.status} (advisories: {known}) is not accepted"
        if claims.measurement not in self.measurements[kind]:
            return Condition.MEASUREMENT, f"{claims.measurement} is not accepted for {kind}"
        if claims.bound != expected:
            return Condition.BINDING, "made for another key, plan or nonce"
        if claims.made is not None and not -_AHEAD <= now - claims.made <= self.max_age:
            age = now - claims.made
            return Condition.AGE, f"made {age:.0f} s ago, and at most {self.max_age:g} s are taken"
        return None
