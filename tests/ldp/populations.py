"""Simulated reports, and the truths and shares of levels that the published figures are for."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp import Mechanism, Tally
from ldp.testing import SeededCoins

LEVELS, SHARES = (0.5, 1.0, 2.0, 4.0), (0.4, 0.3, 0.2, 0.1)
"""Epsilons that people choose from, and the share of the people who choose each."""


def zipf(k: int, exponent: float) -> NDArray[np.float64]:
    """Return the frequencies of k values, in proportion to rank**-exponent."""
    weight = np.arange(1, k + 1.0) ** -exponent
    distribution: NDArray[np.float64] = weight / weight.sum()
    return distribution


def revealing(k: int, epsilon: float, sensitive: Sequence[int]) -> NDArray[np.float64]:
    """Return utility-optimised k-RR's channel: values not in `sensitive` may show themselves."""
    e, v = np.exp(epsilon), len(sensitive)
    channel = np.zeros((k, k))
    channel[:, list(sensitive)] = 1 / (e + v - 1)
    for x in range(k):
        channel[x, x] = (e if x in sensitive else e - 1) / (e + v - 1)
    return channel


def tallies(mechanism: Mechanism, values: NDArray[Any], coins: SeededCoins) -> list[Tally]:
    """Return the tally of reports of each row of `values`."""
    codes = mechanism.randomize_many(values.ravel(), coins)
    return [mechanism.tally(row) for row in codes.reshape(*values.shape, *mechanism.code_shape)]
