"""Which rows of a batch have a report in a column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearsay.plans.presence import pack, unpack
from ldp import InvalidInput


def test_the_first_row_is_the_lowest_bit_of_the_first_byte() -> None:
    assert pack([True, False, True] + [False] * 6 + [True]) == b"\x05\x02"


def test_no_bytes_mean_every_row() -> None:
    assert pack([True] * 9) == b""
    assert unpack(b"", 9).tolist() == [True] * 9


@given(st.lists(st.booleans(), min_size=1, max_size=40).filter(any))
def test_unpacking_what_was_packed_is_the_identity(present: list[bool]) -> None:
    unpacked = unpack(pack(present), len(present))
    assert unpacked.dtype == np.bool_
    assert unpacked.tolist() == present
    assert pack(unpacked) == pack(present)


@pytest.mark.parametrize(
    ("data", "rows", "reason"),
    [
        (b"\x01", 9, "9 rows take 2 bytes of presence bits, got 1"),
        (b"\x01\x00", 8, "8 rows take 1 bytes of presence bits, got 2"),
        (b"\x01", 2**60, f"take {2**57} bytes of presence bits, got 1"),  # and no memory is taken
        (b"\x0b", 3, "a presence bit lies beyond row 2"),
        (b"\x00", 3, "no row is present"),
        (b"\x01", 0, "0 rows take 0 bytes"),
    ],
)
def test_bits_that_do_not_fit_the_rows_are_refused(data: bytes, rows: int, reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        unpack(data, rows)
