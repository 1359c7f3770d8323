"""Exact draws of the Skellam distribution: the difference of two Poisson draws, in integers.

The sum of independent Skellam draws is Skellam, and its variance is the sum of theirs. So many
devices together add the noise that one trusted party would add, and a device that drops out takes
nothing away but its own part.

The draws are exact: the statistical distance to the Skellam distribution is zero, given uniform
bits. A word of 64 bits is the beginning of the binary digits of a uniform number, and bounds of the
distribution function in integers say which value the number belongs to. The few words that do not
decide are continued by further words. The time that a draw takes is not hidden.
Source of the method: Knuth and Yao, "The complexity of nonuniform random number generation", 1976.
"""

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ldp.core.coins import Coins
from ldp.errors import InvalidInput

MAX_VARIANCE = 1 << 27
"""The largest variance of one draw: its tables have some 250,000 entries for each mean."""

_GUARD = 128
"""Bits of the tables beyond those that are compared, for the errors of their own roundings."""


def skellam(variance: Fraction, n: int, coins: Coins) -> NDArray[np.int64]:
    """Return `n` independent Skellam draws of mean 0 and of this variance, shape (n,).

    Exact: the probability of each value is that of the difference of two Poisson variables with
    means `variance` / 2. Raises `InvalidInput` unless 0 < variance <= 2**27 and n >= 0.
    Cost: two words of coins and two searches a draw, after the table of a variance is made once.
    """
    if not 0 < variance <= MAX_VARIANCE:
        raise InvalidInput(f"variance must lie in (0, 2**27], got {variance}")
    if n < 0:
        raise InvalidInput(f"n must be at least 0, got {n}")
    drawn = _poisson(Fraction(variance) / 2, 2 * n, coins)
    return drawn[:n] - drawn[n:]


def _poisson(mean: Fraction, n: int, coins: Coins) -> NDArray[np.int64]:
    """Return `n` exact Poisson draws, shape (n,)."""
    first, limits = _limits(mean)
    words = coins.words(n)
    places = np.searchsorted(limits, words, side="right")
    drawn = places + np.int64(first)
    # A word that equals a limit may belong to either side of it.
    for at in np.flatnonzero((places > 0) & (limits[places - 1] == words)):
        drawn[at] = _continue(mean, int(words[at]), coins)
    return drawn


def _continue(mean: Fraction, digits: int, coins: Coins) -> int:
    """Return the value of a uniform number that begins with these 64 bits."""
    bits = 64
    while True:
        digits, bits = digits << 64 | int(coins.words(1)[0]), bits + 64
        table = _table(mean, bits + _GUARD)
        # The number lies in [digits, digits + 1) / 2**bits.
        least = bisect_right(table.upper, digits << _GUARD)
        most = bisect_right(table.lower, (digits + 1 << _GUARD) - 1)
        if least == most and (least or not table.first) and most < len(table.lower):
            return table.first + least


@dataclass(frozen=True)
class _Table:
    """Bounds of a distribution function F at `first`, `first` + 1, ..., over 2**bits.

    lower[i] <= F(first + i) 2**bits <= upper[i].
    """

    first: int
    lower: list[int]
    upper: list[int]


@lru_cache(maxsize=8)
def _limits(mean: Fraction) -> tuple[int, NDArray[np.uint64]]:
    """Return the first value and floor(F(value) 2**64) from there on, ascending."""
    bits = 64 + _GUARD
    while True:
        table = _table(mean, bits)
        lower = [bound >> bits - 64 for bound in table.lower]
        if lower == [min(bound, (1 << bits) - 1) >> bits - 64 for bound in table.upper]:
            return table.first, np.array(lower, dtype=np.uint64)
        bits += 64  # two bounds are on either side of an integer


def _table(mean: Fraction, bits: int) -> _Table:
    """Return bounds of the Poisson distribution function, over 2**bits.

    The weights w(k) = mean**k / k! are taken over that of the mode, and from there outward each
    is the last one times a ratio of at most 1, rounded down. So w(k) is short by less than the
    number of its steps. The weights beyond the last, where w is less than that number, sum to less
    than that number times k at either end: upward the ratios are at most mean / (k + 1), below
    k / (k + 1),
    and downward at most k weights are left.
    """
    scale = 64 + bits  # of the weights: their errors vanish beside the bounds
    p, q = mean.numerator, mean.denominator
    mode = p // q
    above, k = [1 << scale], mode
    while above[-1]:
        k += 1
        above.append(above[-1] * p // (q * k))
    below, last = [1 << scale], mode
    while below[-1] and last:
        below.append(below[-1] * (q * last) // p)
        last -= 1
    weights = below[:0:-1] + above
    short = (len(weights) + 1) * (len(weights) + 2 * k + 2)  # of all sums, tails included
    total, at = sum(weights), 0
    lower, upper = [], []
    for weight in weights:
        at += weight
        lower.append((at << bits) // (total + short))
        upper.append(min(-(-(at + short << bits) // total), 1 << bits))
    return _Table(last, lower, upper)
