"""What was to leave sealed or split never leaves otherwise, whatever plan the app asks for next."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hearsay import Client, create_ledger
from hearsay.recording import envelopes
from hearsay.sealed import hpke
from hearsay.testing import RecordingTransport
from hearsay.v1 import collector_pb2
from hearsay_server.surveys import sealing
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput

NOW = datetime(2026, 8, 3, 12, tzinfo=UTC)
HELPER = hpke.private_key(bytes(range(32))).public_key().public_bytes_raw().hex()
PLAIN = """
name = "commute"
period = "P1D"
default_level = "standard"
[levels]
standard = 1.0
[[attributes]]
name = "way"
categorical = { values = ["bus", "train", "car"] }
"""
SPLIT = PLAIN + f'[two_servers]\nhelper_key = "{HELPER}"\nleast = 100\ndelta = 1e-6\n'
SEALED = PLAIN + "[sealing]\n"


def plan_of(toml: str) -> bytes:
    made = surveys.resolve(surveys.from_toml(toml, "survey"))
    return made if toml == PLAIN else sealing.with_keys(made, 0).plan


class Unknowing(RecordingTransport):
    """A server that knows no survey, and takes whatever comes."""

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        raise InvalidInput(f"there is no survey {survey!r}")


def client(transport: RecordingTransport, ledger: Path, **options: Any) -> Client:
    given: dict[str, Any] = {"survey": "commute", "epsilon": 1.0, "consent": True, "ledger": ledger}
    return Client(transport, **{**given, "clock": lambda: NOW, **options})


def recorded(toml: str, ledger: Path) -> tuple[RecordingTransport, dict[str, Any]]:
    """Record two answers by a plan that seals or splits, and keep them from being packed; return
    the transport, and the client's options."""
    if not ledger.exists():
        create_ledger(ledger)
    data = plan_of(toml)
    transport = RecordingTransport(data)
    transport.server_time = int(NOW.timestamp())
    shuffled = {"shuffler": RecordingTransport(data)}
    options = shuffled if toml == SEALED else {"helper_key": HELPER}
    with client(transport, ledger, **options) as device:
        assert device.wait_ready(5), device.status()
        device._device.sender.stop()
        for name in ("ann", "bob"):
            person = device.person(name)
            person.grant()
            assert person.record(way="bus")
        assert len(device.outbox().reports) == 2
    return transport, options


@pytest.mark.parametrize("toml", [SEALED, SPLIT], ids=["sealed", "split"])
def test_it_waits_while_the_app_asks_for_a_plan_that_does_not_come(
    toml: str, tmp_path: Path
) -> None:
    transport, options = recorded(toml, tmp_path / "ledger")
    with client(transport, tmp_path / "ledger", revision="ab" * 32, **options) as device:
        assert not device.flush(timeout=0.3)
        outbox = device.outbox()
        assert (len(outbox.reports), len(outbox.batches)) == (2, 0)
        device.close(timeout=0)
    assert not transport.batches


@pytest.mark.parametrize("toml", [SEALED, SPLIT], ids=["sealed", "split"])
def test_it_waits_where_the_plan_comes_with_it_by_another_process(
    toml: str, tmp_path: Path
) -> None:
    ledger, asked = tmp_path / "ledger", threading.Event()
    create_ledger(ledger)
    transport = Unknowing(plan_of(toml))
    _, options = recorded(toml, tmp_path / "other")

    def clock() -> datetime:
        # The sender asks for the time after it has looked for a plan, and before it looks for
        # reports: another process takes its first plan and its first answers between the two.
        if threading.current_thread().name == "hearsay" and asked.is_set():
            asked.clear()
            recorded(toml, ledger)
        return NOW

    with client(transport, ledger, **options, clock=clock) as device:
        assert not device.wait_ready(0.5)
        asked.set()
        device.flush(timeout=2)
        assert not asked.is_set()
        batches = (*device.outbox().batches, *(each.batch for each in device.outbox().sent))
        assert [batch.rows for batch in batches] == [1, 1]
        if toml == SEALED:
            assert all(envelopes.find(device._device.store, batch.id) for batch in batches)
            assert not transport.batches
        device.close(timeout=0)


@pytest.mark.parametrize("toml", [SEALED, SPLIT], ids=["sealed", "split"])
def test_it_is_dropped_once_a_release_has_come_to_a_plan_of_another_kind(
    toml: str, tmp_path: Path
) -> None:
    recorded(toml, tmp_path / "ledger")
    plan, later = plan_of(PLAIN), NOW + timedelta(days=1)
    transport = RecordingTransport(plan)
    transport.server_time = int(later.timestamp())
    revision = transport.plan.revision.hex()
    with client(transport, tmp_path / "ledger", revision=revision, clock=lambda: later) as device:
        assert device.wait_ready(5), device.status()
        assert device.record(way="car")
        assert device.flush()
        assert {batch.period for batch in transport.batches} == {"2026-08-04"}
        assert device.counters["refused"] >= 1
