"""How well the best of several random directions agree with a given one, in closed form.

The inner product of a unit vector in D dimensions with a uniform one is the sine of an angle whose
density is proportional to cos(angle)**(D - 2). Of several directions the best are those with the
largest inner products.
"""

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_POINTS = 1 << 16
_WIDTH = 14.0
"""The grid of angles reaches so many standard deviations: 10**-44 of the probability is beyond."""


def _angles(dimensions: int) -> tuple[Array, Array, Array]:
    """Return a grid of angles, their density, and the probability above each, shape (points,)."""
    end = min(math.pi / 2, _WIDTH / math.sqrt(dimensions))
    step = 2 * end / _POINTS
    angles = np.linspace(-end, end, _POINTS + 1)
    density = np.cos(angles) ** (dimensions - 2)
    between = np.cos(angles[:-1] + step / 2) ** (dimensions - 2)
    pieces = (density[:-1] + 4 * between + density[1:]) * (step / 6)  # Simpson's rule
    total = pieces.sum()
    above = np.append(np.cumsum(pieces[::-1])[::-1], 0.0)
    return angles, density / total, above / total


def mean_of_best(dimensions: int, codes: int, size: int) -> float:
    """Return the mean inner product of the `size` best of `codes` directions, 1 <= size < codes.

    Given the inner product s of the best one that is not among them, they are independent draws
    above s, whose sum of means is known: the integral of s f(s) above an angle is
    c cos(angle)**(D - 1) / (D - 1). The probability above s is a
    Beta(size + 1, codes - size).
    """
    angles, density, above = _angles(dimensions)
    inner = slice(1, -1)  # the ends have no mass
    high, low = above[inner], above[::-1][inner]  # symmetric: below s is above -s
    cosines = np.cos(angles[inner])
    log_beta = math.lgamma(size + 1) + math.lgamma(codes - size) - math.lgamma(codes + 1)
    logs = size * np.log(high) + (codes - size - 1) * np.log(low) - log_beta
    excess = density[inner] * cosines / (dimensions - 1) / high
    return float((np.exp(logs) * density[inner] * excess).sum() * (angles[1] - angles[0]))


def best_size(dimensions: int, codes: int, odds: float) -> int:
    """Return the size w of the largest w (odds - 1) / (w odds + codes - w) times the mean of the
    w best, at most half of the codes; `odds` is how much likelier a good code is than another.

    The means are Blom's approximation of the order statistics, quantiles at
    (i - 3/8) / (codes + 1/4): at so flat a maximum that is enough, and no size is wrong.
    """
    angles, _, above = _angles(dimensions)
    ranks = (np.arange(1, codes // 2 + 1) - 0.375) / (codes + 0.25)
    best = np.sin(np.interp(ranks, above[::-1], angles[::-1]))
    sizes = np.arange(1, ranks.size + 1)
    gains = (odds - 1) / (sizes * odds + codes - sizes) * np.cumsum(best)
    return int(sizes[gains.argmax()])
