"""Certificates that are read again when their files change."""

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

import grpc

from hearsay_server.config import Config
from ldp import InvalidInput

_log = logging.getLogger("hearsay.server")


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

    def read(self) -> grpc.ServerCertificateConfiguration:
        """Read the files; raise `InvalidInput` where they do not fit together."""
        try:
            # gRPC takes anything and then fails every handshake: let OpenSSL look first.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.key, password="")  # never prompt
            if self.client_ca is not None:
                context.load_verify_locations(self.client_ca)
            pair = (self.key.read_bytes(), self.certificate.read_bytes())
            root = self.client_ca.read_bytes() if self.client_ca else None
        except (OSError, ssl.SSLError) as error:
            raise InvalidInput(
                f"cannot use the certificate {self.certificate} with the key {self.key}"
                f"{f' and the CA {self.client_ca}' if self.client_ca else ''}: {error}"
            ) from None
        return grpc.ssl_server_certificate_configuration([pair], root)


def credentials(config: Config) -> grpc.ServerCredentials | None:
    """Return the server's TLS credentials, or None where `config` has no certificate.

    With `tls_client_ca` a client must show a certificate that it signed (mutual TLS). Every
    handshake looks whether the files changed: from then on new connections get the new ones,
    and open ones go on. Files that do not fit together (one of two is renewed) leave the old
    ones in use, with a warning. Raises `InvalidInput` where they do not fit at the start.
    """
    if config.tls_certificate is None or config.tls_key is None:
        return None
    files = _Files(config.tls_certificate, config.tls_key, config.tls_client_ca)
    reload = _Reload(files)
    mutual = files.client_ca is not None
    if mutual:
        _log.info("only clients with a certificate of %s are let in", files.client_ca)
    # gRPC takes None for "as before", which its stubs do not know.
    return grpc.dynamic_ssl_server_credentials(reload.first, reload, mutual)  # type: ignore[arg-type]


class _Reload:
    """The callback that gRPC asks at every handshake for a new configuration, None for none."""

    def __init__(self, files: _Files) -> None:
        self._files = files
        self._used = files.stamp()  # before reading: a change in between is seen next time
        self._failed = self._used
        self.first = files.read()
        self._lock = threading.Lock()  # handshakes run on gRPC's threads

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
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
            self._used = stamp
        _log.info("the certificate is renewed")
        return new
