"""Exports in an object store: whole when their manifest is there, and never before."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay as command
from serving import serving, submit

from hearsay import Analyst
from hearsay.plans.plan import Plan
from hearsay.v1 import collector_pb2
from hearsay_server.storage.store import Store
from ldp import InvalidInput, Tally
from ldp.errors import NotReady, StorageFailed
from support import DAILY

pq = pytest.importorskip("pyarrow.parquet")

from objects import ObjectStore, object_store  # noqa: E402

from hearsay_server.answers.export import Exported, export  # noqa: E402
from hearsay_server.answers.folders import open_folder  # noqa: E402
from hearsay_server.answers.manifest import NAME, Manifest  # noqa: E402

pytestmark = pytest.mark.slow  # the store takes seconds to start

KILLED = """
import os, signal, sys
from hearsay import Analyst
from hearsay_server.answers import export
export.Manifest.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
with Analyst(sys.argv[1]) as analyst:
    export.export(analyst, "daily", sys.argv[2])
"""
"""An export that is killed when all its rows are written, and before its manifest is."""


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    pytest.importorskip("moto")  # not as the tests are collected: it takes a while
    with object_store() as found:
        yield found


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Plan]]:
    """A server with rows of two days."""
    with serving(tmp_path / "data") as address:
        _, plan = register(address, DAILY)
        for seed, day in enumerate(DAYS[:2]):
            submit(address, new(plan, day, seed))
        yield address, plan


def new(plan: Plan, day: str, seed: int) -> collector_pb2.Batch:
    return batch(plan, "strict", day, {"smokes": np.arange(30) % 3}, seed)


def tallies(plan: Plan, uri: str) -> dict[str, Tally]:
    """Return by period the tallies of the rows that an export's manifest lists."""
    folder = open_folder(uri)
    found = {}
    for day, period in Manifest.read(folder).periods.items():
        files = [folder.at(name) for name in period.files]
        codes = pq.read_table(files, filesystem=folder.filesystem)["smokes"].to_numpy()
        found[day] = plan.levels["strict"].mechanisms["smokes"].tally(codes.astype(np.uint8))
    return found


def stored(folder: Path) -> dict[str, Tally]:
    store = Store(folder)
    found = {cohort.period: tally for cohort, tally in store.tallies("daily", "smokes").items()}
    store.close()
    return found


def test_the_command_exports_to_an_object_store_and_continues_there(
    server: tuple[str, Plan], objects: ObjectStore, tmp_path: Path
) -> None:
    address, plan = server
    to = ("export", "daily", "--target", address, "--to")
    done = command(*to, objects.uri("command/1"))
    assert done.returncode == 0, done.stderr
    assert "60 rows of daily are in s3://lake/command/1" in done.stdout.replace("\n", " ")
    assert len(objects.names("command/1")) == 3
    assert tallies(plan, objects.uri("command/1")) == stored(tmp_path / "data")
    submit(address, new(plan, DAYS[2], 7))
    done = command(*to, objects.uri("command/2"), "--since", objects.uri("command/1"))
    assert done.returncode == 0, done.stderr
    assert len(objects.names("command/2")) == 2
    assert tallies(plan, objects.uri("command/2")) == stored(tmp_path / "data")
    refused = command(*to, tmp_path / "2", "--since", objects.uri("command/1"))
    assert refused.returncode == 1
    assert "continues one in the same store" in refused.stderr
    assert "secret" not in done.stdout + refused.stderr


def test_an_export_that_is_killed_is_not_taken_for_whole(
    server: tuple[str, Plan], objects: ObjectStore
) -> None:
    address, _ = server
    uri = objects.uri("killed")
    done = subprocess.run([sys.executable, "-c", KILLED, address, uri], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(objects.names("killed")) == 2
    with pytest.raises(InvalidInput, match="s3://lake/killed is no whole export"):
        Manifest.read(open_folder(uri))
    with Analyst(address) as analyst, pytest.raises(InvalidInput, match="lake/killed exists"):
        export(analyst, "daily", uri)


def test_an_export_that_fails_leaves_nothing(
    server: tuple[str, Plan], objects: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, _ = server

    def fail(*_: object) -> None:
        assert len(objects.names("failed")) == 2
        raise StorageFailed("the store is gone")

    with Analyst(address) as analyst:
        with monkeypatch.context() as patch:
            patch.setattr(Manifest, "write", fail)
            with pytest.raises(StorageFailed, match="the store is gone"):
                export(analyst, "daily", objects.uri("failed"))
        assert objects.names("failed") == []
        with pytest.raises(NotReady):
            export(analyst, "daily", objects.uri("failed"), periods=[DAYS[2]])
        assert objects.names("failed") == []
        assert export(analyst, "daily", objects.uri("failed")) == Exported(60)


def test_of_two_exports_at_once_to_one_folder_one_is_done(
    server: tuple[str, Plan], objects: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    address, plan = server
    uri = objects.uri("twice")
    chunks = Analyst.chunks
    with Analyst(address) as analyst, monkeypatch.context() as patch:

        def overtaken(*given: object, **options: object) -> object:
            patch.setattr(Analyst, "chunks", chunks)
            assert export(analyst, "daily", uri) == Exported(60)
            return chunks(*given, **options)  # type: ignore[arg-type]

        patch.setattr(Analyst, "chunks", overtaken)
        with pytest.raises(InvalidInput, match="another export to s3://lake/twice was done"):
            export(analyst, "daily", uri)
    assert len(objects.names("twice")) == 3
    assert NAME in objects.names("twice")
    assert tallies(plan, uri) == stored(tmp_path / "data")


def test_a_store_that_fails_is_named(server: tuple[str, Plan], objects: ObjectStore) -> None:
    address, _ = server
    missing = objects.uri("rows").replace("@lake/", "@pond/")
    words = r"cannot use s3://pond/rows: .*bucket"
    with Analyst(address) as analyst, pytest.raises(StorageFailed, match=words):
        export(analyst, "daily", missing)
