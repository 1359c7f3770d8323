"""Projective geometry response: its geometry, its exact supports, and its distance to the limit."""

import itertools

import numpy as np
import pytest

from ldp import (
    HRR,
    HadamardResponse,
    InvalidInput,
    ProjectiveGeometry,
    SubsetSelection,
    Tally,
    build,
)
from ldp.core.mechanism import Categorical
from ldp.mechanisms.frequency import projective
from ldp.mechanisms.frequency.projective import hyperplane_counts
from ldp.mechanisms.tools.finite_field import Field
from ldp.testing import SeededCoins


def lines(mechanism: ProjectiveGeometry) -> np.ndarray:
    """Which points support which category, by the channel: shape (k, points)."""
    rows = np.array(mechanism.channel().rows)
    return rows == rows.max()


def test_the_plane_over_three_elements_is_that_of_the_textbook() -> None:
    supports = lines(ProjectiveGeometry(13, 1.0, order=3, dimension=3))
    assert supports.shape == (13, 13)
    assert set(supports.sum(axis=1)) == {4}
    assert all((a & b).sum() == 1 for a, b in itertools.combinations(supports, 2))


@pytest.mark.parametrize(
    ("order", "dimension"),
    [(2, 2), (2, 5), (3, 4), (4, 3), (5, 3), (8, 3), (9, 3), (16, 2), (17, 3), (31, 2), (19, 3)],
)
def test_the_fast_supports_are_those_of_the_channel(order: int, dimension: int) -> None:
    points = (order**dimension - 1) // (order - 1)
    mechanism = ProjectiveGeometry(min(points, 60), 1.0, order=order, dimension=dimension)
    counts = np.random.default_rng(order).integers(0, 99, points)
    expected = lines(mechanism) @ counts
    assert mechanism.supports(Tally(int(counts.sum()), counts)).tolist() == expected.tolist()


def test_both_ways_over_the_prefixes_give_the_same_integers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for order, dimension in ((3, 5), (17, 3), (5, 4), (101, 2)):
        points = (order**dimension - 1) // (order - 1)
        counts = np.random.default_rng(1).integers(0, 1 << 40, points)
        results = []
        for threshold in (1, 1000):
            monkeypatch.setattr(projective, "_FOURIER", threshold)
            results.append(hyperplane_counts(counts, Field(order), dimension))
        assert np.array_equal(*results)


# Feldman et al.'s choice, the prime power next to e**epsilon + 1, for k = 1000.
@pytest.mark.parametrize(
    ("epsilon", "order", "ratio"),
    [
        (0.5, 3, 1.0097),
        (1, 4, 1.0032),
        (2, 8, 1.0044),
        (3, 23, 1.0127),
        (4, 53, 1.0186),
        (5, 149, 1.0713),
    ],
)
def test_the_ratio_to_the_limit_is_the_published_one_or_better(
    epsilon: float, order: int, ratio: float
) -> None:
    k = 1000
    limit = SubsetSelection(k, epsilon).variance(1 / k, 1)
    dimension = next(t for t in range(2, 20) if (order**t - 1) // (order - 1) >= k)
    published = ProjectiveGeometry(k, epsilon, order, dimension)
    assert published.variance(1 / k, 1) / limit == pytest.approx(ratio, abs=0.0001)
    chosen = ProjectiveGeometry(k, epsilon)
    assert chosen.variance(1 / k, 1) / limit <= ratio + 0.0001
    assert chosen.realised_epsilon >= 0.999 * epsilon


@pytest.mark.parametrize("k", [2, 100, 1024, 65_536, 1 << 20])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 32.0])
def test_there_is_a_space_for_every_domain(k: int, epsilon: float) -> None:
    assert k <= ProjectiveGeometry(k, epsilon).points <= 1 << 24


@pytest.mark.parametrize("k", [1024, 4096, 65_536])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 2.0, 3.0, 4.0])
def test_for_many_categories_it_is_close_to_the_limit(k: int, epsilon: float) -> None:
    limit = SubsetSelection(k, epsilon).variance(1 / k, 1)
    assert ProjectiveGeometry(k, epsilon).variance(1 / k, 1) < 1.02 * limit


@pytest.mark.parametrize(
    "mechanism",
    [HRR(1 << 20, 8.0), HadamardResponse(1 << 20, 1.0), ProjectiveGeometry(1 << 20, 1.0)],
    ids=lambda mechanism: mechanism.name,
)
def test_a_million_categories_are_estimated_exactly(
    mechanism: Categorical, coins: SeededCoins
) -> None:
    codes = mechanism.randomize_many(np.full(4000, 777_777), coins)
    values = mechanism.debias(mechanism.tally(codes))
    assert values.shape == (1 << 20,)
    assert np.argmax(values) == 777_777


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"order": [6]}, r"no space of 10\.\.16777216 points has order 6"),
        ({"order": [512]}, "no space .* has order 512"),
        ({"order": [2], "dimension": [3]}, "no space .* has order 2, .* and dimension 3"),
        ({"order": [2], "dimension": [32]}, "no space .* and dimension 32"),
        ({"include": [1 << 62]}, "include must exceed a hyperplane's share of the points"),
        ({"order": [5]}, "the integers give epsilon"),
    ],
)
def test_integers_that_make_no_space_are_refused(change: dict[str, list[int]], reason: str) -> None:
    honest = ProjectiveGeometry(10, 1.0, order=3, dimension=3)
    with pytest.raises(InvalidInput, match=reason):
        build("projective", 1.0, honest.integers | change)
