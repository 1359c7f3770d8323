"""The app's policy for evidence, each condition by a document that fails in it alone."""

import hashlib
import logging
import random
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from nitro_documents import NOW, Signer, certificate

from hearsay.attestation import (
    AttestationRefused,
    Condition,
    Evidence,
    Policy,
    TestAttester,
    binding,
)
from ldp.errors import InvalidInput

SPKI, REVISION, NONCE = b"key", b"r" * 32, b"n" * 32
BOUND = binding(SPKI, REVISION, NONCE)
MEASURED = hashlib.sha384(b"\1" * 48 + b"\2" * 48 + b"\3" * 48).hexdigest()


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


def _check(policy: Policy, evidence: Evidence, **changed: Any) -> Any:
    asked = {"spki": SPKI, "revision": REVISION, "nonce": NONCE, "now": NOW} | changed
    return policy.check(evidence, **asked)


def _refusal(policy: Policy, evidence: Evidence, **changed: Any) -> Condition:
    with pytest.raises(AttestationRefused) as refused:
        _check(policy, evidence, **changed)
    assert refused.value.condition in str(refused.value)
    return refused.value.condition


def _nitro(signer: Signer, measurement: str = MEASURED) -> Policy:
    return Policy({"nitro": {measurement}}, nitro_root=signer.root)


def test_a_nitro_document_that_meets_the_policy_is_accepted(signer: Signer) -> None:
    claims = _check(_nitro(signer), Evidence("nitro", signer.document(BOUND)))
    assert claims.measurement == MEASURED
    assert claims.made == NOW


@pytest.mark.parametrize(
    "changed", [{"spki": b"other"}, {"revision": b"o" * 32}, {"nonce": b"o" * 32}]
)
def test_another_key_or_plan_or_a_replayed_nonce_is_refused(
    signer: Signer, changed: dict[str, bytes]
) -> None:
    evidence = Evidence("nitro", signer.document(BOUND))
    assert _refusal(_nitro(signer), evidence, **changed) == Condition.BINDING


def test_a_wrong_measurement_a_debug_enclave_and_stale_documents_are_refused(
    signer: Signer,
) -> None:
    policy, good = _nitro(signer), Evidence("nitro", signer.document(BOUND))
    assert _refusal(_nitro(signer, "00"), good) == Condition.MEASUREMENT
    debug = Evidence("nitro", signer.document(BOUND, pcr0=bytes(48)))
    assert _refusal(policy, debug) == Condition.DEBUG
    assert _refusal(policy, good, now=NOW + 301) == Condition.AGE
    assert _refusal(policy, good, now=NOW - 61) == Condition.AGE


def test_an_expired_chain_another_root_and_an_issuer_that_is_none_are_refused(
    signer: Signer,
) -> None:
    policy, good = _nitro(signer), Evidence("nitro", signer.document(BOUND))
    assert _refusal(policy, good, now=NOW + 7201) == Condition.EVIDENCE
    assert _refusal(_nitro(Signer()), good) == Condition.EVIDENCE
    assert _refusal(Policy({"nitro": {MEASURED}}), good) == Condition.EVIDENCE
    other = Signer(authority=False)
    evidence = Evidence("nitro", other.document(BOUND))
    assert _refusal(_nitro(other), evidence) == Condition.EVIDENCE


def test_one_flipped_byte_anywhere_is_refused(signer: Signer) -> None:
    document = signer.document(BOUND)
    for place in random.Random(1).sample(range(len(document)), 150):
        flipped = bytearray(document)
        flipped[place] ^= 1
        _refusal(_nitro(signer), Evidence("nitro", bytes(flipped)))


@pytest.mark.parametrize("end", [0, 1, 100, -1])
def test_a_truncated_document_is_refused(signer: Signer, end: int) -> None:
    evidence = Evidence("nitro", signer.document(BOUND)[:end])
    assert _refusal(_nitro(signer), evidence) == Condition.EVIDENCE


def test_bytes_after_a_document_are_refused(signer: Signer) -> None:
    evidence = Evidence("nitro", signer.document(BOUND) + b"\0")
    assert _refusal(_nitro(signer), evidence) == Condition.EVIDENCE


def test_test_evidence_needs_the_flag_and_is_logged_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    attester = TestAttester()
    evidence = attester.evidence(BOUND, NOW)
    with pytest.raises(InvalidInput, match="insecure_test_attestation"):
        Policy({"test": {"test"}}, test_root=attester.root)
    with pytest.raises(InvalidInput, match=r"bytes\.fromhex"):  # as the server's log has it
        Policy(
            {"test": {"test"}},
            insecure_test_attestation=True,
            test_root=attester.root.hex(),  # type: ignore[arg-type]
        )
    policy = Policy({"test": {"test"}}, insecure_test_attestation=True, test_root=attester.root)
    with caplog.at_level(logging.WARNING):
        assert _check(policy, evidence).kind == "test"
        _check(policy, evidence)
    assert caplog.text.count("test attestation accepted") == 2
    foreign = TestAttester().evidence(BOUND, NOW)
    assert _refusal(policy, foreign) == Condition.EVIDENCE


def test_a_kind_that_the_policy_does_not_name_is_refused(signer: Signer) -> None:
    assert _refusal(_nitro(signer), TestAttester().evidence(BOUND, NOW)) == Condition.KIND


@pytest.mark.parametrize(
    "wrong", [{}, {"sev": {"00"}}, {"nitro": set()}, {"nitro": MEASURED}], ids=str
)
def test_a_policy_that_accepts_nothing_or_is_misspelt_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput):
        Policy(wrong)


def test_what_nobody_signed_puts_no_words_of_its_own_into_a_log(signer: Signer) -> None:
    """Only the public root is somebody's; the others were made by who answers, and have expired."""
    key = ec.generate_private_key(ec.SECP384R1())
    name = "x\nERROR hearsay: all is well\x1b[2J"
    own = certificate(name, key, name, key, ca=True, made=NOW - 90_000)
    leaf = certificate(name, key, name, key, ca=False, made=NOW - 90_000)
    document = signer.document(BOUND, cabundle=[signer.chain[0], own], certificate=leaf)
    with pytest.raises(AttestationRefused) as refused:
        _check(_nitro(signer), Evidence("nitro", document))
    assert "ERROR" not in str(refused.value)


def test_a_refusal_names_the_place_of_a_certificate_in_its_chain(signer: Signer) -> None:
    good = Evidence("nitro", signer.document(BOUND))
    with pytest.raises(AttestationRefused, match="certificate 1 of 3 is not valid at 2027"):
        _check(_nitro(signer), good, now=NOW + 7201)


@pytest.mark.parametrize("kind", ["\nERROR\x1b[2J" * 9_000, "nitro"])
def test_a_refusal_is_one_short_line(signer: Signer, kind: str) -> None:
    evidence = Evidence(kind, signer.document(BOUND, digest="\n\x1b[2J" + "A" * 50_000))
    with pytest.raises(AttestationRefused) as refused:
        _check(_nitro(signer), evidence)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(("document", "collateral"), [(65_537, 0), (9, 1_048_577)])
def test_evidence_of_no_sane_size_is_refused_unread(document: int, collateral: int) -> None:
    evidence = Evidence("tdx", bytes(document), b"{" * collateral)
    with pytest.raises(AttestationRefused, match="a document has at most 65,536 bytes"):
        _check(Policy({"tdx": {"00"}}), evidence)


@pytest.mark.parametrize("kind", ["tdx", "sgx"])
def test_no_quote_at_all_is_refused(kind: str) -> None:
    policy = Policy({kind: {"00"}})
    assert _refusal(policy, Evidence(kind, b"\0" * 700, b"{}")) == Condition.EVIDENCE
