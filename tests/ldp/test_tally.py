import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ldp import InvalidInput, Tally

counts = st.lists(st.integers(0, 2**40), min_size=3, max_size=3)
tallies = st.builds(Tally, st.integers(0, 2**40), counts.map(np.array))


@given(tallies, tallies, tallies)
def test_merging_is_associative_commutative_and_has_an_identity(
    a: Tally, b: Tally, c: Tally
) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Tally.empty(3) == a


@given(tallies)
def test_bytes_round_trip(tally: Tally) -> None:
    again = Tally.from_bytes(tally.to_bytes())
    assert again == tally
    assert hash(again) == hash(tally)


@given(st.binary(max_size=40))
def test_any_other_length_is_refused(data: bytes) -> None:
    if len(data) >= 16 and len(data) % 8 == 0:
        assert Tally.from_bytes(data).to_bytes() == data
    else:
        with pytest.raises(InvalidInput, match=f"8 per count, got {len(data)}"):
            Tally.from_bytes(data)


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


def test_a_negative_number_of_reports_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot hold -1 reports"):
        Tally(-1, np.zeros(2, dtype=np.int64))
