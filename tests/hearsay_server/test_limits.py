"""The token bucket."""

import pytest

from hearsay_server.limits import Rates


def test_a_burst_goes_through_and_then_the_rate() -> None:
    rates = Rates(per_second=2, burst=10)
    assert [rates.take("a", 1, now=0.0) for _ in range(10)] == [0.0] * 10
    assert rates.take("a", 1, now=0.0) == pytest.approx(0.5)
    assert rates.take("a", 1, now=0.5) == 0.0
    assert rates.take("a", 1, now=0.5) > 0


def test_who_comes_again_when_told_is_let_through() -> None:
    rates = Rates(per_second=3, burst=7)
    now, sent = 0.0, 0
    for _ in range(50):
        wait = rates.take("a", 5, now)
        sent += 5 if wait == 0 else 0
        now += wait
    assert sent <= 7 + 3 * now
    assert sent >= 3 * now - 5


def test_callers_do_not_share_an_allowance() -> None:
    rates = Rates(per_second=1, burst=1)
    assert rates.take("a", 1, now=0.0) == 0.0
    assert rates.take("b", 1, now=0.0) == 0.0


def test_more_than_a_burst_waits_for_a_full_bucket_and_is_paid_off() -> None:
    rates = Rates(per_second=1, burst=4)
    assert rates.take("a", 10, now=0.0) == 0.0
    assert rates.take("a", 1, now=0.0) == pytest.approx(7)


def test_callers_that_went_away_are_forgotten() -> None:
    rates = Rates(per_second=1, burst=10)
    for number in range(1000):
        rates.take(str(number), 1, now=0.0)
    assert len(rates) == 1000
    rates.take("late", 1, now=100.0)
    assert len(rates) == 1
