"""Panels and properties are in the clear: what they link, and what a server cannot make of them.

The adversary is the server: it declares them, and sees every batch.
"""

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hostile import Liar, device, one_question, plan_of

from hearsay import MEMORY, Agreement, Client, Delivery, InvalidInput, Reason
from hearsay.plans.plan import parse
from hearsay.recording.account import Account
from hearsay.recording.batches import kind, only, together
from hearsay.recording.ledger_file import read
from hearsay.sending import packing
from hearsay.v1 import collector_pb2
from ldp.testing import SeededCoins
from support import Calendar

PROPERTIES = """
[[properties]]
name = "platform"
values = ["ios", "android"]
[[properties]]
name = "version"
values = ["1", "2"]
"""


def public(panels: int = 0, properties: str = PROPERTIES, **question: Any) -> bytes:
    """Return the plan of a survey of one question with panels and properties."""
    declared = f"panels = {panels}\n" if panels else ""
    return plan_of(declared + one_question(["no", "yes"], **question) + properties)


def told(transport: Liar) -> list[tuple[int, tuple[str, ...], int]]:
    """Return what each batch tells in the clear: its panel, its properties, and its rows."""
    return [(b.panel, tuple(b.properties), b.rows) for b in transport.batches]


# --- what a server may ask for ----------------------------------------------------------------


@pytest.mark.parametrize("agreed", [0, 8])
def test_a_plan_with_more_panels_than_the_app_agreed_to_is_refused(agreed: int) -> None:
    transport = Liar(public(16))
    with device(transport, panels=agreed) as client:
        assert not client.wait_ready(1.0)
        status = client.status()
        assert status.reason is Reason.PLAN_REFUSED
        assert "has 16 panels: a person's panel is drawn once" in status.detail
        assert "pass panels=16" in status.detail
        assert not client.record(answer="yes")
    assert not transport.batches


def test_an_agreement_holds_the_panels_and_the_lists_of_properties() -> None:
    agreement = Agreement.on(public(16))
    assert agreement.panels == 16
    assert agreement.properties == {"platform": ("ios", "android"), "version": ("1", "2")}
    with pytest.raises(InvalidInput, match="panels is 8, the app expects 16"):
        agreement.check(parse(public(8)))
    with pytest.raises(InvalidInput, match=r"properties\['version'\] is absent, the app expects"):
        agreement.check(parse(public(16, PROPERTIES.rsplit("[[", 1)[0])))
    with pytest.raises(InvalidInput, match="may_tell_changes and panels: leave them out"):
        Client("localhost:1", agreement, ledger=MEMORY, panels=16)


def test_a_property_that_the_survey_does_not_declare_is_refused_and_never_sent() -> None:
    given, message = {"colour": "red"}, "no property 'colour'; it declares platform, version"
    agreement = Agreement.on(public())
    with pytest.raises(InvalidInput, match=message):
        Client("localhost:1", agreement, ledger=MEMORY, properties=given)
    transport = Liar(public())
    with (
        Client(transport, agreement, ledger=MEMORY, level="standard", consent=True) as client,
        pytest.raises(InvalidInput, match=message),
    ):
        client.person("anna", properties=given)
    with device(transport, properties=given) as client:  # by the name alone: when the plan comes
        assert not client.wait_ready(1.0)
        assert message.split(";")[0].lstrip("'") in client.status().detail
        assert not client.record(answer="yes")
    assert not transport.batches


@pytest.mark.parametrize("by_module", [False, True])
def test_a_value_that_the_survey_does_not_declare_is_sent_as_none_given(
    by_module: bool, caplog: pytest.LogCaptureFixture
) -> None:
    transport = Liar(public())
    given = {"platform": "ios", "version": "3"}  # a release after the survey was made
    options: Any = {"ledger": MEMORY, "consent": True, "level": "standard", "properties": given}
    client = (
        Client(transport, Agreement.on(public()), **options)
        if by_module
        else device(transport, **options)
    )
    with client:
        assert client.wait_ready()
        status = client.status()
        assert status.reason is Reason.READY
        assert "'version' has no value '3'; the survey declares 1, 2: none is sent" in status.detail
        assert client.record(answer="yes")
        person = client.person("anna", properties={"platform": "linux"})
        person.grant()
        assert person.record(answer="yes")
        assert client.flush()
    assert sorted(told(transport)) == [(0, ("", ""), 1), (0, ("ios", ""), 1)]
    for name, value in (("version", "3"), ("platform", "linux")):
        words = f"{name!r} has no value {value!r}"
        assert sum(words in message for message in caplog.messages) == 1


@pytest.mark.parametrize("given", [{"platform": 1}, "ios", [("platform", "ios")]])
def test_properties_are_texts_by_name(given: Any) -> None:
    with pytest.raises(InvalidInput, match="properties has a value for each name"):
        device(Liar(public()), properties=given)


def test_a_server_cannot_have_a_property_that_the_app_does_not_give() -> None:
    transport = Liar(public())
    with device(transport, properties={"version": "2"}) as client:
        assert client.wait_ready()
        assert client.record(answer="yes")
        assert client.flush()
    assert told(transport) == [(0, ("", "2"), 1)]


# --- what the panel tells ---------------------------------------------------------------------


def test_a_panel_is_kept_for_life(file: Path) -> None:
    transport = Liar(public(64))
    calendar = Calendar(-5)
    for day in range(4):
        with device(transport, ledger=file, panels=64, clock=calendar) as client:
            assert client.wait_ready()
            if day == 2:
                client.revoke()
                client.grant()
            assert client.record(answer="yes" if day % 2 else "no")
            assert client.flush()
        calendar.pass_days(1)
    assert len(transport.batches) == 4
    (panel,) = {batch.panel for batch in transport.batches}
    assert 1 <= panel <= 64
    assert read(file).surveys[0].panel == panel


def test_a_panel_does_not_depend_on_the_answer() -> None:
    seen = []
    for answer in ("no", "yes", "outside"):
        transport = Liar(public(64))
        for seed in range(8):
            with device(transport, panels=64, coins=SeededCoins(seed)) as client:
                assert client.wait_ready()
                assert client.record(answer=answer)
                assert client.flush()
        seen.append([batch.panel for batch in transport.batches])
    assert seen[0] == seen[1] == seen[2]
    assert len(set(seen[0])) > 4


def test_panels_are_drawn_uniformly() -> None:
    plan, coins = parse(public(16)), SeededCoins(16)
    drawn: Counter[int] = Counter()
    for _ in range(8000):
        account = Account("{}", "survey")
        account._keep_panel(plan, coins)
        drawn[account.panel_of(plan)] += 1
    assert sorted(drawn) == list(range(1, 17))
    assert sum((n - 500) ** 2 / 500 for n in drawn.values()) < 37.7  # 0.999 of chi-squared, 15


def test_two_people_of_a_device_and_two_surveys_of_a_person_have_panels_of_their_own() -> None:
    plan, coins = parse(public(64)), SeededCoins(1)
    stored = "{}"
    panels = []
    for survey in ("first", "second"):
        account = Account(stored, survey)
        account._keep_panel(plan, coins)
        stored = account.dump()
        panels.append(account.panel_of(plan))
    other = Account("{}", "first")
    other._keep_panel(plan, coins)
    assert len({*panels, other.panel_of(plan)}) == 3
    assert Account(stored, "first").panel_of(plan) == panels[0]


def test_a_panel_is_drawn_once_for_each_number_of_panels() -> None:
    coins = SeededCoins(2)
    account = Account("{}", "survey")
    plans = [parse(public(panels, title=f"{panels} panels")) for panels in (64, 0, 32, 64, 32)]
    found = []
    for plan in plans:
        account._keep_panel(plan, coins)
        found.append(account.panel_of(plan))
        account = Account(account.dump(), "survey")
    first, none, other, *again = found
    assert (1 <= first <= 64, none, 1 <= other <= 32) == (True, 0, True)
    assert again == [first, other]
    assert account.panel_of(parse(public(64, title="Later"))) == first


def test_a_server_in_a_test_counts_panels_and_groups() -> None:
    transport = Liar(public(2))
    for seed in range(12):
        properties = {"platform": ("ios", "android")[seed % 2]}
        with device(transport, panels=2, properties=properties, coins=SeededCoins(seed)) as client:
            assert client.wait_ready()
            assert client.record(answer="yes")
            assert client.flush()
    ios, android = (
        transport.tally("answer", "standard", properties={"platform": name})
        for name in ("ios", "android")
    )
    panels = [transport.tally("answer", "standard", panel=panel) for panel in (1, 2)]
    whole = transport.tally("answer", "standard")
    assert (ios.n, android.n, whole.n) == (6, 6, 12)
    assert min(each.n for each in panels) > 0
    assert ios + android == panels[0] + panels[1] == whole
    with pytest.raises(InvalidInput, match="no property 'colour'"):
        transport.tally("answer", "standard", properties={"colour": "red"})


# --- what shares a batch ----------------------------------------------------------------------


def test_rows_of_two_panels_or_properties_share_no_batch(file: Path) -> None:
    transport = Liar(public(4))
    people = [f"person {number}" for number in range(24)]
    own: dict[str, tuple[int, str]] = {}
    with device(transport, ledger=file, panels=4, coins=SeededCoins(3)) as client:
        assert client.wait_ready()
        for number, name in enumerate(people):
            platform = ("ios", "android")[number % 2]
            person = client.person(name, properties={"platform": platform})
            person.grant()
            assert person.record(answer="yes")
            own[name] = read(file, name).surveys[0].panel, platform
        waiting = client.outbox()
        assert Counter((b.panel, b.properties[0]) for b in waiting.reports) == Counter(own.values())
        assert client.flush()
        sent = client.outbox().sent
    wanted = Counter(own.values())
    assert len(wanted) > 4
    assert sorted(told(transport)) == sorted(
        (panel, (platform, ""), rows) for (panel, platform), rows in wanted.items()
    )
    assert [each.batch for each in sent] == transport.batches


def test_batches_have_all_waiting_reports_of_a_kind_and_leave_in_a_random_order() -> None:
    kinds = [(a, b) for a in ("", "ios", "android") for b in ("", "1", "2")]
    orders = set()
    for seed in range(3):
        coins = SeededCoins(seed)
        with device(Liar(public()), delivery=Delivery(batch_age=3600.0), coins=coins) as client:
            assert client.wait_ready()
            for number in range(18):
                platform, version = kinds[number % 9]
                own = {"platform": platform, "version": version}
                person = client.person(str(number), properties=own)
                person.grant()
                assert person.record(answer="yes")
            client._device.sender.pause(client, 5.0)
            revision = client.plan.revision
            packing.pack(client._device.store, "survey", revision, coins, rows=2, size=1 << 20)
            batches = client.outbox().batches
            assert [batch.rows for batch in batches] == [2] * 8  # the ninth waits for an answer
            orders.add(tuple(tuple(batch.properties) for batch in batches))
            client._device.sender.resume(client)
    assert len(orders) == 3
    assert tuple(kinds[:8]) not in orders


def test_another_value_of_a_property_goes_into_another_batch(file: Path) -> None:
    transport = Liar(public())
    calendar = Calendar(-3)
    for version in ("1", "2"):  # an app that is updated while its reports wait
        with device(
            transport, ledger=file, clock=calendar, properties={"version": version}
        ) as client:
            assert client.wait_ready()
            assert client.record(answer="yes")
            client._device.sender.pause(client, 1.0)
            client.close(0)
        calendar.pass_days(1)
    with device(transport, ledger=file, clock=calendar) as client:
        assert client.flush()
    assert sorted(told(transport)) == [(0, ("", "1"), 1), (0, ("", "2"), 1)]


def test_a_batch_without_the_rows_of_one_person_tells_the_same_of_the_others() -> None:
    reports = [
        collector_pb2.Batch(
            survey="s", revision=b"r", period="p", rows=1, panel=3, properties=["", "2"]
        )
        for _ in range(3)
    ]
    for number, report in enumerate(reports):
        report.columns.add(attribute="x", level="l", codes=bytes([number]))
    batch = together(reports)
    rest = only(batch, [0, 2])
    assert kind(rest) == kind(batch) == (b"r", "p", 3, "", "2")
    assert (rest.rows, rest.columns[0].codes) == (2, b"\x00\x02")
    assert rest.id != batch.id


def test_a_plan_without_either_tells_neither() -> None:
    transport = Liar(plan_of(one_question(["no", "yes"])))
    with device(transport, panels=64, clock=lambda: datetime.now(UTC)) as client:
        assert client.wait_ready()
        assert client.record(answer="yes")
        assert client.flush()
    (batch,) = transport.batches
    assert (batch.panel, list(batch.properties)) == (0, [])
