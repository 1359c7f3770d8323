"""Spark, in local mode, against the server's own integers."""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected import DAYS, collect, register, toml
from serving import serving

from hearsay import Analyst
from hearsay_server.storage.store import Store
from ldp import InvalidInput
from ldp.errors import NotReady

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
if shutil.which("java") is None:
    pytest.skip("Spark needs java", allow_module_level=True)

from hearsay_server.answers import spark as sparks
from hearsay_server.answers.export import export

pytestmark = [
    pytest.mark.slow,
    # pyspark's own: its sockets and a deprecation of pandas
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    for name, value in options.items():
        builder = builder.config(name, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
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
                name: analyst.query("all", name, periods=DAYS[:2], levels=["open"])
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
        assert found.value.tolist() == pytest.approx([row.estimate for row in answer.rows])
        errors = [row.standard_error for row in answer.rows]
        assert found.standard_error == pytest.approx(np.array(errors))


def test_what_cannot_be_estimated_is_refused(session: Any, exported: Any, tmp_path: Path) -> None:
    path, _, _ = exported
    with pytest.raises(InvalidInput, match="has no attribute 'age'"):
        sparks.tally(session, path, "age")
    with pytest.raises(InvalidInput, match="level must be one of"):
        sparks.estimate(session, path, "mixed", levels=["lax"])
    with pytest.raises(NotReady, match="no such reports"):
        sparks.estimate(session, path, "mixed", periods=["1999-01-01"])
    with pytest.raises(InvalidInput, match="is no folder that"):
        sparks.tally(session, tmp_path, "mixed")
