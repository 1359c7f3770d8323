"""What a client over HTTP makes of a server: the answers, the failures, and what it is shown."""

import contextlib
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Authority
from connecting import over_http
from over_http import Door, answering
from serving import register, tokens_of
from test_transport import Fake, Relay

from hearsay import MEMORY, Analyst, Client, InvalidInput, Reason, Tls, Unreachable
from hearsay.sending.over_http import HttpTransport
from hearsay.sending.proxies import proxy_of
from hearsay.sending.transport import connect
from hearsay.v1 import collector_pb2
from support import free_port, new_client, wait_until


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def url(fake: Fake) -> Iterator[str]:
    with over_http(fake) as found:
        yield found
        fake.may_answer.set()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def context_of(authority: Authority, folder: Path) -> ssl.SSLContext:
    """Return what a server at localhost speaks TLS with."""
    certificate, key = folder / "server.crt", folder / "server.key"
    authority.issue(certificate, key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


@pytest.fixture
def secure(fake: Fake, authority: Authority, tmp_path: Path) -> Iterator[str]:
    with over_http(fake, context_of(authority, tmp_path)) as found:
        yield found
        fake.may_answer.set()


def failure(transport: Any, timeout: float = 10.0) -> Unreachable:
    with pytest.raises(Unreachable) as raised:
        transport.get_plan("health", timeout)
    assert "\n" not in str(raised.value)
    transport.close()
    return raised.value


PLAN = collector_pb2.GetPlanResponse(plan=b"health", server_time=7).SerializeToString()
GOOD = b"HTTP/1.1 200 OK\r\nContent-Type: application/proto\r\n"
WHOLE = GOOD + b"Content-Length: %d\r\n\r\n" % len(PLAN) + PLAN


@contextlib.contextmanager
def speaking(
    *answers: Callable[[socket.socket], None] | bytes, stay: bool = False
) -> Iterator[str]:
    """Take connections, and answer one request on each: with bytes, or by a function."""
    ended = threading.Event()

    def serve(line: socket.socket, answer: Callable[[socket.socket], None] | bytes) -> None:
        with line, contextlib.suppress(OSError):
            line.recv(1 << 16)
            if callable(answer):
                answer(line)
            else:
                line.sendall(answer)
            if stay:
                ended.wait(20)

    def accept() -> None:
        with contextlib.suppress(OSError):
            for number in range(1000):
                answer = answers[min(number, len(answers) - 1)]
                line = listener.accept()[0]
                threading.Thread(target=serve, args=(line, answer), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)


# --- the target -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [
        "https://a.example",
        "https://a.example/",
        "HTTPS://A.example:8443",
        "https://10.0.0.1:1",
        "https://[::1]:50051",
        "http://localhost:8080",
        "http://127.0.0.1:8080",
        "http://[::1]:8080/",
    ],
)
def test_a_url_is_a_scheme_a_host_and_perhaps_a_port(target: str) -> None:
    assert isinstance(connect(target), HttpTransport)


@pytest.mark.parametrize(
    "target",
    [
        "https://",
        "https:///",
        "https://a.example/path",
        "https://a.example?a",
        "https://a.example#a",
        "https://user:password@a.example",
        "https://a.example:0",
        "https://a.example:65536",
        "https://a.example:",
        "https://[a.example]",
        "https://a.example\r\nX: 1",
        "https://a.example\n",
        " https://a.example",
        "https://a .example",
        "https://b\u00fccher.example",
        "https://" + 300 * "a",
        "file:///etc/passwd",
        "ftp://a.example",
        "https:a.example",
    ],
)
def test_another_url_is_refused_when_the_client_is_made(target: str) -> None:
    with pytest.raises(InvalidInput, match=r"a URL is|a target is"):
        Client(target, "health", epsilon=1.0, ledger=MEMORY)
    with pytest.raises(InvalidInput, match=r"a URL is|a target is"):
        Analyst(target)


def test_reports_go_in_the_clear_only_where_that_is_asked_for() -> None:
    for target in ("http://a.example", "http://10.0.0.1:80", "http://localhost.example"):
        with pytest.raises(InvalidInput, match=r"in the clear: give https://, or insecure=True"):
            HttpTransport(target)
        HttpTransport(target, insecure=True)
    with pytest.raises(InvalidInput, match="tls is for https://"):
        HttpTransport("http://127.0.0.1:1", tls=Tls())
    with pytest.raises(InvalidInput, match=r"tls must be a Tls\(\.\.\.\), got True"):
        HttpTransport("https://a.example", tls=True)  # type: ignore[arg-type]


def test_insecure_takes_no_certificate_for_granted(secure: str) -> None:
    assert failure(HttpTransport(secure, insecure=True)).reason is Reason.TLS


LIFE = """
import sys
from hearsay import MEMORY, Analyst, Client
assert "grpc" not in sys.modules
choices = {"level": "strict", "epsilon": 64.0, "ledger": MEMORY, "consent": True}
with Client(sys.argv[1], "health", **choices) as client:
    assert client.wait_ready(), client.status()
    assert client.record(smokes="no", age=30)
    assert client.flush()
    client.revoke(forget=True)
analyst = Analyst(sys.argv[1])
assert [status.survey for status in analyst.list_surveys()] == ["health"]
assert len(list(analyst.chunks("health"))) == 2
analyst.close()
assert "grpc" not in sys.modules, [name for name in sys.modules if "grpc" in name]
"""


def test_a_life_over_http_never_imports_grpc(tmp_path: Path) -> None:
    with answering(tmp_path) as door:
        register(door.grpc)
        url = f"http://127.0.0.1:{door.port}"
        subprocess.run([sys.executable, "-c", LIFE, url], check=True, timeout=60)


# --- answers ----------------------------------------------------------------------------------


def test_an_answer_has_the_servers_time_and_one_result(fake: Fake, url: str) -> None:
    transport = HttpTransport(url)
    assert transport.get_plan("health", 10).server_time == 7
    assert len(transport.submit(collector_pb2.Batch(), 10).results) == 1
    fake.results = 2
    with pytest.raises(Unreachable, match="answered one batch with 2 results") as raised:
        transport.submit(collector_pb2.Batch(), 10)
    assert raised.value.reason is Reason.SERVER_REFUSED
    transport.close()


def test_transports_share_a_connection_and_not_their_tokens(fake: Fake, url: str) -> None:
    relay = Relay(url.removeprefix("http://"))
    for token in ("a", lambda: "b", None):
        transport = HttpTransport(f"http://{relay.address}", token=token)
        for _ in range(2):
            transport.get_plan("health", 10)
        transport.close()
    assert relay.opened == 1
    assert fake.tokens == ["Bearer a"] * 2 + ["Bearer b"] * 2 + [""] * 2
    relay.close()


def test_a_connection_that_nothing_uses_is_closed_when_another_is_opened(
    fake: Fake, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (Relay(url.removeprefix("http://")) for _ in range(2))
    HttpTransport(f"http://{first.address}").get_plan("health", 10)
    HttpTransport(f"http://{second.address}").get_plan("health", 10)
    assert first.living() == 1
    monkeypatch.setattr("hearsay.sending.over_http.UNUSED", 0.0)
    HttpTransport(url).get_plan("health", 10)
    wait_until(lambda: first.living() == 0)
    for relay in (first, second):
        relay.close()


def test_an_analyst_hangs_up(tmp_path: Path) -> None:
    with answering(tmp_path) as door:
        relay = Relay(f"127.0.0.1:{door.port}")
        for _ in range(2):
            with Analyst(f"http://{relay.address}") as analyst:
                analyst.list_surveys()
                analyst.list_surveys()
            wait_until(lambda: relay.living() == 0)
        assert relay.opened == 2
        relay.close()


def test_a_request_shows_what_it_must_and_no_more() -> None:
    asked: list[bytes] = []

    def answer(line: socket.socket) -> None:
        line.sendall(WHOLE)

    def listen() -> None:
        line, _ = listener.accept()
        asked.append(line.recv(1 << 16))
        answer(line)
        line.close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        threading.Thread(target=listen, daemon=True).start()
        transport = HttpTransport(f"http://127.0.0.1:{port}", token="secret")
        assert transport.get_plan("health", 2.5).plan == b"health"
        transport.close()
    body = collector_pb2.GetPlanRequest(survey="health").SerializeToString()
    assert asked[0].decode() == (
        "POST /hearsay.v1.Collector/GetPlan HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{port}\r\n"
        "Content-Type: application/proto\r\n"
        "Accept-Encoding: identity\r\n"
        "Connect-Protocol-Version: 1\r\n"
        "Connect-Timeout-Ms: 2500\r\n"
        "Authorization: Bearer secret\r\n"
        f"Content-Length: {len(body)}\r\n"
        "\r\n" + body.decode()
    )


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE,
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
        GOOD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(PLAN) + PLAN + b"\r\n0\r\n\r\n",
        GOOD
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in PLAN)
        + b"0\r\nTrailer: 1\r\n\r\n",
        WHOLE.replace(b"1.1", b"1.0").replace(b"proto\r\n", b"proto; charset=utf-8\r\n"),
    ],
    ids=["whole", "after 100", "one chunk", "chunks with a trailer", "HTTP/1.0"],
)
def test_an_answer_that_is_told_in_another_way_is_the_same(answer: bytes) -> None:
    with speaking(answer) as url:
        transport = HttpTransport(url)
        assert transport.get_plan("health", 10).plan == b"health"
        transport.close()


LARGE = 5 << 20
CUT = GOOD + b"Content-Length: 1000\r\n\r\n" + PLAN


@pytest.mark.parametrize(
    ("answer", "words", "reason"),
    [
        (CUT, "in the middle of its answer", "unreachable"),
        (GOOD + b"Content-Length: 9\r\n\r\n", "in the middle of its answer", "unreachable"),
        (
            GOOD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(PLAN) + PLAN,
            "in the middle of its answer",
            "unreachable",
        ),
        (GOOD + b"\r\n" + PLAN, "without saying where its answer ends", "unreachable"),
        (GOOD + b"Content-Length: -1\r\n\r\n" + PLAN, "without saying where", "unreachable"),
        (GOOD + b"Content-Length: ten\r\n\r\n" + PLAN, "without saying where", "unreachable"),
        (
            GOOD + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n" + PLAN,
            "does not speak HTTP as it should",
            "unreachable",
        ),
        (
            GOOD + b"Transfer-Encoding: chunked\r\n\r\nfive\r\n" + PLAN,
            "in the middle of its answer",
            "unreachable",
        ),
        (
            GOOD + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
            "content encoding 'gzip', which was not asked for",
            "unreachable",
        ),
        (
            GOOD + b"Content-Length: %d\r\n\r\n" % (LARGE + 1),
            "with more than 5242880 bytes",
            "unreachable",
        ),
        (
            GOOD
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + 6 * (b"100000\r\n" + bytes(1 << 20) + b"\r\n")
            + b"0\r\n\r\n",
            "with more than ",
            "unreachable",
        ),
        (b"HTTP/1.1 200 OK\r\n" + 200 * b"A: b\r\n", "does not speak HTTP", "unreachable"),
        (b"HTTP/1.1 200 OK\r\nA: " + 70000 * b"b", "does not speak HTTP", "unreachable"),
        (
            80 * (b"HTTP/1.1 100 Continue\r\nA: " + 65000 * b"b" + b"\r\n\r\n") * 2,
            "with more than it may",
            "unreachable",
        ),
        (
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + WHOLE,
            "with status 103",
            "unreachable",
        ),
        (b"220 mail.example ESMTP\r\n", "does not speak HTTP", "unreachable"),
        (b"\x15\x03\x01\x00\x02\x02\x0a", "it may expect https://", "unreachable"),
        (b"", "closed the connection before it answered", "unreachable"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n",
            "with a redirect (302), which is not followed",
            "unreachable",
        ),
        (
            b"HTTP/1.1 308 No\r\nLocation: http://other.example/\r\nContent-Length: 0\r\n\r\n",
            "with a redirect (308), which is not followed",
            "unreachable",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\nWelcom",
            "with status 200 and text/html: it is no server of Hearsay",
            "unreachable",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
            "with status 200 and no content type",
            "unreachable",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 21\r\n\r\n"
            b'{"code": "not_found"}',
            "with status 200 and application/json",
            "unreachable",
        ),
        (
            b"HTTP/1.1 404 No\r\nContent-Type: text/html\r\nContent-Length: 0\r\n\r\n",
            "with status 404 and text/html",
            "unreachable",
        ),
        (
            b"HTTP/1.1 404 No\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
            "with status 404 and application/json",
            "unreachable",
        ),
        (
            b"HTTP/1.1 400 No\r\nContent-Type: application/json\r\n"
            b"Content-Length: 60000\r\n\r\n" + 60000 * b"[",
            "with status 400 and application/json",
            "unreachable",
        ),
        (
            b"HTTP/1.1 502 Bad Gateway\r\n\r\n<html>",
            "refuses for now: status 502",
            "server_refused",
        ),
        (b"HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n", "status 429", "server_refused"),
        (b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n", "does not accept the token", "bad_token"),
        (b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n", "does not accept the token", "bad_token"),
        (
            GOOD + b"Content-Length: 4\r\n\r\n\xff\xff\xff\xff",
            "bytes that are no GetPlanResponse",
            "server_refused",
        ),
    ],
)
def test_an_answer_that_is_none_is_told(answer: bytes, words: str, reason: str) -> None:
    with speaking(answer) as url:
        error = failure(HttpTransport(url))
    assert words in str(error)
    assert error.reason == reason
    assert error.retry_after == 0.0
    assert len(str(error)) < 500


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.SERVER_REFUSED),
        (grpc.StatusCode.UNIMPLEMENTED, Reason.SERVER_REFUSED),
        (grpc.StatusCode.INTERNAL, Reason.SERVER_REFUSED),
        (grpc.StatusCode.UNAVAILABLE, Reason.UNREACHABLE),
        (grpc.StatusCode.CANCELLED, Reason.UNREACHABLE),
        (grpc.StatusCode.DEADLINE_EXCEEDED, Reason.UNREACHABLE),
        (grpc.StatusCode.UNAUTHENTICATED, Reason.BAD_TOKEN),
        (grpc.StatusCode.PERMISSION_DENIED, Reason.BAD_TOKEN),
    ],
)
def test_a_server_that_answers_and_refuses_is_told(
    fake: Fake, url: str, code: grpc.StatusCode, reason: Reason
) -> None:
    fake.error = code, "too many\nwait" + 1000 * "!"
    error = failure(HttpTransport(url))
    assert error.reason is reason
    assert error.retry_after == 0.0
    assert len(str(error)) < 500


def test_a_request_that_will_never_be_taken_is_invalid_input(fake: Fake, url: str) -> None:
    fake.error = grpc.StatusCode.NOT_FOUND, "there is no survey 'health'"
    transport = HttpTransport(url)
    for _ in range(2):  # the connection goes on
        with pytest.raises(InvalidInput, match="there is no survey 'health'"):
            transport.get_plan("health", 10)
    transport.close()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("retry-after-ms: 1500\r\nretry-after: 2", 1.5),
        ("retry-after: 2", 2.0),
        ("Retry-After-Ms: 99999999999", 0.0),
        ("Retry-After-Ms: 9999999999", 3600.0),
        ("Retry-After-Ms: -1", 0.0),
        ("Retry-After: Fri, 31 Dec 2027 23:59:59 GMT", 0.0),
    ],
)
def test_a_server_that_asks_for_patience_has_answered(header: str, seconds: float) -> None:
    head = f"HTTP/1.1 503 No\r\n{header}\r\nContent-Type: application/json\r\nContent-Length: "
    body = b'{"code": "unavailable", "message": "the database is gone"}'
    with speaking(head.encode() + b"%d\r\n\r\n" % len(body) + body) as url:
        error = failure(HttpTransport(url))
    assert error.reason is Reason.SERVER_REFUSED
    assert error.retry_after == seconds
    assert "refuses for now: the database is gone" in str(error)


def test_a_proxy_that_asks_for_patience_is_left_alone() -> None:
    with speaking(b"HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n") as url:
        assert failure(HttpTransport(url)).retry_after == 7.0


# --- time -------------------------------------------------------------------------------------


def test_a_server_that_never_answers_is_given_up() -> None:
    with speaking(lambda line: time.sleep(3)) as url:
        began = time.monotonic()
        error = failure(HttpTransport(url), timeout=0.3)
        assert 0.2 < time.monotonic() - began < 2
    assert error.reason is Reason.UNREACHABLE
    assert str(error) == f"the server at {url} did not answer in time"


def dripping(beginning: bytes, drop: bytes) -> Callable[[socket.socket], None]:
    def drip(line: socket.socket) -> None:
        line.sendall(beginning)
        for _ in range(300):
            line.sendall(drop)
            time.sleep(0.02)

    return drip


@pytest.mark.parametrize(
    ("beginning", "drop"),
    [
        (GOOD + b"Content-Length: 100000\r\n\r\n", b"a"),
        (GOOD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"a"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["body", "chunks", "headers", "a header", "100 Continue"],
)
def test_an_answer_that_drips_is_given_up_in_time(beginning: bytes, drop: bytes) -> None:
    # The time of a socket is that of one read, of which there may be any number.
    with speaking(dripping(beginning, drop)) as url:
        began = time.monotonic()
        error = failure(HttpTransport(url), timeout=0.3)
        assert time.monotonic() - began < 1.5
    assert "did not answer in time" in str(error)


def test_a_server_that_takes_nothing_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = HttpTransport(f"http://127.0.0.1:{listener.getsockname()[1]}")
        large = collector_pb2.Batch(columns=[collector_pb2.Column(codes=bytes(16 << 20))])
        began = time.monotonic()
        with pytest.raises(Unreachable, match="did not answer in time"):
            transport.submit(large, 0.3)
        assert time.monotonic() - began < 2


def test_the_time_for_a_call_includes_the_connection(url: str) -> None:
    with full() as target:
        began = time.monotonic()
        error = failure(HttpTransport(target), timeout=0.3)
        assert time.monotonic() - began < 1.5
    assert "did not answer in time" in str(error)


@contextlib.contextmanager
def full() -> Iterator[str]:
    """Listen, with so many connections waiting that another one is never made."""
    with socket.socket() as listener, contextlib.ExitStack() as waiting:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):
            line = waiting.enter_context(socket.socket())
            line.setblocking(False)
            line.connect_ex(address)
        time.sleep(0.05)
        yield f"http://127.0.0.1:{address[1]}"


def test_a_name_that_is_slow_to_resolve_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: slow.wait(20) and [])
    transport = HttpTransport("https://slow.example")
    began = time.monotonic()
    assert "did not answer in time" in str(failure(transport, timeout=0.3))
    with futures.ThreadPoolExecutor(1) as pool:
        ending = pool.submit(transport.get_plan, "health", 20)
        wait_until(lambda: transport._call is not None and transport._call._names is not None)
        transport.interrupt()
        with pytest.raises(Unreachable, match="the call was interrupted"):
            ending.result(10)
    assert time.monotonic() - began < 3
    slow.set()


# --- interruptions ----------------------------------------------------------------------------


def interrupted(transport: HttpTransport, begun: Callable[[], object]) -> None:
    """Interrupt a call once it has begun, and check that it ends at once."""
    transport.interrupt()  # there is no call
    with futures.ThreadPoolExecutor(1) as pool:
        ending = pool.submit(transport.get_plan, "health", 20)
        wait_until(begun)
        time.sleep(0.05)
        began = time.monotonic()
        transport.interrupt()
        with pytest.raises(Unreachable, match="the call was interrupted"):
            ending.result(10)
        assert time.monotonic() - began < 1


def test_an_interruption_ends_a_call_that_waits(fake: Fake, url: str) -> None:
    fake.may_answer.clear()
    transport = HttpTransport(url)
    interrupted(transport, lambda: fake.asked.acquire(timeout=0.01))
    fake.may_answer.set()
    assert transport.get_plan("health", 10).plan == b"health"
    transport.close()


def test_an_interruption_ends_a_call_over_tls(
    fake: Fake, secure: str, authority: Authority
) -> None:
    fake.may_answer.clear()
    transport = HttpTransport(secure, tls=Tls(authority.file))
    interrupted(transport, lambda: fake.asked.acquire(timeout=0.01))
    fake.may_answer.set()
    assert transport.get_plan("health", 10).plan == b"health"
    transport.close()


def test_an_interruption_leaves_no_shorter_answer() -> None:
    # `read` of http.client with a number returns what there is once the connection is closed.
    with speaking(GOOD + b"Content-Length: 100\r\n\r\n", stay=True) as url:
        transport = HttpTransport(url)
        interrupted(transport, lambda: transport._call is not None)


def test_an_interruption_ends_a_connection_that_is_being_made() -> None:
    with full() as target:
        transport = HttpTransport(target)
        interrupted(transport, lambda: transport._call is not None)


def test_an_interruption_ends_a_handshake(authority: Authority) -> None:
    with speaking(b"", stay=True) as url:
        transport = HttpTransport(url.replace("http:", "https:"), tls=Tls(authority.file))
        interrupted(transport, lambda: transport._call is not None)


# --- connections that end -----------------------------------------------------------------------


def test_a_connection_that_the_server_closed_is_replaced_without_a_word(
    fake: Fake, url: str
) -> None:
    relay = Relay(url.removeprefix("http://"))
    transport = HttpTransport(f"http://{relay.address}")
    for number in range(3):
        assert transport.get_plan("health", 10).plan == b"health"
        assert relay.opened == number + 1
        (waiting,) = transport._server.pool.waiting
        socket.socket.shutdown(waiting._socket, socket.SHUT_RD)  # as if the end had come
    assert len(fake.tokens) == 3
    transport.close()
    relay.close()


def closing_as_it_is_asked(line: socket.socket) -> None:
    """Answer one request, and hang up as the next one comes."""
    line.sendall(WHOLE)
    line.recv(1 << 16)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def test_a_request_goes_once_more_where_the_server_hung_up_meanwhile() -> None:
    with speaking(closing_as_it_is_asked) as url:
        transport = HttpTransport(url)
        for _ in range(4):
            assert transport.get_plan("health", 10).plan == b"health"
        transport.close()


def test_a_request_goes_once_more_on_a_new_connection_only() -> None:
    asked = []

    def close(line: socket.socket) -> None:
        asked.append(1)

    with speaking(closing_as_it_is_asked, close) as url:
        transport = HttpTransport(url)
        assert transport.get_plan("health", 10).plan == b"health"
        assert "closed the connection" in str(failure(transport))
    assert len(asked) == 1


def test_an_answer_that_has_begun_is_not_asked_for_again() -> None:
    asked = []

    def half(line: socket.socket) -> None:
        line.sendall(WHOLE)
        line.recv(1 << 16)
        asked.append(1)
        line.sendall(WHOLE[:-3])

    with speaking(half) as url:
        transport = HttpTransport(url)
        assert transport.get_plan("health", 10).plan == b"health"
        assert "in the middle of its answer" in str(failure(transport))
    assert len(asked) == 1


def test_what_comes_after_an_answer_is_no_answer_to_the_next_request() -> None:
    lie = WHOLE.replace(b"health", b"wealth")
    with speaking(WHOLE + lie, WHOLE + lie, stay=True) as url:
        transport = HttpTransport(url)
        for _ in range(3):
            assert transport.get_plan("health", 10).plan == b"health"
            assert not transport._server.pool.waiting
        transport.close()

    def late(line: socket.socket) -> None:
        line.sendall(WHOLE)
        time.sleep(0.1)
        line.sendall(lie)

    with speaking(late, stay=True) as url:
        transport = HttpTransport(url)
        for _ in range(2):
            assert transport.get_plan("health", 10).plan == b"health"
            time.sleep(0.2)
        transport.close()


def test_a_connection_that_waited_for_long_is_not_trusted(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = Relay(url.removeprefix("http://"))
    transport = HttpTransport(f"http://{relay.address}")
    transport.get_plan("health", 10)
    relay.let_die()  # and nobody is told
    monkeypatch.setattr("hearsay.sending.connection.UNUSED", 0.0)
    assert transport.get_plan("health", 10).plan == b"health"
    transport.close()
    relay.close()


def test_a_server_that_refuses_before_it_has_read_all_is_heard(tmp_path: Path) -> None:
    with answering(tmp_path, max_message_bytes=1 << 16) as door:
        register(door.grpc)
        transport = HttpTransport(f"http://127.0.0.1:{door.port}")
        large = collector_pb2.Batch(columns=[collector_pb2.Column(codes=bytes(4 << 20))])
        with pytest.raises(Unreachable, match="holds at most 65536 bytes") as raised:
            transport.submit(large, 10)
        assert raised.value.reason is Reason.SERVER_REFUSED
        transport.close()


# --- what cannot be reached ---------------------------------------------------------------------


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
            assert f"the server at {url} does not accept the token, or asks" in str(error)
        transport = HttpTransport(url, token=mine)
        assert transport.get_plan("health", 10).plan
        transport.close()


def test_a_token_that_cannot_be_had_or_sent_is_told_and_not_repeated(fake: Fake, url: str) -> None:
    def broken() -> str:
        raise KeyError("secret")

    for token in (broken, "secret\n", "sécret", "secret\r\nX-Admin: 1", lambda: "secret\0"):
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
    assert str(error) == f"nothing listens at {target}"


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
    assert "nothing listens" in str(failure(transport))
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


# --- proxies ------------------------------------------------------------------------------------


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
    assert str(error) == f"the proxy: nothing listens at {address}"
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
        ("xample", False),
        ("ple", False),
    ],
)
def test_exceptions_from_the_proxy_are_hosts_and_domains(exceptions: str, passed_by: bool) -> None:
    environ = {"https_proxy": "proxy:3128", "no_proxy": exceptions}
    found = proxy_of("https", "a.example", 443, environ)
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


def test_a_caller_of_a_cgi_script_names_no_proxy() -> None:
    environ = {"HTTP_PROXY": "evil.example:80"}
    assert proxy_of("http", "a.example", 80, environ) is not None
    assert proxy_of("http", "a.example", 80, {**environ, "REQUEST_METHOD": "GET"}) is None


# --- forks and threads --------------------------------------------------------------------------


FORKING = """
import contextlib, os, signal, sys
from pathlib import Path
from hearsay import Tls
from hearsay.sending.over_http import HttpTransport

transport = HttpTransport(sys.argv[1], tls=Tls(Path(sys.argv[2])) if sys.argv[2] else None)
assert transport.get_plan("health", 10).plan
for _ in range(50):
    child = os.fork()
    if not child:
        signal.alarm(30)
        with contextlib.suppress(BaseException):
            transport.after_fork(usable=True)
            if transport.get_plan("health", 10).plan:
                os._exit(0)
        os._exit(1)
    assert transport.get_plan("health", 10).plan
    assert os.waitpid(child, 0)[1] == 0
connection, = transport._server.pool.waiting
print(transport.get_plan("health", 10).server_time, transport._server.pool.waiting == [connection])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_a_child_has_a_connection_of_its_own_and_leaves_the_parents(
    kind: str, url: str, secure: str, authority: Authority
) -> None:
    relay = Relay((url if kind == "plain" else secure).rpartition("/")[2])
    host = "127.0.0.1" if kind == "plain" else "localhost"
    port = relay.address.rpartition(":")[2]
    scheme = "http" if kind == "plain" else "https"
    file = "" if kind == "plain" else str(authority.file)
    command = [sys.executable, "-c", FORKING, f"{scheme}://{host}:{port}", file]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout == "7 True\n"
    assert relay.opened == 51
    relay.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_that_was_forked_in_a_call_leaves_sending_to_others(url: str) -> None:
    transport = HttpTransport(url)
    transport.after_fork(usable=False)
    assert "forked in the middle of a call" in str(failure(transport))


def test_an_analyst_in_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    with answering(tmp_path) as door, contextlib.closing(analyst_of(door)) as analyst:
        register(door.grpc)
        assert len(analyst.list_surveys()) == 1
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                os._exit(len(analyst.list_surveys()) + 6)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        assert len(analyst.list_surveys()) == 1


def test_a_call_to_an_address_starts_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # has started its thread
        with socket.create_server(("127.0.0.1", 0)) as silent, monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            for target in (f"http://127.0.0.1:{silent.getsockname()[1]}", "https://no.invalid"):
                transport = HttpTransport(target)
                assert isinstance(
                    pool.submit(transport.get_plan, "health", 0.2).exception(10), Unreachable
                )


def test_a_server_that_comes_back_is_reached_at_the_next_call(fake: Fake) -> None:
    port = free_port()
    transport = HttpTransport(f"http://127.0.0.1:{port}")
    for _ in range(3):
        with pytest.raises(Unreachable):
            transport.get_plan("health", 10)
    with over_http(fake, port=port):
        assert transport.get_plan("health", 10).plan == b"health"
        transport.close()


# --- analysts -----------------------------------------------------------------------------------


def analyst_of(door: Door, **options: Any) -> Analyst:
    return Analyst(f"http://127.0.0.1:{door.port}", **options)


def test_an_analyst_asks_over_http(tmp_path: Path) -> None:
    with answering(tmp_path) as door, contextlib.closing(analyst_of(door)) as analyst:
        register(door.grpc)
        with new_client(f"http://127.0.0.1:{door.port}", "health") as client:
            assert client.wait_ready()
            assert client.record(smokes="no", age=30)
            assert client.flush()
        with contextlib.closing(Analyst(door.grpc)) as other:
            for found in (analyst, other):
                assert found.show_survey("health").status.records == 1
                answer = found.query("health", "smokes")
                assert [row.label for row in answer.rows] == ["no", "sometimes", "yes"]
                assert len(list(found.chunks("health"))) == 2
                assert [part.group for part in found.query_by("health", "smokes", "LEVEL")] == [
                    "strict"
                ]
                with pytest.raises(InvalidInput, match="has no attribute 'height'"):
                    found.query("health", "height")
                with pytest.raises(InvalidInput, match="there is no survey 'wealth'"):
                    found.show_survey("wealth")
            assert analyst.query("health", "smokes") == other.query("health", "smokes")
        watched = analyst.watch_query("health", "smokes", interval=0.1)
        assert next(watched).reports == 1
        watched.close()
        wait_until(lambda: door.open_calls() <= 1)  # the call that asks for it


def test_an_analyst_may_ask_from_several_threads(tmp_path: Path) -> None:
    with answering(tmp_path) as door, contextlib.closing(analyst_of(door)) as analyst:
        register(door.grpc)
        with futures.ThreadPoolExecutor(12) as pool:
            found = list(pool.map(lambda _: analyst.show_survey("health").status.survey, range(60)))
        assert found == ["health"] * 60
        assert 1 <= len(analyst._calls._server.pool.waiting) <= 8  # type: ignore[attr-defined]


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+proto\r\n"


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (b"\0\0\0\0\1", Unreachable, "in the middle of its answer"),
        (b"\0\0", Unreachable, "in the middle of its answer"),
        (b"", Unreachable, "in the middle of its answer"),
        (b"\1\0\0\0\1a", Unreachable, "with a compressed part"),
        (b"\0\xff\0\0\0a", Unreachable, "with more than 5242880 bytes at once"),
        (b"\0\0\0\0\2\xff\xff", Unreachable, "bytes that are no EstimateResponse"),
        (b'\2\0\0\0\x2a{"error": {"code": "unauthenticated"}}    ', Unreachable, "the token"),
        (b"\2\0\0\0\1?", Unreachable, "with an end that is no JSON"),
        (b"\2\0\0\0\2{}", Unreachable, "one question with 0 answers"),
    ],
)
def test_a_stream_that_is_none_is_told(body: bytes, error: type[Exception], words: str) -> None:
    answer = STREAM + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with (
        speaking(answer) as url,
        contextlib.closing(Analyst(url)) as analyst,
        pytest.raises(error, match=words),
    ):
        analyst.query("health", "smokes")
