"""Updates that are split between two servers: their integers, their shares, and their sums."""

import hashlib
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hearsay.federated.declaration import Training
from hearsay.sealed import shares
from ldp import Coins
from ldp.two_servers import rounding
from ldp.two_servers.shares import split
from ldp.two_servers.skellam import skellam

_SIGNS = b"hearsay/v1/signs\0"


def randomized(training: Training, vector: ArrayLike, coins: Coins) -> NDArray[np.int64]:
    """Return the integers of an update with a device's part of the noise, shape (padded,).

    The update is clipped to `max_update_norm`, rotated, scaled and rounded at random, so that its
    norms are at most `training.norms`; then each coordinate gets Skellam noise. The mean of
    `decode_sum` of a sum of such is that of the sum of the clipped updates, but for the roundings
    that the norm has drawn again.
    """
    noise, signs = training.split, _signs(training)
    bound = training.max_update_norm
    integers = rounding.encode_update(vector, bound, noise.scale, signs, coins)
    return integers + skellam(noise.variance, training.padded, coins)


def payload(training: Training, vector: ArrayLike, round_: int, id_: bytes, coins: Coins) -> bytes:
    """Return both sealed shares of an update to a round, bound to the update's id.

    Guarantee: either server's share is uniform, whatever the update is.
    """
    seed, rest = split(randomized(training, vector, coins), training.split.bits, coins)
    return shares.seal(training.splitting, shares.round_name(round_), id_, seed, rest)


def decode_sum(training: Training, total: ArrayLike) -> NDArray[np.float64]:
    """Return the sum of updates, with its noise, of that of their integers: (dimension,)."""
    found = rounding.decode_sum(total, training.split.scale, _signs(training))
    updates: NDArray[np.float64] = found[: training.dimension]
    return updates


@lru_cache(maxsize=4)
def _signs(training: Training) -> NDArray[np.float64]:
    """Return the signs of the rotation, shape (padded,): public, and the same for all devices."""
    size = training.padded
    stream = hashlib.shake_128(_SIGNS + training.revision).digest(-(-size // 8))
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=size, bitorder="little")
    return np.where(bits == 1, -1.0, 1.0)
