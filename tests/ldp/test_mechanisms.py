"""Mechanisms from the integers of a plan, bulk tallies, and codes that are none."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import ArrayLike

from ldp import KRR, InvalidInput, LocalHashing, OneBitMean, Tally, UnaryEncoding, build


def test_integers_of_a_plan_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"krr takes the integers \['k', 'resample'\], got"):
        KRR.from_integers(1.0, {"k": [4]})
    with pytest.raises(InvalidInput, match="resample must not be left out"):
        KRR.from_integers(1.0, {"k": [4], "resample": [0]})
    with pytest.raises(InvalidInput, match="k is one integer, got 2"):
        KRR.from_integers(1.0, {"k": [4, 4], "resample": [2**63]})
    with pytest.raises(InvalidInput, match=r"resample must lie strictly between 0 and 2\*\*64"):
        KRR.from_integers(1.0, {"k": [4], "resample": [2**64]})
    with pytest.raises(InvalidInput, match="other must be below own"):
        UnaryEncoding.from_integers(1.0, {"k": [4], "own": [5], "other": [6]})
    with pytest.raises(InvalidInput, match=r"flip must be below 2\*\*63"):
        OneBitMean.from_integers(1.0, {"flip": [2**63]})
    with pytest.raises(InvalidInput, match="unknown mechanism 'magic'; this version knows"):
        build("magic", 1.0, {})


def test_integers_that_no_plan_can_hold_are_refused_whatever_the_mechanism() -> None:
    @dataclass(frozen=True)
    class Careless(KRR):
        spare: int = 0

        def _calibrate(self) -> None:
            super()._calibrate()
            object.__setattr__(self, "spare", 1 << 64)

    with pytest.raises(InvalidInput, match=r"spare must be below 2\*\*64, for a plan to hold it"):
        Careless(4, 1.0)


@pytest.mark.parametrize("codes", [[300], [-1], [9], np.array([300]), np.array([8], dtype="u1")])
def test_integers_that_are_no_code_are_neither_encoded_nor_tallied(codes: list[int]) -> None:
    for use in (KRR(8, 1.0).encode, KRR(8, 1.0).tally):
        with pytest.raises(
            InvalidInput, match=r"krr code .*(0\.\.255|below 8), got \d|got -1\.\.-1"
        ):
            use(codes)


def test_a_negative_integer_is_no_code_of_64_bits_either() -> None:
    mechanism = LocalHashing(1 << 18, 8.0)
    assert mechanism.code_bytes == 8
    with pytest.raises(InvalidInput, match="a hashing code must be below"):
        mechanism.encode(np.array([-1]))


@pytest.mark.parametrize(
    ("codes", "given"),
    [
        (np.zeros((3, 2), dtype="u1"), r"\(3, 2\) and uint8"),
        (np.zeros(1, dtype="u1"), r"\(1,\) and uint8"),
        (np.zeros((1, 1)), r"\(1, 1\) and float64"),
        (np.zeros((1, 1), dtype=bool), r"\(1, 1\) and bool"),
        (3, r"\(\) and int64"),
        ([["a"]], r"\(1, 1\) and <U1"),
        ([[1], [1, 2]], "inhomogeneous"),
    ],
)
def test_codes_of_another_shape_or_type_are_neither_encoded_nor_tallied(
    codes: ArrayLike, given: str
) -> None:
    mechanism = UnaryEncoding(8, 1.0)
    for use in (mechanism.encode, mechanism.tally):
        with pytest.raises(InvalidInput, match=f"unary.* got .*{given}"):
            use(codes)


def test_a_tally_of_another_size_is_not_estimated_from() -> None:
    with pytest.raises(InvalidInput, match="a krr tally has 8 counts, got 9"):
        KRR(8, 1.0).estimate(Tally(1, np.ones(9, dtype=np.int64)))


@pytest.mark.parametrize("k", [-1, 2.0, True])
def test_a_domain_size_that_is_no_integer_is_refused(k: int) -> None:
    with pytest.raises(InvalidInput, match="k must be made of integers >= 0"):
        KRR(k, 1.0)
