"""Points: which numbers there are, and how ranges of them are cut and called."""

import math
from itertools import pairwise

import numpy as np
import pytest

from hearsay.plans.points import Points
from ldp import InvalidInput
from ldp.mechanisms.numbers.mean import MAX_POINTS

AGES = Points(17, 42, 1)
MINUTES = Points(0, 180, 22.5)
STARS = Points(0, 5, 0.5)


def test_points_lead_from_the_least_to_the_greatest() -> None:
    assert (len(AGES), len(MINUTES), len(STARS)) == (26, 9, 11)
    assert [MINUTES.value(i) for i in (0, 1, 8)] == [0, 22.5, 180]
    assert Points(0, 1, 0.1).value(10) == 1.0
    assert AGES.whole
    assert not MINUTES.whole
    assert not Points(0.5, 9.5, 1).whole


@pytest.mark.parametrize(
    ("points", "number", "index"),
    [
        (AGES, 17, 0),
        (AGES, 17.99, 0),
        (AGES, 42, 25),
        (MINUTES, 22.4999, 0),
        (MINUTES, 22.5, 1),
        (MINUTES, 180, 8),
        (Points(0, 1, 0.1), 0.3, 3),  # 0.3 / 0.1 is 2.9999999999999996
        (Points(17, 18, 0.1), 17.3, 3),
        (Points(-5, 5, 1), -0.5, 4),
    ],
)
def test_a_number_between_two_points_is_the_lower_one(
    points: Points, number: float, index: int
) -> None:
    assert points.at_or_below(number) == index


@pytest.mark.parametrize(
    "points", [AGES, MINUTES, STARS, Points(0, 1, 0.1), Points(1e6, 1e6 + 1, 0.01)]
)
def test_every_point_is_itself(points: Points) -> None:
    indices = range(len(points))
    assert [points.at_or_below(points.value(i)) for i in indices] == list(indices)
    stepped = [points.low + i * points.step for i in indices]
    assert [points.at_or_below(min(x, points.high)) for x in stepped] == list(indices)


@pytest.mark.parametrize(
    ("points", "edges", "cuts"),
    [
        (AGES, [17, 19.5, 42], [0, 3, 26]),
        (AGES, [16.5, 17.5, 42.5], [0, 1, 26]),
        (AGES, [24.1, 24.9], [8, 8]),
        (AGES, [20.5, 30.5], [4, 14]),
        (MINUTES, [0, 45, 180], [0, 2, 9]),
        (MINUTES, [45, 157.5], [2, 7]),
        (Points(0, 1, 0.1), [0, 0.3, 0.7, 1], [0, 3, 7, 11]),
    ],
)
def test_edges_cut_between_points(points: Points, edges: list[float], cuts: list[int]) -> None:
    assert points.cuts(np.array(edges, dtype=float)).tolist() == cuts


@pytest.mark.parametrize(
    ("points", "edges", "message"),
    [
        (AGES, [17, 20, 42], "an edge at 20 cuts a point.*: take 19.5 or 20.5"),
        (MINUTES, [0, 50, 180], r"an edge at 50 cuts a point.* every 22\.5 from 0: take 45"),
        (AGES, [15.5, 42], r"edges must lie in \[17, 42\]"),
        (AGES, [17, 43], r"edges must lie in \[17, 42\]"),
        (MINUTES, [-1, 45], r"edges must lie in \[0, 180\]"),
        (AGES, [20.5, 20.5], "two or more rising numbers"),
        (AGES, [20.5], "two or more rising numbers"),
        (AGES, [17, math.nan], "two or more rising numbers"),
    ],
)
def test_edges_that_cut_a_point_are_refused(
    points: Points, edges: list[float], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        points.cuts(np.array(edges, dtype=float))


def called(points: Points, cuts: list[int]) -> list[str]:
    return [points.label(a, b) for a, b in pairwise(cuts)]


def test_ranges_are_called_by_the_numbers_in_them() -> None:
    assert called(AGES, [0, 3, 4, 26]) == ["17 to 19", "20", "21 to 42"]
    assert called(MINUTES, [0, 2, 9]) == ["0 to under 45", "45 to 180"]
    assert called(STARS, [0, 1, 10, 11]) == ["0 to under 0.5", "0.5 to under 5", "5"]
    assert AGES.ends(0, 3) == (17, 19)
    assert MINUTES.ends(0, 2) == (0, 45)


def test_even_bins() -> None:
    assert AGES.even_cuts(10).tolist() == [0, 3, 5, 8, 10, 13, 16, 18, 21, 23, 26]
    assert called(MINUTES, MINUTES.even_cuts(4).tolist()) == [
        "0 to under 45",
        "45 to under 90",
        "90 to under 135",
        "135 to 180",
    ]
    assert len(STARS.even_cuts(11)) == 12
    for bins in (0, 12):
        with pytest.raises(InvalidInput, match="11 values make at most 11 bins"):
            STARS.even_cuts(bins)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (0.0, "step must be finite and > 0"),
        (-1.0, "step must be finite and > 0"),
        (math.nan, "step must be finite and > 0"),
        (math.inf, "step must be finite and > 0"),
        (7.0, "whole steps must lead from 0 to 10, got a step of 7"),
        (20.0, "whole steps must lead from 0 to 10, got a step of 20"),
        (5e-324, "there may be 513 points, got inf: take a step of"),
        (0.01, r"there may be 513 points, got 1001: take a step of 0\.01953125 or more"),
    ],
)
def test_steps_that_do_not_fit_the_range_are_refused(step: float, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Points(0, 10, step)


def test_the_finest_step_is_accepted() -> None:
    assert len(Points(0, 10, 10 / (MAX_POINTS - 1))) == MAX_POINTS
