"""An exception of a signal handler at any point: Ctrl-C in a notebook, a task's soft time limit."""

import contextlib
import logging
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hostile import one_question, plan_of, uncollected

from hearsay import MEMORY, Agreement, Client, Delivery
from hearsay.recording import ledger_file
from hearsay.testing import RecordingTransport
from support import new_client

pytestmark = [
    pytest.mark.skipif(
        not hasattr(signal, "setitimer"), reason="this system has no interval timers"
    ),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # `uncollected` says why
]

FAST = Delivery(batch_age=0.02, first_wait=0.01, longest_wait=0.05)


class Interrupted(Exception):
    """What the handler raises."""


@contextlib.contextmanager
def alarms(handler: Callable[[], None]) -> Iterator[None]:
    """Have a handler called for SIGALRM.

    Nothing is logged meanwhile: an exception of a signal handler inside Python's `logging` leaves
    the log's lock with the thread, and other threads that log wait for ever.
    """
    logger = logging.getLogger("hearsay")
    before = signal.signal(signal.SIGALRM, lambda *_: handler())
    logger.disabled = True
    try:
        with uncollected():
            yield
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        logger.disabled = False
        signal.signal(signal.SIGALRM, before)


def interrupt() -> None:
    raise Interrupted


def check_unlocked(file: Path) -> None:
    """Check that another process could write to the ledger: nobody holds it for long."""
    with contextlib.closing(sqlite3.connect(file, timeout=1.0, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")


PLAN = plan_of(one_question(["no", "yes"]))


def connected(transport: RecordingTransport, file: Path) -> Client:
    return new_client(transport, "survey", level="standard", ledger=file, delivery=FAST)


@pytest.mark.slow
def test_interrupting_record_flush_and_close_500_times_breaks_nothing(file: Path) -> None:
    transport = RecordingTransport(PLAN)
    chance = random.Random(1)
    interruptions: dict[str, int] = dict.fromkeys(("record", "flush", "close"), 0)
    taken = raised = 0

    def raise_and_count() -> None:
        nonlocal raised
        raised += 1
        raise Interrupted

    client = connected(transport, file)
    assert client.wait_ready()
    number = 0
    with alarms(raise_and_count):
        while min(interruptions.values()) < 100 or sum(interruptions.values()) < 500:
            number += 1
            person = client.person(str(number), level="standard")
            person.grant()
            which = min(interruptions, key=lambda name: interruptions[name])
            if which == "close" and chance.random() < 0.5:
                which = "record"
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 10 ** chance.uniform(-5.0, -2.6))
                    taken += bool(person.record(answer="yes"))
                    if which == "flush":
                        client.flush(1.0)
                    elif which == "close":
                        client.close(1.0)
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interruptions[which] += 1
            assert raised == sum(interruptions.values()), "an exception did not reach the host"
            check_unlocked(file)
            if which == "close":
                client.close(1.0)
                client = connected(transport, file)
            again = client.person(str(number), level="standard").record(answer="no")
            assert again.taken or again.dropped == {"answer": "spent"}
            taken += bool(again)
            assert client.status().ready, client.status()
    assert client.flush(20.0)
    assert client.close()
    found = ledger_file.read(file).surveys[0]
    rows = sum({batch.id: batch.rows for batch in transport.batches}.values())
    assert rows == found.people == number  # everybody once, whatever was interrupted
    assert rows - taken <= sum(interruptions.values())  # taken, though nobody was told
    assert not found.waiting


def test_an_interrupted_start_or_revocation_stops_nothing() -> None:
    """Each client begins its thread in the middle of it, and goes on with one."""
    agreement, chance = Agreement.on(PLAN), random.Random(3)
    interruptions = 0
    with alarms(interrupt):
        for number in range(300):
            transport = RecordingTransport(PLAN)
            client = Client(transport, agreement, level="standard", ledger=MEMORY, consent=True)
            person = client.person("ann")
            person.grant()
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 10 ** chance.uniform(-5.0, -3.0))
                    person.record(answer="yes")
                    if number % 2:
                        person.revoke()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interruptions += 1
            other = client.person("bob")
            other.grant()
            assert other.record(answer="no").taken == ("answer",)
            assert client.flush(10.0)
            named = [thread for thread in threading.enumerate() if thread.name == "hearsay"]
            assert len(named) <= 1 or all(not each.is_alive() for each in named[1:])
            assert client.close(10.0)
            assert 1 <= sum(batch.rows for batch in transport.batches) <= 2
    assert interruptions > 100


def test_a_revocation_that_is_interrupted_at_its_end_does_not_pause_sending_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport = RecordingTransport(PLAN)
    with Client(
        transport, Agreement.on(PLAN), level="standard", ledger=MEMORY, consent=True
    ) as client:
        ann, bob = client.person("ann"), client.person("bob")
        for person in (ann, bob):
            person.grant()
        ann.record(answer="yes")
        with monkeypatch.context() as patch:
            patch.setattr("hearsay.sending.sender.Sender.resume", lambda *_: interrupt())
            with pytest.raises(Interrupted):
                ann.revoke()
        assert bob.record(answer="no").taken == ("answer",)
        assert client.flush(10.0)
    assert sum(batch.rows for batch in transport.batches) == 1


def test_record_in_a_signal_handler_does_not_deadlock(file: Path) -> None:
    transport = RecordingTransport(PLAN)
    chance = random.Random(2)
    inside = 0
    with connected(transport, file) as client:
        assert client.wait_ready()
        count = 0

        def record() -> None:
            nonlocal count, inside
            count += 1
            person = client.person(f"handler {count}", level="standard")
            person.grant()
            inside += bool(person.record(answer="yes"))

        finished = threading.Event()
        watchdog = threading.Timer(60.0, lambda: finished.is_set() or signal.raise_signal(9))
        watchdog.daemon = True
        watchdog.start()
        with alarms(record):
            for number in range(300):
                person = client.person(str(number), level="standard")
                person.grant()
                signal.setitimer(signal.ITIMER_REAL, 10 ** chance.uniform(-5.0, -3.3))
                assert person.record(answer="yes").taken
                time.sleep(0.0005)
        finished.set()
        watchdog.cancel()
        assert count > 100
        assert inside > 10
        assert client.flush(20.0)
    rows = sum({batch.id: batch.rows for batch in transport.batches}.values())
    assert rows == 300 + inside
