"""Certificates that are read again when their files change."""

import logging
import ssl
import threading
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import grpc

from hearsay_server.clock import Clock, system
from hearsay_server.config import Process
from ldp import InvalidInput

_log = logging.getLogger("hearsay.server")

HANDSHAKE = 20.0
"""Seconds that a connection may be silent before it speaks TLS and its protocol."""


@dataclass(frozen=True)
class _Files:
    certificate: Path
    key: Path
    client_ca: Path | None

    def stamp(self) -> tuple[tuple[int, int, int], ...] | None:
        """Return times, inodes and sizes, which show any change; None where a file is gone."""
        paths = [self.certificate, self.key, *([self.client_ca] if self.client_ca else [])]
        try:
            stats = [path.stat() for path in paths]
        except OSError:
            return None
        return tuple((stat.st_mtime_ns, stat.st_ino, stat.st_size) for stat in stats)

    def read(self) -> "_Read":
        """Read the files; raise `InvalidInput` where they do not fit together."""
        try:
            # gRPC takes anything and then fails every handshake: let OpenSSL look first.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.set_alpn_protocols(["http/1.1"])
            context.load_cert_chain(self.certificate, self.key, password="")  # never prompt
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
                context.verify_mode = ssl.CERT_REQUIRED
                # A session that is resumed shows no certificate, and so outlives its authority.
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.num_tickets = 0
            pair = (self.key.read_bytes(), self.certificate.read_bytes())
            root = self.client_ca.read_bytes() if self.client_ca else None
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput(
                f"cannot use the certificate {self.certificate} with the key {self.key}"
                f"{f' and the CA {self.client_ca}' if self.client_ca else ''}: {error}"
            ) from None
        return _Read(grpc.ssl_server_certificate_configuration([pair], root), context, pair[1])


@dataclass(frozen=True)
class _Read:
    """What the files hold, for gRPC and for Python's TLS."""

    configuration: grpc.ServerCertificateConfiguration
    context: ssl.SSLContext
    chain: bytes

    def ends(self) -> datetime | None:
        """Return when the first certificate of the chain ends; None where none is read."""
        from cryptography import x509

        try:
            chain = x509.load_pem_x509_certificates(self.chain)
        except ValueError:  # OpenSSL takes more than cryptography does
            return None
        return min((each.not_valid_after_utc for each in chain), default=None)


class Certificates:
    """The server's certificate, with its key, and the authority of its clients, if there is one.

    With `tls_client_ca` a client must show a certificate that it signed (mutual TLS). Every
    handshake looks whether the files changed: from then on new connections get the new ones,
    and open ones go on. Files that do not fit together (one of two is renewed) leave the old
    ones in use, with a warning.
    """

    def __init__(
        self, certificate: Path, key: Path, client_ca: Path | None, clock: Clock = system
    ) -> None:
        """Read the files; raise `InvalidInput` where they do not fit together."""
        self._clock = clock
        self._files = _Files(certificate, key, client_ca)
        self._used = self._files.stamp()  # before reading: a change in between is seen next time
        self._failed = self._used
        self._read = self._files.read()
        self._lock = threading.Lock()  # handshakes run on gRPC's threads
        if client_ca is not None:
            _log.info("only clients with a certificate of %s are let in", client_ca)
        self._warn()

    def credentials(self) -> grpc.ServerCredentials:
        """Return the credentials of a gRPC server."""
        told = self._read

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            nonlocal told
            read = self.look() or self._read
            if read is told:
                return None
            told = read
            return read.configuration

        # gRPC takes None for "as before", which its stubs do not know.
        return grpc.dynamic_ssl_server_credentials(
            told.configuration,
            renewed,  # type: ignore[arg-type]
            self._files.client_ca is not None,
        )

    def context(self) -> ssl.SSLContext:
        """Return the context of a server of Python's, which at each handshake looks for a newer."""

        def look(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
            connection.context = (self.look() or self._read).context

        context = self._read.context
        context.sni_callback = look
        return context

    def ends(self) -> datetime | None:
        """Return when the first certificate of the chain in use ends; None where none is read."""
        self.look()
        return self._read.ends()

    def public_key(self) -> bytes:
        """Return the DER SubjectPublicKeyInfo of the certificate that new connections get.

        Raises `InvalidInput` where the certificate cannot be read.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        self.look()
        try:
            key = x509.load_pem_x509_certificates(self._read.chain)[0].public_key()
        except (ValueError, IndexError) as error:  # OpenSSL takes more than cryptography does
            raise InvalidInput(f"the certificate in use cannot be read: {error}") from None
        return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def look(self) -> _Read | None:
        """Read the files anew if they changed; return None if they did not, or cannot be used."""
        with self._lock:
            stamp = self._files.stamp()
            if stamp == self._used:
                return None
            try:
                new = self._files.read()
            except InvalidInput as error:  # which may pass: they are tried again next time
                if stamp != self._failed:
                    _log.warning("the certificate is not renewed: %s", error)
                self._failed = stamp
                return None
            self._used, self._read = stamp, new
        _log.info("the certificate is renewed")
        self._warn()
        return new

    def _warn(self) -> None:
        """Warn of a certificate that has ended."""
        ends = self._read.ends()
        if ends is not None and ends <= self._clock():
            file = self._files.certificate
            _log.warning("the certificate %s ended on %s: clients refuse it", file, ends)


def certificates(config: Process) -> Certificates | None:
    """Return the certificates that `config` names, None where it names none; raise as they do."""
    if config.tls_certificate is None or config.tls_key is None:
        return None
    return Certificates(config.tls_certificate, config.tls_key, config.tls_client_ca)
