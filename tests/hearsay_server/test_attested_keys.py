"""A device with a shuffler wants evidence of the sealing keys, and does not tell by it when it
sends."""

import hashlib
import secrets
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from google.protobuf.message import Message
from sealing import Sealed, collector, sealed_server
from test_sealed_device import Shuffler

from hearsay import Agreement, Delivery
from hearsay.attestation import Policy, TestAttester
from hearsay.attestation.claims import SEALING, binding
from hearsay.sending import attested_keys
from hearsay.sending.attested_keys import AttestedKeys
from hearsay.sending.through_shuffler import ThroughShuffler
from hearsay.sending.through_shuffler import submit as submit_sealed
from hearsay.sending.transport import Answer, Unreachable, connect
from hearsay.sending.uptime import uptime
from hearsay.v1 import attestation_pb2, collector_pb2, shuffler_pb2
from support import new_client, wait_until

__all__ = ["collector", "sealed_server"]

ASKED = "Attestation/GetEvidence"


class Curious:
    """A collector that notes which calls come, and makes test evidence unless told otherwise."""

    def __init__(self, server: Sealed) -> None:
        reached = connect(server.address)
        self.plan = reached.get_plan(server.survey, 20).plan
        reached.close()
        self.revision = hashlib.sha256(self.plan).digest()
        self.clock: Callable[[], datetime] = server.clock
        self.attester = TestAttester()
        self.bound_to = SEALING
        self.seen: list[str] = []

    def policy(self, max_age: float = 300.0) -> Policy:
        root = self.attester.root
        return Policy(
            {"test": {"test"}}, max_age=max_age, insecure_test_attestation=True, test_root=root
        )

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        self.seen.append("GetPlan")
        now = int(self.clock().timestamp())
        return collector_pb2.GetPlanResponse(plan=self.plan, server_time=now)

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        self.seen.append(method)
        assert isinstance(request, attestation_pb2.GetEvidenceRequest)
        bound = binding(self.bound_to, self.revision, request.nonce)
        made = self.attester.evidence(bound, self.clock().timestamp())
        answer = attestation_pb2.GetEvidenceResponse(kind=made.kind, document=made.document)
        return kind.FromString(answer.SerializeToString())

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        raise AssertionError("a device with a shuffler sends the collector no batch")

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        raise AssertionError("a device with a shuffler names the collector no batch")

    def interrupt(self) -> None: ...
    def close(self) -> None: ...
    def after_fork(self, *, usable: bool) -> None: ...


def client(server: Sealed, curious: Curious, shuffler: Shuffler, **choices: Any) -> Any:
    usual: dict[str, Any] = {
        "attestation": curious.policy(),
        "delivery": Delivery(first_wait=0.02, longest_wait=0.05, exit_timeout=0),
    }
    survey = choices.pop("survey", server.survey)
    return new_client(
        curious, survey, clock=server.clock, shuffler=shuffler, **{**usual, **choices}
    )


def test_the_collector_is_asked_the_same_whether_a_device_sends_or_not(collector: Sealed) -> None:
    curious, shuffler = Curious(collector), Shuffler()
    with client(collector, curious, shuffler) as device:
        assert device.wait_ready(), device.status()
        wait_until(lambda: ASKED in curious.seen)
        idle = list(curious.seen)  # nothing was answered so far
        for name in ("ada", "ben"):
            person = device.person(name)
            person.grant()
            person.record(smokes="yes")
            assert device.flush()
        shuffler.away = True
        device.record(smokes="yes")
        assert not device.flush(0.3)
        shuffler.away = False
        device.revoke(forget=True)
        wait_until(lambda: len(shuffler.records) == 4)
        assert curious.seen == idle == ["GetPlan", ASKED]


def test_an_app_that_ships_the_plan_asks_before_the_first_record(collector: Sealed) -> None:
    curious = Curious(collector)
    with client(collector, curious, Shuffler(), survey=Agreement.on(curious.plan)):
        wait_until(lambda: ASKED in curious.seen)


def test_a_device_that_sends_nothing_asks_again_before_its_evidence_is_old(
    collector: Sealed,
) -> None:
    curious, shuffler = Curious(collector), Shuffler()
    with client(collector, curious, shuffler, attestation=curious.policy(max_age=0.5)):
        wait_until(lambda: curious.seen.count(ASKED) >= 4)


def test_records_wait_for_evidence_and_ask_for_none(collector: Sealed) -> None:
    curious, shuffler = Curious(collector), Shuffler()
    curious.bound_to = b"other keys"
    slow = Delivery(first_wait=60, longest_wait=60, exit_timeout=0)
    with client(collector, curious, shuffler, delivery=slow) as device:
        assert device.wait_ready(), device.status()
        wait_until(lambda: ASKED in curious.seen)
        device.record(smokes="yes")
        assert not device.flush(0.3)
        assert not device.flush(0.3)
        assert "attestation refused (binding)" in device.delivery.last_error
        assert curious.seen.count(ASKED) == 1
        assert shuffler.records == []


def test_a_device_asks_again_after_a_failure_and_then_sends(collector: Sealed) -> None:
    curious, shuffler = Curious(collector), Shuffler()
    curious.bound_to = b"other keys"
    with client(collector, curious, shuffler) as device:
        assert device.wait_ready(), device.status()
        wait_until(lambda: curious.seen.count(ASKED) >= 3)
        device.record(smokes="yes")
        curious.bound_to = SEALING
        assert device.flush(10), device.delivery
    assert len(shuffler.records) == 1


def test_nothing_is_asked_without_consent(collector: Sealed) -> None:
    curious = Curious(collector)
    survey = Agreement.on(curious.plan)
    with client(collector, curious, Shuffler(), survey=survey, consent=False) as device:
        time.sleep(0.3)
        assert curious.seen == []
        device.grant()
        wait_until(lambda: ASKED in curious.seen)


def test_no_record_leaves_on_old_evidence_or_on_that_of_another_plan(
    collector: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    curious, shuffler = Curious(collector), Shuffler()
    server = ThroughShuffler(curious, shuffler)
    way = AttestedKeys(
        server, curious.policy(), lambda: datetime.now(UTC), first_wait=1, longest_wait=1
    )

    def submit(revision: bytes = curious.revision) -> None:
        record = shuffler_pb2.SealedRecord(survey=collector.survey, revision=revision)
        submit_sealed(way, record, 20)

    with pytest.raises(Unreachable, match="no evidence of what it runs so far"):
        submit()
    curious.clock = lambda: datetime.now(UTC)
    way.ask(collector.survey, curious.revision, 20)
    submit()
    with pytest.raises(Unreachable):
        submit(secrets.token_bytes(32))
    later = uptime() + 301
    monkeypatch.setattr(attested_keys, "uptime", lambda: later)
    assert way.due_in(curious.revision) == 0
    with pytest.raises(Unreachable):
        submit()
