"""Where an answer over HTTP ends, and that nothing of it is taken for the next one."""

import contextlib
import resource
import socket
import threading
import time

import pytest
from http_servers import GOOD, PLAN, WHOLE, failure, speaking

from hearsay import Unreachable
from hearsay.sending.over_http import HttpCalls, HttpTransport
from hearsay.v1 import analyst_pb2, answer_pb2, collector_pb2

CHUNKS = GOOD + b"Transfer-Encoding: chunked\r\n\r\n"
SIZE = b"%x" % len(PLAN)

STORED = collector_pb2.SubmitResponse(
    results=[collector_pb2.Result(status=collector_pb2.Result.STORED)]
).SerializeToString()


@pytest.mark.parametrize(
    "beginning",
    [
        CHUNKS + b"zz\r\n",
        CHUNKS + b"%x\r\n" % len(STORED) + STORED + b"XX0\r\n\r\n",
        GOOD + b"Content-Length: %d\r\nContent-Length: 999\r\n\r\n" % len(STORED) + STORED,
        GOOD
        + b"Transfer-Encoding: gzip, chunked\r\nContent-Length: %d\r\n\r\n" % len(STORED)
        + STORED,
    ],
    ids=["no size", "a chunk that goes on", "two lengths", "chunks and a length"],
)
def test_the_rest_of_an_answer_is_no_answer_to_the_next_batch(beginning: bytes) -> None:
    rest_came = threading.Event()

    def answer(line: socket.socket) -> None:
        line.sendall(beginning)
        line.recv(1 << 16)  # the second batch, if it comes here, which nothing stores
        line.sendall(GOOD + b"Content-Length: %d\r\n\r\n" % len(STORED) + STORED)
        rest_came.set()

    with speaking(answer, lambda line: None) as url:
        first, second = HttpTransport(url, token="a"), HttpTransport(url, token="b")
        with contextlib.suppress(Unreachable):
            first.submit(collector_pb2.Batch(id=b"a" * 16), 5)
        with pytest.raises(Unreachable):
            second.submit(collector_pb2.Batch(id=b"b" * 16), 5)


@pytest.mark.parametrize(
    "answer",
    [
        GOOD + b"Content-Length: %d\r\nContent-Length: 99\r\n\r\n" % len(PLAN) + PLAN,
        GOOD + b"Content-Length: %d, %d\r\n\r\n" % (len(PLAN), len(PLAN)) + PLAN,
        GOOD + b"Content-Length: +0_%d\r\n\r\n" % len(PLAN) + PLAN,
        GOOD + b"Transfer-Encoding: gzip, chunked\r\nContent-Length: %d\r\n\r\n" % len(PLAN) + PLAN,
        GOOD
        + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"
        + SIZE
        + b"\r\n"
        + PLAN
        + b"\r\n0\r\n\r\n",
        CHUNKS.replace(b"1.1", b"1.0") + SIZE + b"\r\n" + PLAN + b"\r\n0\r\n\r\n",
        GOOD + b"A: b\rContent-Length: %d\r\n\r\n" % len(PLAN) + PLAN,
        GOOD + b"A: b\nContent-Length: %d\r\n\r\n" % len(PLAN) + PLAN,
        GOOD + b"A: b\r\n c\r\nContent-Length: %d\r\n\r\n" % len(PLAN) + PLAN,
        GOOD + b"Content-Length : %d\r\n\r\n" % len(PLAN) + PLAN,
        CHUNKS + b"0x" + SIZE + b"\r\n" + PLAN + b"\r\n0\r\n\r\n",
        CHUNKS + SIZE + b"\r\n" + PLAN + b"\r\n-0_0\r\n\r\n",
        CHUNKS + SIZE + b"\r\n" + PLAN + b"XX0\r\n\r\n",
        CHUNKS + SIZE + b"\n" + PLAN + b"\r\n0\r\n\r\n",
        CHUNKS + SIZE + b"\r\n" + PLAN + b"\r\n0\r\n" + WHOLE,
    ],
)
def test_an_answer_that_may_end_elsewhere_is_refused_and_its_connection_closed(
    answer: bytes,
) -> None:
    with speaking(answer, stay=True) as url:
        transport = HttpTransport(url)
        error = failure(transport)
        assert not transport._server.pool.waiting
    assert "where its answer ends" in str(error) or "does not speak HTTP as it should" in str(error)


@pytest.mark.parametrize("end", [b"", b"\r\n", b"\r\n0", b"\r\n0\r\n", b"\r\n0\r\nA: b\r\n"])
def test_an_answer_in_chunks_ends_with_the_last_one(end: bytes) -> None:
    with speaking(CHUNKS + SIZE + b"\r\n" + PLAN + end) as url:
        assert "in the middle of its answer" in str(failure(HttpTransport(url)))


def test_the_connection_of_a_whole_answer_is_kept() -> None:
    refusal = b'{"code": "unavailable"}'
    told = b"HTTP/1.1 503 No\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    for answer, kept in (
        (WHOLE, 1),
        (CHUNKS + SIZE + b"\r\n" + PLAN + b"\r\n0\r\n\r\n", 1),
        (told % len(refusal) + refusal, 1),
        (WHOLE.replace(b"\r\n\r\n", b"\r\nConnection: te, Close\r\n\r\n"), 0),
        (WHOLE.replace(b"1.1", b"1.0"), 0),
        (b"HTTP/1.1 429 No\r\nContent-Length: 0\r\n\r\n", 0),  # of which the body is not read
    ):
        with speaking(answer, stay=True) as url:
            transport = HttpTransport(url)
            with contextlib.suppress(Unreachable):
                transport.get_plan("health", 10)
            assert len(transport._server.pool.waiting) == kept, answer
            transport._server.pool.close()


def test_a_large_head_takes_no_more_time_or_memory_than_it_may() -> None:
    lines = 80 * (16000 * b"a:\r" + b"a:\r\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with speaking(b"HTTP/1.1 200 OK\r\n" + lines + b"Content-Length: 0\r\n\r\n") as url:
        began = time.monotonic()
        error = failure(HttpTransport(url), timeout=1.0)
        assert time.monotonic() - began < 1.5
    assert "does not speak HTTP as it should" in str(error)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10


MESSAGE = answer_pb2.Answer().SerializeToString()
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: application/connect+proto\r\n"
ANSWERS = b"\0" + len(MESSAGE).to_bytes(4, "big") + MESSAGE + b"\2\0\0\0\2{}"
IN_CHUNKS = STREAM + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(ANSWERS) + ANSWERS + b"\r\n"


def answers_of(url: str, timeout: float | None) -> tuple[int, int]:
    """Return how many answers a stream had, and how many connections wait after it."""
    calls = HttpCalls(url)
    request, kind = analyst_pb2.WatchRequest(), answer_pb2.Answer
    found = len(list(calls.stream("Answers/Watch", request, kind, timeout)))
    waiting = len(calls._server.pool.waiting)
    calls.close()
    return found, waiting


@pytest.mark.parametrize("timeout", [None, 10.0])
def test_a_stream_ends_with_its_last_envelope(timeout: float | None) -> None:
    with speaking(IN_CHUNKS, stay=True) as url:
        began = time.monotonic()
        assert answers_of(url, timeout) == (1, 0)
        assert time.monotonic() - began < 2
    with speaking(IN_CHUNKS) as url:
        assert answers_of(url, timeout) == (1, 0)
    with speaking(IN_CHUNKS + b"zz\r\n", stay=True) as url:
        assert answers_of(url, timeout) == (1, 0)


def test_the_connection_of_a_stream_that_has_ended_is_kept() -> None:
    with speaking(IN_CHUNKS + b"0\r\n\r\n", stay=True) as url:
        assert answers_of(url, 10.0) == (1, 1)
