"""TLS, certificates of both sides, and proxies, against real listeners."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from certificates import Authority
from moody import Moody, listening

from hearsay import MEMORY, Client, InvalidInput, Reason, Tls, Unreachable
from hearsay.sending.over_grpc import GrpcTransport
from support import Server, device, new_client, wait_until


class Secure:
    """A server that asks for a client certificate of its authority."""

    def __init__(self, address: str, authority: Authority, folder: Path) -> None:
        self.address = address
        self.authority = authority
        self.mine = folder / "device.crt", folder / "device.key"
        authority.issue(*self.mine)

    def tls(self, authority: Authority, *identity: Path) -> Tls:
        return Tls(authority.file, *identity, server_name="localhost")


@pytest.fixture
def secure(server: Server, tmp_path: Path) -> Iterator[Secure]:
    authority = Authority(tmp_path)
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    authority.issue(certificate, key)
    credentials = grpc.ssl_server_credentials(
        [(key.read_bytes(), certificate.read_bytes())],
        root_certificates=authority.file.read_bytes(),
        require_client_auth=True,
    )
    with listening(Moody(server.show("health").plan), credentials) as address:
        yield Secure(address, authority, tmp_path)


def test_both_sides_show_certificates(secure: Secure) -> None:
    tls = secure.tls(secure.authority, *secure.mine)
    with device(secure.address, "health", tls=tls) as client:
        assert client.record_epsilon == 1.0


def test_nothing_is_said_to_a_server_that_cannot_prove_who_it_is(
    secure: Secure, tmp_path: Path
) -> None:
    for tls, reason in (
        (secure.tls(Authority(tmp_path, "other"), *secure.mine), Reason.TLS),
        (secure.tls(secure.authority), Reason.UNREACHABLE),  # does not say who it is
    ):
        with new_client(secure.address, "health", tls=tls) as client:
            wait_until(lambda client=client: client.status().reason is not Reason.NO_PLAN)
            assert client.status().reason is reason


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ("none", "it may ask for a client certificate: give Tls(certificate=, key=), or --cert"),
        ("other", "it may not trust the client certificate: is it of the server's tls_client_ca?"),
        ("plain", "it may expect TLS (Tls(), or --ca), and a client certificate"),
    ],
)
def test_what_a_server_that_closes_the_connection_may_miss_is_said(
    secure: Secure, tmp_path: Path, identity: str, message: str
) -> None:
    other = tmp_path / "other.crt", tmp_path / "other.key"
    Authority(tmp_path, "other").issue(*other)
    tls = {
        "none": secure.tls(secure.authority),
        "other": secure.tls(secure.authority, *other),
        "plain": None,
    }[identity]
    with (
        contextlib.closing(GrpcTransport(secure.address, tls=tls)) as transport,
        pytest.raises(Unreachable) as error,
    ):
        transport.get_plan("health", 10)
    assert f"closed the connection before it answered; {message}" in str(error.value)


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
        with new_client("hearsay.example:50051", "health", insecure=True):
            thread.join()
    assert asked[0].startswith(b"CONNECT hearsay.example:50051")
