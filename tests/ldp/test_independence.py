"""Tests of independence on randomised records: size, power, and what they equal."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from test_joint import SHARES, drawn, of_table, pair

from ldp import KRR, InvalidInput, OneBitMean, SubsetSelection, UnaryEncoding
from ldp.core.mechanism import Categorical
from ldp.core.repeated import Repeats
from ldp.estimating.independence import (
    detectable,
    independence,
    independence_of,
    noncentrality,
    power,
)
from ldp.estimating.joint import JointTable, joint
from ldp.estimating.pairs import count_pairs
from ldp.testing import SeededCoins

INDEPENDENT = np.outer([0.5, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1])


def test_it_is_pearsons_test_of_the_table_of_codes() -> None:
    table = np.array([[210, 250, 240, 190], [260, 330, 280, 290], [200, 180, 310, 260]])
    expected = chi2_contingency(table, correction=False)
    found = independence([(KRR(3, 1.0), KRR(4, 0.5), of_table(table))])
    assert found.statistic == pytest.approx(expected.statistic)
    assert found.degrees == expected.dof == 6
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.noncentrality == pytest.approx(expected.statistic - 6)


@pytest.mark.parametrize("each", [0.5, pytest.param(1.0, marks=pytest.mark.slow), 2.0])
def test_the_size_is_that_of_the_significance(each: float) -> None:
    first, second, rng = KRR(3, each), KRR(4, each), np.random.default_rng(8)
    runs = 1000
    p = [
        independence([(first, second, drawn(first, second, INDEPENDENT, 20_000, rng))]).p_value
        for _ in range(runs)
    ]
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.01 + 2 * (0.0475 / runs) ** 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("make", [SubsetSelection, UnaryEncoding], ids=lambda m: m.name)
def test_the_size_holds_for_reports_that_support_several_values(make: type[Categorical]) -> None:
    first, second = make(3, 1.0), make(4, 1.0)  # type: ignore[call-arg]
    rng, coins, runs = np.random.default_rng(8), SeededCoins(9), 400
    rejected = 0
    for _ in range(runs):
        values = rng.choice(12, 2000, p=INDEPENDENT.ravel())
        codes = (
            first.randomize_many(values // 4, coins),
            second.randomize_many(values % 4, coins),
        )
        tally = count_pairs(first, codes[0], second, codes[1])
        rejected += independence([(first, second, tally)]).p_value < 0.05
    assert rejected / runs == pytest.approx(0.05, abs=0.035)


@pytest.mark.parametrize("make", [UnaryEncoding, KRR], ids=lambda m: m.name)
def test_rare_values_do_not_make_independent_answers_dependent(make: type[Categorical]) -> None:
    """At high epsilon a pair of rare values is in no record, or else in far too many."""
    mechanism, shares = make(4, 6.0), [0.7, 0.2, 0.09, 0.01]  # type: ignore[call-arg]
    rng, coins, runs, p = np.random.default_rng(1), SeededCoins(2), 300, []
    for _ in range(runs):
        values = rng.choice(4, (2, 1000), p=shares)
        one, other = (mechanism.randomize_many(own, coins) for own in values)
        tally = count_pairs(mechanism, one, mechanism, other)
        p.append(independence([(mechanism, mechanism, tally)]).p_value)
    assert np.mean(np.array(p) < 0.005) < 0.02
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.035)


def test_rare_values_are_taken_together_as_one() -> None:
    table = np.array([[50, 40, 3], [40, 50, 2], [1, 2, 1]])
    found = independence([(KRR(3, 8.0), KRR(3, 8.0), of_table(table))])
    merged = np.array([[53, 40], [44, 52]])
    expected = chi2_contingency(merged, correction=False)
    assert found.degrees == 1
    assert found.statistic == pytest.approx(expected.statistic)
    nearly_all = independence([(KRR(2, 8.0), KRR(2, 8.0), of_table(np.array([[90, 5], [4, 1]])))])
    assert (nearly_all.degrees, nearly_all.p_value) == (0, 1.0)


def _associated(phi2: float) -> np.ndarray:
    """Return a table of these margins whose sum of (p - fg)**2 / fg is phi2."""
    sides = np.outer([1, -1, -1], [1, 1, -1, -1.0])
    sides -= (sides * INDEPENDENT.sum(axis=1)[:, None]).sum(axis=0)
    sides -= (sides * INDEPENDENT.sum(axis=0)).sum(axis=1)[:, None]
    away = sides * INDEPENDENT
    return INDEPENDENT + away * np.sqrt(phi2 / (away**2 / INDEPENDENT).sum())


def test_the_power_is_that_of_the_noncentral_chi_squared() -> None:
    first, second, n = KRR(3, 1.0), KRR(4, 1.0), 20_000
    truth = _associated(0.0778)
    assert truth.min() > 0
    exact = KRR(3, 30.0), KRR(4, 30.0)
    assert noncentrality(*exact, truth, n) == pytest.approx(1556, abs=1)
    expected = noncentrality(first, second, truth, n)
    assert 15 < expected < 40  # the privacy costs all but a fiftieth
    codes = first.matrix().T @ truth @ second.matrix()
    product = np.outer(codes.sum(axis=1), codes.sum(axis=0))
    assert expected == pytest.approx(n * ((codes - product) ** 2 / product).sum())
    rng, runs = np.random.default_rng(4), 400
    found = [
        independence([(first, second, drawn(first, second, truth, n, rng))]) for _ in range(runs)
    ]
    rejected = np.mean([test.p_value < 0.05 for test in found])
    planned = power(expected, 6)
    assert rejected == pytest.approx(
        planned, abs=4 * np.sqrt(planned * (1 - planned) / runs) + 0.005
    )
    assert np.mean([test.statistic for test in found]) - 6 == pytest.approx(expected, rel=0.08)


def test_the_noncentrality_of_the_published_power_gives_it() -> None:
    assert power(24.24, 6) == pytest.approx(0.9759, abs=5e-4)
    assert power(0, 6) == pytest.approx(0.05)
    assert power(detectable(6), 6) == pytest.approx(0.8)


def test_levels_add_up_and_repeats_divide() -> None:
    m, other = (KRR(3, 1.0), KRR(4, 1.0)), (KRR(3, 2.0), KRR(4, 0.5))
    rng = np.random.default_rng(2)
    cohorts = [(*level, drawn(*level, SHARES, 5000, rng)) for level in (m, other)]
    alone = [independence([one]) for one in cohorts]
    both = independence(cohorts)
    assert both.statistic == pytest.approx(sum(test.statistic for test in alone))
    assert both.degrees == 12
    halved = independence([cohorts[0]], [Repeats(2.0)])
    assert halved.statistic == pytest.approx(alone[0].statistic / 2)
    assert halved.degrees == 6


def test_a_cohort_of_next_to_nobody_is_left_out() -> None:
    rng = np.random.default_rng(3)
    first, second = KRR(3, 1.0), KRR(4, 1.0)
    many = (first, second, drawn(first, second, SHARES, 5000, rng))
    few = (KRR(3, 2.0), second, drawn(KRR(3, 2.0), second, SHARES, 59, rng))
    assert independence([many, few]) == independence([many])
    assert 0 < independence([few]).degrees < 6


def test_a_table_with_its_covariance_is_tested_alone() -> None:
    first, second = KRR(3, 2.0), KRR(4, 2.0)
    rng, runs, n = np.random.default_rng(6), 200, 20_000
    p = []
    for _ in range(runs):
        tally = drawn(first, second, INDEPENDENT, n, rng)
        p.append(independence_of(joint([(first, second, tally)])).p_value)
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.035)
    tally = pair(first, second, _associated(0.001), n)
    table = joint([(first, second, tally)])
    of_records = independence([(first, second, tally)])
    assert independence_of(table).statistic == pytest.approx(of_records.statistic, rel=0.05)
    assert independence_of(table).degrees == 6
    # One question about the pairs: each report is of a cell.
    asked, cells = KRR(12, 3.0), _associated(0.02)
    expected = np.rint(n * cells.ravel() @ asked.matrix()).astype(np.int64)
    values = asked.debias(of_table(expected[:, None]).first)
    view = JointTable(values.reshape(3, 4), asked.covariance(cells.ravel(), n), n)
    assert independence_of(view).p_value < 1e-6


def test_a_value_that_certainly_nobody_gave_leaves_no_degree_of_freedom() -> None:
    table = np.array([[20, 30, 0], [40, 10, 0], [30, 30, 0]])
    found = independence([(KRR(3, 1.0), KRR(3, 1.0), of_table(table))])
    expected = chi2_contingency(table[:, :2], correction=False)
    assert found.degrees == 2
    assert found.statistic == pytest.approx(expected.statistic)


def test_numbers_and_other_shapes_are_refused() -> None:
    m, number = KRR(3, 1.0), OneBitMean(1.0)
    tally = count_pairs(number, np.zeros(2, "u1"), m, np.zeros(2, "u1"))
    with pytest.raises(InvalidInput, match="independence is tested between values"):
        independence([(number, m, tally)])
    with pytest.raises(InvalidInput, match=r"the truth has the shape \(3, 3\), got \(2, 2\)"):
        noncentrality(m, m, np.eye(2), 10)
    with pytest.raises(InvalidInput, match="significance must lie strictly between 0 and 1"):
        power(1.0, 2, 1.0)
