"""Exact draws of the discrete Laplace and the discrete Gaussian distribution, in integers.

The time that a draw takes is not hidden.
Source: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
algorithms 1 to 3.
"""

import math
from fractions import Fraction

from ldp import Coins


def survives(gamma: Fraction, coins: Coins) -> bool:
    """Return True with probability e**-gamma, gamma >= 0."""
    above, below = gamma.numerator, gamma.denominator
    while above > below:
        if not survives(Fraction(1), coins):
            return False
        above -= below
    k = 1
    while coins.below(below * k) < above:
        k += 1
    return k % 2 == 1


def discrete_laplace(rate: Fraction, coins: Coins) -> int:
    """Return k with probability proportional to e**(-rate |k|), rate > 0."""
    s, t = rate.numerator, rate.denominator
    while True:
        k = coins.below(t)
        if not survives(Fraction(k, t), coins):
            continue
        while survives(Fraction(1), coins):
            k += t
        negative, size = coins.below(2), k // s
        if size or not negative:
            return -size if negative else size


def discrete_gaussian(variance: int, coins: Coins) -> int:
    """Return k with probability proportional to e**(-k**2 / (2 variance))."""
    t = math.isqrt(variance) + 1
    while True:
        k = discrete_laplace(Fraction(1, t), coins)
        if survives(Fraction((abs(k) * t - variance) ** 2, 2 * variance * t * t), coins):
            return k
