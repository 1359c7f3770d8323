"""What comes to the HTTP door from broken and hostile callers: it is refused, the server lives."""

import contextlib
import gzip
import http.client
import json
import random
import re
import signal
import socket
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from over_http import (
    GET_PLAN,
    JSON,
    LIST,
    PROTO,
    ROWS,
    SUBMIT,
    WATCH,
    Door,
    answering,
    envelope,
    envelopes,
    rest,
)
from serving import batch, register, submit, tokens_of

from hearsay.v1 import collector_pb2
from support import FROM_NOTHING, Server, free_port, wait_until


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    with answering(tmp_path_factory.mktemp("served")) as found:
        register(found.grpc)
        yield found


@pytest.fixture(autouse=True)
def alive(door: Door) -> Iterator[None]:
    yield
    assert door.lives()


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("127.0.0.1@evil.example", "evil.example/localhost", "[::1].evil.example", "", "a b"),
        *("localhost\t.evil", "LOCALHOST.", "localhost:", "localhost,evil.example"),
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(door: Door, host: str) -> None:
    sent = JSON | {"host": host, "origin": f"http://{host}"}
    answer = door.ask(LIST, headers=sent)
    assert (answer.status, answer.code) == (421, "permission_denied")
    assert "access-control-allow-origin" not in answer.headers
    assert door.ask("/metrics", None, {"host": host}, "GET").status == 421


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "127.0.0.1", "[::1]:50080", "10.0.0.7"]
)
def test_localhost_and_addresses_cannot_be_made_to_lead_elsewhere(door: Door, host: str) -> None:
    assert door.ask(LIST, headers=JSON | {"host": host}).status == 200


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://localhost:1", "file://", "http://127.0.0.1"]
)
def test_a_page_of_another_origin_is_refused(door: Door, origin: str) -> None:
    answer = door.ask(LIST, headers=JSON | {"origin": origin})
    assert (answer.status, answer.code) == (403, "permission_denied")
    flight = {"origin": origin, "access-control-request-method": "POST"}
    for refused in (answer, door.ask(LIST, None, flight, "OPTIONS")):
        assert refused.status == 403
        assert "access-control-allow-origin" not in refused.headers


def test_headers_that_decide_must_be_there_once(door: Door) -> None:
    for extra in (b"Host: evil.example\r\n", b"Content-Type: application/proto\r\n"):
        with door.plugged(door.head() + extra + b"Content-Length: 2\r\n\r\n{}") as line:
            assert line.recv(12) == b"HTTP/1.1 400"


@pytest.mark.parametrize(
    "content_type",
    [
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""),
        *("application/grpc", "application/grpc-web-text", "application/connect+json"),
        "application/json; charset=utf-16",
    ],
)
def test_what_a_form_of_a_page_can_send_is_refused(door: Door, content_type: str) -> None:
    answer = door.ask(LIST, headers={"content-type": content_type})
    assert answer.status == 415
    assert "application/json" in answer.json()["message"]


def test_unknown_methods_paths_and_verbs_are_refused(door: Door) -> None:
    for path in (
        "/",
        "/hearsay.v1.Admin/Missing",
        "/hearsay.v1.Admin",
        LIST + "/",
        "//",
        "/%2e%2e",
    ):
        answer = door.ask(path)
        assert (answer.status, answer.code) == (404, "unimplemented")
    for verb in ("GET", "PUT", "DELETE", "OPTIONS", "TRACE"):
        answer = door.ask(LIST, None, {}, verb)
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff\xfe{}", b'{"survey": "\xff"}', b"[]", b"1", b"null", b"[" * 200_000),
        *(b'{"survey": ' * 20_000, b'{"survey": NaN}', b'{"survey": 1}', b"9" * 200_000),
        *(b'{"survey": "a", "survey": "b"}', b'{"surveys": "a"}', b'{"survey": "\\ud800"}'),
    ],
)
def test_json_that_is_none_or_does_not_fit_is_refused(door: Door, body: bytes) -> None:
    answer = door.ask(GET_PLAN, body)
    assert (answer.status, answer.code) == (400, "invalid_argument")


@pytest.mark.parametrize(
    "number", [str(2**53 + 1), str(-(2**53) - 1), "1" * 5000, "1e17", "9007199254740993.0"]
)
def test_an_integer_that_others_would_round_must_be_a_string(door: Door, number: str) -> None:
    answer = door.ask(SUBMIT, f'{{"batches": [{{"rows": {number}}}]}}')
    assert (answer.status, answer.code) == (400, "invalid_argument")
    assert re.search(r"beyond 2\^53 must be a string|in batches.rows", answer.json()["message"])
    question = f'{{"question": {{"survey": "a", "attribute": "b", "forged": {number}}}}}'
    stream = {"content-type": "application/connect+json"}
    ((_, end),) = envelopes(door.ask(WATCH, envelope(question.encode()), stream).body)
    assert json.loads(end)["error"]["code"] == "invalid_argument"
    as_string = '{"batches": [{"rows": "3"}]}'
    assert door.ask(SUBMIT, as_string).json()["results"][0]["reason"] == "BAD_ID"


def test_an_error_about_json_names_the_field_and_never_quotes_a_value(door: Door) -> None:
    answer = door.ask(SUBMIT, '{"batches": [{"rows": "seventeen and a secret"}]}')
    assert answer.json()["message"] == "the JSON is no hearsay.v1.SubmitRequest in batches.rows"
    answer = door.ask(GET_PLAN, '{"a secret": 1}')
    assert (
        answer.json()["message"]
        == "the JSON is no hearsay.v1.GetPlanRequest: its fields are survey"
    )


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\0\0\0\0", b"\0\0\0\0\1", b"\1\0\0\0\0", b"\0\0\0\0\0\0", b"\x80\0\0\0\0"),
        *(envelope(b"\xff"), envelope(b"") * 2, b"\0\xff\xff\xff\xff"),
    ],
)
def test_a_broken_envelope_is_refused(door: Door, body: bytes) -> None:
    for kind in ("application/connect+proto", "application/grpc-web+proto"):
        *_, (flag, end) = envelopes(door.ask(ROWS, body, {"content-type": kind}).body)
        assert flag in (2, 0x80)
        assert b"invalid_argument" in end or b"grpc-status: 3\r\n" in end


def test_compressed_messages_are_refused_unread(door: Door) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    for name in ("content-encoding", "connect-content-encoding", "grpc-encoding"):
        answer = door.ask(GET_PLAN, bomb, PROTO | {name: "gzip"})
        assert (answer.status, answer.code) == (501, "unimplemented")
    assert door.ask(GET_PLAN, b"", PROTO | {"content-encoding": "identity"}).status == 404


@pytest.mark.slow
def test_a_body_that_is_too_large_is_refused_whether_or_not_it_says_so(tmp_path: Path) -> None:
    with answering(tmp_path, max_message_bytes=1 << 20) as door:
        for headers, most in ((JSON, 256 << 10), (PROTO, 1 << 20)):
            assert door.ask(GET_PLAN, b" " * most, headers).status in (400, 404)  # it was read
            answer = door.ask(GET_PLAN, b" " * (most + 1), headers)
            assert (answer.status, answer.code) == (429, "resource_exhausted")
            assert f"at most {most} bytes here, got {most + 1}" in answer.json()["message"]
        chunks = b"10000\r\n" + bytes(1 << 16) + b"\r\n"
        with door.plugged(door.head() + b"Transfer-Encoding: chunked\r\n\r\n") as line:
            with contextlib.suppress(ConnectionError):
                for _ in range(200):
                    line.sendall(chunks)
            assert line.recv(12) == b"HTTP/1.1 429"
        with door.plugged(door.head() + b"Content-Length: 99999999999\r\n\r\n") as line:
            assert b" 429 " in rest(line)
        assert door.lives()


@pytest.mark.slow
def test_a_body_that_never_comes_is_given_up_and_takes_nobodys_place(tmp_path: Path) -> None:
    with answering(tmp_path, max_open_calls=4, max_upload_seconds=2.0) as door:
        begun = door.head() + b"Content-Length: 1000\r\n\r\n{"
        with contextlib.ExitStack() as stack:
            slow = [stack.enter_context(door.plugged(begun)) for _ in range(4)]
            wait_until(lambda: door.open_calls() == 4)
            assert door.ask(LIST).status == 429
            answers = [rest(line) for line in slow]
        for answer in answers:
            assert answer.startswith(b"HTTP/1.1 429")
            assert b"took too long" in answer
            assert b"retry-after-ms: 1000" in answer
        assert door.lives()


@pytest.mark.slow
def test_a_body_that_drips_is_given_up(tmp_path: Path) -> None:
    with answering(tmp_path, max_upload_seconds=1.0) as door:
        with door.plugged(door.head() + b"Content-Length: 100000\r\n\r\n") as line:
            begin = time.monotonic()
            with contextlib.suppress(ConnectionError):
                while time.monotonic() - begin < 20:
                    line.sendall(b" ")
                    time.sleep(0.05)
            assert time.monotonic() - begin < 15
        assert door.lives()


@pytest.mark.slow
def test_a_head_that_does_not_end_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearsay_server.serving.http.listening.HANDSHAKE", 1.0)
    with answering(tmp_path) as door, contextlib.ExitStack() as stack:
        whole = door.head() + b"Content-Length: 2\r\n\r\n{}"
        starts = (b"", b"POST ", door.head(), b"\r\n")
        lines = [stack.enter_context(door.plugged(start)) for start in starts]
        for start in (b"\r\n", b"POST / HT"):  # after an answered request
            lines.append(stack.enter_context(door.plugged(whole)))
            answer = b""
            while not answer.endswith(b"\r\n\r\n{}"):
                answer += lines[-1].recv(1000)
            lines[-1].sendall(start)
        begin = time.monotonic()
        for line in lines:
            rest(line)
        dripping = stack.enter_context(door.plugged(door.head()))
        with contextlib.suppress(ConnectionError):
            while time.monotonic() - begin < 20:
                dripping.sendall(b"A: b\r\n")
                time.sleep(0.05)
        assert time.monotonic() - begin < 15
        assert door.lives()


LARGE = [
    b"GET /" + b"a" * 100_000,
    b"GET / HTTP/1.1\r\nA: " + b"a" * 100_000,
    b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000,
    b"GET / HTTP/1.1\r\n" + b"A" * 100_000,
    b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 1000 + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
]
BODY = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"


@pytest.mark.parametrize("start", LARGE)
def test_a_head_that_is_too_large_is_refused(door: Door, start: bytes) -> None:
    with door.plugged() as line:
        with contextlib.suppress(ConnectionError):
            line.sendall(start)
        assert rest(line)[:12] in (b"HTTP/1.1 400", b"")  # b"": reset, for it went on sending


@pytest.mark.parametrize(
    "tail", [b"0\r\n" + b"A: b\r\n" * 20_000, b"0\r\nA: " + b"a" * 100_000, b"1;" + b"a" * 100_000]
)
def test_trailers_and_chunks_that_do_not_end_are_refused(door: Door, tail: bytes) -> None:
    with door.plugged(door.head() + BODY) as line:
        begin = time.monotonic()
        with contextlib.suppress(ConnectionError):
            line.sendall(tail)
        rest(line)
        assert time.monotonic() - begin < 10  # long before the upload's end


def test_above_the_most_connections_new_ones_are_closed(tmp_path: Path) -> None:
    with answering(tmp_path, max_connections=5) as door, contextlib.ExitStack() as stack:
        request = door.head() + b"Content-Length: 2\r\n\r\n{}"
        answers = []
        for _ in range(8):
            with contextlib.suppress(ConnectionError):
                line = stack.enter_context(door.plugged(request))
                answers.append(line.recv(12))
        assert [answer for answer in answers if answer] == [b"HTTP/1.1 200"] * 5


@pytest.mark.slow
def test_idle_connections_are_closed_after_a_while(tmp_path: Path) -> None:
    with (
        answering(tmp_path, max_connection_idle_seconds=1.0) as door,
        door.plugged(door.head() + b"Content-Length: 2\r\n\r\n{}") as line,
    ):
        assert rest(line).startswith(b"HTTP/1.1 200")  # ends with the connection


def test_a_caller_that_takes_no_answer_is_given_up(tmp_path: Path) -> None:
    with answering(tmp_path, max_connection_idle_seconds=2.0, max_open_calls=2) as door:
        revision = register(door.grpc)
        submit(door.grpc, *(batch(revision, number, rows=50_000) for number in range(40)))
        export = b'{"survey": "health"}'
        head = door.head("/hearsay.v1.Answers/ExportRows", Content_Type="application/connect+json")
        with contextlib.ExitStack() as stack:
            for _ in range(2):
                line = socket.socket()
                stack.enter_context(line)
                line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                line.connect(("127.0.0.1", door.port))
                body = envelope(export)
                line.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                assert line.recv(1)
            wait_until(lambda: door.open_calls() == 2)
            wait_until(door.lives, 60)


def test_a_refused_upload_reads_its_answer_and_keeps_no_connection(tmp_path: Path) -> None:
    tokens_of(tmp_path).create("admin")
    with answering(tmp_path) as door:
        answer = door.ask(LIST, b" " * 200_000)  # without a token
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        with door.plugged(door.head() + b"Content-Length: 1000000000\r\n\r\n") as line:
            begin = time.monotonic()
            with contextlib.suppress(ConnectionError):
                while time.monotonic() - begin < 20:
                    line.sendall(bytes(1 << 16))
            assert time.monotonic() - begin < 15


@pytest.mark.parametrize("seed", range(3))
def test_random_bytes_end_their_connection_only(door: Door, seed: int) -> None:
    chance = random.Random(seed)
    whole = door.head(SUBMIT) + b"Content-Length: 2\r\n\r\n{}"
    for number in range(60):
        data = bytearray(chance.randbytes(500) if number % 2 else whole)
        for _ in range(3):
            data[chance.randrange(len(data))] = chance.randrange(256)
        with door.plugged() as line, contextlib.suppress(ConnectionError):
            line.sendall(data)
            line.shutdown(socket.SHUT_WR)
            line.settimeout(0.2)
            with contextlib.suppress(TimeoutError):
                rest(line)


def test_requests_that_do_not_wait_for_an_answer_end_the_connection(door: Door) -> None:
    """Each would wait in memory, and while one is answered the next ones would be read."""
    one = door.head() + b"Content-Length: 2\r\n\r\n{}"
    with door.plugged(one * 1000) as line:
        assert rest(line).count(b"HTTP/1.1 ") <= 1


def test_requests_that_wait_for_an_answer_share_a_connection(door: Door) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", door.port, 20)) as line:
        line.connect()
        opened = line.sock
        for _ in range(3):
            line.request("POST", LIST, b"{}", JSON)
            answer = line.getresponse()
            assert (answer.status, answer.read()[:1]) == (200, b"{")
            assert line.sock is opened


def test_a_body_is_never_taken_for_the_next_request(door: Door) -> None:
    inner = door.head() + b"Content-Length: 2\r\n\r\n{}"
    head = door.head(GET_PLAN, Connection="upgrade", Upgrade="websocket")
    head += b"Content-Length: %d\r\n\r\n" % len(inner)
    with door.plugged(head) as line:
        with contextlib.suppress(ConnectionError):
            time.sleep(0.1)
            line.sendall(inner)
        assert [part[:3] for part in rest(line).split(b"HTTP/1.1 ")[1:]] in ([b"400"], [])


def test_a_trailer_decides_nothing(door: Door) -> None:
    head = b"POST %s HTTP/1.1\r\nContent-Type: application/json\r\n" % LIST.encode()
    chunks = b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\n{}\r\n0\r\n"
    with door.plugged(head + chunks + b"Host: localhost\r\n\r\n") as line:
        assert rest(line).startswith(b"HTTP/1.1 421")


def test_a_path_is_taken_as_it_was_sent(door: Door) -> None:
    assert door.ask(LIST.replace("A", "%41")).status == 404


@pytest.mark.parametrize("body", [b'{"batches":[%s{}]}', b'{"batches":[{"columns":[%s{}]}]}'])
def test_json_of_very_many_values_is_refused_unread(door: Door, body: bytes) -> None:
    begin = time.monotonic()
    answer = door.ask(SUBMIT, body % (b"{}," * 80_000))
    assert (answer.status, answer.code) == (400, "invalid_argument")
    assert "at most 8192 commas" in answer.json()["message"]
    assert time.monotonic() - begin < 2  # to read them takes a second, at rest


def test_a_fault_inside_tells_the_caller_nothing_of_the_inside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with answering(tmp_path) as door:
        submit(door.grpc, batch(register(door.grpc)))
        with contextlib.closing(sqlite3.connect(tmp_path / "hearsay.db")) as connection:
            connection.execute("ALTER TABLE tallies RENAME TO elsewhere")
        asked = envelope(b'{"question": {"survey": "health", "attribute": "smokes"}}')
        answer = door.ask(WATCH, asked, {"content-type": "application/connect+json"})
        ((_, end),) = envelopes(answer.body)
        told = {"code": "internal", "message": "the server failed to answer"}
        assert json.loads(end)["error"] == told
    assert "no such table: tallies" in caplog.text  # the operator is told


@pytest.mark.slow
def test_neither_logs_nor_data_hold_an_address_of_a_peer(tmp_path: Path) -> None:
    port = free_port()
    options = ("--log-level", "debug", "--http", f"127.0.0.1:{port}")
    server = Server(tmp_path / "data", *options, command=FROM_NOTHING)
    server.start()
    door = Door(port, server.address)
    try:
        server.create()
        good = door.head() + b"Content-Length: 2\r\n\r\n{}"
        new = batch(server.show("health").status.revision, 1)
        sent = collector_pb2.SubmitRequest(batches=[new]).SerializeToString()
        stored = door.head(SUBMIT, Content_Type="application/proto")
        stored += b"Content-Length: %d\r\n\r\n" % len(sent) + sent
        messages = (good, stored, good[:-1], b"\xff" * 300, b"GET / HTTP/1.1\r\n\r\n", good[:40])
        ports = set()
        for last, message in enumerate(messages, 2):
            address = (f"127.77.66.{last}", 0)
            with socket.create_connection(("127.0.0.1", port), 20, address) as line:
                ports.add(line.getsockname()[1])
                line.sendall(message)
                line.settimeout(1)
                with contextlib.suppress(TimeoutError):
                    assert line.recv(12)
        assert server.show("health").status.batches == 1
    finally:
        server.stop(signal.SIGTERM)
    kept = server.log.encode() + b"".join(
        file.read_bytes() for file in server.folder.iterdir() if file.is_file()
    )
    assert b"127.77.66." not in kept
    for own in ports - {port}:
        assert f":{own}".encode() not in kept
