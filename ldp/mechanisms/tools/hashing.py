"""Pairwise independent hash functions into g buckets, with exact collision probabilities.

h(v) = floor(((a v + b) mod P) g / P) for a prime P >= k. With a and b uniform on 0..P-1 the
pair (a v + b, a v' + b) mod P is uniform on all P**2 pairs for every v != v' (Carter and
Wegman, "Universal classes of hash functions", JCSS 18(2), 1979), so two values collide with a
probability that is the same for every two of them and known exactly: `collision`.
"""

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp.errors import InvalidInput
from ldp.mechanisms.tools.finite_field import is_prime, next_prime

MAX_PRIME = 1 << 22
"""The largest prime: a v + b stays below 2**53, so clients that use doubles hash alike."""

_LOOKUPS, _MOST_LOOKUPS = 1 << 17, 1 << 24
"""Hashes that are computed for moments over functions: so many, or more up to the second number."""

_EVEN = 64
"""The least residues per bucket. Sizes then differ by 1/64, and c g <= 1 + 1/16384."""


def hash_prime(k: int, buckets: int) -> int:
    """Return the smallest prime that tells k values apart and fills the buckets evenly."""
    return next_prime(max(k, _EVEN * buckets))


def check_hashes(name: str, k: int, buckets: int, prime: int) -> None:
    """Raise `InvalidInput` unless prime is one, at least k and buckets and at most 2**22."""
    if not max(k, buckets) <= prime <= MAX_PRIME or not is_prime(prime):
        raise InvalidInput(
            f"{name}: prime must be a prime in {max(k, buckets)}..{MAX_PRIME}, got {prime}"
        )


def hashed(a: Any, b: Any, values: Any, prime: int, buckets: int) -> Any:
    """Return the bucket of each value under its hash function (a, b).

    All three are integers, or arrays that broadcast and share one integer dtype, which must
    hold prime * max(k, buckets).
    """
    x = a * values + b
    x -= x // prime * prime  # numpy vectorises a division by a scalar, but not a remainder
    x *= buckets
    x //= prime
    return x


def variance_of_supported(
    sets: NDArray[np.float64],
    truth: NDArray[np.float64],
    support: tuple[Fraction, Fraction],
    prime: int,
    buckets: int,
) -> NDArray[np.float64]:
    """Return the variance of how many of a set's values one report supports, shape (sets,).

    A report supports the values in the bucket that it names: that of its own value with the
    first probability of `support`, each other one with the second. `sets`, shape (sets, k), has
    ones and zeros; own values have the distribution `truth`, shape (k,). Two values share a bucket
    as often as hashing at random has them, but three do not, and under the few functions with a
    small factor a many share one. So the moments are averaged over functions: all of them where
    they are few, else all factors a, each with some b, always the same ones.
    """
    own, other = float(support[0]), float(support[1])
    k = truth.size
    if prime**2 * max(k, buckets) <= _LOOKUPS:
        a, b = np.divmod(np.arange(prime**2), prime)
    else:
        source = np.random.default_rng(0)
        a = np.repeat(np.arange(prime), max(1, _LOOKUPS // (prime * k)))
        if a.size * k > _MOST_LOOKUPS:
            a = source.choice(prime, max(1, _MOST_LOOKUPS // k), replace=False)
        b = source.integers(0, prime, a.size)
    first = np.zeros(len(sets))
    second = np.zeros(len(sets))
    part = max(1, _LOOKUPS // max(k, buckets))
    for start in range(0, a.size, part):
        here = slice(start, start + part)
        rows = hashed(a[here, None], b[here, None], np.arange(k), prime, buckets)
        count = len(rows)
        place = (rows + buckets * np.arange(count)[:, None]).ravel()

        def loads(weights: Any, place: Any = place, size: int = count * buckets) -> Any:
            return np.bincount(place, np.broadcast_to(weights, (size // buckets, k)).ravel(), size)

        people = loads(truth)
        for row, members in enumerate(sets):
            load = loads(members)
            kept = (own - other) * people
            first[row] += kept @ load + other * load.sum()
            second[row] += kept @ load**2 + other * (load**2).sum()
    result: NDArray[np.float64] = second / a.size - (first / a.size) ** 2
    return result


def first_residue(bucket: NDArray[Any], prime: int, buckets: int) -> NDArray[Any]:
    """Return the smallest residue of each bucket, and `prime` for bucket number `buckets`."""
    return (bucket * prime + (buckets - 1)) // buckets


def collision(prime: int, buckets: int) -> Fraction:
    """Return the exact probability that two different values share a bucket.

    r = prime mod buckets of the buckets hold one residue more than the others.
    """
    size, larger = divmod(prime, buckets)
    squares = (buckets - larger) * size**2 + larger * (size + 1) ** 2
    return Fraction(squares, prime**2)


def support_under(p: Fraction, q: Fraction, prime: int, buckets: int) -> tuple[Fraction, Fraction]:
    """Return the support probabilities of values whose hashes an oracle with (p, q) reports."""
    c = collision(prime, buckets)
    return p, c * p + (1 - c) * q
