"""What a client over HTTP says of a server that it cannot reach, with TLS and by proxies."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from connecting import over_http
from http_servers import (
    WHOLE,
    context_of,
    failure,
    speaking,
)
from over_http import answering
from serving import register, tokens_of
from test_transport import Fake

from hearsay import Analyst, InvalidInput, Reason, Tls
from hearsay.sending.over_http import HttpTransport
from hearsay.sending.proxies import proxy_of
from hearsay.sending.transport import open_calls
from hearsay.v1 import admin_pb2
from hearsay_server.surveys import survey as surveys
from support import SURVEY, free_port, new_client, wait_until


def test_a_wrong_token_is_told(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path)
    _, admin = tokens.create("admin")
    _, mine = tokens.create("device")
    with answering(tmp_path, require_device_token=True) as door:
        register(door.grpc, admin)
        url = f"http://127.0.0.1:{door.port}"
        for token in (None, "hearsay-guess", admin):
            error = failure(HttpTransport(url, token=token))
            assert error.reason is Reason.BAD_TOKEN
            assert f"the server at {url} does not accept the token" in str(error)
        transport = HttpTransport(url, token=mine)
        assert transport.get_plan("health", 10).plan
        transport.close()


def test_a_token_that_cannot_be_had_or_sent_is_told_and_not_repeated(fake: Fake, url: str) -> None:
    def broken() -> str:
        raise KeyError("secret")

    made: list[Any] = [lambda: "secret\0", lambda: None, lambda: b"secret"]
    for token in (broken, "sec\ncret", "sécret", "secret\r\nX-Admin: 1", *made):
        error = failure(HttpTransport(url, token=token))
        assert error.reason is Reason.BAD_TOKEN
        assert "cret" not in str(error)
    assert not fake.tokens


@pytest.mark.parametrize("name", ["nowhere.invalid", "a..b", 70 * "a" + ".example"])
def test_a_name_that_does_not_resolve_is_told(name: str) -> None:
    error = failure(HttpTransport(f"https://{name}"))
    assert error.reason is Reason.NAME_NOT_FOUND
    assert str(error) == f"the host name in https://{name} does not resolve"


def test_a_port_where_nothing_listens_is_told() -> None:
    target = f"http://127.0.0.1:{free_port()}"
    error = failure(HttpTransport(target))
    assert error.reason is Reason.UNREACHABLE
    assert str(error) == f"no server answers at {target}"


def test_each_failure_of_tls_is_told(
    secure: str, url: str, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    transport = HttpTransport(secure, tls=Tls(authority.file))
    assert transport.get_plan("health", 10).plan == b"health"
    transport.close()
    by_address = secure.replace("localhost", "127.0.0.1")
    for target, tls, words in (
        (secure, Tls(other.file), "is not trusted"),
        (secure, None, "is not trusted"),
        (secure, Tls(authority.file, server_name="a.example"), "has another name"),
        (by_address, Tls(authority.file), "has another name"),
        (url.replace("http:", "https:"), Tls(authority.file), "does not speak TLS"),
    ):
        error = failure(HttpTransport(target, tls=tls))
        assert error.reason is Reason.TLS
        assert words in str(error)
    error = failure(HttpTransport(secure.replace("https:", "http:")))
    assert error.reason is Reason.UNREACHABLE
    assert "it may expect https://" in str(error)
    named = HttpTransport(by_address, tls=Tls(authority.file, server_name="localhost"))
    assert named.get_plan("health", 10).plan == b"health"
    named.close()


def test_a_certificate_has_its_name_where_names_are_looked_for(
    fake: Fake, authority: Authority, tmp_path: Path
) -> None:
    with over_http(fake, context_of(authority, tmp_path)) as url:
        transport = HttpTransport(url, tls=Tls(authority.file, server_name="localhost."))
        assert transport.get_plan("health", 10).plan == b"health"
        transport.close()
    old = tmp_path / "old.crt", tmp_path / "old.key"
    authority.issue(*old, alternative=False)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*old)
    with over_http(fake, context) as url:
        error = failure(HttpTransport(url, tls=Tls(authority.file)))
    assert error.reason is Reason.TLS
    assert "has another name" in str(error)


def addressed(monkeypatch: pytest.MonkeyPatch, *found: tuple[int, str]) -> None:
    """Let each name have addresses of these families."""

    def look_up(host: bytes, port: int, **options: Any) -> list[Any]:
        return [
            (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port))
            for family, address in found
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


def test_an_address_of_a_kind_that_the_system_lacks_is_passed_over(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    addressed(monkeypatch, (1000, "::1"), (socket.AF_INET, "127.0.0.1"))
    transport = HttpTransport(url.replace("127.0.0.1", "localhost"))
    assert transport.get_plan("health", 10).plan == b"health"
    transport._server.pool.close()
    addressed(monkeypatch, (1000, "::1"))
    error = failure(HttpTransport(url.replace("127.0.0.1", "localhost")))
    assert "cannot be reached (EAFNOSUPPORT)" in str(error)


def test_a_name_server_cannot_send_localhost_elsewhere(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def connect(sock: socket.socket, address: tuple[str, int]) -> None:
        asked.append(address[0])
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", connect)
    addressed(monkeypatch, (socket.AF_INET, "192.0.2.1"), (socket.AF_INET, "127.0.0.1"))
    failure(HttpTransport("http://localhost:8080"))
    assert asked == ["127.0.0.1"]
    addressed(monkeypatch, (socket.AF_INET, "192.0.2.1"))
    error = failure(HttpTransport("http://localhost:8080"))
    assert error.reason is Reason.NAME_NOT_FOUND
    assert asked == ["127.0.0.1"]


def test_both_sides_show_certificates(fake: Fake, authority: Authority, tmp_path: Path) -> None:
    context = context_of(authority, tmp_path)
    context.load_verify_locations(authority.file)
    context.verify_mode = ssl.CERT_REQUIRED
    mine = tmp_path / "mine.crt", tmp_path / "mine.key"
    authority.issue(*mine)
    others = tmp_path / "others.crt", tmp_path / "others.key"
    Authority(tmp_path, "other").issue(*others)
    with over_http(fake, context) as url:
        transport = HttpTransport(url, tls=Tls(authority.file, *mine))
        assert transport.get_plan("health", 10).plan == b"health"
        transport.close()
        error = failure(HttpTransport(url, tls=Tls(authority.file)))
        assert "a client certificate: give Tls(certificate=, key=), or --cert" in str(error)
        error = failure(HttpTransport(url, tls=Tls(authority.file, *others)))
        assert "is it of the server's tls_client_ca?" in str(error)
    assert len(fake.tokens) == 1


def test_a_file_for_tls_that_cannot_be_read_is_told(authority: Authority, tmp_path: Path) -> None:
    for tls in (Tls(tmp_path / "none.pem"), Tls(certificate=authority.file, key=tmp_path / "no")):
        with pytest.raises(InvalidInput, match="cannot read a file for TLS"):
            HttpTransport("https://a.example", tls=tls)
    (tmp_path / "empty.pem").write_text("nothing")
    with pytest.raises(InvalidInput, match=r"cannot read a file for TLS \(.*must be in PEM"):
        HttpTransport("https://a.example", tls=Tls(tmp_path / "empty.pem"))
    transport = HttpTransport(f"https://127.0.0.1:{free_port()}", tls=Tls(authority.file))
    assert "no server answers" in str(failure(transport))
    with speaking(b"", stay=True) as url:
        transport = HttpTransport(url.replace("http:", "https:"), tls=Tls(authority.file))
        authority.file.unlink()
        error = failure(transport)
    assert error.reason is Reason.TLS
    assert "cannot read a file for TLS" in str(error)


def test_a_key_with_a_password_does_not_ask_for_it_at_the_terminal(
    authority: Authority, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    mine = tmp_path / "mine.crt", tmp_path / "mine.key"
    authority.issue(*mine)
    key = serialization.load_pem_private_key(mine[1].read_bytes(), None)
    mine[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    with pytest.raises(InvalidInput, match="and a key have no password"):
        HttpTransport("https://a.example", tls=Tls(authority.file, *mine))


def test_a_status_has_the_reason(tmp_path: Path) -> None:
    with new_client(f"http://127.0.0.1:{free_port()}", "health") as client:
        wait_until(lambda: client.status().reason is Reason.UNREACHABLE)
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"
    with speaking(page) as url, new_client(url, "health") as client:
        wait_until(lambda: "no server of Hearsay" in client.status().detail)
        assert client.status().reason is Reason.UNREACHABLE


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that names no proxy."""
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


@contextlib.contextmanager
def proxying(answer: bytes, target: str = "") -> Iterator[tuple[str, list[bytes]]]:
    """Take connections as a proxy, which answers so, and then passes on what comes to a target."""
    asked: list[bytes] = []

    def serve(line: socket.socket) -> None:
        asked.append(line.recv(1 << 16))
        line.sendall(answer)
        if not target:
            time.sleep(0.1)
            line.close()
            return
        host, _, port = target.rpartition(":")
        far = socket.create_connection((host, int(port)))
        back = threading.Thread(target=forward, args=(far, line), daemon=True)
        back.start()
        forward(line, far)
        back.join(10)
        line.close()
        far.close()

    def forward(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                line = listener.accept()[0]
                threading.Thread(target=serve, args=(line,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", asked
        listener.shutdown(socket.SHUT_RDWR)


def test_a_proxy_learns_the_server_from_the_request(environ: pytest.MonkeyPatch) -> None:
    with proxying(WHOLE) as (address, asked):
        environ.setenv("http_proxy", f"http://ann:p%40ss@{address}")
        transport = HttpTransport("http://hearsay.example", insecure=True)
        assert transport.get_plan("health", 10).plan == b"health"
        transport.close()
    line, *headers = asked[0].decode().split("\r\n")
    assert line == "POST http://hearsay.example/hearsay.v1.Collector/GetPlan HTTP/1.1"
    assert headers[0] == "Host: hearsay.example"
    assert "Proxy-Authorization: Basic YW5uOnBAc3M=" in headers


def test_a_proxy_passes_tls_on_and_sees_no_token(
    fake: Fake, secure: str, authority: Authority, environ: pytest.MonkeyPatch
) -> None:
    target = secure.removeprefix("https://").replace("localhost", "127.0.0.1")
    passing = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n"
    with proxying(passing, target) as (address, asked):
        environ.setenv("HTTPS_PROXY", address)
        tls = Tls(authority.file, server_name="localhost")
        transport = HttpTransport("https://hearsay.example:8443", tls=tls, token="secret")
        for _ in range(2):
            assert transport.get_plan("health", 10).plan == b"health"
        transport.close()
    assert asked == [b"CONNECT hearsay.example:8443 HTTP/1.1\r\nHost: hearsay.example:8443\r\n\r\n"]
    assert fake.tokens == ["Bearer secret"] * 2


@pytest.mark.parametrize(
    ("answer", "words", "reason"),
    [
        (b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n", "asks for a login", "unreachable"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "status 403", "unreachable"),
        (b"HTTP/1.1 302 No\r\nLocation: http://portal/\r\n\r\n", "status 302", "unreachable"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>Log in</html>", "answers itself", "unreachable"),
        (b"SSH-2.0\r\n", "does not answer as one", "unreachable"),
        (b"", "does not answer as one", "unreachable"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "closed the connection before", "unreachable"),
    ],
)
def test_a_proxy_that_does_not_pass_on_is_told(
    answer: bytes, words: str, reason: str, environ: pytest.MonkeyPatch
) -> None:
    with proxying(answer) as (address, _):
        environ.setenv("https_proxy", f"http://{address}/")
        error = failure(HttpTransport("https://hearsay.example"))
    assert words in str(error)
    assert error.reason == reason


def test_a_proxy_that_answers_with_a_page_later_is_no_server(environ: pytest.MonkeyPatch) -> None:
    def late(line: socket.socket) -> None:
        line.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        line.recv(1 << 16)
        line.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<html>Log in</html>")

    with speaking(late) as url:
        environ.setenv("https_proxy", url)
        error = failure(HttpTransport("https://hearsay.example"))
    assert error.reason is Reason.TLS
    assert "does not speak TLS" in str(error)
    page = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 2\r\n\r\nhi"
    with speaking(page) as url:
        environ.setenv("http_proxy", url)
        error = failure(HttpTransport("http://hearsay.example", insecure=True))
    assert "with status 200 and text/html" in str(error)


def test_a_proxy_that_is_not_there_is_told_as_such(environ: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{free_port()}"
    environ.setenv("https_proxy", address)
    error = failure(HttpTransport("https://hearsay.example"))
    assert str(error) == f"the proxy at {address} cannot be reached"
    environ.setenv("https_proxy", "nowhere.invalid")
    error = failure(HttpTransport("https://hearsay.example"))
    assert error.reason is Reason.NAME_NOT_FOUND
    environ.setenv("https_proxy", "socks5://ann:secret@127.0.0.1:1")
    error = failure(HttpTransport("https://hearsay.example"))
    assert "https_proxy must be http://HOST:PORT" in str(error)
    assert "secret" not in str(error)


def test_no_proxy_sees_calls_to_this_machine(url: str, environ: pytest.MonkeyPatch) -> None:
    environ.setenv("http_proxy", f"127.0.0.1:{free_port()}")
    transport = HttpTransport(url)
    assert transport.get_plan("health", 10).plan == b"health"
    transport.close()


@pytest.mark.parametrize(
    ("exceptions", "passed_by"),
    [
        ("", False),
        ("*", True),
        ("a.example", True),
        ("A.Example", True),
        ("example", True),
        (".example", True),
        ("*.example", True),
        ("other, a.example:443 , more", True),
        ("a.example:444", False),
        ("b.a.example", False),
        ("a.example.", True),
        (".example.:443", True),
        (".", False),
        ("xample", False),
        ("ple", False),
    ],
)
def test_exceptions_from_the_proxy_are_hosts_and_domains(exceptions: str, passed_by: bool) -> None:
    environ = {"https_proxy": "proxy:3128", "no_proxy": exceptions}
    for host in ("a.example", "a.example."):
        found = proxy_of("https", host, 443, environ)
        assert (found is None) is passed_by


def test_exceptions_from_the_proxy_are_addresses() -> None:
    environ = {"https_proxy": "proxy:3128", "no_proxy": "10.1.0.0/16,[2001:db8::1]:443,192.0.2.7"}
    for host, passed_by in (
        ("10.1.2.3", True),
        ("10.2.2.3", False),
        ("192.0.2.7", True),
        ("192.0.2.77", False),
        ("2001:db8::1", True),
        ("2001:db8::2", False),
    ):
        assert (proxy_of("https", host, 443, environ) is None) is passed_by


def test_an_empty_variable_counts_more_than_the_one_in_capitals() -> None:
    environ = {"HTTPS_PROXY": "proxy:3128", "NO_PROXY": "*"}
    assert proxy_of("https", "a.example", 443, {**environ, "no_proxy": ""}) is not None
    assert (
        proxy_of("https", "a.example", 443, {**environ, "no_proxy": "", "https_proxy": ""}) is None
    )


def test_a_login_that_is_no_text_is_told() -> None:
    environ = {"https_proxy": "http://ann:secr\udce9t@proxy:3128"}
    with pytest.raises(InvalidInput, match="a login that is not UTF-8") as raised:
        proxy_of("https", "a.example", 443, environ)
    assert "secr" not in str(raised.value)


def test_a_caller_of_a_cgi_script_names_no_proxy() -> None:
    environ = {"HTTP_PROXY": "evil.example:80"}
    assert proxy_of("http", "a.example", 80, environ) is not None
    assert proxy_of("http", "a.example", 80, {**environ, "REQUEST_METHOD": "GET"}) is None


def test_a_device_and_an_admin_reach_a_real_server_over_tls_on_both_sides(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    mine = tmp_path / "mine.crt", tmp_path / "mine.key"
    for files in ((certificate, key), mine):
        authority.issue(*files)
    keys = {"tls_certificate": certificate, "tls_key": key, "tls_client_ca": authority.file}
    with answering(tmp_path / "data", **keys) as door:
        url = f"https://localhost:{door.port}"
        tls = Tls(authority.file, *mine)
        survey = surveys.from_toml(SURVEY, "test.toml")
        with contextlib.closing(open_calls(url, tls=tls)) as calls:
            request = admin_pb2.CreateSurveyRequest(survey=survey)
            calls.call("Admin/CreateSurvey", request, admin_pb2.SurveyStatus, 20)
        with new_client(url, "health", tls=tls) as client:
            assert client.wait_ready(), client.status()
            assert client.record(smokes="no")
            assert client.flush()
        with Analyst(url, tls=tls) as analyst:
            assert analyst.show_survey("health").status.records == 1
        stranger = failure(HttpTransport(url, tls=Tls(authority.file)))
        assert "a client certificate: give Tls(certificate=, key=)" in str(stranger)
