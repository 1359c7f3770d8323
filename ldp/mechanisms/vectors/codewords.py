"""Directions named by a seed and a number: normalised Gaussians, the same on every machine.

A device and a server must see the same vectors, and a server the same ones again years later. So
they are integers until the last step, and no logarithm or cosine, which differ in the last bit
between processors, has a part in them: each entry is 16 bits of SHAKE-128, looked up in a table of
the normal distribution's quantiles, in integers of 1/4096.
"""

import hashlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

SEED_BYTES = 8

_DOMAIN = b"hearsay/v1/sphere\0"
_UNIT = 4096
_HALF = 1 << 15


@cache
def quantiles() -> NDArray[np.int16]:
    """Return entry i = round(4096 x), x with Phi(x) = (i + 1/2) / 2**16, shape (2**16,).

    It is antisymmetric. No 4096 x lies within 10**-5 of a half, so that the few units in the
    last place by which libraries differ change nothing; a test holds both.
    """
    from statistics import NormalDist

    normal = NormalDist()
    upper = [
        round(_UNIT * normal.inv_cdf((i + 0.5) / (2 * _HALF))) for i in range(_HALF, 2 * _HALF)
    ]
    upper_half = np.array(upper, dtype=np.int16)
    return np.concatenate([-upper_half[::-1], upper_half])


def directions(seed: bytes, numbers: range, length: int) -> NDArray[np.int16]:
    """Return the vectors of a seed and some numbers before they are normalised.

    Entry i of vector j is `quantiles()` at bytes 2i and 2i + 1 of SHAKE-128 of the domain's name,
    the seed and j in 4 bytes. Shape (numbers, length).
    """
    streams = (
        hashlib.shake_128(_DOMAIN + seed + number.to_bytes(4, "little")).digest(2 * length)
        for number in numbers
    )
    places = np.frombuffer(b"".join(streams), dtype="<u2")
    found: NDArray[np.int16] = quantiles()[places].reshape(len(numbers), length)
    return found
