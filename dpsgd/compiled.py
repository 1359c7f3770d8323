"""What is done to each value of noise and of gradients, compiled: numpy takes twice as long.

Loops are short and simple, so that the compiler does several values at once, and keeps what they
have in common in registers. Logarithm, sine and cosine are polynomials for the same reason, fitted
(at Chebyshev nodes) to less than the last place of float64. Nothing checks sizes here, and only
unsigned integers may overflow. To compile takes a second, when a function is first called.
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

_LN2 = math.log(2.0)
_LOST = np.finfo(np.float64).tiny / np.finfo(np.float64).eps
_EIGHTH = 2.0 * math.pi / 8.0

_ADDED = 66
"""To exponents, which begin at -65, so that none is negative."""
_ROOT_HALF = np.float64(math.sqrt(0.5)).view(np.uint64)
_TWO_52 = np.float64(2.0**52).view(np.uint64)
_LOWER = np.uint64((1 << 32) - 1)
_SIGN = np.uint64(1 << 63)

_compiled = numba.njit(nogil=True, error_model="numpy", fastmath={"contract"})
_compiled_sums = numba.njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})


@_compiled
def box_muller(out: NDArray[np.float64], more: NDArray[np.uint64], least: int) -> int:
    """Turn an even number of random words, whose place they take, into normal values.

    Of every 1024 words, or what is left, half are for radii and half for angles. A radius is the
    root of -2 ln u, where u is the upper 63 bits of a word, plus a half, over 2**63, in float64. A
    word below `least` is too coarse for that: instead of the half it gets the next word of `more`,
    plus a half, over 2**64. An angle is the lower 61 bits of a word, plus a half, over 2**61, in
    eighths of a turn. The bits above say whether its cosine and sine change places, and then that
    the second and the first are negative. What comes of a pair is the radius times these two.

    Return how many are done: all, or those before 1024 for which `more` is too short. Another call
    may go on there.
    """
    words = out.view(np.uint64)
    taken = 0
    radii, angles, turns = np.empty(TOGETHER), np.empty(TOGETHER), np.empty(TOGETHER, np.uint64)
    cosines, sines = np.empty(TOGETHER), np.empty(TOGETHER)
    for start in range(0, out.size, 2 * TOGETHER):
        stop = min(start + 2 * TOGETHER, out.size)
        middle = (start + stop) // 2
        part = words[start:middle]
        small = 0
        for i in range(part.size):
            small += part[i] < np.uint64(least)
            lower = _as_float((part[i] & _LOWER) >> np.uint64(1)) + 0.5
            radii[i] = _radius(_as_float(part[i] >> np.uint64(32)) * 2.0**31 + lower)
        if taken + small > more.size:
            return start
        if small:
            for i in range(part.size):
                if part[i] < np.uint64(least):
                    fraction = (np.float64(more[taken]) + 0.5) * 2.0**-64
                    radii[i] = _radius(np.float64(part[i] >> np.uint64(1)) + fraction)
                    taken += 1
        part = words[middle:stop]
        for i in range(part.size):
            turns[i] = part[i]
            upper = _as_float(part[i] >> np.uint64(32) & np.uint64((1 << 29) - 1))
            lower = _as_float(part[i] & _LOWER) + 0.5
            angles[i] = (upper * 2.0**32 + lower) * (2.0**-61 * _EIGHTH)
        for i in range(part.size):
            # sin x = x - x z S(z) and cos x = 1 - z (1/2 - z C(z)), each to 2e-17.
            x = angles[i]
            z = x * x
            s = 2.505113165023518e-08 - z * 1.5918115263265974e-10
            s = 1.9841269836756774e-04 - z * (2.7557316101617874e-06 - z * s)
            s = 1.6666666666666666e-01 - z * (8.333333333330948e-03 - z * s)
            sines[i] = x - x * z * s
            c = 2.087614614655861e-09 - z * 1.1382623647474604e-11
            c = 2.480158729876456e-05 - z * (2.7557317271145144e-07 - z * c)
            c = 4.1666666666666664e-02 - z * (1.3888888888887398e-03 - z * c)
            cosines[i] = 1.0 - z * (0.5 - z * c)
        first, second = out[start:middle], out[middle:stop]
        for i in range(second.size):
            c, s = cosines[i], sines[i]
            cosine, sine = (s, c) if turns[i] & np.uint64(1 << 61) else (c, s)
            first[i] = _flipped(cosine * radii[i], turns[i])
            second[i] = _flipped(sine * radii[i], turns[i] << np.uint64(1))
    return out.size


@_compiled
def _radius(number: float) -> float:
    """Return the root of -2 ln u for u = number / 2**63; numbers begin at 2**-65."""
    bits = np.float64(number).view(np.uint64)
    # A mantissa lies in [sqrt(1/2), sqrt(2)).
    exponent = (bits - _ROOT_HALF + np.uint64(_ADDED << 52)) >> np.uint64(52)
    mantissa = bits + np.uint64(_ADDED << 52) - (exponent << np.uint64(52))
    # ln m = 2 artanh s = 2 s (1 + z A(z)), to 5e-18 of it
    m = np.uint64(mantissa).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    p = 7.665855309105386e-02 + z * 7.308292712444311e-02
    p = 1.1111105565129939e-01 + z * (9.091444727837474e-02 + z * p)
    p = 1.9999999999949722e-01 + z * (1.4285714313001635e-01 + z * p)
    p = 1.0 + z * (3.333333333333335e-01 + z * p)
    return math.sqrt(-2.0 * (2.0 * s * p + (_as_float(exponent) - (_ADDED + 63)) * _LN2))


@_compiled
def _as_float(integer: np.uint64) -> np.float64:
    """Return an integer below 2**52; processors without AVX-512 have no instruction for several."""
    return np.uint64(integer | _TWO_52).view(np.float64) - 2.0**52


@_compiled
def _flipped(value: np.float64, bits: np.uint64) -> np.float64:
    """Return minus the value where the highest of the bits is set."""
    return np.uint64(np.float64(value).view(np.uint64) ^ (bits & _SIGN)).view(np.float64)


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


@_compiled
def take_roots(
    squares: NDArray[np.float64], least: float, scale: float, roots: NDArray[np.floating[Any]]
) -> bool:
    """Write the roots of squares plus `least`, times `scale`; return whether all are finite."""
    finite = True
    for i in range(squares.shape[0]):
        for j in range(squares.shape[1]):
            root = math.sqrt(squares[i, j] + least) * scale
            roots[i, j] = root
            finite &= roots[i, j] < np.inf
    return finite
