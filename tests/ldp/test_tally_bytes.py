"""The bytes of a tally: few where few counts are above zero, and read back as they were."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from ldp import InvalidInput, Tally

numbers = st.integers(0, 2**63 - 1) | st.sampled_from(
    [1, 2, 255, 256, 257, 2**16, 2**16 + 1, 2**32, 2**32 + 1, 2**63 - 1]
)
few = st.integers(1, 400).flatmap(
    lambda size: arrays.arrays(np.int64, size, elements=numbers, fill=st.just(0))
)
tallies = st.builds(Tally, st.integers(1, 2**56 - 1), few)


def dense(tally: Tally) -> bytes:
    """Return the bytes of earlier versions."""
    return tally.n.to_bytes(8, "little") + tally.counts.astype("<i8").tobytes()


@given(tallies)
def test_bytes_round_trip(tally: Tally) -> None:
    again = Tally.from_bytes(tally.to_bytes())
    assert again == tally
    assert hash(again) == hash(tally)


@given(tallies)
def test_bytes_are_no_more_than_all_counts_take(tally: Tally) -> None:
    assert len(tally.to_bytes()) <= len(dense(tally))


@given(tallies)
def test_bytes_of_earlier_versions_are_read(tally: Tally) -> None:
    assert Tally.from_bytes(dense(tally)) == tally


@given(st.binary(max_size=40))
@example(bytes([1, 0, 0, 0, 0, 0, 0, 0x10]) + b"\xff\xff\xff\xff")
@example(bytes([1, 0, 0, 0, 0, 0, 0, 0x10]) + b"\2\0\0\0" + b"\0\1")
@example(bytes([1, 0, 0, 0, 0, 0, 0, 0x10]) + b"\2\0\0")
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        tally = Tally.from_bytes(data)
    except InvalidInput as refusal:
        assert any(why in str(refusal) for why in ("no tally", "lie in 0..2**63", "no reports"))
    else:
        assert Tally.from_bytes(tally.to_bytes()) == tally


@pytest.mark.parametrize(
    ("ones", "size", "most"),
    [(1, 65_536, 14), (300, 65_536, 8 + 4 + 2 * 300), (20_000, 65_536, 8 + 4 + 20_000)],
)
def test_a_count_of_one_takes_a_byte_or_two(ones: int, size: int, most: int) -> None:
    counts = np.zeros(size, dtype=np.int64)
    counts[np.linspace(0, size - 1, ones).astype(int)] = 1
    assert len(Tally(ones, counts).to_bytes()) <= most


@pytest.mark.parametrize(("count", "width"), [(255, 1), (256, 2), (1 << 17, 4), (1 << 33, 8)])
def test_full_counts_take_the_width_of_the_largest(count: int, width: int) -> None:
    tally = Tally(1, np.array([*range(1, 200), count]))
    assert len(tally.to_bytes()) == 8 + 200 * width
