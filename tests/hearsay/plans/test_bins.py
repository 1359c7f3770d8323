"""Numbers in bins: where each one goes, and which ranges the bins make up."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hearsay.plans.bins import Bins, below_of
from hearsay.plans.kinds import Binned, Numeric
from hearsay.plans.points import Points
from ldp import KRR, InvalidInput, OneBitMean, Waves
from ldp.testing import SeededCoins

DAY = Bins(0.0, 1440.0, 48)


def test_each_number_is_in_the_bin_that_begins_at_or_below_it() -> None:
    domain = Binned(0.0, 1.0, False, 10)
    for tenth in range(10):
        assert domain.encode(tenth / 10) == tenth  # 0.3 is less than three tenths, as a double
        assert domain.encode(tenth / 10 + 0.0999) == tenth
    assert domain.encode(1.0) == 9
    assert domain.encode(1) == 9
    assert domain.encode(math.nextafter(1.0, 0)) == 9


def test_numbers_outside_are_refused_or_moved_to_the_nearer_end() -> None:
    for answer in (-0.001, 1441, math.nan, math.inf, "37", None, True):
        with pytest.raises(InvalidInput, match="must"):
            Binned(0.0, 1440.0, False, 48).encode(answer)
    clamped = Binned(0.0, 1440.0, True, 48)
    assert [clamped.encode(x) for x in (-1e308, -0.001, 1441, 1e308)] == [0, 0, 47, 47]
    with pytest.raises(InvalidInput, match="must be finite"):
        clamped.encode(math.nan)


@given(
    low=st.floats(-1e300, 1e300), width=st.floats(1e-300, 1e300), count=st.integers(2, 256),
    part=st.floats(0, 1),
)  # fmt: skip
def test_no_number_is_more_than_a_millionth_of_a_bin_from_the_one_it_is_in(
    low: float, width: float, count: int, part: float
) -> None:
    high = low + width
    try:
        bins = Bins(low, high, count) if low < high else None
    except InvalidInput:
        bins = None
    if bins is None or (high - low) / count < 1e-3 * max(abs(low), abs(high)):
        return  # the doubles of the numbers themselves are coarser than a millionth of a bin
    number = min(high, max(low, low + part * (high - low)))
    found = bins.at_or_below(number)
    exact = (Fraction(number) - Fraction(low)) / (Fraction(high) - Fraction(low)) * count
    assert 0 <= found < count
    assert found - Fraction(2, 10**6) <= exact <= found + 1 + Fraction(2, 10**6)


@pytest.mark.parametrize(
    ("low", "high", "count", "message"),
    [
        (0.0, 1.0, 1, r"bins must lie in 2\.\.256, got 1"),
        (0.0, 1.0, 257, r"bins must lie in 2\.\.256, got 257"),
        (0.0, 5e-324, 2, "doubles do not tell"),
        (1e16, 1e16 + 4, 3, "doubles do not tell"),
        (1.0, 1.0, 4, "low < high"),
        (math.nan, 1.0, 4, "low < high"),
        (-1.7e308, 1.7e308, 4, "low < high"),
    ],
)
def test_bins_that_are_none_are_refused(low: float, high: float, count: int, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Binned(low, high, False, count)


def test_only_waves_over_as_many_bins_fit() -> None:
    domain = Binned(0.0, 1.0, False, 4)
    domain.check(Waves.over(4, 1.0))
    for other in (Waves.over(5, 1.0), Waves((2, 2), 1.0), KRR(4, 1.0), OneBitMean(1.0)):
        with pytest.raises(InvalidInput, match="does not fit 4 bins"):
            domain.check(other)


def test_what_stands_for_an_answer_outside_is_any_bin() -> None:
    coins = SeededCoins(1)
    drawn = [Binned(0.0, 1.0, False, 4).anything(coins) for _ in range(100)]
    assert set(drawn) == {0, 1, 2, 3}


def test_labels_and_ends() -> None:
    assert DAY.label(16, 18) == "480 to under 540"
    assert DAY.label(46, 48) == "1380 to 1440"
    assert DAY.ends(16, 18) == (480.0, 540.0)
    assert (DAY.lowest(16), DAY.highest(16), DAY.within(16, 0.5)) == (480.0, 510.0, 495.0)


def test_edges_are_ends_of_bins() -> None:
    assert DAY.cuts(np.array([0, 480, 1440.0])).tolist() == [0, 16, 48]
    with pytest.raises(InvalidInput, match=r"inside a bin .* take 480 or 510"):
        DAY.cuts(np.array([0, 500, 1440.0]))
    with pytest.raises(InvalidInput, match=r"edges must lie in \[0, 1440\]"):
        DAY.cuts(np.array([-30, 480.0]))
    with pytest.raises(InvalidInput, match="rising"):
        DAY.cuts(np.array([480, 480.0]))
    assert DAY.even_cuts(5).tolist() == [0, 10, 19, 29, 38, 48]
    with pytest.raises(InvalidInput, match="48 bins were collected, got 49"):
        DAY.even_cuts(49)


def test_a_range_has_parts_of_bins() -> None:
    parts = DAY.overlaps(495, 545)
    assert parts[16:19].tolist() == pytest.approx([0.5, 1, 1 / 6])
    assert parts.sum() == pytest.approx(50 / 30)
    assert DAY.overlaps(-100, 1e9).sum() == 48
    assert set(DAY.overlaps(480, 540)) == {0.0, 1.0}


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (540, 480, "low < high"),
        (480, 480, "low < high"),
        (math.nan, 480, "both finite"),
        (0, math.inf, "both finite"),
        (1500, 1600, "has no number of 0 to 1440"),
        (-10, 0, "has no number"),
    ],
)
def test_empty_ranges_are_refused(low: float, high: float, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        DAY.overlaps(low, high)


def test_a_range_of_whole_numbers_has_both_ends() -> None:
    ages = Points(17.0, 42.0, 1.0)
    assert np.flatnonzero(ages.overlaps(18, 20)).tolist() == [1, 2, 3]
    assert np.flatnonzero(ages.overlaps(18, 18)).tolist() == [1]
    assert ages.range_label(18, 20) == "18 to 20"
    with pytest.raises(InvalidInput, match=r"no value lies between 18\.2 and 18\.8"):
        ages.overlaps(18.2, 18.8)


def test_a_range_of_other_points_has_parts_of_steps() -> None:
    prices = Points(0.0, 2.0, 0.5)
    assert prices.overlaps(0.5, 1.25).tolist() == [0, 1, 0.5, 0, 0]
    assert prices.overlaps(1.5, 2.0).tolist() == [0, 0, 0, 1, 1]
    assert prices.range_label(0.5, 1.25) == "0.5 to under 1.25"


GROWING = Binned.between((-100.0, -1.0, 1.0, 10.0, 1000.0), False)


def test_bins_may_grow() -> None:
    assert [GROWING.encode(x) for x in (-100, -1.001, -1, 0, 1, 9.99, 10, 1000)] == [
        0, 0, 1, 1, 2, 2, 3, 3,
    ]  # fmt: skip
    assert GROWING.labels[1:] == ("-1 to under 1", "1 to under 10", "10 to 1000")
    points = GROWING.points
    assert points.cuts(np.array([-1.0, 10.0])).tolist() == [1, 3]
    assert points.overlaps(0.0, 505.0).tolist() == [0, 0.5, 1, 0.5]
    assert points.within(3, 0.5) == 505.0
    with pytest.raises(InvalidInput, match="is inside a bin of those"):
        points.cuts(np.array([-1.0, 5.0]))
    with pytest.raises(InvalidInput, match="edges must be rising numbers"):
        Binned.between((0.0, 2.0, 1.0), False)


@pytest.mark.parametrize("time", [np.timedelta64(3), np.timedelta64(3, "D"), np.timedelta64("NaT")])
def test_a_time_between_two_others_is_no_number(time: np.timedelta64) -> None:
    for domain in (Binned(0, 10, True, 5), Numeric(0, 10, True)):
        with pytest.raises(InvalidInput, match="must be a number, got a timedelta64"):
            domain.encode(time)


def test_numbers_that_shares_are_below_differ_and_have_no_noise() -> None:
    assert below_of(Points(0, 10, 0.1))[6:8] == [0.6, 0.7]
    assert below_of(Points(1e9, 1e9 + 1, 0.1))[:3] == [1e9, 1e9 + 0.1, 1e9 + 0.2]
    assert below_of(Bins(0, 9, 3)) == [3, 6]
