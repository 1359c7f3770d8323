"""kill -9 of a real server in the middle of a collection: nothing lost, nothing twice."""

import random
import signal
import threading
import time
from pathlib import Path

import pytest
from counted_once import COUNT, DONE, ORACLE, request
from stored import add_and_die

from hearsay import Client
from hearsay.v1 import collector_pb2, collector_pb2_grpc
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify
from preloaded import context
from support import Server, device


def test_what_a_store_acknowledged_counts_once_after_a_kill(tmp_path: Path) -> None:
    """The part of the server that holds the promise of the next test, killed as it answers."""
    for last in (4, 8, 12):
        process = context().Process(target=add_and_die, args=(tmp_path, last))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        store = Store(tmp_path)
        tallies = store.tallies("health", "smokes")
        assert sum(tally.n for tally in tallies.values()) == last
        assert {checked.verdict for checked in verify(store.database)} == {Verdict.EQUAL}
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_acknowledged_batch_counts_exactly_once_across_kills(
    server: Server, seed: int
) -> None:
    """Batch i alone says category i, so every count must be 0 or 1, and 1 if acknowledged."""
    server.create(ORACLE)
    revision = server.show("oracle").status.revision
    waiting = set(range(COUNT))
    acknowledged: set[int] = set()
    kills = 0
    chance = random.Random(seed)
    while waiting:
        with server.channel() as channel:
            stub = collector_pb2_grpc.CollectorStub(channel)
            calls = {
                number: stub.Submit.future(request(number, revision), timeout=20)
                for number in chance.sample(sorted(waiting), min(200, len(waiting)))
            }
            if kills < 3:
                first = next(iter(calls.values()))
                first.exception()  # the server is in the middle of it now
                time.sleep(chance.uniform(0, 0.03))
                server.stop(signal.SIGKILL)
                kills += 1
            for number, call in calls.items():
                if call.exception() is None:
                    (result,) = call.result().results
                    assert result.status in DONE
                    acknowledged.add(number)
            waiting -= acknowledged
        if not server.is_running():
            store = Store(server.folder)  # what survived, before anything is sent again
            counts = next(iter(store.tallies("oracle", "which").values())).counts
            store.close()
            assert set(counts.tolist()) <= {0, 1}
            assert acknowledged <= set(counts.nonzero()[0].tolist())
            server.start()
    server.stop()
    assert kills == 3
    store = Store(server.folder)
    ((_, tally),) = store.tallies("oracle", "which").items()
    assert tally.counts.tolist() == [1] * COUNT
    assert store.surveys()[1].batches == COUNT
    store.close()


@pytest.mark.slow
def test_devices_ride_out_a_kill_through_the_sdk(server: Server) -> None:
    """Clients that are in the middle of sending when the server dies deliver after its return."""
    people, threads = 300, 4
    clients = [device(server.address, "health", level="open", insecure=True) for _ in range(people)]
    for client in clients:
        client.record(smokes="yes", age=41)

    def send(mine: list[Client]) -> None:
        for client in mine:
            assert client.flush(timeout=60)

    workers = [threading.Thread(target=send, args=(clients[i::threads],)) for i in range(threads)]
    for worker in workers:
        worker.start()
    while server.show("health").status.records < 30:
        time.sleep(0.005)
    server.stop(signal.SIGKILL)
    assert sum(bool(client.outbox()) for client in clients) > 0  # it was in the middle
    server.start()
    for worker in workers:
        worker.join()
    stored = [client.counters.get("stored", 0) for client in clients]
    twice = [client.counters.get("duplicate", 0) for client in clients]
    assert [a + b for a, b in zip(stored, twice, strict=True)] == [1] * people
    for client in clients:
        client.close()
    status = server.show("health").status
    assert (status.records, status.batches) == (people, people)


def test_an_unfinished_batch_is_not_half_counted(server: Server) -> None:
    """A batch with one bad column leaves no trace of its good ones."""
    revision = server.show("health").status.revision
    batch = collector_pb2.Batch(
        id=bytes(16), survey="health", revision=revision, period="once", rows=1
    )
    batch.columns.add(attribute="smokes", level="open", codes=b"\x01")
    batch.columns.add(attribute="age", level="open", codes=b"\x07")
    with server.channel() as channel:
        stub = collector_pb2_grpc.CollectorStub(channel)
        (result,) = stub.Submit(collector_pb2.SubmitRequest(batches=[batch])).results
        assert result.status == collector_pb2.Result.REFUSED
    server.stop()
    store = Store(server.folder)
    assert store.tallies("health", "smokes") == {}
    assert store.surveys()[0].records == 0
    store.close()
