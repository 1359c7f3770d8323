"""Channels and the exact bounds that privacy is checked with."""

import itertools
import math
from fractions import Fraction

import pytest

from ldp import KRR, Channel, InvalidInput
from ldp.core.exact import certainly_at_most, exp_bounds, float_above, float_below, log_upper


def test_a_channel_that_rules_an_input_out_has_no_epsilon() -> None:
    half = Fraction(1, 2)
    assert Channel((0, 1), ((half, half), (Fraction(0), Fraction(1)))).epsilon == float("inf")


def test_a_channel_whose_rows_are_no_distributions_is_refused() -> None:
    with pytest.raises(InvalidInput, match="row 1 is not a distribution: it sums to 3/4"):
        Channel((0, 1), ((Fraction(1, 2),) * 2, (Fraction(1, 2), Fraction(1, 4))))


@pytest.mark.parametrize("x", [Fraction(1, 10), Fraction(1), Fraction(8), Fraction(32)])
def test_exp_bounds_bracket_a_partial_sum_of_the_series(x: Fraction) -> None:
    term, total = Fraction(1), Fraction(0)
    for i in itertools.count(1):
        total += term
        term = term * x / i
        if term < Fraction(1, 10**70):
            break
    low, high = exp_bounds(x)
    assert low < total < high  # what the sum still lacks is far below the bracket's width
    assert (high - low) / low < Fraction(1, 10**56)


def test_log_upper_is_an_upper_bound_and_the_tightest_double() -> None:
    ratio = exp_bounds(Fraction(1))[0]
    assert log_upper(ratio) == 1.0
    assert certainly_at_most(ratio, 1.0)
    assert not certainly_at_most(exp_bounds(Fraction(1))[1], 1.0)


@pytest.mark.parametrize("exact", [Fraction(1, 3), Fraction(2, 3), Fraction(10**17 + 1, 10**17)])
def test_doubles_beside_a_fraction_are_the_nearest_on_their_side(exact: Fraction) -> None:
    below, above = float_below(exact), float_above(exact)
    assert Fraction(below) < exact < Fraction(above)
    assert math.nextafter(below, math.inf) == above
    assert float_below(Fraction(above)) == float_above(Fraction(above)) == above


def test_one_unit_less_noise_than_calibrated_is_refused() -> None:
    honest = KRR(4, 1.0)
    with pytest.raises(InvalidInput, match=r"krr: the integers give epsilon .*, more than the 1"):
        KRR.from_integers(1.0, {"k": [4], "resample": [honest.resample - 1]})
