"""Bloom filters that every machine computes alike."""

from hashlib import blake2b

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from ldp.mechanisms.tools.bloom import distinct_positions


def test_vectors() -> None:
    assert distinct_positions(b"", 0, 2, 128) == (33, 111)
    assert distinct_positions("café".encode(), 7, 4, 32) == (3, 26, 30, 31)
    assert distinct_positions(b"hearsay", 63, 2, 128) == (83, 120)
    assert distinct_positions(b"hearsay", 1, 16, 16) == tuple(range(16))


def test_the_positions_are_the_first_that_differ_in_the_digest() -> None:
    mix = (5).to_bytes(8, "little") + bytes(8)
    digest = blake2b(b"one", digest_size=64, salt=mix, person=b"hearsay").digest()
    words = np.frombuffer(digest, dtype="<u8")
    places = [int(word) * 40 // 2**64 for word in words]
    first = list(dict.fromkeys(places))[:3]
    assert distinct_positions(b"one", 5, 3, 40) == tuple(sorted(first))


@given(
    text=st.binary(max_size=200),
    salt=st.integers(0, 2**64 - 1),
    size=st.integers(1, 300),
    data=st.data(),
)
def test_positions_are_distinct_ascending_and_below_the_size(
    text: bytes, salt: int, size: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, min(size, 12)))
    positions = distinct_positions(text, salt, count, size)
    assert len(positions) == count
    assert list(positions) == sorted(set(positions))
    assert all(0 <= position < size for position in positions)


def test_strings_and_salts_spread_over_all_positions() -> None:
    drawn = [
        position
        for text in range(200)
        for salt in range(20)
        for position in distinct_positions(str(text).encode(), salt, 2, 50)
    ]
    assert chisquare(np.bincount(drawn, minlength=50)).pvalue > 1e-4
