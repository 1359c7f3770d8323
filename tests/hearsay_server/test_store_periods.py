"""What is read of some periods: tallies, and the batches in pages of one period each."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from stored import add, daily, register

from hearsay.v1 import collector_pb2
from hearsay_server.storage.selection import Selected
from hearsay_server.storage.store import Store


@pytest.fixture
def store(where: Path | str) -> Iterator[Store]:
    store = Store(where)
    register(store)
    yield store
    store.close()


def test_a_page_is_of_one_period_of_those_asked_for(store: Store) -> None:
    sent = [daily(number, number % 4) for number in range(24)]
    add(store, random.Random(2).sample(sent, 24))
    names = sorted({b.period for b in sent})

    def of(*wanted: str) -> list[list[collector_pb2.Batch]]:
        return [[b for b in sent if b.period == name] for name in wanted]

    assert list(store.batches("daily", page=5)) == of(*names)
    assert list(store.batches("daily", Selected(first=names[1], last=names[2]))) == of(*names[1:3])
    assert list(store.batches("daily", Selected(last=names[0]))) == of(names[0])
    some = Selected(periods=(names[3], names[0]), first=names[1])
    assert list(store.batches("daily", some)) == of(names[3])


@pytest.mark.parametrize("levels", [(), ("open", "strict")], ids=["any", "named"])
def test_tallies_of_a_range_of_periods_have_its_ends(store: Store, levels: tuple[str, ...]) -> None:
    add(store, [daily(number, number % 5) for number in range(20)])
    every = store.tallies("daily", "smokes", Selected(levels))
    names = sorted({cohort.period for cohort in every})
    assert len(names) == 5
    for first, last in ((names[1], names[3]), ("", names[0]), (names[4], ""), ("", "")):
        expected = {
            cohort: tally
            for cohort, tally in every.items()
            if first <= cohort.period and (not last or cohort.period <= last)
        }
        selected = Selected(levels, first=first, last=last)
        assert store.tallies("daily", "smokes", selected) == expected
    some = Selected(levels, (names[0], names[2]), first=names[1])
    one = store.tallies("daily", "smokes", some)
    assert {cohort.period for cohort in one} == {names[2]}


def test_tallies_of_a_range_are_found_by_their_key(tmp_path: Path) -> None:
    store = Store(tmp_path)
    asked: list[tuple[str, Any]] = []
    sa.event.listen(
        store.engine,
        "before_cursor_execute",
        lambda _connection, _cursor, text, parameters, *_: asked.append((text, parameters)),
    )
    selected = Selected(("open", "strict"), first="2026-07-01", last="2026-07-02")
    store.tallies("daily", "smokes", selected)
    ((text, parameters),) = [each for each in asked if each[0].startswith("SELECT")]
    with store.engine.connect() as connection:
        steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters).all()
    key = "survey=? AND revision=? AND attribute=? AND level=? AND period>? AND period<?"
    assert f"SEARCH tallies USING INDEX sqlite_autoindex_tallies_1 ({key})" in [
        step.detail for step in steps
    ]
    store.close()
