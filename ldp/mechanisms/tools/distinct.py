"""Uniform subsets for many reports at once."""

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins

_FEW = 96
"""Members up to which drawing them one by one is faster than ordering all candidates."""

_BLOCK = 1 << 20
"""Candidates that are ordered together."""


def distinct_many(coins: Coins, count: int, size: int, n: int) -> NDArray[np.int64]:
    """Return `n` uniform subsets of 0..count-1, shape (n, size), in no certain order.

    Raises `InvalidInput` as `Coins.distinct`. Cost: O(n size**2), or O(n count) for large ones.
    Source: Floyd's sampling, as `Coins.distinct`, of all subsets together.
    """
    if size > _FEW:
        step = max(1, _BLOCK // count)
        starts = range(0, n, step)
        return np.concatenate([_ordered(coins, count, size, min(step, n - s)) for s in starts])
    chosen = np.empty((size, n), dtype=np.int64)
    for place, last in enumerate(range(count - size, count)):
        drawn = coins.below_many(last + 1, n).astype(np.int64)
        taken = (chosen[:place] == drawn).any(axis=0)
        chosen[place] = np.where(taken, last, drawn)
    return chosen.T


def _ordered(coins: Coins, count: int, size: int, n: int) -> NDArray[np.int64]:
    """Return the places of the smallest of `count` words in each of n rows."""
    while True:
        words = coins.words(n * count).reshape(n, count)
        if size == count:
            return np.broadcast_to(np.arange(count), (n, count)).copy()
        order = np.argpartition(words, size, axis=1)
        last = np.take_along_axis(words, order[:, :size], axis=1).max(axis=1)
        if (last < np.take_along_axis(words, order[:, size : size + 1], axis=1)[:, 0]).all():
            return order[:, :size].astype(np.int64)  # a tie would favour the earlier place
