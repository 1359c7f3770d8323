"""Spark, in local mode, against the server's own integers."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected import DAYS, batch, collect, register, toml
from serving import serving, submit

from hearsay import Analyst
from hearsay_server.storage.store import Store
from ldp import InvalidInput
from ldp.errors import NotReady
from support import DAILY, rows_of

pytest.importorskip("pyspark")
pq = pytest.importorskip("pyarrow.parquet")
if shutil.which("java") is None:
    pytest.skip("Spark needs java", allow_module_level=True)

from objects import object_store  # noqa: E402

from hearsay_server.answers import spark as sparks  # noqa: E402
from hearsay_server.answers.export import export  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # pyspark's own: its sockets and a deprecation of pandas
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session whose environment is not activated: the `python3` of PATH cannot be used."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    broken = tmp_path_factory.mktemp("bin") / "python3"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYSPARK_PYTHON", raising=False)
        patch.setenv("PATH", f"{broken.parent}{os.pathsep}{os.environ['PATH']}")
        found = builder.getOrCreate()
        yield found
        found.stop()


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The exported folder, the server's tallies, and some of its estimates."""
    folder = tmp_path_factory.mktemp("spark")
    with serving(folder / "data") as address:
        _, plan = register(address, toml())
        collect(address, plan)
        with Analyst(address) as analyst:
            export(analyst, "all", folder / "rows")
            answers = {
                name: analyst.estimate("all", name, periods=DAYS[:2], levels=["open"])
                for name in ("mixed", "colour_oue", "number_piecewise")
            }
    store = Store(folder / "data")
    tallies = {name: store.tallies("all", name) for name in plan.attributes}
    store.close()
    return folder / "rows", tallies, answers


def test_tallies_of_every_mechanism_are_the_servers(session: Any, exported: Any) -> None:
    path, tallies, _ = exported
    for name, stored in tallies.items():
        assert sparks.tally(session, path, name) == stored, name


def test_estimates_are_the_servers(session: Any, exported: Any) -> None:
    path, _, answers = exported
    for name, answer in answers.items():
        found = sparks.estimate(session, path, name, periods=DAYS[:2], levels=["open"])
        assert found.value.tolist() == pytest.approx([row.estimate for row in rows_of(answer)])
        errors = [row.standard_error for row in rows_of(answer)]
        assert found.standard_error == pytest.approx(np.array(errors))


def test_workers_run_the_drivers_python_unless_another_is_configured(
    session: Any, exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _, _ = exported
    sparks.tally(session, path, "mixed")
    context = session.sparkContext
    assert context.pythonExec == sys.executable
    with monkeypatch.context() as patch:
        patch.setattr(context, "pythonExec", "another")
        patch.setenv("PYSPARK_PYTHON", "another")
        sparks.read(session, path)
        assert context.pythonExec == "another"


def test_a_data_frame_has_every_row_with_its_period_and_levels_as_text(
    session: Any, exported: Any
) -> None:
    path, tallies, _ = exported
    frame = sparks.read(session, path)
    assert frame.columns[:3] == ["period", "colour_krr", "colour_krr__level"]
    answered = frame.where("mixed IS NOT NULL").groupBy("mixed__level", "period").count().collect()
    assert {(row[0], row[1]): row[2] for row in answered} == {
        (cohort.level, cohort.period): tally.n for cohort, tally in tallies["mixed"].items()
    }


def test_an_export_in_an_object_store_and_one_that_continues_it_are_read(
    session: Any, tmp_path: Path
) -> None:
    pytest.importorskip("moto")
    with serving(tmp_path / "data") as address, Analyst(address) as analyst:
        _, plan = register(address, DAILY)
        with object_store() as objects:
            for number, day in enumerate(DAYS):
                answers = {"smokes": np.arange(50 + number) % 3}
                submit(address, batch(plan, "strict", day, answers, number))
                before = objects.uri(str(number - 1)) if number else None
                export(analyst, "daily", objects.uri(str(number)), since=before)
            found = sparks.tally(session, objects.uri("2"), "smokes")
    store = Store(tmp_path / "data")
    assert found == store.tallies("daily", "smokes")
    store.close()


def test_large_files_are_read_in_shares(
    session: Any, exported: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, tallies, _ = exported
    copy = shutil.copytree(path, tmp_path / "rows")
    for file in copy.glob("*.parquet"):
        pq.write_table(pq.read_table(file), file, row_group_size=7)
    monkeypatch.setattr(sparks, "_SHARE", 20)
    assert sparks.tally(session, copy, "colour_oue") == tallies["colour_oue"]
    assert sparks.tally(session, copy, "mixed") == tallies["mixed"]


def test_what_cannot_be_estimated_is_refused(session: Any, exported: Any, tmp_path: Path) -> None:
    path, _, _ = exported
    with pytest.raises(InvalidInput, match="has no attribute 'age'"):
        sparks.tally(session, path, "age")
    with pytest.raises(InvalidInput, match="level must be one of"):
        sparks.estimate(session, path, "mixed", levels=["lax"])
    with pytest.raises(NotReady, match="no such reports"):
        sparks.estimate(session, path, "mixed", periods=["1999-01-01"])
    with pytest.raises(InvalidInput, match="is no whole export"):
        sparks.tally(session, tmp_path, "mixed")
