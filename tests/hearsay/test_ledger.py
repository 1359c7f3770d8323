"""What the ledger remembers, and what shuts it."""

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from concurrent import futures
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hostile import one_question, plan_of
from people import person

from hearsay import (
    Caps,
    Delivery,
    NotReady,
    PlanRefused,
    Reason,
)
from hearsay.recording.ledger import person_key
from hearsay.storage.schema import VERSION
from hearsay.testing import RecordingTransport
from support import DAILY, Calendar, Server, device, new_client


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Hold the ledger as another process would."""
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


HURRIED = Delivery(record_wait=0.1, first_wait=0.05, longest_wait=0.1)
"""Waits for a locked ledger, and for a server that is away, no longer than a test must."""


def test_what_was_spent_is_spent_after_a_restart(server: Server, file: Path) -> None:
    with device(server.address, "health", ledger=file) as client:
        assert client.record(smokes="no").taken == ("smokes",)
    with device(server.address, "health", ledger=file) as client:
        assert client.record(smokes="no", age=30).taken == ("age",)
        assert client.counters == {"recorded": 2, "spent": 1, "stored": 1}
        assert [(s.attribute, s.reports, s.answered) for s in client.spendings()] == [
            ("smokes", 1, True),
            ("age", 1, True),
        ]


def test_what_waits_leaves_after_a_restart_with_the_same_id(server: Server, file: Path) -> None:
    client = device(server.address, "health", ledger=file, delivery=HURRIED)
    server.stop()
    client.record(smokes="no", age=30)
    assert not client.flush(timeout=0.2)
    assert not client.close(timeout=0.1)
    server.start()
    with new_client(
        server.address, "health", ledger=file, delivery=HURRIED, consent=False
    ) as client:
        (batch,) = client.outbox().batches
        assert client.flush()
        (sent,) = client.outbox().sent
        assert sent.batch == batch
    assert server.show("health").status.records == 1


def test_the_draw_of_a_record_survives_a_restart(server: Server, file: Path) -> None:
    server.create(DAILY.replace('title = "A', 'budget = "sample"\ntitle = "A'))
    taken: list[str] = []
    for _ in range(6):
        with device(server.address, "daily", ledger=file) as client:
            taken += client.record(smokes="no").taken
            taken += client.record(age=30).taken
    assert len(taken) == 1


def test_people_who_share_a_device_have_accounts_of_their_own(server: Server, file: Path) -> None:
    with device(server.address, "health", ledger=file) as client:
        one, other = person(client, "one"), person(client, "other")
        assert one.record(smokes="no").taken == ("smokes",)
        assert one.record(smokes="no").taken == ()
        assert other.record(smokes="no").taken == ("smokes",)
        assert [s.reports for s in one.spendings()] == [1, 0]
        assert [s.reports for s in client.spendings()] == [0, 0]
    contents = b"".join(f.read_bytes() for f in file.parent.glob("ledger.db*"))
    assert b"other" not in contents
    assert server.show("health").status.records == 2


def test_the_key_of_a_person_is_of_one_ledger_alone() -> None:
    keys = {person_key("ann", salt) for salt in (b"one", b"two")}
    assert len(keys) == 2
    assert all(len(key) == 16 for key in keys)


def test_a_cap_for_life_holds_over_all_surveys_of_a_ledger(server: Server, file: Path) -> None:
    server.create(DAILY)
    caps = Caps(life=1.5)
    with device(server.address, "health", ledger=file, caps=caps) as client:
        assert client.record(smokes="no", age=30).taken == ("smokes", "age")  # 0.5 each
    with device(server.address, "daily", ledger=file, caps=caps) as client:
        assert client.record(smokes="no", age=30).taken == ("smokes",)
        assert [s.left for s in client.spendings()] == [0.0, 0.0]
    with device(
        server.address, "daily", level="open", ledger=file, caps=Caps(attribute_life={"age": 1.9})
    ) as client:
        assert client.record(age=30).taken == ()  # 2 at this level


def test_of_the_users_caps_and_the_apps_the_lower_hold(server: Server, file: Path) -> None:
    server.create(DAILY)
    calendar = Calendar(-1)
    mild = Caps(life=3.0)
    client = device(server.address, "daily", ledger=file, caps=mild, clock=calendar)
    client.set_caps(Caps(life=1.0))
    assert client.record(smokes="no", age=30).taken == ("smokes", "age")
    calendar.pass_days(1)
    assert client.record(smokes="no", age=30).taken == ()
    client.set_caps(Caps())
    assert client.record(smokes="no", age=30).taken == ("smokes", "age")
    client.set_caps(Caps(attribute={"smokes": 0.4}))
    assert client.status().reason is Reason.PLAN_REFUSED
    client.close()
    with pytest.raises(PlanRefused, match=r"above the cap of 0\.4"):  # it is the user's for good
        device(server.address, "daily", ledger=file)


def test_nothing_happens_without_consent(server: Server, file: Path) -> None:
    client = new_client(server.address, "health", ledger=file, consent=False)
    assert not client.wait_ready(timeout=0.3)
    assert client.status().reason is Reason.NO_CONSENT
    assert client.record(smokes="no").taken == ()
    with pytest.raises(NotReady):
        _ = client.plan  # the server was not even asked
    client.grant()
    assert client.wait_ready()
    assert client.record(smokes="no").taken == ("smokes",)
    client.close()
    with new_client(server.address, "health", ledger=file, consent=False) as client:
        assert client.wait_ready()  # what was granted holds
    assert server.show("health").status.records == 1


def test_revoking_consent_empties_the_queue_and_sends_nothing(server: Server, file: Path) -> None:
    client = device(server.address, "health", ledger=file)
    client.record(smokes="no")
    client.revoke()
    assert not client.outbox()
    assert client.status().reason is Reason.NO_CONSENT
    assert client.record(age=30).taken == ()
    assert client.flush()
    assert client.counters == {"recorded": 1, "revoked": 1, "no_consent": 1}
    client.grant()
    assert client.record(smokes="no").taken == ()  # what was spent stays spent
    client.close()
    assert server.show("health").status.records == 0


@pytest.mark.slow
def test_a_ledger_that_is_not_vouched_for_waits_for_a_new_period(
    server: Server, tmp_path: Path
) -> None:
    server.create(DAILY)
    calendar = Calendar()  # which agrees with the server's to a day
    file = tmp_path / "ledger.db"
    with new_client(server.address, "daily", ledger=file, clock=calendar) as client:
        assert not client.wait_ready(2.0)
        assert client.status().reason is Reason.NEW_LEDGER
        assert client.record(smokes="no").taken == ()
        server.stop()  # its time does not go on as the calendar does
        calendar.pass_days(2)
        client.trust_clock()
        assert client.status().ready
        assert client.record(smokes="no").taken == ("smokes",)
        assert client.counters["new_ledger"] == 1
        server.start()


def test_a_ledger_that_is_not_vouched_for_never_counts_for_life(
    server: Server, tmp_path: Path
) -> None:
    server.create(DAILY)
    calendar = Calendar(-3)
    for survey, caps in (("health", Caps()), ("daily", Caps(life=9.0))):
        with new_client(
            server.address, survey, ledger=tmp_path / survey, caps=caps, clock=calendar
        ) as client:
            assert not client.wait_ready(2.0)
            calendar.pass_days(2)
            assert client.record(smokes="no").taken == ()
            assert client.status().reason is Reason.LOST_LEDGER


def test_a_ledger_that_is_removed_while_it_is_open_is_lost(server: Server, file: Path) -> None:
    server.create(DAILY)
    with device(server.address, "daily", ledger=file) as client:
        assert client.record(smokes="no").taken == ("smokes",)
        for each in file.parent.glob("ledger.db*"):
            each.unlink()
        client.grant()
        assert client.record(smokes="no", age=30).taken == ()
        assert client.status().reason is Reason.NEW_LEDGER


def test_a_clock_set_back_shuts_the_ledger_until_it_has_caught_up(
    server: Server, file: Path
) -> None:
    server.create(DAILY)
    calendar = Calendar()
    with device(server.address, "daily", ledger=file, clock=calendar) as client:
        assert client.record(smokes="no").taken == ("smokes",)
    calendar.pass_days(-3)
    with new_client(server.address, "daily", ledger=file, clock=calendar, consent=False) as client:
        assert client.record(smokes="no", age=30).taken == ()
        assert client.status().reason is Reason.CLOCK
        assert client.counters["clock"] == 2
        calendar.pass_days(3)
        assert client.record(smokes="no", age=30).taken == ("age",)


def test_a_period_that_the_servers_time_confirms_is_answered_once(
    server: Server, file: Path
) -> None:
    server.create(DAILY)
    calendar = Calendar()
    with device(server.address, "daily", ledger=file, clock=calendar) as client:
        assert client.record(smokes="no").taken == ("smokes",)
        calendar.pass_days(-1)  # it may be that day still, by the server
        assert client.record(smokes="no").taken == ("smokes",)
        calendar.pass_days(1)
        assert client.record(smokes="no", age=30).taken == ()  # this day was left
        assert client.status().reason is Reason.CLOCK
        calendar.pass_days(-1)
        assert client.record(smokes="no", age=30).taken == ("age",)
        calendar.pass_days(2)
        assert client.record(smokes="no").taken == ("smokes",)  # it is shut no longer


def _of_version(file: Path, version: int) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def _of_another_program(file: Path) -> None:
    file.unlink()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def _without_its_header(file: Path) -> None:
    file.write_bytes(b"\xff" * 4096 + file.read_bytes()[4096:])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (partial(_of_version, version=VERSION - 1), Reason.OTHER_SCHEMA),
        (partial(_of_version, version=VERSION + 1), Reason.OTHER_SCHEMA),
        (_of_another_program, Reason.NOT_A_LEDGER),
        (_without_its_header, Reason.NOT_A_LEDGER),
    ],
    ids=["older", "newer", "foreign", "headless"],
)
def test_a_file_that_is_no_ledger_of_this_version_is_left_alone(
    server: Server, file: Path, change: Callable[[Path], None], reason: Reason
) -> None:
    with device(server.address, "health", ledger=file) as client:
        client.record(smokes="no")
    change(file)
    before = file.read_bytes()
    with new_client(server.address, "health", ledger=file) as client:
        assert client.record(smokes="no", age=30).taken == ()
        assert client.status().reason is reason
        client.close(0)
    assert file.read_bytes() == before


def test_a_ledger_that_is_locked_drops_the_answer_and_recovers(server: Server, file: Path) -> None:
    with device(server.address, "health", ledger=file, delivery=HURRIED) as client:
        with locked(file):
            assert client.record(smokes="no").taken == ()
            assert client.status().reason is Reason.LOCKED
        assert client.status().ready
        assert client.record(smokes="no").taken == ("smokes",)
        assert client.counters["locked"] == 1


@pytest.mark.parametrize(("record_wait", "is_taken"), [(0.05, False), (30.0, True)])
def test_an_answer_waits_for_others_as_long_as_the_app_says(
    server: Server, file: Path, record_wait: float, is_taken: bool
) -> None:
    delivery = Delivery(record_wait=record_wait)
    with (
        device(server.address, "health", ledger=file, delivery=delivery) as client,
        futures.ThreadPoolExecutor(1) as pool,
    ):
        with locked(file):
            recording = pool.submit(client.record, smokes="no")
            futures.wait([recording], 0.5 if is_taken else 20.0)
            assert recording.done() is not is_taken
        recorded = recording.result(20)
        assert bool(recorded) is is_taken
        assert recorded.dropped == ({} if is_taken else {"smokes": "locked"})


@pytest.mark.slow
def test_a_damaged_ledger_is_set_aside_and_fails_closed(server: Server, file: Path) -> None:
    server.create(DAILY)
    calendar = Calendar()  # which agrees with the server's to a day
    with device(server.address, "daily", ledger=file, clock=calendar) as client:
        client.record(smokes="no")
    damaged = bytearray(file.read_bytes())
    damaged[4096:8192] = b"\xff" * 4096
    file.write_bytes(damaged)
    with new_client(server.address, "daily", ledger=file, clock=calendar) as client:
        assert not client.wait_ready(2.0)
        assert client.record(smokes="no", age=30).taken == ()
        assert client.status().reason is Reason.NEW_LEDGER
        (aside,) = file.parent.glob("ledger.db.corrupt-*")
        assert aside.read_bytes() == damaged
        server.stop()  # its time does not go on as the calendar does
        calendar.pass_days(2)
        client.trust_clock()
        assert client.record(smokes="no").taken == ("smokes",)
        server.start()


def test_clients_at_other_levels_spend_no_more_together_than_each_alone(
    server: Server, file: Path
) -> None:
    one = {"level": "strict", "levels": {"age": "open"}, "ledger": file}  # .5 + 2
    two = {"level": "strict", "levels": {"smokes": "open"}, "ledger": file}  # 2 + .5
    with device(server.address, "health", **one) as client:
        assert client.record(age=30).taken == ("age",)
    with device(server.address, "health", **two) as client:
        assert client.record_epsilon == 2.5
        assert client.record(smokes="no").taken == ()  # would make it 4
        assert client.record(age=30).taken == ()  # another level opens nothing that is spent
        assert client.counters["spent"] == 2
    with device(server.address, "health", **one) as client:
        assert client.record(smokes="no").taken == ("smokes",)


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ('"P1D"', '"PT1H"'),
        ("high = 60", "high = 70"),
        ("strict = 1.0", "strict = 2.0"),
        ("strict = 1.0", "strict = 0.5"),
    ],
    ids=["period", "domain", "costs more", "costs less"],
)
def test_the_first_plan_is_kept_and_any_other_refused(
    server: Server, file: Path, what: str, change: str
) -> None:
    server.create(DAILY)
    calendar = Calendar(-1)
    with device(server.address, "daily", ledger=file, clock=calendar) as client:
        assert client.record(smokes="no").taken == ("smokes",)
        before = client.plan
    other = _other(server, DAILY.replace(what, change))
    assert other.show("daily").status.revision != before.revision
    for _ in range(2):  # it holds after a restart, too
        with device(other.address, "daily", ledger=file, clock=calendar) as client:
            client._device.keeper.fetch(10.0)
            assert client.plan == before
            assert client.record(smokes="no").taken == ()
            assert client.status().ready
            assert "the plan of 'daily' changed on the server" in client.status().detail
            calendar.pass_days(1)
            assert client.record(smokes="no").taken == ("smokes",)  # by the plan that is kept
            assert client.record_epsilon == 1.0
            client.revoke()  # the other server knows no such revision
            client.grant()
    other.stop()


def test_a_plan_that_the_app_asks_for_is_taken_from_the_next_period_on(
    server: Server, file: Path
) -> None:
    server.create(DAILY)
    calendar = Calendar(-1)
    with device(server.address, "daily", ledger=file, clock=calendar) as client:
        client.record(smokes="no")
        before = client.plan.revision
    other = _other(server, DAILY.replace("high = 60", "high = 70"))
    revision = other.show("daily").status.revision
    assert revision != before
    with new_client(
        other.address,
        "daily",
        ledger=file,
        clock=calendar,
        revision=revision.hex(),
        strict=True,
        consent=False,
    ) as client:
        client.wait_ready()
        assert client.plan.revision == revision
        assert client.record(smokes="no", age=65).taken == ()
        assert client.status().reason is Reason.PLAN_CHANGED
        assert [s.reports for s in client.spendings()] == [1, 0]  # what was spent stays spent
        calendar.pass_days(1)
        assert client.record(smokes="no", age=65).taken == ("smokes", "age")
    other.stop()


def _other(server: Server, survey: str) -> Server:
    """Return a second server with another plan of the survey."""
    other = Server(server.folder.parent / "other" / "data")
    other.folder.parent.mkdir()
    other.start()
    other.create(survey)
    return other


def test_a_programmers_error_is_counted_unless_it_is_to_be_loud(server: Server) -> None:
    with device(server.address, "health", strict=False) as client:
        assert client.record(drinks="no").dropped == {"drinks": "unknown"}
        answered = client.record(smokes="maybe")
        assert (answered.taken, answered.invalid) == (("smokes",), ("smokes",))
        assert client.counters == {"unknown": 1, "invalid": 1, "recorded": 1}
    assert client.record(smokes="no").taken == ()
    assert client.status().reason is Reason.CLOSED


def test_a_period_in_which_nothing_was_taken_shuts_the_one_before(
    server: Server, file: Path
) -> None:
    server.create(DAILY)
    calendar = Calendar()
    with device(
        server.address, "daily", ledger=file, clock=calendar, caps=Caps(life=0.5)
    ) as client:
        assert client.record(smokes="no").taken == ("smokes",)
        calendar.pass_days(1)
        assert client.record(smokes="no").taken == ()  # the cap
        calendar.pass_days(-1)
    with new_client(server.address, "daily", ledger=file, consent=False) as client:
        assert client.record(smokes="no", age=30).taken == ()
        assert client.status().reason is Reason.CLOCK


def test_consent_is_revoked_at_once_even_if_it_cannot_be_noted(server: Server, file: Path) -> None:
    with device(server.address, "health", ledger=file, delivery=HURRIED) as client:
        client.record(smokes="no")
        with locked(file):
            client.revoke()
            assert client.record(age=30).taken == ()
            assert client.status().reason is Reason.NO_CONSENT
        assert client.flush()
        assert not client.outbox()
        assert client.record(age=30).taken == ()
    with new_client(server.address, "health", ledger=file, consent=False) as client:
        assert client.status().reason is Reason.NO_CONSENT
    assert server.show("health").status.records == 0


class Interrupting(RecordingTransport):
    """A transport during whose first batch something happens."""

    happens: Callable[[], None]

    def submit(self, batch: Any, timeout: float) -> Any:
        if not self.batches:
            self.happens()
        return super().submit(batch, timeout)


def test_no_batch_leaves_between_a_revocation_and_its_note(file: Path) -> None:
    transport = Interrupting(plan_of(one_question(["a", "b"])))
    delivery = Delivery(batch_rows=1, batch_age=1000)
    with device(transport, "survey", level="standard", ledger=file, delivery=delivery) as client:
        for name in ("ann", "bob"):
            somebody = person(client, name, "standard")
            assert somebody.record(answer="a").taken == ("answer",)
        consent = client._device.sender._consent
        transport.happens = lambda: [consent.revoke(name, forget=False) for name in ("ann", "bob")]
        assert client.flush()
        assert len(transport.batches) == 1
        assert client.counters["revoked"] == 1


def test_the_users_caps_bind_clients_that_are_running(server: Server, file: Path) -> None:
    server.create(DAILY)
    with (
        device(server.address, "health", ledger=file) as one,
        device(server.address, "health", level="open", ledger=file, strict=False) as other,
        device(server.address, "daily", level="open", ledger=file) as another,
    ):
        one.set_caps(Caps(attribute={"smokes": 0.5}, life=0.0))
        assert other.record(smokes="no").taken == ()
        assert other.status().reason is Reason.PLAN_REFUSED
        assert another.record(smokes="no").taken == ()  # the cap for life is for all surveys
        assert another.counters["spent"] == 1
        one.set_caps(Caps())
        assert other.record(smokes="no").taken == ("smokes",)


def test_a_ledger_that_is_locked_at_the_start_is_caught_up_with(server: Server, file: Path) -> None:
    with device(server.address, "health", ledger=file):
        pass
    server.stop()  # so that the plan can only be the one that is kept
    with contextlib.ExitStack() as held:
        held.enter_context(locked(file))
        with new_client(server.address, "health", ledger=file, delivery=HURRIED) as client:
            held.close()
            assert client.wait_ready()
            assert client.record(smokes="no").taken == ("smokes",)
            client.revoke()
