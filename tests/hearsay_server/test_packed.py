"""Packed tallies: a mapping whose tallies are unpacked one at a time."""

import pickle
import tracemalloc

import numpy as np

import hearsay.plans.plan
from hearsay.v1 import analyst_pb2
from hearsay_server.answers import queries
from hearsay_server.ingest.intake import Cohort
from hearsay_server.storage.packed import PackedTallies
from hearsay_server.surveys import survey as surveys
from ldp import Tally
from support import rows_of

ONE, TWO = Tally(2, np.array([2, 1])), Tally(3, np.array([0, 3]))


def cohort(level: str, period: str) -> Cohort:
    return Cohort("asked", b"r", "x", level, period)


def packed(*names: tuple[str, str]) -> PackedTallies:
    parts = [ONE.to_bytes(), TWO.to_bytes()]
    return PackedTallies({cohort(*name): parts for name in names})


def test_a_tally_is_the_sum_of_what_its_writers_stored() -> None:
    tallies = packed(("open", "a"), ("open", "b"))
    assert tallies == {cohort("open", "a"): ONE + TWO, cohort("open", "b"): ONE + TWO}
    assert pickle.loads(pickle.dumps(tallies)) == tallies
    assert tallies != packed(("open", "a"))


def test_groups_keep_the_order_of_the_cohorts() -> None:
    tallies = packed(("open", "b"), ("strict", "a"), ("open", "a"))
    groups = tallies.grouped(lambda each: each.level)
    assert list(groups) == ["open", "strict"]
    assert list(groups["open"]) == [cohort("open", "b"), cohort("open", "a")]


def test_a_question_about_many_periods_holds_few_tallies_at_once() -> None:
    k, periods = 20_000, 400
    toml = (
        'name = "asked"\nperiod = "PT1H"\n[levels]\nonly = 2.0\n[[attributes]]\nname = "x"\n'
        f'mechanism = "krr"\n[attributes.categorical]\nvalues = {[str(v) for v in range(k)]}\n'
    )
    plan = hearsay.plans.plan.parse(surveys.resolve(surveys.from_toml(toml, "x.toml")))
    one = Tally(1, np.eye(1, k, 7, dtype=np.int64)[0]).to_bytes()
    tallies = PackedTallies(
        {Cohort("asked", plan.revision, "x", "only", str(n)): [one] for n in range(periods)}
    )
    question = analyst_pb2.EstimateRequest(survey="asked", attribute="x", top=1)
    tracemalloc.start()
    try:
        answer = queries.estimate(plan, question, tallies)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (rows_of(answer)[0].label, answer.reports) == ("7", periods)
    assert most < 8 * k * periods / 4  # a quarter of all tallies unpacked
