"""The database: one owner, durable commits, tallies that are those of the stored batches."""

import random
import signal
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psycopg
import pytest
import sqlalchemy as sa
from postgres import Postgres
from stored import (
    NOW,
    ONCE,
    PLANS,
    add,
    asked_of_decode,
    batch,
    daily,
    decoded,
    register,
    tallied,
)

from hearsay.v1 import collector_pb2, survey_pb2
from hearsay_server.ingest import merging
from hearsay_server.ingest.intake import Cohort, Limits, Reason, Refused, Terms, decode
from hearsay_server.storage import audit, migrations, retention, schema, shards
from hearsay_server.storage import store as stores
from hearsay_server.storage.database import is_away
from hearsay_server.storage.forgetting import forget
from hearsay_server.storage.selection import Selected
from hearsay_server.storage.store import Store, StoredSurvey
from hearsay_server.storage.verify import Verdict, verify
from ldp import Tally
from ldp.errors import InvalidInput, NotReady, StorageFailed
from support import at_once

PLAN = PLANS["health"]


def test_what_a_page_shows_may_change_and_each_change_is_recorded(store: Store) -> None:
    def registered(page: survey_pb2.Page) -> StoredSurvey:
        return store.create_survey("health", PLAN.revision, ONCE, page=page)

    open_, shut = survey_pb2.Page(public=True, results=True), survey_pb2.Page()
    for page in (open_, open_, shut):
        assert registered(page).page == page
        found = store.survey("health")
        assert found is not None and found.page == page
    changes = [act.detail for act in audit.entries(store.database) if act.action == "change page"]
    assert changes == [{"public": True, "results": True}, {}]


def test_tallies_are_those_of_the_stored_batches(store: Store) -> None:
    for start in range(0, 60, 12):  # in groups, some of them sent before
        add(store, [batch(number) for number in range(max(0, start - 5), start + 12)])
    stored: dict[Cohort, Tally] = {}
    with store.database.reading() as connection:
        rows = connection.execute(sa.select(schema.batches.c.batch)).all()
    for (data,) in rows:
        for cohort, tally in decoded(collector_pb2.Batch.FromString(data)).items():
            stored[cohort] = stored[cohort] + tally if cohort in stored else tally
    assert len(rows) == 60
    kept = tallied(store, "health")
    assert kept == stored
    assert len(kept) == 4  # two attributes at two levels
    _, survey = store.surveys()
    assert (survey.batches, survey.records) == (60, 60)


def test_batches_that_are_stored_still_are_read_once_each_in_pages(store: Store) -> None:
    sent = [batch(number) for number in range(11)]
    add(store, random.Random(1).sample(sent, 11))
    dropped = sa.update(schema.batches).where(schema.batches.c.id == sent[4].id)
    with store.engine.begin() as connection:
        connection.execute(dropped.values(batch=None))
    pages = list(store.batches("health", page=4))
    assert [len(page) for page in pages] == [4, 6]  # the last two of a page are none by themselves
    assert [b for page in pages for b in page] == sent[:4] + sent[5:]
    assert not list(store.batches("wealth"))


def test_a_group_of_which_all_is_new_takes_one_transaction(tmp_path: Path) -> None:
    store = Store(tmp_path)
    register(store)
    begun: list[sa.Connection] = []
    sa.event.listen(store.engine, "begin", begun.append)
    sent = [batch(number) for number in range(7)]
    assert add(store, sent[:6]) == [True] * 6
    assert len(begun) == 1
    assert add(store, sent[5:]) == [False, True]
    assert len(begun) == 4  # tried, looked, stored
    store.close()


def test_a_group_of_many_periods_is_stored_in_parts_with_the_same_outcomes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = [batch(1), *(daily(10 + days, days) for days in range(5)), batch(2)]
    sent = [*new[:6], new[1], new[0], new[6]]
    broken = daily(30, 5)
    broken.columns[0].codes = b"\x09"
    begun: list[sa.Connection] = []
    monkeypatch.setattr(stores, "_MOST_COUNTS", 2 * PLANS["daily"].counts)
    sa.event.listen(store.engine, "begin", begun.append)
    outcomes = add(store, [*sent, broken])
    assert outcomes[:-1] == [True] * 6 + [False] * 2 + [True]
    assert isinstance(outcomes[-1], Refused)
    assert len(begun) > 3
    assert tallied(store, "health")
    assert {checked.verdict for checked in verify(store.database)} == {Verdict.EQUAL}


def test_a_page_of_large_batches_is_a_short_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = [batch(number) for number in range(6)]
    add(store, sent)
    monkeypatch.setattr("hearsay_server.storage.store._PAGE_BYTES", 2 * sent[0].ByteSize() + 10)
    pages = list(store.batches("health", page=4))
    assert [len(page) for page in pages] == [2, 4]
    assert [b for page in pages for b in page] == sent


def test_a_page_is_found_without_sorting_the_period(tmp_path: Path) -> None:
    store = Store(tmp_path)
    register(store)
    add(store, [batch(number) for number in range(6)])
    asked: list[tuple[str, Any]] = []
    sa.event.listen(
        store.engine,
        "before_cursor_execute",
        lambda _connection, _cursor, text, parameters, *_: asked.append((text, parameters)),
    )
    assert len(list(store.batches("health", page=2))) == 2
    selects = [(text, parameters) for text, parameters in asked if "FROM batches" in text]
    assert len(selects) == 7  # of three pages, ids and contents; and there is no fourth
    with store.engine.connect() as connection:
        for text, parameters in selects:
            steps = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", parameters).all()
            assert [step.detail.partition("(")[0].strip() for step in steps] == [
                "SEARCH batches USING PRIMARY KEY"
            ]
    store.close()


def test_nothing_that_is_written_has_sqlite_read_a_whole_table(tmp_path: Path) -> None:
    store = Store(tmp_path)
    register(store)
    sent = [
        message for number in range(9) for message in (batch(number), daily(number, number % 3))
    ]
    add(store, sent)
    executed: list[str] = []
    with store.engine.connect() as connection:
        driver: Any = connection.connection.dbapi_connection
        driver.set_trace_callback(executed.append)
    add(store, [*sent, batch(10), daily(10)])  # most are looked up
    store.add([("a", batch(number)) for number in (11, 12)], NOW, Limits(token_rows=1))
    forget(store.database, PLAN, "once", [batch(number).id for number in (1, 2, 13)], NOW)
    retention.drop_some(store.database, 10**6)
    retention.close_survey(store.database, "health")
    retention.purge_some(store.database)
    retention.mark_deleted(store.database, "daily")
    retention.delete_some(store.database)
    driver.set_trace_callback(None)
    asked = [text for text in executed if " batches" in text or " tallies" in text]
    assert {text.split()[0] for text in asked} == {"SELECT", "INSERT", "UPDATE", "DELETE"}
    for text in asked:
        for _, _, _, step in driver.execute(f"EXPLAIN QUERY PLAN {text}"):
            assert step not in ("SCAN batches", "SCAN tallies"), text
    store.close()


def test_what_is_over_the_limit_costs_no_second_decoding_of_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_of_decode(monkeypatch)
    batches = [batch(number) for number in range(10)]
    callers = "0122456779"
    outcomes = store.add(list(zip(callers, batches, strict=True)), NOW, Limits(token_rows=1))
    assert [outcome for outcome in outcomes if outcome is not True] == [outcomes[3], outcomes[8]]
    assert sum(asked) == 12
    kept = [batches[number] for number in range(10) if number not in (3, 8)]
    expected: dict[Cohort, Tally] = {}
    for message in kept:
        for cohort, tally in decoded(message).items():
            expected[cohort] = expected[cohort] + tally if cohort in expected else tally
    assert tallied(store, "health") == expected
    assert sorted(b.id for page in store.batches("health") for b in page) == [b.id for b in kept]
    assert store.surveys()[1].batches == 8
    assert add(store, batches) == [number in (3, 8) for number in range(10)]


def test_what_is_over_the_limit_counts_nothing_though_it_cannot_be_decoded_again(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    def once(message: collector_pb2.Batch, terms: Terms) -> Mapping[Cohort, Tally]:
        asked.append(message.id)
        if message.id == one.id and asked.count(one.id) > 1:
            raise Refused(Reason.REASON_UNSPECIFIED, "a fault of ours", final=False)
        return decode(message, terms)

    monkeypatch.setattr(merging, "decode", once)
    one, two = batch(1), batch(2)
    stored, refused = store.add([("a", two), ("a", one)], NOW, Limits(token_rows=1))
    assert isinstance(refused, Refused)
    assert stored is True
    assert asked.count(one.id) > 1
    assert [b for page in store.batches("health") for b in page] == [two]
    kept = tallied(store, "health")
    assert kept == decoded(two)


def test_of_two_with_one_id_the_second_is_stored_where_the_first_is_over_the_limit(
    store: Store,
) -> None:
    before, first, second = batch(0), batch(1), batch(1)
    for each in (before, second):
        each.rows = 2
        for column in each.columns:
            column.codes *= 2
    sent = [("a", before), ("a", first), ("b", second)]
    stored, refused, also = store.add(sent, NOW, Limits(token_rows=2))
    assert isinstance(refused, Refused)
    assert (stored, refused.reason, also) == (True, Reason.OVER_QUOTA, True)
    assert [b for page in store.batches("health") for b in page] == [before, second]


def test_an_id_is_taken_in_its_own_period_alone(store: Store) -> None:
    once, today, yesterday = batch(1), daily(1), daily(1, 1)
    assert add(store, [once, today, yesterday, today]) == [True, True, True, False]
    assert add(store, [once, today, yesterday]) == [False] * 3
    assert [(one.survey, one.batches) for one in store.surveys()] == [("daily", 2), ("health", 1)]
    for survey, sent in (("health", [once]), ("daily", [yesterday, today])):
        assert [b for page in store.batches(survey) for b in page] == sent


def test_a_group_is_told_apart_batch_by_batch(store: Store) -> None:
    broken, twin = batch(3), batch(4)
    broken.columns[0].codes = b"\x09"
    twin.id = batch(1).id
    first = batch(1)
    outcomes = add(store, [first, broken, batch(2), first, twin])
    assert [outcomes[i] for i in (0, 2, 3)] == [True, True, False]
    assert [str(outcomes[i]) for i in (1, 4)] == [
        "'smokes': a krr code must be below 3, got 9",
        f"another batch has the id {first.id.hex()}: draw ids at random",
    ]
    assert all(isinstance(outcomes[i], Refused) for i in (1, 4))


def test_a_period_that_is_none_fails_nothing_beside_a_batch_that_is_stored(store: Store) -> None:
    one, odd = batch(1), batch(2)
    add(store, [one])
    odd.period = "whenever"
    outcomes = add(store, [one, odd, batch(3)])
    assert outcomes[::2] == [False, True]
    assert str(outcomes[1]) == "the survey has the one period 'once', got 'whenever'"


@pytest.mark.slow
def test_one_commit_may_count_for_any_number_of_cohorts(store: Store) -> None:
    more = {
        Cohort("health", b"", "smokes", "strict", f"{number:05}"): Tally(1, np.array([1, 0, 0]))
        for number in range(14_000)  # with 5 parameters each: databases take 32,766 or 65,535
    }
    for _ in range(2):
        with store.database.appending() as connection:
            shards.add(store.database, connection, more)
    kept = store.tallies("health", "smokes")
    assert len(kept) == 14_000
    assert {tally.n for tally in kept.values()} == {2}


def test_a_failure_in_the_middle_stores_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="the disk is gone"):
        patched.setattr(shards, "add", fails)
        add(store, [batch(1), batch(2)])
    assert store.surveys()[1].batches == 0
    assert store.tallies("health", "smokes") == {}
    assert add(store, [batch(1), batch(2)]) == [True, True]


def test_tallies_can_be_asked_for_by_level_and_period(store: Store) -> None:
    add(store, [batch(number) for number in range(10)])
    strict = store.tallies("health", "smokes", Selected(levels=("strict",)))
    assert [(c.level, t.n) for c, t in strict.items()] == [("strict", 5)]
    assert store.tallies("health", "smokes", Selected(periods=("2026",))) == {}


def test_a_name_has_one_plan(store: Store) -> None:
    assert store.create_survey("health", PLAN.revision, ONCE).revision == PLAN.revision
    with pytest.raises(InvalidInput, match="a survey 'health' exists, with another plan"):
        store.create_survey("health", b"other", ONCE)


def test_a_plan_is_served_for_a_second_without_the_database_and_no_longer(
    where: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("hearsay_server.storage.plans.time", clock)
    mine, other = Store(where), Store(where)
    register(mine)
    assert mine.plans.fresh("health") is None  # it was registered, and not looked up since
    plan = mine.plans.frozen("health")
    retention.mark_deleted(other.database, "health")
    now += 0.99
    assert plan is not None
    assert mine.plans.fresh("health") == plan
    now += 0.02
    assert mine.plans.fresh("health") is None
    assert mine.plans.frozen("health") is None
    assert mine.plans.fresh("health") is None
    for store in (mine, other):
        store.close()


def test_data_of_a_later_version_is_left_alone(where: Path | str) -> None:
    opened = Store(where)
    with opened.database.changing() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '99'")
    opened.close()
    for _ in range(2):  # and the lock is given back
        with pytest.raises(StorageFailed, match="holds data of schema 99; this version knows up"):
            Store(where)


def test_a_commit_is_synced_to_the_disk(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.database.appending() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
    store.close()


def test_a_commit_is_synced_though_the_database_is_set_to_forgo_it(postgres: Postgres) -> None:
    url = postgres.create()
    with psycopg.connect(url, autocommit=True) as connection:
        name = url.rpartition("/")[2]
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
    store = Store(url)
    with store.database.appending() as opened:
        assert opened.exec_driver_sql("SHOW synchronous_commit").scalar_one() == "on"
    store.close()


def test_several_stores_count_a_batch_once(where: Path | str) -> None:
    """Three stores on threads are sent the same batches at once, in groups that overlap."""
    stores = [Store(where) for _ in range(3)]
    register(stores[0])
    sent = [batch(number) for number in range(120)]
    chance = random.Random(7)
    outcomes: list[bool | Refused] = []

    def send(store: Store, mine: list[collector_pb2.Batch]) -> None:
        for start in range(0, len(mine), 8):
            outcomes.extend(add(store, mine[start : start + 8]))

    at_once(*(partial(send, store, chance.sample(sent, len(sent))) for store in stores))
    assert sorted(outcomes) == [False] * 240 + [True] * 120
    assert sum(tally.n for tally in stores[1].tallies("health", "smokes").values()) == 120
    _, survey = stores[2].surveys()
    assert (survey.batches, survey.records) == (120, 120)
    for store in stores:
        store.close()


def test_each_process_on_postgresql_adds_to_rows_of_its_own(postgres: Postgres) -> None:
    url = postgres.create()
    stores = [Store(url) for _ in range(3)]
    assert [store.database.shard for store in stores] == [0, 1, 2]
    register(stores[0])
    for number, store in enumerate(stores):
        add(store, [batch(2 * number)])
    with stores[0].database.reading() as connection:
        writers = connection.scalars(sa.select(schema.counts.c.writer)).all()
    assert sorted(writers) == [0, 1, 2]
    stores[1].close()
    again = Store(url)
    assert again.database.shard == 1
    for store in (stores[0], stores[2], again):
        store.close()


def test_two_processes_that_share_a_shard_lose_nothing(postgres: Postgres) -> None:
    url = postgres.create()
    stores = [Store(url) for _ in range(2)]
    register(stores[0])
    stores[1].database.shard = 0  # as after a database that was restarted

    def send(store: Store, first: int) -> None:
        for number in range(first, 80, 2):
            add(store, [batch(number)])

    at_once(*(partial(send, store, first) for first, store in enumerate(stores)))
    kept = stores[0].tallies("health", "smokes")
    assert {cohort.level: tally.n for cohort, tally in kept.items()} == {"open": 40, "strict": 40}
    for store in stores:
        store.close()


def test_stores_that_start_at_once_on_an_empty_database_agree(postgres: Postgres) -> None:
    url = postgres.create()
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(Store, [url] * 4))
    assert sorted(store.database.shard for store in stores) == [0, 1, 2, 3]
    for store in stores:
        store.close()


def test_a_database_that_comes_back_is_used_again(postgres: Postgres) -> None:
    store = Store(postgres.create())
    register(store)
    one, two = batch(1), batch(2)
    assert add(store, [one]) == [True]
    postgres.stop(signal.SIGQUIT)
    with pytest.raises(sa.exc.OperationalError):
        add(store, [two])
    postgres.start()
    assert add(store, [one, two]) == [False, True]
    store.close()


def test_a_batch_is_not_to_blame_for_a_database_that_is_away(postgres: Postgres) -> None:
    store = Store(postgres.create())
    unknown = batch(1)
    postgres.stop(signal.SIGQUIT)
    with pytest.raises(sa.exc.OperationalError) as error:
        store.plans.needed([unknown])
    assert is_away(error.value)
    postgres.start()
    (outcome,) = add(store, [unknown])
    assert isinstance(outcome, Refused)
    assert outcome.reason == Reason.UNKNOWN_SURVEY
    store.close()


def test_after_a_restart_of_the_database_a_store_keeps_its_shard_and_out_an_upgrade(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres.create()
    store = Store(url)
    postgres.stop(signal.SIGQUIT)
    postgres.start()
    assert store.surveys() == []
    other = Store(url)
    assert other.database.shard == 1
    other.close()
    monkeypatch.setattr(migrations, "NEWEST", migrations.NEWEST + 1)
    with pytest.raises(NotReady, match="others have it open"):
        Store(url)
    store.close()


def test_a_store_that_was_away_does_not_write_to_what_was_upgraded_meanwhile(
    postgres: Postgres,
) -> None:
    url = postgres.create()
    store = Store(url)
    postgres.stop(signal.SIGQUIT)
    postgres.start()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '99'")
    with pytest.raises(sa.exc.OperationalError, match="was upgraded to schema 99") as error:
        register(store)
    assert is_away(error.value)
    store.close()


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://here/there", "sqlite:///file", "postgresql+nodriver"]
)
def test_only_postgresql_is_taken_for_a_database(url: str) -> None:
    with pytest.raises(InvalidInput, match="a database is given as postgresql://"):
        Store(url)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres"])
def test_a_database_that_is_not_there_is_named_without_its_password(scheme: str) -> None:
    with pytest.raises(
        StorageFailed, match=r"cannot open postgresql.*:\*\*\*@127.0.0.1:1/x"
    ) as error:
        Store(f"{scheme}://me:secret@127.0.0.1:1/x")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("name", ["what?now", "a#b", "50%", "ä ö", "?mode=memory"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    Store(tmp_path / name).close()
    assert (tmp_path / name / "hearsay.db").is_file()
    assert list(tmp_path.iterdir()) == [tmp_path / name]


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageFailed, match=r"cannot keep data in .*file"):
        Store(tmp_path / "file")


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hearsay.db").write_bytes(b"this is no database, but long enough to be one" * 100)
    with pytest.raises(StorageFailed, match=r"cannot open .*hearsay\.db: file is not a database"):
        Store(tmp_path)
