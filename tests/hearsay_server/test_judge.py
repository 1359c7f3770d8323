"""Judging reads nothing and writes nothing: the same group fares the same, given the same."""

from dataclasses import replace

import pytest
from stored import NOW, PLANS, batch, daily, decoded, terms

from hearsay.v1 import collector_pb2
from hearsay_server.ingest import merging
from hearsay_server.ingest.intake import Limits, Reason, Refused, Terms, decode, failed
from hearsay_server.ingest.judge import Judged, Kept, State, Stored, judge, key, without
from ldp.core.tally import add_up

OPEN = {name: State(plan.revision, plan.period, 0) for name, plan in PLANS.items()}


def kept(message: collector_pb2.Batch) -> Kept:
    return Kept(message.rows, message.SerializeToString(deterministic=True))


def reasons(judged: Judged) -> list[object]:
    return [o.reason if isinstance(o, Refused) else o for o in judged.outcomes]


def test_without_a_look_at_what_is_stored_every_good_batch_is_new() -> None:
    sent = [batch(1), daily(2, 3)]
    sent.append(sent[0])
    judged = judge(sent, terms())
    assert judged.outcomes == [True, True, False]
    assert [new.position for new in judged.fresh] == [0, 1]
    assert judged.twins == {key(sent[0])}
    assert judged.sums == decoded(sent[0]) | decoded(sent[1])


def test_what_is_stored_decides_and_is_left_as_it_is() -> None:
    sent = [batch(1), batch(2), batch(3), daily(4, 3), daily(5)]
    known = {
        key(sent[0]): kept(sent[0]),
        key(sent[1]): kept(batch(7)),
        key(sent[2]): Kept(0, None),
    }
    before = dict(known)
    late = replace(OPEN["daily"], closed_before=int(NOW.timestamp()) - 86_400)
    stored = Stored(known, {**OPEN, "daily": late})
    for _ in range(2):
        judged = judge(sent, terms(), stored)
        assert reasons(judged) == [
            False,
            Reason.BAD_ID,
            Reason.FORGOTTEN,
            Reason.PERIOD_CLOSED,
            True,
        ]
        assert judged.sums == decoded(sent[4])
    assert known == before


def test_a_survey_that_is_gone_or_has_another_plan_takes_nothing() -> None:
    states = {"daily": replace(OPEN["daily"], revision=b"another")}
    judged = judge([batch(1), daily(2)], terms(), Stored({}, states))
    assert reasons(judged) == [Reason.UNKNOWN_SURVEY, Reason.UNKNOWN_REVISION]
    assert not judged.sums


def test_a_batch_that_is_barred_makes_room_for_another_of_its_id() -> None:
    why = Refused(Reason.OVER_QUOTA, "too many")
    judged = judge([batch(1), batch(1)], terms(), None, {0: why})
    assert judged.outcomes == [why, True]


@pytest.mark.parametrize("where", ["batch", "column"])
def test_fields_that_the_protocol_lacks_are_refused_and_not_stored(where: str) -> None:
    padded = batch(1)
    padding = b"\xfa\x3f\x80\x02" + bytes(256)  # field 1023, of 256 bytes
    (padded if where == "batch" else padded.columns[0]).MergeFromString(padding)
    for _ in range(2):
        judged = judge([padded, batch(2)], terms(), Stored({}, OPEN))
        assert reasons(judged) == [Reason.UNKNOWN_FIELDS, True]
        assert [new.position for new in judged.fresh] == [1]


def test_a_plan_that_cannot_be_had_refuses_its_batches_alone_and_for_now() -> None:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        broken = failed()
    judged = judge([batch(1), daily(2)], Terms({**PLANS, "daily": broken}, NOW, Limits()))
    assert judged.outcomes == [True, broken]
    assert not broken.final


def test_a_fault_in_decoding_refuses_one_batch_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(message: collector_pb2.Batch, plan: object) -> object:
        if b"\x02" in (column.codes for column in message.columns):
            raise ZeroDivisionError
        return {}

    monkeypatch.setattr("hearsay_server.ingest.intake.tallies_of", faulty)
    judged = judge([batch(1), batch(2), batch(3)], terms())
    assert reasons(judged) == [True, Reason.REASON_UNSPECIFIED, True]
    refused = judged.outcomes[1]
    assert isinstance(refused, Refused)
    assert not refused.final


def test_an_operator_s_limit_on_rows_is_kept() -> None:
    judged = judge([batch(1)], Terms(PLANS, NOW, Limits(batch_rows=0)))
    assert reasons(judged) == [Reason.BAD_ROWS]


def test_what_is_left_out_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = [batch(number) for number in range(6)]
    judged = judge(sent, terms())
    expected = dict(decoded(sent[1]))
    for number in (2, 4):
        add_up(expected, decoded(sent[number]).items())
    assert without(judged, [0, 3, 5], terms()) == expected

    def fails(message: collector_pb2.Batch, by: Terms) -> object:
        if message.id == sent[3].id:
            raise Refused(Reason.REASON_UNSPECIFIED, "a fault of ours", final=False)
        return decode(message, by)

    monkeypatch.setattr(merging, "decode", fails)
    with pytest.raises(Refused, match="a fault of ours"):
        without(judged, [3], terms())
