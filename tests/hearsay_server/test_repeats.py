"""Errors over periods in which devices repeat their memos, by simulation."""

import numpy as np
import pytest
from numpy.typing import NDArray

import hearsay.plan
from hearsay_server import queries
from hearsay_server import survey as surveys
from hearsay_server.intake import Cohort
from hearsay_server.repeats import overstatement
from ldp import Tally, pooling
from ldp.testing import SeededCoins

TOML = """
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
PLAN = hearsay.plan.parse(surveys.resolve(surveys.from_toml(TOML, "habits.toml")))
TRUTH = np.array([0.6, 0.3, 0.1])
PEOPLE, DAYS, RUNS = 300, 4, 500

Answering = dict[str, NDArray[np.float64]]
"""By level, with what probability each person answers on each of the days."""

EVERYBODY: Answering = {"strict": np.ones(DAYS), "open": np.ones(DAYS)}
SOME: Answering = {"strict": np.full(DAYS, 0.5), "open": np.full(DAYS, 0.9)}
IN_TURN: Answering = {"strict": np.array([1, 1, 0.2, 0.2]), "open": np.array([0.1, 0.1, 1, 1])}


def _runs(answering: Answering) -> list[dict[Cohort, Tally]]:
    """Tally a new population, with new memos, again and again."""
    source, coins = np.random.default_rng(5), SeededCoins(5)
    runs: list[dict[Cohort, Tally]] = [{} for _ in range(RUNS)]
    for level, chances in answering.items():
        mechanism = PLAN.levels[level].mechanisms["drink"]
        values = source.choice(len(TRUTH), RUNS * PEOPLE, p=TRUTH)
        memos = mechanism.randomize_many(values, coins).reshape(RUNS, PEOPLE)
        for run, codes in zip(runs, memos, strict=True):
            for day, chance in enumerate(chances):
                cohort = Cohort("habits", PLAN.revision, "drink", level, f"2026-07-0{day + 1}")
                run[cohort] = mechanism.tally(codes[source.random(PEOPLE) < chance])
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
        low, high = queries.pooled(PLAN, "drink", tallies, method).estimate.interval()
        covered.append((low <= TRUTH) & (high >= TRUTH))
        cohorts = list(queries.by_level(PLAN, "drink", tallies).values())
        low, high = pooling.pool(cohorts, pooling.named(method) if method else None).interval()
        independent.append((low <= TRUTH) & (high >= TRUTH))
    assert 0.935 <= np.mean(covered) <= most
    assert np.mean(independent) < 0.9  # what is to be allowed for


def test_the_overstatement_is_that_of_equal_parts_and_never_more() -> None:
    def factor(**reports: list[int]) -> float:
        return overstatement(
            {
                Cohort("habits", PLAN.revision, "drink", level, str(day)): Tally(n, np.array([n]))
                for level, by_day in reports.items()
                for day, n in enumerate(by_day)
            }
        )

    assert factor(open=[100]) == 1
    assert factor(open=[100, 0, 0]) == 1
    assert factor(open=[100] * 9) == pytest.approx(3)
    assert factor(open=[100] * 4, strict=[7] * 4) == pytest.approx(2)
    # sqrt(0.9) + sqrt(0.1), the parts' standard deviations
    assert factor(open=[90, 10]) == pytest.approx(0.9**0.5 + 0.1**0.5)
    # The levels' shares of the variance are not known here: at worst that of each day.
    assert factor(open=[90, 10], strict=[10, 90]) == pytest.approx(2**0.5)
