"""A certificate authority for tests."""

import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Signs certificates for localhost; its own is in `file`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self.file = folder / f"{name}.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(name)
        builder = _builder(self._subject, self._subject, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def issue(self, certificate: Path, key_file: Path, *, alternative: bool = True) -> int:
        """Write a new certificate and its key; return its serial number.

        Its name is the common name, and with `alternative` an alternative one, too.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name("localhost"), self._subject, key)
        if alternative:
            builder = _with_name(builder)
        return _write(builder.sign(self._key, hashes.SHA256()), key, certificate, key_file)


def self_signed(certificate: Path, key_file: Path) -> None:
    """Write a certificate for localhost that nobody else signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _with_name(_builder(_name("localhost"), _name("localhost"), key))
    _write(builder.sign(key, hashes.SHA256()), key, certificate, key_file)


def _with_name(builder: x509.CertificateBuilder) -> x509.CertificateBuilder:
    name = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    return builder.add_extension(name, critical=False)


def _write(
    signed: x509.Certificate, key: ec.EllipticCurvePrivateKey, certificate: Path, key_file: Path
) -> int:
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    certificate.write_bytes(_pem(signed))
    return signed.serial_number


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
