"""What is done to each value of noise and of gradients, compiled: numpy takes twice as long.

Loops are short and simple, so that the compiler does several values at once. Logarithm, sine and
cosine are series for the same reason, cut off below the last place of float64. Nothing checks
sizes here, and only unsigned integers may overflow. To compile takes a second, when a function is
first called.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import numba
except ImportError as error:
    raise ImportError("private training needs numba: pip install 'hearsay[train]'") from error

TOGETHER = 512
"""Radii, and as many angles, that are computed together."""

_ROOT_HALF = np.float64(math.sqrt(0.5)).view(np.int64).item()
_LN2 = math.log(2.0)
_LOST = np.finfo(np.float64).tiny / np.finfo(np.float64).eps
_ANGLE = 2.0 * math.pi * 2.0**-64

_compiled = numba.njit(nogil=True, error_model="numpy", fastmath={"contract"})
_compiled_sums = numba.njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})


@_compiled
def box_muller(out: NDArray[np.float64], more: NDArray[np.uint64], least: int) -> int:
    """Turn an even number of random words, whose place they take, into normal values.

    Of every 1024 words, or what is left, half are for radii and half for angles. A radius is the
    root of -2 ln u, where u is the upper 63 bits of a word, plus a half, over 2**63. A word below
    `least` is too coarse for that: instead of the half it gets the next word of `more`, over 2**64.
    An angle is a word over 2**64, in turns. What comes of a pair is radius cos(angle) and
    radius sin(angle).

    Return how many are done: all, or those before 1024 for which `more` is too short. Another call
    may go on there.
    """
    words = out.view(np.uint64)
    taken = 0
    mantissas, exponents = np.empty(TOGETHER), np.empty(TOGETHER)
    cosines, sines = np.empty(TOGETHER), np.empty(TOGETHER)
    bits = mantissas.view(np.int64)
    for start in range(0, out.size, 2 * TOGETHER):
        stop = min(start + 2 * TOGETHER, out.size)
        middle = (start + stop) // 2
        part = words[start:middle]
        small = 0
        for i in range(part.size):
            small += part[i] < np.uint64(least)
            mantissas[i] = np.float64(np.int64(part[i] >> np.uint64(1))) + 0.5
        if taken + small > more.size:
            return start
        if small:
            for i in range(part.size):
                if part[i] < np.uint64(least):
                    fraction = (np.float64(more[taken]) + 0.5) * 2.0**-64
                    mantissas[i] = np.float64(part[i] >> np.uint64(1)) + fraction
                    taken += 1
        for i in range(part.size):
            # A mantissa lies in [sqrt(1/2), sqrt(2)).
            exponent = (bits[i] - _ROOT_HALF) >> 52
            bits[i] -= exponent << 52
            exponents[i] = np.float64(exponent - 63)
        for i in range(part.size):
            # ln m = 2 artanh((m - 1) / (m + 1))
            s = (mantissas[i] - 1.0) / (mantissas[i] + 1.0)
            z = s * s
            p = 1 / 17 + z * (1 / 19)
            p = 1 / 13 + z * (1 / 15 + z * p)
            p = 1 / 9 + z * (1 / 11 + z * p)
            p = 1 / 5 + z * (1 / 7 + z * p)
            p = 1.0 + z * (1 / 3 + z * p)
            mantissas[i] = math.sqrt(-2.0 * (2.0 * s * p + exponents[i] * _LN2))
        part = words[middle:stop]
        for i in range(part.size):
            # The nearest quarter of a turn, and what is left: at most an eighth.
            later = part[i] + np.uint64(1 << 61)
            quarter = np.int64(later >> np.uint64(62))
            x = np.float64(np.int64(later & np.uint64((1 << 62) - 1)) - (1 << 61)) * _ANGLE
            z = x * x
            s = 1 / 6227020800 - z * (1 / 1307674368000)
            s = 1 / 362880 - z * (1 / 39916800 - z * s)
            s = 1 / 120 - z * (1 / 5040 - z * s)
            s = x - x * z * (1 / 6 - z * s)
            c = 1 / 479001600 - z * (1 / 87178291200 - z * (1 / 20922789888000))
            c = 1 / 40320 - z * (1 / 3628800 - z * c)
            c = 1 / 24 - z * (1 / 720 - z * c)
            c = 1.0 - z * (0.5 - z * c)
            cosine, sine = (s, c) if quarter & 1 else (c, s)
            cosines[i] = -cosine if (quarter + 1) & 2 else cosine
            sines[i] = -sine if quarter & 2 else sine
        first, second = out[start:middle], out[middle:stop]
        for i in range(first.size):
            first[i] = cosines[i] * mantissas[i]
        for i in range(second.size):
            second[i] = sines[i] * mantissas[i]
    return out.size


@_compiled
def add_rounded(
    sums: NDArray[np.floating[Any]],
    values: NDArray[np.float64],
    deviation: float,
    spacing: float,
    apart: bool,
    divisor: float,
) -> None:
    """Add values times `deviation` to sums, round to multiples of `spacing` and divide.

    The spacing is a power of two. With `apart` both are rounded before they meet.
    """
    per_spacing = 1.0 / spacing  # exact, as is what it multiplies
    scale = deviation * per_spacing
    unit = spacing / divisor
    for i in range(sums.size):
        noise = values[i] * scale
        summed = np.float64(sums[i]) * per_spacing
        total = np.rint(noise) + np.rint(summed) if apart else np.rint(noise + summed)
        sums[i] = total * unit


@_compiled_sums
def _square(values: NDArray[np.floating[Any]], most: float) -> float:
    """Return the sum of squares, in float64, with what squares rounded to zero may come to."""
    total = values.size * _LOST
    for i in range(values.size):
        value = np.float64(values[i])
        total += value * value
    return total if total <= most else np.inf


@_compiled
def add_squares(
    values: NDArray[np.floating[Any]], totals: NDArray[np.float64], most: float
) -> None:
    """Add the squared norm of each row to its total: infinity, if more than `most`."""
    for i in range(totals.size):
        totals[i] += _square(values[i], most)


@_compiled
def add_products(
    left: NDArray[np.floating[Any]],
    right: NDArray[np.floating[Any]],
    totals: NDArray[np.float64],
    most: float,
) -> None:
    """Add the squared norm of each outer product of two rows to its total, likewise."""
    for i in range(totals.size):
        product = _square(left[i], most) * _square(right[i], most)
        totals[i] += product if product <= most else np.inf
