"""Numbers that are protected by their value, from the survey file to the estimate."""

import io

import numpy as np
import pytest
from rich.console import Console

from hearsay import Analyst, PlanRefused
from hearsay_server.surveys import explain
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput
from ldp.testing import SeededCoins
from support import Server, device

SURVEY = """
name = "wages"
[levels]
strict = 1.0
open = 4.0
[[attributes]]
name = "wage"
[attributes.numeric]
low = 0
high = 2000
clamp = true
sensitive = [{ low = 801, high = 2000 }]
"""
LINE = SURVEY.replace(
    "sensitive = [{ low = 801, high = 2000 }]",
    "resolution = [{ upto = 800, within = 100 }, { upto = 2000, within = 400 }]\ncap = 2",
)


@pytest.mark.parametrize(
    ("given", "instead", "message"),
    [
        ("low = 801, high = 2000", "low = 801, high = 2001", r"must lie in 0\.\.2000"),
        ("low = 801", "from = 801", "unknown key 'from'"),
        ("low = 801, high = 2000 }", "low = 1, high = 9 }, { low = 5, high = 7 }", "not overlap"),
        (
            "low = 801, high = 2000 }",
            "low = 0, high = 9 }, { low = 10, high = 2000 }",
            "9..10 lies",
        ),
        (
            'name = "wage"',
            'name = "wage"\nmechanism = "hybrid"',
            "auto or mean_table where numbers",
        ),
        ('name = "wage"', 'name = "wage"\nmemo = 1', "memo is for categorical answers only"),
    ],
)
def test_regions_are_refused_with_the_place(given: str, instead: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^test: .*wage.*{message}|^test: .*{message}"):
        text = SURVEY.replace(given, instead)
        explain.explain(surveys.from_toml(text, "test"), "test", 100)


def shown(text: str) -> str:
    console = Console(file=io.StringIO(), width=100)
    explain.show(explain.explain(surveys.from_toml(text, "test"), "test", 10_000), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_explain_shows_which_numbers_are_protected_and_which_may_be_told_apart() -> None:
    said = shown(SURVEY)
    assert "numbers in 800..2000 from every number by epsilon\n" in said
    assert "a report may reveal other numbers (0..801 is ordinary)\n" in said
    rows = [line.replace("│", "").split() for line in said.splitlines()]
    assert ["0", *["for", "certain"] * 4] in rows
    assert ["2000", "1", "1", "1", "1"] in rows


def test_explain_shows_the_distances_of_a_resolution() -> None:
    said = " ".join(shown(LINE).split())
    assert (
        "numbers from 0 to 800 that are 100 apart by 0.5 epsilon, and that are 200 or more apart "
        "by epsilon" in said
    )
    assert "│ 1400 │ 1 │ 1 │ 0.75 │ │ 0.75 │" in said


def test_a_budget_knows_what_protection_costs() -> None:
    def variance(text: str) -> float:
        (question,) = surveys.questions(surveys.from_toml(text, "test"))
        return question.variance(1.0)

    plain = variance(SURVEY.replace("sensitive = [{ low = 801, high = 2000 }]", ""))
    assert variance(SURVEY) < 0.6 * plain < 0.6 * variance(LINE)


def test_an_app_names_the_ranges_that_its_users_may_reveal(server: Server) -> None:
    server.create(SURVEY)
    wages = np.linspace(0, 2400, 13)
    for number, wage in enumerate(wages):
        options = {"level": "open", "epsilon": 4.0, "coins": SeededCoins(number)}
        with device(server.address, "wages", may_reveal={"wage": ["0..801"]}, **options) as client:
            assert client.record(wage=float(wage)).taken == ("wage",)
    with pytest.raises(PlanRefused, match=r"may reveal 0\.\.801; .*\{'wage': \['0\.\.801'\]\}"):
        device(server.address, "wages", may_reveal={"wage": ["0..800"]})
    with Analyst(server.address) as analyst:
        (row,) = analyst.query("wages", "wage").rows
    assert abs(row.estimate - np.minimum(wages, 2000).mean()) < 4 * row.standard_error
    assert 0 < row.standard_error < 300
