"""Tables for the mean of a number: exact channels, scores, and what a plan must not smuggle in."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from ldp import InvalidInput, MeanTable, PolicyMeanTable, build
from ldp.core.exact import ONE
from ldp.core.policy import Policy
from ldp.mechanisms.numbers.mean_table import place_on
from ldp.planning import graded, mean_design
from ldp.testing import SeededCoins

PLAIN = mean_design.plain(1.0)
ONE_SIDED = mean_design.under(Policy.one_sided(16, range(12, 16), 1.0))


def moved(table: MeanTable, row: int, *units: int) -> tuple[int, ...]:
    """Return the weights with some units added to a row's first entries."""
    weights = list(table.weights)
    for place, unit in enumerate(units):
        weights[row * len(table.places) + place] += unit
    return tuple(weights)


@pytest.mark.parametrize("table", [PLAIN, ONE_SIDED], ids=lambda table: table.name)
def test_scores_are_unbiased_in_exact_rationals(table: MeanTable) -> None:
    for point, row in enumerate(table.channel().rows):
        expected = sum(p * score for p, score in zip(row, table.scores, strict=True))
        assert expected == Fraction(2 * point, table.grid) - 1


def test_a_plan_with_a_weight_off_by_one_is_refused() -> None:
    for units, reason in (
        ((1,), r"weights must be positive and sum to 2\*\*64"),
        ((1, -1), "the mean place must rise by the same"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            replace(PLAIN, weights=moved(PLAIN, 3, *units))


def test_a_plan_that_moves_chances_without_moving_a_mean_still_keeps_epsilon() -> None:
    places = PLAIN.places
    low = next(y for y in range(len(places) - 2) if places[y + 2] - places[y + 1] == 1)
    gap = places[low + 1] - places[low]
    units = [0] * (low + 3)
    for y, unit in zip(range(low, low + 3), (1, -1 - gap, gap), strict=True):
        units[y] = unit * (ONE >> 20)
    with pytest.raises(InvalidInput, match=r"the integers give epsilon 1\.|must be positive"):
        replace(PLAIN, weights=moved(PLAIN, 0, *units))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"grid": 0}, "grid must lie in 1..63"),
        ({"grid": 64}, "grid must lie in 1..63"),
        ({"grid": 14}, "15 rows of 20 weights are expected"),
        ({"places": PLAIN.places[:-1]}, "16 rows of 19 weights are expected"),
        ({"places": (0,)}, "places, rising from 0"),
        ({"places": (1, *PLAIN.places[1:])}, "rising from 0 to 65536"),
        ({"places": (*PLAIN.places[:-1], 1 << 17)}, "rising from 0 to 65536"),
        ({"places": tuple(reversed(PLAIN.places))}, "rising from 0"),
        ({"places": (*PLAIN.places[:-1], PLAIN.places[-1] + 1)}, "the mean place must rise"),
        (
            {"weights": tuple(w for row in PLAIN._rows[::-1] for w in row)},
            "the mean place must rise",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidInput, match=reason):
        replace(PLAIN, **change)


def test_a_table_keeps_the_policy_that_it_carries_and_no_stricter_one() -> None:
    integers = ONE_SIDED.integers
    assert build("policy_mean_table", 1.0, integers) == ONE_SIDED
    for policy, reason in (
        (Policy.one_sided(16, range(11, 16), 1.0), "can be told from one of class"),
        (Policy.one_sided(16, range(12, 16), 0.999), "can be told from one of class"),
        (Policy.uniform(16, 1.0), "can be told from one of class"),
        (Policy.one_sided(15, range(12, 15), 1.0), "the policy is for 15 values"),
        (Policy.one_sided(16, range(12, 16), 1.01), "more than the 1 it was meant for"),
    ):
        with pytest.raises(InvalidInput, match=reason):
            build("policy_mean_table", 1.0, {**integers, "policy": policy.integers})


def test_a_distance_by_way_of_a_third_point_counts() -> None:
    # 0 and 2 are said to be 2 apart, but each is 0.5 from 1: hence 1 apart, as the table must be.
    far = Policy.of(range(3), [[0, 0.5, 2], [0.5, 0, 0.5], [2, 0.5, 0]])
    table = mean_design.under(far)
    assert table.epsilon == 1.0
    assert 0.999 <= table.channel().epsilon <= 1.0


def test_numbers_go_to_their_neighbours_alone() -> None:
    table, coins = ONE_SIDED, SeededCoins(5)
    for point in range(table.grid + 1):
        exact = float(Fraction(2 * point, table.grid) - 1)
        near = [min(1.0, max(-1.0, np.nextafter(exact, end))) for end in (-2, 2)]
        for number in (exact, *near):
            assert place_on(table.grid, float(number)) == (point, 0)
        rounded = table._round(np.repeat([exact, *near], 1000), coins)
        assert set(rounded.tolist()) == {point}
    between = table._round(np.full(20_000, 0.25), coins)  # 9.375 steps
    assert set(between.tolist()) == {9, 10}
    assert abs(between.mean() - 9.375) < 4 * np.sqrt(0.375 * 0.625 / 20_000)


def test_places_never_fall() -> None:
    numbers = np.sort(np.concatenate([np.random.default_rng(1).uniform(-1, 1, 300), [-1, 1]]))
    places = [place_on(15, float(number)) for number in numbers]
    assert all(a <= b for a, b in pairwise(places))
    assert (places[0], places[-1]) == ((0, 0), (15, 0))


def mixture(table: PolicyMeanTable, place: Fraction) -> list[Fraction]:
    """Return the exact row of a number at a place between 0 and the grid's last point."""
    rows = table.channel().rows
    low = min(int(place), table.grid - 1)
    rest = place - low
    return [(1 - rest) * a + rest * b for a, b in zip(rows[low], rows[low + 1], strict=True)]


def test_every_number_of_a_region_is_protected_not_only_its_grid_points() -> None:
    # From 0.55, between the grid points 11 and 12, to 0.75, between 13 and 14.
    policy = graded.one_sided(15, [(0.55, 0.75)], 1.0)
    table = mean_design.under(policy)
    e = Fraction(np.e)
    places = [Fraction(place, 8) for place in range(8 * 15 + 1)]
    rows = {place: mixture(table, place) for place in places}
    inside = [p for p in places if (0.55 + 1) * 7.5 <= p <= (0.75 + 1) * 7.5]
    assert len(inside) > 8
    for s in inside:
        for v in places:
            assert all(a <= e * b for a, b in zip(rows[s], rows[v], strict=True))
    assert any(a > e * b for a, b in zip(rows[Fraction(2)], rows[inside[0]], strict=True))


def test_a_region_within_one_cell_protects_both_of_its_ends() -> None:
    assert graded.protected_points(15, [(0.01, 0.02)]) == (7, 8)
    assert graded.protected_points(15, [(-1.0, -1.0), (0.2, 0.2)]) == (0, 9)
    with pytest.raises(InvalidInput, match="no value is sensitive"):
        graded.one_sided(15, [], 1.0)


def test_numbers_on_a_line_keep_the_distance_of_every_two_of_them() -> None:
    # Below 0.4 twice as strict as above, with a border inside a cell.
    share = Fraction(1, 2)
    bands = [(Fraction(2, 5), Fraction(1, 2)), (Fraction(1), Fraction(1, 4))]
    policy = graded.on_a_line(8, bands, share, 2.0)
    table = mean_design.under(policy)

    def length(place: Fraction) -> Fraction:
        u = place / 8
        return min(u, bands[0][0]) / bands[0][1] + max(u - bands[0][0], Fraction(0)) / bands[1][1]

    places = [Fraction(place, 6) for place in range(6 * 8 + 1)]
    rows = {place: mixture(table, place) for place in places}
    for u in places:
        for v in places:
            allowed = min(2.0, 2.0 * float(share * abs(length(u) - length(v))))
            worst = max(a / b for a, b in zip(rows[u], rows[v], strict=True))
            assert np.log(float(worst)) <= allowed + 1e-12
    assert table.realised_epsilon > 0.999 * policy.epsilon


@pytest.mark.parametrize(
    ("bands", "share"),
    [
        ([], Fraction(1)),
        ([(Fraction(1, 2), Fraction(1))], Fraction(1)),
        ([(Fraction(1), Fraction(1)), (Fraction(1, 2), Fraction(1))], Fraction(1)),
        ([(Fraction(1), Fraction(0))], Fraction(1)),
        ([(Fraction(1), Fraction(1))], Fraction(0)),
    ],
)
def test_bands_that_are_none_are_refused(
    bands: list[tuple[Fraction, Fraction]], share: Fraction
) -> None:
    with pytest.raises(InvalidInput, match="bands must rise to 1"):
        graded.on_a_line(8, bands, share, 1.0)
