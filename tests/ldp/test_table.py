"""Channel tables: any finite channel, exactly."""

import math

import numpy as np
import pytest
from every_mechanism import krr_rows

from ldp import KRR, ChannelTable, HadamardResponse, InvalidInput, OrderedExponential, Tally
from ldp.core.exact import ONE
from ldp.core.mechanism import Categorical

WIDE = [[0.5, 0.25, 0.15, 0.1], [0.1, 0.25, 0.15, 0.5]]  # worst ratio 5


@pytest.mark.parametrize("k", [2, 16])
@pytest.mark.parametrize("epsilon", [0.1, 8.0])
def test_a_channel_in_floats_is_kept(k: int, epsilon: float) -> None:
    rows = ChannelTable.from_rows(epsilon, krr_rows(k, epsilon)).channel().rows
    assert np.array(rows, dtype=float) == pytest.approx(np.array(krr_rows(k, epsilon)))


def test_an_exact_channel_may_be_given_in_rationals() -> None:
    rows = KRR(5, 1.0).channel().rows
    assert ChannelTable.from_rows(1.0, rows).realised_epsilon == pytest.approx(1.0, abs=1e-12)


def test_a_channel_beyond_epsilon_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"table: the integers give epsilon 1\.60944"):
        ChannelTable.from_rows(1.6, WIDE)
    assert ChannelTable.from_rows(1.61, WIDE).realised_epsilon == pytest.approx(math.log(5))


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([[0.5, 0.5], [0.5]], r"row 1 must have 2 probabilities, got \[0.5\]"),
        ([[0.5, 0.5], [1.5, -0.5]], "row 1 must have 2 probabilities"),
        ([[0.5, 0.5], [math.nan, 0.5]], "row 1 must have 2 probabilities"),
        ([[0.5, 0.5], [0.5, 0.6]], "row 1 must sum to one, got 1.1"),
        ([[0.5, 0.5], [0.5, 0.5]], "does not tell all categories apart"),
        ([[0.5, 0.5], [0.4, 0.6], [0.6, 0.4]], "3 rows of equally many weights, 3 or more"),
        ([[1.0, 0.0], [0.5, 0.5]], "the integers give epsilon"),
        ([[1.0]], r"k must lie in 2\.\.256, got 1"),
        ([], r"k must lie in 2\.\.256, got 0"),
    ],
)
def test_rows_that_are_no_private_channel_are_refused(rows, reason) -> None:
    with pytest.raises(InvalidInput, match=reason):
        ChannelTable.from_rows(1.0, rows)


def test_weights_of_a_plan_are_checked() -> None:
    half = ONE // 2
    for weights in ((half, half, half, half + 1), (0, ONE, half, half)):
        with pytest.raises(InvalidInput, match=r"weights must be positive and sum to 2\*\*64"):
            ChannelTable(2, 1.0, weights)
    with pytest.raises(InvalidInput, match="got 3 weights"):
        ChannelTable(2, 1.0, (half, half, half))


def test_a_table_of_krr_estimates_as_krr_does() -> None:
    table, krr = ChannelTable.from_rows(1.0, krr_rows(4, 1.0)), KRR(4, 1.0)
    tally = krr.tally(np.repeat(np.arange(4, dtype=np.uint8), [50, 10, 30, 10]))
    assert table.debias(tally) == pytest.approx(krr.debias(tally))
    truth = np.array([0.4, 0.3, 0.2, 0.1])
    assert table.variance(truth, 100) == pytest.approx(krr.variance(truth, 100))


def test_estimates_sum_to_one_and_their_covariance_to_nothing() -> None:
    mechanism = ChannelTable.from_rows(2.0, WIDE)
    tally = mechanism.tally(np.array([0, 0, 3, 1, 2, 0], dtype=np.uint8))
    assert mechanism.debias(tally).sum() == pytest.approx(1)
    assert mechanism.covariance([0.3, 0.7], 10).sum() == pytest.approx(0, abs=1e-12)


def test_no_other_unbiased_linear_estimate_is_better_at_uniform_truth() -> None:
    mechanism = ChannelTable.from_rows(2.0, WIDE)
    matrix = np.array(mechanism.channel().rows, dtype=float)
    outputs = matrix.mean(axis=0)
    null = np.linalg.svd(matrix)[2][2:]  # directions that change an estimate, not its mean
    plain = np.linalg.pinv(matrix.T)
    best = float(mechanism.variance(0.5, 1)[0])
    for step in np.linspace(-1, 1, 9):
        other = plain[0] + step * null[0]
        assert other @ matrix.T == pytest.approx([1, 0], abs=1e-9)
        assert (other**2) @ outputs - 0.25 >= best - 1e-12


@pytest.mark.parametrize(
    "mechanism", [OrderedExponential(5, 1.0), HadamardResponse(5, 2.0, blocks=2)]
)
def test_for_one_frequency_the_others_share_the_rest_evenly(mechanism: Categorical) -> None:
    for v in range(5):
        truth = np.full(5, 0.1)
        truth[v] = 0.6
        assert mechanism.variance(0.6, 10)[v] == pytest.approx(mechanism.variance(truth, 10)[v])


@pytest.mark.parametrize("k", [8, pytest.param(16, marks=pytest.mark.slow)])
def test_intervals_cover_95_percent(k: int) -> None:
    mechanism, n = OrderedExponential(k, 1.0), 5000
    truth = 1 / np.arange(1, k + 1)
    truth /= truth.sum()
    tallies = np.random.default_rng(1).multinomial(n, truth @ mechanism.matrix(), size=8000)
    estimates = [mechanism.estimate(Tally(n, counts)) for counts in tallies]
    reached = [np.abs(e.value - truth) <= 1.959964 * e.standard_error for e in estimates]
    covered = np.mean(reached, axis=0)
    assert 0.94 <= covered.min() <= covered.max() <= 0.96


def test_a_handful_of_equal_codes_has_an_error() -> None:
    mechanism = ChannelTable.from_rows(2.0, WIDE)
    for n in (1, 3):
        found = mechanism.estimate(Tally(n, np.array([n, 0, 0, 0])))
        assert (found.standard_error**2 > mechanism.variance(0.5, n) / 4).all()
