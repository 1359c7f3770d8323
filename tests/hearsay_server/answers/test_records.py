"""Records that report several attributes: which are read, how they are counted, what is missing."""

import numpy as np
import pytest
from collected import batch

from hearsay.asking import wire
from hearsay.plans.plan import Plan, parse
from hearsay.v1 import analyst_pb2, answer_pb2, collector_pb2
from hearsay_server.answers import fits, joints, questions, records
from hearsay_server.answers.queries import NoReports
from hearsay_server.surveys.survey import from_toml, resolve
from ldp.testing import SeededCoins
from support import rows_of

TOML = """
name = "pairs"
period = "P1D"
[levels]
strict = 2.0
open = 6.0
[[attributes]]
name = "a"
mechanism = "krr"
[attributes.categorical]
values = ["x", "y", "z"]
[[attributes]]
name = "b"
mechanism = "oue"
[attributes.categorical]
values = ["u", "v"]
"""
OPEN, STRICT = ("open", ""), ("strict", "")  # levels, and no map
DAYS = ("2026-11-20", "2026-11-21")
TABLE = analyst_pb2.CrosstabRequest(survey="pairs", attribute="a", other="b")


def made(text: str = TOML) -> tuple[bytes, Plan]:
    data = resolve(from_toml(text, "pairs.toml"))
    return data, parse(data)


def answers(rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
    return {"a": rng.integers(0, 3, n), "b": rng.integers(0, 2, n)}


def tallies(plan: Plan, days: tuple[str, ...], n: int = 400) -> records.Pairs:
    rng = np.random.default_rng(1)
    found = records.Pairs({}, {})
    for day in days:
        page = [batch(plan, "open", day, answers(rng, n), 3)]
        found += records.pairs(
            plan, ("a", "b"), records.complete(plan, ("a", "b"), ["open"], [page])
        )
    return found


def test_records_are_those_that_report_all_of_the_attributes_at_the_levels() -> None:
    _, plan = made()
    rng = np.random.default_rng(2)
    counts = {("a", "open"): 4, ("a", "strict"): 1, ("b", "open"): 3, ("b", "strict"): 1}
    codes = {
        key: plan.levels[key[1]]
        .mechanisms[key[0]]
        .randomize_many(rng.integers(0, 2, n), SeededCoins(n))
        for key, n in counts.items()
    }
    present = {
        ("a", "open"): [0, 1, 3, 5],
        ("a", "strict"): [2],
        ("b", "open"): [0, 2, 3],
        ("b", "strict"): [5],
    }
    columns = []
    for key, rows in present.items():
        bits = np.zeros(6, dtype=np.uint8)
        bits[rows] = 1
        columns.append(
            collector_pb2.Column(
                attribute=key[0],
                level=key[1],
                codes=plan.levels[key[1]].mechanisms[key[0]].encode(codes[key]),
                present=np.packbits(bits, bitorder="little").tobytes(),
            )
        )
    page = [collector_pb2.Batch(period=DAYS[0], rows=6, columns=columns)]
    found = records.complete(plan, ("a", "b"), ["strict", "open"], [page, page])
    both = found.codes[DAYS[0], (OPEN, OPEN)]
    assert both[0].tolist() == 2 * codes["a", "open"][[0, 2]].tolist()  # rows 0 and 3
    assert both[1].tolist() == 2 * codes["b", "open"][[0, 2]].tolist()
    mixed = found.codes[DAYS[0], (STRICT, OPEN)]
    assert mixed[0].tolist() == 2 * codes["a", "strict"].tolist()
    assert mixed[1].tolist() == 2 * codes["b", "open"][[1]].tolist()
    assert found.codes[DAYS[0], (OPEN, STRICT)][0].tolist() == 2 * codes["a", "open"][[3]].tolist()
    alone = records.complete(plan, ("a", "b"), ["open"], [page])
    assert list(alone.codes) == [(DAYS[0], (OPEN, OPEN))]
    assert not records.complete(plan, ("a", "b"), ["strict"], [page]).codes
    twice = records.merged([alone, alone])
    assert len(twice.codes[DAYS[0], (OPEN, OPEN)][0]) == 4
    assert twice.bytes == 2 * alone.bytes


def test_people_may_be_in_several_periods() -> None:
    _, plan = made()
    once, twice = tallies(plan, DAYS[:1]), tallies(plan, DAYS)
    one, both = (joints.crosstab(plan, TABLE, found) for found in (once, twice))
    assert (one.repeats, both.repeats) == (1.0, 2.0)
    given = joints.by_levels(plan, ("a", "b"), twice)
    whole = [(*given.cohorts[0][:2], given.cohorts[0][2])]
    independent = joints.independence(whole).statistic
    (test,) = rows_of(both, "independence")
    assert test.statistic == pytest.approx(independent / 2)
    errors = joints.joint(whole).standard_error.ravel()
    assert all(own.standard_error > e for own, e in zip(rows_of(both), errors, strict=True))
    memo = made(TOML.replace('mechanism = "krr"', 'memo = 1\nmechanism = "krr"'))[1]
    repeated = joints.crosstab(memo, TABLE, twice)
    wider = [own.standard_error for own in rows_of(repeated)]
    assert wider == pytest.approx((2**0.5 * errors).tolist(), rel=0.02)


def test_a_regression_allows_for_people_in_several_periods() -> None:
    _, plan = made()
    rng = np.random.default_rng(4)
    question = analyst_pb2.FitRequest(
        survey="pairs",
        family=analyst_pb2.FitRequest.LINEAR,
        response=analyst_pb2.Variable(attribute="b", value="v"),
        columns=[
            analyst_pb2.Product(),
            analyst_pb2.Product(variables=[analyst_pb2.Variable(attribute="a", value="y")]),
        ],
    )
    names = fits.attributes_of(question)
    assert names == ("b", "a")
    page = [batch(plan, "open", DAYS[0], answers(rng, 600), 3)]
    once = records.complete(plan, names, ["open"], [page])
    (key, codes), *_ = once.codes.items()
    twice = records.Complete({key: codes, (DAYS[1], key[1]): codes})
    one, both = (fits.fit(plan, question, found) for found in (once, twice))
    assert both.repeats == 2
    # Twice the same records tell no more: half of the variance, times two.
    assert list(one.table().index[0].labels) == ["Intercept", "a[y]"]
    for name in ("estimate", "standard_error"):
        first, second = (answer.table().column(name).values for answer in (one, both))
        assert second == pytest.approx(first)


def test_rows_that_the_retention_dropped_are_told_of() -> None:
    data, plan = made()
    with pytest.raises(NoReports, match="yet: the retention has dropped the rows of 3 batches"):
        questions.crosstab(data, TABLE, records.Pairs({}, {}), 3)
    with pytest.raises(NoReports, match=r"no stored record reports both 'a' and 'b' yet$"):
        questions.crosstab(data, TABLE, records.Pairs({}, {}))
    message = questions.crosstab(data, TABLE, tallies(plan, DAYS[:1]), 2)
    answer = wire.from_message(answer_pb2.Answer.FromString(message))
    assert answer.warning.startswith("the retention has dropped the rows of 2 batches: this is")
