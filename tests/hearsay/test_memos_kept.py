"""The memos that a client keeps: one per distinct value, for life, across restarts."""

from pathlib import Path

import pytest
from people import person

from hearsay import Caps, Delivery, PlanRefused, Reason
from support import Calendar, Server, device, new_client

MEMOISED = """
name = "habits"
period = "P1D"
[levels]
strict = 0.4
[[attributes]]
name = "drink"
memo = {memo}
[attributes.categorical]
values = ["beer", "coffee", "milk", "tea", "water", "wine", "juice", "other"]
"""
CHANGES = {"may_tell_changes": ["drink"]}
LASTING = Delivery(batch_age=1e9)
"""With which nothing leaves before it was looked at."""


def test_an_app_must_allow_that_reports_tell_when_an_answer_changes(server: Server) -> None:
    server.create(MEMOISED.format(memo=1))
    with pytest.raises(PlanRefused, match="memoised, so reports tell when they change"):
        device(server.address, "habits")


def test_the_same_answer_is_the_same_report_every_day_and_costs_once(
    server: Server, file: Path
) -> None:
    server.create(MEMOISED.format(memo=1))
    calendar = Calendar(-40)
    codes: dict[str, set[bytes]] = {"tea": set(), "milk": set(), "beer": set()}
    for day in range(36):  # afresh, three codes in a row would differ with probability > .98
        answer = list(codes)[day % 3]
        with device(server.address, "habits", ledger=file, clock=calendar, **CHANGES) as client:
            assert client.record(drink=answer).taken == ("drink",)
            assert client.flush()
            codes[answer].add(client.outbox().sent[-1].batch.columns[0].codes)
            (spent,) = client.spendings()
        calendar.pass_days(1)
    assert [len(c) for c in codes.values()] == [1, 1, 1]
    assert spent.reports == 3
    assert spent.life == pytest.approx(3 * spent.epsilon)
    assert spent.epsilon <= 0.4


def test_fresh_noise_goes_on_top_of_a_memo_where_the_plan_says_so(
    server: Server, file: Path
) -> None:
    server.create(MEMOISED.format(memo=4))
    calendar = Calendar(-40)
    codes = set()
    with device(server.address, "habits", ledger=file, clock=calendar, **CHANGES) as client:
        for _ in range(30):
            assert client.record(drink="tea").taken == ("drink",)
            assert client.flush()
            codes.add(client.outbox().sent[-1].batch.columns[0].codes)
            calendar.pass_days(1)
        (spent,) = client.spendings()
    assert len(codes) > 1
    assert spent.reports == 1
    assert 0.4 < spent.life <= 1.6


def test_a_cap_for_life_stops_new_memos_and_not_old_ones(server: Server, file: Path) -> None:
    server.create(MEMOISED.format(memo=1))
    calendar = Calendar(-9)
    with device(
        server.address,
        "habits",
        ledger=file,
        clock=calendar,
        caps=Caps(life=0.9),
        delivery=LASTING,
        **CHANGES,
    ) as client:
        codes = []
        for drink in ("tea", "milk", "beer", "tea", "wine", "milk", "water", "juice"):
            assert client.record(drink=drink).taken == ("drink",)  # silence would tell
            codes.append(client.outbox().reports[-1].columns[0].codes)
            calendar.pass_days(1)
        tea, milk, beer, again, wine, once_more, water, juice = codes
        assert (again, once_more) == (tea, milk)
        # For what no epsilon is left for, the memo of one random value is sent.
        assert beer == wine == water == juice
        (spent,) = client.spendings()
        assert spent.reports == 2
        assert spent.life == 2 * spent.epsilon
        assert spent.left == pytest.approx(0.9 - spent.life)


def test_memos_are_kept_for_each_person_by_themselves(server: Server, file: Path) -> None:
    server.create(MEMOISED.format(memo=1))
    calendar = Calendar(-9)
    with device(server.address, "habits", ledger=file, clock=calendar, **CHANGES) as client:
        for number in range(40):
            person(client, str(number)).record(drink="tea")
        assert client.flush()
        (sent,) = client.outbox().sent
        assert len(set(sent.batch.columns[0].codes)) > 2


def test_memos_that_may_have_been_lost_are_not_drawn_again(server: Server, tmp_path: Path) -> None:
    server.create(MEMOISED.format(memo=1))
    calendar = Calendar(-9)
    with new_client(
        server.address,
        "habits",
        ledger=tmp_path / "new.db",
        clock=calendar,
        may_tell_changes=["drink"],
    ) as client:
        assert not client.wait_ready()
        calendar.pass_days(5)
        assert client.record(drink="tea").taken == ()
        assert client.status().reason is Reason.LOST_LEDGER


@pytest.mark.parametrize("memo", [0, 1.001, 20])
def test_a_plan_with_other_memos_or_none_is_refused_and_the_memos_stay(
    server: Server, tmp_path: Path, file: Path, memo: float
) -> None:
    server.create(MEMOISED.format(memo=1))
    calendar = Calendar(-30)
    choices = {"level": "strict", "ledger": file, "clock": calendar, **CHANGES}
    with device(server.address, "habits", **choices) as client:
        assert client.record(drink="tea").taken == ("drink",)
        (column,) = client.outbox().reports[0].columns
    (tmp_path / "other").mkdir()
    other = Server(tmp_path / "other" / "data")
    other.start()
    other.create(MEMOISED.format(memo=memo))
    with device(other.address, "habits", delivery=LASTING, **choices) as client:
        client._device.keeper.fetch(10.0)
        assert "the plan of 'habits' changed on the server" in client.status().detail
        for _ in range(20):
            calendar.pass_days(1)
            assert client.record(drink="tea").taken == ("drink",)
            assert client.outbox().reports[-1].columns[0] == column
        (spent,) = client.spendings()
        assert spent.reports == 1
        client.revoke()  # the other server knows no such revision
    other.stop()


def test_a_value_does_not_stand_in_the_file(server: Server, file: Path) -> None:
    server.create(MEMOISED.format(memo=1))
    with device(server.address, "habits", ledger=file, **CHANGES) as client:
        client.record(drink="wine")
        keys = client._device.store.read(
            lambda connection: [key for (key,) in connection.execute("SELECT key FROM memos")]
        )
    assert len(keys) == 2  # the device's, and the value's
    assert all(len(key) == 16 for key in keys)
