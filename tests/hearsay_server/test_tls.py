"""TLS, mutual TLS, and certificates that are renewed under a running server."""

import logging
import math
import resource
import socket
import ssl
from pathlib import Path

import grpc
import pytest
from certificates import Authority
from command import hearsay
from serving import connected, serving

from hearsay.sending.transport import Tls
from hearsay.v1 import admin_pb2, admin_pb2_grpc
from hearsay_server.config import Config
from hearsay_server.serving.doors import show_end
from hearsay_server.serving.metrics import Metrics
from hearsay_server.serving.tls import Certificates, certificates
from ldp import InvalidInput


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def keys(tmp_path: Path, authority: Authority) -> dict[str, Path]:
    """The keys of a configuration with TLS."""
    files = {"tls_certificate": tmp_path / "server.pem", "tls_key": tmp_path / "server.key"}
    authority.issue(files["tls_certificate"], files["tls_key"])
    return files


def surveys(channel: grpc.Channel) -> int:
    stub = admin_pb2_grpc.AdminStub(channel)
    return len(stub.ListSurveys(admin_pb2.ListSurveysRequest(), timeout=5).surveys)


def served_serial(address: str, authority: Path) -> int:
    """Shake hands; return the serial number of the certificate that was shown."""
    context = ssl.create_default_context(cafile=str(authority))
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    with (
        socket.create_connection((host, int(port))) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        shown = secure.getpeercert()
    assert shown is not None
    return int(str(shown["serialNumber"]), 16)


def test_a_client_that_trusts_the_authority_is_answered_and_others_are_not(
    tmp_path: Path, authority: Authority, keys: dict[str, Path]
) -> None:
    stranger = Authority(tmp_path, "stranger")
    with serving(tmp_path / "data", **keys) as address:
        with connected(address, tls=Tls(authority.file, server_name="localhost")) as channel:
            assert surveys(channel) == 0
        with connected(address, tls=Tls(stranger.file, server_name="localhost")) as channel:
            with pytest.raises(grpc.RpcError) as error:
                surveys(channel)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE
        with connected(address) as channel, pytest.raises(grpc.RpcError):  # in the clear
            surveys(channel)


def test_mutual_tls_takes_only_clients_of_its_authority(
    tmp_path: Path, authority: Authority, keys: dict[str, Path]
) -> None:
    clients = Authority(tmp_path, "clients")
    own = (tmp_path / "own.pem", tmp_path / "own.key")
    clients.issue(*own)
    with serving(tmp_path / "data", **keys, tls_client_ca=clients.file) as address:
        with connected(address, tls=Tls(authority.file, *own, "localhost")) as channel:
            assert surveys(channel) == 0
        wrong = (keys["tls_certificate"], keys["tls_key"])  # of the server's authority
        for tls in (Tls(authority.file, *wrong, "localhost"), Tls(authority.file, None, None)):
            with connected(address, tls=tls) as channel, pytest.raises(grpc.RpcError) as error:
                surveys(channel)
            assert error.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_command_without_a_client_certificate_is_told_what_is_missing(
    tmp_path: Path, authority: Authority, keys: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hearsay.server")
    with serving(tmp_path / "data", **keys, tls_client_ca=authority.file) as address:
        trust = ("--ca", authority.file, "--server-name", "localhost")
        list_ = ("survey", "list", "--target", address)
        done = hearsay(*trust, *list_)
        assert done.returncode == 1
        assert "a client certificate: give Tls(certificate=, key=), or --certificate and --key" in (
            done.stderr
        )
        authority.issue(tmp_path / "own.pem", tmp_path / "own.key")
        own = ("--certificate", tmp_path / "own.pem", "--key", tmp_path / "own.key")
        assert hearsay(*trust, *own, *list_).returncode == 0
    assert f"only clients with a certificate of {authority.file} are let in" in caplog.text


def test_a_renewed_certificate_is_served_and_open_connections_go_on(
    tmp_path: Path, authority: Authority, keys: dict[str, Path]
) -> None:
    with serving(tmp_path / "data", **keys) as address:
        first = served_serial(address, authority.file)
        with connected(address, tls=Tls(authority.file, server_name="localhost")) as channel:
            states: list[grpc.ChannelConnectivity] = []
            channel.subscribe(states.append)
            assert surveys(channel) == 0
            renewed = authority.issue(keys["tls_certificate"], keys["tls_key"])
            assert served_serial(address, authority.file) == renewed != first
            assert surveys(channel) == 0
            assert states.count(grpc.ChannelConnectivity.READY) == 1  # it never reconnected


def test_a_half_renewed_pair_leaves_the_old_one_until_it_is_whole(
    tmp_path: Path,
    authority: Authority,
    keys: dict[str, Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(tmp_path / "data", **keys) as address:
        first = served_serial(address, authority.file)
        new = (tmp_path / "new.pem", tmp_path / "new.key")
        renewed = authority.issue(*new)
        keys["tls_certificate"].write_bytes(new[0].read_bytes())
        with caplog.at_level(logging.WARNING, "hearsay.server"):
            assert served_serial(address, authority.file) == first
            assert served_serial(address, authority.file) == first
        warnings = [r for r in caplog.records if "is not renewed" in r.getMessage()]
        assert len(warnings) == 1
        keys["tls_key"].write_bytes(new[1].read_bytes())
        assert served_serial(address, authority.file) == renewed


def test_a_renewal_that_cannot_be_read_for_a_moment_is_not_lost(
    authority: Authority, keys: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    used = Certificates(*keys.values(), None)
    authority.issue(*keys.values())
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))  # no file can be opened
    try:
        assert [used.look(), used.look()] == [None, None]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert len([r for r in caplog.records if "is not renewed" in r.getMessage()]) == 1
    assert used.look() is not None
    assert used.look() is None


def test_a_certificate_that_does_not_fit_its_key_is_refused_at_the_start(
    tmp_path: Path, authority: Authority, keys: dict[str, Path]
) -> None:
    authority.issue(tmp_path / "other.pem", keys["tls_key"])
    with pytest.raises(InvalidInput, match=r"cannot use the certificate .*server\.pem with the"):
        certificates(Config(**keys))


def test_a_missing_certificate_is_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        certificates(Config(tls_certificate=tmp_path / "a", tls_key=tmp_path / "b"))


def test_without_a_certificate_there_is_no_tls() -> None:
    assert certificates(Config()) is None


def test_a_certificate_that_has_ended_is_warned_of_at_the_start(
    keys: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    ends = Certificates(*keys.values(), None).ends()
    assert ends is not None
    assert caplog.text == ""
    Certificates(*keys.values(), None, lambda: ends)
    (record,) = caplog.records
    file = keys["tls_certificate"]
    assert record.levelname == "WARNING"
    assert record.getMessage() == f"the certificate {file} ended on {ends}: clients refuse it"


def test_a_metric_says_when_the_certificate_in_use_ends(keys: dict[str, Path]) -> None:
    used, metrics = Certificates(*keys.values(), None), Metrics()

    def value() -> float | None:
        return metrics.registry.get_sample_value("hearsay_certificate_end_seconds")

    show_end(None, metrics)
    assert math.isnan(value() or 0)
    show_end(used, metrics)
    ends = used.ends()
    assert ends is not None
    assert value() == ends.timestamp()
