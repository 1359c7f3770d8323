"""Exports that continue earlier ones: their files together have each stored row once."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay as command
from postgres import Postgres
from serving import connected, own_name, serving, submit

from dpsgd.reports.rows import Rows
from hearsay import Analyst
from hearsay.plans.plan import Plan
from hearsay.v1 import admin_pb2, admin_pb2_grpc, collector_pb2, collector_pb2_grpc
from hearsay_server.storage import retention
from hearsay_server.storage.store import Store
from ldp import InvalidInput, Tally
from support import DAILY, SURVEY

pq = pytest.importorskip("pyarrow.parquet")

from hearsay_server.answers.export import Exported, export  # noqa: E402
from hearsay_server.answers.folders import open_folder  # noqa: E402
from hearsay_server.answers.manifest import Manifest  # noqa: E402


@dataclass(frozen=True)
class Served:
    """A server, and where it stores what comes."""

    address: str
    where: Path | str


class Collection:
    """A survey like "daily", to which batches come, and the exports of it."""

    def __init__(self, served: Served, survey: str, folder: Path) -> None:
        self.address = served.address
        self.where = served.where
        self.survey = survey
        self.plan = self.register()
        self._folder = folder
        self._sent = 0

    def register(self) -> Plan:
        return register(self.address, DAILY.replace("daily", self.survey))[1]

    def send(self, day: str, rows: int, id_: bytes | None = None, level: str = "strict") -> bytes:
        """Send a batch; return its id."""
        self._sent += 1
        answers = {"smokes": np.arange(rows) % 3}
        made = batch(self.plan, level, day, answers, self._sent)
        made.id = id_ or made.id
        (result,) = submit(self.address, made)
        assert result.status == collector_pb2.Result.STORED, result
        return made.id

    def forget(self, day: str, id_: bytes) -> None:
        request = collector_pb2.ForgetRequest(survey=self.survey, period=day, ids=[id_])
        with connected(self.address) as channel:
            collector_pb2_grpc.CollectorStub(channel).Forget(request, timeout=20)

    def export(self, to: str, since: str | None = None, **selection: list[str]) -> Exported:
        """Export into a folder of this name, since that of another."""
        before = self._folder / since if since else None
        with Analyst(self.address) as analyst:
            return export(analyst, self.survey, self._folder / to, since=before, **selection)  # type: ignore[arg-type]

    def tallies(self, to: str) -> dict[tuple[str, str], Tally]:
        """Return the tallies of the rows that an export's manifest lists, by level and period."""
        folder = open_folder(self._folder / to)
        found: dict[tuple[str, str], Tally] = {}
        for day, period in Manifest.read(folder).periods.items():
            for file, rows in period.files.items():
                table = pq.read_table(folder.at(file)).to_pandas()
                assert len(table) == rows
                assert set(table["period"]) == {day}
                for level, part in table.groupby("smokes__level", observed=True):
                    codes = part["smokes"].to_numpy().astype(np.uint8)
                    tally = self.plan.levels[level].mechanisms["smokes"].tally(codes)
                    key = level, day
                    found[key] = found[key] + tally if key in found else tally
        return found

    def stored(self) -> dict[tuple[str, str], Tally]:
        """Return the server's own tallies."""
        with closing(Store(self.where)) as store:
            tallies = store.tallies(self.survey, "smokes")
        return {(cohort.level, cohort.period): tally for cohort, tally in tallies.items()}

    def own_periods(self, to: str) -> set[str]:
        """Return the periods that are written in an export's own folder."""
        return {file.name[:10] for file in (self._folder / to).glob("*.parquet")}


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("sqlite")
    with serving(folder) as address:
        yield Served(address, folder)


@pytest.fixture(scope="module")
def on_postgresql(tmp_path_factory: pytest.TempPathFactory, postgres: Postgres) -> Iterator[Served]:
    url = postgres.create()
    with serving(tmp_path_factory.mktemp("postgresql"), database=url) as address:
        yield Served(address, url)


@pytest.fixture(params=["on_sqlite", pytest.param("on_postgresql", marks=pytest.mark.slow)])
def collection(request: pytest.FixtureRequest, tmp_path: Path) -> Collection:
    """A survey of this test's own, at either server of this module."""
    return Collection(request.getfixturevalue(request.param), own_name(request), tmp_path)


def test_an_export_since_another_writes_the_periods_that_changed(collection: Collection) -> None:
    collection.send(DAYS[0], 7)
    gone = collection.send(DAYS[1], 11)
    collection.send(DAYS[1], 5)
    assert collection.export("1") == Exported(23)
    collection.send(DAYS[0], 3, level="open")  # late
    collection.send(DAYS[2], 13)
    assert collection.export("2", since="1") == Exported(7 + 3 + 13)
    assert collection.own_periods("2") == {DAYS[0], DAYS[2]}
    assert collection.tallies("2") == collection.stored()
    collection.forget(DAYS[1], gone)
    assert collection.export("3", since="2") == Exported(5)
    assert collection.own_periods("3") == {DAYS[1]}
    assert collection.tallies("3") == collection.stored()
    assert collection.export("4", since="3") == Exported(0)
    assert collection.own_periods("4") == set()
    assert collection.tallies("4") == collection.stored()


def test_a_batch_that_is_committed_behind_the_reader_is_in_the_next_export(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids are read in their order, which is not that of the commits."""
    for _ in range(2):
        collection.send(DAYS[0], 5)
    before = collection.stored()
    pages = Store.batches_of

    def overtaken(store: Store, survey: str, period: str) -> Iterator[list[collector_pb2.Batch]]:
        for page in pages(store, survey, period):
            collection.send(period, 9, id_=bytes(16))  # before the first id
            yield page

    with monkeypatch.context() as patch:
        patch.setattr(Store, "batches_of", overtaken)
        assert collection.export("1") == Exported(10)
    assert collection.tallies("1") == before
    assert collection.export("2", since="1") == Exported(19)
    assert collection.tallies("2") == collection.stored() != before


def test_a_period_of_which_all_is_forgotten_has_no_files(collection: Collection) -> None:
    gone = collection.send(DAYS[0], 7)
    collection.send(DAYS[1], 7)
    collection.export("1")
    collection.forget(DAYS[0], gone)
    assert collection.export("2", since="1") == Exported(0)
    assert collection.tallies("2") == collection.stored()
    assert collection.tallies("2").keys() == {("strict", DAYS[1])}


def test_rows_that_the_retention_dropped_stay_as_they_were_exported(
    collection: Collection,
) -> None:
    collection.send(DAYS[0], 7)
    collection.send(DAYS[1], 5)
    collection.export("1")
    with closing(Store(collection.where)) as store:
        retention.drop_some(store.database, 10**6)
    late = collection.send(DAYS[2], 3)
    assert collection.export("2", since="1") == Exported(3, tuple(DAYS[:2]))
    assert collection.tallies("2") == collection.stored()
    assert collection.export("3", since="2") == Exported(0, tuple(DAYS[:2]))
    collection.forget(DAYS[2], late)
    collection.export("4", since="3")
    assert collection.tallies("4") == collection.stored()


def test_rows_that_are_dropped_while_their_period_is_read_stay_as_they_were_exported(
    collection: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection.send(DAYS[0], 7)
    collection.export("1")
    before = collection.tallies("1")
    collection.send(DAYS[0], 5)
    pages = Store.batches_of

    def dropped(store: Store, survey: str, period: str) -> Iterator[list[collector_pb2.Batch]]:
        for page in pages(store, survey, period):
            yield page[:1]
            retention.drop_some(store.database, 10**6)

    monkeypatch.setattr(Store, "batches_of", dropped)
    assert collection.export("2", since="1") == Exported(0, (DAYS[0],))
    assert collection.own_periods("2") == set()
    assert collection.tallies("2") == before


def test_a_survey_that_was_created_again_has_none_of_its_old_rows(
    collection: Collection,
) -> None:
    collection.send(DAYS[0], 7)
    collection.export("1")
    with connected(collection.address) as channel:
        request = admin_pb2.DeleteSurveyRequest(survey=collection.survey)
        admin_pb2_grpc.AdminStub(channel).DeleteSurvey(request, timeout=20)
    with closing(Store(collection.where)) as store:
        for step in retention.left_over(store.database):
            while step():
                pass
    collection.register()
    collection.send(DAYS[1], 5)
    assert collection.export("2", since="1") == Exported(5)
    assert collection.tallies("2") == collection.stored()
    assert collection.tallies("2").keys() == {("strict", DAYS[1])}


@pytest.fixture
def local(on_sqlite: Served, tmp_path: Path, request: pytest.FixtureRequest) -> Collection:
    return Collection(on_sqlite, own_name(request), tmp_path)


def test_periods_that_are_not_asked_for_stay_as_they_were(local: Collection) -> None:
    for day in DAYS[:2]:
        local.send(day, 5)
    local.export("1")
    before = local.stored()
    for day in DAYS:
        local.send(day, 3)
    assert local.export("2", since="1", periods=[DAYS[1]]) == Exported(8)
    stored = local.stored()
    assert local.tallies("2") == {
        ("strict", DAYS[0]): before["strict", DAYS[0]],
        ("strict", DAYS[1]): stored["strict", DAYS[1]],
    }


def test_an_export_and_those_before_it_can_move_together(local: Collection, tmp_path: Path) -> None:
    local.send(DAYS[0], 5)
    local.export("exports/1")
    local.send(DAYS[1], 5)
    local.export("exports/2", since="exports/1")
    shutil.move(tmp_path / "exports", tmp_path / "moved")
    assert local.tallies("moved/2") == local.stored()


def test_an_export_of_another_survey_or_levels_is_not_continued(
    local: Collection, tmp_path: Path
) -> None:
    local.send(DAYS[0], 5)
    local.export("1", levels=["strict"])
    with pytest.raises(
        InvalidInput, match="the earlier one is of strict, this one of strict, open"
    ):
        local.export("2", since="1")
    assert local.export("2", since="1", levels=["strict"]) == Exported(0)
    _, plan = register(local.address, SURVEY)
    answers = {"smokes": np.zeros(2, dtype=np.int64)}
    submit(local.address, batch(plan, "strict", "once", answers, 1))
    with Analyst(local.address) as analyst:
        export(analyst, "health", tmp_path / "health")
    with pytest.raises(InvalidInput, match=f"is an export of 'health', not of '{local.survey}'"):
        local.export("3", since="health")
    assert not (tmp_path / "3").exists()
    with pytest.raises(InvalidInput, match="nowhere is no whole export"):
        local.export("3", since="nowhere")


def test_the_command_continues_an_export(local: Collection, tmp_path: Path) -> None:
    target = ("--target", local.address)
    local.send(DAYS[0], 7)
    first = (tmp_path / "1").as_uri()
    assert (
        f"7 rows of {local.survey}"
        in command("export", local.survey, "--to", first, *target).stdout
    )
    local.send(DAYS[1], 5)
    done = command("export", local.survey, "--to", tmp_path / "2", "--since", first, *target)
    assert f"5 rows of {local.survey}" in done.stdout
    assert local.tallies("2") == local.stored()
    assert Rows.read(tmp_path / "2").n == 12  # for private training
    with closing(Store(local.where)) as store:
        retention.drop_some(store.database, 10**6)
    done = command(
        "export", local.survey, "--to", tmp_path / "3", "--since", tmp_path / "2", *target
    )
    assert done.returncode == 0
    assert f"has dropped rows of 2 periods since, {DAYS[0]} to {DAYS[1]}" in done.stderr
    assert local.tallies("3") == local.stored()
