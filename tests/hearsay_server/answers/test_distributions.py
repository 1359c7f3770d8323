"""What is answered of a number's distribution: bins, intervals, curves, and warnings."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from serving import create

import hearsay.plans.plan
from hearsay import Analyst
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers.distributions import distribution
from hearsay_server.answers.queries import NoReports, Tallies
from hearsay_server.ingest.intake import Cohort
from hearsay_server.surveys import survey as surveys
from ldp import InvalidInput, Tally
from ldp.estimating.points import channel_from_points
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.testing import SeededCoins
from support import device, rows_of

Floats = NDArray[np.float64]

AGES = np.exp(-0.5 * ((np.arange(26) - 8) / 6) ** 2) + 0.3 * np.exp(-0.3 * np.arange(26))
AGES /= AGES.sum()
ATOMS = np.zeros(26)
ATOMS[[0, 5, 13, 25]] = 0.4, 0.3, 0.2, 0.1


def planned(
    levels: str = "only = 4.0", mechanism: str = "square_wave", high: int = 42, step: str = ""
) -> Plan:
    text = f"""
name = "people"
period = "P1D"
[levels]
{levels}
[[attributes]]
name = "age"
mechanism = "{mechanism}"
[attributes.numeric]
low = 17
high = {high}
{step}
"""
    return hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(text, "test.toml")))


def drawn(
    plan: Plan, truth: Floats, sizes: list[int], generator: np.random.Generator, day: str = "d"
) -> Tallies:
    found = {}
    for (name, level), n in zip(plan.levels.items(), sizes, strict=True):
        chances = truth @ channel_from_points(level.mechanisms["age"], truth.size)
        counts = generator.multinomial(n, chances / chances.sum())
        found[Cohort("people", plan.revision, "age", name, day)] = Tally(n, counts)
    return found


def question(**choices: Any) -> analyst_pb2.DistributionRequest:
    return analyst_pb2.DistributionRequest(survey="people", attribute="age", **choices)


def test_bins_are_ranges_of_whole_numbers_as_many_as_reports_can_show() -> None:
    plan, generator = planned("only = 1.0"), np.random.default_rng(1)
    for n, bins in ((2500, 4), (10_000, 8), (100_000, 24)):
        answer = distribution(plan, question(step=1), drawn(plan, AGES, [n], generator))
        assert len(rows_of(answer, "bins")) == bins
        assert (answer.method, answer.figures["step"], answer.warning) == ("scoring", 1.0, "")
        assert sum(each.estimate for each in rows_of(answer, "bins")) == pytest.approx(1)
    assert (rows_of(answer, "bins")[0].left, rows_of(answer, "bins")[0].right) == (17, 17)
    eight = distribution(plan, question(step=1, bins=8), drawn(plan, AGES, [10_000], generator))
    assert [(each.left, each.right) for each in rows_of(eight, "bins")][:2] == [(17, 19), (20, 22)]


def test_edges_lie_between_whole_numbers() -> None:
    plan = planned()
    tallies = drawn(plan, AGES, [20_000], np.random.default_rng(2))
    answer = distribution(plan, question(step=1, edges=[17, 24.5, 42]), tallies)
    assert [(each.left, each.right) for each in rows_of(answer, "bins")] == [(17, 24), (25, 42)]
    assert rows_of(answer, "bins")[0].low < AGES[:8].sum() < rows_of(answer, "bins")[0].high
    with pytest.raises(InvalidInput, match=r"an edge at 24 cuts a point.*take 23\.5 or 24\.5"):
        distribution(plan, question(step=1, edges=[17, 24, 42]), tallies)


def test_too_few_reports_are_told_how_many_it_takes() -> None:
    plan = planned("only = 0.5", high=80)
    truth = np.full(64, 1 / 64)
    tallies = drawn(plan, truth, [1000], np.random.default_rng(3))
    answer = distribution(plan, question(step=1, quantiles=[0.5]), tallies)
    assert not rows_of(answer, "bins")
    assert answer.warning == (
        "1,000 reports at epsilon 0.5 cannot show a distribution of 64 values: the share below "
        "the middle is known to ±0.92. About 337,000 would give ±0.05."
    )
    assert rows_of(answer, "quantiles")[0].low == 17
    assert rows_of(answer, "quantiles")[0].high > 60
    # Bins that are asked for are shown: their intervals cover, wide as they are.
    halves = distribution(plan, question(step=1, bins=2), tallies)
    assert halves.warning == answer.warning
    assert rows_of(halves, "bins")[0].low < 0.5 < rows_of(halves, "bins")[0].high


def test_a_warning_names_the_epsilons_of_all_levels() -> None:
    plan = planned("strict = 0.25\nopen = 0.5")
    tallies = drawn(plan, AGES, [300, 200], np.random.default_rng(4))
    answer = distribution(plan, question(step=1), tallies)
    assert answer.warning.startswith("500 reports at epsilon 0.25 to 0.5 cannot show")
    assert answer.method == "scoring, stratified"


@pytest.mark.parametrize(
    ("view", "more", "names"),
    [
        ("", {"quantiles": [0.5]}, ["bins", "quantiles"]),
        ("distribution", {}, ["bins"]),
        ("quantiles", {"quantiles": [0.5]}, ["quantiles"]),
        ("cdf", {"cumulative": True}, ["below"]),
        ("cdf", {"cumulative": True, "bins": 2}, ["below", "bins"]),
        ("between", {"ranges": [analyst_pb2.Range(low=17, high=20)]}, ["ranges"]),
    ],
)
@pytest.mark.parametrize("step", [{"step": 1}, {}])
def test_a_view_has_its_table_first_and_what_else_is_asked_for(
    view: str, more: dict[str, Any], names: list[str], step: dict[str, Any]
) -> None:
    plan = planned()
    tallies = drawn(plan, AGES, [20_000], np.random.default_rng(5))
    answer = distribution(plan, question(view=view, **more, **step), tallies)
    assert answer.view == (view or "distribution")
    assert [table.name for table in answer.tables] == names
    assert [table.statistic for table in answer.tables if table.name == "quantiles"] in (
        [],
        ["age"],
    )
    units = {column.unit for table in answer.tables for column in table.columns}
    assert units <= {"share", "own"} and (("own" in units) == ("quantiles" in names))
    with pytest.raises(InvalidInput, match="view must be one of distribution, quantiles"):
        distribution(plan, question(view="shares", **step), tallies)


def test_quantiles_are_numbers_of_the_range_with_intervals_and_no_standard_error() -> None:
    plan = planned()
    tallies = drawn(plan, AGES, [20_000], np.random.default_rng(5))
    (row,) = rows_of(distribution(plan, question(step=1, quantiles=[0.5]), tallies), "quantiles")
    median = 17 + int(np.argmax(AGES.cumsum() >= 0.5))
    assert row.low <= median <= row.high
    assert row.estimate == int(row.estimate)
    assert row.high - row.low <= 2
    assert row.standard_error is None


def test_the_same_people_in_several_periods_do_not_count_twice() -> None:
    plan, generator = planned(), np.random.default_rng(6)
    days = [drawn(plan, AGES, [2000], generator, f"day {d}") for d in range(4)]
    tallies = {cohort: tally for day in days for cohort, tally in day.items()}
    answer = distribution(plan, question(step=1, bins=5), tallies)
    (sole,) = rows_of(distribution(plan, question(step=1, bins=1), tallies), "bins")
    assert answer.repeats == 4.0
    assert answer.reports == 8000
    for each in rows_of(answer, "bins"):
        assert each.standard_error > np.sqrt(each.estimate * (1 - each.estimate) / 2000)
    assert (sole.low, sole.high) == (1.0, 1.0)


@pytest.mark.parametrize("high", [42, 300])
def test_a_curve_is_drawn_without_a_step(high: int) -> None:
    plan = planned(high=high)
    tallies = drawn(plan, np.full(26, 1 / 26), [5000], np.random.default_rng(7))
    answer = distribution(plan, question(quantiles=[0.5]), tallies)
    assert answer.method == "ems"
    assert len(rows_of(answer, "bins")) == 10
    assert answer.figures["step"] is None
    assert "declare a step" in answer.warning
    for row in (rows_of(answer, "bins")[3], rows_of(answer, "quantiles")[0]):
        assert row.estimate > 0
        assert (row.standard_error, row.low, row.high) == (None, None, None)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"step": 0.0}, "step must be finite and > 0"),
        ({"step": 2.0}, "whole steps must lead from 17 to 42"),
        ({"step": 0.05}, "there may be 513 points, got 501"),
        ({"step": 1.0, "bins": 27}, "26 values make at most 26 bins"),
        ({"bins": 5, "edges": [17, 42]}, "give the edges of the bins or their number, not both"),
        ({"view": "between"}, "between needs ranges: got none"),
        ({"view": "cdf", "step": 1.0}, "cdf needs cumulative: got none"),
        ({"step": 1.0, "quantiles": [0.0]}, "levels must lie strictly between 0 and 1"),
        ({"step": 1.0, "confidence": 1.0}, "confidence must lie strictly between 0 and 1"),
        ({"confidence": 0.0}, "confidence must lie strictly between 0 and 1"),
    ],
    ids=str,
)
def test_questions_without_an_answer_are_refused(choices: dict[str, Any], message: str) -> None:
    plan = planned()
    tallies = drawn(plan, AGES, [100], np.random.default_rng(8))
    if choices.get("step") == 0.05:
        message = "on a grid of 257 numbers: they cannot tell 501 points apart"
    with pytest.raises(InvalidInput, match=message):
        distribution(plan, question(**choices), tallies)


def test_a_step_of_the_survey_needs_not_be_asked_for() -> None:
    plan = planned(step="step = 1")
    assert plan.level("only").mechanisms["age"].integers["grid"] == (25,)
    tallies = drawn(plan, AGES, [20_000], np.random.default_rng(10))
    answer = distribution(plan, question(), tallies)
    assert (answer.method, answer.figures["step"], answer.warning) == ("scoring", 1.0, "")
    assert answer.to_dict() == distribution(plan, question(step=1), tallies).to_dict()
    with pytest.raises(InvalidInput, match="was collected in steps of 1: leave the step out"):
        distribution(plan, question(step=5), tallies)


@pytest.mark.parametrize(("epsilon", "least"), [(1.0, 0.75), (4.0, 0.75)])
def test_real_numbers_rounded_down_by_the_device_have_intervals_that_cover(
    epsilon: float, least: float
) -> None:
    # Three people of ten at 0, the rest anywhere: rounded at random to a fine grid, the share
    # beside the atom was covered never.
    plan = planned(f"only = {epsilon}", high=43, step="step = 0.5")
    level, generator = plan.level("only").mechanisms["age"], np.random.default_rng(11)
    assert isinstance(level, MeanMechanism)
    domain, edges = plan.attributes["age"].domain, [17, 17.5, 19.5, 30, 43]
    true = np.diff(np.array(edges)) / 26 * 0.7
    true[0] += 0.3
    hits = []
    for seed in range(25):
        n = 4000
        numbers = generator.uniform(17, 43, n)
        numbers[generator.random(n) < 0.3] = 17.0
        encoded = [domain.encode(number) for number in numbers.tolist()]
        tally = level.tally(level.randomize_many(encoded, SeededCoins(seed)))
        tallies = {Cohort("people", plan.revision, "age", "only", "d"): tally}
        rows = rows_of(distribution(plan, question(edges=edges), tallies), "bins")
        hits.append([r.low <= share <= r.high for r, share in zip(rows, true, strict=True)])
    assert np.mean(hits) > 0.88
    assert np.mean(hits, axis=0).min() > least


STEPPED = """
name = "people"
[levels]
only = 8.0
[[attributes]]
name = "age"
mechanism = "square_wave"
[attributes.numeric]
low = 17
high = 42
clamp = true
step = 1
"""


def test_from_devices_that_round_down_to_an_analyst_who_needs_not_know_the_step(
    address: str,
) -> None:
    # At epsilon 8 nearly every report is of the point itself.
    ages = [17.2, 17.9, 20.0, 20.99, 41.999, 42, 50] * 6
    create(address, STEPPED)
    for number, age in enumerate(ages):
        with device(address, "people", level="only", coins=SeededCoins(number)) as client:
            assert client.record(age=age).taken == ("age",)
    with Analyst(address) as analyst:
        answer = analyst.distribution("people", "age", edges=[17, 17.5, 19.5, 20.5, 40.5, 41.5, 42])
        histogram = answer.to_frame()
        quantiles = answer.to_frame("quantiles")
        asked = analyst.quantile("people", "age", [1 / 3, 1e-7]).to_frame()
        assert list(asked.index) == [1 / 3, 1e-7]  # as they were asked for
        with pytest.raises(InvalidInput, match="quantiles needs quantiles: got none"):
            analyst.quantile("people", "age", [])
        with pytest.raises(InvalidInput, match="was collected in steps of 1"):
            analyst.distribution("people", "age", step=0.5).to_frame()
    assert (histogram.attrs["step"], histogram.attrs["warning"]) == (1.0, "")
    shares = np.array([2, 0, 2, 0, 1, 2]) / 7
    assert list(histogram.index) == [(17, 17), (18, 19), (20, 20), (21, 40), (41, 41), (42, 42)]
    assert (histogram["low"] <= shares).all()
    assert (shares <= histogram["high"]).all()
    assert histogram["estimate"].to_numpy() == pytest.approx(shares, abs=0.1)
    assert quantiles.loc[0.5, "low"] <= 20 <= quantiles.loc[0.5, "high"]


def test_no_reports_have_no_distribution() -> None:
    with pytest.raises(NoReports):
        distribution(planned(), question(step=1), {})


def coverage(
    plan: Plan, truth: Floats, sizes: list[int], runs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return how often the intervals of each bin, and of each quartile, cover."""
    generator = np.random.default_rng(9)
    levels = [0.25, 0.5, 0.75]
    quartiles = 17 + np.searchsorted(truth.cumsum(), np.array(levels) - 1e-12)
    bins, quantiles = [], []
    for _ in range(runs):
        asked = question(step=1, bins=10, quantiles=levels)
        answer = distribution(plan, asked, drawn(plan, truth, sizes, generator))
        shares = [
            truth[int(b.left) - 17 : int(b.right) - 16].sum() for b in rows_of(answer, "bins")
        ]
        rows = rows_of(answer, "bins")
        bins.append([r.low <= s <= r.high for r, s in zip(rows, shares, strict=True)])
        pairs = zip(rows_of(answer, "quantiles"), quartiles, strict=True)
        quantiles.append([r.low <= q <= r.high for r, q in pairs])
    return np.mean(bins, axis=0), np.mean(quantiles, axis=0)


CASES: dict[str, tuple[Callable[[], Plan], Floats, list[int]]] = {
    "ages at epsilon 4": (planned, AGES, [20_000]),
    "ages at epsilon 3": (lambda: planned("only = 3.0"), AGES, [20_000]),
    "atoms at epsilon 4": (planned, ATOMS, [20_000]),
    "ages at two levels": (lambda: planned("strict = 1.0\nopen = 3.0"), AGES, [15_000, 5_000]),
    "ages, a step in the survey": (lambda: planned(step="step = 1"), AGES, [20_000]),
    "ages, hybrid": (lambda: planned(mechanism="hybrid"), AGES, [20_000]),
}


@pytest.mark.parametrize(
    "case", ["ages at epsilon 3", "ages at two levels", "ages, a step in the survey"]
)
def test_intervals_of_whole_numbers_cover(case: str) -> None:
    make, truth, sizes = CASES[case]
    bins, quartiles = coverage(make(), truth, sizes, 40)
    assert bins.mean() > 0.9
    assert quartiles.min() > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_intervals_of_whole_numbers_cover_as_often_as_they_say(case: str) -> None:
    make, truth, sizes = CASES[case]
    bins, quartiles = coverage(make(), truth, sizes, 600)
    assert 0.93 <= bins.mean() <= 0.985
    assert bins.min() > 0.91
    assert quartiles.min() > 0.93
