"""Policies on a grid of numbers, such that all numbers between the grid points keep them too.

A number is reported from a neighbouring grid point, drawn at random, so its row of the channel is a
mixture of two rows. What mixtures of neighbours keep is proved here; `ldp.planning.mean_design`
finds the table.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import pairwise

from ldp.core.exact import check_epsilon
from ldp.core.policy import UNIT, Policy
from ldp.errors import InvalidInput
from ldp.mechanisms.numbers.mean_table import place_on

Region = tuple[float, float]
"""The first and the last number of a region, in [-1, 1]."""

Band = tuple[Fraction, Fraction]
"""Where a band ends, as a part of the range in (0, 1], and how far apart numbers of it may be, in
the same unit, that are protected by the policy's share of epsilon."""


def protected_points(grid: int, regions: Iterable[Region]) -> tuple[int, ...]:
    """Return the grid points that numbers of the regions can be reported from, in order."""
    found: set[int] = set()
    for low, high in regions:
        first, _ = place_on(grid, low)
        last, rest = place_on(grid, high)
        found.update(range(first, last + (rest > 0) + 1))
    return tuple(sorted(found))


def one_sided(grid: int, regions: Iterable[Region], epsilon: float) -> Policy:
    """Return the policy on grid + 1 points that protects all numbers of the regions.

    Guarantee of a `PolicyMeanTable` under it: for every number s of a region, every number v and
    every report, P(report | s) <= e**epsilon P(report | v). Proof: s is reported from grid points
    a, b that are both protected, v from some c, d, and max(Q_a, Q_b) <= e**epsilon min(Q_c, Q_d);
    mixtures lie between. A number outside the regions is as well protected where both its
    neighbours are. Raises `InvalidInput` where no grid point is protected.
    """
    return Policy.one_sided(grid + 1, protected_points(grid, regions), epsilon)


def on_a_line(
    grid: int, bands: Sequence[Band], share: Fraction, epsilon: float, *, between: bool = True
) -> Policy:
    """Return the policy on grid + 1 points that protects numbers by their distance.

    The bands cover (0, 1] in order; `between` tells whether there are numbers between the points.
    Guarantee of a `PolicyMeanTable` under it, for any two numbers u < v of the range, taken as
    [0, 1], and every report: the ratio of its probabilities is at most
    e**min(epsilon, epsilon * share * integral from u to v of dx / within(x)).
    Proof: within a cell from grid point a to b, of width h, a row is Q_a + t (Q_b - Q_a), so its
    logarithm changes by at most e**d - 1 per cell where the grid points' distance is d. With
    x = epsilon share h / (the largest `within` of the cell), the distance d = 2 x / (2 + x) is
    rational and at most ln(1 + x), hence the change at most x per cell, which the integral is at
    least. Cells add up, and every two rows of the grid are within epsilon, so mixtures are.
    Without numbers between the points d is the integral itself. (Numbers are placed to 2**-32 of a
    cell first: closer ones may count as that far apart.)
    Raises `InvalidInput` unless bands rise to 1, with lengths and `share` above 0.
    """
    limit = math.floor(Fraction(check_epsilon(epsilon)) * UNIT)
    ends = [Fraction(0), *(end for end, _ in bands)]
    if (
        not share > 0
        or any(b <= a for a, b in pairwise(ends))
        or ends[-1] != 1
        or min(within for _, within in bands) <= 0
    ):
        raise InvalidInput(f"bands must rise to 1, with lengths above 0, got {bands!r}")
    parts = [(a, b, within) for (a, b), (_, within) in zip(pairwise(ends), bands, strict=True)]
    sums = [0]
    for cell in range(grid):
        low, high = Fraction(cell, grid), Fraction(cell + 1, grid)
        inside = [(min(b, high) - max(a, low), r) for a, b, r in parts if a < high and b > low]
        if between:
            x = (high - low) / max(within for _, within in inside) * Fraction(epsilon) * share
            distance = 2 * x / (2 + x)
        else:
            lengths = sum((part / within for part, within in inside), Fraction(0))
            distance = lengths * Fraction(epsilon) * share
        sums.append(sums[-1] + math.floor(distance * UNIT))
    rows = tuple(tuple(min(limit, abs(a - b)) for b in sums) for a in sums)
    return Policy(tuple(range(grid + 1)), rows)
