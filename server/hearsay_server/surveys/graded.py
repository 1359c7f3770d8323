"""Numbers that are protected by their value: the grid, the program, and both in words."""

import math
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from hearsay.plans.kinds import Numeric
from hearsay.plans.regions import Interval, in_words, number
from ldp import InvalidInput, PolicyMeanTable
from ldp.core.policy import Policy
from ldp.mechanisms.numbers.mean_table import MAX_TABLE_GRID
from ldp.planning import mean_design

_ENOUGH = 31
"""The most steps of a number that are all grid points, and the grid of a resolution: more points
tell more numbers apart as they are declared, and take longer to design."""

_GRIDS = range(15, 25)
"""Grids that are tried for regions: the edges of regions move outward to the next grid point."""


_SHOWN, _MOST_SHOWN = 5, 8
"""How many numbers are shown beside each other, with what is known of each pair."""


@lru_cache(maxsize=64)
def table(domain: Numeric, epsilon: float, grid: int = 0) -> PolicyMeanTable:
    """Return the table of least average variance for numbers with regions or a resolution.

    `grid` is the number of steps; 0 for as many as the numbers take. Raises `InvalidInput` where
    no grid is fine enough for them.
    """
    policy = domain.policy(epsilon, grid or steps(domain))
    assert policy is not None
    # The policy's largest distance may be less than epsilon: numbers at the ends may be closer.
    return replace(mean_design.under(policy), epsilon=epsilon)


def predicted_noise(domain: Numeric, epsilon: float) -> float:
    """Return about what `noise` of the numbers' table is, found on a coarse grid in 0.1 s."""
    return noise(table(domain, epsilon, mean_design.STEPS))


def noise(mechanism: PolicyMeanTable) -> float:
    """Return the variance of one report, on average over the grid points."""
    points = np.linspace(-1, 1, mechanism.steps + 1)
    return float(mechanism.report_variance(points).mean())


def steps(domain: Numeric) -> int:
    """Return the grid steps of a table for numbers with regions or a resolution."""
    if domain.points is not None and len(domain.points) <= _ENOUGH + 1:
        return len(domain.points) - 1
    if domain.sensitive:
        return _for_regions(domain)
    finest = min(within for _, within in domain.resolution)
    width = Fraction(domain.high) - Fraction(domain.low)
    needed = math.ceil(width / Fraction(finest))
    if needed > MAX_TABLE_GRID:
        raise InvalidInput(
            f"within = {number(finest)} is less than a step of the finest grid, which has "
            f"{MAX_TABLE_GRID}: take {float(width / MAX_TABLE_GRID):.10g} or more"
        )
    return max(_ENOUGH, needed)


def _for_regions(domain: Numeric) -> int:
    """Return the grid on which the fewest numbers are protected that need not be."""
    found: list[tuple[Fraction, int]] = []
    for grid in _GRIDS:
        policy = domain.policy(1.0, grid)
        assert policy is not None
        if _lost(domain, policy) is None:
            found.append((Fraction(len(protected(policy)), grid + 1), grid))
    if not found:
        policy = domain.policy(1.0, _GRIDS[-1])
        assert policy is not None
        raise InvalidInput(
            f"the ordinary range {_lost(domain, policy)} lies between two points of a grid of "
            f"{_GRIDS[-1]} steps: join the sensitive regions beside it"
        )
    return min(found)[1]


def protected(policy: Policy) -> list[int]:
    """Return the grid points that a one-sided policy protects."""
    return [point for point in range(policy.k) if policy.classes[point] not in policy.ordinary]


def _lost(domain: Numeric, policy: Policy) -> str | None:
    """Return an ordinary range that has no grid point left in it."""
    bare = sorted(set(range(policy.k)) - set(protected(policy)))
    unit = (domain.high - domain.low) / (policy.k - 1)
    numbers = [domain.low + point * unit for point in bare]
    for a, b in domain.ordinary_ranges:
        if not any(a - unit / 2 <= x <= b + unit / 2 for x in numbers):
            return in_words((a, b))
    return None


# --- in words ------------------------------------------------------------------------------


def protections(domain: Numeric) -> list[str]:
    """Return lines on which numbers are protected from which, by how much of epsilon."""
    if domain.sensitive:
        regions = " and ".join(map(in_words, _protected_regions(domain)))
        ranges = " and ".join(domain.ordinary)
        return [
            f"numbers in {regions} from every number by epsilon",
            f"a report may reveal other numbers ({ranges} is ordinary)",
        ]
    cap, lines = domain.cap or 1.0, []
    begin = domain.low
    for upto, within in domain.resolution:
        lines.append(
            f"numbers from {number(begin)} to {number(upto)} that are {number(within)} apart by "
            f"{1 / cap:.3g} epsilon, and that are {number(cap * within)} or more apart by epsilon"
            if cap > 1
            else f"numbers from {number(begin)} to {number(upto)} {number(within)} or more "
            "apart by epsilon, and nearer ones by less"
        )
        begin = upto
    return lines


def _protected_regions(domain: Numeric) -> list[Interval]:
    """Return the regions of numbers that a table protects: no smaller than the sensitive ones."""
    policy = domain.policy(1.0, steps(domain))
    assert policy is not None
    found: list[Interval] = []
    points = protected(policy)
    width, last = domain.high - domain.low, policy.k - 1
    for first in (p for p in points if p - 1 not in points):
        end = next(p for p in range(first, policy.k) if p + 1 not in points)
        edges = [domain.high if p == last else domain.low + width * p / last for p in (first, end)]
        declared = [r for r in domain.sensitive if edges[0] - 1e-6 * width <= r[0] <= edges[1]]
        # An edge that a grid point hits is shown as it was declared, not as it was computed.
        near = [e for r in declared for e in r]
        ends = [next((e for e in near if abs(e - x) < 1e-6 * width), x) for x in edges]
        found.append((ends[0], ends[1]))
    return found


def told_apart(domain: Numeric) -> tuple[list[str], list[list[str]]]:
    """Return some numbers, and by how many epsilon each row's may be told from each column's."""
    edges = [end for region in domain.sensitive for end in region]
    edges += [upto for upto, _ in domain.resolution]
    shown = sorted({domain.low, domain.high, *edges})
    while len(shown) < _SHOWN:
        widest = max(range(len(shown) - 1), key=lambda i: shown[i + 1] - shown[i])
        shown.insert(widest + 1, (shown[widest] + shown[widest + 1]) / 2)
    shown = shown[:: -(-len(shown) // _MOST_SHOWN)]
    return [number(x) for x in shown], [[_apart(domain, x, y) for y in shown] for x in shown]


def _apart(domain: Numeric, x: float, other: float) -> str:
    if x == other:
        return ""
    if domain.sensitive:
        inside = any(a <= x <= b for a, b in _protected_regions(domain))
        return "1" if inside else "for certain"
    low, high = sorted((x, other))
    begin, apart = domain.low, 0.0
    for upto, within in domain.resolution:
        apart += max(0.0, min(high, upto) - max(low, begin)) / within
        begin = upto
    return f"{min(1.0, apart / (domain.cap or 1.0)):.3g}"
