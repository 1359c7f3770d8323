"""Subset selection: its size, its two forms, and that it attains the limit."""

import numpy as np
import pytest

from ldp import KRR, InvalidInput, SubsetSelection, build
from ldp.planning.choice import minimax_constant
from ldp.testing import SeededCoins


def test_its_size_attains_the_minimax_constant() -> None:
    for k in (*range(2, 20), 31, 64, 100, 257, 1024):
        for epsilon in np.linspace(0.05, 6, 13):
            variance = SubsetSelection(k, float(epsilon)).variance(np.full(k, 1 / k), 1)
            assert variance.sum() == pytest.approx(minimax_constant(k, epsilon), rel=1e-12)


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
