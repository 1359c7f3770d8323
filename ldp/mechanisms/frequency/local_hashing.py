"""Local hashing: hash the category with a fresh function, report its bucket by k-RR."""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.compiled import compiled
from ldp.core.exact import exp_bounds
from ldp.core.mechanism import Codes, FrequencyOracle, check_below, integer_dtype
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.krr import KRR
from ldp.mechanisms.tools.hashing import (
    check_hashes,
    first_residue,
    hash_prime,
    hashed,
    support_under,
    variance_of_supported,
)

_MAX_BUCKETS = 1 << 15
_BLOCK = 1 << 13
"""Reports per block: as many as fit a core's cache."""

_FEW = 1024
"""Four times the reports up to which `_count_few` is quicker, whatever the number of categories."""

_COMPILE = 1 << 24
"""Hash evaluations from which a compiled tally repays its compilation: about a second, where no
process has compiled it before."""


@dataclass(frozen=True)
class LocalHashing(FrequencyOracle):
    """Report a fresh hash function and, by k-RR, the category's bucket under it.

    Without integers it is optimised local hashing (OLH): g = round(e**epsilon + 1) buckets,
    at most 2**15; `binary` has two (BLH). A report is the integer (a P + b) g + y of the
    function h(v) = floor(((a v + b) mod P) g / P) and the bucket y. The functions are exactly
    pairwise independent modulo the prime P; the buckets differ by at most one residue, so any
    two categories collide with the same probability c, and q = c p + (1 - c)(1 - p)/(g - 1)
    is exact and the same for all (1/g if the buckets were equal; c g <= 1 + 1/16384).
    The variance of one estimated frequency is therefore that of ideal hashing. Three categories
    are not hashed independently, so the estimates are correlated a little: their sum over half
    of the domain has a variance about 15% above that of ideal hashing (`sum_variances` has it).
    Guarantee: epsilon-LDP for every pair of categories: the function says nothing about the
    category, and given it the bucket is k-RR's, e**realised_epsilon that of `KRR(g)`.
    Cost: one code of 4 or 8 bytes; a tally of n reports takes n k steps, compiled by numba
    where it is installed and by numpy otherwise, to the same integers.
    Raises `InvalidInput` unless 2 <= k <= 2**20 and prime is one, max(k, g) <= prime <= 2**22.
    Source: Wang, Blocki, Li and Jha, USENIX Security 2017, section 4.4.
    """

    name: ClassVar[str] = "hashing"
    two_valued: ClassVar[bool] = True
    k: int
    epsilon: float
    buckets: int = 0
    prime: int = 0
    resample: int = 0

    @classmethod
    def binary(cls, k: int, epsilon: float) -> Self:
        """Return BLH, local hashing into two buckets."""
        return cls(k, epsilon, buckets=2)

    @classmethod
    def optimised(cls, k: int, epsilon: float) -> Self:
        """Return OLH, local hashing into the number of buckets of least variance."""
        return cls(k, epsilon)

    def _calibrate(self) -> None:
        self._check_k(1 << 20)
        if self.buckets == 0:
            best = round(exp_bounds(Fraction(self.epsilon))[0] + 1)
            object.__setattr__(self, "buckets", min(best, _MAX_BUCKETS))
        if not 2 <= self.buckets <= _MAX_BUCKETS:
            raise InvalidInput(
                f"{self.name}: buckets must lie in 2..{_MAX_BUCKETS}, got {self.buckets}"
            )
        if self.prime == 0:
            object.__setattr__(self, "prime", hash_prime(self.k, self.buckets))
        check_hashes(self.name, self.k, self.buckets, self.prime)
        if self.resample == 0:
            object.__setattr__(self, "resample", KRR(self.buckets, self.epsilon).resample)

    @cached_property
    def _krr(self) -> KRR:
        return KRR(self.buckets, self.epsilon, self.resample)

    def _worst_ratio(self) -> Fraction:
        return self._krr._worst_ratio()

    @property
    def decode_cost(self) -> int:
        return self.k

    @property
    def named(self) -> None:
        return None

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        return support_under(*self._krr.support, self.prime, self.buckets)

    @property
    def _codes(self) -> int:
        return self.prime**2 * self.buckets

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return integer_dtype(max(self._codes, 1 << 32))

    def randomize(self, value: int, coins: Coins) -> int:
        value = self._check_value(value)
        a, b = coins.below(self.prime), coins.below(self.prime)
        bucket = hashed(a, b, value, self.prime, self.buckets)
        return (a * self.prime + b) * self.buckets + self._krr.randomize(bucket, coins)

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = np.empty(array.size, dtype=self.code_dtype)
        for start in range(0, array.size, _BLOCK):
            block = array[start : start + _BLOCK].astype(self.code_dtype)
            seeds = self._seeds(block.size, coins)
            a = seeds // self.prime
            hashes = hashed(a, seeds - a * self.prime, block, self.prime, self.buckets)
            y = self._krr.randomize_many(hashes, coins)
            codes[start : start + _BLOCK] = seeds * self.buckets + y
        return codes

    def _seeds(self, n: int, coins: Coins) -> NDArray[Any]:
        """Return n uniform hash functions as integers a P + b below P**2, in `code_dtype`."""
        if self.prime**2 <= 1 << 32:
            return coins.below_many(self.prime**2, n).astype(self.code_dtype)
        a, b = (coins.below_many(self.prime, n).astype(self.code_dtype) for _ in range(2))
        seeds: NDArray[Any] = a * self.prime + b
        return seeds

    def _check_codes(self, codes: Codes) -> None:
        check_below(self.name, codes, self._codes)

    def _counted(self, codes: Codes) -> Tally:
        return self._tally(codes, _compiled() if len(codes) * self.k >= _COMPILE else None)

    def _tally(self, codes: Codes, kernel: Any) -> Tally:
        """Count with `kernel`, or with numpy where it is None."""
        count = kernel or (_count_few if 4 * len(codes) <= min(self.k, _FEW) else _count)
        counts = np.zeros(self.k, dtype=np.int64)
        # The narrowest integers that hold a sum of two residues fill a register best.
        narrow: type[Any] = np.uint16 if 2 * self.prime <= 1 << 16 else np.uint32
        prime = narrow(self.prime)
        for start in range(0, len(codes), _BLOCK):
            block = codes[start : start + _BLOCK]
            seeds = block // self.buckets
            y = block - seeds * self.buckets
            a = seeds // self.prime
            first = first_residue(y, self.prime, self.buckets)
            size = first_residue(y + 1, self.prime, self.buckets) - first
            # Residues are counted from the reported bucket's first one, so that a category is
            # supported where its own, a v + b, is below the bucket's size.
            x = (seeds - a * self.prime).astype(narrow) - first.astype(narrow)
            np.minimum(x, x + prime, out=x)
            count(x, a.astype(narrow), size.astype(narrow), prime, counts)
        return Tally(len(codes), counts)

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        functions, buckets = np.divmod(codes, self.buckets)
        a, b = np.divmod(functions, self.prime)
        own = self.code_dtype.type(value)
        supported: NDArray[Any] = hashed(a, b, own, self.prime, self.buckets) == buckets
        return supported

    def sum_variances(
        self, sets: NDArray[np.float64], truth: NDArray[np.float64], n: int
    ) -> NDArray[np.float64]:
        p, q = self._krr.support
        found = variance_of_supported(sets, truth, (p, q), self.prime, self.buckets)
        result: NDArray[np.float64] = found * self.step[0] ** 2 / n
        return result

    def channel(self) -> Channel:
        """Enumerate the k x (prime**2 buckets) channel."""
        return self.channel_through(*self._krr.support)

    def channel_through(self, p: Fraction, q: Fraction) -> Channel:
        """Enumerate the channel that keeps the bucket with p and reports each other with q."""
        if self._codes > MAX_OUTPUTS:
            raise InvalidInput(f"a channel of {self._codes} codes is too large to enumerate")
        own, other = p / self.prime**2, q / self.prime**2
        a, b = np.divmod(np.arange(self.prime**2), self.prime)
        rows = []
        for v in range(self.k):
            hashes = hashed(a, b, v, self.prime, self.buckets).tolist()
            rows.append(
                tuple(own if y == h else other for h in hashes for y in range(self.buckets))
            )
        return Channel(tuple(range(self._codes)), tuple(rows))


def _count(
    x: NDArray[Any], a: NDArray[Any], size: NDArray[Any], prime: Any, counts: NDArray[np.int64]
) -> None:
    """Add to counts[v] how many reports have (x + a v) mod prime < size; overwrite x."""
    for v in range(counts.size):
        counts[v] += np.count_nonzero(x < size)
        x += a
        np.minimum(x, x - prime, out=x)  # x - prime wraps to a large number where x < prime


def _count_few(
    x: NDArray[Any], a: NDArray[Any], size: NDArray[Any], prime: Any, counts: NDArray[np.int64]
) -> None:
    """Do as `_count`, for one report after the other instead of one category."""
    values = np.arange(counts.size)
    for start, step, below in zip(x.tolist(), a.tolist(), size.tolist(), strict=True):
        counts += (start + step * values) % int(prime) < below


@cache
def _compiled() -> Any:
    """Return `_count` compiled, or None where numba is not installed."""
    try:
        return compiled(_count_in_registers)
    except ImportError:
        return None


def _count_in_registers(x: Any, a: Any, size: Any, prime: Any, counts: Any) -> None:
    for v in range(counts.size):
        hits = np.uint32(0)  # explicit types keep the loop in narrow registers
        for i in range(x.size):
            hits = np.uint32(hits + np.uint32(x[i] < size[i]))
            up = x.dtype.type(x[i] + a[i])
            x[i] = min(up, x.dtype.type(up - prime))
        counts[v] += hits
