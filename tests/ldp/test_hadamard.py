"""Hadamard response: its transform, its exact supports, and what it costs."""

import numpy as np
import pytest
from scipy.linalg import hadamard

from ldp import HRR, HadamardResponse, InvalidInput, SubsetSelection, Tally, build
from ldp.mechanisms.frequency.hadamard import walsh_hadamard


@pytest.mark.parametrize("order", [1, 2, 8, 64])
def test_the_fast_transform_is_the_matrix_product(order: int) -> None:
    counts = np.random.default_rng(1).integers(-9, 9, (3, order))
    before = counts.copy()
    assert np.array_equal(walsh_hadamard(counts), counts @ hadamard(order))
    assert np.array_equal(counts, before)


@pytest.mark.parametrize("k", [2, 3, 8, 9, 33])
def test_the_supports_are_those_of_a_loop(k: int) -> None:
    mechanism = HRR(k, 1.0)
    counts = np.random.default_rng(k).integers(0, 9, mechanism.tally_size)
    matrix = hadamard(mechanism.order)
    expected = [0] * k
    for code, count in enumerate(counts):
        row, bit = 1 + code // 2, code % 2
        for v in range(k):
            expected[v] += count * (matrix[row, v] == 1 - 2 * bit)
    assert mechanism.supports(Tally(int(counts.sum()), counts)).tolist() == expected


# n times the variance for rare values, Wang et al. 2017, table 2 (as BLH), for a large order.
@pytest.mark.parametrize(("epsilon", "variance"), [(0.5, 16.67), (1, 4.68), (2, 1.72), (4, 1.08)])
def test_the_published_variances(epsilon: float, variance: float) -> None:
    assert HRR(1 << 16, epsilon).variance(0, 1) == pytest.approx(variance, abs=0.006)
    published = HRR(1 << 16, epsilon).variance(0, 1)
    assert HRR(16, epsilon).variance(0, 1) == pytest.approx(published * (15 / 16) ** 2, rel=0.04)


def test_for_two_categories_it_is_randomised_response() -> None:
    p, q = HRR(2, 1.0).support
    assert p + q == 1


@pytest.mark.parametrize(("k", "epsilon"), [(7, 0.5), (7, 2.0), (64, 1.0), (64, 3.0), (100, 6.0)])
def test_the_number_of_blocks_is_that_of_least_variance(k: int, epsilon: float) -> None:
    def total(blocks: int) -> float:
        truth = np.full(k, 1 / k)
        return float(HadamardResponse(k, epsilon, blocks).variance(truth, 1).sum())

    sizes = [1 << i for i in range(k.bit_length())]
    assert total(HadamardResponse(k, epsilon).blocks) <= 1.01 * min(map(total, sizes))


def test_blocks_help_when_epsilon_is_large() -> None:
    k, epsilon = 128, 4.0
    limit = SubsetSelection(k, epsilon).variance(1 / k, 1)
    assert HadamardResponse(k, epsilon).variance(np.full(k, 1 / k), 1).mean() < 4 * limit
    assert HRR(k, epsilon).variance(1 / k, 1) > 10 * limit


def test_the_estimate_of_a_whole_tally_of_expectations_is_the_truth() -> None:
    mechanism = HadamardResponse(11, 2.0)
    assert mechanism.blocks > 1
    truth = np.random.default_rng(2).dirichlet(np.ones(11))
    channel = np.array(mechanism.channel().rows, dtype=float)
    n = 1 << 50
    tally = Tally(n, np.rint(n * (truth @ channel)).astype(np.int64))
    assert mechanism.debias(tally) == pytest.approx(truth, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("k", "epsilon"), [(8, 4.0), (1024, 2.0)])
def test_intervals_cover_95_percent_and_are_no_wider_than_needed(k: int, epsilon: float) -> None:
    mechanism, n = HadamardResponse(k, epsilon), 20_000
    truth = 1 / np.arange(1, k + 1)
    truth /= truth.sum()
    rng = np.random.default_rng(1)
    tallies = rng.multinomial(n, truth @ mechanism.matrix(), size=400 if k > 8 else 4000)
    estimates = [mechanism.estimate(Tally(n, counts)) for counts in tallies]
    errors = np.mean([e.standard_error**2 for e in estimates], axis=0)
    assert errors == pytest.approx(mechanism.variance(truth, n), rel=0.02)
    reached = [np.abs(e.value - truth) <= 1.959964 * e.standard_error for e in estimates]
    assert 0.94 <= np.mean(reached) <= 0.96


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("hrr", {"flip": [1 << 63]}, r"flip must be below 2\*\*63"),
        ("hadamard", {"blocks": [3]}, "blocks must be a power of two up to k = 9, got 3"),
        ("hadamard", {"blocks": [16]}, "blocks must be a power of two up to k = 9, got 16"),
        ("hadamard", {"include": [1 << 62]}, r"include must exceed 2\*\*63 / blocks"),
    ],
)
def test_integers_that_make_no_hadamard_response_are_refused(
    name: str, change: dict[str, list[int]], reason: str
) -> None:
    honest = {"hrr": HRR(9, 1.0), "hadamard": HadamardResponse(9, 1.0)}[name]
    with pytest.raises(InvalidInput, match=reason):
        build(name, 1.0, honest.integers | change)
