"""What comes from broken and hostile clients: each has its outcome, and the server lives."""

import contextlib
import os
import random
import resource
import signal
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from serving import (
    Survey,
    batch,
    connected,
    held,
    register,
    registered,
    serving,
    submit,
    tokens_of,
)

from hearsay.v1 import analyst_pb2, analyst_pb2_grpc, collector_pb2, collector_pb2_grpc
from support import FROM_NOTHING, Server, free_port, wait_until

Result = collector_pb2.Result
IDLE = 1000
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"  # how a client begins


def stored(survey: Survey, number: int) -> bool:
    """Tell whether the server takes a good batch: the sign that it lives."""
    return [r.status for r in submit(survey.address, survey.batch(number))] == [Result.STORED]


def refusal(address: str, *batches: collector_pb2.Batch) -> Any:
    """Return the error that a request of these batches ends with."""
    with pytest.raises(grpc.RpcError) as error:
        submit(address, *batches)
    return error.value


def retry_after(error: Any) -> float | None:
    """Return the seconds that an error asks to wait."""
    entries = dict(error.trailing_metadata() or ())
    return int(entries["retry-after-ms"]) / 1000 if "retry-after-ms" in entries else None


def plugged(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def test_a_message_of_64_mb_is_refused_unread(survey: Survey) -> None:
    error = refusal(survey.address, survey.batch(1, rows=64 << 20))
    assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert stored(survey, 2)


def test_a_batch_of_too_many_rows_is_refused_for_good(tmp_path: Path) -> None:
    with serving(tmp_path, max_batch_rows=5) as address:
        revision = register(address)
        good, bad = submit(address, batch(revision, 1, rows=5), batch(revision, 2, rows=6))
        assert good.status == Result.STORED
        assert (bad.status, bad.reason) == (Result.REFUSED, collector_pb2.Reason.BAD_ROWS)
        assert bad.detail == "a batch holds at most 5 rows here, got 6"


def test_more_than_the_rate_is_told_when_to_come_again(tmp_path: Path) -> None:
    admin, device = (tokens_of(tmp_path).create(role)[1] for role in ("admin", "device"))
    keys = {"require_device_token": True, "batches_per_second": 100.0}
    with serving(tmp_path, **keys) as address:
        revision = register(address, admin)
        batches = [batch(revision, number) for number in range(400)]
        submit(address, *batches[:256], token=device)  # a full burst
        with pytest.raises(grpc.RpcError) as raised:
            submit(address, *batches[256:], token=device)
        error: Any = raised.value
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "100 batches a second" in error.details()
        wait = retry_after(error)
        assert wait is not None
        assert 0 < wait <= 1.44
        threading.Event().wait(wait)
        results = submit(address, *batches[256:], token=device)
        assert {r.status for r in results} == {Result.STORED}


def test_a_long_name_is_not_quoted_whole(survey: Survey) -> None:
    with connected(survey.address) as channel:
        collector = collector_pb2_grpc.CollectorStub(channel)
        for name in ("n" * 100_000, "\u2603" * 100_000):
            with pytest.raises(grpc.RpcError) as error:
                collector.GetPlan(collector_pb2.GetPlanRequest(survey=name), timeout=20)
            assert error.value.code() == grpc.StatusCode.NOT_FOUND
            assert error.value.details().startswith(f"there is no survey '{name[:10]}")
            odd = survey.batch(1)
            odd.survey = name
            (result,) = submit(survey.address, odd)
            assert result.reason == collector_pb2.UNKNOWN_SURVEY
            assert len(result.detail) < 3000


def test_more_calls_than_allowed_are_told_when_to_come_again(tmp_path: Path) -> None:
    with serving(tmp_path, max_open_calls=4) as address:
        revision = register(address)
        # Calls of which the disk keeps the server from answering.
        with connected(address) as channel:
            submitting = collector_pb2_grpc.CollectorStub(channel).Submit
            with held(tmp_path):
                calls = [
                    submitting.future(collector_pb2.SubmitRequest(batches=[batch(revision, n)]))
                    for n in range(6)
                ]
                wait_until(lambda: sum(call.done() for call in calls) == 2)
                refused = [call for call in calls if call.done()]
            assert [call.code() for call in refused] == [grpc.StatusCode.RESOURCE_EXHAUSTED] * 2
            assert [retry_after(call) for call in refused] == [1.0, 1.0]
            assert [c.result().results[0].status for c in calls if c not in refused] == [1] * 4


def test_a_thousand_idle_connections_disturb_nobody(tmp_path: Path) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3 * IDLE:
        pytest.skip(f"this system allows {hard} open files a process")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        address = stack.enter_context(serving(tmp_path))
        survey = registered(address)
        idle = [stack.enter_context(plugged(address)) for _ in range(IDLE)]
        for connection in idle[::2]:  # these speak HTTP/2 and then say nothing
            connection.sendall(HTTP2)
        assert stored(survey, 1)
        assert all(connection.recv(1) for connection in idle[::2])  # all were let in


def test_above_the_most_connections_new_ones_are_closed(tmp_path: Path) -> None:
    with serving(tmp_path, max_connections=5) as address, contextlib.ExitStack() as stack:
        answers = []
        for _ in range(8):
            connection = stack.enter_context(plugged(address))
            connection.settimeout(10)
            connection.sendall(HTTP2)
            with contextlib.suppress(ConnectionResetError):
                answers.append(connection.recv(1))
        assert sum(map(bool, answers)) == 5


def test_idle_connections_are_closed_after_a_while(tmp_path: Path) -> None:
    keys = {"max_connection_idle_seconds": 1.0}
    with serving(tmp_path, **keys) as address, plugged(address) as connection:
        connection.settimeout(20)
        connection.sendall(HTTP2)
        while connection.recv(1024):  # ends with the connection
            pass


def http2(*headers: tuple[bytes, bytes]) -> bytes:
    """Return what asks for an empty message over HTTP/2, with headers as they are given."""

    def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
        head = len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
        return head + content

    packed = b"".join(
        b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in headers
    )
    begin = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0)
    return begin + frame(1, 4, 1, packed) + frame(0, 1, 1, bytes(5))


def test_a_path_that_is_no_text_costs_a_moment_and_not_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"localhost")]
    ours += [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
    port = free_port()
    with serving(tmp_path, listen=f"localhost:{port}") as address:

        def answered() -> bool:
            return refusal(address).code() is grpc.StatusCode.INVALID_ARGUMENT

        assert answered()
        for times, path in enumerate((b"/\xff", b"/hearsay.v1.Collector/Submit\xc3"), 1):
            with socket.create_connection(("localhost", port), timeout=20) as connection:
                connection.sendall(http2(*ours, (b":path", path)))
                wait_until(lambda n=times: caplog.text.count("which opens again") == n)
            wait_until(answered)


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_on_the_port_end_their_connection_only(survey: Survey, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(40):
        with plugged(survey.address) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(HTTP2 * (number % 2) + chance.randbytes(2000))
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(5)
            while connection.recv(4096):
                pass
    assert stored(survey, 1)


@contextlib.contextmanager
def relayed(address: str, most: int = 1 << 62, source: str = "127.0.0.1") -> Iterator[Any]:
    """Relay one connection to the server, which sees it come from `source`.

    It is cut after so many bytes from the client. Yields the relay's address, and a list that
    gets what the server sees.
    """
    host, _, port = address.rpartition(":")
    seen: list[Any] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def relay() -> None:
            client = listener.accept()[0]
            server = socket.create_connection((host, int(port)), source_address=(source, 0))
            seen.append(server.getsockname())
            back = threading.Thread(target=_pump, args=(server, client))
            back.start()
            _pump(client, server, most)
            for end in (client, server):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            back.join()
            client.close()
            server.close()

        thread = threading.Thread(target=relay)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}", seen
        thread.join()


def _pump(source: socket.socket, sink: socket.socket, most: int = 1 << 62) -> None:
    with contextlib.suppress(OSError):
        while most > 0 and (data := source.recv(min(most, 65536))):
            sink.sendall(data)
            most -= len(data)


def test_an_upload_that_is_cut_off_leaves_nothing_and_may_come_again(tmp_path: Path) -> None:
    with serving(tmp_path, max_batch_rows=1 << 21) as address:
        revision = register(address)
        large = batch(revision, 1, rows=2_000_000)
        with relayed(address, most=500_000) as (relay, _):
            assert refusal(relay, large).code() == grpc.StatusCode.UNAVAILABLE
        with sqlite3.connect(tmp_path / "hearsay.db") as connection:
            assert connection.execute("SELECT count(*) FROM batches").fetchone() == (0,)
        connection.close()
        assert [r.status for r in submit(address, large)] == [Result.STORED]


def test_a_fault_inside_tells_the_caller_nothing_of_the_inside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path) as address:
        submit(address, batch(register(address)))
        with sqlite3.connect(tmp_path / "hearsay.db") as connection:
            connection.execute("ALTER TABLE tallies RENAME TO elsewhere")
        connection.close()
        with connected(address) as channel, pytest.raises(grpc.RpcError) as error:
            request = analyst_pb2.EstimateRequest(survey="health", attribute="smokes")
            analyst_pb2_grpc.AnswersStub(channel).Estimate(request, timeout=20)
        assert error.value.code() == grpc.StatusCode.INTERNAL
        assert error.value.details() == "the server failed to answer"
        failed = refusal(address, batch(b"", 3), batch(register(address), 2))
        assert failed.code() == grpc.StatusCode.UNAVAILABLE
        assert failed.details() == "the batches could not be stored"
    assert "no such table: tallies" in caplog.text  # the operator is told


def test_neither_logs_nor_data_hold_an_address_of_a_peer(tmp_path: Path) -> None:
    options = ("--log-level", "debug", "--log-format", "json")
    server = Server(tmp_path / "data", *options, command=FROM_NOTHING)
    server.start()
    try:
        server.create()
        revision = server.show("health").status.revision
        peers = set()
        # From addresses of loopback that nothing else has, with good and bad calls of all kinds.
        for last in range(2, 6):
            for message in (b"\xff" * 300, b"GET / HTTP/1.1\r\n\r\n", os.urandom(64)):
                with socket.create_connection(
                    ("127.0.0.1", int(server.address.rpartition(":")[2])),
                    source_address=(f"127.77.66.{last}", 0),
                ) as connection:
                    peers.add(connection.getsockname())
                    connection.sendall(message)
        with (
            relayed(server.address, source="127.77.66.9") as (relay, seen),
            connected(relay, "hearsay-guess") as channel,
        ):
            stub = collector_pb2_grpc.CollectorStub(channel)
            good, bad = batch(revision, 1), batch(revision, 2)
            bad.columns[0].codes = b"\x09"
            stub.Submit(collector_pb2.SubmitRequest(batches=[good, bad]), timeout=20)
            for request in (
                collector_pb2.SubmitRequest(),
                collector_pb2.SubmitRequest(batches=[batch(revision, 3, rows=8 << 20)]),
            ):
                with pytest.raises(grpc.RpcError):
                    stub.Submit(request, timeout=20)
            with sqlite3.connect(server.folder / "hearsay.db") as connection:
                connection.execute("ALTER TABLE tallies RENAME TO elsewhere")
            connection.close()
            peers.update(seen)
            request = analyst_pb2.EstimateRequest(survey="health", attribute="smokes")
            with pytest.raises(grpc.RpcError):
                analyst_pb2_grpc.AnswersStub(channel).Estimate(request, timeout=20)
    finally:
        server.stop(signal.SIGTERM)
    assert "a call failed" in server.log
    kept = server.log.encode() + b"".join(
        file.read_bytes() for file in server.folder.iterdir() if file.is_file()
    )
    assert b"127.77.66." not in kept
    own = int(server.address.rpartition(":")[2])  # which a peer may have on another address
    for _, port in peers:
        assert port == own or f":{port}".encode() not in kept
