"""TLS, certificates of both sides, and proxies, against real listeners."""

import datetime
import ipaddress
import socket
import threading
from collections.abc import Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hearsay import MEMORY, Client, InvalidInput, Reason, Tls
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from support import Server, device


@dataclass
class Identity:
    certificate: Path
    key: Path


class Authority:
    """An authority that certifies for 127.0.0.1."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self._certificate = self._sign(self._name, self._key, authority=True)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def certify(self, name: str) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key, authority=False)
        found = Identity(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        found.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        found.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return found

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, authority: bool
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


@dataclass
class Listening:
    address: str
    authority: Authority


class _Collector(collector_pb2_grpc.CollectorServicer):
    def __init__(self, plan: bytes) -> None:
        self._plan = plan

    def GetPlan(self, request: object, context: object) -> object:
        return collector_pb2.GetPlanResponse(plan=self._plan)


@pytest.fixture
def secure(server: Server, tmp_path: Path) -> Iterator[Listening]:
    """A server that asks for a client certificate of its authority."""
    authority = Authority(tmp_path, "authority")
    identity = authority.certify("server")
    credentials = grpc.ssl_server_credentials(
        [(identity.key.read_bytes(), identity.certificate.read_bytes())],
        root_certificates=authority.file.read_bytes(),
        require_client_auth=True,
    )
    with futures.ThreadPoolExecutor(2) as pool:
        listener = grpc.server(pool)
        servicer = _Collector(server.show("health").plan)
        collector_pb2_grpc.add_CollectorServicer_to_server(servicer, listener)
        port = listener.add_secure_port("127.0.0.1:0", credentials)
        listener.start()
        yield Listening(f"127.0.0.1:{port}", authority)
        listener.stop(None).wait()


def test_both_sides_show_certificates(secure: Listening) -> None:
    mine = secure.authority.certify("device")
    tls = Tls(secure.authority.file, mine.certificate, mine.key)
    with device(secure.address, "health", tls=tls) as client:
        assert client.record_epsilon == 1.0


def test_nothing_is_said_to_a_server_that_cannot_prove_who_it_is(
    secure: Listening, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other", "other")
    mine = secure.authority.certify("device")
    for tls, reason in (
        (Tls(other.file, mine.certificate, mine.key), Reason.TLS),  # trusts another authority
        (Tls(secure.authority.file), Reason.UNREACHABLE),  # does not say who it is
    ):
        with Client(
            secure.address,
            "health",
            level="strict",
            epsilon=1.0,
            ledger=MEMORY,
            consent=True,
            tls=tls,
        ) as client:
            assert not client.wait_ready(timeout=1.0)
            assert client.status().reason is reason


def test_files_that_are_not_there_are_told_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot read a file for TLS"):
        Client("x:1", "health", epsilon=1.0, ledger=MEMORY, tls=Tls(tmp_path / "none.pem"))
    with pytest.raises(InvalidInput, match="a client certificate needs its key"):
        Tls(certificate=tmp_path / "mine.crt")


def test_a_proxy_of_the_environment_is_used_beyond_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        proxy.settimeout(20)
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        asked = []

        def listen() -> None:
            connection, _ = proxy.accept()
            asked.append(connection.recv(1000))
            connection.close()

        thread = threading.Thread(target=listen)
        thread.start()
        with Client(
            "hearsay.example:50051",
            "health",
            level="strict",
            epsilon=1.0,
            ledger=MEMORY,
            consent=True,
            insecure=True,
        ) as client:
            client.wait_ready(timeout=3.0)
            thread.join()
    assert asked[0].startswith(b"CONNECT hearsay.example:50051")
