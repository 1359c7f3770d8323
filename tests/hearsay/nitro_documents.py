"""Nitro documents of the real structure, signed under a root of a test."""

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Any

import cbor2
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

NOW = 1_800_000_000.0


class Signer:
    """A root, one authority below it, and the key of an enclave that is valid for three hours."""

    def __init__(self, authority: bool = True) -> None:
        keys = [ec.generate_private_key(ec.SECP384R1()) for _ in range(3)]
        self.key = keys[2]
        self.chain = [
            certificate("root", keys[0], "root", keys[0], ca=True),
            certificate("between", keys[1], "root", keys[0], ca=authority),
            certificate("enclave", keys[2], "between", keys[1], ca=False),
        ]
        self.root = hashlib.sha256(self.chain[0]).hexdigest()

    def document(self, bound: bytes, pcr0: bytes = b"\1" * 48, **changed: Any) -> bytes:
        fields = {
            "module_id": "i-0-enc0",
            "timestamp": int(NOW * 1000),
            "digest": "SHA384",
            "pcrs": {0: pcr0, 1: b"\2" * 48, 2: b"\3" * 48},
            "certificate": self.chain[2],
            "cabundle": self.chain[:2],
            "public_key": None,
            "user_data": bound,
            "nonce": None,
        }
        protected, payload = cbor2.dumps({1: -35}), cbor2.dumps(fields | changed)
        signed = cbor2.dumps(["Signature1", protected, b"", payload])
        pair = decode_dss_signature(self.key.sign(signed, ec.ECDSA(SHA384())))
        signature = b"".join(number.to_bytes(48) for number in pair)
        return cbor2.dumps(cbor2.CBORTag(18, [protected, {}, payload, signature]))


def certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    by: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
    made: float = NOW,
) -> bytes:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text, _validate=False)])

    at = datetime.fromtimestamp(made, UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(at - timedelta(hours=1))
        .not_valid_after(at + timedelta(hours=2))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    return built.sign(by, SHA384()).public_bytes(Encoding.DER)
