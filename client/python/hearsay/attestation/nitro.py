"""Verify documents of AWS Nitro: COSE_Sign1 by ES384 (RFC 9052), and a chain to a pinned root."""

import hashlib
from datetime import UTC, datetime
from io import BytesIO
from itertools import pairwise
from typing import Any

from hearsay.attestation.claims import AttestationRefused, Claims, Condition, Evidence
from ldp.errors import needs

AWS_ROOT = "641a0321a3e244efe456463195d606317ed7cdcc3c1756e09893f3c68f79bb5b"
"""SHA-256 of the DER certificate of "aws.nitro-enclaves", root G1."""

_ES384 = -35


def verify(evidence: Evidence, now: float, root: str = AWS_ROOT) -> Claims:
    """Return what a document says; its measurement is SHA-384 over PCR0, PCR1 and PCR2.

    A document whose PCR0 is zero is of an enclave in debug mode. Raises AttestationRefused.
    """
    with needs("attestation", "attestation"):
        import cbor2  # noqa: F401
        import cryptography  # noqa: F401
    try:
        return _verified(evidence.document, now, root)
    except AttestationRefused:
        raise
    except Exception as error:  # every parser below has exceptions of its own, for hostile bytes
        raise _refused(f"no valid Nitro document: {error or type(error).__name__}") from error


def _verified(document: bytes, now: float, root: str) -> Claims:
    protected, _, payload, signature = _sign1(document)
    if _loaded(protected) != {1: _ES384}:
        raise _refused("a Nitro document is signed by ES384 alone")
    fields = _loaded(payload)
    _check_signature(_leaf(fields, now, root), protected, payload, signature)
    if fields["digest"] != "SHA384":
        raise _refused(f"digest must be SHA384, got {fields['digest']!r}")
    pcrs = [bytes(fields["pcrs"][place]) for place in range(3)]
    if any(len(pcr) != 48 for pcr in pcrs):
        raise _refused("PCR0 to PCR2 must have 48 bytes each")
    return Claims(
        kind="nitro",
        measurement=hashlib.sha384(b"".join(pcrs)).hexdigest(),
        bound=bytes(fields["user_data"] or b""),
        status="",
        debug=not any(pcrs[0]),
        made=fields["timestamp"] / 1000,
    )


def _sign1(document: bytes) -> Any:
    import cbor2

    message = _loaded(document)
    return message.value if isinstance(message, cbor2.CBORTag) and message.tag == 18 else message


def _loaded(data: bytes) -> Any:
    import cbor2

    stream = BytesIO(data)
    value = cbor2.CBORDecoder(stream).decode()
    if stream.tell() != len(data):
        raise _refused("bytes are left over after a CBOR value")
    return value


def _leaf(fields: Any, now: float, root: str) -> Any:
    from cryptography import x509

    if hashlib.sha256(fields["cabundle"][0]).hexdigest() != root:
        raise _refused("the chain does not begin with the pinned root")
    chain = [x509.load_der_x509_certificate(der) for der in fields["cabundle"]]
    chain.append(x509.load_der_x509_certificate(fields["certificate"]))
    for issuer, issued in pairwise(chain):
        issued.verify_directly_issued_by(issuer)
    # A refusal names the place in the chain: a subject may have any words.
    for place, issuer in enumerate(chain[:-1], 1):
        limits = issuer.extensions.get_extension_for_class(x509.BasicConstraints).value
        length = limits.path_length
        if not limits.ca or (length is not None and length < len(chain) - place - 1):
            raise _refused(f"certificate {place} of {len(chain)} may not issue the next one")
    at = datetime.fromtimestamp(now, UTC)
    for place, certificate in enumerate(chain, 1):
        if not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
            raise _refused(f"certificate {place} of {len(chain)} is not valid at {at}")
    return chain[-1].public_key()


def _check_signature(key: Any, protected: bytes, payload: bytes, signature: bytes) -> None:
    import cbor2
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
    from cryptography.hazmat.primitives.hashes import SHA384

    if len(signature) != 96 or not isinstance(key.curve, ec.SECP384R1):
        raise _refused("the signature must have 96 bytes, by a key on P-384")
    pair = (int.from_bytes(signature[:48]), int.from_bytes(signature[48:]))
    signed = cbor2.dumps(["Signature1", protected, b"", payload])
    key.verify(encode_dss_signature(*pair), signed, ec.ECDSA(SHA384()))


def _refused(message: str) -> AttestationRefused:
    return AttestationRefused(Condition.EVIDENCE, message)
