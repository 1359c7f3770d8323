"""Servers over HTTP in this process, and what clients over HTTP make of them."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from connecting import over_http
from test_transport import Fake

from hearsay import Unreachable
from hearsay.v1 import collector_pb2


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
