"""When the background thread sends, and what: seen by a transport that keeps it."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from hearsay import MEMORY, Client, Delivery, Reason, Unreachable, create_ledger
from hearsay.sender import Sender
from hearsay.store import Store
from hearsay.testing import RecordingTransport
from hearsay_server import survey as surveys
from ldp import Coins
from support import DAILY, SURVEY, Calendar, Server


def _transport(toml: str = SURVEY) -> RecordingTransport:
    return RecordingTransport(surveys.resolve(surveys.from_toml(toml, "test.toml")))


def _pauses(tries: int, retry_after: float = 0.0) -> list[float]:
    """Return how long a sender waits after each try of a server that is away."""

    def refresh(now: bool, timeout: float) -> None:
        raise Unreachable("away", retry_after)

    def clock() -> datetime:
        return datetime.now(UTC)

    sender = Sender(
        Store(None, clock),
        _transport(),
        "health",
        Delivery(first_wait=1.0, longest_wait=60.0),
        refresh=refresh,
        allowed=lambda: True,
        clock=clock,
        coins=Coins(),
    )
    pauses = []
    for _ in range(tries):
        pauses.append(sender._turn())
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


def test_every_try_sends_the_same_bytes_across_a_restart(tmp_path: Path) -> None:
    create_ledger(tmp_path / "ledger.db")
    transport = _transport()
    transport.answers = [Unreachable("away")] * 1000
    delivery = Delivery(first_wait=0.01, longest_wait=0.02, batch_age=0.01)
    choices: dict[str, Any] = {
        "level": "strict",
        "ledger": tmp_path / "ledger.db",
        "delivery": delivery,
    }
    with Client(transport, "health", consent=True, **choices) as client:
        assert client.wait_ready()
        for person in range(20):
            client.person(str(person)).record(smokes="no", age=30)
        assert not client.flush(0.2)
        client.close(0)
    before = len(transport.batches)
    transport.answers = [Unreachable("away")]
    with Client(transport, "health", **choices) as client:
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
    with Client(
        transport, "health", level="strict", epsilon=64.0, ledger=MEMORY, consent=True, delivery=delivery
    ) as client:
        assert client.wait_ready()
        for person in range(40):  # some 80 bytes each
            client.person(str(person)).record(smokes="no", age=30)
        deadline = time.monotonic() + 20
        while len(transport.batches) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert 0 < max(batch.rows for batch in transport.batches) < 40
        client.revoke()


@pytest.mark.parametrize("change", ["high = 70", "high = 60\nclamp = true"])
def test_a_plan_is_fetched_again_when_it_is_old(change: str) -> None:
    transport, calendar = _transport(DAILY), Calendar(-3)
    with Client(
        transport, "daily", level="strict", epsilon=64.0, ledger=MEMORY, consent=True, clock=calendar
    ) as client:
        assert client.wait_ready()
        before = client.plan.revision
        transport._plan = _transport(DAILY.replace("high = 60", change))._plan
        assert client.flush()
        assert client.plan.revision == before
        calendar.pass_days(2)
        assert client.flush()
        assert client.plan.revision != before


def test_a_survey_that_comes_later_is_found_without_a_restart(server: Server) -> None:
    soon = Delivery(batch_age=0.02, longest_wait=0.05)
    with Client(
        server.address, "late", level="strict", epsilon=64.0, ledger=MEMORY, consent=True, delivery=soon
    ) as client:
        assert not client.wait_ready()
        assert client.status().reason is Reason.PLAN_REFUSED
        server.create(SURVEY.replace("health", "late"))
        deadline = time.monotonic() + 30
        while client.status().reason is not Reason.READY:
            assert time.monotonic() < deadline
            time.sleep(0.01)
