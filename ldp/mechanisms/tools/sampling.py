"""Exact draws from a small table of integer weights that sum to 2**64."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.core.exact import ONE
from ldp.errors import InvalidInput

_FEW = 4
"""Limits up to which comparing words with each is faster than a search."""


def thresholds(name: str, weights: Sequence[int]) -> NDArray[np.uint64]:
    """Return the cumulative weights without the last, shape (len(weights) - 1,).

    Raises `InvalidInput` unless all weights are positive and sum to 2**64.
    """
    if min(weights) <= 0 or sum(weights) != ONE:
        raise InvalidInput(
            f"{name}: weights must be positive and sum to 2**64, got {sum(weights)} "
            f"with the least {min(weights)}"
        )
    return np.array(list(accumulate(weights))[:-1], dtype=np.uint64)


def draw_many(limits: NDArray[np.uint64], n: int, coins: Coins) -> NDArray[np.intp]:
    """Return `n` indices, shape (n,), each drawn with its weight / 2**64."""
    words = coins.words(n)
    if not 0 < limits.size <= _FEW:
        return np.searchsorted(limits, words, side="right")
    drawn = np.zeros(n, dtype=np.uint8)
    for limit in limits:
        drawn += (words >= limit).view(np.uint8)
    found: NDArray[np.intp] = drawn.astype(np.intp)
    return found
