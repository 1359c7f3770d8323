"""What a client learns of a server that it cannot reach, and the connection it shares."""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
import pytest
from certificates import Authority
from moody import listening
from serving import register, serving, tokens_of

from hearsay import MEMORY, Client, Delivery, InvalidInput, Reason, Tls, Unreachable
from hearsay.sending.over_grpc import GrpcTransport, check_target, open_channel
from hearsay.sending.transport import is_loopback
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from support import Server, device, free_port, new_client, wait_until


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("unix:/run/hearsay.sock", True),
        ("10.0.0.1:1", False),
        ("0.0.0.0:1", False),
        ("localhost.example.org:1", False),
        ("127.0.0.1.example.org:1", False),
        ("hearsay.example.org:443", False),
        ("", False),
    ],
)
def test_only_this_machine_is_loopback(target: str, expected: bool) -> None:
    assert is_loopback(target) is expected


@pytest.mark.parametrize(
    "target",
    ["a.example:1", "a-b:65535", "10.0.0.1:443", "[::1]:50051", "unix:/run/a.sock", "unix:a.sock"],
)
def test_a_target_is_a_host_and_a_port_or_a_socket(target: str) -> None:
    check_target(target)


@pytest.mark.parametrize(
    "target",
    [
        "",
        "a.example",
        "a.example:",
        "a.example:https",
        "a.example:0",
        "a.example:65536",
        "a.example:1/path",
        ":1",
        "::1:1",
        "[::1]",
        "[a.example]:1",
        "user@a.example:1",
        " a.example:1",
        "a.example:1\n",
        "a.example:\u0661",
        "http://a.example:1",
        "https://a.example:1",
        "dns:a.example:1",
        "dns:///a.example:1",
        "dns:1",
        "ipv4:10.0.0.1:1",
        "xds:a",
        "unix:",
        "unix-abstract:a",
    ],
)
def test_another_target_is_refused_when_the_transport_is_made(target: str) -> None:
    with pytest.raises(InvalidInput, match='a target is "host:port"'):
        GrpcTransport(target, insecure=True)


class Relay:
    """A way to a server, on which connections can die without anybody being told."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.opened = 0
        self._ended: set[int] = set()
        self._dead: set[int] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def let_die(self) -> None:
        """Pass nothing on any more on the connections that there are."""
        self._dead.update(range(self.opened))

    def living(self) -> int:
        """Return how many connections neither end has closed."""
        return self.opened - len(self._ended)

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection((self._host, self._port))
                number = self.opened
                self.opened += 1  # before an answer can come back
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=(number, *ends), daemon=True).start()

    def _pass(self, number: int, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if number not in self._dead:
                    target.sendall(data)
        self._ended.add(number)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


class Fake(collector_pb2_grpc.CollectorServicer):
    """A service that answers as a test says, once it may."""

    def __init__(self) -> None:
        self.error: tuple[grpc.StatusCode, str] | None = None
        self.trailing: list[tuple[str, str]] = []
        self.results = 1
        self.asked = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.tokens: list[str] = []

    def GetPlan(self, request: Any, context: Any) -> Any:
        self.tokens.append(dict(context.invocation_metadata()).get("authorization", ""))
        self.asked.release()
        assert self.may_answer.wait(20)
        context.set_trailing_metadata(self.trailing)
        if self.error is not None:
            context.abort(*self.error)
        return collector_pb2.GetPlanResponse(plan=request.survey.encode(), server_time=7)

    def Submit(self, request: Any, context: Any) -> Any:
        return collector_pb2.SubmitResponse(results=[collector_pb2.Result()] * self.results)


@pytest.fixture
def fake() -> Fake:
    return Fake()


@pytest.fixture
def address(fake: Fake) -> Iterator[str]:
    with listening(fake) as found:
        yield found
        fake.may_answer.set()


def failure(transport: GrpcTransport, timeout: float = 10.0) -> Unreachable:
    with pytest.raises(Unreachable) as raised:
        transport.get_plan("health", timeout)
    assert "\n" not in str(raised.value)
    return raised.value


def test_a_wrong_token_is_told(tmp_path: Path) -> None:
    tokens = tokens_of(tmp_path)
    _, admin = tokens.create("admin")
    _, mine = tokens.create("device")
    with serving(tmp_path, require_device_token=True) as address:
        register(address, admin)
        for token in (None, "hearsay-guess", admin):
            error = failure(GrpcTransport(address, token=token))
            assert error.reason is Reason.BAD_TOKEN
            assert f"the server at {address} does not accept the token" in str(error)
        assert GrpcTransport(address, token=mine).get_plan("health", 10).plan


def test_a_token_that_cannot_be_had_or_sent_is_told_and_not_repeated(address: str) -> None:
    def broken() -> str:
        raise KeyError("secret")

    for token in (broken, "sec\ncret", "sécret"):
        error = failure(GrpcTransport(address, token=token))
        assert error.reason is Reason.BAD_TOKEN
        assert "cret" not in str(error)


def test_a_name_that_does_not_resolve_is_told() -> None:
    error = failure(GrpcTransport("nowhere.invalid:1", insecure=True))
    assert error.reason is Reason.NAME_NOT_FOUND
    assert str(error) == "the host name in nowhere.invalid:1 does not resolve"


def test_a_port_where_nothing_listens_is_told() -> None:
    target = f"127.0.0.1:{free_port()}"
    error = failure(GrpcTransport(target))
    assert error.reason is Reason.UNREACHABLE
    assert str(error) == f"no server answers at {target}"


def test_a_socket_that_is_not_there_is_told(tmp_path: Path) -> None:
    error = failure(GrpcTransport(f"unix:{tmp_path / 'none'}"))
    assert error.reason is Reason.UNREACHABLE
    assert str(error).startswith("no server answers at")


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        target = f"127.0.0.1:{silent.getsockname()[1]}"
        began = time.monotonic()
        error = failure(GrpcTransport(target), timeout=0.3)
    assert 0.2 < time.monotonic() - began < 2
    assert error.reason is Reason.UNREACHABLE
    assert str(error) == f"the server at {target} did not answer in time"


def test_a_server_that_is_no_grpc_is_told() -> None:
    def answer() -> None:
        connection, _ = web.accept()
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 505 No\r\nContent-Length: 0\r\n\r\n")
        connection.close()

    with socket.create_server(("127.0.0.1", 0)) as web:
        threading.Thread(target=answer, daemon=True).start()
        error = failure(GrpcTransport(f"127.0.0.1:{web.getsockname()[1]}"))
    assert error.reason is Reason.UNREACHABLE
    assert "does not speak gRPC" in str(error)


def test_each_failure_of_tls_is_told(fake: Fake, address: str, tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    certificate, key = tmp_path / "server.crt", tmp_path / "server.key"
    authority.issue(certificate, key)
    credentials = grpc.ssl_server_credentials([(key.read_bytes(), certificate.read_bytes())])
    trusting = Tls(authority.file, server_name="localhost")
    with listening(fake, credentials) as secure:
        assert GrpcTransport(secure, tls=trusting).get_plan("health", 10).plan == b"health"
        for target, tls, words in (
            (secure, Tls(other.file, server_name="localhost"), "is not trusted"),
            (secure, Tls(authority.file, server_name="a.example"), "has another name"),
            (address, trusting, "does not speak TLS"),
        ):
            error = failure(GrpcTransport(target, tls=tls))
            assert error.reason is Reason.TLS
            assert words in str(error)
        error = failure(GrpcTransport(secure))
        assert error.reason is Reason.UNREACHABLE
        assert "it may expect TLS" in str(error)


def test_a_file_for_tls_that_is_gone_later_is_told(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    transport = GrpcTransport("127.0.0.1:1", tls=Tls(authority.file))
    authority.file.unlink()
    error = failure(transport)
    assert error.reason is Reason.TLS
    assert "cannot read a file for TLS" in str(error)


@pytest.mark.parametrize("tls", [True, False, "ca.pem"])
def test_what_is_no_tls_is_refused_with_what_to_give(tls: Any) -> None:
    with pytest.raises(InvalidInput, match=r"tls must be a Tls\(\.\.\.\), got .* give Tls\(\)"):
        Client("a.example:1", "health", epsilon=1.0, ledger=MEMORY, tls=tls)
    with pytest.raises(InvalidInput, match="tls must be"):
        open_channel("a.example:1", tls=tls)


REFUSALS = [
    (grpc.StatusCode.PERMISSION_DENIED, Reason.SERVER_REFUSED),  # a proxy's: it names no token
    (grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.SERVER_REFUSED),
    (grpc.StatusCode.UNIMPLEMENTED, Reason.SERVER_REFUSED),
    (grpc.StatusCode.INTERNAL, Reason.SERVER_REFUSED),
    (grpc.StatusCode.UNAVAILABLE, Reason.UNREACHABLE),
    (grpc.StatusCode.CANCELLED, Reason.UNREACHABLE),
]
"""What a server may answer, and the reason that either transport tells."""


@pytest.mark.parametrize(("code", "reason"), REFUSALS)
def test_a_server_that_answers_and_refuses_is_told(
    fake: Fake, address: str, code: grpc.StatusCode, reason: Reason
) -> None:
    fake.error = code, "too many\nwait" + 1000 * "!"
    error = failure(GrpcTransport(address))
    assert error.reason is reason
    assert error.retry_after == 0.0
    assert len(str(error)) < 500


def test_a_server_that_asks_for_patience_has_answered(fake: Fake, address: str) -> None:
    fake.error = grpc.StatusCode.UNAVAILABLE, "the database is gone"
    fake.trailing = [("retry-after-ms", "1500")]
    error = failure(GrpcTransport(address))
    assert error.reason is Reason.SERVER_REFUSED
    assert error.retry_after == 1.5
    assert "refuses for now: the database is gone" in str(error)


def test_a_request_that_will_never_be_taken_is_invalid_input(fake: Fake, address: str) -> None:
    fake.error = grpc.StatusCode.NOT_FOUND, "there is no survey 'health'"
    with pytest.raises(InvalidInput, match="there is no survey 'health'"):
        GrpcTransport(address).get_plan("health", 10)


def test_an_answer_has_the_servers_time_and_one_result(fake: Fake, address: str) -> None:
    transport = GrpcTransport(address)
    assert transport.get_plan("health", 10).server_time == 7
    assert len(transport.submit(collector_pb2.Batch(), 10).results) == 1
    fake.results = 2
    with pytest.raises(Unreachable, match="answered one batch with 2 results") as raised:
        transport.submit(collector_pb2.Batch(), 10)
    assert raised.value.reason is Reason.SERVER_REFUSED


def test_transports_share_a_connection_and_not_their_tokens(fake: Fake, address: str) -> None:
    relay = Relay(address)
    for token in ("a", lambda: "b", None):
        transport = GrpcTransport(relay.address, token=token)
        transport.get_plan("health", 10)
        transport.close()
    assert relay.opened == 1
    assert fake.tokens == ["Bearer a", "Bearer b", ""]
    GrpcTransport(relay.address, insecure=True).get_plan("health", 10)
    assert relay.opened == 2
    relay.close()


def test_a_connection_that_is_replaced_ends_no_call_of_others(fake: Fake, address: str) -> None:
    fake.may_answer.clear()
    hurried, patient = GrpcTransport(address), GrpcTransport(address)
    with futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(patient.get_plan, "health", 10)
        assert fake.asked.acquire(timeout=10)
        failure(hurried, timeout=0.1)
        fake.may_answer.set()
        assert hurried.get_plan("health", 10).plan == b"health"
        assert waiting.result(10).plan == b"health"


def test_an_interruption_ends_the_call_of_its_own_transport(fake: Fake, address: str) -> None:
    fake.may_answer.clear()
    mine, other = GrpcTransport(address), GrpcTransport(address)
    mine.interrupt()  # there is no call
    with futures.ThreadPoolExecutor(2) as pool:
        ending, waiting = (pool.submit(t.get_plan, "health", 10) for t in (mine, other))
        for _ in range(2):
            assert fake.asked.acquire(timeout=10)
        began = time.monotonic()
        mine.interrupt()
        with pytest.raises(Unreachable, match="the call was interrupted"):
            ending.result(10)
        assert time.monotonic() - began < 1
        assert not waiting.done()
        fake.may_answer.set()
        assert waiting.result(10).plan == b"health"
    assert mine.get_plan("health", 10).plan == b"health"


def test_a_call_starts_no_thread(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()  # has started its thread
        with socket.create_server(("127.0.0.1", 0)) as silent, monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            transport = GrpcTransport(f"127.0.0.1:{silent.getsockname()[1]}")
            assert isinstance(
                pool.submit(transport.get_plan, "health", 0.2).exception(10), Unreachable
            )


def test_a_server_that_comes_back_is_reached_at_the_next_call(fake: Fake) -> None:
    port = free_port()
    transport = GrpcTransport(f"127.0.0.1:{port}")
    for _ in range(5):
        failure(transport)  # gRPC alone would wait longer and longer before it connects again
    with listening(fake, port=port):
        assert transport.get_plan("health", 10).plan == b"health"


def test_a_connection_that_nothing_uses_is_closed_when_another_is_opened(
    fake: Fake, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Relay(address), Relay(address)
    idle = GrpcTransport(first.address)
    idle.get_plan("health", 10)
    GrpcTransport(second.address).get_plan("health", 10)
    assert first.living() == 1
    monkeypatch.setattr("hearsay.sending.channels._UNUSED", 0.0)
    GrpcTransport(address).get_plan("health", 10)
    wait_until(lambda: first.living() == 0)
    assert idle.get_plan("health", 10).plan == b"health"
    assert first.opened == 2
    for relay in (first, second):
        relay.close()


def test_a_channel_that_was_replaced_connects_no_more() -> None:
    """gRPC would connect again, first after about a second."""
    opened = 0

    def drop() -> None:
        nonlocal opened
        with contextlib.suppress(OSError):
            while True:
                listener.accept()[0].close()
                opened += 1

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drop, daemon=True).start()
        transport = GrpcTransport(f"127.0.0.1:{listener.getsockname()[1]}")
        for _ in range(5):
            failure(transport)
        time.sleep(2.0)
        assert opened == 5


FORKING = """
import contextlib, os, signal, sys
from hearsay.sending.over_grpc import GrpcTransport
from hearsay.sending.transport import Unreachable

transport = GrpcTransport(sys.argv[1])
assert transport.get_plan("health", 10).plan
for _ in range(20):
    child = os.fork()
    if not child:
        signal.alarm(30)
        with contextlib.suppress(BaseException):
            transport.after_fork(usable=True)
            for _ in range(3):  # as senders do: gRPC may close a child's first connection
                with contextlib.suppress(Unreachable):
                    if transport.get_plan("health", 10).plan:
                        os._exit(0)
        os._exit(1)
    assert transport.get_plan("health", 10).plan
    assert os.waitpid(child, 0)[1] == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_has_connections_of_its_own(server: Server) -> None:
    # In a process of its own: in this one, gRPC may be closing other tests' connections.
    subprocess.run([sys.executable, "-c", FORKING, server.address], check=True, timeout=120)


def test_a_connection_that_died_unnoticed_is_replaced(server: Server) -> None:
    relay = Relay(server.address)
    delivery = Delivery(timeout=0.5, first_wait=0.05, longest_wait=0.1)
    with device(relay.address, "health", delivery=delivery) as client:
        ann, bob = (client.person(name, level="strict") for name in ("ann", "bob"))
        for person in (ann, bob):
            person.grant()
        ann.record(smokes="no")
        assert client.flush()
        assert relay.opened == 1
        relay.let_die()
        bob.record(smokes="no")
        assert client.flush(20)
        assert relay.opened > 1
    relay.close()
    assert server.show("health").status.records == 2


def test_a_server_without_tls_is_not_spoken_to_in_the_clear(server: Server) -> None:
    # This address reaches the same server, but only 127.0.0.0/8 is promised to stay here.
    port = server.address.rpartition(":")[2]
    with new_client(f"0.0.0.0:{port}", "health") as client:
        wait_until(lambda: client.status().reason is Reason.TLS)
    device(f"0.0.0.0:{port}", "health", insecure=True).close()
