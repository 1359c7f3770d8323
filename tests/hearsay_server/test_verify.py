"""A recount finds every difference, and only those."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from stored import NOW, PLANS, add, batch, daily, register, tallied

from hearsay_server.storage import retention, schema
from hearsay_server.storage.forgetting import forget
from hearsay_server.storage.store import Store
from hearsay_server.storage.verify import Verdict, verify

BATCHES, TALLIES, COUNTS = schema.batches, schema.tallies, schema.counts


@pytest.fixture
def store(where: Path | str) -> Iterator[Store]:
    opened = Store(where)
    register(opened)
    add(opened, [batch(number) for number in range(10)] + [daily(20), daily(21, 1)])
    yield opened
    opened.close()


def verdicts(store: Store) -> dict[tuple[str, str, str, str], Verdict]:
    checked = list(verify(store.database))
    return {(c.survey, c.period, c.attribute, c.level): c.verdict for c in checked}


def test_what_was_stored_is_what_is_counted(store: Store) -> None:
    forget(store.database, PLANS["health"], "once", [(3).to_bytes(16, "big")], NOW)
    assert set(verdicts(store).values()) == {Verdict.EQUAL}
    checked = [c for c in verify(store.database) if c.survey == "health"]
    assert [(c.attribute, c.level, c.kept, c.recounted) for c in checked] == [
        ("", "", 9, 9),
        ("age", "open", 4, 4),
        ("age", "strict", 5, 5),
        ("smokes", "open", 4, 4),
        ("smokes", "strict", 5, 5),
    ]


ID = (4).to_bytes(16, "big")
OTHER = batch(5).SerializeToString(deterministic=True)
LOST = (1).to_bytes(8, "little") + bytes(3 * 8)


@pytest.mark.parametrize(
    ("harm", "where_"),
    [
        (lambda: sa.delete(BATCHES).where(BATCHES.c.id == ID), "smokes strict"),
        (lambda: sa.delete(BATCHES).where(BATCHES.c.id == ID), "records"),
        (lambda: sa.update(BATCHES).where(BATCHES.c.id == ID).values(batch=b"\xff"), "records"),
        (lambda: sa.update(BATCHES).where(BATCHES.c.id == ID).values(batch=OTHER), "records"),
        (lambda: sa.update(COUNTS).values(records=COUNTS.c.records + 1), "records"),
        (lambda: sa.update(COUNTS).values(batches=COUNTS.c.batches - 1), "records"),
        (
            lambda: (
                sa.update(TALLIES)
                .where(TALLIES.c.attribute == "smokes", TALLIES.c.level == "strict")
                .values(tally=LOST)
            ),
            "smokes strict",
        ),
        (lambda: sa.delete(TALLIES).where(TALLIES.c.attribute == "smokes"), "smokes strict"),
        (lambda: sa.delete(COUNTS), "records"),
    ],
    ids=[
        "batch",
        "counts",
        "damage",
        "swap",
        "records",
        "batches",
        "tally",
        "no-tally",
        "no-counts",
    ],
)
def test_a_difference_is_found(
    store: Store, harm: Callable[[], sa.Executable], where_: str
) -> None:
    with store.database.changing() as connection:
        connection.execute(harm())
    attribute, _, level = where_.partition(" ")
    key = ("health", "once", "" if attribute == "records" else attribute, level)
    assert verdicts(store)[key] is Verdict.DIFFERS


def test_dropped_batches_cannot_be_recounted(store: Store) -> None:
    before = tallied(store, "health")
    retention.drop_some(store.database, 10**6)
    add(store, [batch(number) for number in range(30, 33)])
    assert set(verdicts(store).values()) == {Verdict.DROPPED}
    assert tallied(store, "health") != before


def test_tallies_below_what_is_left_differ_even_then(store: Store) -> None:
    retention.drop_some(store.database, 10**6)
    add(store, [batch(number) for number in range(30, 36)])
    with store.database.changing() as connection:
        mine = sa.and_(TALLIES.c.attribute == "smokes", TALLIES.c.level == "strict")
        connection.execute(sa.update(TALLIES).where(mine).values(tally=LOST))
    assert verdicts(store)["health", "once", "smokes", "strict"] is Verdict.DIFFERS
    assert verdicts(store)["health", "once", "smokes", "open"] is Verdict.DROPPED
