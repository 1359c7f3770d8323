"""A device seals each record once, for the shuffler alone, and a collector counts it."""

import random
import sqlite3
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from sealing import Sealed, collector, sealed_server
from serving import connected, create

from hearsay import MEMORY, Agreement, Delivery, InvalidInput, Unreachable, create_ledger
from hearsay.plans.plan import message
from hearsay.sending.transport import Answer
from hearsay.testing import RecordingTransport
from hearsay.trouble import Reason
from hearsay.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    collector_pb2,
    collector_pb2_grpc,
    shuffler_pb2,
)
from support import DAILY, new_client, wait_until

__all__ = ["collector", "sealed_server"]

Result = collector_pb2.Result


class Shuffler:
    """Keep what devices send, and answer as told; a transport and the process behind it."""

    def __init__(self) -> None:
        self.came: list[bytes] = []
        self.status = Result.STORED
        self.away = False

    @property
    def records(self) -> list[shuffler_pb2.SealedRecord]:
        """What was taken, each once, in the order of its bytes."""
        return [shuffler_pb2.SealedRecord.FromString(data) for data in sorted(set(self.came))]

    def call(self, method: str, request: Message, kind: type[Answer], timeout: float) -> Answer:
        assert method == "Shuffler/SubmitSealed"
        assert isinstance(request, shuffler_pb2.SubmitSealedRequest)
        self.came += [record.SerializeToString() for record in request.records]
        if self.away:
            raise Unreachable("the answer was lost")
        results = [Result(status=self.status)] * len(request.records)
        answer = shuffler_pb2.SubmitSealedResponse(results=results)
        return kind.FromString(answer.SerializeToString())

    def get_plan(self, survey: str, timeout: float) -> collector_pb2.GetPlanResponse:
        raise AssertionError("a device asks a shuffler for no plan")

    def submit(self, batch: collector_pb2.Batch, timeout: float) -> collector_pb2.SubmitResponse:
        raise AssertionError("a device sends a shuffler nothing that it could read")

    def forget(
        self, survey: str, period: str, ids: Sequence[bytes], timeout: float
    ) -> collector_pb2.ForgetResponse:
        raise AssertionError("a device names no batch to a shuffler")

    def interrupt(self) -> None: ...
    def close(self) -> None: ...
    def after_fork(self, *, usable: bool) -> None: ...


def client(server: Sealed, shuffler: Shuffler | None, ledger: Any = MEMORY) -> Any:
    chosen: dict[str, Any] = {} if shuffler is None else {"shuffler": shuffler}
    chosen["delivery"] = Delivery(first_wait=0.02, longest_wait=0.05, exit_timeout=0)
    return new_client(server.address, server.survey, ledger=ledger, clock=server.clock, **chosen)


def shown(server: Sealed) -> admin_pb2.ShowSurveyResponse:
    with connected(server.address, server.token("admin")) as channel:
        asked = admin_pb2.ShowSurveyRequest(survey=server.survey)
        return admin_pb2_grpc.AdminStub(channel).ShowSurvey(asked, timeout=20)


def test_each_record_is_an_envelope_of_its_own_and_counts_once(collector: Sealed) -> None:
    shuffler = Shuffler()
    with client(collector, shuffler) as device:
        assert device.wait_ready(), device.status()
        for name in ("ada", "ben", "cem"):
            person = device.person(name)
            person.grant()
            person.record(smokes="yes", age=30)
        assert device.flush()
        assert device.counters["stored"] == 3
    records = shuffler.records
    assert len(records) == 3
    assert len({len(record.SerializeToString()) for record in records}) == 1
    assert shown(collector).status.batches == 0  # nothing came to the collector yet
    random.shuffle(records)
    assert {result.status for result in collector.submit(*records)} == {Result.STORED}
    status = shown(collector).status
    assert (status.batches, status.records) == (3, 3)


def test_a_retry_and_another_process_send_the_same_bytes(collector: Sealed, tmp_path: Path) -> None:
    shuffler = Shuffler()
    shuffler.away = True
    file = tmp_path / "ledger"
    create_ledger(file)
    with client(collector, shuffler, file) as device:
        assert device.wait_ready(), device.status()
        device.record(smokes="yes")
        assert not device.flush(0.3)
        device.close(0)
    shuffler.away = False
    with client(collector, shuffler, file) as device:
        assert device.flush()
    assert len(shuffler.came) >= 2
    assert len(set(shuffler.came)) == 1
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT count(*) FROM envelopes").fetchone() == (0,)
    connection.close()


def test_without_a_shuffler_nothing_is_spent_and_the_error_says_what_to_give(
    collector: Sealed,
) -> None:
    with client(collector, None) as device:
        assert not device.wait_ready(3)
        assert device.status().reason is Reason.PLAN_REFUSED
        assert 'give shuffler="HOST:PORT"' in device.status().detail
        device.record(smokes="yes")
        assert not device.outbox()
        assert device.counters["plan_refused"] == 1
        assert not device.spendings()


def test_a_shuffler_is_refused_where_records_are_not_sealed(collector: Sealed) -> None:
    create(collector.address, DAILY.replace('"daily"', '"plain"'), collector.token("admin"))
    with new_client(
        collector.address, "plain", clock=collector.clock, shuffler=Shuffler()
    ) as device:
        assert not device.wait_ready(3)
        assert "leave shuffler= out" in device.status().detail
    with pytest.raises(InvalidInput, match="shuffler_token is for a shuffler"):
        new_client(collector.address, "plain", shuffler_token="secret")


def test_what_waits_stays_where_the_next_process_has_no_shuffler(
    collector: Sealed, tmp_path: Path
) -> None:
    shuffler, file = Shuffler(), tmp_path / "ledger"
    create_ledger(file)
    shuffler.away = True
    with client(collector, shuffler, file) as device:
        assert device.wait_ready(), device.status()
        device.record(smokes="yes")
        assert not device.flush(0.3)
        device.close(0)
    with client(collector, None, file) as device:
        assert not device.flush(0.3)
        assert len(device.outbox().batches) == 1
        device.close(0)
    assert shown(collector).status.batches == 0
    shuffler.away = False
    with client(collector, shuffler, file) as device:
        assert device.flush()


def served(collector: Sealed) -> bytes:
    """The plan of the survey."""
    with connected(collector.address, collector.token("shuffler")) as channel:
        asked = collector_pb2.GetPlanRequest(survey=collector.survey)
        return collector_pb2_grpc.CollectorStub(channel).GetPlan(asked, timeout=20).plan


def unsealed(collector: Sealed) -> bytes:
    """The plan of the survey, as a release of the app may ship it that seals nothing."""
    plan = message(served(collector))
    plan.survey.ClearField("sealing")
    return plan.SerializeToString(deterministic=True)


def test_nothing_that_waits_sealed_leaves_in_the_clear_after_a_release(
    collector: Sealed, tmp_path: Path
) -> None:
    """The shuffler may have the same record, whose id would tell the collector whose it is."""
    shuffler, file = Shuffler(), tmp_path / "ledger"
    create_ledger(file)
    shuffler.away = True
    with client(collector, shuffler, file) as device:
        assert device.wait_ready(), device.status()
        device.record(smokes="yes")
        assert not device.flush(0.3)
        device.person("ben").grant()
        assert device.person("ben").record(smokes="no")
        device.revoke(forget=True)  # the first record may have left
        device.close(0)
    plain, agreement = RecordingTransport(unsealed(collector)), Agreement.on(unsealed(collector))
    for _ in range(3):
        with new_client(plain, agreement, ledger=file, clock=collector.clock) as device:
            assert device.flush(5)
            device.close(0)
    assert (plain.batches, plain.forgotten) == ([], [])
    with new_client(plain, agreement, ledger=file, clock=collector.clock) as device:
        assert device.counters["refused"] == 1
        collector.clock.now += timedelta(days=1)
        assert device.record(smokes="yes")
        assert device.flush(5)
    assert [batch.period for batch in plain.batches] == [collector.today]


def test_a_process_of_an_earlier_release_neither_sends_nor_drops_what_a_later_one_took(
    collector: Sealed, tmp_path: Path
) -> None:
    """Workers are replaced one by one: the last ones of before meet what the first ones took."""
    file = tmp_path / "ledger"
    create_ledger(file)
    old = RecordingTransport(unsealed(collector))
    plan = message(unsealed(collector))
    plan.survey.title = "a later one"
    later = plan.SerializeToString(deterministic=True)
    new = RecordingTransport(later)
    agreements = [Agreement.on(unsealed(collector)), Agreement.on(later)]
    given = {"ledger": file, "clock": collector.clock}
    slow = Delivery(batch_age=60, exit_timeout=0)
    with new_client(old, agreements[0], **given) as before:
        assert before.wait_ready(), before.status()
        with new_client(new, agreements[1], delivery=slow, **given) as after:
            assert after.wait_ready(), after.status()
            assert after.record(smokes="yes")
            assert not before.flush(0.5)
            assert (old.batches, before.counters.get("refused", 0)) == ([], 0)
            assert after.flush(5)
    assert [batch.rows for batch in new.batches] == [1]


def test_what_waits_in_the_clear_holds_up_no_sealed_record_after_a_release(
    collector: Sealed, tmp_path: Path
) -> None:
    shuffler, file = Shuffler(), tmp_path / "ledger"
    create_ledger(file)
    plain, agreement = RecordingTransport(unsealed(collector)), Agreement.on(unsealed(collector))
    plain.answers = [Unreachable("away")] * 1000
    with new_client(plain, agreement, ledger=file, clock=collector.clock) as device:
        assert device.wait_ready(), device.status()
        assert device.record(smokes="yes")
        assert not device.flush(0.3)
        device.close(0)
    collector.clock.now += timedelta(days=1)
    agreement = Agreement.on(served(collector))
    given = {"shuffler": shuffler, "ledger": file, "clock": collector.clock}
    with new_client(collector.address, agreement, **given) as device:
        assert device.wait_ready(), device.status()
        assert device.record(smokes="no")
        assert device.flush(10)
        assert device.counters["refused"] == 1
    assert [record.period for record in shuffler.records] == [collector.today]


def test_a_revoked_record_that_may_have_left_is_forgotten_by_a_sealed_request(
    collector: Sealed,
) -> None:
    shuffler = Shuffler()
    with client(collector, shuffler) as device:
        assert device.wait_ready(), device.status()
        shuffler.away = True
        device.record(smokes="yes")
        assert not device.flush(0.3)
        (record,) = shuffler.records
        shuffler.away = False
        device.revoke(forget=True)
        wait_until(lambda: len(shuffler.records) == 2)
    records = shuffler.records
    assert len(records) == 2
    assert len({record.ByteSize() for record in records}) == 1
    assert {result.status for result in collector.submit(*records)} == {Result.STORED}
    assert shown(collector).status.records == 0
    assert collector.submit(record)[0].reason == collector_pb2.FORGOTTEN


def test_a_shuffler_that_refuses_has_a_record_dropped_and_counted(collector: Sealed) -> None:
    shuffler = Shuffler()
    shuffler.status = Result.REFUSED
    with client(collector, shuffler) as device:
        assert device.wait_ready(), device.status()
        device.record(smokes="yes")
        assert device.flush()
        assert device.counters["refused"] == 1
