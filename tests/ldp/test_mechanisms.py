"""Mechanisms from the integers of a plan, and bulk tallies."""

import numpy as np
import pytest

from ldp import KRR, InvalidInput, OneBitMean, UnaryEncoding, build
from ldp.testing import SeededCoins


def test_bulk_tallies_are_those_of_a_plain_loop(coins: SeededCoins) -> None:
    unary = UnaryEncoding(11, 1.0)
    codes = unary.randomize_many(np.arange(11).repeat(40), coins)
    naive = [sum(int(code[v // 8]) >> v % 8 & 1 for code in codes) for v in range(11)]
    assert unary.tally(codes).counts.tolist() == naive


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


@pytest.mark.parametrize("k", [-1, 2.0, True])
def test_a_domain_size_that_is_no_integer_is_refused(k: int) -> None:
    with pytest.raises(InvalidInput, match="k must be made of integers >= 0"):
        KRR(k, 1.0)
