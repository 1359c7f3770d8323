"""Calls over HTTP end in time, and when they are interrupted."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent import futures
from pathlib import Path

import pytest
from certificates import Authority
from http_servers import GOOD, context_of, failure, full, speaking
from test_transport import Fake

from hearsay import Delivery, InvalidInput, Reason, Tls, Unreachable
from hearsay.sending.over_http import HttpTransport
from hearsay.v1 import collector_pb2
from support import wait_until


def test_a_server_that_never_answers_is_given_up() -> None:
    with speaking(lambda line: time.sleep(3)) as url:
        began = time.monotonic()
        error = failure(HttpTransport(url), timeout=0.3)
        assert 0.2 < time.monotonic() - began < 2
    assert error.reason is Reason.UNREACHABLE
    assert str(error) == f"the server at {url} did not answer in time"


@pytest.mark.parametrize("timeout", [1e10, float("inf")])
def test_a_call_may_take_as_long_as_it_wants(url: str, timeout: float) -> None:
    transport = HttpTransport(url)
    assert transport.get_plan("health", timeout).plan == b"health"
    transport.close()


def test_delivery_has_a_time_for_a_call() -> None:
    for timeout in (86401.0, float("inf"), float("nan"), 0.0):
        with pytest.raises(InvalidInput, match="timeout must be "):
            Delivery(timeout=timeout)
    assert Delivery(timeout=86400.0).timeout == 86400.0


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


@pytest.mark.parametrize("kind", ["plain", "tls"])
def test_a_server_that_refuses_and_takes_no_more_is_heard(
    kind: str, authority: Authority, tmp_path: Path
) -> None:
    done = threading.Event()
    context = context_of(authority, tmp_path)
    body = b'{"code": "resource_exhausted"}'
    head = b"HTTP/1.1 429 No\r\nRetry-After: 120\r\nContent-Type: application/json\r\n"

    def answer() -> None:
        line = listener.accept()[0]
        with line if kind == "plain" else context.wrap_socket(line, server_side=True) as line:
            line.recv(1000)
            line.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
            done.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=answer, daemon=True).start()
        target = f"localhost:{listener.getsockname()[1]}"
        transport = (
            HttpTransport(f"http://{target}")
            if kind == "plain"
            else HttpTransport(f"https://{target}", tls=Tls(authority.file))
        )
        large = collector_pb2.Batch(columns=[collector_pb2.Column(codes=bytes(16 << 20))])
        began = time.monotonic()
        with pytest.raises(Unreachable, match="refuses for now") as raised:
            transport.submit(large, 2.0)
        assert time.monotonic() - began < 3
        assert raised.value.retry_after == 120.0
        assert not transport._server.pool.waiting  # half of a request is under way
        done.set()


def test_the_time_for_a_call_includes_the_connection(url: str) -> None:
    with full() as target:
        began = time.monotonic()
        error = failure(HttpTransport(target), timeout=0.3)
        assert time.monotonic() - began < 1.5
    assert "did not answer in time" in str(error)


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
    # A socket that was shut down reads as if its end had come.
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
