"""How fine the grid is, on which sums and noise meet."""

import math

from ldp.errors import InvalidInput

WIDENING = 1 + 1 / 4096
"""Noise is wider by this factor than accounted for: it covers what rounding moves neighbours."""


def spacing_for(sensitivity: float, dimensions: int, deviation: float) -> float:
    """Return a power of two of which `dimensions` roundings move sums by 1/4096 of `sensitivity`.

    At most, in L2 norm. It is also at most 1/4096 of the noise's standard deviation. Raises
    `InvalidInput` for sums or noise near the least or the largest float64.
    """
    least = min(sensitivity / math.sqrt(max(1, dimensions)), deviation)
    if not 1e-280 < least <= deviation < 1e280:
        raise InvalidInput(
            "noise, and a norm over the root of the number of values, must be between 1e-280 "
            f"and 1e280, got {deviation:g}, and {sensitivity:g} for {dimensions} values"
        )
    return 2.0 ** math.floor(math.log2(least / 4096))
