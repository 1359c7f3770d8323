"""The table of measures in docs/design.md, and additions that touch no more files than it says."""

import csv
import importlib
import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay
from numpy.typing import ArrayLike, NDArray
from serving import submit
from visiting import Site, showing

from hearsay import MEMORY, Analyst, Client
from hearsay.asking.answer import Answer
from hearsay.asking.views import catalogue as views
from hearsay.asking.views import differences
from hearsay.asking.views.options import INTERVALS, SELECTION, Given
from hearsay.asking.views.view import Question, View
from hearsay.plans.plan import Plan, parse
from hearsay.testing import RecordingTransport
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import queries
from hearsay_server.commands import ask
from hearsay_server.commands.codegen import module
from hearsay_server.ingest.intake import tallies_of
from hearsay_server.pages.analyst import charts
from hearsay_server.pages.person import odds
from hearsay_server.surveys import catalogue, describe, readings
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain import explain
from ldp import Channel, Coins, mechanisms
from ldp.core.exact import ONE, ceil_threshold, exp_bounds
from ldp.core.mechanism import Codes, Counted, FrequencyOracle, check_threshold, two_valued
from ldp.mechanisms.frequency.krr import krr_channel
from ldp.planning.choice import choose
from measuring import additions, table
from measuring.files import ROOT
from support import rows_of

KEPT = table.kept()


@pytest.mark.parametrize("row", table.ROWS, ids=lambda row: row.what)
def test_the_table_is_what_is_measured(row: table.Row) -> None:
    today = row.today()
    assert table.holds(row, today, KEPT[row.what]), (
        f"{today}: if that is meant, `make measure`; places that tell a kind are listed by "
        "`python tests/measuring/kinds.py`"
    )


def test_a_row_is_held_to_its_numbers_alone() -> None:
    near, most, exact = (replace(table.ROWS[0], held=held) for held in ("near", "most", "exact"))
    assert table.numbers("1,234 (`ab12`); 7 to 10") == [1234, 7, 10]
    assert table.holds(near, "1,030", "1,000") and not table.holds(near, "1,031", "1,000")
    assert table.holds(most, "9 (`b`); 3", "9 (`a`); 4") and not table.holds(most, "8; 5", "9; 4")
    assert table.holds(exact, "9", "9") and not table.holds(exact, "8", "9")


def test_contributing_says_how_many_files_an_addition_touches() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rows = [row.what for row in table.ROWS if row.what.startswith("source files that a new")]
    kind, mechanism, question = (table.numbers(KEPT[what])[0] for what in rows)
    assert f"A new kind touches {kind} files" in page
    assert f"A mechanism whose code is one integer touches {mechanism} files" in page
    assert f"A question of an existing call touches {question} files" in page
    named = [*additions.MECHANISM, *additions.QUESTION, *additions.KIND, *additions.TELLING]
    assert all((ROOT / file).exists() for file in named)


# --- a question ----------------------------------------------------------------------------------

TRIPS = """
name = "trips"
period = "P1D"
[levels]
open = 12.0
[[attributes]]
name = "how"
title = "How did you come?"
[attributes.categorical]
values = ["bus", "train", "bike, or foot"]
"""


def _rarest(analyst: Analyst, survey: str, attribute: str, **options: Any) -> Answer:
    """Return the answer of an attribute with the smallest estimate."""
    found = analyst.estimate(survey, attribute, **options)
    whole = found.table()
    place = int(np.argmin(whole.column("estimate").values))
    columns = [replace(each, values=each.values[place : place + 1]) for each in whole.columns]
    index = [replace(each, labels=each.labels[place : place + 1]) for each in whole.index]
    rows = replace(whole, index=tuple(index), columns=tuple(columns), left_out=len(whole) - 1)
    return replace(found, view="rarest", tables=(rows,))


def _asked(survey: str, given: Given) -> Question:
    options = {**given.selection(), **given.stated(confidence="number", simultaneous="flag")}
    return Question("rarest", (survey, given.attribute), options)


RAREST = View(
    "rarest",
    "Rarest",
    "The answer that the fewest people gave.",
    ("categorical",),
    (*SELECTION, *INTERVALS),
    _asked,
)


@pytest.fixture
def rarest(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A question that is added where CONTRIBUTING.md says, and nowhere else."""
    monkeypatch.setitem(views.VIEWS, "rarest", RAREST)  # type: ignore[arg-type]
    monkeypatch.setattr(Analyst, "rarest", _rarest, raising=False)
    monkeypatch.setitem(charts._DRAWN, "rarest", charts.intervals)  # type: ignore[arg-type]
    importlib.reload(ask)  # makes a command of each view
    yield
    monkeypatch.undo()
    importlib.reload(ask)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Pages of a server with reports of one survey."""
    with showing(tmp_path_factory.mktemp("measured")) as found:
        _, plan = register(found.grpc, TRIPS)
        answers = np.repeat([0, 1, 2], [300, 200, 100])
        submit(found.grpc, batch(plan, "open", DAYS[0], {"how": answers}, 1))
        yield found


def test_a_question_is_asked_through_every_face(rarest: None, site: Site, tmp_path: Path) -> None:
    with Analyst(site.grpc) as analyst:
        answer = analyst.rarest("trips", "how", confidence=0.9)  # type: ignore[attr-defined]
    assert list(answer.to_frame().index) == ["bike, or foot"]
    command = ("ask", "rarest", "trips", "how", "--confidence", 0.9, "--target", site.grpc)
    assert json.loads(hearsay(*command, "--json").stdout) == json.loads(answer.to_json())
    assert hearsay(*command, "--csv").stdout.splitlines() == answer.to_csv().splitlines()
    picture = tmp_path / "rarest.png"
    assert "bike, or foot" in hearsay(*command, "--plot", picture).stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "rarest trips how" in hearsay("ask", "--list", "trips", "--target", site.grpc).stdout
    assert RAREST.says in hearsay("ask", "rarest", "--help").stdout
    address = "/analyst/trips/rarest{}?attribute=how&confidence=0.9"
    page = site.text(address.format(""))
    assert "bike, or foot" in page and "intervals" in page and "analyst.rarest(" in page
    assert "/analyst/trips/rarest" in site.text("/analyst/trips/estimate?attribute=how")
    told = csv.DictReader(io.StringIO(site.text(address.format(".csv")), newline=""))
    assert [row["how"] for row in told] == ["bike, or foot"]


def test_a_question_is_added_where_the_table_counts() -> None:
    asking, charted = (ROOT / additions.QUESTION[place] for place in (1, 2))
    assert Path(differences.__file__).parent == ROOT / additions.QUESTION[0]
    methods = [file.name for file in asking.glob("*.py") if "-> Answer:" in file.read_text()]
    assert {"analyst.py", "comparing.py", "sets.py", "together.py"} <= set(methods)
    assert Path(charts.__file__) == charted


# --- a mechanism ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Lie(Counted, FrequencyOracle):
    """Tell the truth, or with probability lie / 2**64 one of the other categories.

    Guarantee: epsilon-LDP, with e**realised_epsilon = (k - 1) (2**64 - lie) / lie.
    """

    name: ClassVar[str] = "lie"
    two_valued: ClassVar[bool] = True
    k: int
    epsilon: float
    lie: int = 0

    def _calibrate(self) -> None:
        self._check_k(1 << 16)
        if self.lie == 0:
            exp_low = exp_bounds(Fraction(self.epsilon))[0]
            lie = ceil_threshold((self.k - 1) / (exp_low + self.k - 1))
            object.__setattr__(self, "lie", lie)
        check_threshold(f"{self.name}: lie", self.lie)

    def _worst_ratio(self) -> Fraction:
        return Fraction((self.k - 1) * (ONE - self.lie), self.lie)

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        return 1 - Fraction(self.lie, ONE), Fraction(self.lie, ONE * (self.k - 1))

    @property
    def named(self) -> tuple[int, int]:
        return 1, 1

    def randomize(self, value: int, coins: Coins) -> int:
        value = self._check_value(value)
        if not coins.bernoulli(self.lie):
            return value
        other = coins.below(self.k - 1)
        return other + (other >= value)

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = [self.randomize(int(value), coins) for value in array]
        return np.array(codes, dtype=self.code_dtype)

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        supported: NDArray[Any] = codes == value
        return supported

    def matrix(self) -> NDArray[np.float64]:
        return two_valued(self.k, *self.support)

    def channel(self) -> Channel:
        return krr_channel(self.k, *self.support)


@pytest.fixture
def lie(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mechanism that is added where CONTRIBUTING.md says, and nowhere else."""
    monkeypatch.setitem(mechanisms.FREQUENCIES, "lie", Lie)  # type: ignore[arg-type]
    # These are made from the registry, when they are imported.
    monkeypatch.setitem(mechanisms.IN_PLANS, "lie", Lie)  # type: ignore[arg-type]
    monkeypatch.setitem(catalogue.CATEGORICAL, "lie", Lie)  # type: ignore[arg-type]


def test_a_mechanism_is_taken_by_plan_client_server_and_pages(lie: None) -> None:
    declared = surveys.from_toml(
        TRIPS.replace("[attributes.c", 'mechanism = "lie"\n[attributes.c'), "t"
    )
    frozen = surveys.resolve(declared)
    plan: Plan = parse(frozen)
    mechanism = plan.mechanism("open", "how", "")
    assert isinstance(mechanism, Lie)
    transport, choices = RecordingTransport(frozen), {"level": "open", "epsilon": 12.0}
    with Client(transport, "trips", ledger=MEMORY, consent=True, **choices) as client:
        assert client.wait_ready() and client.record(how="train").taken == ("how",)
        assert client.flush(10)
    (sent,) = transport.batches
    request = analyst_pb2.EstimateRequest(survey="trips", attribute="how")
    rows = rows_of(queries.estimate(plan, request, tallies_of(sent, plan)))
    assert max(rows, key=lambda row: row.estimate).label == "train"
    domain = plan.attributes["how"].domain
    assert "train" in describe.describe(domain, mechanism, sent.columns[0].codes)
    assert "One of the 3 answers" in odds.odds(domain, mechanism).sent
    assert readings.reading(domain, mechanism)["form"] == "table"
    assert explain(declared, "t", 1000).rows and "train" in module(frozen)
    assert "lie" in {each.label for each in choose(3, 1.0).candidates}


def test_the_typescript_sdk_lists_mechanisms_where_the_table_counts() -> None:
    listed = [ROOT / file for file in additions.MECHANISM if file.endswith(".ts")]
    names = {name for file in listed for name in re.findall(r"\w+", file.read_text())}
    assert set(mechanisms.IN_PLANS) <= names
