"""Attacks that once succeeded against a client: each learns, spends and locks nothing now.

The adversary is a server that lies, unless a test names another one.
"""

import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hostile import Liar, device, one_question, plan_of, with_another_epsilon

from hearsay import (
    MEMORY,
    Agreement,
    Caps,
    Client,
    Delivery,
    FileAnchor,
    InvalidInput,
    Reason,
    Unreachable,
)
from hearsay.choices import Agreed
from hearsay.plans.plan import mechanism_message, parse
from hearsay.testing import RecordingTransport
from hearsay.v1 import plan_pb2
from ldp import KRR
from ldp.core.exact import ONE
from ldp.testing import SeededCoins
from support import Calendar

NOW = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


@pytest.mark.parametrize("people", [60, pytest.param(400, marks=pytest.mark.slow)])
def test_silence_does_not_reveal_an_answer_that_the_domain_leaves_out(people: int) -> None:
    codes: dict[str, Counter[bytes]] = {"yes": Counter(), "no": Counter()}
    plan = plan_of(one_question(["no", "never"], mechanism="krr"))  # the app asks for yes or no
    for answer, seen in codes.items():
        for person in range(people):
            transport = Liar(plan)
            with device(transport, coins=SeededCoins(person)) as client:
                assert client.wait_ready()
                assert client.record(answer=answer).taken == ("answer",)
                assert client.flush()
            (batch,) = transport.batches
            (column,) = batch.columns
            seen[column.codes] += 1
    # What leaves for "yes" is uniform over the domain: at epsilon 1 "no" is seen in 0.73 of all.
    assert abs(codes["yes"][b"\x00"] - people / 2) < 4 * (people / 4) ** 0.5
    assert codes["no"][b"\x00"] > 0.65 * people


def test_a_domain_that_shrinks_every_day_learns_nothing(file: Path) -> None:
    values = [str(number) for number in range(16)]
    transport = Liar(plan_of(one_question(values)))
    calendar = Calendar(-5)
    first = None
    for day in range(5):
        with device(transport, ledger=file, clock=calendar) as client:
            assert client.wait_ready()
            client._device.keeper.fetch(1.0)
            assert client.record(answer="11").taken == ("answer",)
            assert client.flush()
            first = first or client.plan.revision
            assert client.plan.revision == first
            refused = client.status().detail
        values = values[: len(values) // 2] if day < 3 else values
        transport.bytes_now = plan_of(one_question(values))
        calendar.pass_days(1)
    assert {batch.revision for batch in transport.batches} == {first}
    assert "changed on the server" in refused


def test_a_range_that_shrinks_every_day_learns_nothing(file: Path) -> None:
    def plan(low: float, high: float) -> bytes:
        return plan_of(
            'name = "survey"\nperiod = "P1D"\nlevels = { standard = 1.0 }\n[[attributes]]\n'
            f'name = "answer"\n[attributes.numeric]\nlow = {low}\nhigh = {high}'
        )

    calendar = Calendar(-5)
    transport = Liar(plan(0, 1024))
    taken = []
    for day in range(5):
        with device(transport, ledger=file, clock=calendar) as client:
            client.wait_ready()
            client._device.keeper.fetch(1.0)
            taken.append(client.record(answer=777.0).taken)
            client.flush()
        transport.bytes_now = plan(0, 512 / 2**day)
        calendar.pass_days(1)
    assert taken == [("answer",)] * 5  # a report every day, whatever the range
    assert len({batch.revision for batch in transport.batches}) == 1


@pytest.mark.parametrize("sensitive", [["no"], ["yes", "no"]])
def test_may_reveal_names_values(sensitive: list[str], file: Path) -> None:
    allowed = {"answer": ["no"]}
    values = ["no", "yes", "other"] if sensitive != ["no"] else ["no", "yes"]
    honest = plan_of(one_question(["no", "yes"], sensitive=["yes"]))
    hostile = plan_of(one_question(values, sensitive=sensitive))
    transport = Liar(hostile)  # at the first contact
    with device(transport, may_reveal=allowed) as client:
        assert not client.wait_ready(0.5)
        assert client.status().reason is Reason.PLAN_REFUSED
        assert not client.record(answer="yes")
    transport = Liar(honest)  # and later
    with device(transport, may_reveal=allowed, ledger=file) as client:
        assert client.wait_ready()
        transport.bytes_now = hostile
        client._device.keeper.fetch(1.0)
        assert client.record(answer="yes").taken == ("answer",)
        assert client.flush()
    assert {batch.revision for batch in transport.batches} == {client.plan.revision}


def test_a_class_that_is_protected_less_later_is_refused(file: Path) -> None:
    def plan(scale: float) -> bytes:
        return plan_of(
            one_question(["a", "b", "c"]) + "\n[attributes.categorical.classes.mild]\n"
            f'values = ["a"]\nscale = {scale}'
        )

    transport = Liar(plan(0.05))
    with device(transport, ledger=file) as client:
        assert client.wait_ready()
        transport.bytes_now = plan(1.0)
        client._device.keeper.fetch(1.0)
        assert "changed on the server" in client.status().detail
        client.record(answer="a")
        client.flush()
        assert client.plan.attributes["answer"].domain.classes == ((("a",), 0.05),)


def test_memos_are_not_drawn_again_whatever_plans_come(file: Path) -> None:
    values = [str(number) for number in range(32)]
    calendar = Calendar(-60)
    honest = plan_of(one_question(values, 2.0, memo=1, mechanism="krr"))
    transport = Liar(honest)
    for day in range(60):
        with device(
            transport, ledger=file, clock=calendar, epsilon=2.0, may_tell_changes=["answer"]
        ) as client:
            assert client.wait_ready()
            client._device.keeper.fetch(1.0)
            assert client.record(answer="17").taken == ("answer",)
            assert client.spendings()[0].reports == 1
            assert client.flush()
        transport.bytes_now = with_another_epsilon(honest, 2.0 - (day + 1) * 2**-40)
        calendar.pass_days(1)
    assert len(transport.batches) == 60
    assert len({batch.columns[0].codes for batch in transport.batches}) == 1  # one memo, for life


def test_another_choice_of_level_is_held_to_the_same_epsilon(file: Path) -> None:
    levels = "levels = { strict = 0.5, standard = 1.0 }"
    honest = one_question(["no", "yes"]).replace("levels = { standard = 1.0 }", levels)
    transport = Liar(plan_of(honest))
    with device(transport, ledger=file) as client:
        assert client.wait_ready()
    transport.bytes_now = plan_of(honest.replace("strict = 0.5", "strict = 30.0"))
    with device(transport, ledger=file, level="strict") as client:
        assert client.wait_ready()
        client._device.keeper.fetch(1.0)
        assert client.record_epsilon == 0.5
    with device(transport, level="strict") as client:  # a first contact
        assert not client.wait_ready(0.5)
        assert "would spend epsilon 30, and the app allows epsilon=1" in client.status().detail
    with device(Liar(plan_of(honest)), level=None) as client:
        assert not client.wait_ready(0.5)  # no level is chosen for anybody


def test_levels_that_add_up_to_more_than_each_are_refused_together(file: Path) -> None:
    toml = one_question(["a", "b"], 1.0).replace("levels = {", "levels = { open = 1.1,")
    toml += '\n[[attributes]]\nname = "other"\n[attributes.categorical]\nvalues = ["a", "b"]'
    message = plan_pb2.Plan.FromString(plan_of(toml))
    for level, epsilons in zip(message.levels, ((0.875, 0.125), (0.125, 0.875)), strict=True):
        for mechanism, epsilon in zip(level.mechanisms, epsilons, strict=True):
            mechanism.CopyFrom(mechanism_message(KRR(2, epsilon)))
    transport = RecordingTransport(message.SerializeToString(deterministic=True))
    mixed = {"level": "open", "levels": {"answer": "standard"}}
    with Client(transport, "survey", epsilon=4.0, ledger=file, consent=True, **mixed) as client:
        assert not client.wait_ready(0.5)
        assert "these levels together spend epsilon 1.75" in client.status().detail
        assert client.record(answer="a").taken == ()


@pytest.mark.parametrize("invisible", ["\u200b", "\u2063", "\U000e0041", "\u202e", "\ue000"])
def test_a_plan_marked_with_what_nobody_sees_is_refused(invisible: str) -> None:
    plan = plan_of(one_question(["no", "yes"], title="Our survey"))
    marked = plan.replace(b"Our survey", f"Our{invisible}survey".encode()[:12].ljust(10, b"!"))
    transport = Liar(plan)
    transport.bytes_now = _retitled(plan, f"Our survey{invisible}")
    assert marked != plan
    with device(transport) as client:
        assert not client.wait_ready(0.5)
        assert client.status().reason is Reason.PLAN_REFUSED
        assert f"U+{ord(invisible):04X}" in client.status().detail
        assert not client.record(answer="no")
    assert not transport.batches
    with pytest.raises(InvalidInput, match=r"U\+"):
        plan_of(one_question(["no", "yes"], title=f"Our survey{invisible}"))


@pytest.mark.parametrize("title", ["Our survey ", " Our survey", "Our  survey", "Our\xa0survey"])
def test_a_plan_marked_by_spaces_that_look_alike_is_refused(title: str) -> None:
    transport = Liar(plan_of(one_question(["no", "yes"], title="Our survey")))
    transport.bytes_now = _retitled(transport.bytes_now, title)
    with device(transport) as client:
        assert not client.wait_ready(0.5)
        assert client.status().reason is Reason.PLAN_REFUSED
        assert not client.record(answer="no")
    assert not transport.batches


def _retitled(plan: bytes, title: str) -> bytes:
    from hearsay.v1 import plan_pb2

    message = plan_pb2.Plan.FromString(plan)
    message.survey.title = title
    return message.SerializeToString(deterministic=True)


def test_no_plan_but_the_apps_own_can_mark_a_device_that_ships_with_it() -> None:
    honest = plan_of(one_question(["no", "yes"], title="Our survey"))
    transport = Liar(honest)
    transport.bytes_now = _retitled(honest, "0ur survey")  # to be seen, but who looks
    agreement = Agreement.on(honest)
    with Client(transport, agreement, level="standard", ledger=MEMORY, consent=True) as client:
        assert client.wait_ready(0.5)  # by the plan that the app brought
        assert client.record(answer="no")
        assert client.flush()
    assert {batch.revision.hex() for batch in transport.batches} == {agreement.revision}
    without = Agreement(**{**vars(agreement), "plan": b""})
    transport.batches.clear()
    with Client(transport, without, level="standard", ledger=MEMORY, consent=True) as client:
        assert not client.wait_ready(0.5)
        assert "is not what the app agreed to" in client.status().detail
    assert not transport.batches


def _with_a_mark(data: bytes, mark: int) -> bytes:
    """Return the plan with other last bits of a probability, which cost accuracy alone."""
    message = plan_pb2.Plan.FromString(data)
    (chance,) = (p for p in message.levels[0].mechanisms[0].parameters if p.name == "resample")
    chance.values[0] += mark
    return message.SerializeToString(deterministic=True)


def test_epsilon_alone_lets_a_plan_be_marked_by_a_probabilitys_last_bits() -> None:
    honest = plan_of(one_question(["no", "yes"]))
    agreed = Agreed("survey", 1.0), Agreed("survey", 1.0, revision=parse(honest).revision.hex())
    for mark in (1, 2, 1000):
        marked = _with_a_mark(honest, mark)
        assert parse(marked).revision != parse(honest).revision
        agreed[0].check_revision(marked)
        agreed[0].check(parse(marked), frozenset())
        with pytest.raises(InvalidInput, match="expected revision"):
            agreed[1].check_revision(marked)
        with pytest.raises(InvalidInput, match="is not what the app agreed to"):
            Agreement.on(honest).check(parse(marked))


def test_an_app_that_ships_a_revision_takes_it_over_the_one_kept(file: Path) -> None:
    old = plan_of(one_question(["no", "yes"]))
    new = plan_of(one_question(["no", "yes", "other"]))
    transport = Liar(old)
    calendar = Calendar(-1)
    with device(transport, ledger=file, clock=calendar) as client:
        assert client.wait_ready()
        assert client.record(answer="no")
    agreement = Agreement.on(new)
    with Client(
        transport, agreement, level="standard", ledger=file, clock=calendar, caps=Caps(life=2.0)
    ) as client:
        assert client.status().reason is Reason.PLAN_CHANGED
        assert not client.record(answer="no")  # today was answered by the old plan
        assert client.spendings()[0].life == 1.0  # what was spent stays spent
        calendar.pass_days(1)
        assert client.record(answer="no")
        assert client.spendings()[0].left == 0.0


DEVICE = """
import os, sys, time
os.environ["HEARSAY_TESTING"] = "1"
from hearsay import Caps, Client, FileAnchor
from hearsay.testing import RecordingTransport
plan, file, name, wait, anchor, life = sys.argv[1:]
transport = RecordingTransport(open(plan, "rb").read())
client = Client(transport, "survey", ledger=file, level="standard", epsilon=1.0, consent=True,
                anchor=FileAnchor(anchor) if anchor else None,
                caps=Caps(life=float(life)) if life else Caps())
client.wait_ready(5.0)
person = client.person(name, level="standard")
person.grant()
print(*person.record(answer="yes").taken, person.status().reason, flush=True)
client.flush(5.0)
print(*[batch.id.hex() for batch in transport.batches], flush=True)
if wait == "wait":
    time.sleep(60)
client.close()
"""


def live(
    plan: Path,
    file: Path,
    *,
    name: str = "ann",
    kill: bool = False,
    anchor: str = "",
    life: str = "",
) -> tuple[str, set[str]]:
    """Let a process answer and send, then close or be killed.

    Returns what became of the answer, and the ids of the batches that left.
    """
    command = [sys.executable, "-c", DEVICE, str(plan), str(file), name]
    with subprocess.Popen(
        [*command, "wait" if kill else "", anchor, life],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        answered, left = (process.stdout.readline().strip() for _ in range(2))
        if kill:
            process.send_signal(signal.SIGKILL)
        process.wait(30)
    return answered, set(left.split())


@pytest.mark.parametrize("lost", ["missing", "older"])
def test_a_ledger_without_its_log_spends_no_more(tmp_path: Path, file: Path, lost: str) -> None:
    """The adversary copies the files of a device that runs, and leaves out the one, or takes an
    older one."""
    transport = Liar(plan_of(one_question(["no", "yes"])))
    log, copied = Path(f"{file}-wal"), tmp_path / "copied.db"
    with device(transport, ledger=file) as client:
        assert client.wait_ready()
        assert client.record(answer="yes") and client.flush()
        older = log.read_bytes()
        bob = client.person("bob", level="standard")
        bob.grant()
        assert bob.record(answer="yes") and client.flush()
        copied.write_bytes(file.read_bytes())
    left = {batch.id for batch in transport.batches}
    assert len(left) == 2
    if lost == "older":
        Path(f"{copied}-wal").write_bytes(older)
    with device(transport, ledger=copied) as client:
        assert client.wait_ready(0.1) is False or not client.record(answer="yes")
        assert client.status().reason is Reason.NEW_LEDGER
        client.close(0)
    assert {batch.id for batch in transport.batches} == left


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["missing", "older"])
def test_a_ledger_without_its_log_spends_no_more_after_a_kill(
    tmp_path: Path, file: Path, lost: str
) -> None:
    """The adversary restores a backup of the one file, after a crash."""
    plan = tmp_path / "plan"
    plan.write_bytes(plan_of(one_question(["no", "yes"])))
    log = Path(f"{file}-wal")
    answered, anns = live(plan, file, kill=True)
    assert (answered, len(anns)) == ("answer ready", 1)
    older = log.read_bytes()
    answered, bobs = live(plan, file, name="bob", kill=True)  # whole: nothing is lost by a kill
    assert answered == "answer ready"
    assert len(bobs - anns) == 1
    if lost == "older":
        log.write_bytes(older)
    else:
        log.unlink()
    for name in ("ann", "bob"):
        answered, left = live(plan, file, name=name)
        assert answered == "new_ledger"
        assert left <= anns | bobs  # at most the same bytes again, which count once


@pytest.mark.parametrize(
    ("period", "life", "reason"),
    [
        ("", "", "lost_ledger"),
        pytest.param("P1D", "20", "lost_ledger", marks=pytest.mark.slow),
        pytest.param("P1D", "", "new_ledger", marks=pytest.mark.slow),
    ],
)
def test_a_complete_old_copy_is_known_by_its_anchor(
    tmp_path: Path, file: Path, period: str, life: str, reason: str
) -> None:
    """The adversary restores a complete backup, again and again."""
    plan = tmp_path / "plan"
    plan.write_bytes(plan_of(one_question(["no", "yes"], period=period)))
    anchor = str(tmp_path / "anchor")
    with device(Liar(plan.read_bytes()), ledger=file, anchor=FileAnchor(anchor)):
        pass
    shutil.copy(file, tmp_path / "backup")
    answered, left = live(plan, file, anchor=anchor, life=life)
    assert (answered, len(left)) == ("answer ready", 1)
    for _ in range(3):
        shutil.copy(tmp_path / "backup", file)
        assert live(plan, file, anchor=anchor, life=life) == (reason, set())


def _unreachable(*_: object, **__: object) -> Any:
    raise Unreachable("no server answers")


def test_a_clock_in_the_future_shuts_nothing(file: Path) -> None:
    """There is no adversary but a wrong clock."""
    transport = Liar(plan_of(one_question(["no", "yes"])))
    calendar = Calendar()
    with device(transport, ledger=file, clock=calendar) as client:
        ann, bob = client.person("ann", level="standard"), client.person("bob", level="standard")
        ann.grant()
        bob.grant()
        client._device.keeper._heard = None  # the server's time is not known yet
        calendar.pass_days(1500)
        client.wait_ready()
        client._device.keeper._heard = None
        assert ann.record(answer="yes")
        calendar.pass_days(-1500)
        client._device.keeper.hear(int(datetime.now(UTC).timestamp()))
        assert bob.record(answer="yes")
        assert ann.record(answer="yes").taken == ("answer",)  # the server confirms the clock
        assert ann.record(answer="yes").dropped == {"answer": "spent"}
        assert client.flush()
        transport.get_plan = transport.submit = _unreachable  # it would tell its time
        calendar.pass_days(1500)
        assert ann.record(answer="yes").dropped == {"answer": "clock"}  # far ahead of the server
        client.trust_clock()
        assert not ann.record(answer="yes")  # and it was answered, whoever trusts the clock
        assert bob.record(answer="yes")
        client.close(0)  # nobody takes the rest


def test_a_period_that_the_server_does_not_know_of_is_not_remembered(file: Path) -> None:
    transport = Liar(plan_of(one_question(["no", "yes"])))
    calendar = Calendar()
    with device(transport, ledger=file, clock=calendar) as client:
        assert client.wait_ready()
        calendar.pass_days(3)
        assert client.record(answer="yes").dropped == {"answer": "clock"}
        assert "more than a day after the server's time" in client.status().detail
        calendar.pass_days(-3)
        assert client.record(answer="yes").taken == ("answer",)
    calendar.pass_days(5)
    with device(transport, ledger=file, clock=calendar) as client:
        client._device.keeper._heard = None  # a new process, which has not reached the server yet
        client._device.keeper.plan = None
        client._device.keeper.look()
        assert client.record(answer="yes").dropped == {"answer": "clock"}  # it was kept


@pytest.mark.parametrize("wrong", [-2, 3650])
def test_a_ledger_that_a_wrong_clock_made_waits_for_the_servers_time(
    tmp_path: Path, wrong: int
) -> None:
    """The adversary removes the ledger, and sets the clock when the next one is made."""
    transport = Liar(plan_of(one_question(["no", "yes"])))
    transport.server_time = int(NOW.timestamp())
    calendar = Calendar()
    calendar.now = NOW + timedelta(days=wrong)
    with device(transport, ledger=tmp_path / "made.db", clock=calendar) as client:
        assert not client.wait_ready(0.3)
        assert not client.record(answer="yes")
        calendar.now = NOW
        client._device.keeper.hear(int(NOW.timestamp()))
        assert client.record(answer="yes").dropped == {"answer": "new_ledger"}  # today was its day
        calendar.pass_days(1)
        client._device.keeper.hear(int(calendar.now.timestamp()))
        assert client.record(answer="yes").dropped == {"answer": "new_ledger"}  # begins within 24 h
        calendar.pass_days(1)
        client._device.keeper.hear(int(calendar.now.timestamp()))
        assert client.record(answer="yes").taken == ("answer",)


def test_a_trusted_clock_that_is_put_back_opens_no_new_ledger(file: Path) -> None:
    """The adversary removes the ledger, sets the clock, and has the app trust it."""
    transport = Liar(plan_of(one_question(["no", "yes"])))
    calendar = Calendar()
    with device(transport, ledger=file, clock=calendar) as client:
        assert client.wait_ready()
        assert client.record(answer="yes").taken == ("answer",)
        assert client.flush()
    for each in file.parent.glob("ledger.db*"):
        each.unlink()
    transport.server_time = 0  # the server is older than the field
    calendar.pass_days(-10)
    for days in (10, 0):  # in this process and, by the time that was kept, in the next one
        with device(transport, ledger=file, clock=calendar) as client:
            client.wait_ready(0.3)
            client.trust_clock()
            assert client.record(answer="yes").dropped == {"answer": "new_ledger"}
            calendar.pass_days(days)
            client.trust_clock()
            assert client.record(answer="yes").dropped == {"answer": "new_ledger"}
    assert len(transport.batches) == 1


@pytest.mark.parametrize(("period", "ahead"), [("P1D", 12), ("PT1H", 24), ("P1W", 12)])
def test_a_period_that_was_answered_early_is_not_answered_again_by_a_new_ledger(
    file: Path, period: str, ahead: int
) -> None:
    """The clock is at most a day ahead, and the ledger is lost; nobody lies."""
    monday = NOW - timedelta(days=NOW.weekday(), hours=12)
    start = monday - timedelta(hours=ahead)
    transport = Liar(plan_of(one_question(["no", "yes"], period=period)))
    transport.server_time = int(start.timestamp())
    calendar = Calendar()
    calendar.now = start + timedelta(hours=ahead)
    with device(transport, ledger=file, clock=calendar) as client:
        assert client.wait_ready()
        client._device.keeper.hear(transport.server_time)  # which the process counted on since
        assert client.record(answer="yes").taken == ("answer",)
        assert client.flush()
    for each in file.parent.glob("ledger.db*"):
        each.unlink()

    calendar.now = start
    with device(transport, ledger=file, clock=calendar) as client:
        assert not client.wait_ready(0.3)
        assert client.record(answer="yes").dropped == {"answer": "new_ledger"}
        calendar.now = start + timedelta(hours=ahead)
        transport.server_time = int(calendar.now.timestamp())
        client._device.keeper.hear(transport.server_time)
        assert client.record(answer="yes").dropped == {"answer": "new_ledger"}
        calendar.pass_days(8)
        transport.server_time = int(calendar.now.timestamp())
        client._device.keeper.hear(transport.server_time)
        assert client.record(answer="yes").taken == ("answer",)
        assert client.flush()
    answered = [batch.period for batch in transport.batches]
    assert len(answered) == len(set(answered)) == 2


def test_one_lie_about_the_time_is_over_when_the_server_is_honest_again(file: Path) -> None:
    transport = Liar(plan_of(one_question(["no", "yes"])))
    transport.server_time = 1
    quick = Delivery(first_wait=0.01, longest_wait=0.05)
    with device(transport, ledger=file, delivery=quick) as client:
        client.wait_ready(0.2)
        assert client.record(answer="yes").dropped == {"answer": "clock"}
        transport.server_time = None
        assert client.wait_ready(10.0)
        assert client.record(answer="yes").taken == ("answer",)


def test_a_plan_that_would_take_long_to_read_is_refused() -> None:
    many = one_question(["no", "yes"])
    for number in range(1024):
        many += f'\n[[attributes]]\nname = "a{number}"\n[attributes.numeric]\nlow = 0\nhigh = 1'
    many = many.replace("[attributes.numeric]", 'mechanism = "onebit"\n[attributes.numeric]')
    with pytest.raises(InvalidInput, match="at most 1024 attributes, got 1025"):
        parse(plan_of(many))
    with pytest.raises(InvalidInput, match="at most 4194304 bytes"):
        parse(bytes(1 << 23))
    levels = ", ".join(f"l{number} = {number / 8 + 1}" for number in range(65))
    with pytest.raises(InvalidInput, match="at most 64 levels, got 65"):
        plan_of(one_question(["no", "yes"]).replace("standard = 1.0", levels))


def _seconds(work: Callable[[], object]) -> float:
    """Return the processor time of `work`, the least of three tries."""
    found = []
    for _ in range(3):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def test_a_plan_of_many_sensitive_values_is_checked_in_linear_time() -> None:
    def check(k: int) -> Callable[[], None]:
        values = [f"v{number:06}" for number in range(k)]
        plan = plan_of(one_question(values, sensitive=values[: k // 2]))
        agreed = Agreed("survey", 1.0, may_reveal={"answer": frozenset(values[k // 2 :])})
        return lambda: agreed.check(parse.__wrapped__(plan), frozenset())  # which keeps plans

    few, many = check(2000), check(16_000)
    assert _seconds(many) < 24 * _seconds(few)  # quadratic time is 64 times as long


def test_a_plan_of_many_classes_of_values_is_refused_at_once() -> None:
    values = [f"v{number}" for number in range(400)]
    message = plan_pb2.Plan.FromString(plan_of(one_question(values)))
    for number, value in enumerate(values):
        one = message.survey.attributes[0].categorical.classes[value]
        one.values.append(value)
        one.scale = (number + 1) / len(values)
    hostile = message.SerializeToString(deterministic=True)
    began = time.process_time()
    with pytest.raises(InvalidInput, match="a policy has at most 64 classes, got 400"):
        parse(hostile)
    assert time.process_time() - began < 2.0  # closing it would take the cube of 400


def test_a_plan_of_many_maps_and_levels_is_checked_in_seconds() -> None:
    values = [f"{number:x}" for number in range(20_000)]
    message = plan_pb2.Plan.FromString(plan_of(one_question(values, mechanism="krr")))
    del message.levels[:]
    message.survey.levels.clear()
    for number in range(8):
        chosen = message.survey.attributes[0].categorical.maps[f"m{number}"]
        chosen.sensitive.append(values[number])
    made = mechanism_message(KRR(len(values), 1.0))
    for number in range(64):
        message.survey.levels[f"l{number:02}"] = 1.0
        level = message.levels.add(name=f"l{number:02}", epsilon=1.0)
        level.mechanisms.add().CopyFrom(made)
        for _ in range(8):
            level.mapped.add().CopyFrom(made)
    hostile = message.SerializeToString(deterministic=True)
    began = time.process_time()
    assert len(parse(hostile).levels) == 64
    assert (
        time.process_time() - began < 5.0
    )  # 40 s where each level looks at all values of each map


def test_a_plan_of_many_views_that_are_drawn_is_checked_in_seconds() -> None:
    message = plan_pb2.Plan()
    message.survey.name = "many"
    for number in range(512):
        attribute = message.survey.attributes.add(name=f"a{number}", cap=2.0)
        attribute.categorical.values.extend(["no", "yes"])
        message.survey.views.add(attributes=[f"a{number}", f"a{(number + 1) % 512}"])
    message.survey.levels["standard"] = 1.0
    level = message.levels.add(name="standard", epsilon=1.0, chances=[ONE // 512] * 512)
    for _ in range(512):
        level.mechanisms.add().CopyFrom(mechanism_message(KRR(4, 1.0)))
    hostile = message.SerializeToString(deterministic=True)
    began = time.process_time()
    assert parse(hostile).level("standard").budget.record_epsilon == 1.0
    assert time.process_time() - began < 3.0  # 15 s where each cap looks at all pairs of views


def test_a_pinned_revision_is_compared_before_anything_is_parsed(file: Path) -> None:
    transport = Liar(plan_of(one_question(["no", "yes"])))
    transport.bytes_now = b"no plan at all"
    with device(transport, ledger=file, revision="0" * 64) as client:
        client.wait_ready(0.5)
        assert "expected revision '0000" in client.status().detail


@pytest.mark.parametrize("ships", ["a module", "a module without the plan", "epsilon"])
def test_an_app_that_was_off_for_weeks_goes_on(file: Path, ships: str) -> None:
    """There is no adversary: what the last process heard of the time is old."""
    plan = plan_of(one_question(["no", "yes"], period="P1W"))
    agreement = Agreement.on(plan)
    if ships == "a module without the plan":
        agreement = Agreement(**{**vars(agreement), "plan": b""})
    calendar = Calendar(-100)
    for _ in range(5):
        transport = Liar(plan)
        transport.server_time = int(calendar.now.timestamp())
        with Client(
            transport,
            "survey" if ships == "epsilon" else agreement,
            ledger=file,
            consent=True,
            level="standard",
            epsilon=1.0 if ships == "epsilon" else None,
            clock=calendar,
        ) as client:
            assert client.wait_ready(5.0), client.status()
            assert client.record(answer="yes").taken == ("answer",)
            assert client.flush()
        calendar.pass_days(14)


def test_steps_back_in_time_need_the_servers_word_and_spend_no_period_twice(file: Path) -> None:
    """The adversary sets the device's clock, and can keep the server away."""
    transport = Liar(plan_of(one_question(["no", "yes"])))
    calendar = Calendar(-10)
    answered = Counter[str]()
    with device(transport, ledger=file, clock=calendar) as client:
        assert client.wait_ready()
        keeper = client._device.keeper
        for step in (0, 3, 1, 2, 3, 0, 9, 8, 9, 1):
            calendar.now = NOW + timedelta(days=step - 10)
            keeper._heard = None
            if client.record(answer="yes"):
                answered[f"{step}"] += 1
        assert answered == {"0": 1, "3": 1, "9": 1}  # never back
        for step in (5, 5, 4, 3, 0, 9):
            calendar.now = NOW + timedelta(days=step - 10)
            keeper.hear(int(calendar.now.timestamp()))
            if client.record(answer="yes"):
                answered[f"{step}"] += 1
    assert answered == {"0": 1, "3": 1, "9": 1, "5": 1, "4": 1}


def test_a_refused_plan_writes_little_into_the_apps_log(caplog: pytest.LogCaptureFixture) -> None:
    plan = plan_of(one_question(["yes", "no"]))
    transport, hostile = Liar(plan), plan_pb2.Plan.FromString(plan)
    hostile.survey.title = "\x9b31m\u202e" + "a" * 100_000
    transport.bytes_now = hostile.SerializeToString(deterministic=True)
    with device(transport) as client:
        assert not client.wait_ready(0.1)
        status = client.status()
    assert status.reason is Reason.PLAN_REFUSED
    assert "title" in status.detail
    for words in (status.detail, *(record.getMessage() for record in caplog.records)):
        assert words.isprintable()
        assert len(words) < 1100
