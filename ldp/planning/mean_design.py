"""The table of least variance for the mean of a number: plain, or under a policy.

A channel from the points of a grid to a lattice of scores is a point of a polytope: rows sum to
one, mean scores are the grid points, and two grid points' chances of one code differ by no more
than their distance allows. The variance is linear in it, so the best channel is a linear program.
"""

import contextlib
import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.exact import ONE, check_epsilon
from ldp.core.policy import UNIT, UNLIMITED, Policy
from ldp.errors import InvalidInput
from ldp.mechanisms.numbers.mean_table import MAX_TABLE_GRID, MeanTable
from ldp.mechanisms.policies.mean_table import PolicyMeanTable

Floats = NDArray[np.float64]
_Table = TypeVar("_Table", bound=MeanTable)

STEPS = 15
"""Grid steps where none are asked for: between its 16 points rounding adds at most .0044."""

_OUTPUTS = 64
"""The most scores that a program chooses from; it keeps 20 or so of them."""

_REACHES = (1.6, 3.2, 6.4, 25.6)
"""How far scores reach, over those of one bit, tried in turn. The best reach for plain tables lies
between 1.2 and 1.5 of it; a policy that tells no two neighbours well apart may need more."""

_UNUSED = 1e-8
"""A code less likely than this from every grid point is left out."""

_MIXED = [2.0**-power for power in (36, 30, 24, 18, 12)]
"""Shares of a blank report, tried in turn: it makes good what rounding takes from a ratio."""


@lru_cache(maxsize=256)
def plain(epsilon: float, steps: int = STEPS) -> MeanTable:
    """Return the epsilon-LDP table whose worst grid point has the least variance.

    At epsilon 1 its worst grid point has 3.992, against 4.267 of the hybrid mechanism; at 2 0.866
    against 0.982. The scores lie on a lattice, which costs 0.1% of the variance or so.
    Cost: a linear program of some 1,000 unknowns, about 0.1 s; results are kept in the process.
    Raises `InvalidInput` for an epsilon that is none, and unless 1 <= steps <= 63.
    Source: programs for mechanisms of a finite domain go back to Ghosh, Roughgarden and
    Sundararajan, STOC 2009; this one, for unbiased means, is ours.
    """
    _check_steps(steps)
    places, rows = _program(Policy.uniform(steps + 1, check_epsilon(epsilon)), None)
    return _realised(lambda kept, weights: MeanTable(epsilon, steps, kept, weights), places, rows)


def under(policy: Policy, frequencies: ArrayLike | None = None) -> PolicyMeanTable:
    """Return the table that has the least average variance under a policy on its grid points.

    `frequencies`, shape (k,), is the population planned for, over the policy's k grid points;
    uniform where none is given. The table keeps the policy, and its `epsilon` is the policy's.
    Cost: a linear program, 0.1 to 0.5 s for 16 grid points. Raises `InvalidInput` for frequencies
    that are no distribution, and for more grid points than a table can have.
    """
    _check_steps(policy.k - 1)
    shares = np.full(policy.k, 1 / policy.k)
    if frequencies is not None:
        shares = np.asarray(frequencies, dtype=float)
        if shares.shape != (policy.k,) or not (shares.min() >= 0 and abs(shares.sum() - 1) <= 1e-9):
            raise InvalidInput(f"frequencies must be a distribution of {policy.k} grid points")
    places, rows = _program(policy, shares)
    return _realised(
        lambda kept, weights: PolicyMeanTable(
            policy.epsilon, policy.k - 1, kept, weights, policy.integers
        ),
        places,
        rows,
    )


def _check_steps(steps: int) -> None:
    if not 1 <= steps <= MAX_TABLE_GRID:
        raise InvalidInput(f"a table has 1..{MAX_TABLE_GRID} grid steps, got {steps}")


# --- the program ---------------------------------------------------------------------------


def _lattice(reach: float, steps: int) -> tuple[NDArray[np.intp], float]:
    """Return places and a spacing: the scores to choose from are -1 + place * spacing.

    They lie within +-`reach`. The spacing divides a grid step, or is a multiple of it: where a
    policy lets numbers be revealed, the scores of their grid points are then among those to choose
    from.
    """
    step = 2 / steps
    parts = math.floor((_OUTPUTS - 1) * step / (2 * reach))
    spacing = step / parts if parts else step * math.ceil(2 * reach / ((_OUTPUTS - 1) * step))
    first, last = math.ceil((1 - reach) / spacing), math.floor((1 + reach) / spacing)
    return np.arange(first, last + 1), spacing


def _program(policy: Policy, shares: Floats | None) -> tuple[NDArray[np.intp], Floats]:
    """Solve for the channel; return the places of its codes and its rows, shape (k, codes).

    The average variance under `shares` is least, or that of the worst grid point without.
    """
    for beyond in _REACHES:
        places, spacing = _lattice(beyond / math.tanh(policy.epsilon / 2), policy.k - 1)
        scores = np.asarray(places * spacing - 1, dtype=np.float64)
        rows = _solved(policy, shares, scores)
        if rows is not None:
            return places, rows
    raise InvalidInput(f"no table was found for {policy.k} grid points under this policy")


def _solved(policy: Policy, shares: Floats | None, scores: Floats) -> Floats | None:
    """Return the best channel to these scores, shape (k, codes); None where there is none."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    k, size = policy.k, scores.size
    numbers = np.linspace(-1, 1, k)
    chance = np.arange(k * size).reshape(k, size)  # the unknowns, by grid point and code
    below, unknowns = [], k * size  # by code, the first unknown is at most so many of the second
    for sources, others, distance in _limits(policy):
        factor = math.exp(distance)
        if len(sources) * len(others) <= len(sources) + len(others):
            below += [(chance[x], chance[o], factor) for x in sources for o in others if x != o]
            continue
        least = np.arange(unknowns, unknowns + size)  # at most the least chance of the others
        unknowns += size
        below += [(chance[x], least, factor) for x in sources]
        below += [(least, chance[other], 1.0) for other in others]
    count = len(below) * size
    first, second = (np.concatenate([pair[i] for pair in below]) for i in (0, 1))
    factors = np.repeat([factor for *_, factor in below], size)
    row, column = [np.arange(count)] * 2, [first, second]
    entry, most = [np.ones(count), -factors], np.zeros(count)
    cost = np.zeros(unknowns + (shares is None))
    if shares is None:  # the last unknown is at least the variance of every grid point
        cost[-1] = 1
        row += [np.repeat(np.arange(count, count + k), size), np.arange(count, count + k)]
        column += [chance.ravel(), np.full(k, unknowns)]
        entry += [np.tile(scores**2, k), np.full(k, -1.0)]
        most = np.concatenate([most, numbers**2])
    else:
        cost[: k * size] = np.outer(shares, scores**2).ravel()
    limits = coo_array(
        (np.concatenate(entry), (np.concatenate(row), np.concatenate(column))),
        shape=(most.size, cost.size),
    )
    points = np.repeat(np.arange(k), size)
    sums = coo_array(
        (
            np.concatenate([np.ones(k * size), np.tile(scores, k)]),
            (np.concatenate([points, points + k]), np.tile(chance.ravel(), 2)),
        ),
        shape=(2 * k, cost.size),
    )
    found = linprog(
        cost,
        A_ub=limits.tocsr(),
        b_ub=most,
        A_eq=sums.tocsr(),
        b_eq=np.concatenate([np.ones(k), numbers]),
        # The interior point method, whose solution is then moved to a vertex, takes half the time
        # of the simplex method on a line of points, and more than that on plain tables.
        method="highs" if shares is None else "highs-ipm",
    )
    if found.x is None:
        return None
    rows: Floats = found.x[: k * size].reshape(k, size)
    return rows


def _limits(policy: Policy) -> Iterator[tuple[list[int], list[int], float]]:
    """Yield (points, others, distance) such that keeping to the distance from each of the points
    to each of the others, and to nothing else, keeps the policy.

    Pairs that a third point implies are left out, but for those that come for free: points with
    the same others share one bound.
    """
    rows = [
        [0 if x == o else policy.distances[a][b] for o, b in enumerate(policy.classes)]
        for x, a in enumerate(policy.classes)
    ]
    groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    points = range(policy.k)
    for x in points:
        needed = {
            rows[x][o]
            for o in points
            if o != x
            and rows[x][o] != UNLIMITED
            and all(rows[x][via] + rows[via][o] > rows[x][o] for via in points if via not in (x, o))
        }
        for distance in needed:
            others = tuple(o for o in points if rows[x][o] <= distance)
            groups.setdefault((distance, others), []).append(x)
    for (distance, others), sources in groups.items():
        yield sources, list(others), distance / UNIT


# --- in integers ---------------------------------------------------------------------------


def _realised(
    make: Callable[[tuple[int, ...], tuple[int, ...]], _Table],
    places: NDArray[np.intp],
    rows: Floats,
) -> _Table:
    """Return the table of a solution, mixed with as little of a blank report as it takes."""
    used = np.flatnonzero(rows.max(axis=0) > _UNUSED)
    if not np.any(np.diff(used) == 1):  # `_integers` needs two neighbours
        used = np.unique(np.append(used, used[0] + 1 if used[0] + 1 < places.size else used[0] - 1))
    kept = tuple((places[used] - places[used[0]]).tolist())
    chances = np.maximum(rows[:, used], 0)
    chances /= chances.sum(axis=1, keepdims=True)
    for mixed in _MIXED[:-1]:
        with contextlib.suppress(InvalidInput):
            return make(kept, _integers(kept, chances, mixed))
    return make(kept, _integers(kept, chances, _MIXED[-1]))


def _integers(places: tuple[int, ...], rows: Floats, mixed: float) -> tuple[int, ...]:
    """Return rows as integers that sum to 2**64, whose mean places rise evenly.

    Every row is mixed with the uniform distribution over the codes, which leaves the mean places
    evenly spread. What rounding takes is put back in the outermost codes, which a mean place
    depends on the most, and the last unit of it in two codes at neighbouring places.
    """
    floor = math.ceil(mixed * ONE / len(places))
    whole = ONE - floor * len(places)
    weights = [[floor + math.floor(Fraction(p) * whole) for p in row] for row in rows.tolist()]
    means = [sum(w * place for w, place in zip(row, places, strict=True)) for row in weights]
    rise = round(Fraction(means[-1] - means[0], len(rows) - 1))
    low = next(y for y, (a, b) in enumerate(pairwise(places)) if b == a + 1)
    for x, row in enumerate(weights):
        far, near = divmod(means[0] + rise * x - means[x], places[-1])
        row[0] += ONE - sum(row) - far
        row[-1] += far
        row[low] -= near
        row[low + 1] += near
    return tuple(weight for row in weights for weight in row)
