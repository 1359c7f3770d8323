"""Linear programs for tables of numbers, against published constants and other mechanisms."""

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import HybridMechanism, InvalidInput, MeanTable, OneBitMean, estimate
from ldp.core.estimation import Cohorts
from ldp.core.policy import Policy
from ldp.planning import mean_design
from ldp.testing import SeededCoins

K = 16
UPPER_QUARTER, UPPER_HALF = range(12, 16), range(8, 16)


def variances(table: MeanTable) -> NDArray[np.float64]:
    """Return the variance of one report at each grid point."""
    return table.report_variance(np.linspace(-1, 1, table.grid + 1))


def line(steps_apart: float, epsilon: float, most: float) -> Policy:
    """Return the policy of numbers that are epsilon apart where so many grid steps lie between."""
    return Policy.of(
        range(K),
        [[min(most, epsilon * abs(i - j) / steps_apart) for j in range(K)] for i in range(K)],
    )


@pytest.mark.parametrize(("epsilon", "worst"), [(1.0, 3.9917), (2.0, 0.8658)])
def test_the_worst_grid_point_has_the_least_variance_known(epsilon: float, worst: float) -> None:
    table = mean_design.plain(epsilon)
    assert variances(table).max() == pytest.approx(worst, rel=1e-3)
    assert 0.999 * epsilon <= table.realised_epsilon <= epsilon


@pytest.mark.parametrize(("epsilon", "average"), [(1.0, 3.9125), (2.0, 0.7902)])
def test_the_average_over_the_grid_is_the_least_known(epsilon: float, average: float) -> None:
    table = mean_design.under(Policy.uniform(K, epsilon))
    assert variances(table).mean() == pytest.approx(average, rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 4.0, 6.0])
def test_a_table_beats_the_hybrid_and_one_bit_at_their_worst(epsilon: float) -> None:
    table = mean_design.plain(epsilon).largest_report_variance
    assert table < OneBitMean(epsilon).largest_report_variance
    assert table < HybridMechanism.optimal(epsilon).largest_report_variance


@pytest.mark.parametrize(
    ("policy", "average"),
    [
        (Policy.one_sided(K, UPPER_QUARTER, 1.0), 1.053),
        (Policy.one_sided(K, UPPER_HALF, 1.0), 1.440),
        (Policy.one_sided(K, UPPER_QUARTER, 0.5), 3.177),
        (Policy.one_sided(K, UPPER_HALF, 0.5), 5.034),
        (line(15 / 4, 1.0, 4.0), 0.4245),
        (line(15 / 2, 1.0, 4.0), 1.530),
        (line(15 / 4, 0.5, 2.0), 1.530),
        (line(15 / 2, 0.5, 2.0), 5.378),
    ],
)
def test_graded_protection_costs_what_its_program_says(policy: Policy, average: float) -> None:
    table = mean_design.under(policy)
    # No more than was found with fewer scores, and no less by more than they cost.
    assert 0.997 * average <= variances(table).mean() <= 1.0005 * average
    assert 0.999 * policy.epsilon <= table.realised_epsilon <= policy.epsilon
    policy.check(table.channel())


def test_a_population_that_is_planned_for_has_less_variance() -> None:
    policy = Policy.one_sided(K, UPPER_QUARTER, 1.0)
    shares = np.append(np.full(4, 0.2), np.full(12, 0.2 / 12))
    planned = variances(mean_design.under(policy, shares)) @ shares
    assert planned < 0.99 * (variances(mean_design.under(policy)) @ shares)


def test_a_policy_that_tells_no_two_neighbours_well_apart_still_has_a_table() -> None:
    flat = [
        [1.0 if min(i, j) > 3 else 0.3 * abs(4 - min(i, j)) for j in range(6)] for i in range(6)
    ]
    table = mean_design.under(Policy.of(range(6), flat))
    table.promise.check(table.channel())


@pytest.mark.parametrize("shares", [np.ones(K), np.full(K - 1, 1 / (K - 1)), np.full(K, np.nan)])
def test_frequencies_that_are_no_distribution_are_refused(shares: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="a distribution of 16 grid points"):
        mean_design.under(Policy.uniform(K, 1.0), shares)


@pytest.mark.parametrize("steps", [0, 64])
def test_tables_have_1_to_63_steps(steps: int) -> None:
    with pytest.raises(InvalidInput, match=r"1\.\.63 grid steps"):
        mean_design.plain(1.0, steps)


def test_intervals_cover_the_mean_of_levels_that_are_pooled(coins: SeededCoins) -> None:
    tables = [mean_design.under(Policy.one_sided(K, UPPER_HALF, epsilon)) for epsilon in (0.5, 2.0)]
    rng, runs, n = np.random.default_rng(7), 400, (300, 200)
    covered, errors = 0, []
    for _ in range(runs):
        numbers = [2 * rng.beta(2, 3, size) - 1 for size in n]
        pairs = [
            (t, t.tally(t.randomize_many(x, coins))) for t, x in zip(tables, numbers, strict=True)
        ]
        found = estimate(Cohorts(pairs))
        (low,), (high,) = found.interval()
        truth = 2 * 2 / 5 - 1
        covered += low <= truth <= high
        errors.append((found.value[0] - truth) / found.standard_error[0])
    assert 0.92 <= covered / runs <= 0.98
    assert abs(np.mean(errors)) < 4 / np.sqrt(runs)
