"""Sums, comparisons and all attributes at once, asked of a server that holds three days."""

import csv
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay
from serving import submit

from hearsay import Analyst
from hearsay.asking.analyst import Selection
from hearsay.plans.plan import Plan, parse
from hearsay_server.answers.queries import by_level
from hearsay_server.answers.repeats import of_levels
from hearsay_server.ingest.intake import Cohort
from hearsay_server.surveys.survey import from_toml, resolve
from ldp import InvalidInput, Tally
from ldp.core.repeated import Repeats
from ldp.errors import NotReady
from ldp.estimating.differences import differences, holm

VALUES = ["bus", "train", "bike, or foot", "<i>car</i>"]
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
mechanism = "square_wave"
[attributes.numeric]
low = 0
high = 100
step = 10
[[attributes]]
name = "later"
title = "Nobody was asked this yet"
mechanism = "krr"
[attributes.categorical]
values = ["no", "yes"]
"""
SHARES = {DAYS[0]: [0.4, 0.3, 0.2, 0.1], DAYS[1]: [0.2, 0.5, 0.2, 0.1]}
ROWS = {"strict": 1500, "open": 900}
MEMO = TOML.replace('title = "How do', 'memo = 1\ntitle = "How do')


@pytest.fixture(scope="module")
def trips(address: str) -> Iterator[tuple[str, Analyst]]:
    with Analyst(address) as analyst:
        _, plan = register(address, TOML)
        rng = np.random.default_rng(5)
        for day, shares in SHARES.items():
            for level, rows in ROWS.items():
                answers: dict[str, Any] = {
                    "how": rng.choice(4, rows, p=shares),
                    "minutes": np.round(rng.beta(2, 4, rows) * 10) / 5 - 1,
                }
                submit(address, batch(plan, level, day, answers, rows))
        yield address, analyst


def command(
    trips: tuple[str, Analyst], *arguments: object, view: str = "query"
) -> CompletedProcess[str]:
    return hearsay(*view.split(), "trips", *arguments, "--target", trips[0], COLUMNS="200")


def asked(trips: tuple[str, Analyst], *arguments: object, view: str = "query") -> str:
    done = command(trips, *arguments, view=view)
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- sums --------------------------------------------------------------------------------------


@pytest.mark.parametrize("chosen", [{}, {"levels": ["open"]}, {"method": "mle"}], ids=str)
def test_a_sum_is_of_the_estimates_shown_with_an_error_of_its_own(
    trips: tuple[str, Analyst], chosen: Any
) -> None:
    table = trips[1].estimate("trips", "how", **chosen).to_frame()
    sets = [["bus", "train"], ["<i>car</i>"]]
    found = trips[1].sums("trips", "how", sets, **chosen).to_frame()
    assert found.index.tolist() == ["bus + train", "<i>car</i>"]
    assert found.attrs["method"] == table.attrs["method"]
    assert found["estimate"].tolist() == pytest.approx(
        [table["estimate"].iloc[:2].sum(), table["estimate"].iloc[3]]
    )
    # Whoever says bus does not say train: errors of values do not add up as if independent.
    independent = np.sqrt((table["standard_error"].iloc[:2] ** 2).sum())
    assert found["standard_error"].iloc[0] < 0.95 * independent
    assert found["standard_error"].iloc[1] == pytest.approx(
        table["standard_error"].iloc[3], rel=0.03
    )
    assert found["low"].iloc[0] < found["estimate"].iloc[0] < found["high"].iloc[0]
    assert (found["effective_sample_size"] > 0).all()


def test_sums_are_of_the_values_that_consistency_made(trips: tuple[str, Analyst]) -> None:
    table = trips[1].estimate("trips", "how", consistency="norm-sub").to_frame()
    found = trips[1].sums("trips", "how", [VALUES[:3]], consistency="norm-sub").to_frame()
    assert found["estimate"].tolist() == pytest.approx([table["estimate"].iloc[:3].sum()])
    assert found["raw"].tolist() == pytest.approx([table["raw"].iloc[:3].sum()])


@pytest.mark.parametrize(
    ("attribute", "sets", "options", "message"),
    [
        ("how", [["bus", "boat"]], {}, "'boat' is no value of 'how': expected bus, train"),
        ("how", [["bus", "bus"]], {}, "a sum has each value once, got 'bus' twice"),
        ("how", [[]], {}, "a sum is of one value at least, got none"),
        ("how", [], {}, "give one set of values at least, got none"),
        ("how", ["bus"], {}, "each sum is a list of values, got \\['bus'\\]"),
        ("how", [["bus"]], {"forged": 3}, "what forged reports can do to a sum is not known"),
        ("minutes", [["0"]], {}, "'minutes' is a number, and has no values to sum"),
    ],
    ids=range(7),
)
def test_a_sum_that_cannot_be_had_is_refused(
    trips: tuple[str, Analyst], attribute: str, sets: Any, options: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        trips[1].sums("trips", attribute, sets, **options).to_frame()


# --- comparisons -------------------------------------------------------------------------------


def test_two_periods_are_compared_as_the_mathematics_says(trips: tuple[str, Analyst]) -> None:
    analyst = trips[1]
    first, second = (Selection(periods=[day]) for day in list(SHARES))
    table = analyst.compare("trips", "how", first, second).to_frame()
    for column, part in (("first", first), ("second", second)):
        alone = analyst.estimate("trips", "how", **part).to_frame()
        assert table[column].tolist() == pytest.approx(alone["estimate"].tolist())
    assert table["difference"].tolist() == pytest.approx(
        (table["second"] - table["first"]).tolist()
    )
    assert table["adjusted_p_value"].tolist() == pytest.approx(holm(table["p_value"]).tolist())
    assert (table.loc[["bus", "train"], "adjusted_p_value"] < 0.001).all()
    assert table.attrs["repeats"] == 2.0  # the same people may have answered on both days
    assert table.attrs["reports"] == {"first": 2400, "second": 2400}
    alone = [analyst.estimate("trips", "how", **part).to_frame() for part in (first, second)]
    independent = np.sqrt(sum(each["standard_error"] ** 2 for each in alone))
    assert (table["standard_error"] > independent).all()
    assert (table["low"] < table["difference"]).all()
    wide = analyst.compare(
        "trips", "how", first, second, simultaneous=True, confidence=0.9
    ).to_frame()
    assert (wide["high"] - wide["low"] > 1.05 * (table["high"] - table["low"])).all()


def test_two_levels_of_a_day_are_of_different_people(trips: tuple[str, Analyst]) -> None:
    analyst = trips[1]
    day = next(iter(SHARES))
    parts = [Selection(levels=[level], periods=[day]) for level in ROWS]
    table = analyst.compare("trips", "minutes", *parts).to_frame()
    alone = [analyst.estimate("trips", "minutes", **part).to_frame() for part in parts]
    assert table.attrs["repeats"] == 1.0
    error = np.sqrt(sum(each["standard_error"].iloc[0] ** 2 for each in alone))
    assert table["standard_error"].tolist() == pytest.approx([error], rel=0.02)
    difference = alone[1]["estimate"].iloc[0] - alone[0]["estimate"].iloc[0]
    assert table["difference"].tolist() == pytest.approx([difference])
    assert table["adjusted_p_value"].tolist() == table["p_value"].tolist()


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"periods": [DAYS[0]]}, {"levels": ["open"]}, "have no reports in common: both have the"),
        ({"levels": ["lax"]}, {"levels": ["open"]}, "level must be one of strict, open, got 'lax'"),
        ({"periods": ["2026"]}, {}, "a P1D period reads like"),
    ],
    ids=["common", "level", "period"],
)
def test_parts_that_cannot_be_compared_are_refused(
    trips: tuple[str, Analyst], first: Any, second: Any, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        trips[1].compare("trips", "how", first, second).to_frame()


def test_a_part_without_reports_is_named(trips: tuple[str, Analyst]) -> None:
    with pytest.raises(NotReady, match="no reports of 'how' in the second part yet"):
        trips[1].compare(
            "trips", "how", {"periods": [DAYS[0]]}, {"periods": ["1999-01-01"]}
        ).to_frame()
    with pytest.raises(TypeError, match="unknown options \\['period'\\]"):
        trips[1].compare("trips", "how", {"period": DAYS[0]}, {}).to_frame()  # type: ignore[typeddict-unknown-key]


def test_a_memo_that_both_parts_repeat_widens_their_whole_error() -> None:
    plan = parse(resolve(from_toml(MEMO, "test.toml")))
    first, second = (
        {Cohort("trips", plan.revision, "how", "open", day): Tally(1000, np.array(counts))}
        for day, counts in ((DAYS[0], [400, 300, 200, 100]), (DAYS[1], [300, 400, 200, 100]))
    )
    assert of_levels(plan, first) == [Repeats(1.0, True)]
    assert of_levels(plan, first, second) == [Repeats(2.0, True)]
    found = differences(by_level(plan, "how", first, second), by_level(plan, "how", second, first))
    apart = differences(by_level(plan, "how", first), by_level(plan, "how", second))
    assert found.standard_error == pytest.approx(np.sqrt(2) * apart.standard_error)


def test_a_change_of_the_levels_shares_is_told(
    trips: tuple[str, Analyst], own: Callable[[str], Plan]
) -> None:
    address, analyst = trips
    plan = own(TOML)
    for day, level, rows in (
        (DAYS[0], "strict", 300), (DAYS[0], "open", 100),
        (DAYS[1], "strict", 100), (DAYS[1], "open", 300),
    ):  # fmt: skip
        submit(address, batch(plan, level, day, {"how": np.zeros(rows, dtype=int)}, rows))
    parts: list[Selection] = [{"periods": [day]} for day in DAYS[:2]]
    with pytest.warns(UserWarning, match="level open in the reports went from 25% to 75%|strict"):
        analyst.compare(plan.survey, "how", *parts).to_frame()
    parts = [{"periods": [day], "levels": ["open"]} for day in DAYS[:2]]
    assert analyst.compare(plan.survey, "how", *parts).to_frame().attrs["warning"] == ""


# --- the command -------------------------------------------------------------------------------


def test_a_survey_without_an_attribute_is_answered_whole(trips: tuple[str, Analyst]) -> None:
    shown = asked(trips)
    for title in ("How do you go to <b>work</b>?", "How long does it take?"):
        assert title in shown
    assert "Nobody was asked this yet" not in shown
    documents = json.loads(asked(trips, "--json", "--level", "open"))
    assert [each["subjects"][0]["name"] for each in documents] == ["how", "minutes"]
    assert json.loads(asked(trips, "--json", "how", "minutes", "--level", "open")) == documents
    lines = list(csv.DictReader(asked(trips, "--csv", "--by", "period").splitlines()))
    assert [(line["attribute"], line["period"]) for line in lines] == [
        *(("how", day) for day in SHARES for _ in VALUES),
        *(("minutes", day) for day in SHARES),
    ]
    assert lines[0]["effective_sample_size"]
    assert lines[-1]["effective_sample_size"] == ""
    assert [line["reports"] for line in lines[:: len(VALUES)][:2]] == ["2400", "2400"]


def test_csv_columns_say_what_they_hold(trips: tuple[str, Analyst]) -> None:
    lines = list(csv.DictReader(asked(trips, "how", "--csv").splitlines()))
    assert list(lines[0]) == [
        "attribute", "statistic", "value", "estimate", "standard_error", "low", "high",
        "effective_sample_size", "alike", "alike_low", "alike_high", "confidence", "reports",
    ]  # fmt: skip
    assert [line["value"] for line in lines] == VALUES
    assert {line["statistic"] for line in lines} == {"frequency"}
    assert {line["reports"] for line in lines} == {"4800"}
    compared = asked(trips, "how", "level=strict,open", "--csv", view="ask compare")
    assert list(next(csv.DictReader(compared.splitlines()))) == [
        "attribute", "how", "first", "second", "difference", "standard_error",
        "low", "high", "p_value", "adjusted_p_value", "confidence", "reports",
    ]  # fmt: skip


def test_the_command_sums_and_compares(trips: tuple[str, Analyst]) -> None:
    summed = asked(trips, "how", "--sum", "bus,train", "--sum", '"bike, or foot",bus')
    assert re.search(r"bus \+ train +│ +0\.\d{4}", summed)
    assert re.search(r"bike, or foot \+ bus +│ +0\.\d{4}", summed)
    compared = asked(trips, "how", f"period={DAYS[0]},{DAYS[1]}", view="ask compare")
    assert re.search(r"│ train +│ +0\.\d+ │ +0\.\d+ to 0\.\d+ │ +0\.\d+ │ +0\.\d+ │", compared)
    assert "2,400 reports; errors allow for people with 2 reports each" in compared
    ranges = f"period={DAYS[0]}..{DAYS[0]},{DAYS[1]}.."
    document = json.loads(asked(trips, "how", ranges, "--json", view="ask compare"))
    assert document["parts"] == {"first": 2400, "second": 2400}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("query trips --sum bus", "'minutes' is a number, and has no values to sum"),
        ("ask compare trips how week=1,2", "the survey has no property 'week'"),
        ("ask compare trips how level=open", "compare must read like level=A,B"),
        ("ask compare trips how level=strict,open --level open", "or --level, not both"),
        (f"ask compare trips how period={DAYS[0]},{DAYS[1]} --to {DAYS[1]}", "not both"),
        ("query trips how --plot plot.txt", "--plot must name a file that ends in .png, .svg"),
        ("query trips how --plot nowhere/plot.png", "--plot: there is no folder nowhere"),
        ("query trips how --plot plot.png --watch 1", "--watch does not draw"),
    ],
    ids=range(8),
)
def test_the_command_refuses_what_it_cannot_do(
    trips: tuple[str, Analyst], arguments: str, message: str
) -> None:
    refused = hearsay(*arguments.split(), "--target", trips[0])
    assert refused.returncode == 1
    assert message in refused.stderr


# --- notebooks and plots -----------------------------------------------------------------------


def test_a_notebook_shows_an_answer_with_its_question_and_no_markup_of_others(
    trips: tuple[str, Analyst],
) -> None:
    analyst = trips[1]
    parts: list[Selection] = [{"periods": [day]} for day in SHARES]
    for answer in (
        analyst.estimate("trips", "how"),
        analyst.by_level("trips", "how"),
        analyst.sums("trips", "how", [VALUES]),
        analyst.compare("trips", "how", *parts),
    ):
        shown = answer._repr_html_()
        assert "How do you go to &lt;b&gt;work&lt;/b&gt;?" in shown
        assert "&lt;i&gt;car&lt;/i&gt;" in shown
        assert "<b>work" not in shown
        assert "<i>car" not in shown
        assert "95% intervals" in shown


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_answers_are_drawn_into_a_file(
    trips: tuple[str, Analyst], tmp_path: Path, ending: str
) -> None:
    file = tmp_path / f"plot.{ending}"
    asked(trips, "--plot", file)
    begin = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[ending]
    assert file.read_bytes().startswith(begin)


@pytest.mark.parametrize(
    ("view", "arguments"),
    [
        ("query", "how --by level"),
        ("query", "how --sum bus,train"),
        ("ask compare", "how level=strict,open"),
        ("ask distribution", "minutes"),
    ],
)
def test_every_kind_of_answer_can_be_drawn(
    trips: tuple[str, Analyst], tmp_path: Path, view: str, arguments: str
) -> None:
    asked(trips, *arguments.split(), "--plot", tmp_path / "plot.png", view=view)
    assert (tmp_path / "plot.png").stat().st_size > 5000
