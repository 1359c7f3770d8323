"""What a survey would mean, told before it is registered."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import hearsay
from serving import Survey

from hearsay import InvalidInput
from hearsay.plans.attested import Requirement
from hearsay.plans.plan import parse
from hearsay_server.surveys import over_time
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain import Explanation, explain
from hearsay_server.surveys.explain_protections import attested_in_words
from ldp.planning import sizes
from ldp.planning.composition import of_channels
from ldp.testing import SeededCoins
from support import SURVEY

DELICATE = SURVEY.replace('mechanism = "krr"', "").replace(
    '"sometimes", "yes"]', '"sometimes", "yes"]\nsensitive = ["yes"]'
)


def test_predicted_errors_are_those_of_a_simulation() -> None:
    toml = SURVEY.replace('title = "A', 'budget = "sample"\ntitle = "A')
    explanation = explain(surveys.from_toml(toml, "t"), "t", 3000)
    level = explanation.plan.levels["strict"]
    row = next(r for r in explanation.rows if (r.level, r.attribute) == ("strict", "smokes"))
    mechanism, coins = level.mechanisms["smokes"], SeededCoins(5)
    generator = np.random.default_rng(5)
    squares = []
    for _ in range(300):
        n = generator.binomial(3000, row.chance)
        codes = mechanism.randomize_many(generator.integers(3, size=n), coins)
        squares.append(np.mean((mechanism.debias(mechanism.tally(codes)) - 1 / 3) ** 2))
    assert row.error == pytest.approx(np.sqrt(np.mean(squares)), rel=0.1)


def test_levels_together_do_better_than_the_strictest_for_all() -> None:
    explanation = explain(surveys.from_toml(SURVEY, "t"), "t", 10_000)
    for attribute in ("smokes", "age"):
        assert explanation.pooled[attribute] < explanation.strict[attribute]
    (strict,) = [r for r in explanation.rows if (r.level, r.attribute) == ("strict", "age")]
    assert explanation.strict["age"] == strict.error


def test_protections_are_said_in_words() -> None:
    explanation = explain(surveys.from_toml(DELICATE, "t"), "t", 100)
    assert list(explanation.protections) == [
        "smokes: yes from no or sometimes by 1 epsilon",
        "smokes: no or sometimes may be told from yes for certain",
        "smokes: no or sometimes may be told from each other for certain",
        "age: every number from every other, by epsilon",
    ]


def test_a_survey_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"^t\.toml: levels.strict: epsilon must be finite"):
        bad = SURVEY.replace("strict = 1.0", "strict = nan")
        explain(surveys.from_toml(bad, "t"), "t.toml", 100)
    with pytest.raises(InvalidInput, match="users must be at least 1, got 0"):
        explain(surveys.from_toml(SURVEY, "t"), "t", 0)


def test_the_command_tells_it_all(tmp_path: Path) -> None:
    file = tmp_path / "survey.toml"
    file.write_text(DELICATE.replace('title = "A', 'budget = "auto"\ntitle = "A'))
    done = hearsay("survey", "explain", file, "--users", 500)
    assert done.returncode == 0
    for told in (
        "1 of 2 attributes, drawn for each record",
        "Other ways, by the users that they need for the same error",
        "all 2 attributes at once: ",
        "smokes: yes from no or sometimes by 1 epsilon",
        "whole record",
        "Each level by itself, with 500 users at it",
        "against the strictest for all",
        "times as many",
    ):
        assert told in done.stdout


def test_another_way_is_told_by_how_many_users_it_would_take() -> None:
    """Squared errors are in inverse proportion to users; two numbers share epsilon in halves."""
    number = SURVEY[SURVEY.index('[[attributes]]\nname = "age"') :]
    levels = SURVEY[: SURVEY.index("[[attributes]]")] + number + number.replace("age", "height")

    def explained(budget: str) -> Explanation:
        toml = levels.replace('title = "A', f'budget = "{budget}"\ntitle = "A')
        return explain(surveys.from_toml(toml, "t"), "t", 1000)

    split, sample = (sum(r.error**2 for r in explained(b).rows) for b in ("split", "sample"))
    chosen, _, other = explained("auto").decision
    assert chosen == "1 of 2 attributes, drawn for each record"
    label, _, told = other.strip().partition(": ")
    assert label == 'budget = "split", all attributes, by weight'
    factor = float(told.removesuffix(" times as many"))
    assert factor > 1.1
    assert factor == pytest.approx(split / sample, rel=0.03)
    own, _, auto, advice = explained("split").decision
    assert own == "all attributes, by weight"
    called, _, told = auto.strip().partition(": ")
    assert called == 'budget = "auto", 1 of 2 attributes, drawn for each record'
    assert float(told.removesuffix(" times as many")) == pytest.approx(sample / split, rel=0.03)
    assert advice.startswith('budget = "auto" would make errors 1.4 times smaller here')
    assert explained("").decision == explained("split").decision


def test_a_budget_is_advised_only_where_it_gains() -> None:
    one = SURVEY[: SURVEY.index('[[attributes]]\nname = "age"')]
    assert explain(surveys.from_toml(one, "t"), "t", 10).decision == ["all attributes, by weight"]
    auto = SURVEY.replace('title = "A', 'budget = "auto"\ntitle = "A')
    decision = explain(surveys.from_toml(auto, "t"), "t", 10).decision
    assert len(decision) >= 3
    assert not any("would make errors" in line for line in decision)


def test_what_it_prints_fits_80_columns(tmp_path: Path) -> None:
    file = tmp_path / "survey.toml"
    long = DELICATE.replace('title = "A', 'budget = "auto"\nperiod = "P1D"\ntitle = "A')
    long = long.replace("strict = 1.0", "".join(f"level_{n} = {n}.5\n" for n in range(1, 8)))
    values = ", ".join(f'"a rather long value {n}"' for n in range(9))
    long += f'[[attributes]]\nname = "{"long_" * 6}"\nmemo = 2\n'
    long += f"[attributes.categorical]\nvalues = [{values}]\n"
    file.write_text(long)
    done = hearsay("survey", "explain", file, COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_default_level_is_marked(survey: Survey, tmp_path: Path) -> None:
    file, target = tmp_path / "survey.toml", ("--target", survey.address)
    named = SURVEY.replace('title = "A', 'default_level = "strict"\ntitle = "A')
    file.write_text(named.replace("health", "habits"))
    marked = "strict = 1 (default), open = 4\n"
    assert marked in hearsay("survey", "explain", file).stdout
    assert hearsay("survey", "create", file, *target).returncode == 0
    assert marked in hearsay("survey", "show", "habits", *target).stdout
    shown = hearsay("survey", "show", survey.name, *target).stdout
    assert "strict = 1, open = 4\n" in shown


DAILY = SURVEY.replace('title = "A', 'period = "P1D"\ntitle = "A')


def test_a_year_of_answers_is_told_beside_its_sum() -> None:
    explanation = explain(surveys.from_toml(DAILY, "t"), "t", 100)
    assert explanation.periods == 365
    costs = {(cost.level, cost.attribute): cost for cost in explanation.costs}
    level = explanation.plan.levels["open"]
    for name in ("smokes", "age"):
        mechanism = level.mechanisms[name]
        found = costs["open", name]
        assert found.total == pytest.approx(365 * mechanism.epsilon)
        assert found.composed == of_channels([(mechanism, 365)])
    whole = costs["open", ""]
    assert whole.total == pytest.approx(365 * level.epsilon)
    mechanisms = level.mechanisms.values()
    assert whole.composed == of_channels([(mechanism, 365) for mechanism in mechanisms])
    assert whole.composed < whole.total


def test_sampled_attributes_cost_what_their_draw_leaves() -> None:
    toml = DAILY.replace('title = "A', 'budget = "sample"\ntitle = "A')
    explanation = explain(surveys.from_toml(toml, "t"), "t", 100, periods=200)
    costs = {(cost.level, cost.attribute): cost for cost in explanation.costs}
    every = of_channels([(explanation.plan.levels["strict"].mechanisms["smokes"], 200)])
    smokes, age, whole = (costs["strict", name] for name in ("smokes", "age", ""))
    assert smokes.reports + age.reports == pytest.approx(200)
    assert smokes.composed < every
    assert max(smokes.composed, age.composed) < whole.composed < smokes.composed + age.composed


def test_memos_count_once() -> None:
    toml = DAILY.replace('name = "smokes"', 'name = "smokes"\nmemo = 1.0')
    explanation = explain(surveys.from_toml(toml, "t"), "t", 100)
    costs = {(cost.level, cost.attribute): cost for cost in explanation.costs}
    smokes, age, whole = (costs["strict", name] for name in ("smokes", "age", ""))
    assert smokes.total == smokes.composed == pytest.approx(0.5)
    assert whole.total == pytest.approx(smokes.total + age.total)
    assert whole.composed == pytest.approx(smokes.composed + age.composed)
    assert not any("smokes" in line for line in explanation.best)


def test_the_mechanism_that_is_best_for_a_year_is_named() -> None:
    values = ", ".join(f'"{number}"' for number in range(300))
    toml = f"""
name = "towns"
title = "Towns"
period = "P1D"
[levels]
standard = 1.0
[[attributes]]
name = "town"
[attributes.categorical]
values = [{values}]
"""
    (line,) = explain(surveys.from_toml(toml, "t"), "t", 100).best
    assert line.startswith("town (standard): projective at epsilon 1 costs ")
    assert "; krr at 2." in line
    (day,) = explain(surveys.from_toml(toml, "t"), "t", 100, periods=1).best
    assert day.endswith(", the least for this error")


def test_a_view_costs_as_one_question() -> None:
    toml = """
name = "pairs"
title = "Pairs"
period = "P1D"
budget = "sample"
views = [["smokes", "ill"]]
[levels]
standard = 1.0
"""
    for name in ("smokes", "ill", "old"):
        toml += f'''
[[attributes]]
name = "{name}"
[attributes.categorical]
values = ["yes", "no", "perhaps"]
'''
    plan = parse(surveys.resolve(surveys.from_toml(toml, "t")))
    periods, costs = over_time.costs(plan, None)
    assert [cost.attribute for cost in costs] == [*plan.questions, ""]
    assert len(costs) == 3  # the other attribute, the view, the record
    assert all(0 < cost.composed < cost.total for cost in costs)
    assert len(over_time.best_mechanisms(plan, periods)) == 2


def test_periods_are_for_surveys_that_have_some(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="the survey has no period: nobody answers it twice"):
        explain(surveys.from_toml(SURVEY, "t"), "t", 100, periods=3)
    with pytest.raises(InvalidInput, match=r"periods must lie in 1\.\.10\*\*6, got 0"):
        explain(surveys.from_toml(DAILY, "t"), "t", 100, periods=0)
    assert explain(surveys.from_toml(SURVEY, "t"), "t", 100).costs == []
    file = tmp_path / "survey.toml"
    file.write_text(DAILY)
    done = hearsay("survey", "explain", file, "--periods", 30)
    assert done.returncode == 0
    for told in ("What 30 periods of answers cost one person", "delta 1e-06", "sum of epsilons"):
        assert told in done.stdout


def test_maps_are_explained(tmp_path: Path) -> None:
    maps = DELICATE.replace('sensitive = ["yes"]', 'maps.mine.sensitive = ["yes"]').replace(
        'title = "A', 'period = "P1M"\ntitle = "A'
    )
    explanation = explain(surveys.from_toml(maps, "t"), "t", 10_000)
    assert list(explanation.protections)[:4] == [
        "smokes, no map: every value from every other, by epsilon",
        "smokes, mine: yes from no or sometimes by 1 epsilon",
        "smokes, mine: no or sometimes may be told from yes for certain",
        "smokes, mine: no or sometimes may be told from each other for certain",
    ]
    errors = {(r.level, r.map): r.error for r in explanation.rows if r.attribute == "smokes"}
    assert errors["strict", "mine"] < errors["strict", ""] == explanation.strict["smokes"]
    together = 4 / sum(1 / error**2 for error in errors.values())
    assert 0.5 * together < explanation.pooled["smokes"] ** 2 < together
    (tmp_path / "habits.toml").write_text(maps)
    shown = " ".join(hearsay("survey", "explain", tmp_path / "habits.toml").stdout.split())
    for said in (
        "smokes: the map that a person chose, or that they chose none, is sent in the clear",
        "Each level and map by itself",
        "evenly over the levels and maps, against the strictest, without a map, for all",
        "This is for those who chose no map.",
    ):
        assert said in shown


def test_the_smallest_change_between_two_periods_is_told(tmp_path: Path) -> None:
    memos = DAILY.replace("[attributes.categorical]", "memo = 1\n[attributes.categorical]", 1)
    explanation = explain(surveys.from_toml(memos, "t"), "t", 5000)
    found = {(each.level, each.attribute): each for each in explanation.changes}
    smokes = found["strict", "smokes"]
    mechanism = explanation.plan.levels["strict"].mechanisms["smokes"]
    assert smokes.alone == pytest.approx(
        sizes.detectable_change(mechanism, 1 / 3, 5000, same_people=True)
    )
    assert smokes.memos is not None
    assert 0.2 < smokes.memos / smokes.by_panels < 0.5  # one in ten changed: a third, about
    age = found["strict", "age"]
    assert age.memos is None
    assert age.alone < 80  # in years
    assert explain(surveys.from_toml(SURVEY, "t"), "t", 5000).changes == []
    (tmp_path / "habits.toml").write_text(memos)
    shown = hearsay("survey", "explain", tmp_path / "habits.toml", "--users", 5000).stdout
    assert "Smallest change between two periods, 5,000 users at the level" in shown
    assert f"{smokes.memos:.4f}" in shown


def test_evidence_of_kind_test_is_said_to_protect_nobody() -> None:
    real = Requirement({"nitro": frozenset({"5f" * 48})}, frozenset({"UpToDate"}), 300)
    assert attested_in_words(real).endswith("if the platform's maker is honest")
    pretended = replace(real, measurements={**real.measurements, "test": frozenset({"test"})})
    assert attested_in_words(pretended).endswith("proves nothing, so this protects nobody")
