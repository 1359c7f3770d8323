"""The figures of other mechanisms that docs/mechanisms.md compares with, from their formulas."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp.planning.choice import minimax_constant

Floats = NDArray[np.float64]


def two_valued(p: float, q: float, f: float) -> float:
    """n times the variance where a report supports a value with p or q."""
    s = f * p + (1 - f) * q
    return s * (1 - s) / (p - q) ** 2


def wheel(most: int, e: float) -> tuple[float, float]:
    """The chances of an item of the set and of another one (Wang et al., VLDB 2020)."""
    p = 1 / (2 * most - 1 + most * e)
    total = most * p * e + 1 - most * p
    return p * e / total, p


@pytest.mark.parametrize(
    ("items", "most", "epsilon", "by_unary", "by_wheel"),
    [
        (6, 3, 1.0, 34.58, 16.25),
        (6, 3, 4.0, 2.12, 1.71),
        (8, 4, 0.5, 252.67, 92.69),
        (8, 4, 4.0, 3.15, 2.32),
        (20, 5, 1.0, 93.30, 25.62),
        (100, 5, 0.5, 392.02, 109.05),
        (100, 5, 1.0, 92.32, 23.51),
        (100, 10, 2.0, 73.40, 9.40),
        (256, 8, 2.0, 46.59, 6.76),
        (1000, 5, 1.0, 92.09, 23.03),
        (1000, 10, 2.0, 72.51, 8.19),
    ],
)
def test_sets_by_padding_and_unary_encoding_and_by_the_wheel(
    items: int, most: int, epsilon: float, by_unary: float, by_wheel: float
) -> None:
    e, f = math.exp(epsilon), most / (2 * items)
    unary = most**2 * two_valued(0.5, 1 / (e + 1), f / most)
    assert unary == pytest.approx(by_unary, rel=4e-3)
    assert two_valued(*wheel(most, e), f) == pytest.approx(by_wheel, rel=4e-3)


def pckv(a: float, b: float, p: float, most: int, f: float, mean: float) -> tuple[float, float]:
    """n times the variances of a key's share and of its mean rating on [-1, 1]."""
    g = f / most
    s, x = g * a + (1 - g) * b, g * a * (2 * p - 1) * mean
    to_share, to_sum = most / (a - b), most / (a * (2 * p - 1))
    share = to_share**2 * s * (1 - s)
    between = to_share * to_sum * x * (1 - s)
    return share, (to_sum**2 * (s - x**2) - 2 * mean * between + mean**2 * share) / f**2


@pytest.mark.parametrize(
    ("keys", "most", "epsilon", "unary", "grr"),
    [
        (15, 4, 1.0, (162.248, 6778.6), (32.196, 2035.1)),
        (50, 5, 1.0, (252.37, 74801), (82.31, 36233)),
        (100, 5, 1.0, (252.12, 298761), (149.84, 262674)),
        (100, 5, 4.0, (4.120, 6897), (0.552, 904.8)),
        (200, 10, 2.0, (164.91, 236822), (25.488, 44090)),
        (1000, 10, 1.0, (1007.6, 2.98e7), (1384.5, 6.04e7)),
    ],
)
def test_ratings_by_pckv(
    keys: int, most: int, epsilon: float, unary: tuple[float, float], grr: tuple[float, float]
) -> None:
    e, f = math.exp(epsilon), most / (2 * keys)
    by_unary = pckv(0.5, 2 / (e + 3), e / (e + 1), most, f, 0.3)
    assert by_unary == pytest.approx(unary, rel=4e-3)
    more = most * (e - 1)
    a, p = (more + 2) / (more + 2 * (keys + most)), (more + 1) / (more + 2)
    by_grr = pckv(a, (1 - a) / (keys + most - 1), p, most, f, 0.3)
    assert by_grr == pytest.approx(grr, rel=4e-3)


def over_all_ranges(covariance: Floats) -> float:
    """The variance of a range's share, on average over the ranges, of the shares' covariance."""
    bins = len(covariance)
    below = np.zeros((bins + 1, bins + 1))
    below[1:, 1:] = covariance.cumsum(axis=0).cumsum(axis=1)
    ends = np.diag(below)
    widths = ends[:, None] + ends - 2 * below
    return float(widths[np.triu_indices(bins + 1, 1)].mean())


def tree(bins: int, epsilon: float) -> float:
    """A tree of four branches, one level a report, by least squares; nodes as if independent."""
    levels = round(math.log(bins, 4))
    information = np.zeros((bins, bins))
    for level in range(1, levels + 1):
        nodes = 4**level
        inside = np.kron(np.eye(nodes), np.ones(bins // nodes))
        information += nodes / minimax_constant(nodes, epsilon) / levels * inside.T @ inside
    center = np.eye(bins) - 1 / bins
    return over_all_ranges(np.linalg.pinv(center @ information @ center, rcond=1e-9))


def haar(bins: int, epsilon: float) -> float:
    """Haar coefficients, one level a report, each by one bit of its Hadamard transform."""
    levels = round(math.log2(bins))
    covariance = np.zeros((bins, bins))
    for level in range(levels):
        nodes = 2**level
        halves = np.repeat([1.0, -1.0], bins // nodes // 2)
        sides = np.kron(np.eye(nodes), halves) * nodes / bins
        covariance += levels / np.tanh(epsilon / 2) ** 2 * sides.T @ sides
    return over_all_ranges(covariance)


def flat(bins: int, epsilon: float) -> float:
    """Subset selection over the bins."""
    total = minimax_constant(bins, epsilon)
    return over_all_ranges(total / (bins - 1) * (np.eye(bins) - 1 / bins))


@pytest.mark.parametrize(
    ("bins", "epsilon", "figures"),
    [
        (64, 0.5, (93.19, 86.90, 167.0)),
        (64, 1.0, (21.81, 24.41, 39.26)),
        (64, 2.0, (4.357, 8.987, 7.723)),
        (64, 4.0, (0.605, 5.609, 0.814)),
        (256, 0.5, (172.77, 159.56, 668.6)),
        (256, 1.0, (40.49, 44.82, 157.1)),
        (256, 2.0, (8.048, 16.50, 30.89)),
        (256, 4.0, (1.027, 10.30, 3.249)),
    ],
)
def test_ranges_by_trees_haar_transforms_and_flat_reports(
    bins: int, epsilon: float, figures: tuple[float, float, float]
) -> None:
    found = (tree(bins, epsilon), haar(bins, epsilon), flat(bins, epsilon))
    assert found == pytest.approx(figures, rel=4e-3)
