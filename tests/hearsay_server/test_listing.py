"""What an analyst can list: surveys, what they ask, and how many reports they hold."""

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from collected import DAYS, VALUES, batch, register
from command import hearsay
from serving import submit

from hearsay import Analyst
from hearsay.plans.plan import Plan
from hearsay_server.storage.store import Store
from ldp import InvalidInput

TOML = f"""
name = "listed"
title = "Two questions"
period = "P1D"
default_level = "strict"
[levels]
strict = 1.0
open = 4.0
[[attributes]]
name = "colour"
title = "Which <colour> do you like?"
mechanism = "krr"
[attributes.categorical]
values = {list(VALUES)}
[[attributes]]
name = "size"
title = "How large is it?"
mechanism = "square_wave"
[attributes.numeric]
low = 0
high = 10
step = 1
"""


@pytest.fixture(scope="module")
def listed(address: str) -> str:
    """The server, with reports of the survey of `TOML`."""
    _, plan = register(address, TOML)
    for level, day, rows in (("strict", DAYS[2], 30), ("strict", DAYS[0], 60)):
        answers = {"colour": np.zeros(rows, dtype=int), "size": np.zeros(rows)}
        submit(address, batch(plan, level, day, answers, rows))
    submit(address, batch(plan, "open", DAYS[0], {"size": np.zeros(9)}, 1))
    return address


def test_surveys_attributes_levels_and_reports_are_frames(listed: str) -> None:
    with Analyst(listed) as analyst:
        surveys = analyst.surveys()
        attributes = analyst.attributes("listed")
        levels = analyst.levels("listed")
        reports = analyst.reports("listed")
        with pytest.raises(InvalidInput, match="there is no survey 'absent' here"):
            analyst.reports("absent")
    assert surveys.loc["listed"].to_dict() == {
        "title": "Two questions",
        "batches": 3,
        "records": 99,
        "closed": False,
    }
    assert attributes.loc["colour", ["title", "kind", "values"]].tolist() == [
        "Which <colour> do you like?",
        "categorical",
        VALUES,
    ]
    assert math.isnan(attributes.loc["colour", "low"])
    assert attributes.loc["size", ["kind", "values", "low", "high", "step"]].tolist() == [
        "numeric", None, 0.0, 10.0, 1.0,
    ]  # fmt: skip
    assert attributes["reports"].to_dict() == {"colour": 90, "size": 20 + 40 + 9}
    assert levels.to_dict("index") == {
        "strict": {"epsilon": 1.0, "default": True},
        "open": {"epsilon": 4.0, "default": False},
    }
    assert reports.index.tolist() == [DAYS[0], DAYS[2]]
    assert reports["colour", "strict"].tolist() == [60, 30]
    assert reports["size", "strict"].tolist() == [40, 20]
    assert reports["size", "open"].tolist() == [9, 0]
    assert ("colour", "open") not in reports.columns


def test_a_survey_without_reports_has_none_to_list(
    address: str, own: Callable[[str], Plan]
) -> None:
    survey = own(TOML).survey
    with Analyst(address) as analyst:
        assert analyst.reports(survey).empty
        assert analyst.attributes(survey)["reports"].tolist() == [0, 0]
    assert "reports  of" not in hearsay("survey", "show", survey, "--target", address).stdout


def test_numbers_of_reports_are_those_of_the_tallies(store: Store) -> None:
    from stored import add, daily

    add(store, [daily(number, number % 3) for number in range(12)])
    stored = store.survey("daily")
    assert stored
    expected = {
        cohort: tally.n
        for attribute in ("smokes", "age")
        for cohort, tally in store.tallies("daily", attribute).items()
    }
    assert expected
    assert store.reports(stored) == expected


def test_the_command_shows_questions_with_their_reports(listed: str) -> None:
    shown = hearsay("survey", "show", "listed", "--target", listed, COLUMNS="160").stdout
    assert f"reports  of 2 periods, {DAYS[0]} to {DAYS[2]}" in shown
    assert "Which <colour> do you like?" in shown
    assert ", ".join(VALUES) in shown
    assert "reports, strict" in shown
    document = json.loads(hearsay("survey", "show", "listed", "--json", "--target", listed).stdout)
    assert document["records"] == 99
    assert document["reports"][0] == {
        "attribute": "colour",
        "level": "strict",
        "map": "",
        "period": DAYS[0],
        "reports": 60,
    }
    assert len(document["reports"]) == 5
