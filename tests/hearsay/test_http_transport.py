"""The targets of a client over HTTP, its connections, forks and threads."""

import os
import socket
import subprocess
import sys
import threading
import time
from concurrent import futures
from pathlib import Path

import pytest
from certificates import Authority
from connecting import over_http
from http_servers import (
    WHOLE,
    failure,
    speaking,
)
from over_http import answering
from serving import register
from test_transport import Fake, Relay

from forked import exit_code_of_a_child
from hearsay import MEMORY, Analyst, Client, InvalidInput, Reason, Tls, Unreachable
from hearsay.sending.over_http import HttpTransport
from hearsay.sending.transport import connect
from hearsay.v1 import collector_pb2
from support import free_port


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


@pytest.mark.parametrize("target", ["https://ann:secret@a.example", "https://a.example/?t=secret"])
def test_what_is_secret_in_a_url_is_not_repeated(target: str) -> None:
    with pytest.raises(InvalidInput, match="a URL is") as raised:
        HttpTransport(target)
    assert "secret" not in str(raised.value)


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
def test_a_child_that_was_forked_in_a_call_leaves_it_and_sending_to_others(
    fake: Fake, secure: str, authority: Authority
) -> None:
    fake.may_answer.clear()
    transport = HttpTransport(secure, tls=Tls(authority.file))
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(transport.get_plan, "health", 20)
        assert fake.asked.acquire(timeout=10)

        def leave() -> int:
            descriptors = len([*Path("/proc/self/fd").iterdir()])
            transport.after_fork(usable=False)
            assert len([*Path("/proc/self/fd").iterdir()]) == descriptors - 1
            return 7 if "forked in the middle of a call" in str(failure(transport)) else 1

        assert exit_code_of_a_child(leave) == 7
        fake.may_answer.set()
        assert waiting.result(10).plan == b"health"


def test_an_analyst_in_a_forked_child_has_connections_of_its_own(tmp_path: Path) -> None:
    with answering(tmp_path) as door, Analyst(f"http://127.0.0.1:{door.port}") as analyst:
        register(door.grpc)
        assert len(analyst.list_surveys()) == 1
        assert exit_code_of_a_child(lambda: len(analyst.list_surveys()) + 6) == 7
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
