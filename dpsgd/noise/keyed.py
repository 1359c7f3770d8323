"""Normal values from a key: the same bits on every machine, in every process, for ever.

A server that stopped in the middle of a round must make the round's noise again, perhaps on
another machine. So each value is found from its own block of AES-256 by operations that IEEE 754
defines to the last bit: sums, products, quotients and square roots. The ziggurat's logarithms are
none of them: two libraries may differ in the last bit.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ldp.errors import InvalidInput, needs

_PART = 1 << 14
"""Values made at once: few enough to stay in a core's cache."""

_SMOOTHED = 4096
"""A normal value is blurred by at most this part of its deviation."""

_CENTRAL = (
    (
        3.3871328727963666080e0,
        1.3314166789178437745e2,
        1.9715909503065514427e3,
        1.3731693765509461125e4,
        4.5921953931549871457e4,
        6.7265770927008700853e4,
        3.3430575583588128105e4,
        2.5090809287301226727e3,
    ),
    (
        1.0,
        4.2313330701600911252e1,
        6.8718700749205790830e2,
        5.3941960214247511077e3,
        2.1213794301586595867e4,
        3.9307895800092710610e4,
        2.8729085735721942674e4,
        5.2264952788528545610e3,
    ),
)
_OUTER = (
    (
        1.42343711074968357734e0,
        4.63033784615654529590e0,
        5.76949722146069140550e0,
        3.64784832476320460504e0,
        1.27045825245236838258e0,
        2.41780725177450611770e-1,
        2.27238449892691845833e-2,
        7.74545014278341407640e-4,
    ),
    (
        1.0,
        2.05319162663775882187e0,
        1.67638483018380384940e0,
        6.89767334985100004550e-1,
        1.48103976427480074590e-1,
        1.51986665636164571966e-2,
        5.47593808499534494600e-4,
        1.05075007164441684324e-9,
    ),
)
_FAR = (
    (
        6.65790464350110377720e0,
        5.46378491116411436990e0,
        1.78482653991729133580e0,
        2.96560571828504891230e-1,
        2.65321895265761230930e-2,
        1.24266094738807843860e-3,
        2.71155556874348757815e-5,
        2.01033439929228813265e-7,
    ),
    (
        1.0,
        5.99832206555887937690e-1,
        1.36929880922735805310e-1,
        1.48753612908506148525e-2,
        7.86869131145613259100e-4,
        1.84631831751005468180e-5,
        1.42151175831644588870e-7,
        2.04426310338993978564e-15,
    ),
)
"""Numerators and denominators by falling density; Wichura, algorithm AS 241, PPND16."""

_LOG2 = 0.6931471805599453

Floats = NDArray[np.float64]


class KeyedNormals:
    """Independent standard normal values, each known by its row and column under a 32-byte key.

    Value (row, i) is the normal quantile of the 128 bits that AES-256 makes of the block (row, i),
    so that values end at 13 standard deviations, and in the tails lie as close as doubles do. Who
    does not have the key cannot tell them from values drawn at random.
    Raises `InvalidInput` unless the key has 32 bytes, and `MissingExtra` without cryptography.
    Cost: 80 ns a value.
    Source: Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Applied
    Statistics 37(3), 1988; its relative error is about 1e-16.
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != 32:
            raise InvalidInput("the seed of noise must be 32 bytes")
        with needs("noise from a seed", "fast"):
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        self._aes, self._cipher, self._mode = algorithms.AES(key), Cipher, modes.CTR

    def row(self, row: int, size: int) -> Floats:
        """Return values (row, 0) .. (row, size - 1), shape (size,); 0 <= row < 2**64."""
        values = np.empty(size)
        for start, words in self._words(row, size):
            values[start : start + _PART] = _normals(words)
        return values

    def integers(self, row: int, size: int, deviation: float) -> Floats:
        """Return rint(deviation * value) + u for the values of a row, u uniform in -w/2 .. w/2 - 1.

        w = `width(deviation)`, and u is the last bits of each block. A value depends on them only
        where its other 96 bits are near 0: given u, it still is the normal quantile of those bits,
        and values end at 11 standard deviations.
        Why: doubles give the integers one by one uneven chances, by deviation * 2**-51 of each. The
        sums of w neighbours, which are the chances here, are uneven by deviation / w * 2**-51.
        """
        width = self.width(deviation)
        made = np.empty(size)
        for start, words in self._words(row, size):
            part = made[start : start + _PART]
            np.rint(_normals(words) * deviation, out=part)
            part += (words[1::2] & np.uint64(width - 1)).astype(np.float64) - width // 2
        return made

    @staticmethod
    def width(deviation: float) -> int:
        """Return the largest power of two up to deviation / 4096, in 1..2**32."""
        bits = math.floor(math.log2(max(1.0, deviation / _SMOOTHED)))
        return int(1 << min(bits, 32))

    def _words(self, row: int, size: int) -> Iterator[tuple[int, NDArray[np.uint64]]]:
        """Yield where each part of a row begins, and two words for each of its values."""
        first = self._mode(row.to_bytes(8, "big") + bytes(8))
        keystream = self._cipher(self._aes, first).encryptor()
        for start in range(0, size, _PART):
            length = 16 * min(_PART, size - start)
            yield start, np.frombuffer(keystream.update(bytes(length)), "<u8")


def _normals(words: NDArray[np.uint64]) -> Floats:
    """Return a normal value for each two words, shape (words / 2,)."""
    first, second = words[::2], words[1::2]
    below = (first & np.uint64((1 << 63) - 1)).astype(np.float64)  # of 2**63: half of all
    chance = (below + (second.astype(np.float64) + 0.5) * 2.0**-64) * 2.0**-64
    values = _quantile(chance)
    np.negative(values, where=first >> np.uint64(63) == 1, out=values)
    return values


def _quantile(chance: Floats) -> Floats:
    """Return how many standard deviations below the mean lies the quantile, 0 < chance <= 1/2."""
    centred = 0.5 - chance
    values = centred * _ratio(_CENTRAL, 0.180625 - centred * centred)
    outer = np.flatnonzero(centred > 0.425)
    distance = np.sqrt(-_log(chance[outer]))
    values[outer] = np.where(
        distance <= 5, _ratio(_OUTER, distance - 1.6), _ratio(_FAR, distance - 5.0)
    )
    return values


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], at: Floats) -> Floats:
    numerator, denominator = (_polynomial(of, at) for of in coefficients)
    return np.divide(numerator, denominator, out=numerator)


def _polynomial(coefficients: tuple[float, ...], at: Floats) -> Floats:
    """Return the sum of coefficients[k] at**k, by Horner's rule."""
    total = np.full_like(at, coefficients[-1])
    for coefficient in coefficients[-2::-1]:
        total *= at
        total += coefficient
    return total


_ODD = tuple(2 / (2 * k + 1) for k in range(11))


def _log(x: Floats) -> Floats:
    """Return ln x to 1e-16 of it, for 2**-130 < x < 0.1: 2 artanh((m - 1) / (m + 1)) + e ln 2."""
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.7071067811865476
    mantissa[low] *= 2
    quotient = (mantissa - 1) / (mantissa + 1)
    logarithm: Floats = quotient * _polynomial(_ODD, quotient * quotient)
    logarithm += (exponent - low.astype(np.float64)) * _LOG2
    return logarithm
