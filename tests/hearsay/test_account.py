"""Which periods an account remembers as answered."""

import itertools
import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hostile import one_question, plan_of
from hypothesis import given
from hypothesis import strategies as st

from hearsay.choices import Agreed, Choices
from hearsay.plans.plan import parse
from hearsay.recording.account import Account
from hearsay.recording.terms import Terms
from hearsay.trouble import Reason, Trouble
from ldp import Coins
from ldp.core.losses import variation_of
from ldp.mechanisms import KRR, OneBitMean
from ldp.planning.composition import of_channels

BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)


def terms(period: str, values: int = 2) -> Terms:
    survey = one_question([f"v{value}" for value in range(values)], period=period)
    return Terms.of(parse(plan_of(survey)), Choices("standard"), Agreed("survey", 1.0), frozenset())


DAILY, HOURLY, ONCE = terms("P1D"), terms("PT1H", 3), terms("", 4)


def entered(account: Account, how: Terms, day: float, server: bool = True) -> Reason | None:
    """Enter the period of a day; return why not, None where it was entered."""
    now = BEGIN + timedelta(days=day)
    try:
        account.enter(how, now, now.timestamp() if server else None, Coins())
    except Trouble as trouble:
        return trouble.status.reason
    return None


@given(st.lists(st.integers(0, 200), max_size=120))
def test_no_period_is_entered_twice_however_many_there_were(days: list[int]) -> None:
    account = Account("{}", "survey")
    began: set[int] = set()
    current = None
    for day in days:
        refused = entered(account, DAILY, day)
        if refused is None and day != current:
            assert day not in began
            began.add(day)
            current = day
        account = Account(account.dump(), "survey")  # as it is kept
    stretches = json.loads(account.dump())["survey"]["answered"]
    assert len(stretches) <= 32
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(stretches))


def test_days_in_a_row_are_one_stretch() -> None:
    account = Account("{}", "survey")
    for day in range(400):
        assert entered(account, DAILY, day) is None
    assert len(json.loads(account.dump())["survey"]["answered"]) == 1
    assert entered(account, DAILY, 200) is Reason.CLOCK
    assert entered(account, DAILY, -1) is None


def test_another_plan_waits_for_the_end_of_what_was_answered() -> None:
    account = Account("{}", "survey")
    assert entered(account, DAILY, 0) is None
    assert entered(account, HOURLY, 0.1) is Reason.PLAN_CHANGED  # the day was answered whole
    assert entered(account, HOURLY, 1) is None
    assert entered(account, DAILY, 1.1) is Reason.PLAN_CHANGED
    assert entered(account, ONCE, 5) is Reason.PLAN_CHANGED
    fresh = Account("{}", "survey")
    assert entered(fresh, ONCE, 0) is None
    assert entered(fresh, DAILY, 9) is Reason.PLAN_CHANGED  # it counts for ever


def test_going_back_needs_the_servers_word() -> None:
    account = Account("{}", "survey")
    assert entered(account, DAILY, 10, server=False) is None
    assert entered(account, DAILY, 5, server=False) is Reason.CLOCK
    assert entered(account, DAILY, 5) is None
    now = BEGIN + timedelta(days=7)
    far = (BEGIN + timedelta(days=30)).timestamp()
    try:
        account.enter(DAILY, now, far, Coins())
        raise AssertionError("a server that says another time confirms nothing")
    except Trouble as trouble:
        assert trouble.status.reason is Reason.CLOCK


def reported(account: Account, name: str, epsilon: float, variation: float | None, n: int) -> None:
    start = sum(sum(spent.values()) for spent in account.life.values())
    for day in range(start, start + n):
        assert entered(account, DAILY, day) is None
        account.report(name, epsilon, calls=epsilon, life=epsilon, variation=variation)


def test_fresh_reports_compose_by_what_drew_them() -> None:
    account = Account("{}", "survey")
    many, bit = KRR(100, 1.0), OneBitMean(0.5)
    reported(account, "town", 1.0, variation_of(many), 300)
    reported(account, "wage", 0.5, variation_of(bit), 40)
    account = Account(account.dump(), "survey")  # as it is kept
    assert account.composed(["town"]) == pytest.approx(of_channels([(many, 300)]), rel=1e-6)
    assert account.composed(["wage"]) == pytest.approx(of_channels([(bit, 40)]), rel=1e-6)
    both = of_channels([(many, 300), (bit, 40)])
    assert account.composed(["town", "wage"]) == pytest.approx(both, rel=1e-6)
    assert account.composed() == account.composed(["town", "wage"])
    assert both < 35 < 320.0  # the pure sum


def test_changed_levels_and_mechanisms_compose_as_they_were_sent() -> None:
    account = Account("{}", "survey")
    reported(account, "town", 1.0, variation_of(KRR(100, 1.0)), 100)
    reported(account, "town", 0.5, variation_of(KRR(100, 0.5)), 50)
    reported(account, "town", 1.0, variation_of(KRR(20, 1.0)), 30)  # a later revision's
    exact = of_channels([(KRR(100, 1.0), 100), (KRR(100, 0.5), 50), (KRR(20, 1.0), 30)])
    assert account.composed(["town"]) == pytest.approx(exact, rel=1e-5)


def test_what_is_not_known_to_be_fresh_adds_up() -> None:
    account = Account("{}", "survey")
    reported(account, "town", 1.0, variation_of(KRR(100, 1.0)), 200)
    known = account.composed()
    reported(account, "health", 0.5, None, 6)  # memos, or a policy that protects one way
    assert account.composed(["health"]) == 3.0
    assert account.composed() == pytest.approx(known + 3.0)
    kept = json.loads(account.dump())
    del kept["survey"]["fresh"]  # as an earlier version kept it
    old = Account(json.dumps(kept), "survey")
    assert old.composed() == 203.0
    reported(old, "town", 1.0, variation_of(KRR(100, 1.0)), 5)
    assert known + 3 < old.composed() <= 208.0


def test_surveys_compose_together() -> None:
    account = Account("{}", "survey")
    reported(account, "town", 1.0, variation_of(KRR(100, 1.0)), 100)
    other = Account(account.dump(), "other")
    reported(other, "town", 1.0, variation_of(KRR(100, 1.0)), 100)
    exact = of_channels([(KRR(100, 1.0), 200)])
    assert other.composed() == pytest.approx(exact, rel=1e-6)
    assert other.composed(["town"]) == pytest.approx(of_channels([(KRR(100, 1.0), 100)]), rel=1e-6)
    assert math.isclose(account.composed(["town"]), other.composed(["town"]))
