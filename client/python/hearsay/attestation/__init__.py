"""Check an aggregator's evidence of the code that it runs, offline."""

from hearsay.attestation.claims import AttestationRefused, Claims, Condition, Evidence, binding
from hearsay.attestation.policy import Policy
from hearsay.attestation.testing import TestAttester

__all__ = [
    "AttestationRefused",
    "Claims",
    "Condition",
    "Evidence",
    "Policy",
    "TestAttester",
    "binding",
]
