"""What was to leave sealed or split never leaves otherwise, whatever plan the app asks for next."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from certificates import self_signed

from hearsay import Client, create_ledger
from hearsay.attestation import Policy
from hearsay.recording import envelopes
from hearsay.sealed import hpke
from hearsay.sending import evidence, packing
from hearsay.sending.transport import Tls, Unreachable
from hearsay.testing import RecordingTransport
from hearsay.v1 import collector_pb2
from hearsay_server.surveys import sealing
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput
from support import wait_until

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
MEASURED, OTHER = "ab" * 48, "cd" * 48
ATTESTED = PLAIN + f'[attestation]\nnitro = ["{MEASURED}"]\nmax_age = 100\n'


def plan_of(toml: str) -> bytes:
    made = surveys.resolve(surveys.from_toml(toml, "survey"))
    return made if toml in (PLAIN, ATTESTED) else sealing.with_keys(made, 0).plan


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
    options: dict[str, Any] = {}
    if toml == SEALED:
        options = {"shuffler": RecordingTransport(data)}
    elif toml == SPLIT:
        options = {"helper_key": HELPER}
    elif toml == ATTESTED:
        certificate = ledger.with_suffix(".pem")
        self_signed(certificate, ledger.with_suffix(".key"))
        policy = Policy({"nitro": {MEASURED}}, max_age=100)
        options = {"attestation": policy, "tls": Tls(certificate)}
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


def take_plan(toml: str, ledger: Path) -> RecordingTransport:
    """Put another plan into the ledger, as a release does that has sent nothing yet."""
    transport = RecordingTransport(plan_of(toml))
    transport.server_time = int(NOW.timestamp())
    with client(transport, ledger, revision=transport.plan.revision.hex()) as device:
        assert device.wait_ready(5), device.status()
        device._device.sender.stop()
        device.close(timeout=0)
    return transport


def test_it_waits_where_a_release_accepts_evidence_that_its_plan_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, options = recorded(ATTESTED, tmp_path / "ledger")
    monkeypatch.setattr(evidence, "ask", lambda *_, **__: None)  # all evidence is accepted
    lax = Policy({"nitro": {MEASURED, OTHER}}, max_age=100)
    with client(transport, tmp_path / "ledger", **{**options, "attestation": lax}) as device:
        assert not device.flush(timeout=0.5)
        device.close(timeout=0)
    assert not transport.batches
    with client(transport, tmp_path / "ledger", **options) as device:
        assert device.flush(timeout=5)
    assert transport.batches


@pytest.mark.parametrize("toml", [ATTESTED, SPLIT], ids=["attested", "split"])
def test_without_a_plan_nothing_leaves_but_what_is_of_the_ledgers(
    toml: str, tmp_path: Path
) -> None:
    recorded(toml, tmp_path / "ledger")
    transport = take_plan(PLAIN, tmp_path / "ledger")
    with client(transport, tmp_path / "ledger", revision="ab" * 32) as device:
        device.flush(timeout=1)
        assert device.counters["refused"] == 2
    assert not transport.batches


def test_what_an_earlier_process_goes_on_to_record_sealed_never_leaves_in_the_clear(
    tmp_path: Path,
) -> None:
    ledger, data = tmp_path / "ledger", plan_of(SEALED)
    create_ledger(ledger)
    first = RecordingTransport(data)
    first.server_time = int(NOW.timestamp())
    with client(first, ledger, shuffler=RecordingTransport(data)) as earlier:
        assert earlier.wait_ready(5), earlier.status()
        earlier._device.sender.stop()
        transport = take_plan(PLAIN, ledger)
        assert earlier.record(way="bus")
        earlier.close(timeout=0)
    with client(transport, ledger, revision="ab" * 32) as device:
        device.flush(timeout=1)
    assert not transport.batches


def test_what_comes_with_another_plan_between_the_look_and_the_packing_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, data, pack = tmp_path / "ledger", plan_of(SEALED), packing.pack
    create_ledger(ledger)
    release = {"revision": RecordingTransport(data).plan.revision.hex()}
    later = RecordingTransport(data)
    later.server_time = int(NOW.timestamp())

    def overtaken(*given: Any, **more: Any) -> None:
        monkeypatch.setattr(packing, "pack", pack)
        with client(later, ledger, **release, shuffler=RecordingTransport(data)) as device:
            assert device.wait_ready(5), device.status()
            device._device.sender.stop()
            zoe = device.person("zoe")
            zoe.grant()
            assert zoe.record(way="bus")
            device.close(timeout=0)
        pack(*given, **more)

    monkeypatch.setattr(packing, "pack", overtaken)
    plain = RecordingTransport(plan_of(PLAIN))
    plain.server_time = int(NOW.timestamp())
    with client(plain, ledger) as device:
        assert device.wait_ready(5), device.status()
        ann = device.person("ann")
        ann.grant()
        assert ann.record(way="bus")
        device.flush(timeout=1)
        assert [report.revision.hex() for report in device.outbox().reports][-1:] == [
            release["revision"]
        ]
        device.close(timeout=0)
    assert not plain.batches


def test_a_request_to_forget_a_split_record_leaves_without_a_plan(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    transport, options = recorded(SPLIT, ledger)
    transport.answers = [Unreachable("the answer was lost")] * 50
    with client(transport, ledger, **options) as device:
        wait_until(lambda: device.flush(timeout=0.1) or transport.batches)
        device.close(timeout=0)
    left = {batch.id for batch in transport.batches}
    transport.answers.clear()
    with client(transport, ledger, revision="ab" * 32, **options) as device:
        for name in ("ann", "bob"):
            device.person(name).revoke(forget=True)
        # Others were about to leave.
        wait_until(lambda: device.flush(timeout=0.1) or left <= set(transport.forgotten))
        device.close(timeout=0)
    assert left
    assert left <= set(transport.forgotten)
