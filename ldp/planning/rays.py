"""The extreme columns that a policy allows, and their pricing for a design.

A column is extreme where the pairs of values whose distance it exhausts connect all values that
can cause it. Within a class such a column has at most two levels: a value that differs from its
class's highest and lowest by less than their distance is held by values of other classes, which
hold all values of the class alike. So columns come in patterns, two levels for each class, and
a pattern's columns differ by how many values of each class have the higher one.
"""

import math
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from ldp.core.policy import UNIT, UNLIMITED, Policy
from ldp.errors import InvalidInput
from ldp.planning.columns import Column

Floats = NDArray[np.float64]
Levels = tuple[int | None, ...]

_MAX_STATES = 20_000
"""The most partial patterns that are followed; a policy with more is refused."""

_MAX_OPTIONS = 256
"""The most subset sizes that are tried in one class."""

_SOME = 128
"""The most extreme patterns that a design starts with."""

_MAX_GRID = 1 << 25
"""The most columns of a policy of which all are priced."""


@dataclass(frozen=True, eq=False)
class Rays:
    """T columns by pattern, shape (T,), and subset sizes, shape (T, C).

    `mean`, shape (T, C), is a class's mean level, `spread` the level's variance over the class
    times n / (n - 1), and `output`, shape (T,), the mean level of the planned population.
    """

    pattern: NDArray[np.intp]
    sizes: NDArray[np.intp]
    mean: Floats
    spread: Floats
    output: Floats

    def where(self, keep: NDArray[np.bool_]) -> "Rays":
        """Return the columns that the mask `keep`, shape (T,), selects."""
        return Rays(
            self.pattern[keep],
            self.sizes[keep],
            self.mean[keep],
            self.spread[keep],
            self.output[keep],
        )

    def joined(self, other: "Rays") -> "Rays":
        """Return the columns of `self` and of `other`."""
        return Rays(
            np.concatenate([self.pattern, other.pattern]),
            np.concatenate([self.sizes, other.sizes]),
            np.concatenate([self.mean, other.mean]),
            np.concatenate([self.spread, other.spread]),
            np.concatenate([self.output, other.output]),
        )


@dataclass(frozen=True, eq=False)
class Prices:
    """The value of a column to a design: its information, against its use of the row sums.

    A column's worth is (within . spread + mean' between mean) / output + rows . mean. It is
    compared per unit of its mean level.
    """

    within: Floats
    between: Floats
    rows: Floats


class Pool:
    """All extreme columns of a policy, for a population with these totals by class."""

    def __init__(self, policy: Policy, masses: Floats) -> None:
        self.counts = np.array(policy.sizes)
        self.masses = masses
        patterns = extreme_patterns(policy) + _spikes(policy)
        self._high = [high for high, _ in patterns]
        self._low = [low for _, low in patterns]
        self.high, self.low = _exp(self._high), _exp(self._low)
        self.options = [_options(int(count)) for count in self.counts]
        self.varies = self.high != self.low
        grids = np.where(self.varies, [options.size for options in self.options], 1)
        self.columns_in_all = float(grids.prod(axis=1, dtype=float).sum())
        every = all(o.size >= n - 1 for o, n in zip(self.options, self.counts, strict=True))
        self.complete = every and self.columns_in_all <= _MAX_GRID

    def columns(self, rays: Rays) -> list[Column]:
        """Return the columns with their exact levels."""
        return [
            Column(tuple(map(int, sizes)), self._high[p], self._low[p])
            for p, sizes in zip(rays.pattern, rays.sizes, strict=True)
        ]

    def rays(self, pattern: NDArray[np.intp], sizes: NDArray[np.intp]) -> Rays:
        """Return the columns of these patterns and subset sizes, with their moments."""
        mean, spread = self._moments(self.high[pattern], self.low[pattern], sizes, self.counts)
        return Rays(pattern, sizes, mean, spread, mean @ self.masses)

    def start(self) -> Rays:
        """Return columns that can meet the row sums, and tell all values apart: the spikes.

        Some of the extreme ones, half of each class high, come with them to speed things up.
        """
        first = len(self.high) - self.counts.size
        some = np.arange(0, first, -(-first // _SOME))
        spikes = np.arange(first, len(self.high))
        pattern = np.concatenate([some, some, spikes])
        halves = np.where(np.arange(pattern.size) < some.size, 0, 1) + self.counts[:, None]
        return self.rays(pattern, np.where(self.varies[pattern], halves.T // 2, 0))

    @staticmethod
    def _moments(
        high: Floats, low: Floats, sizes: NDArray[np.intp], counts: NDArray[np.intp]
    ) -> tuple[Floats, Floats]:
        share = sizes / counts
        step = high - low
        others = np.maximum(counts - 1, 1)
        return low + step * share, step**2 * share * (counts - sizes) / others

    def search(self, prices: Prices, most: int) -> tuple[float, Rays]:
        """Improve each pattern's sizes by class; return the largest worth, and the best columns."""
        found, worths = [], []
        for where in (0.0, 0.5, 1.0):
            start = [o[int(where * (o.size - 1))] for o in self.options]
            sizes = np.where(self.varies, start, 0)
            worth = np.full(len(sizes), -np.inf)
            for _ in range(2):
                for a, options in enumerate(self.options):
                    tried = np.repeat(sizes[:, None], options.size, axis=1)
                    tried[..., a] = np.where(self.varies[:, a, None], options, tried[..., a])
                    values = self._worth(prices, self.high[:, None], self.low[:, None], tried)
                    best = values.argmax(axis=1)
                    rows = np.arange(len(sizes))
                    sizes, worth = tried[rows, best], values[rows, best]
            found.append(sizes)
            worths.append(worth)
        return self._best(np.concatenate(worths), np.tile(rows, 3), np.concatenate(found), most)

    def price(self, prices: Prices, most: int) -> tuple[float, Rays]:
        """Price all columns; return the largest worth, and the best columns, one per pattern."""
        worths, found = [], []
        for p in range(len(self.high)):
            axes = [
                options if varies else options[:1] * 0  # the size says nothing
                for options, varies in zip(self.options, self.varies[p], strict=True)
            ]
            values = self._grid(prices, p, axes)
            at = np.unravel_index(int(values.argmax()), values.shape)
            worths.append(values[at])
            found.append([axis[i] for axis, i in zip(axes, at, strict=True)])
        each = np.arange(len(self.high))
        return self._best(np.array(worths), each, np.array(found), most)

    def _worth(self, prices: Prices, high: Floats, low: Floats, sizes: NDArray[np.intp]) -> Floats:
        mean, spread = self._moments(high, low, sizes, self.counts)
        gain = spread @ prices.within + ((mean @ prices.between) * mean).sum(axis=-1)
        worth: Floats = (gain / (mean @ self.masses) + mean @ prices.rows) / mean.mean(axis=-1)
        return worth

    def _grid(self, prices: Prices, p: int, axes: list[NDArray[np.intp]]) -> Floats:
        """Return the worth of a pattern's columns for every combination of sizes."""
        moments = [
            self._moments(self.high[p, a], self.low[p, a], axis, self.counts[a])
            for a, axis in enumerate(axes)
        ]
        means = [mean for mean, _ in moments]
        size = len(axes)

        def total(parts: list[Floats]) -> Floats:
            result: Floats = reduce(np.add.outer, parts)
            return result

        gain = total(
            [
                prices.within[a] * spread + prices.between[a, a] * mean**2
                for a, (mean, spread) in enumerate(moments)
            ]
        )
        for a in range(size):
            for b in range(a):
                shape = [1] * size
                shape[a], shape[b] = axes[a].size, axes[b].size
                both = 2 * prices.between[a, b] * np.multiply.outer(means[b], means[a])
                gain += both.reshape(shape)
        output = total([m * w for m, w in zip(means, self.masses, strict=True)])
        rows = total([m * w for m, w in zip(means, prices.rows, strict=True)])
        gain /= output
        gain += rows
        gain /= total(means)
        gain *= size
        return gain

    def _best(
        self, worths: Floats, pattern: NDArray[np.intp], sizes: NDArray[np.intp], most: int
    ) -> tuple[float, Rays]:
        order = np.argsort(-worths)[:most]
        order = order[worths[order] > 0]
        unique = np.unique(np.column_stack([pattern, sizes])[order], axis=0)
        return float(worths.max()), self.rays(unique[:, 0], unique[:, 1:])


def extreme_patterns(policy: Policy) -> list[tuple[Levels, Levels]]:
    """Return the patterns of extreme columns: the higher and lower levels of the classes.

    Levels are in units of 1 / `UNIT`, the largest being zero; None stands for a level of zero
    probability. Raises `InvalidInput` where there are too many to follow.
    """
    nodes = [(a, low) for a, count in enumerate(policy.sizes) for low in range(min(count, 2))]
    distance = [[policy.distances[a][b] for b, _ in nodes] for a, _ in nodes]
    order = range(len(nodes))

    def canonical(levels: list[int | None]) -> Levels:
        top = max(level for level in levels if level is not None)
        result = [None if level is None else level - top for level in levels]
        for i, (_, low) in enumerate(nodes):
            if low:
                pair = sorted((result[i - 1], result[i]), key=lambda x: (x is None, -(x or 0)))
                result[i - 1 : i + 1] = pair
        return tuple(result)

    def tight(levels: Levels, new: int) -> set[int]:
        """Return the levels at which a node exhausts a distance, and exceeds none."""
        known = [(j, level) for j, level in enumerate(levels) if level is not None]
        above = {u + distance[new][j] for j, u in known if distance[new][j] != UNLIMITED}
        below = {u - distance[j][new] for j, u in known if distance[j][new] != UNLIMITED}
        return {
            level
            for level in above | below
            if all(
                (distance[new][j] == UNLIMITED or level - u <= distance[new][j])
                and (distance[j][new] == UNLIMITED or u - level <= distance[j][new])
                for j, u in known
            )
        }

    todo = [canonical([0 if i == j else None for j in order]) for i in order]
    seen = set(todo)
    while todo:
        levels = todo.pop()
        for new in order:
            if levels[new] is None:
                for level in tight(levels, new):
                    further = canonical([*levels[:new], level, *levels[new + 1 :]])
                    if further not in seen:
                        seen.add(further)
                        todo.append(further)
        if len(seen) > _MAX_STATES:
            raise InvalidInput(
                f"{len(policy.sizes)} classes at so many different distances have too many "
                "extreme columns to design with: use fewer classes"
            )
    full = sorted(
        (levels for levels in seen if _closed(levels, distance)),
        key=lambda levels: [math.inf if level is None else -level for level in levels],
    )
    return [_by_class(levels, nodes) for levels in full]


def _spikes(policy: Policy) -> list[tuple[Levels, Levels]]:
    """Return for each class the pattern that raises some of its values by the least distance.

    No policy forbids that, and weights of n / size on classes of n values make equal row sums.
    """
    least = min(d for row in policy.distances for d in row if d)
    order = range(len(policy.sizes))
    return [
        (
            tuple(0 if a == b else -least for b in order),
            tuple(0 if a == b and policy.sizes[b] == 1 else -least for b in order),
        )
        for a in order
    ]


def _closed(levels: Levels, distance: list[list[int]]) -> bool:
    """Tell whether values of positive level are infinitely far from values of level zero."""
    return all(
        distance[i][j] == UNLIMITED
        for i, level in enumerate(levels)
        if level is not None
        for j, other in enumerate(levels)
        if other is None
    )


def _by_class(levels: Levels, nodes: list[tuple[int, int]]) -> tuple[Levels, Levels]:
    high = {a: level for (a, low), level in zip(nodes, levels, strict=True) if not low}
    both = high | {a: level for (a, low), level in zip(nodes, levels, strict=True) if low}
    return tuple(high.values()), tuple(both.values())


def _exp(levels: list[Levels]) -> Floats:
    return np.array([[0.0 if u is None else math.exp(u / UNIT) for u in row] for row in levels])


def _options(count: int) -> NDArray[np.intp]:
    """Return the subset sizes to consider in a class: all, or some in geometric steps."""
    if count <= _MAX_OPTIONS:
        return np.arange(1, max(count, 2))
    steps = np.geomspace(1, count // 2, _MAX_OPTIONS // 2).astype(np.intp)
    return np.unique(np.concatenate([steps, count - steps]))
