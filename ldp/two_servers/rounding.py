"""Real vectors as integers of a bounded norm: unbiased rounding and a randomised rotation.

Privacy rests on the norm of the integers alone, which is checked on the integers themselves: no
double stands between a record's sensitivity and its promise.
"""

import math
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.coins import Coins
from ldp.errors import InvalidInput


def round_randomly(values: ArrayLike, coins: Coins) -> NDArray[np.int64]:
    """Return each value rounded down or up, so that its expectation is the value.

    Shape as `values`; unbiased to 2**-53. Raises `InvalidInput` unless all are finite and below
    2**52 in size.
    """
    values = np.asarray(values, dtype=np.float64)
    if not (np.abs(values) < 1 << 52).all():
        raise InvalidInput("values must be finite and below 2**52 in size")
    floors = np.floor(values)
    # Of a negative value nearer to 0 than 2**-54 the difference is 1 as a double: take it for 0.
    floors += values - floors == 1
    thresholds = np.ldexp(np.maximum(values - floors, 0), 64)
    up = coins.words(values.size).reshape(values.shape) < thresholds.astype(np.uint64)
    rounded: NDArray[np.int64] = floors.astype(np.int64) + up
    return rounded


def norm_bounds(clip: float, scale: float, dim: int) -> tuple[int, int]:
    """Return (L1, squared L2) bounds of a rotated, scaled and randomly rounded update.

    `clip` bounds the update's L2 norm, `scale` is integers per unit, `dim` is the number of
    coordinates after padding. A rounding meets the L2 bound with a probability of at least
    1 - e**-1/2, so that repeating it until it does costs few draws.
    Source: Kairouz, Liu and Steinke, "The distributed discrete Gaussian mechanism for federated
    learning with secure aggregation", ICML 2021, its norm condition with beta = e**-1/2.
    """
    if not (0 < clip < math.inf and 0 < scale < math.inf and dim >= 1):
        raise InvalidInput(
            f"clip and scale must be > 0 and dim >= 1, got {clip}, {scale} and {dim}"
        )
    size = clip * scale
    squared = math.floor(
        min(
            size**2 + dim / 4 + size + math.sqrt(dim) / 2,  # sqrt(2 ln(1 / beta)) = 1
            (size + math.sqrt(dim)) ** 2,
        )
    )
    return min(squared, math.isqrt(dim * squared)), squared


def rotate(values: ArrayLike, signs: ArrayLike) -> NDArray[np.float64]:
    """Return the orthonormal Walsh-Hadamard transform of signs * values, shape (size,).

    `signs` has shape (size,), a power of two, with entries -1 and 1; values are padded by zeros.
    Cost: O(size log size).
    """
    signs = _checked(signs)
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or values.size > signs.size:
        raise InvalidInput(f"values must have shape (n,), n <= {signs.size}, got {values.shape}")
    padded = np.zeros(signs.size)
    padded[: values.size] = values
    return _transform(padded * signs)


def rotate_back(rotated: ArrayLike, signs: ArrayLike) -> NDArray[np.float64]:
    """Return the vector that `rotate` made this one of, with its padding, shape (size,)."""
    signs = _checked(signs)
    back: NDArray[np.float64] = _transform(np.asarray(rotated, dtype=np.float64)) * signs
    return back


def encode_update(
    update: ArrayLike, clip: float, scale: float, signs: ArrayLike, coins: Coins
) -> NDArray[np.int64]:
    """Return an update as integers whose norms keep to `norm_bounds`, shape (size,).

    The update is clipped to `clip` in L2, rotated, scaled and rounded; it is rounded again until
    the squared L2 norm of the integers is at most the bound. Guarantee: the bound, for each
    update.
    """
    values = np.asarray(update, dtype=np.float64)
    if not np.isfinite(values).all():
        raise InvalidInput("an update must be finite")
    signs = _checked(signs)
    _, squared = norm_bounds(clip, scale, signs.size)
    norm = float(np.linalg.norm(values))
    rotated = rotate(values * (min(1.0, clip / norm) if norm else 1.0), signs) * scale
    while True:
        rounded = round_randomly(rotated, coins)
        if sum(x * x for x in rounded.tolist()) <= squared:
            return rounded


def decode_sum(total: ArrayLike, scale: float, signs: ArrayLike) -> NDArray[np.float64]:
    """Return the sum of updates that a sum of their integers stands for, shape (size,)."""
    return rotate_back(np.asarray(total, dtype=np.float64) / scale, signs)


def grid_share(value: float, lower: float, upper: float, steps: int, coins: Coins) -> int:
    """Return a grid point of 0..steps: on average steps (value - lower) / (upper - lower)."""
    if not lower <= value <= upper:
        raise InvalidInput(f"value must lie in [{lower}, {upper}], got {value}")
    exact = Fraction(steps) * (Fraction(value) - Fraction(lower))
    exact /= Fraction(upper) - Fraction(lower)
    u = math.floor(exact)
    return u + coins.bernoulli(math.floor((exact - u) * (1 << 64)))


def _checked(signs: ArrayLike) -> NDArray[np.float64]:
    signs = np.asarray(signs, dtype=np.float64)
    if signs.ndim != 1 or not signs.size or signs.size & signs.size - 1:
        raise InvalidInput(f"signs must have shape (2**m,), got {signs.shape}")
    if not (np.abs(signs) == 1).all():
        raise InvalidInput("signs must be -1 or 1")
    return signs


def _transform(values: NDArray[np.float64]) -> NDArray[np.float64]:
    size, half = values.size, 1
    while half < size:
        pairs = values.reshape(-1, 2, half)
        values = np.stack((pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]), axis=1).ravel()
        half *= 2
    return values / math.sqrt(size)
