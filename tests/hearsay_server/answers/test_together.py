"""Two attributes together, asked of a server: tables, tests, groups and regressions."""

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest
from collected import DAYS, batch, register
from command import hearsay
from serving import submit

from hearsay import Analyst
from hearsay.asking import plots, rows
from hearsay.plans.plan import Plan
from ldp import InvalidInput
from ldp.errors import NotReady
from ldp.estimating.independence import independence
from ldp.estimating.joint import differences_between, joint, means_within, within
from ldp.estimating.pairs import count_pairs

TOML = """
name = "sleepers"
title = "Sleep"
period = "P1D"
[levels]
strict = 8.0
open = 20.0
[[attributes]]
name = "smokes"
title = "Do you smoke?"
mechanism = "krr"
[attributes.categorical]
values = ["no", "yes"]
[[attributes]]
name = "sleep"
title = "How do you sleep?"
mechanism = "oue"
[attributes.categorical]
values = ["well", "so so", "badly"]
[[attributes]]
name = "hours"
title = "How long do you sleep?"
mechanism = "piecewise"
[attributes.numeric]
low = 0
high = 10
[[attributes]]
name = "weight"
title = "Nobody was asked this yet"
mechanism = "onebit"
[attributes.numeric]
low = 0
high = 100
"""
SAMPLED = """
name = "sampled"
budget = "sample"
[levels]
open = 4.0
[[attributes]]
name = "a"
[attributes.categorical]
values = ["x", "y"]
[[attributes]]
name = "b"
[attributes.categorical]
values = ["x", "y"]
"""
VIEWED = """
name = "viewed"
views = [["a", "b"], ["b", "c"]]
[levels]
open = 6.0
[[attributes]]
name = "a"
title = "A?"
[attributes.categorical]
values = ["x", "y"]
[[attributes]]
name = "b"
[attributes.categorical]
values = ["u", "v", "w"]
[[attributes]]
name = "c"
[attributes.categorical]
values = ["x", "y"]
"""
WITHIN = np.array([[0.6, 0.3, 0.1], [0.3, 0.3, 0.4]])
HOURS = np.array([7.5, 6.0])
ROWS = {"strict": 3000, "open": 2000}


def people(n: int, rng: np.random.Generator) -> dict[str, Any]:
    """Return n people's answers: who smokes sleeps worse, and shorter."""
    smokes = (rng.random(n) < 0.3).astype(int)
    sleep = (rng.random(n)[:, None] > np.cumsum(WITHIN, axis=1)[smokes]).sum(axis=1)
    hours = HOURS[smokes] + rng.uniform(-1.5, 1.5, n)
    return {"smokes": smokes, "sleep": sleep, "hours": hours / 5 - 1}


@pytest.fixture(scope="module")
def asked(address: str) -> Iterator[tuple[str, Analyst, Plan]]:
    with Analyst(address) as analyst:
        _, plan = register(address, TOML)
        rng = np.random.default_rng(5)
        for level, n in ROWS.items():
            submit(address, batch(plan, level, DAYS[0], people(n, rng), n))
        alone = {"smokes": np.ones(500, dtype=int)}  # who did not answer the rest
        submit(address, batch(plan, "open", DAYS[0], alone, 9))
        yield address, analyst, plan


def command(asked: tuple[str, Analyst, Plan], *arguments: object) -> CompletedProcess[str]:
    return hearsay(*arguments, "--target", asked[0], COLUMNS="200")


def printed(asked: tuple[str, Analyst, Plan], *arguments: object) -> str:
    done = command(asked, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def stored(
    asked: tuple[str, Analyst, Plan], first: str, second: str, levels: tuple[str, ...]
) -> list[Any]:
    """Return the cohorts of two attributes, read from the exported rows, level by level."""
    chunks = asked[1].chunks("sleepers")
    next(chunks)
    plan = asked[2]
    found: dict[str, Any] = {}
    for chunk in chunks:
        for level in levels:
            columns = {c.attribute: c for c in chunk.columns if c.level == level}
            if first not in columns or second not in columns:
                continue
            decoded = rows.decode(plan, chunk)
            both = np.flatnonzero(
                (decoded[first].levels == list(plan.levels).index(level))
                & (decoded[second].levels == list(plan.levels).index(level))
            )
            mechanisms = [plan.levels[level].mechanisms[name] for name in (first, second)]
            codes = []
            for name, mechanism in zip((first, second), mechanisms, strict=True):
                data = [decoded[name].codes[row] for row in both]
                if not isinstance(data[0], bytes):
                    data = [int(c).to_bytes(mechanism.code_bytes, "little") for c in data]
                codes.append(mechanism.decode(b"".join(map(bytes, data)), both.size))
            tally = count_pairs(mechanisms[0], codes[0], mechanisms[1], codes[1])
            found[level] = found[level] + tally if level in found else tally
    return [
        (*(plan.levels[level].mechanisms[name] for name in (first, second)), tally)
        for level, tally in found.items()
    ]


# --- tables and tests --------------------------------------------------------------------------


def test_a_crosstab_is_the_joint_table_of_the_stored_records(
    asked: tuple[str, Analyst, Plan],
) -> None:
    found = asked[1].crosstab("sleepers", "smokes", "sleep").to_frame()
    expected = joint(stored(asked, "smokes", "sleep", ("strict", "open")))
    assert found["estimate"].tolist() == pytest.approx(expected.value.ravel().tolist())
    assert found["standard_error"].tolist() == pytest.approx(expected.standard_error.ravel())
    assert found.index.names == ["smokes", "sleep"]
    assert found.index[1] == ("no", "so so")
    truth = np.array([[0.7], [0.3]]) * WITHIN
    away = (found["estimate"].to_numpy() - truth.ravel()) / found["standard_error"].to_numpy()
    assert np.abs(away).max() < 4
    both = sum(n - -(-n // 3) for n in ROWS.values())  # every third did not tell how they sleep
    assert found.attrs["reports"] == both == 3333
    assert found.attrs["method"] == "stratified"
    test = independence(stored(asked, "smokes", "sleep", ("strict", "open")))
    assert found.attrs["chi2"]["statistic"] == pytest.approx(test.statistic)
    tested = asked[1].chi2_contingency("sleepers", "smokes", "sleep", levels=["open"])
    assert tested.confidence == 0  # a test has no interval
    series = tested.to_frame().iloc[0]
    assert series["dof"] == 2
    assert series["pvalue"] < 1e-10
    assert series["reports"] == 1333


def test_the_likely_table_has_no_negative_share(asked: tuple[str, Analyst, Plan]) -> None:
    raw = asked[1].crosstab("sleepers", "smokes", "sleep", levels=["strict"]).to_frame()
    found = (
        asked[1]
        .crosstab("sleepers", "smokes", "sleep", levels=["strict"], nonnegative=True, method="gls")
        .to_frame()
    )
    assert found["estimate"].sum() == pytest.approx(1)
    assert found["raw"].tolist() == pytest.approx(raw["estimate"].tolist())
    assert found.attrs["method"] == "debias + likely"


def test_groups_are_compared(asked: tuple[str, Analyst, Plan]) -> None:
    found = asked[1].compare("sleepers", "sleep", by="smokes").to_frame()
    table = joint(stored(asked, "smokes", "sleep", ("strict", "open")))
    groups = within(table)
    expected = differences_between(groups)
    assert found["difference"].tolist() == pytest.approx(expected.value[0])
    assert found["standard_error"].tolist() == pytest.approx(expected.standard_error[0])
    assert found.index[0] == ("no", "yes", "well")
    assert (found["adjusted_p_value"][[("no", "yes", "well"), ("no", "yes", "badly")]] < 0.01).all()
    truth = WITHIN[1] - WITHIN[0]
    assert (np.abs(found["difference"] - truth) < 4 * found["standard_error"]).all()
    shares = asked[1].within("sleepers", "sleep", "smokes").to_frame()
    assert shares.loc["yes", "estimate"].sum() == pytest.approx(1)
    assert shares["estimate"].tolist() == pytest.approx(groups.value.ravel())
    assert shares.attrs["groups"]["yes"] == pytest.approx(groups.share[1])


def test_means_of_a_number_are_compared_in_its_unit(asked: tuple[str, Analyst, Plan]) -> None:
    found = asked[1].compare("sleepers", "hours", by="smokes", reference="yes").to_frame()
    cohorts = stored(asked, "hours", "smokes", ("strict", "open"))
    expected = differences_between(means_within(cohorts).rescaled((0.0, 10.0)), 1)
    assert found.index.tolist() == [("yes", "no", "mean")]
    assert found["difference"].iloc[0] == pytest.approx(expected.value[0, 0])
    assert found["difference"].iloc[0] == pytest.approx(
        1.5, abs=4 * found["standard_error"].iloc[0]
    )
    assert found["first"].iloc[0] == pytest.approx(6, abs=0.6)
    assert found.attrs["statistic"] == "mean"


# --- regressions -------------------------------------------------------------------------------


def test_a_linear_regression_finds_who_sleeps_longer(asked: tuple[str, Analyst, Plan]) -> None:
    found = asked[1].ols("sleepers", "hours ~\n    smokes", levels=["open"]).to_frame()
    assert found.attrs["title"] == "hours ~ smokes"  # on one line
    assert found.index.tolist() == ["Intercept", "smokes[T.yes]"]
    truth = np.array([7.5, -1.5])
    assert (np.abs(found["estimate"] - truth) < 4 * found["standard_error"]).all()
    assert found.attrs["n"] == 2000
    assert found.attrs["method"] == "corrected"
    assert np.isfinite(found.loc["smokes[T.yes]", "naive"])
    both = asked[1].ols("sleepers", "smokes ~ hours + C(sleep)", success="yes").to_frame()
    assert both.index.tolist() == [
        "Intercept",
        "hours",
        "C(sleep)[T.so so]",
        "C(sleep)[T.badly]",
    ]
    assert both["estimate"].iloc[1] < -3 * both["standard_error"].iloc[1]
    assert both.attrs["method"] == "corrected, stratified"


def test_a_logistic_regression_finds_the_odds(asked: tuple[str, Analyst, Plan]) -> None:
    found = asked[1].logit("sleepers", "smokes ~ sleep").to_frame()
    odds = WITHIN * np.array([[0.7], [0.3]])
    logs = np.log(odds[1] / odds[0])
    truth = np.array([logs[0], logs[1] - logs[0], logs[2] - logs[0]])
    assert (np.abs(found["estimate"] - truth) < 4 * found["standard_error"]).all()
    assert found.index.name == "smokes[yes]"


# --- what cannot be asked ----------------------------------------------------------------------


def test_questions_that_records_do_not_answer_are_refused(
    asked: tuple[str, Analyst, Plan],
) -> None:
    analyst = asked[1]
    with pytest.raises(InvalidInput, match="'hours' has no list of values"):
        analyst.crosstab("sleepers", "smokes", "hours").to_frame()
    with pytest.raises(InvalidInput, match="names two, got 'smokes' twice"):
        analyst.crosstab("sleepers", "smokes", "smokes").to_frame()
    with pytest.raises(InvalidInput, match="'sleepers' has no attribute 'age'"):
        analyst.crosstab("sleepers", "smokes", "age").to_frame()
    with pytest.raises(NotReady, match="no stored record reports both 'weight' and 'smokes' yet"):
        analyst.within("sleepers", "weight", "smokes").to_frame()
    with pytest.raises(InvalidInput, match="'smokes' has no value 'perhaps'; its values are"):
        analyst.compare("sleepers", "sleep", by="smokes", reference="perhaps").to_frame()
    with pytest.raises(InvalidInput, match="give two parts of the reports or by, not both"):
        analyst.compare("sleepers", "sleep", {"levels": ["open"]}, by="smokes").to_frame()
    with pytest.raises(InvalidInput, match="or give by"):
        analyst.compare("sleepers", "sleep").to_frame()
    with pytest.raises(InvalidInput, match="method must be stratified or gls, got 'mle'"):
        analyst.crosstab("sleepers", "smokes", "sleep", method="mle").to_frame()
    with pytest.raises(InvalidInput, match="means are stratified by level, got method 'gls'"):
        analyst.within("sleepers", "hours", "smokes", method="gls").to_frame()
    with pytest.raises(InvalidInput, match="onebit reports tell nothing of a number's square"):
        analyst.ols("sleepers", "hours ~ weight", levels=["open"]).to_frame()


def test_views_that_share_no_record_are_told_of(address: str, asked: Any) -> None:
    register(address, SAMPLED)
    with pytest.raises(InvalidInput, match="no record reports 'a' and 'b' together: a record of"):
        asked[1].crosstab("sampled", "a", "b").to_frame()
    register(address, VIEWED)
    with pytest.raises(InvalidInput, match="no view asks 'a' and 'c' together"):
        asked[1].crosstab("viewed", "a", "c").to_frame()
    with pytest.raises(InvalidInput, match="no view asks 'a' and 'b' together, and only"):
        asked[1].logit("viewed", "a ~ b").to_frame()


def test_a_view_answers_as_split_records_do(address: str, asked: Any) -> None:
    _, plan = register(address, VIEWED.replace('"viewed"', '"seen"'))
    cells = np.random.default_rng(3).choice(6, 4000, p=(np.array([[0.7], [0.3]]) * WITHIN).ravel())
    submit(address, batch(plan, "open", "once", {"a+b": cells}, 4000))
    found = asked[1].crosstab("seen", "b", "a").to_frame()
    truth = (np.array([[0.7], [0.3]]) * WITHIN).T.ravel()
    assert (np.abs(found["estimate"] - truth) < 4 * found["standard_error"]).all()
    assert found.attrs["chi2"]["pvalue"] < 1e-6
    compared = asked[1].compare("seen", "b", by="a").to_frame()
    assert (
        np.abs(compared["difference"] - (WITHIN[1] - WITHIN[0])) < 4 * compared["standard_error"]
    ).all()


def test_differences_of_an_attribute_that_is_called_as_a_group_keep_their_groups(
    own: Callable[[str], Plan], address: str, asked: Any
) -> None:
    plan = own(TOML.replace('"smokes"', '"first_group"'))
    answers = {"first_group": np.arange(600) % 2, "sleep": np.arange(600) // 2 % 3}
    submit(address, batch(plan, "open", DAYS[0], answers, 1))
    found = asked[1].compare(plan.survey, "first_group", by="sleep")
    index = found.to_dict()["tables"]["differences"]["index"]
    assert list(index) == ["first_group", "second_group", "value"]
    assert [*map(list, zip(*index.values(), strict=True))][:2] == [
        ["well", "so so", "no"],
        ["well", "so so", "yes"],
    ]


# --- the command line --------------------------------------------------------------------------


def test_the_command_prints_tables_tests_and_groups(
    asked: tuple[str, Analyst, Plan], tmp_path: Any
) -> None:
    file = tmp_path / "table.png"
    table = printed(asked, "ask", "joint", "sleepers", "smokes", "sleep", "--plot", file)
    assert "Do you smoke? / How do you sleep?" in table
    assert "Test that the two are independent: chi-squared" in table
    assert "3,333 reports, stratified" in table
    assert file.stat().st_size > 1000
    test = printed(asked, "ask", "independent", "sleepers", "smokes", "sleep", "--json")
    assert json.loads(test)["tables"]["independence"]["columns"]["dof"]["values"] == [4]
    groups = printed(asked, "ask", "given", "sleepers", "sleep", "smokes", "--csv")
    assert next(csv.DictReader(groups.splitlines()))["smokes"] == "no"


def test_coefficients_are_drawn(asked: tuple[str, Analyst, Plan], tmp_path: Path) -> None:
    done = command(
        asked, "ask", "fit", "sleepers", "hours ~ C(smokes)", "--plot", tmp_path / "fit.png"
    )
    assert done.stderr.splitlines()[-1] == f"drawn into {tmp_path / 'fit.png'}"
    (axis,) = plots.figure(asked[1].ols("sleepers", "hours ~ C(smokes)")).axes
    assert axis.get_xlabel() == "coefficient, with 95% intervals"


def test_plots_name_groups_and_differences(asked: tuple[str, Analyst, Plan]) -> None:
    means = asked[1].within("sleepers", "hours", "sleep")
    shares = asked[1].compare("sleepers", "sleep", by="smokes")
    grouped = asked[1].crosstab("sleepers", "smokes", "sleep")
    drawn = plots.figure(means, shares, grouped)  # means have the differences of their groups
    labels = [[text.get_text() for text in axis.get_yticklabels()] for axis in drawn.axes]
    assert labels[0] == ["well", "so so", "badly"]
    assert labels[1] == ["so so - well", "badly - well", "badly - so so"]
    assert labels[2] == ["yes - no: well", "yes - no: so so", "yes - no: badly"]
    assert labels[3] == ["well", "so so", "badly"]
    assert [text.get_text() for text in drawn.axes[3].texts] == ["yes", "no"]
    assert "by smokes" in drawn.axes[3].get_xlabel()


def test_a_plot_labels_rows_that_are_no_groups_by_all_of_their_index(
    asked: tuple[str, Analyst, Plan],
) -> None:
    pairs = replace(asked[1].crosstab("sleepers", "smokes", "sleep"), figures={})
    (axis,) = plots.figure(pairs).axes
    labels = [text.get_text() for text in axis.get_yticklabels()]
    assert labels[:2] == ["no and well", "no and so so"] and len(labels) == 6
