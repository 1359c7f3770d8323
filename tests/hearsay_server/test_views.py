"""A survey with views at a server: registered, taken, judged, estimated and shown."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from collected import DAYS, register
from command import hearsay
from numpy.typing import NDArray
from serving import submit

from hearsay import Analyst
from hearsay.asking import Answer
from hearsay.plans.plan import Plan, parse
from hearsay.v1 import analyst_pb2, collector_pb2
from hearsay_server.answers import distributions, joints, queries, rectangles
from hearsay_server.commands.codegen import module
from hearsay_server.ingest.intake import Cohort, Refused, tallies_of
from hearsay_server.surveys import survey as surveys
from hearsay_server.surveys.explain import explain
from ldp import InvalidInput, Tally
from ldp.core.repeated import Repeats
from ldp.testing import SeededCoins
from support import rows_of

TOML = """
name = "sleep"
title = "Do smokers sleep worse?"
period = "P1D"
budget = "sample"
levels_differ_at_most = 0.0
views = [["smokes", "sleeps"], ["age_group", "smokes"]]
[levels]
strict = 1.0
open = 4.0
[[attributes]]
name = "smokes"
title = "Do you smoke?"
[attributes.categorical]
values = ["yes", "no"]
[[attributes]]
name = "sleeps"
[attributes.categorical]
values = ["well", "badly", "hardly"]
[[attributes]]
name = "age_group"
[attributes.categorical]
values = ["young", "old"]
[[attributes]]
name = "drinks"
[attributes.categorical]
values = ["yes", "no"]
"""

PLAN = parse(surveys.resolve(surveys.from_toml(TOML, "sleep.toml")))

JOINT = np.array(
    [[[0.05, 0.08], [0.09, 0.08], [0.06, 0.04]], [[0.25, 0.15], [0.08, 0.07], [0.02, 0.03]]]
)
"""Of smokes, sleeps and age group."""
SHARES = {
    "smokes": JOINT.sum(axis=(1, 2)),
    "sleeps": JOINT.sum(axis=(0, 2)),
    "age_group": JOINT.sum(axis=(0, 1)),
    "smokes+sleeps": JOINT.sum(axis=2).ravel(),
    "age_group+smokes": JOINT.sum(axis=1).T.ravel(),
}


def people(n: int, seed: int) -> NDArray[np.intp]:
    """Return the categories of n people, shape (n, 4): smokes, sleeps, age group, drinks."""
    generator = np.random.default_rng(seed)
    cells = generator.choice(JOINT.size, n, p=JOINT.ravel())
    return np.stack([*np.unravel_index(cells, JOINT.shape), generator.integers(2, size=n)], axis=1)


def batch(
    plan: Plan, level: str, period: str, answers: NDArray[np.intp], seed: int
) -> collector_pb2.Batch:
    """Return the batch of devices that drew their questions as the plan says."""
    coins, chosen = SeededCoins(seed), plan.level(level)
    drawn = chosen.budget.draw_many(len(answers), coins)
    found = collector_pb2.Batch(
        id=seed.to_bytes(16, "big"),
        survey=plan.survey,
        revision=plan.revision,
        period=period,
        rows=len(answers),
    )
    names = list(plan.attributes)
    for position, name in enumerate(plan.questions):
        mine = answers[drawn[:, position]]
        values = mine[:, names.index(plan.parts(name)[0])]
        for part in plan.parts(name)[1:]:
            size = len(plan.attributes[part].domain.labels)
            values = values * size + mine[:, names.index(part)]
        mechanism = chosen.mechanisms[name]
        found.columns.add(
            attribute=name,
            level=level,
            codes=mechanism.encode(mechanism.randomize_many(values, coins)),
            present=np.packbits(drawn[:, position], bitorder="little").tobytes(),
        )
    return found


def tallies(plan: Plan, n: int, seed: int, period: str = DAYS[0]) -> dict[Cohort, Tally]:
    """Return what n people at each level send in a period."""
    found: dict[Cohort, Tally] = {}
    for number, level in enumerate(plan.levels):
        answers = people(n, 100 * seed + number)
        found |= tallies_of(batch(plan, level, period, answers, 100 * seed + number + 1), plan)
    return found


def asked(plan: Plan, attribute: str, found: dict[Cohort, Tally], **more: object) -> Answer:
    """Return the answer to a question, from the tallies that the server would read."""
    mine = {
        cohort: tally
        for cohort, tally in found.items()
        if cohort.attribute in plan.questions_of(plan.parts(attribute))
    }
    request = analyst_pb2.EstimateRequest(survey=plan.survey, attribute=attribute, **more)  # type: ignore[arg-type]
    return queries.estimate(plan, request, mine)


# --- the survey's file ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("views", "why"),
    [
        ('"smokes"', r'views are lists of attributes, as views = \[\["smokes", "diagnosis"\]\]'),
        ('["smokes", "sleeps"]', "views are lists of attributes"),
        ("[[1, 2]]", "views are lists of attributes"),
        ('[["smokes", "sleep"]]', r"views\[0\]: 'sleep' is no attribute; expected smokes, sleeps"),
        ('[["smokes", "sleeps"], ["smokes"]]', r"views\[1\]: a view is of two attributes at least"),
    ],
)
def test_a_file_whose_views_cannot_be_is_refused(views: str, why: str) -> None:
    text = TOML.replace('[["smokes", "sleeps"], ["age_group", "smokes"]]', views)
    with pytest.raises(InvalidInput, match=why):
        surveys.resolve(surveys.from_toml(text, "sleep.toml"))


def test_the_attributes_of_a_view_name_one_mechanism() -> None:
    one = TOML.replace('name = "smokes"', 'name = "smokes"\nmechanism = "krr"')
    with pytest.raises(InvalidInput, match=r"views \(smokes\+sleeps\): .* got auto and krr"):
        surveys.resolve(surveys.from_toml(one, "sleep.toml"))
    every = TOML.replace("[attributes.categorical]", 'mechanism = "krr"\n[attributes.categorical]')
    plan = parse(surveys.resolve(surveys.from_toml(every, "sleep.toml")))
    assert {m.name for level in plan.levels.values() for m in level.mechanisms.values()} == {"krr"}


def test_a_view_has_the_mean_of_its_attributes_weights() -> None:
    text = TOML.replace("[attributes.categorical]", "weight = 4\n[attributes.categorical]", 1)
    text = text.replace('"sample"', '"split"')
    weights = {q.name: q.weight for q in surveys.questions(surveys.from_toml(text, "sleep.toml"))}
    assert weights == {"drinks": 1.0, "smokes+sleeps": 2.5, "age_group+smokes": 2.5}


# --- intake --------------------------------------------------------------------------------------


def test_an_attribute_of_a_view_has_no_column_of_its_own() -> None:
    sent = batch(PLAN, "open", DAYS[0], people(20, 1), 2)
    assert {cohort.attribute for cohort in tallies_of(sent, PLAN)} == set(PLAN.questions)
    sent.columns[1].attribute = "smokes"
    with pytest.raises(Refused, match="'sleep' has no attribute 'smokes'"):
        tallies_of(sent, PLAN)


# --- estimates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["", "inverse_variance", "scalar", "gls", "stratified"])
@pytest.mark.parametrize("name", SHARES)
def test_attributes_and_views_are_estimated_from_all_views_that_tell_them(
    name: str, method: str
) -> None:
    found = tallies(PLAN, 20_000, 1)
    answer = asked(PLAN, name, found, method=method)
    n = sum(t.n for c, t in found.items() if c.attribute in PLAN.questions_of(PLAN.parts(name)))
    assert answer.reports == n
    for row, share in zip(rows_of(answer), SHARES[name], strict=True):
        assert abs(row.estimate - share) < 4 * row.standard_error
        assert row.standard_error < 0.03
    assert len({(c.level, c.period) for c in answer.cohorts}) == 2
    if name in PLAN.views:
        assert rows_of(answer)[0].label == ", ".join(
            PLAN.questions[name].domain.labels[0].split(", ")
        )


def test_intervals_of_an_attribute_in_views_cover() -> None:
    """40 surveys of two views: 200 intervals, at 95%, at least four errors below."""
    covered = total = 0
    for seed in range(40):
        found = tallies(PLAN, 500, seed + 10)
        for name in ("smokes", "sleeps"):
            for row, share in zip(rows_of(asked(PLAN, name, found)), SHARES[name], strict=True):
                covered += row.low <= share <= row.high
                total += 1
    assert 0.95 - 4 * np.sqrt(0.95 * 0.05 / total) <= covered / total


def test_levels_that_differ_are_found_in_the_marginals() -> None:
    found = tallies(PLAN, 20_000, 3)
    turned = {
        cohort: Tally(tally.n, tally.counts[::-1].copy()) if cohort.level == "open" else tally
        for cohort, tally in found.items()
    }
    assert asked(PLAN, "smokes", found).figures["homogeneity"] > 0.01
    assert asked(PLAN, "smokes", turned).figures["homogeneity"] < 1e-6


def test_people_who_report_two_views_count_twice_in_the_error() -> None:
    split = parse(surveys.resolve(surveys.from_toml(TOML.replace('"sample"', '"split"'), "t")))
    found = {c: t for c, t in tallies(split, 3_000, 5).items() if c.level == "open"}
    names = split.questions_of(["smokes"])
    mine = {cohort: tally for cohort, tally in found.items() if cohort.attribute in names}
    cohorts = queries.by_level(split, "smokes", mine)
    assert cohorts.repeats == (Repeats(2.0),) and cohorts.n == 6_000
    assert queries.by_level(
        PLAN, "smokes", {c: t for c, t in tallies(PLAN, 300, 5).items() if c.attribute in names}
    ).repeats == (Repeats(1.0), Repeats(1.0))


def test_the_error_of_people_who_report_two_views_is_that_of_a_simulation() -> None:
    text = TOML.replace('"sample"', '"split"').replace("strict = 1.0\n", "")
    plan, n, runs = parse(surveys.resolve(surveys.from_toml(text, "t"))), 1_000, 100
    names, values, errors = plan.questions_of(["smokes"]), [], []
    for seed in range(runs):
        sent = batch(plan, "open", DAYS[0], people(n, seed + 1), seed + 1)
        mine = {c: t for c, t in tallies_of(sent, plan).items() if c.attribute in names}
        found = queries.answered(plan, "smokes", mine).estimate
        values.append(found.value[0])
        errors.append(found.standard_error[0])
    ratio = np.mean(errors) / np.std(values)
    assert ratio == pytest.approx(1, abs=4 / np.sqrt(2 * runs))


def test_what_cannot_be_asked_of_an_attribute_in_views_says_so() -> None:
    found = tallies(PLAN, 200, 6)
    with pytest.raises(InvalidInput, match="forged marginal report"):
        asked(PLAN, "smokes", found, forged=10)
    with pytest.raises(InvalidInput, match="recovery is for the reports of one frequency oracle"):
        asked(PLAN, "smokes", found, recover=0.1)
    with pytest.raises(InvalidInput, match=r"no attribute 'wakes'; it has smokes, .*smokes\+sleep"):
        PLAN.asked("wakes")


def test_sums_of_values_come_with_their_covariance() -> None:
    found = tallies(PLAN, 20_000, 7)
    wanted = [analyst_pb2.ValueSet(values=["badly", "hardly"])]
    (row,) = rows_of(asked(PLAN, "sleeps", found, sums=wanted))
    assert abs(row.estimate - SHARES["sleeps"][1:].sum()) < 4 * row.standard_error


# --- both attributes of a view -------------------------------------------------------------------


def test_a_table_groups_and_a_test_are_from_the_views_that_ask_both() -> None:
    found = {c: t for c, t in tallies(PLAN, 20_000, 8).items() if c.attribute == "smokes+sleeps"}
    question = analyst_pb2.CrosstabRequest(survey="sleep", attribute="sleeps", other="smokes")
    table = joints.crosstab_of_views(PLAN, question, found)
    truth = JOINT.sum(axis=2).T.ravel()
    assert [(row.sleeps, row.smokes) for row in rows_of(table)[:3]] == [
        ("well", "yes"),
        ("well", "no"),
        ("badly", "yes"),
    ]
    for row, share in zip(rows_of(table), truth, strict=True):
        assert abs(row.estimate - share) < 4 * row.standard_error < 0.05
    assert table.reports == sum(tally.n for tally in found.values())
    (test,) = rows_of(table, "independence")
    assert test.dof == 2 and test.pvalue < 1e-4
    asked_by = analyst_pb2.CompareGroupsRequest(survey="sleep", attribute="sleeps", by="smokes")
    groups = joints.groups_of_views(PLAN, asked_by, found)
    within = JOINT.sum(axis=2) / JOINT.sum(axis=(1, 2))[:, None]
    for row, share in zip(rows_of(groups), within.ravel(), strict=True):
        assert abs(row.estimate - share) < 4 * row.standard_error
    labels = {row.sleeps for row in rows_of(groups, "differences")}
    assert labels == {"well", "badly", "hardly"}


# --- numbers in bins -----------------------------------------------------------------------------

FLIGHTS = """
name = "flights"
period = "P1D"
budget = "sample"
views = [["minutes", "distance"], ["late", "minutes"]]
[levels]
strict = 2.0
open = 4.0
[[attributes]]
name = "minutes"
[attributes.numeric]
low = 0
high = 1440
bins = 6
[[attributes]]
name = "distance"
[attributes.numeric]
low = 0
high = 3000
bins = 4
[[attributes]]
name = "late"
[attributes.categorical]
values = ["no", "yes"]
"""


def flights(n: int, seed: int) -> NDArray[np.intp]:
    """Return the bins of n flights, shape (n, 3): later ones are shorter, and oftener late."""
    generator = np.random.default_rng(seed)
    minutes = generator.integers(6, size=n)
    distance = generator.binomial(3, 0.7 - 0.1 * minutes)
    return np.stack([minutes, distance, generator.random(n) < 0.1 * minutes], axis=1).astype(int)


FLOWN = parse(surveys.resolve(surveys.from_toml(FLIGHTS, "flights.toml")))


def flown(plan: Plan, n: int) -> list[collector_pb2.Batch]:
    """Return what n flights at each level send."""
    return [
        batch(plan, level, DAYS[0], flights(n, number), number + 1)
        for number, level in enumerate(plan.levels)
    ]


def distributed(attribute: str, **question: Any) -> Answer:
    """Return the distribution of an attribute in views."""
    sent = flown(FLOWN, 20_000)
    found = {cohort: tally for one in sent for cohort, tally in tallies_of(one, FLOWN).items()}
    names = [name for name in (attribute, question.get("other")) if name]
    mine = {c: t for c, t in found.items() if c.attribute in FLOWN.questions_of(names)}
    request = analyst_pb2.DistributionRequest(survey="flights", attribute=attribute, **question)
    work = rectangles.rectangles if "other" in question else distributions.distribution
    return work(FLOWN, request, mine)


def test_ranges_of_numbers_in_views_are_estimated() -> None:
    truth = flights(400_000, 9)
    inside = (truth[:, 0] >= 1) & (truth[:, 0] < 4)
    hours, near = analyst_pb2.Range(low=240, high=960), analyst_pb2.Range(low=0, high=1500)
    own = distributed("minutes", ranges=[hours], quantiles=[0.5])
    (share,), (median,) = rows_of(own, "ranges"), rows_of(own, "quantiles")
    assert abs(share.estimate - inside.mean()) < 4 * share.standard_error < 0.06
    assert median.low <= 720 <= median.high
    both = distributed("minutes", ranges=[hours], other="distance", other_ranges=[near])
    (box,) = rows_of(both)
    assert box.label == "240 to under 960, 0 to under 1500"
    wanted = (inside & (truth[:, 1] < 2)).mean()
    assert abs(box.estimate - wanted) < 4 * box.standard_error < 0.06
    assert box.low < wanted < box.high
    turned = distributed("distance", ranges=[near], other="minutes", other_ranges=[hours])
    assert rows_of(turned, "ranges")[0].estimate == pytest.approx(box.estimate, abs=1e-12)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ({"ranges": [(250, 960)], "other_ranges": [(0, 1500)]}, "an edge at 250 is inside a bin"),
        ({"ranges": [(240, 240)], "other_ranges": [(0, 1500)]}, "edges are two or more rising"),
        ({"ranges": [(240, 960)]}, "a range of either number, .* got 1 and 0 ranges"),
        ({"ranges": [(240, 960)], "other_ranges": [(0, 1500)], "bins": 3}, "ask for ranges"),
        ({"other": "late"}, "'late' is no number in bins"),
    ],
)
def test_a_rectangle_that_cannot_be_is_refused(question: dict[str, Any], why: str) -> None:
    given = {"other": "distance", **question}
    for name in ("ranges", "other_ranges"):
        given[name] = [analyst_pb2.Range(low=a, high=b) for a, b in question.get(name, [])]
    with pytest.raises(InvalidInput, match=why):
        distributed("minutes", **given)


def test_an_analyst_asks_for_rectangles(address: str) -> None:
    _, plan = register(address, FLIGHTS)
    submit(address, *flown(plan, 500))
    with Analyst(address, insecure=True) as analyst:
        box = (
            analyst.rectangle("flights", {"minutes": (240, 960), "distance": (0, 1500)})
            .to_frame()
            .iloc[0]
        )
        assert box.name == "240 to under 960, 0 to under 1500" and box["low"] < box["high"]
        with pytest.raises(InvalidInput, match="no view asks 'late' and 'distance' together"):
            analyst.rectangle("flights", {"late": (0, 1), "distance": (0, 1500)}).to_frame().iloc[0]
        with pytest.raises(InvalidInput, match="the ranges of two numbers, got 1"):
            analyst.rectangle("flights", {"minutes": (240, 960)}).to_frame().iloc[0]
    between = ("ask", "between", "flights", "minutes", 240, 960, "--target", address)
    both = ("--other", "distance", "--other-between", 0, 1500)
    assert "240 to under 960, 0 to under 1500" in hearsay(*between, *both).stdout
    for alone in (both[:2], both[2:]):
        refused = hearsay(*between, *alone)
        assert refused.returncode and "other and other-between go together" in refused.stderr


# --- the whole way -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def collected(address: str) -> Iterator[str]:
    """A server with two days of the survey."""
    _, plan = register(address, TOML)
    sent = [
        batch(plan, level, day, people(2_000, number), number + 1)
        for number, (level, day) in enumerate(product(plan.levels, DAYS[1:]))
    ]
    submit(address, *sent)
    yield address


def test_an_analyst_asks_for_attributes_and_for_views(collected: str) -> None:
    with Analyst(collected, insecure=True) as analyst:
        smokes = analyst.estimate("sleep", "smokes").to_frame()
        both = analyst.estimate("sleep", "smokes+sleeps").to_frame()
        attributes = analyst.attributes("sleep")
        rows = analyst.rows("sleep")
        by_level = analyst.by_level("sleep", "sleeps").to_frame()
    assert list(smokes.index) == ["yes", "no"]
    assert list(both.index)[:2] == ["yes, well", "yes, badly"]
    assert abs(smokes.loc["yes", "estimate"] - SHARES["smokes"][0]) < 0.1
    assert list(attributes.index) == ["smokes", "sleeps", "age_group", "drinks"]
    assert attributes.loc["smokes", "reports"] > attributes.loc["sleeps", "reports"] > 1_000
    assert list(rows.columns[1::2]) == ["drinks", "smokes+sleeps", "age_group+smokes"]
    assert rows.iloc[:, 1::2].notna().sum(axis=1).eq(1).all()  # one question for each record
    assert set(by_level.index.get_level_values("level")) == {"strict", "open"}


def test_the_command_line_shows_attributes_and_views(collected: str, tmp_path: Path) -> None:
    shown = hearsay("query", "sleep", "--target", collected).stdout
    assert shown.count("Do you smoke?") == 1 and "hardly" in shown
    listed = hearsay("survey", "show", "sleep", "--target", collected).stdout
    assert "age_group+smokes" in listed
    hearsay("export", "sleep", "--to", str(tmp_path / "out"), "--target", collected)


def test_explain_compares_views_with_attributes_asked_one_by_one(tmp_path: Path) -> None:
    explained = explain(surveys.from_toml(TOML, "t"), "t", 10_000)
    strict = {row.name: row for row in explained.together if row.level == "strict"}
    assert list(strict) == ["smokes+sleeps", "age_group+smokes", "smokes", "sleeps", "age_group"]
    assert strict["smokes+sleeps"].factor > 20
    assert strict["sleeps"].factor < 1 < strict["age_group+smokes"].factor
    (row,) = [r for r in explained.rows if (r.level, r.attribute) == ("strict", "smokes+sleeps")]
    assert row.error == pytest.approx(strict["smokes+sleeps"].error)
    file = tmp_path / "sleep.toml"
    file.write_text(TOML)
    assert "asked apart" in hearsay("survey", "explain", str(file)).stdout


def test_the_generated_module_names_the_views() -> None:
    source = module(surveys.resolve(surveys.from_toml(TOML, "t")))
    assert (
        '    views=(\n        (\n            "smokes",\n            "sleeps",\n        ),' in source
    )
    assert "asked together with sleeps, and with age_group: give them in one call" in source
    made: dict[str, object] = {}
    exec(source, made)


def test_explain_knows_views_of_bins() -> None:
    explained = explain(surveys.from_toml(FLIGHTS, "t"), "t", 10_000)
    strict = {row.name: row for row in explained.together if row.level == "strict"}
    assert set(strict) == {"minutes+distance", "late+minutes", "minutes", "distance", "late"}
    assert strict["minutes+distance"].factor > 2
