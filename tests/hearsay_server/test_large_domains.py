"""What can be registered and filled can be queried and exported, whatever the number of values."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from collected import batch
from command import hearsay
from serving import submit

from hearsay import Analyst
from hearsay.plans.plan import parse
from hearsay.v1 import collector_pb2
from support import Server, device

pytestmark = pytest.mark.slow

URLS = [f"https://www.example.org/articles/2026/november/p-{n:06}.html" for n in range(65_536)]
HOSTS = [f"www-{n:06}.example" for n in range(200_000)]
ROWS = 20_000
COMMON = (7, 60_001)
"""The values that half of the people have, and a quarter; the others have any."""


@dataclass(frozen=True)
class Filled:
    """A server with the reports of a survey of many values, and the options to reach it."""

    server: Server
    values: list[str]
    target: tuple[str, str]


@pytest.fixture(scope="module", params=[URLS, HOSTS], ids=["urls", "hosts"])
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Filled]:
    folder, values = tmp_path_factory.mktemp("large"), request.param
    file = folder / "visits.toml"
    file.write_text(
        'name = "visits"\n[levels]\nopen = 6.0\n[[attributes]]\nname = "page"\n'
        f"[attributes.categorical]\nvalues = {json.dumps(values)}\n"
    )
    server = Server(folder / "data")
    server.start()
    try:
        target = ("--target", server.address)
        created = hearsay("survey", "create", file, *target)
        assert created.returncode == 0, created.stderr
        data = server.show("visits").plan
        assert 4_000_000 < len(data) <= 1 << 22  # nearly the largest plan that there may be
        plan = parse(data)
        source = np.random.default_rng(5)
        pages = source.choice([*COMMON, -1], ROWS, p=[0.5, 0.25, 0.25])
        pages = np.where(pages < 0, source.integers(0, len(values), ROWS), pages)
        (result,) = submit(server.address, batch(plan, "open", "once", {"page": pages}, 1))
        assert result.status == collector_pb2.Result.STORED
        with device(server.address, "visits", level="open") as client:  # fetches the plan, too
            client.record(page=values[COMMON[0]])
            assert client.flush(20)
        yield Filled(server, values, target)
    finally:
        server.stop()


def test_all_rows_arrive_in_order_with_their_errors(filled: Filled) -> None:
    with Analyst(filled.server.address, timeout=120) as analyst:
        table = analyst.estimate("visits", "page", simultaneous=True).to_frame()
        assert list(table.index) == filled.values
        assert table.attrs["reports"] == ROWS + 1
        for place, share in zip(COMMON, (0.5, 0.25), strict=True):
            assert table["low"].iloc[place] < share < table["high"].iloc[place]
        some = [filled.values[place] for place in (60_001, 0, 7)]
        chosen = analyst.estimate("visits", "page", simultaneous=True, values=some).to_frame()
        assert chosen.equals(table.loc[some])
        top = analyst.estimate("visits", "page", simultaneous=True, top=2).to_frame()
        assert list(top.index) == [filled.values[place] for place in COMMON]
        assert top.equals(table.loc[top.index])


def test_the_command_line_has_all_rows_or_some(filled: Filled) -> None:
    asked = ("query", "visits", "page", *filled.target)
    most, next_ = (filled.values[place] for place in COMMON)
    text = hearsay(*asked, "--csv").stdout
    assert [row["value"] for row in csv.DictReader(io.StringIO(text))] == filled.values
    document = json.loads(hearsay(*asked, "--top", 2, "--json").stdout)
    assert document["tables"]["rows"]["index"]["page"] == [most, next_]
    table = hearsay(*asked, "--values", f"{next_},{most}", COLUMNS="200").stdout
    assert table.index(next_) < table.index(most)
    assert f"{len(filled.values) - 2:,} more rows are not shown" in table


def test_rows_can_be_exported_and_counted_again(filled: Filled, tmp_path: Path) -> None:
    done = hearsay("export", "visits", "--to", tmp_path / "rows", *filled.target)
    assert f"{ROWS + 1:,} rows of visits" in done.stdout.replace("\n", " ")
    verified = hearsay("verify", "--data", filled.server.folder)
    assert verified.returncode == 0, verified.stdout
