"""The oracle of the fault tests: it knows what may have become of an id, and notices the rest."""

from collections import Counter

import pytest
from promises import ABSENT, FORGOTTEN, Entry, Request, Situation, Version

from hearsay.v1 import collector_pb2

OPEN = Situation(open=True, closed=False, dropped=False)
CLOSED = Situation(open=False, closed=True, dropped=False)
GONE = Situation(open=False, closed=True, dropped=True)

Counts = Counter[tuple[str, str, int]]


def entry(versions: int = 1) -> Entry:
    batches = [
        Version(collector_pb2.Batch(), (("strict", 2 * n), ("open", 2 * n + 1)), ())
        for n in range(versions)
    ]
    return Entry(bytes(16), "2030-01-01", 0, batches)


def counted(*codes: int) -> Counts:
    levels = ("strict", "open")
    return Counter(("2030-01-01", levels[code % 2], code) for code in codes)


def test_of_concurrent_replays_one_stores() -> None:
    replayed = entry()
    replayed.answered([Request(0, "DUPLICATE"), Request(0, "STORED")], OPEN)
    assert replayed.states == {0}
    with pytest.raises(AssertionError, match="no order"):
        entry().answered([Request(0, "STORED"), Request(0, "STORED")], OPEN)


def test_a_request_without_an_answer_may_take_effect_later() -> None:
    cut = entry()
    cut.answered([Request(0)], OPEN)
    assert cut.states == {ABSENT, 0}
    cut.observed(counted())
    assert cut.states == {ABSENT}
    cut.observed(counted(0, 1))
    assert cut.states == {0}
    cut.answered([Request(0, "DUPLICATE")], CLOSED)
    assert cut.pending == []
    with pytest.raises(AssertionError, match="counted is nothing"):
        cut.observed(counted())


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        (counted(), "counted is nothing"),
        (counted(0), "counted in part"),
        (counted(0, 1, 0, 1), "counted 2 times"),
        (counted(2, 3), r"counted is \{1\}"),
        (counted(0, 1, 2, 3), "two batches of one id"),
    ],
    ids=["lost", "in part", "twice", "another", "both"],
)
def test_what_is_counted_must_be_what_was_acknowledged(counts: Counts, complaint: str) -> None:
    stored = entry(versions=2)
    stored.answered([Request(0, "STORED"), Request(1, "BAD_ID")], OPEN)
    stored.observed(counted(0, 1))
    with pytest.raises(AssertionError, match=complaint):
        stored.observed(counts)


def test_what_is_forgotten_stays_so() -> None:
    forgotten = entry()
    forgotten.answered([Request(0, "STORED")], OPEN)
    forgotten.answered([Request(None, "FORGOTTEN"), Request(0, "FORGOTTEN")], OPEN)
    assert forgotten.states == {FORGOTTEN}
    with pytest.raises(AssertionError, match="counted is"):
        forgotten.observed(counted(0, 1))
    with pytest.raises(AssertionError, match="no order"):
        forgotten.answered([Request(0, "STORED")], OPEN)


def test_a_replay_is_told_apart_until_it_is_dropped_and_never_counted_again() -> None:
    stored = entry()
    stored.answered([Request(0, "STORED")], OPEN)
    for answer in ("STORED", "PERIOD_CLOSED"):
        with pytest.raises(AssertionError, match="no order"):
            stored.answered([Request(0, answer)], CLOSED)
    stored.answered([Request(0, "DUPLICATE")], CLOSED)
    for answer in ("PERIOD_CLOSED", "DUPLICATE"):
        stored.answered([Request(0, answer), Request(None, "SUMMED")], GONE)
    with pytest.raises(AssertionError, match="no order"):
        stored.answered([Request(0, "STORED")], GONE)
