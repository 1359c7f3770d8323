"""What a client or an analyst over HTTP makes of answers, and of those that are none."""

import contextlib
import socket
import threading
import time
from collections import Counter
from concurrent import futures
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pytest
from http_servers import (
    GOOD,
    PLAN,
    WHOLE,
    failure,
    speaking,
)
from over_http import Door, answering
from serving import register
from test_transport import REFUSALS, Fake, Relay

from hearsay import Analyst, InvalidInput, Reason, Unreachable
from hearsay.sending.over_http import HttpTransport
from hearsay.v1 import collector_pb2
from support import new_client, wait_until


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
        "Authorization: Bearer secret\r\n"
        f"Content-Length: {len(body)}\r\n"
        "\r\n" + body.decode()
    )


@pytest.mark.parametrize(
    "answer",
    [
        WHOLE,
        b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE,
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + WHOLE,
        GOOD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(PLAN) + PLAN + b"\r\n0\r\n\r\n",
        GOOD
        + b"Transfer-Encoding: chunked\r\n\r\n"
        + b"".join(b"1;a=b\r\n%c\r\n" % byte for byte in PLAN)
        + b"0\r\nTrailer: 1\r\n\r\n",
        WHOLE.replace(b"1.1", b"1.0").replace(b"proto\r\n", b"proto; charset=utf-8\r\n"),
    ],
    ids=[
        "whole",
        "after 100",
        "after 102 and 103",
        "one chunk",
        "chunks with a trailer",
        "HTTP/1.0",
    ],
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
            "does not speak HTTP as it should (a chunk without a size)",
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
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n" + WHOLE, "with status 101", "unreachable"),
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
        (
            b"HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n",
            "refuses for now: status 403",
            "server_refused",
        ),
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


CHUNKED = GOOD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(PLAN) + PLAN + b"\r\n0\r\n\r\n"
REFUSAL = (
    b"HTTP/1.1 503 No\r\nretry-after-ms: 5\r\nContent-Type: application/json\r\n"
    b'Content-Length: 23\r\n\r\n{"code": "unavailable"}'
)


def test_whatever_bytes_come_nothing_else_is_raised_and_no_time_is_lost() -> None:
    chance = Random(22)
    answer = [b""]
    pieces = (b"\r\n", b"0", b"-", b": ", b"Content-Length: 1\r\n", b"\0", b"\xff", b"{", b"200")
    became = Counter[str]()
    with speaking(lambda line: line.sendall(answer[0])) as url:
        transport = HttpTransport(url)
        for _ in range(600):
            mutated = bytearray(chance.choice((WHOLE, CHUNKED, REFUSAL)))
            for _ in range(chance.randint(1, 4)):
                begin = chance.randrange(len(mutated) + 1)
                end = min(len(mutated), begin + chance.choice((0, 0, 1, 2, 30)))
                mutated[begin:end] = chance.choice((b"", *pieces))
            answer[0] = bytes(mutated)
            began = time.monotonic()
            try:
                transport.get_plan("health", 2.0)
                became["an answer"] += 1
            except (InvalidInput, Unreachable) as error:
                became[type(error).__name__] += 1
                assert str(error).isprintable()
            assert time.monotonic() - began < 4
    assert became["an answer"] > 5
    assert became["Unreachable"] > 200


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        *REFUSALS,
        (grpc.StatusCode.DEADLINE_EXCEEDED, Reason.UNREACHABLE),
        (grpc.StatusCode.UNAUTHENTICATED, Reason.BAD_TOKEN),
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
                answer = found.estimate("health", "smokes")
                assert answer.table().index[0].labels == ["no", "sometimes", "yes"]
                assert len(list(found.chunks("health"))) == 2
                assert list(found.by_level("health", "smokes").parts) == ["strict"]
                with pytest.raises(InvalidInput, match="has no attribute 'height'"):
                    found.estimate("health", "height")
                with pytest.raises(InvalidInput, match="there is no survey 'wealth'"):
                    found.show_survey("wealth")
            both = [each.estimate("health", "smokes").to_dict() for each in (analyst, other)]
            assert both[0] == both[1]
        watched = analyst.watch("health", "smokes", interval=0.1)
        assert next(watched).reports == 1
        watched.close()
        wait_until(lambda: door.open_calls() <= 1)  # the call that asks for it


def test_an_analyst_may_ask_from_several_threads(tmp_path: Path) -> None:
    with answering(tmp_path) as door, contextlib.closing(analyst_of(door)) as analyst:
        register(door.grpc)
        with futures.ThreadPoolExecutor(12) as pool:
            found = list(pool.map(lambda _: analyst.show_survey("health").status.survey, range(60)))
        assert found == ["health"] * 60
        assert 1 <= len(analyst._calls._calls._server.pool.waiting) <= 8  # type: ignore[attr-defined]


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+proto\r\n"


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (b"\0\0\0\0\1", Unreachable, "in the middle of its answer"),
        (b"\0\0", Unreachable, "in the middle of its answer"),
        (b"", Unreachable, "in the middle of its answer"),
        (b"\1\0\0\0\1a", Unreachable, "with a compressed part"),
        (b"\0\xff\0\0\0a", Unreachable, "with more than 33554432 bytes at once"),
        (b"\0\0\0\0\2\xff\xff", Unreachable, "bytes that are no Answer"),
        (b'\2\0\0\0\x2a{"error": {"code": "unauthenticated"}}    ', Unreachable, "the token"),
        (b"\2\0\0\0\1?", Unreachable, "with an end that is no JSON"),
    ],
)
def test_a_stream_that_is_none_is_told(body: bytes, error: type[Exception], words: str) -> None:
    answer = STREAM + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with (
        speaking(answer) as url,
        contextlib.closing(Analyst(url)) as analyst,
        pytest.raises(error, match=words),
    ):
        next(analyst.watch("health", "smokes"))
