"""Clocks at their ends: the reason is "clock", and nothing raises."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import cache
from pathlib import Path
from typing import cast

import pandas as pd
import pytest

from hearsay import Agreement, Caps, Client, InvalidInput, Reason, create_ledger
from hearsay_server.surveys import survey as surveys
from support import DAILY

EAST, WEST = timezone(timedelta(hours=14)), timezone(-timedelta(hours=12))


class NoOffset(tzinfo):
    def utcoffset(self, moment: datetime | None, /) -> None:
        return None


class Raising(tzinfo):
    def utcoffset(self, moment: datetime | None, /) -> timedelta:
        raise RuntimeError("no zone")


REFUSED: dict[str, object] = {
    "year 1": datetime(1, 1, 1, tzinfo=UTC),
    "year 1, east": datetime(1, 1, 1, tzinfo=EAST),
    "year 999": datetime(999, 12, 31, 23, 59, 59, tzinfo=UTC),
    "year 1000": datetime(1000, 12, 31, 23, tzinfo=UTC),
    "the end, west": datetime(9999, 12, 31, 23, 59, 59, tzinfo=WEST),
    "the last day, east": datetime(9999, 12, 31, tzinfo=EAST),
    "the very end, west": datetime.max.replace(tzinfo=WEST),
    "no zone": datetime(2026, 1, 1),
    "a zone without an offset": datetime(2026, 1, 1, tzinfo=NoOffset()),
    "a zone that raises": datetime(2026, 1, 1, tzinfo=Raising()),
    "no time": pd.NaT,
    "nothing": None,
    "a number": 1.0,
    "a text": "2026-01-01",
}
TAKEN = {
    "the beginning": datetime(1001, 1, 1, 2, tzinfo=UTC),
    "the end": datetime(9998, 12, 31, 23, 59, 59, tzinfo=UTC),
    "the end, east": datetime(9999, 1, 1, 9, tzinfo=EAST),
    "1970": datetime(1970, 1, 1, tzinfo=UTC),
    "pandas": pd.Timestamp("2026-07-04 12:00", tz="Europe/Paris"),
}


def everything(client: Client, reason: Reason) -> None:
    """Call all that must not raise, and see what it says."""
    client.grant()
    status = client.status()
    assert status.reason is reason, status
    recorded = client.record(smokes="no", age=40)
    assert set(recorded.dropped.values()) <= ({reason} if reason != "ready" else {"idle"})
    assert bool(recorded.taken) is (reason == "ready")
    assert bool(client.spendings()) is (reason == "ready")
    assert client.wait_ready(0.001) is (reason == "ready")
    _ = client.counters, client.delivery, client.outbox()
    client.person("ann").grant()
    client.person("ann").record(smokes="yes")


@cache
def agreement(period: str) -> Agreement:
    """The app ships the plan, so that nothing waits for a server."""
    toml = DAILY.replace("P1D", period)
    return Agreement.on(surveys.resolve(surveys.from_toml(toml, "daily.toml")))


def client_with(clock: Callable[[], datetime], file: Path, period: str, caps: Caps) -> Client:
    agreed = agreement(period)
    return Client("127.0.0.1:1", agreed, level="strict", ledger=file, clock=clock, caps=caps)


def test_a_clock_that_cannot_be_is_the_reason_and_nothing_raises(tmp_path: Path) -> None:
    now: list[object] = [datetime.now(UTC)]
    clock = cast(Callable[[], datetime], lambda: now[0])
    file, caps = tmp_path / "ledger.db", Caps(life=50, until="9999")
    create_ledger(file)
    with client_with(clock, file, "P1D", caps) as client:
        client.grant()
        assert client.status().ready
        for now[0] in REFUSED.values():
            everything(client, Reason.CLOCK)
            with pytest.raises(InvalidInput, match="the clock must return"):
                client.trust_clock()
        client.close(0)


@pytest.mark.parametrize("name", ["year 1", "the end, west"])
def test_a_client_is_made_by_a_clock_that_cannot_be(name: str, tmp_path: Path) -> None:
    create_ledger(tmp_path / "ledger.db")
    clock = cast(Callable[[], datetime], lambda: REFUSED[name])
    with client_with(clock, tmp_path / "ledger.db", "P1D", Caps()) as client:
        everything(client, Reason.CLOCK)
        client.close(0)


def test_consent_is_revoked_by_a_clock_that_cannot_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hearsay.person._REVOKE_WAIT", 0.05)
    create_ledger(tmp_path / "ledger.db")
    clock = cast(Callable[[], datetime], lambda: REFUSED["the end, west"])
    with client_with(clock, tmp_path / "ledger.db", "P1D", Caps()) as client:
        client.grant()
        client.revoke(forget=True)
        assert client.status().reason is Reason.NO_CONSENT
        client.close(0)


@pytest.mark.parametrize("period", ["PT1H", "P1W", "P1Y"])
@pytest.mark.parametrize("name", TAKEN)
def test_a_clock_at_its_ends_is_taken(name: str, period: str, tmp_path: Path) -> None:
    create_ledger(tmp_path / "ledger.db")
    caps = Caps(life=50, until="9999")
    with client_with(lambda: TAKEN[name], tmp_path / "ledger.db", period, caps) as client:
        everything(client, Reason.READY)
        client.trust_clock()
        client.set_caps(Caps(life=50, until="9999-12-31"))
        client.revoke()
        client.close(0)


@pytest.mark.parametrize("name", TAKEN)
def test_a_pace_that_ends_with_time_raises_nothing(name: str, tmp_path: Path) -> None:
    file, at = tmp_path / "ledger.db", TAKEN[name] - timedelta(hours=2)
    create_ledger(file)
    caps = Caps(life=3, until="9999")
    now = [at]
    with client_with(lambda: now[0], file, "PT1H", caps) as client:
        client.grant()
        for hours in range(3):
            now[0] = at + timedelta(hours=hours)
            client.record(smokes="no", age=40)
            assert client.status().ready
            assert client.spendings()
        client.close(0)
