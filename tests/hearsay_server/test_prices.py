"""What looser levels are worth, at the command line."""

import json
from pathlib import Path

import pytest
from command import hearsay

from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys import worth
from hearsay_server.surveys.explain import explain
from support import SURVEY

EIGHT = ("plan", "--k", 8, "--prices", "--levels", "0.5,1,2,4")


def test_levels_have_their_worth_share_and_price() -> None:
    asked = ("--respondents", "4000,3000,2000,1000", "--budget", 3000)
    found = json.loads(hearsay(*EIGHT, *asked, "--json").stdout)
    assert found["reference"] == "1"
    assert 8 * found["variance"] == pytest.approx(6.710e-4, rel=1e-3)  # over eight frequencies
    rows = found["levels"]
    assert [row["share"] for row in rows] == pytest.approx([0.028, 0.089, 0.302, 0.581], abs=6e-4)
    shown = hearsay(*EIGHT, *asked).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert f"-{100 * rows[3]['lowers']:.2g}%" in shown
    assert rows[3]["lowers"] == pytest.approx(rows[3]["share"] / 1000)
    assert sum(row["price"] * row["respondents"] for row in rows) == pytest.approx(3000)
    assert rows[3]["price"] / rows[1]["price"] == pytest.approx(rows[3]["in_respondents"])


def test_a_model_of_people_has_its_menus() -> None:
    asked = ("--highest", "0.4,0.3,0.2,0.1", "--cost", "1,1", "--n", 4000, "--budget", 1200)
    found = {m["menu"]: m for m in json.loads(hearsay(*EIGHT, *asked, "--json").stdout)["menus"]}
    assert {round(menu["spent"]) for menu in found.values()} == {1200}
    variances = {name: menu["variance"] for name, menu in found.items()}
    assert min(variances, key=lambda name: variances[name]) == "best found"
    # .0598 of information from each of 4,000, about the mean of eight frequencies.
    assert 1 / variances["by information"] == pytest.approx(4000 * 8 * 0.0598, rel=1e-3)


@pytest.mark.slow
def test_a_survey_is_priced_by_its_own_mechanisms(tmp_path: Path) -> None:
    file = tmp_path / "survey.toml"
    file.write_text(SURVEY)
    rows = json.loads(hearsay("plan", "--prices", "--survey", file, "--json").stdout)["levels"]
    assert [row["level"] for row in rows] == ["strict", "open"]
    told = explain(surveys.from_toml(SURVEY, "t"), "t", 1000)
    assert told.precisions is not None
    found = {
        (each.level, each.attribute): each for each in worth.of(told.plan, told.precisions, 1000)
    }
    for name in ("smokes", "age"):
        strict, loose = (row for row in told.rows if row.attribute == name)
        expected = (strict.error / loose.error) ** 2
        assert found["open", name].respondents == pytest.approx(expected)
        assert found["open", name].share == pytest.approx(expected / (1 + expected))
        assert found["open", name].lowers == pytest.approx(found["open", name].share / 500)
    assert rows[1]["in_respondents"] == pytest.approx(found["open", ""].respondents)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (("plan", "--k", 8, "--prices", "--levels", "1"), "prices for one level only"),
        (("plan", "--k", 8, "--prices"), "--prices takes --levels"),
        (("plan", "--k", 8, "--levels", "1,2", "--n", 5, "--epsilon", 1), "go with --prices"),
        ((*EIGHT, "--levels", "1,two"), "--levels takes numbers with commas between"),
        ((*EIGHT, "--respondents", "1,2"), "--respondents takes 4 numbers, got 2"),
        ((*EIGHT, "--budget", 5), "say how many you expect at each level"),
        ((*EIGHT, "--n", 5), "give --highest"),
        ((*EIGHT, "--highest", "1,0,0,0"), "a model of people takes"),
        ((*EIGHT, "--epsilon", 1), "--prices goes without --epsilon"),
        ((*EIGHT, "--panels", 4, "--explain"), "--prices goes without --panels, --explain"),
        ((*EIGHT, "--simultaneous", "--power", 0.9), "goes without --power, --simultaneous"),
        (("plan", "--prices", "--survey", "s", "--truth", 0), "--survey has its own questions"),
        ((*EIGHT, "--levels", "2,1"), "in order of epsilon"),
    ],
)
def test_what_cannot_be_priced_is_refused(arguments: tuple[object, ...], match: str) -> None:
    done = hearsay(*arguments)
    assert done.returncode == 1
    assert match in done.stderr


def test_a_survey_of_one_level_is_refused_and_not_explained_by_worth(tmp_path: Path) -> None:
    file = tmp_path / "survey.toml"
    file.write_text(SURVEY.replace("open = 4.0\n", ""))
    done = hearsay("plan", "--prices", "--survey", file)
    assert "has one level: prices for one level only" in done.stderr
    assert "worth" not in hearsay("survey", "explain", file).stdout
