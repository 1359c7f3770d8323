"""The mechanism of least variance for sets."""

import math
from functools import lru_cache

from ldp.mechanisms.sets.base import SetMechanism
from ldp.mechanisms.sets.set_bits import SetBits
from ldp.mechanisms.sets.set_selection import SetSelection, best_sizes, planned_variance


def best_for_sets(items: int, most: int, epsilon: float) -> SetMechanism:
    """Return the mechanism of least variance for sets of at most `most` of so many items.

    Compared is the variance of an item that a share of most / (2 items) of the people have: sets
    of half of the largest size on average. `SetBits` is better where sets may hold about half of
    the items or more. Raises `InvalidInput` as `SetSelection`.
    """
    selection = SetSelection(items, epsilon, most)
    if items < 2 or bits_variance(items, most, epsilon) >= selection_variance(items, most, epsilon):
        return selection
    return SetBits(items, epsilon)


@lru_cache(maxsize=4096)
def selection_variance(items: int, most: int, epsilon: float) -> float:
    """Return the variance of one report's estimate of a planned item, by `SetSelection`."""
    return planned_variance(items, most, *best_sizes(items, most, epsilon), epsilon)


def bits_variance(items: int, most: int, epsilon: float) -> float:
    """Return the variance of one report's estimate of a planned item, by `SetBits`."""
    p = math.exp(epsilon) / (math.exp(epsilon) + 1)
    s = 1 - p + most / (2 * items) * (2 * p - 1)
    return items * s * (1 - s) / (2 * p - 1) ** 2
