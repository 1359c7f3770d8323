"""When the background thread sends, and what: seen by a transport that keeps it."""

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hearsay import (
    MEMORY,
    Agreement,
    Caps,
    Client,
    Delivery,
    InvalidInput,
    Reason,
    Unreachable,
)
from hearsay.choices import Agreed, Choices
from hearsay.recording.consent import Consent
from hearsay.recording.counters import Counters
from hearsay.sending.plan_keeper import PlanKeeper
from hearsay.sending.sender import Sender
from hearsay.storage.store import Store
from hearsay.testing import Collector, RecordingTransport
from hearsay.trouble import Trouble
from hearsay.v1 import collector_pb2
from hearsay_server.surveys import survey as surveys
from ldp import Coins
from support import DAILY, SURVEY, Calendar, Server, new_client, over_both, wait_until


def _plan(toml: str = SURVEY) -> bytes:
    return surveys.resolve(surveys.from_toml(toml, "test.toml"))


def _transport(toml: str = SURVEY) -> RecordingTransport:
    return RecordingTransport(_plan(toml))


class _Away(RecordingTransport):
    """A server that never says its plan, and asks to be left alone for so many seconds."""

    def __init__(self, retry_after: float) -> None:
        super().__init__(_plan())
        self._retry_after = retry_after

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        raise Unreachable("away", retry_after=self._retry_after)


QUICK = Delivery(first_wait=0.02, longest_wait=0.05)


def _pauses(tries: int, retry_after: float = 0.0) -> list[float]:
    """Return how long a sender waits after each try of a server that is away."""

    def clock() -> datetime:
        return datetime.now(UTC)

    store, transport = Store(None, clock), _Away(retry_after)
    counters = Counters(store, "health", None)
    consent = Consent(store, "health", clock, counters)
    consent.grant("")
    sender = Sender(
        store,
        transport,
        "health",
        Delivery(first_wait=1.0, longest_wait=60.0),
        keeper=PlanKeeper(
            store, transport, Agreed("health", 64.0), Choices("strict"), frozenset(), Caps(), clock
        ),
        consent=consent,
        counters=counters,
        clock=clock,
        coins=Coins(),
    )
    pauses = []
    for _ in range(tries):
        pauses.append(sender._turn())
        assert sender.last_error == "away"
        sender._not_before = 0.0  # it has waited
    return pauses


def test_tries_are_further_and_further_apart_and_spread_out() -> None:
    waits = [min(60.0, 2.0**number) for number in range(60)]
    shares = [pause / wait for pause, wait in zip(_pauses(60), waits, strict=True)]
    assert all(0.5 <= share <= 1 for share in shares)
    assert min(shares) < 0.6
    assert max(shares) > 0.9


def test_no_try_comes_before_the_server_asked_for_it() -> None:
    assert _pauses(3, retry_after=100.0) == [100.0] * 3


def test_every_try_sends_the_same_bytes_across_a_restart(file: Path) -> None:
    transport = _transport()
    transport.answers = [Unreachable("away")] * 1000
    delivery = Delivery(first_wait=0.01, longest_wait=0.02, batch_age=0.01)
    with new_client(transport, "health", ledger=file, delivery=delivery) as client:
        assert client.wait_ready()
        for name in range(20):
            person = client.person(str(name), level="strict")
            person.grant()
            assert person.record(smokes="no", age=30)
        assert not client.flush(0.2)
        wait_until(lambda: len(transport.batches) > 1)  # a loaded machine takes longer
        client.close(0)
    before = len(transport.batches)
    transport.answers = [Unreachable("away")]
    with new_client(transport, "health", ledger=file, delivery=delivery, consent=False) as client:
        assert client.flush(20)
    assert 1 < before < len(transport.batches)
    by_id: dict[bytes, set[bytes]] = {}
    for batch in transport.batches:
        by_id.setdefault(batch.id, set()).add(batch.SerializeToString(deterministic=True))
    assert all(len(forms) == 1 for forms in by_id.values())
    assert transport.tally("smokes", "strict").n == 20


def test_a_batch_leaves_by_itself_when_it_has_bytes_enough() -> None:
    transport = _transport()
    delivery = Delivery(batch_bytes=1000, batch_age=3600.0)
    with new_client(transport, "health", delivery=delivery) as client:
        assert client.wait_ready()
        people = [client.person(str(name), level="strict") for name in range(40)]
        for person in people:  # some 80 bytes each
            person.grant()
            assert person.record(smokes="no", age=30)
        wait_until(lambda: len(transport.batches) >= 2)
        assert 0 < max(batch.rows for batch in transport.batches) < 40
        for person in people:
            person.revoke()


@pytest.mark.parametrize("change", ["high = 70", "high = 60\nclamp = true"])
def test_a_server_is_asked_again_when_its_plan_is_old_and_another_plan_is_refused(
    change: str, caplog: pytest.LogCaptureFixture
) -> None:
    transport, calendar = _transport(DAILY), Calendar(-3)
    with new_client(transport, "daily", clock=calendar) as client:
        assert client.wait_ready()
        before = client.plan.revision
        transport._plan = _plan(DAILY.replace("high = 60", change))
        assert client.flush()
        assert client.status().detail == ""  # it was not asked
        calendar.pass_days(2)
        assert client.flush()
        status = client.status()
        assert (status.reason, client.plan.revision) == (Reason.READY, before)
        refused = f"changed on the server: revision {before.hex()[:12]} was accepted first"
        assert refused in status.detail
        assert refused in caplog.text
        assert client.record(age=30).taken == ("age",)
        assert client.flush()
        assert [batch.revision for batch in transport.batches] == [before]


@pytest.mark.parametrize("http", [False, True])
def test_a_flush_keeps_to_the_retry_delay_of_the_server(http: bool) -> None:
    with Collector(_plan(), http=http) as collector:
        collector.received.answers = [Unreachable("busy", retry_after=3.0)]
        with new_client(collector.address, "health", delivery=QUICK) as client:
            assert client.wait_ready()
            client.record(smokes="no")
            begin = time.monotonic()
            assert not client.flush(2.5)  # the next try is later than that
            assert not client.flush(0.5)
            assert time.monotonic() - begin < 2.0
            assert len(collector.received.batches) == 1
            assert "busy" in client.delivery.last_error
            assert client.flush(20)
            assert time.monotonic() - begin >= 3.0
            assert len(collector.received.batches) == 2


def test_a_flush_keeps_to_the_back_off() -> None:
    transport = _transport()
    transport.answers = [Unreachable("away")]
    with new_client(transport, "health", delivery=Delivery(first_wait=60.0)) as client:
        assert client.wait_ready()
        client.record(smokes="no")
        begin = time.monotonic()
        assert not client.flush(20)
        assert not client.close(20)
        assert time.monotonic() - begin < 10
    assert len(transport.batches) == 1


def test_a_turn_in_which_nothing_is_due_reads_the_ledger_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    used: list[str] = []
    for name in ("read", "write"):
        real = getattr(Store, name)

        def count(store: Store, work: Any, name: str = name, real: Any = real) -> Any:
            used.append(name)
            return real(store, work)

        monkeypatch.setattr(Store, name, count)
    monkeypatch.setattr(Sender, "start", lambda _: True)  # this test takes the turns
    delivery = Delivery(batch_age=3600.0)
    client = new_client(_transport(), Agreement.on(_plan()), delivery=delivery)
    for people in range(3):
        del used[:]
        assert client._device.sender._turn() > 1.0
        assert used == ["read"]
        person = client.person(str(people))
        person.grant()
        assert person.record(smokes="no")
    client.close(0)


def test_a_close_keeps_to_the_retry_delay_of_the_server(file: Path) -> None:
    with Collector(_plan()) as collector:
        collector.received.answers = [Unreachable("busy", retry_after=60.0)]
        client = new_client(collector.address, "health", ledger=file, delivery=QUICK)
        assert client.wait_ready()
        client.record(smokes="no")
        assert not client.flush(5.0)
        begin = time.monotonic()
        assert not client.close(20.0)
        assert time.monotonic() - begin < 10
        assert len(collector.received.batches) == 1
        assert client.outbox()  # what waits is in the file


@contextlib.contextmanager
def _no_thread_starts() -> Iterator[None]:
    """Let the system refuse every new thread of this process: its stack fits no memory."""
    before = threading.stack_size(1 << 46)
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            threading.Thread(target=int).start()
        yield
    finally:
        threading.stack_size(before)


def test_without_a_thread_answers_are_taken_and_nobody_waits() -> None:
    transport = _transport()
    agreement = Agreement.on(_plan())
    client = Client(transport, agreement, level="strict", ledger=MEMORY, consent=True)
    with _no_thread_starts():
        assert client.record(smokes="no").taken == ("smokes",)
        begin = time.monotonic()
        assert not client.flush(20.0)
        client.revoke()
        client.grant()
        assert client.record(age=30).taken == ("age",)
        assert time.monotonic() - begin < 10
    assert not transport.batches
    assert client.flush()  # with the thread that starts now
    assert client.close()
    assert sum(batch.rows for batch in transport.batches) == 1


def test_a_close_without_a_thread_ends_and_leaves_what_waits(file: Path) -> None:
    agreement = Agreement.on(_plan())
    choices: dict[str, Any] = {"level": "strict", "ledger": file, "consent": True}
    with _no_thread_starts():
        client = Client(_transport(), agreement, **choices)
        assert client.record(smokes="no").taken == ("smokes",)
        begin = time.monotonic()
        assert not client.close(20.0)
        assert time.monotonic() - begin < 10
    transport = _transport()
    with Client(transport, agreement, **choices) as client:
        assert client.flush()
    assert sum(batch.rows for batch in transport.batches) == 1


@over_both
def test_a_survey_that_comes_later_is_found_without_a_restart(server: Server) -> None:
    soon = Delivery(batch_age=0.02, longest_wait=0.05)
    with new_client(server.target, "late", delivery=soon) as client:
        assert not client.wait_ready()
        status = client.status()
        assert (status.reason, status.detail) == (
            Reason.SERVER_REFUSED,
            "there is no survey 'late' here",
        )
        server.create(SURVEY.replace("health", "late"))
        wait_until(lambda: client.status().ready, 30)


class _Forgetful(RecordingTransport):
    """A server whose `Forget` raises the given errors first, and takes at most 256 ids at once."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__(_plan())
        self.errors = list(errors)
        self.sizes: list[int] = []

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        self.sizes.append(len(ids))
        if self.errors:
            raise self.errors.pop(0)
        if len(ids) > 256:
            raise InvalidInput(f"a request holds 1 to 256 ids, got {len(ids)}")
        return super().forget(survey, period, ids, timeout)


def _to_forget(client: Client, count: int) -> list[bytes]:
    """Let a client have batches that its server is to forget; return their ids."""
    ids = [number.to_bytes(16, "big") for number in range(count)]
    client._device.store.write(
        lambda connection: connection.executemany(
            "INSERT INTO forgets VALUES (?, 'health', 'once', 1)", [(id_,) for id_ in ids]
        )
    )
    return ids


def test_many_batches_are_forgotten_in_several_requests() -> None:
    transport = _Forgetful()
    with new_client(transport, "health", delivery=QUICK) as client:
        ids = _to_forget(client, 600)
        client.flush()
        wait_until(lambda: len(transport.forgotten) == 600)
    assert sorted(transport.forgotten) == ids
    assert sorted(transport.sizes) == [88, 256, 256]


@pytest.mark.parametrize("error", [InvalidInput("no such survey"), Unreachable("barred", 0.01)])
def test_a_server_that_refuses_to_forget_is_asked_again_and_holds_up_no_answer(
    error: Exception,
) -> None:
    transport = _Forgetful(error, error)
    with new_client(transport, "health", delivery=QUICK) as client:
        assert client.wait_ready()
        ids = _to_forget(client, 1)
        assert client.record(smokes="no")
        assert client.flush()
        assert len(transport.batches) == 1
        assert transport.forgotten == []
        wait_until(lambda: transport.forgotten)
    assert transport.forgotten == ids
    assert len(transport.sizes) == 3


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, True])
def test_a_grant_leaves_a_revocation_that_the_disk_could_not_note_in_force(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = _transport()
    transport.answers = [Unreachable("lost")] * 200
    with new_client(transport, "health", delivery=QUICK) as client:
        assert client.wait_ready()
        assert client.record(smokes="no")
        wait_until(lambda: transport.batches)
        left = transport.batches[0].id
        with monkeypatch.context() as full:
            full.setattr(Store, "write", _raise_full)
            client.revoke(forget=True)
            if again:
                client.grant()
            assert not client.record(smokes="no")
            transport.answers.clear()
            sent = len(transport.batches)
        client.flush()
        wait_until(lambda: transport.forgotten)
        assert transport.forgotten == [left]
        assert len(transport.batches) == sent
        assert client._device.consent.has("") is again


def _raise_full(*_: object) -> None:
    raise Trouble(Reason.DISK, "the disk is full")
