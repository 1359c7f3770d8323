"""Changes over time, asked of a server that holds eight days."""

import csv
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from collected import batch, register
from command import hearsay
from serving import submit

from hearsay import Analyst
from hearsay.asking.analyst import Selection, change_request
from hearsay.asking.changes import ChangeOptions
from hearsay.plans.plan import Plan, parse
from hearsay.v1 import collector_pb2
from hearsay_server.answers import changes
from hearsay_server.ingest.intake import Cohort
from hearsay_server.surveys.survey import from_toml, resolve
from ldp import InvalidInput
from ldp.core.tally import add_up
from ldp.errors import NotReady
from ldp.estimating.differences import holm
from ldp.testing import SeededCoins
from support import rows_of

VALUES = ["bus", "train", "bike, or foot", "<i>car</i>"]
DAYS = [(datetime.now(UTC) - timedelta(days=back)).strftime("%Y-%m-%d") for back in range(8, 0, -1)]
TODAY = datetime.now(UTC).strftime("%Y-%m-%d")
TOML = f"""
name = "trips"
title = "Trips"
period = "P1D"
[levels]
strict = 2.0
open = 6.0
[[attributes]]
name = "how"
title = "How do you go to <b>work</b>?"
mechanism = "krr"
[attributes.categorical]
values = {VALUES}
[[attributes]]
name = "minutes"
title = "How long does it take?"
[attributes.numeric]
low = 0
high = 100
[[attributes]]
name = "leaves"
title = "When do you leave?"
[attributes.numeric]
low = 0
high = 24
bins = 8
[[attributes]]
name = "takes"
title = "What do you take along?"
[attributes.set]
values = ["book", "bike", "dog"]
at_most = 2
"""
BEFORE, AFTER = [0.5, 0.2, 0.2, 0.1], [0.2, 0.5, 0.2, 0.1]
ROWS = {"strict": 600, "open": 500}


def answers(day: int, rows: int, rng: np.random.Generator) -> dict[str, Any]:
    """From the fifth day on trains replace buses; ways take longer from day to day."""
    return {
        "how": rng.choice(4, rows, p=BEFORE if day < 4 else AFTER),
        "minutes": np.clip(rng.normal(-0.6 + 0.1 * day, 0.1, rows), -1, 1),
        "leaves": rng.choice([2, 3], rows, p=[0.8, 0.2] if day < 4 else [0.3, 0.7]),
    }


@pytest.fixture(scope="module")
def trips(address: str) -> Iterator[tuple[str, Analyst]]:
    with Analyst(address) as analyst:
        _, plan = register(address, TOML)
        rng = np.random.default_rng(5)
        for day, name in enumerate(DAYS):
            for level, rows in ROWS.items():
                submit(address, batch(plan, level, name, answers(day, rows, rng), day))
        yield address, analyst


def command(trips: tuple[str, Analyst], view: str, *arguments: object) -> CompletedProcess[str]:
    return hearsay("ask", view, "trips", *arguments, "--target", trips[0], COLUMNS="80")


def asked(trips: tuple[str, Analyst], *arguments: object) -> str:
    done = command(trips, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_change_is_between_the_estimates_of_two_periods(trips: tuple[str, Analyst]) -> None:
    table = trips[1].change("trips", "how", DAYS[0], DAYS[-1]).to_frame()
    assert table.index.tolist() == VALUES
    for column, day in (("first", DAYS[0]), ("second", DAYS[-1])):
        alone = trips[1].estimate("trips", "how", periods=[day]).to_frame()
        assert table[column].tolist() == pytest.approx(alone["estimate"].tolist())
    assert table["difference"].tolist() == pytest.approx(
        (table["second"] - table["first"]).tolist()
    )
    assert (table["low"] < table["difference"]).all()
    assert table["adjusted_p_value"].tolist() == pytest.approx(holm(table["p_value"]).tolist())
    assert table.loc["bus", "adjusted_p_value"] < 0.01
    assert table.loc["bus", "difference"] == pytest.approx(-0.3, abs=0.25)
    assert table["mix"].tolist() == pytest.approx([0.0] * 4)  # the levels' shares stay
    assert table.attrs["reports"] == {DAYS[0]: 1100, DAYS[-1]: 1100}
    assert (table.attrs["kind"], table.attrs["panels"]) == ("difference", 0)
    back = trips[1].change("trips", "how", DAYS[-1], DAYS[0]).to_frame()
    assert back["difference"].tolist() == pytest.approx((-table["difference"]).tolist())


def test_errors_are_no_larger_than_those_of_any_two_parts(trips: tuple[str, Analyst]) -> None:
    """`compare` knows nothing of how people's two answers may depend, and allows for more."""
    for attribute in ("how", "minutes"):
        both = Selection(periods=[DAYS[0]]), Selection(periods=[DAYS[-1]])
        wide = trips[1].compare("trips", attribute, *both).to_frame()
        table = trips[1].change("trips", attribute, DAYS[0], DAYS[-1]).to_frame()
        assert (table["standard_error"] <= 1.05 * wide["standard_error"]).all()


def test_a_trend_is_per_period_and_in_the_answers_units(trips: tuple[str, Analyst]) -> None:
    table = trips[1].trend("trips", "minutes").to_frame()
    (row,) = table.to_dict("records")
    assert row["slope"] == pytest.approx(5, abs=3 * row["standard_error"])
    assert row["first"] == pytest.approx(20, abs=12)
    assert row["second"] - row["first"] == pytest.approx(7 * row["slope"])
    gap = trips[1].trend("trips", "minutes", periods=[DAYS[0], DAYS[3], DAYS[7]]).to_frame()
    assert gap["second"].iloc[0] - gap["first"].iloc[0] == pytest.approx(7 * gap["slope"].iloc[0])


def test_a_break_is_told_with_its_period(trips: tuple[str, Analyst]) -> None:
    table = trips[1].breaks("trips", "how", levels=["open"]).to_frame()
    assert table.loc["bus", "period"] == DAYS[4]
    assert table.loc["bus", "before"] == pytest.approx(0.5, abs=0.1)
    assert table.loc["bus", "after"] == pytest.approx(0.2, abs=0.1)
    assert "mix" not in table


def test_sums_and_ranges_change_too(trips: tuple[str, Analyst]) -> None:
    summed = (
        trips[1].change("trips", "how", DAYS[0], DAYS[-1], sums=[VALUES[:2], VALUES]).to_frame()
    )
    assert summed.index.tolist() == ["bus + train", " + ".join(VALUES)]
    assert summed["difference"].iloc[1] == pytest.approx(0, abs=1e-9)
    table = trips[1].change("trips", "leaves", DAYS[0], DAYS[-1], ranges=[(0, 9)]).to_frame()
    assert table.index.tolist() == ["0 to under 9"]
    assert table["difference"].iloc[0] == pytest.approx(-0.5, abs=0.35)
    assert trips[1].trend("trips", "leaves").to_frame().shape[0] == 8


def test_a_shift_of_levels_is_told_and_left_out(address: str, own: Callable[[str], Plan]) -> None:
    plan = own(TOML)
    rng = np.random.default_rng(1)
    for day, counts in ((DAYS[0], (3000, 400)), (DAYS[1], (400, 3000))):
        for level, count in zip(ROWS, counts, strict=True):
            shares = AFTER if level == "open" else BEFORE
            given = {"how": rng.choice(4, count, p=shares)}
            submit(address, batch(plan, level, day, given, 3))
    with Analyst(address) as analyst:
        with pytest.warns(UserWarning, match="shares of the levels or maps in the reports changed"):
            table = analyst.change(plan.survey, "how", DAYS[0], DAYS[1]).to_frame()
        assert abs(table.loc["bus", "difference"]) < 3 * table.loc["bus", "standard_error"]
        assert table.loc["bus", "mix"] == pytest.approx(-0.23, abs=0.1)
        submit(address, batch(plan, "open", DAYS[2], {"how": rng.choice(4, 500, p=AFTER)}, 4))
        with pytest.warns(UserWarning, match="not all periods have reports of each level"):
            found = analyst.trend(plan.survey, "how").to_frame()
        assert "mix" not in found


def test_a_period_that_is_not_over_is_told(address: str, own: Callable[[str], Plan]) -> None:
    plan = own(TOML)
    for day in (DAYS[0], TODAY):
        submit(address, batch(plan, "open", day, {"how": np.arange(400) % 4}, 3))
    with (
        Analyst(address) as analyst,
        pytest.warns(UserWarning, match=f"the period {TODAY} is not over"),
    ):
        analyst.change(plan.survey, "how", DAYS[0], TODAY).to_frame()


def test_sets_and_memos_change_too(address: str, own: Callable[[str], Plan]) -> None:
    plan = own(TOML.replace('title = "How do', 'memo = 1\ntitle = "How do'))
    rng = np.random.default_rng(1)
    for day, share in ((DAYS[0], 0.1), (DAYS[1], 0.6)):
        takes = np.where(rng.random((1500, 1)) < share, 2, -1)
        given = {"takes": takes, "how": rng.choice(4, 1500, p=BEFORE)}
        submit(address, batch(plan, "open", day, given, 5))
    with Analyst(address) as analyst:
        table = analyst.change(plan.survey, "takes", DAYS[0], DAYS[1]).to_frame()
        assert table.loc["dog", "difference"] == pytest.approx(0.5, abs=0.15)
        assert table.loc["dog", "adjusted_p_value"] < 1e-4
        assert abs(table.loc["book", "difference"]) < 4 * table.loc["book", "standard_error"]
        analyst.change(plan.survey, "how", DAYS[0], DAYS[1]).to_frame()


# --- panels ------------------------------------------------------------------------------------


def answer_in_panels(
    address: str, plan: Plan, days: Sequence[str], shares: Sequence[float], people: int
) -> None:
    """The same people answer on each day, by a memo; one in ten answers anew each day."""
    rng = np.random.default_rng(6)
    mechanism = plan.levels["open"].mechanisms["how"]
    matrix = mechanism.matrix()  # type: ignore[attr-defined]
    memos = (rng.random((4, people, 1)) > matrix.cumsum(axis=1)[:, None]).sum(axis=2)
    told = np.where(rng.random(people) < shares[0], 0, 1)
    panel = rng.integers(1, 17, people)
    for day, share in zip(days, shares, strict=True):
        anew = rng.random(people) < 0.1
        told[anew] = rng.random(anew.sum()) > share
        codes = memos[told, np.arange(people)].astype(mechanism.code_dtype)
        for number in range(1, 17):
            own = codes[panel == number]
            column = collector_pb2.Column(
                attribute="how", level="open", codes=mechanism.encode(own)
            )
            submit(
                address,
                collector_pb2.Batch(
                    id=os.urandom(16),
                    survey=plan.survey,
                    revision=plan.revision,
                    period=day,
                    rows=own.size,
                    columns=[column],
                    panel=number,
                ),
            )


PANELS = TOML.replace('period = "P1D"', 'period = "P1D"\npanels = 16').replace(
    'title = "How do', 'memo = 1\ntitle = "How do'
)


def test_panels_tell_the_error_of_people_who_keep_their_answers(
    address: str, own: Callable[[str], Plan]
) -> None:
    plan = own(PANELS)
    answer_in_panels(address, plan, DAYS[:6], [0.5] * 6, 4000)
    with Analyst(address) as analyst:
        table = analyst.change(plan.survey, "how", DAYS[0], DAYS[1]).to_frame()
        assert table.attrs["panels"] == 16
        assert (np.abs(table["difference"]) < 4 * table["standard_error"]).all()
        wide = analyst.compare(
            plan.survey, "how", {"periods": [DAYS[0]]}, {"periods": [DAYS[1]]}
        ).to_frame()
        assert table.loc["bus", "standard_error"] < 0.5 * wide.loc["bus", "standard_error"]
        assert analyst.trend(plan.survey, "how").to_frame().attrs["panels"] == 16
        assert analyst.breaks(plan.survey, "how").to_frame().attrs["panels"] == 16
        three = change_request(plan.survey, "how", "DIFFERENCE", {"periods": DAYS[:2]})
        three.selection.panels.extend([1, 2, 3])
        few = analyst._calls.ask("Answers/Change", three, 30.0)
        assert few.figures["panels"] == 0
        assert "the panels have too few reports to tell an error by" in few.warning
        # Whatever is not about change takes all panels together.
        assert analyst.estimate(plan.survey, "how").to_frame().attrs["reports"] == 24_000
    shown = hearsay("ask", "trend", plan.survey, "how", "--target", address).stdout
    assert "Errors from the spread of 16 panels" in shown


VIEWS = """
name = "kinds"
period = "P1D"
budget = "sample"
panels = 16
views = [["sex", "sleep"], ["sex", "smokes"]]
[levels]
strict = 1.0
open = 3.0
[[attributes]]
name = "sex"
[attributes.categorical]
values = ["female", "male"]
[[attributes]]
name = "sleep"
[attributes.categorical]
values = ["<7", "7", ">7"]
[[attributes]]
name = "smokes"
[attributes.categorical]
values = ["no", "yes"]
[[attributes]]
name = "stars"
[attributes.ratings]
keys = ["food", "staff"]
low = 1
high = 5
at_most = 2
"""


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("minutes", "'minutes' is a number, and has no values to sum"),
        ("apps", "'apps' is a set of items: people may have several"),
        ("stars", "'stars' are ratings: they have no values to sum"),
        ("word", "'word' is answered in words: ask for those that are frequent"),
    ],
)
def test_sums_over_time_are_refused_for_what_they_are_not_of(attribute: str, message: str) -> None:
    plan = parse(resolve(from_toml(VIEWS + WITHOUT_SUMS, "t")))
    options: ChangeOptions = {"periods": DAYS[:2], "sums": [["food"]]}
    request = change_request(plan.survey, attribute, "DIFFERENCE", options)
    with pytest.raises(InvalidInput, match=message):
        changes.change(plan, request, {})


WITHOUT_SUMS = """
[[attributes]]
name = "minutes"
[attributes.numeric]
low = 0
high = 60
[[attributes]]
name = "apps"
[attributes.set]
values = ["chat", "maps"]
[[attributes]]
name = "word"
[attributes.strings]
alphabet = "abcdefghijklmnopqrstuvwxyz"
longest = 8
"""


@pytest.mark.parametrize("panels", [True, False])
@pytest.mark.parametrize("attribute", ["sex", "sex+sleep", "stars"])
def test_views_and_ratings_change_too(attribute: str, panels: bool) -> None:
    """Food is rated by 20% and then by 70%; what views ask is evenly spread and stays."""
    plan = parse(resolve(from_toml(VIEWS, "t")))
    rng, coins = np.random.default_rng(1), SeededCoins(2)
    tallies = {}
    for question in plan.questions_of(plan.parts(attribute)):
        for level, day, panel in product(plan.levels, (0, 1), range(1, 17)):
            mechanism = plan.levels[level].mechanisms[question]
            values = rng.integers(6 if question == "sex+sleep" else 4, size=60)
            if question == "stars":
                values = np.where(rng.random((60, 1)) < [0.2, 0.7][day], 0, -1)
            tally = mechanism.tally(mechanism.randomize_many(values, coins))
            cohort = Cohort(
                plan.survey, plan.revision, question, level, DAYS[day], "", panel * panels
            )
            add_up(tallies, [(cohort, tally)])
    request = change_request(plan.survey, attribute, "DIFFERENCE", {"periods": DAYS[:2]})
    answer = changes.change(plan, request, tallies)
    assert answer.figures["panels"] == 16 * panels
    z = {row.label: row.difference / row.standard_error for row in rows_of(answer)}
    if attribute == "stars":
        assert answer.statistic == "share who rated"
        assert z.pop("food") > 3
    assert all(abs(value) < 3.5 for value in z.values())


# --- the command line --------------------------------------------------------------------------


def test_the_tables_fit_into_80_columns(trips: tuple[str, Analyst]) -> None:
    for view, *periods in (["change", DAYS[0], DAYS[-1]], ["trend"], ["breaks"]):
        shown = asked(trips, view, "how", *periods)
        assert max(map(len, shown.splitlines())) <= 80
        assert "…" not in shown
        assert "bike, or foot" in shown
        assert "How do you go to <b>work</b>?" in shown
        said = "Errors: the largest that the same people in several periods could make."
        assert said in " ".join(shown.split())
    counted = f"{DAYS[0]}: 1,100, {DAYS[-1]}: 1,100 reports"
    assert counted in asked(trips, "change", "how", DAYS[0], DAYS[-1])


def test_csv_json_and_plots_have_the_same(trips: tuple[str, Analyst], tmp_path: Path) -> None:
    table = trips[1].breaks("trips", "how").to_frame()
    file = tmp_path / "breaks.png"
    lines = list(csv.DictReader(asked(trips, "breaks", "how", "--csv").splitlines()))
    assert [line["period"] for line in lines] == table["period"].tolist()
    assert [float(line["difference"]) for line in lines] == pytest.approx(
        table["difference"].tolist()
    )
    assert [float(line["before"]) for line in lines] == pytest.approx(table["before"].tolist())
    (line,) = csv.DictReader(asked(trips, "trend", "minutes", "--csv").splitlines())
    slope = trips[1].trend("trips", "minutes").to_frame()["slope"].iloc[0]
    assert float(line["slope"]) == pytest.approx(slope)
    document = json.loads(asked(trips, "trend", "minutes", "--json", "--plot", file))
    assert document["figures"]["kind"] == "trend"
    assert list(document["parts"].values()) == [733] * 8
    assert file.stat().st_size > 1000
    between = ("leaves", DAYS[0], DAYS[-1], "--between", 0, 9, "--json")
    table = json.loads(asked(trips, "change", *between))["tables"]["rows"]
    assert table["index"] == {"leaves": ["0 to under 9"]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["change", DAYS[0], "2026-13-01"], "a P1D period reads like"),
        (["change", DAYS[0], "2020-01-01"], "no reports of 'how' in the period '2020-01-01'"),
        (["change", DAYS[0], DAYS[0]], "a difference is between two periods: name both"),
        (["trend", "--to", DAYS[1]], "a trend takes 3 periods with reports of 'how'"),
        (["breaks", "--to", DAYS[3]], "a break takes 5 periods with reports of 'how'"),
        (["change", DAYS[0], DAYS[1], "--between", "0", "9"], "those of a number in bins"),
        (["trend", "--sum", "boat"], "'boat' is no value of 'how'"),
    ],
)
def test_what_is_not_comparable_is_refused(
    trips: tuple[str, Analyst], arguments: list[str], message: str
) -> None:
    view, *given = arguments
    done = command(trips, view, "how", *given)
    assert done.returncode == 1
    assert message in re.sub(r"\s+", " ", done.stderr)


def test_a_survey_without_periods_has_no_change(address: str, own: Callable[[str], Plan]) -> None:
    plan = own(TOML.replace('period = "P1D"\n', ""))
    with Analyst(address) as analyst, pytest.raises(InvalidInput, match="has no periods"):
        analyst.trend(plan.survey, "how").to_frame()
    with Analyst(address) as analyst, pytest.raises(InvalidInput, match="without periods"):
        analyst.change("trips", "how", DAYS[0], DAYS[1], periods=[DAYS[0]]).to_frame()


def test_a_survey_without_reports_has_no_change(address: str, own: Callable[[str], Plan]) -> None:
    plan = own(TOML)
    with Analyst(address) as analyst, pytest.raises(NotReady, match="there are no such reports"):
        analyst.trend(plan.survey, "how").to_frame()
