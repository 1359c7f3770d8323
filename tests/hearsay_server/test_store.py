"""The database: one owner, durable commits, tallies that are those of the stored batches."""

import sqlite3
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from hearsay import InvalidInput, plan
from hearsay.v1 import collector_pb2
from hearsay_server import survey as surveys
from hearsay_server.intake import Cohort, Refused, decode
from hearsay_server.store import Store
from ldp import Coins, Tally
from support import SURVEY

FROZEN = surveys.resolve(surveys.from_toml(SURVEY, "test.toml"))
PLAN = plan.parse(FROZEN)


def decoded(batch: collector_pb2.Batch) -> Mapping[Cohort, Tally]:
    return decode(batch, {"health": PLAN}.get, datetime.now(UTC))


def batch(number: int) -> collector_pb2.Batch:
    """A batch of one row at one of the levels."""
    level = PLAN.levels[("strict", "open")[number % 2]]
    message = collector_pb2.Batch(
        id=number.to_bytes(16, "big"),
        survey="health",
        revision=PLAN.revision,
        period="once",
        rows=1,
    )
    for name, value in (("smokes", number % 3), ("age", 0.5)):
        mechanism = level.mechanisms[name]
        codes = mechanism.encode([mechanism.randomize(value, Coins())])
        message.columns.add(attribute=name, level=level.name, codes=codes)
    return message


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    opened.create_survey("health", PLAN.revision, FROZEN)
    yield opened
    opened.close()


def test_tallies_are_those_of_the_stored_batches(store: Store, tmp_path: Path) -> None:
    for start in range(0, 60, 12):  # in groups, some of them sent before
        store.add([batch(number) for number in range(max(0, start - 5), start + 12)], decoded)
    stored: dict[Cohort, Tally] = {}
    with sqlite3.connect(tmp_path / "hearsay.db") as connection:
        rows = connection.execute("SELECT batch FROM batches").fetchall()
    connection.close()
    for (data,) in rows:
        for cohort, tally in decoded(collector_pb2.Batch.FromString(data)).items():
            stored[cohort] = stored[cohort] + tally if cohort in stored else tally
    assert len(rows) == 60
    kept = store.tallies("health", "smokes") | store.tallies("health", "age")
    assert kept == stored
    assert len(kept) == 4  # two attributes at two levels
    (survey,) = store.surveys()
    assert (survey.batches, survey.records) == (60, 60)


def test_a_group_is_told_apart_batch_by_batch(store: Store) -> None:
    broken, twin = batch(3), batch(4)
    broken.columns[0].codes = b"\x09"
    twin.id = batch(1).id
    first = batch(1)
    outcomes = store.add([first, broken, batch(2), first, twin], decoded)
    assert [outcomes[i] for i in (0, 2, 3)] == [True, True, False]
    assert [str(outcomes[i]) for i in (1, 4)] == [
        "'smokes': a krr code must be below 3, got 9",
        f"another batch has the id {first.id.hex()}: draw ids at random",
    ]
    assert all(isinstance(outcomes[i], Refused) for i in (1, 4))


def test_a_failure_in_the_middle_stores_nothing(store: Store) -> None:
    def fails_late(message: collector_pb2.Batch) -> Mapping[Cohort, Tally]:
        if message.id == batch(2).id:
            raise OSError("the disk is gone")
        return decoded(message)

    with pytest.raises(OSError, match="the disk is gone"):
        store.add([batch(1), batch(2)], fails_late)
    assert store.surveys()[0].batches == 0
    assert store.tallies("health", "smokes") == {}
    assert store.add([batch(1), batch(2)], decoded) == [True, True]


def test_tallies_can_be_asked_for_by_level_and_period(store: Store) -> None:
    store.add([batch(number) for number in range(10)], decoded)
    strict = store.tallies("health", "smokes", levels=["strict"])
    assert [(c.level, t.n) for c, t in strict.items()] == [("strict", 5)]
    assert store.tallies("health", "smokes", periods=["2026"]) == {}


def test_a_name_has_one_plan(store: Store) -> None:
    assert store.create_survey("health", PLAN.revision, FROZEN).revision == PLAN.revision
    with pytest.raises(InvalidInput, match="a survey 'health' exists, with another plan"):
        store.create_survey("health", b"other", b"plan")


def test_a_folder_has_one_owner(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is in use by another hearsay server"):
        Store(tmp_path)
    store.close()
    Store(tmp_path).close()


def test_data_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / "hearsay.db") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    for _ in range(2):  # and the lock is given back
        with pytest.raises(InvalidInput, match="holds data of schema 99; this version knows up"):
            Store(tmp_path)


def test_a_commit_is_synced_to_the_disk(store: Store) -> None:
    with store._writing() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2  # FULL
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"


@pytest.mark.parametrize("name", ["what?now", "a#b", "50%", "ä ö", "?mode=memory"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    Store(tmp_path / name).close()
    assert (tmp_path / name / "hearsay.db").is_file()
    assert list(tmp_path.iterdir()) == [tmp_path / name]


def test_a_folder_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match=r"cannot keep data in .*file"):
        Store(tmp_path / "file")


def test_a_damaged_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hearsay.db").write_bytes(b"this is no database, but long enough to be one" * 100)
    with pytest.raises(InvalidInput, match=r"cannot open .*hearsay\.db: file is not a database"):
        Store(tmp_path)
