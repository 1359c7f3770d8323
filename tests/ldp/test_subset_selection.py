"""Subset selection: its size, its two forms, and that it attains the limit."""

import math

import numpy as np
import pytest

from ldp import KRR, InvalidInput, SubsetSelection, build
from ldp.testing import SeededCoins


def limit(k: int, epsilon: float) -> float:
    """The minimax constant L(k, epsilon) of Ye and Barg (2018), summed over the values."""
    e = math.exp(epsilon)
    return min(
        (k - 1) ** 2 * (w * e + k - w) ** 2 / (k * w * (k - w) * (e - 1) ** 2) for w in range(1, k)
    )


def total_variance(mechanism: SubsetSelection) -> float:
    return float(mechanism.variance(np.full(mechanism.k, 1 / mechanism.k), 1).sum())


@pytest.mark.parametrize(
    ("k", "epsilon", "published"),
    [
        (8, 1, 22.6114),
        (16, 2, 10.1896),
        (64, 1, 228.4010),
        (1024, 1, 3763.7209),
        (1024, 4, 77.7050),
    ],
)
def test_it_attains_the_minimax_constant(k: int, epsilon: float, published: float) -> None:
    assert limit(k, epsilon) == pytest.approx(published, abs=5e-5)
    assert total_variance(SubsetSelection(k, epsilon)) == pytest.approx(published, abs=5e-5)


def test_the_size_is_that_of_least_variance() -> None:
    for k in (*range(2, 20), 31, 64, 100, 257):
        for epsilon in np.linspace(0.05, 6, 13):
            chosen = SubsetSelection(k, float(epsilon))
            assert total_variance(chosen) == pytest.approx(limit(k, epsilon), rel=1e-12)


def test_with_one_category_it_is_krr() -> None:
    subset, krr = SubsetSelection(5, 2.0), KRR(5, 2.0)
    assert subset.size == 1
    ours = [[float(chance) for chance in row] for row in subset.channel().rows]
    assert ours == pytest.approx(np.array(krr.channel().rows, dtype=float))


def test_a_code_takes_the_shorter_of_mask_and_indices() -> None:
    assert SubsetSelection(128, 1.0).code_bytes == 16
    assert SubsetSelection(128, 4.0).code_bytes == 2  # two indices
    assert SubsetSelection(1024, 1.0).code_bytes == 128
    assert SubsetSelection(1024, 6.0).code_bytes == 2 * SubsetSelection(1024, 6.0).size


@pytest.mark.parametrize("mechanism", [SubsetSelection(21, 1.0), SubsetSelection(300, 5.0)])
def test_a_tally_counts_what_a_loop_counts(mechanism: SubsetSelection, coins: SeededCoins) -> None:
    codes = mechanism.randomize_many(np.arange(400) % mechanism.k, coins)
    counts = [0] * mechanism.k
    for code in codes:
        masked = mechanism.code_dtype == np.uint8
        for v in range(mechanism.k):
            counts[v] += bool(code[v // 8] >> v % 8 & 1) if masked else v in code
    assert mechanism.tally(codes).counts.tolist() == counts


def test_masks_of_another_size_or_with_bits_beyond_the_domain_are_refused() -> None:
    mechanism = SubsetSelection(10, 1.0)  # three of ten
    assert mechanism.code_bytes == 2
    with pytest.raises(InvalidInput, match="a subset code has 3 categories, got 4"):
        mechanism.decode(bytes([0b1111, 0]), 1)
    with pytest.raises(InvalidInput, match="a subset code has a bit beyond its 10"):
        mechanism.decode(bytes([0b11, 0b100]), 1)


def test_indices_out_of_order_or_domain_are_refused() -> None:
    mechanism = SubsetSelection(100, 4.0)
    assert mechanism.size == 2
    assert mechanism.decode(bytes([3, 99]), 1).tolist() == [[3, 99]]
    with pytest.raises(InvalidInput, match="a subset index must be below 100, got 100"):
        mechanism.decode(bytes([3, 100]), 1)
    for unsorted in ([7, 3], [3, 3]):
        with pytest.raises(InvalidInput, match="indices must be in increasing order"):
            mechanism.decode(bytes(unsorted), 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"size": [6]}, r"size must lie in 1\.\.5 for k = 10, got 6"),
        ({"include": [1 << 62]}, r"include must exceed 2\*\*64 size / k"),
        ({"include": [1 << 64]}, "include must lie strictly between 0 and"),
    ],
)
def test_integers_that_make_no_subset_selection_are_refused(
    change: dict[str, list[int]], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        build("subset", 1.0, SubsetSelection(10, 1.0).integers | change)
