import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from ldp import InvalidInput, Tally
from ldp.core.tally import add_up

counts = st.lists(st.integers(0, 2**40), min_size=3, max_size=3)
tallies = st.builds(Tally, st.integers(1, 2**40), counts.map(np.array))


@given(tallies, tallies, tallies)
def test_merging_is_associative_commutative_and_has_an_identity(
    a: Tally, b: Tally, c: Tally
) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Tally.empty(3) == a


@pytest.mark.parametrize(
    ("counts", "reason"),
    [
        ([3, -1], r"counts must lie in 0\.\.2\*\*63 - 1, got -1"),
        (np.array([1, 1 << 63], dtype=np.uint64), "got 9223372036854775808"),
        ([1.5, 2.0], r"1-d integer array, got float64 of shape \(2,\)"),
        ([True, False], "1-d integer array, got bool"),
        ([[1], [2]], r"of shape \(2, 1\)"),
        (3, r"of shape \(\)"),
    ],
)
def test_what_counts_no_reports_is_refused(counts: ArrayLike, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        Tally(3, counts)  # type: ignore[arg-type]


def test_no_reports_have_no_counts() -> None:
    with pytest.raises(InvalidInput, match="no reports cannot have counts, got 7 in all"):
        Tally(0, np.array([3, 4]))


@pytest.mark.parametrize("n", [-1, 1.0, True, None])
def test_what_is_no_number_of_reports_is_refused(n: int) -> None:
    with pytest.raises(InvalidInput, match=f"cannot hold {n} reports"):
        Tally(n, np.zeros(2, dtype=np.int64))


def test_a_tally_cannot_be_changed_through_its_array() -> None:
    mine = np.array([1, 2])
    tally = Tally(3, mine)
    mine[0] = 99
    assert tally.counts[0] == 1
    with pytest.raises(ValueError, match="read-only"):
        tally.counts[0] = 99


def test_tallies_of_different_shapes_do_not_merge() -> None:
    with pytest.raises(InvalidInput, match="tallies of 2 and 3 counts do not merge"):
        Tally.empty(2) + Tally.empty(3)


def test_tallies_add_up_by_key() -> None:
    one, two = Tally(2, np.array([2, 1])), Tally(3, np.array([0, 3]))
    sums = {"a": one}
    add_up(sums, [("a", two), ("b", two), ("b", one)])
    assert sums == {"a": Tally(5, np.array([2, 4])), "b": Tally(5, np.array([2, 4]))}
