"""The same people on many days: what an analyst is told of their reports."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

import hearsay.plans.plan
from hearsay.asking import Answer
from hearsay.plans.plan import Plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import queries
from hearsay_server.answers.repeats import of_levels
from hearsay_server.ingest.intake import Cohort
from hearsay_server.surveys import survey as surveys
from ldp import Tally
from ldp.core.estimation import Cohorts
from ldp.core.repeated import Repeats
from ldp.estimating import pooling
from ldp.testing import SeededCoins
from support import rows_of

TOML = """
name = "asked"
period = "P1D"
[levels]
strict = 1.0
open = 3.0
[[attributes]]
name = "x"
mechanism = "krr"
[attributes.categorical]
values = ["no", "yes"]
"""
PEOPLE, DAYS, SHARE = 500, 30, 0.3


def plan_of(toml: str) -> Plan:
    return hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(toml, "test.toml")))


PLAN = plan_of(TOML)


def cohort(level: str, day: int) -> Cohort:
    return Cohort("asked", PLAN.revision, "x", level, f"2026-10-{day + 1:02d}")


def answered(level: str, source: np.random.Generator) -> dict[Cohort, Tally]:
    """The same people's reports of every day, each randomised anew."""
    p, q = map(float, PLAN.levels[level].mechanisms["x"].support)  # type: ignore[attr-defined]
    ones = source.binomial(PEOPLE, SHARE)
    found = {}
    for day in range(DAYS):
        yes = source.binomial(ones, p) + source.binomial(PEOPLE - ones, q)
        found[cohort(level, day)] = Tally(PEOPLE, np.array([PEOPLE - yes, yes]))
    return found


def asked(tallies: dict[Cohort, Tally]) -> Answer:
    return queries.estimate(
        PLAN, analyst_pb2.EstimateRequest(survey="asked", attribute="x"), tallies
    )


@pytest.mark.parametrize("level", ["strict", "open"])
def test_intervals_cover_where_the_same_people_answer_every_day(level: str) -> None:
    source = np.random.default_rng(1)
    answers = [asked(answered(level, source)) for _ in range(150)]
    rows = [rows_of(answer)[1] for answer in answers]
    assert np.mean([row.low <= SHARE <= row.high for row in rows]) > 0.91
    assert max(row.effective_sample_size for row in rows) < PEOPLE
    assert {answer.repeats for answer in answers} == {DAYS}


def test_levels_of_the_same_people_are_pooled() -> None:
    source = np.random.default_rng(2)
    answers = [asked(answered("strict", source) | answered("open", source)) for _ in range(60)]
    assert sum(answer.figures["homogeneity"] < 0.01 for answer in answers) <= 3
    rows = [rows_of(answer)[1] for answer in answers]
    assert np.mean([row.low <= SHARE <= row.high for row in rows]) > 0.88


def test_a_period_by_itself_has_the_errors_of_different_people() -> None:
    (first,) = list(answered("open", np.random.default_rng(3)).items())[:1]
    answer = asked(dict([first]))
    mechanism = PLAN.levels["open"].mechanisms["x"]
    assert answer.repeats == 1
    assert rows_of(answer)[1].standard_error == pytest.approx(
        mechanism.variance(rows_of(answer)[1].estimate, PEOPLE) ** 0.5, rel=0.01
    )


Counted = Callable[[str, int], int]


@pytest.mark.parametrize(
    ("counted", "factors"),
    [
        (lambda level, day: 10, [3, 3]),
        (lambda level, day: 10 if level == "strict" else 0, [3]),
        (lambda level, day: (100, 10, 1)[day], [147 / 111, 147 / 111]),
    ],
    ids=["even", "one-level", "fewer-and-fewer"],
)
def test_repeats_are_what_the_numbers_of_reports_allow(
    counted: Counted, factors: list[float]
) -> None:
    tallies = {
        cohort(level, day): Tally(n, np.array([n, 0]))
        for level in ("strict", "open")
        for day in range(3)
        if (n := counted(level, day))
    }
    found = of_levels(PLAN, tallies)
    assert [one.factor for one in found] == pytest.approx(factors)
    assert not any(one.codes for one in found)


def test_memos_may_repeat_the_codes_themselves() -> None:
    plan = plan_of(TOML.replace('mechanism = "krr"', 'mechanism = "l_osue"\nmemo = 4.0'))
    tallies = {cohort("open", day): Tally(10, np.array([4, 3])) for day in range(4)}
    assert of_levels(plan, tallies) == [Repeats(4.0, codes=True)]
    question = analyst_pb2.EstimateRequest(survey="asked", attribute="x")
    many = queries.estimate(plan, question, tallies)
    (first,) = list(tallies.items())[:1]
    one = queries.estimate(plan, question, dict([first]))
    assert rows_of(many)[1].standard_error == pytest.approx(
        rows_of(one)[1].standard_error, rel=0.05
    )


# --- memos, by simulation ---------------------------------------------------------------------

HABITS = """
name = "habits"
period = "P1D"
[levels]
strict = 0.7
open = 2.0
[[attributes]]
name = "drink"
mechanism = "krr"
memo = 1
[attributes.categorical]
values = ["tea", "milk", "beer"]
"""
HABITS_PLAN = plan_of(HABITS)
DRINKS = np.array([0.6, 0.3, 0.1])
DRINKERS, TURNS, RUNS = 300, 4, 500

Answering = dict[str, NDArray[np.float64]]
"""By level, with what probability each person answers on each of the days."""

EVERYBODY: Answering = {"strict": np.ones(TURNS), "open": np.ones(TURNS)}
SOME: Answering = {"strict": np.full(TURNS, 0.5), "open": np.full(TURNS, 0.9)}
IN_TURN: Answering = {"strict": np.array([1, 1, 0.2, 0.2]), "open": np.array([0.1, 0.1, 1, 1])}


def _runs(answering: Answering) -> list[dict[Cohort, Tally]]:
    """Tally a new population, with new memos, again and again."""
    source, coins = np.random.default_rng(5), SeededCoins(5)
    runs: list[dict[Cohort, Tally]] = [{} for _ in range(RUNS)]
    for level, chances in answering.items():
        mechanism = HABITS_PLAN.levels[level].mechanisms["drink"]
        values = source.choice(len(DRINKS), RUNS * DRINKERS, p=DRINKS)
        memos = mechanism.randomize_many(values, coins).reshape(RUNS, DRINKERS)
        for run, codes in zip(runs, memos, strict=True):
            for day, chance in enumerate(chances):
                cohort = Cohort(
                    "habits", HABITS_PLAN.revision, "drink", level, f"2026-07-0{day + 1}"
                )
                run[cohort] = mechanism.tally(codes[source.random(DRINKERS) < chance])
    return runs


@pytest.mark.slow
@pytest.mark.parametrize("method", ["", "inverse_variance"], ids=["best", "inverse_variance"])
@pytest.mark.parametrize(
    ("answering", "most"),
    [(EVERYBODY, 0.965), (SOME, 1.0), (IN_TURN, 1.0)],
    ids=["everybody every day", "some each day", "the levels in turn"],
)
def test_intervals_cover_95_percent_where_devices_repeat_their_memos(
    answering: Answering, most: float, method: str
) -> None:
    covered, independent = [], []
    for tallies in _runs(answering):
        low, high = queries.answered(HABITS_PLAN, "drink", tallies, method).estimate.interval()
        covered.append((low <= DRINKS) & (high >= DRINKS))
        cohorts = Cohorts(list(queries.by_level(HABITS_PLAN, "drink", tallies)))
        low, high = pooling.pool(cohorts, pooling.named(method) if method else None).interval()
        independent.append((low <= DRINKS) & (high >= DRINKS))
    assert 0.935 <= np.mean(covered) <= most
    assert np.mean(independent) < 0.9  # what is to be allowed for
