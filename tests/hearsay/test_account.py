"""Which periods an account remembers as answered."""

import itertools
import json
from datetime import UTC, datetime, timedelta

from hostile import one_question, plan_of
from hypothesis import given
from hypothesis import strategies as st

from hearsay.choices import Agreed, Choices
from hearsay.plans.plan import parse
from hearsay.recording.account import Account
from hearsay.recording.terms import Terms
from hearsay.trouble import Reason, Trouble
from ldp import Coins

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
