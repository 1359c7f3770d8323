"""The local exponential mechanism for ordered categories."""

import numpy as np
import pytest

from ldp import KRR, InvalidInput, OrderedExponential
from ldp.core.exact import ONE

EPSILONS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


@pytest.mark.parametrize("k", [2, 64])
def test_the_largest_epsilon_keeps_its_promise_too(k: int) -> None:
    assert 0.999 * 32 <= OrderedExponential(k, 32.0).realised_epsilon <= 32


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_nearer_categories_are_likelier(epsilon: float) -> None:
    k = 8
    table = np.array(OrderedExponential(k, epsilon).weights, dtype=float).reshape(k, k)
    distance = abs(np.arange(k) - np.arange(k)[:, None])
    for row, far in zip(table, distance, strict=True):
        by_distance = row[np.argsort(far, kind="stable")]
        assert (np.diff(by_distance)[np.diff(np.sort(far)) > 0] < 0).all()
    assert np.array_equal(table, table[::-1, ::-1])


def test_two_ordered_categories_are_randomized_response() -> None:
    ours, theirs = OrderedExponential(2, 1.0), KRR(2, 1.0)
    assert ours.variance(0.5, 1) == pytest.approx(theirs.variance(0.5, 1), rel=1e-9)


def test_for_the_mean_rank_it_beats_krr_at_small_epsilon() -> None:
    k, ranks = 16, np.arange(16)
    ordered = OrderedExponential(k, 0.5)
    matrix = np.array(KRR(k, 0.5).channel().rows, dtype=float)
    inverse = np.linalg.inv(matrix)
    uniform = np.full(k, 1 / k)
    krr = inverse.T @ np.diag(uniform @ matrix) @ inverse - np.outer(uniform, uniform)
    assert ranks @ ordered.covariance(uniform, 1) @ ranks < 0.5 * (ranks @ krr @ ranks)


@pytest.mark.parametrize("k", [1, 65])
def test_a_size_out_of_range_is_refused(k: int) -> None:
    with pytest.raises(InvalidInput, match=f"k must lie in 2..64, got {k}"):
        OrderedExponential(k, 1.0)


def test_tables_that_are_none_are_refused() -> None:
    with pytest.raises(InvalidInput, match="3 rows of equally many weights"):
        OrderedExponential(3, 1.0, (1, 2))
    with pytest.raises(InvalidInput, match="weights must be positive and sum to 2"):
        OrderedExponential(2, 1.0, (ONE // 2, ONE // 2, ONE // 2, 1))
    with pytest.raises(InvalidInput, match="does not tell all categories apart"):
        OrderedExponential(2, 1.0, (ONE // 2,) * 4)
    with pytest.raises(InvalidInput, match="the integers give epsilon"):
        OrderedExponential.from_integers(0.99, OrderedExponential(4, 1.0).integers)
