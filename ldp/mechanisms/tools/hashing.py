"""Pairwise independent hash functions into g buckets, with exact collision probabilities.

h(v) = floor(((a v + b) mod P) g / P) for a prime P >= k. With a and b uniform on 0..P-1 the
pair (a v + b, a v' + b) mod P is uniform on all P**2 pairs for every v != v' (Carter and
Wegman, "Universal classes of hash functions", JCSS 18(2), 1979), so two values collide with a
probability that is the same for every two of them and known exactly: `collision`.
"""

from fractions import Fraction
from typing import Any

from numpy.typing import NDArray

from ldp.errors import InvalidInput
from ldp.mechanisms.tools.finite_field import is_prime, next_prime

MAX_PRIME = 1 << 22
"""The largest prime: a v + b stays below 2**53, so clients that use doubles hash alike."""

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
