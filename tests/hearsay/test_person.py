"""People who share a ledger: each has a consent, a level, caps and an account of their own."""

import itertools
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hostile import one_question, plan_of

from hearsay import MEMORY, Caps, Client, Delivery, InvalidInput, Reason
from hearsay.plans.plan import mechanism_message, parse
from hearsay.recording import outbox
from hearsay.sending import packing
from hearsay.sending.transport import Unreachable
from hearsay.testing import RecordingTransport
from hearsay.trouble import Trouble
from hearsay.v1 import collector_pb2, plan_pb2
from ldp import KRR
from support import Calendar, wait_until

TWO_LEVELS = one_question(["no", "yes"]).replace(
    "levels = { standard = 1.0 }", "levels = { strict = 0.5, open = 2.0 }"
)
PUT_OFF = collector_pb2.Result(status=collector_pb2.Result.RETRY)
SLOW = Delivery(batch_age=3600.0)
"""Nothing is sealed unless a flush asks for it."""


def backend(transport: RecordingTransport, **choices: object) -> Client:
    known = {"ledger": MEMORY, "epsilon": 2.0, "delivery": SLOW}
    return Client(transport, "survey", **{**known, **choices})


@pytest.fixture
def transport() -> RecordingTransport:
    return RecordingTransport(plan_of(TWO_LEVELS))


def test_each_has_a_consent_of_their_own(transport: RecordingTransport) -> None:
    with backend(transport) as client:
        ann, bob = client.person("ann", level="strict"), client.person("bob", level="strict")
        ann.grant()
        assert ann.wait_ready()
        assert ann.record(answer="yes").taken == ("answer",)
        assert bob.record(answer="yes").dropped == {"answer": "no_consent"}
        assert bob.status().reason is Reason.NO_CONSENT
        assert client.status().reason is Reason.NO_CONSENT  # the device's own user is another one
        bob.grant()
        ann.revoke()
        assert ann.status().reason is Reason.NO_CONSENT
        assert bob.record(answer="yes").taken == ("answer",)
        assert client.flush()
        assert sum(batch.rows for batch in transport.batches) == 1
        assert client.counters["revoked"] == 1


def test_each_has_a_level_of_their_own(transport: RecordingTransport) -> None:
    with backend(transport) as client:
        for name, level in (("ann", "strict"), ("bob", "open")):
            person = client.person(name, level=level)
            person.grant()
            assert person.wait_ready()
            person.record(answer="yes")
            assert person.spendings()[0].life == {"strict": 0.5, "open": 2.0}[level]
        eve = client.person("eve", level="lax")
        eve.grant()
        assert eve.record(answer="yes").dropped == {"answer": "plan_refused"}
        assert "level must be one of strict, open, got 'lax'" in eve.status().detail
        assert client.flush()
    (batch,) = transport.batches
    assert sorted(column.level for column in batch.columns) == ["open", "strict"]


def test_a_level_above_the_apps_epsilon_is_refused_for_anybody(
    transport: RecordingTransport,
) -> None:
    with backend(transport, epsilon=1.0, level="strict", consent=True) as client:
        assert client.wait_ready()
        ann = client.person("ann", level="open")
        ann.grant()
        assert ann.record(answer="yes").dropped == {"answer": "plan_refused"}
        assert "would spend epsilon 2, and the app allows epsilon=1" in ann.status().detail


def test_each_has_caps_of_their_own(transport: RecordingTransport, file: Path) -> None:
    calendar = Calendar(-3)
    with backend(transport, ledger=file, clock=calendar) as client:
        ann, bob = client.person("ann", level="strict"), client.person("bob", level="strict")
        for person in (ann, bob):
            person.grant()
            assert person.wait_ready()
        ann.set_caps(Caps(life=0.5))
        bob.set_caps(Caps(attribute={"answer": 0.4}))
        assert ann.record(answer="yes")
        assert bob.record(answer="yes").dropped == {"answer": "plan_refused"}
        bob.set_caps(Caps())
        assert bob.record(answer="yes")
        calendar.pass_days(1)
        assert ann.record(answer="yes").dropped == {"answer": "spent"}
        assert bob.record(answer="yes")
        assert [s.left for s in ann.spendings()] == [0.0]
        assert [s.left for s in bob.spendings()] == [None]


def test_what_one_takes_back_leaves_what_others_said(transport: RecordingTransport) -> None:
    """Also where they are in one batch, as long as it has not left."""
    with backend(transport) as client:
        people = [client.person(str(number), level="strict") for number in range(20)]
        for person in people:
            person.grant()
            assert person.wait_ready()
            assert person.record(answer="yes")
        device = client._device
        token = object()
        device.sender.pause(token, 5.0)
        packing.pack(
            device.store, "survey", client.plan.revision, device.coins, rows=512, size=1 << 20
        )
        (before,) = client.outbox().batches
        for person in people[:7]:
            person.revoke()
        (after,) = client.outbox().batches
        assert (before.rows, after.rows) == (20, 13)
        assert after.id == before.id
        codes = before.columns[0].codes
        assert len(after.columns[0].codes) == 13 * len(codes) // 20
        device.sender.resume(token)
        assert client.flush()
        assert [batch.rows for batch in transport.batches] == [13]
        assert client.counters["revoked"] == 7
        assert not client.outbox()


def test_a_batch_that_may_have_left_is_dropped_whole_and_forgotten(
    transport: RecordingTransport,
) -> None:
    transport.answers = [PUT_OFF]
    with backend(transport) as client:
        ann, bob = client.person("ann", level="strict"), client.person("bob", level="strict")
        for person in (ann, bob):
            person.grant()
            assert person.wait_ready()
            person.record(answer="yes")
        assert not client.flush(0.2)  # it came, and was put off
        (batch,) = client.outbox().batches
        ann.revoke(forget=True)
        assert not client.outbox()
        assert client.flush(5.0)
        assert transport.forgotten == [batch.id]
        assert client.counters["revoked"] == 2
        assert bob.record(answer="no").dropped == {"answer": "spent"}


@pytest.mark.parametrize("name", ["ann", "bob"])
def test_a_batch_that_an_earlier_revocation_dropped_is_forgotten_on_demand(
    transport: RecordingTransport, name: str
) -> None:
    """Ann revokes; then she, or Bob, whose row was in the same batch, wants it forgotten."""
    transport.answers = [PUT_OFF]
    with backend(transport) as client:
        for each in ("ann", "bob"):
            person = client.person(each, level="strict")
            person.grant()
            assert person.wait_ready()
            assert person.record(answer="yes")
        assert not client.flush(0.2)  # it came, and was put off
        (batch,) = client.outbox().batches
        client.person("ann", level="strict").revoke()
        assert not client.outbox()
        assert client.flush(5.0)
        assert not transport.forgotten  # nobody asked for that
        client.person(name, level="strict").revoke(forget=True)
        assert client.flush(5.0)
        wait_until(lambda: transport.forgotten)
        assert transport.forgotten == [batch.id]
        client.person(name, level="strict").revoke(forget=True)
        assert client.flush(5.0)
        assert transport.forgotten == [batch.id]  # the server answered: it is not asked again


def test_a_batch_that_never_left_is_not_forgotten(transport: RecordingTransport) -> None:
    with backend(transport) as client:
        ann = client.person("ann", level="strict")
        ann.grant()
        assert ann.wait_ready()
        assert ann.record(answer="yes")
        device, token = client._device, object()
        device.sender.pause(token, 5.0)
        packing.pack(
            device.store, "survey", client.plan.revision, device.coins, rows=512, size=1 << 20
        )
        assert len(client.outbox().batches) == 1
        ann.revoke()
        ann.revoke(forget=True)
        device.sender.resume(token)
        assert client.flush(5.0)
    assert not transport.batches
    assert not transport.forgotten


def test_a_batch_that_a_full_disk_kept_from_being_marked_as_left_does_not_leave(
    transport: RecordingTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would be taken for one that had not left when Ann revokes, and be rewritten."""
    transport.answers = [Unreachable("the answer was lost")] * 50
    with backend(transport, delivery=Delivery(batch_age=3600.0, first_wait=0.01)) as client:
        for name in ("ann", "bob"):
            person = client.person(name, level="strict")
            person.grant()
            assert person.wait_ready()
            assert person.record(answer="yes")
        device, token = client._device, object()
        device.sender.pause(token, 5.0)
        packing.pack(
            device.store, "survey", client.plan.revision, device.coins, rows=512, size=1 << 20
        )
        with monkeypatch.context() as full:
            full.setattr(device.store, "write", _raise_full)
            device.sender.resume(token)
            assert not client.flush(0.3)
            device.sender.pause(token, 5.0)
        client.person("ann", level="strict").revoke(forget=True)
        transport.answers.clear()
        device.sender.resume(token)
        assert client.flush(5.0)
    (batch,) = transport.batches
    assert batch.rows == 1
    assert not transport.forgotten


def _raise_full(*_: object) -> None:
    raise Trouble(Reason.DISK, "the disk is full")


def test_of_the_batches_that_may_have_left_the_latest_thousand_can_be_forgotten(
    transport: RecordingTransport,
) -> None:
    transport.answers = [PUT_OFF]
    with backend(transport) as client:
        ann = client.person("ann", level="strict")
        ann.grant()
        assert ann.wait_ready()
        old = [(b"%016d" % number, f"2020-01-{number % 28 + 1:02}") for number in range(1000)]
        client._device.store.write(
            lambda connection: connection.executemany(
                "INSERT INTO forgets VALUES (?, 'survey', ?, 0)", old
            )
        )
        ann.record(answer="yes")
        assert not client.flush(0.2)
        (batch,) = client.outbox().batches
        ann.revoke()
        ((kept,),) = client._device.store.read(
            lambda connection: connection.execute(
                "SELECT count(*) FROM forgets WHERE NOT asked"
            ).fetchall()
        )
        assert kept == 1000
        ann.revoke(forget=True)
        assert client.flush(5.0)
        wait_until(lambda: len(transport.forgotten) == 1000)
        assert batch.id in transport.forgotten


def test_without_a_level_of_their_own_people_have_the_clients(
    transport: RecordingTransport,
) -> None:
    with backend(transport, level="strict") as client:
        ann = client.person("ann")
        ann.grant()
        assert ann.wait_ready()
        ann.record(answer="yes")
        assert ann.spendings()[0].life == 0.5
        assert (ann.level, ann.record_epsilon) == ("strict", 0.5)


def test_a_person_needs_a_name(transport: RecordingTransport) -> None:
    with backend(transport) as client, pytest.raises(InvalidInput, match="a person needs a name"):
        client.person("")


def test_a_person_keeps_its_client_alive(transport: RecordingTransport) -> None:
    client = backend(transport)
    person = client.person("ann", level="strict")
    del client
    person.grant()
    assert person.wait_ready()
    assert person.record(answer="yes")
    assert isinstance(person._owner, Client)
    person._owner.close()


def test_a_survey_may_name_the_level_until_somebody_chooses() -> None:
    toml = TWO_LEVELS.replace("levels =", 'default_level = "strict"\nlevels =')
    transport = RecordingTransport(plan_of(toml))
    with backend(transport, consent=True) as client:
        assert client.wait_ready()
        assert client.level == "strict"
        assert client.record(answer="yes")
        chosen, other = client.person("ann", level="open"), client.person("bob")
        assert (chosen.level, other.level) == ("open", "strict")
        chosen.grant()
        assert chosen.record(answer="yes")
        assert client.flush()
    (batch,) = transport.batches
    assert sorted(column.level for column in batch.columns) == ["open", "strict"]


def test_without_a_default_somebody_must_choose(transport: RecordingTransport) -> None:
    with backend(transport, consent=True) as client:
        assert not client.wait_ready(0.5)
        detail = client.status().detail
        assert detail == "'survey' has no default level: choose one of strict, open"


@pytest.mark.parametrize("choices", [{"epsilon": 0.4}, {"caps": Caps(attribute={"answer": 0.4})}])
def test_a_plan_that_nobody_could_answer_by_is_not_kept(
    choices: dict[str, object], file: Path
) -> None:
    transport = RecordingTransport(plan_of(TWO_LEVELS))
    with backend(transport, ledger=file, **choices) as client:
        ann = client.person("ann", level="strict")
        ann.grant()
        assert not ann.wait_ready()
        status = ann.status()
        assert status.reason is Reason.PLAN_REFUSED
        assert "nobody could answer 'survey', whatever level they choose: " in status.detail
    transport = RecordingTransport(plan_of(TWO_LEVELS.replace("strict = 0.5", "strict = 0.25")))
    with backend(transport, ledger=file, **choices) as client:
        ann = client.person("ann", level="strict")
        assert ann.wait_ready()
        assert ann.record(answer="yes")


def test_a_plan_is_kept_if_choices_by_attribute_could_answer_by_it() -> None:
    """No level as a whole would do: the one is loose on one question, the other on the other."""
    question = TWO_LEVELS[TWO_LEVELS.index("[[attributes]]") :]
    toml = TWO_LEVELS + "\n" + question.replace('"answer"', '"other"')
    message = plan_pb2.Plan.FromString(plan_of(toml))
    mechanisms = (2.5, (0.5, 2.0)), (2.6, (2.0, 0.5))
    for level, (whole, epsilons) in zip(message.levels, mechanisms, strict=True):
        level.epsilon = message.survey.levels[level.name] = whole
        for mechanism, epsilon in zip(level.mechanisms, epsilons, strict=True):
            mechanism.CopyFrom(mechanism_message(KRR(2, epsilon)))
    transport = RecordingTransport(message.SerializeToString(deterministic=True))
    with backend(transport, epsilon=1.0) as client:
        ann = client.person("ann", level="strict", levels={"other": "open"})
        ann.grant()
        assert ann.wait_ready(), ann.status()
        assert ann.record(answer="yes", other="no").taken == ("answer", "other")


def test_a_cap_for_life_may_be_paced(file: Path) -> None:
    transport = RecordingTransport(plan_of(one_question(["no", "yes"])))
    begin = datetime(2026, 1, 1, 12, tzinfo=UTC)
    days = (datetime(2027, 1, 1, tzinfo=UTC) - begin).days + 1
    clock = Calendar()
    with backend(
        transport,
        level="standard",
        consent=True,
        ledger=file,
        caps=Caps(life=20.0, until="2026"),
        clock=clock,
        delivery=Delivery(batch_age=3600.0, max_reports=100),
    ) as client:
        clock.now = begin
        assert client.wait_ready()
        taken = days_taken(client, clock, days)
        assert client.spendings()[0].left == 0.0
    gaps = [later - earlier for earlier, later in itertools.pairwise(taken)]
    assert len(taken) == 20
    assert taken[0] == 0
    assert set(gaps) <= {18, 19}  # 365 days, 20 reports


def paced(plan: bytes, ledger: Path, clock: Calendar, **choices: object) -> Client:
    """A client whose cap for life of 12 is spread over the year 2026."""
    return Client(
        RecordingTransport(plan),
        parse(plan).survey,
        level="standard",
        epsilon=9.0,
        consent=True,
        ledger=ledger,
        caps=Caps(life=12.0, until="2026"),
        clock=clock,
        **choices,  # type: ignore[arg-type]
    )


def days_taken(client: Client, clock: Calendar, days: int) -> list[int]:
    taken = []
    for day in range(days):
        clock.now = datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(days=day)
        client._device.keeper.hear(int(clock.now.timestamp()))
        if client.record(answer="yes"):
            taken.append(day)
    return taken


def test_a_pace_says_when_answers_are_taken_again(file: Path) -> None:
    clock = Calendar()
    clock.now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    with paced(plan_of(one_question(["no", "yes"])), file, clock) as client:
        people = [client.person(str(number)) for number in range(3)]
        for person in people:
            person.grant()
            assert person.wait_ready()
            assert person.record(answer="yes")
            assert person.status().detail == ""  # the day's answer was taken
        clock.now += timedelta(days=1)
        assert {person.status().detail for person in people} == {
            "the cap for life is paced: answers are taken again in a period that is first "
            "answered at 2026-01-31 21:00:00 UTC or later"  # a twelfth of the time later
        }
        assert people[2].record(answer="yes").dropped == {"answer": "spent"}
        assert people[2].status() == people[0].status()
        for before, which in ((1, 0), (0, 1)):
            clock.now = datetime(2026, 1, 31, 21, tzinfo=UTC) - timedelta(seconds=before)
            client._device.keeper.hear(int(clock.now.timestamp()))
            assert bool(people[which].record(answer="yes")) is not bool(before)
        assert "answered at 2026-02-01 00:00:00 UTC" in people[0].status().detail
        clock.now = datetime(2026, 2, 1, tzinfo=UTC)
        assert people[0].record(answer="yes")
        people[2].set_caps(Caps(life=1.0))  # used up: no time helps
        assert people[2].status().detail == ""


def test_a_survey_of_one_period_in_the_same_ledger_does_not_change_a_pace(file: Path) -> None:
    clock = Calendar()
    clock.now = datetime(2026, 1, 1, 11, tzinfo=UTC)
    once = plan_of(one_question(["no", "yes"], period="").replace('"survey"', '"once"'))
    with paced(once, file, clock) as client:
        assert client.wait_ready()
        assert client.record(answer="yes")
    daily = plan_of(one_question(["no", "yes"]))
    with paced(daily, file, clock) as client:
        assert client.wait_ready()
        taken = days_taken(client, clock, 70)
    assert len(taken) == 2  # of about 12 in a year, one of which was the other survey's


def test_a_pace_takes_a_record_whole(file: Path) -> None:
    """Also where a memo costs more than what one report of it does."""
    clock = Calendar()
    clock.now = datetime(2026, 1, 1, 12, tzinfo=UTC)
    toml = (
        one_question(["no", "yes"], 2.0, memo=2.5)
        + '\n[[attributes]]\nname = "age"\n[attributes.numeric]\nlow = 0\nhigh = 9'
    )
    with paced(plan_of(toml), file, clock, may_tell_changes=["answer"]) as client:
        assert client.wait_ready()
        assert client.record(answer="yes", age=3).taken == ("answer", "age")


def test_a_consent_that_is_revoked_elsewhere_stops_what_this_process_has_leased(
    file: Path,
) -> None:
    plan = plan_of(TWO_LEVELS)
    transport = RecordingTransport(plan)
    with backend(transport, ledger=file) as client:
        ann = client.person("ann", level="strict")
        ann.grant()
        assert ann.wait_ready()
        assert ann.record(answer="yes")
        device = client._device
        token = object()
        device.sender.pause(token, 5.0)
        packing.pack(
            device.store, "survey", client.plan.revision, device.coins, rows=512, size=1 << 20
        )
        now = device.clock().timestamp()
        (batch,) = outbox.lease(device.store, "survey", now)
        with backend(RecordingTransport(plan), ledger=file) as other:
            other.person("ann", level="strict").revoke()
        device.sender._pauses.clear()
        assert device.sender._deliver(batch) is None
        assert not transport.batches


def test_a_pace_that_is_over_paces_no_more_and_is_warned_of(
    transport: RecordingTransport, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Calendar(-9)
    today, yesterday = (f"{clock.now - timedelta(days=days):%Y-%m-%d}" for days in (0, 1))
    known = {"level": "strict", "ledger": file, "clock": clock, "consent": True}
    with backend(transport, caps=Caps(life=9.0, until=today), **known):
        assert "not paced any more" not in caplog.text
    with backend(transport, caps=Caps(life=9.0, until=yesterday), **known) as client:
        assert f"life 9 is not paced any more: its until='{yesterday}' is over" in caplog.text
        client.set_caps(Caps(life=1.5, until="2020-05"))
        assert "life 1.5 is not paced any more: its until='2020-05' is over" in caplog.text
        assert client.wait_ready()
        taken = []
        for _ in range(5):
            taken.append(bool(client.record(answer="yes")))
            clock.pass_days(1)
    assert taken == [True, True, True, False, False]  # one a day, up to the lower cap for life


@pytest.mark.parametrize("until", ["soon", "2027-13", "2027-12-32", "27"])
def test_a_pace_ends_in_a_year_month_or_day(until: str) -> None:
    with pytest.raises(InvalidInput):
        Caps(life=1.0, until=until)
    with pytest.raises(InvalidInput, match="spreads a cap for life: give life="):
        Caps(until="2027")
