"""What apps test with."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

import hearsay
from hearsay import Delivery, InvalidInput, Unreachable
from hearsay.sending.transport import connect
from hearsay.testing import Collector, RecordingTransport
from hearsay.v1 import collector_pb2
from hearsay_server.surveys import survey as surveys
from support import SURVEY, device, new_client

QUICK = Delivery(first_wait=0.02, longest_wait=0.05)


@pytest.fixture(scope="module")
def plan() -> bytes:
    return surveys.resolve(surveys.from_toml(SURVEY, "test"))


def test_an_app_sees_what_would_be_sent(plan: bytes) -> None:
    transport = RecordingTransport(plan)
    with device(transport, "health", level="open") as client:
        assert client.record(smokes="yes", age=41).taken == ("smokes", "age")
        for number in range(49):
            person = client.person(str(number), level="open")
            person.grant()
            person.record(smokes="yes")
        assert client.flush()
    (batch,) = transport.batches
    assert batch.rows == 50
    tally = transport.tally("smokes", "open")
    assert tally.n == 50
    assert tally.counts.sum() == 50
    assert transport.tally("age", "open").n == 1
    assert transport.tally("age", "strict").n == 0
    with pytest.raises(InvalidInput, match="has no attribute 'drinks'"):
        transport.tally("drinks", "open")


def test_a_lost_answer_is_told_and_counted_once(plan: bytes) -> None:
    transport = RecordingTransport(plan)
    transport.answers = [
        Unreachable("no network"),
        collector_pb2.Result(status=collector_pb2.Result.RETRY),
        collector_pb2.Result(status=collector_pb2.Result.STORED),
    ]
    with device(transport, "health", level="open", delivery=QUICK) as client:
        client.record(smokes="yes")
        assert client.flush()
        assert client.counters == {"recorded": 1, "stored": 1}
    assert len({batch.SerializeToString() for batch in transport.batches}) == 1
    assert len(transport.batches) == 3
    (again,) = transport.submit(transport.batches[0], 1).results
    assert again.status == collector_pb2.Result.DUPLICATE
    assert transport.tally("smokes", "open").n == 1


@pytest.mark.parametrize("http", [False, True])
def test_a_collector_in_this_process_is_a_real_server(plan: bytes, http: bool) -> None:
    with Collector(plan, http=http) as collector:
        collector.received.answers = [Unreachable("busy", retry_after=0.2)]
        with device(collector.address, "health", level="open", delivery=QUICK) as client:
            client.record(smokes="yes", age=41)
            assert client.flush()
        with (
            new_client(collector.address, "wealth", strict=True) as other,
            pytest.raises(InvalidInput, match="there is no survey 'wealth' here"),
        ):
            other.wait_ready()
    assert len(collector.received.batches) == 2  # the busy one, and the retry
    assert collector.received.tally("age", "open").n == 1


@pytest.mark.parametrize("http", [False, True])
def test_answers_have_the_time_that_a_test_sets(plan: bytes, http: bool) -> None:
    with Collector(plan, http=http) as collector:
        transport = connect(collector.address)
        assert abs(transport.get_plan("health", 10).server_time - time.time()) < 60
        collector.received.server_time = 7
        assert transport.get_plan("health", 10).server_time == 7
        assert transport.submit(collector_pb2.Batch(id=b"1"), 10).server_time == 7
        assert transport.forget("health", "once", [b"1"], 10).server_time == 7


@pytest.mark.parametrize("http", [False, True])
def test_revoking_reaches_the_collector(plan: bytes, http: bool) -> None:
    with Collector(plan, http=http) as collector:
        retry = collector_pb2.Result(status=collector_pb2.Result.RETRY)
        collector.received.answers = [retry] * 100
        with device(collector.address, "health", level="open", delivery=QUICK) as client:
            client.record(smokes="yes")
            client.flush(timeout=0.3)
            (batch,) = client.outbox().batches
            client.revoke(forget=True)
            client.flush()
    assert collector.received.forgotten == [batch.id]


def test_nothing_of_it_is_importable_by_accident() -> None:
    folder = Path(hearsay.__file__).parent
    for file in folder.rglob("*.py"):
        assert file.name == "testing.py" or "hearsay.testing" not in file.read_text()
    code = "import hearsay.testing"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "hearsay.testing is for tests" in done.stderr
    for allowed in ("import unittest", "import os; os.environ['HEARSAY_TESTING'] = '1'"):
        subprocess.run([sys.executable, "-c", f"{allowed}; {code}"], check=True)
