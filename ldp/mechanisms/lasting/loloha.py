"""LOLOHA: hash to a few buckets for life, then a k-RR chain over the buckets."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.exact import check_epsilon
from ldp.core.longitudinal import Devices, Longitudinal
from ldp.core.mechanism import Codes, FrequencyOracle
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.local_hashing import LocalHashing
from ldp.mechanisms.lasting.chains import KRRChain
from ldp.mechanisms.tools.hashing import (
    hash_prime,
    hashed,
    support_under,
    variance_of_supported,
)


@dataclass(frozen=True)
class LOLOHA(Longitudinal, FrequencyOracle):
    """Hash the category with a function drawn once for life; chain the bucket by k-RR.

    Categories in one bucket share a memo, so a device comes to use at most `buckets` of them,
    however large k is: 2 (BiLOLOHA) have fewest changes, `best_buckets` has the least variance.
    `permanent` and `instantaneous` are those of the `KRRChain` over the buckets; a code is one
    of `LocalHashing` with the same buckets and prime.
    Guarantee: one report is epsilon-LDP, any number of reports of a category that never changes
    `memo_epsilon`-LDP; lives whose BUCKETS repeat at the same times differ by at most
    min(buckets, k) times that, any two by `epsilon_of_any_lives`, which grows with the reports.
    A change within a bucket costs nothing; every report tells which categories share one.
    Cost: one code of 4 or 8 bytes; a tally of n reports takes n k steps.
    Raises `InvalidInput` as `LocalHashing` and `KRRChain` do.
    Source: Arcolezi, Pinzon, Palamidessi and Gambs, "Frequency estimation of evolving data
    under local differential privacy", EDBT 2023. As there, the server's q is the chance of a
    collision, 1 / buckets, here to the last residue.
    """

    name: ClassVar[str] = "loloha"
    k: int
    epsilon: float
    buckets: int
    prime: int
    permanent: int
    instantaneous: int

    @classmethod
    def calibrate(
        cls, k: int, epsilon: float, memo_epsilon: float, buckets: int | None = None
    ) -> Self:
        """Return LOLOHA of `epsilon` per report and `memo_epsilon` per bucket.

        Without `buckets` it takes `best_buckets(epsilon)`. Raises `InvalidInput` unless
        epsilon < memo_epsilon.
        """
        if buckets is None:
            buckets = best_buckets(epsilon)
        chain = KRRChain.calibrate(buckets, epsilon, memo_epsilon)
        prime = hash_prime(k, buckets)
        return cls(k, epsilon, buckets, prime, chain.permanent, chain.instantaneous)

    def _calibrate(self) -> None:
        if self.prime == 0:
            raise InvalidInput(f"{self.name}: prime must be given; calibrate computes it")
        _ = self._form, self.chain  # each checks itself

    @cached_property
    def _form(self) -> LocalHashing:
        """The local hashing mechanism whose codes have the same form."""
        return LocalHashing(self.k, self.epsilon, self.buckets, self.prime)

    @cached_property
    def chain(self) -> KRRChain:
        """The k-RR chain that randomises a bucket."""
        return KRRChain(self.buckets, self.epsilon, self.permanent, self.instantaneous)

    def _worst_ratio(self) -> Fraction:
        return self.chain._worst_ratio()

    def _memo_ratio(self) -> Fraction:
        return self.chain._memo_ratio()

    @property
    def instantaneous_epsilon(self) -> float:
        return self.chain.instantaneous_epsilon

    @property
    def memo_limit(self) -> int:
        return min(self.buckets, self.k)

    def sum_variances(
        self, sets: NDArray[np.float64], truth: NDArray[np.float64], n: int
    ) -> NDArray[np.float64]:
        chances = self.chain.support
        found = variance_of_supported(sets, truth, chances, self.prime, self.buckets)
        result: NDArray[np.float64] = found * self.step[0] ** 2 / n
        return result

    @property
    def named(self) -> None:
        return None

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        return support_under(*self.chain.support, self.prime, self.buckets)

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return self._form.code_dtype

    @property
    def device_bytes(self) -> int:
        return self.code_bytes

    def enroll_many(self, n: int, coins: Coins) -> Devices:
        """Return `n` hash functions, as the integers a * prime + b in `code_dtype`."""
        return self._form._seeds(n, coins).view(np.uint8).reshape(n, self.device_bytes)

    def _devices(self, device: bytes) -> Devices:
        devices = super()._devices(device)
        (function,) = self._functions(devices)
        if function >= self.prime**2:
            raise InvalidInput(
                f"{self.name}: a hash function is below {self.prime**2}, got {function}"
            )
        return devices

    def randomize(self, value: int, coins: Coins) -> int:
        category = self._check_value(value)
        a, b = coins.below(self.prime), coins.below(self.prime)
        bucket = hashed(a, b, category, self.prime, self.buckets)
        return (a * self.prime + b) * self.buckets + self.chain.randomize(bucket, coins)

    def enroll(self, coins: Coins) -> bytes:
        function = coins.below(self.prime) * self.prime + coins.below(self.prime)
        return function.to_bytes(self.device_bytes, "little")

    def memoize(self, device: bytes, value: int, coins: Coins) -> int:
        category = self._check_value(value)
        (function,) = self._functions(self._devices(device)).tolist()
        a, b = divmod(function, self.prime)
        bucket = hashed(a, b, category, self.prime, self.buckets)
        return int(function) * self.buckets + self.chain.permanent_round.randomize(bucket, coins)

    def _report(self, memo: Codes, coins: Coins) -> int:
        function, bucket = divmod(int(memo), self.buckets)
        return function * self.buckets + self.chain.report(bucket, coins)

    def _functions(self, devices: Devices) -> NDArray[Any]:
        return np.ascontiguousarray(devices).view(self.code_dtype).reshape(len(devices))

    def _buckets(self, functions: NDArray[Any], values: ArrayLike) -> NDArray[Any]:
        categories = self._check_values(values).astype(self.code_dtype)
        a = functions // self.prime
        b = functions - a * self.prime
        buckets: NDArray[Any] = hashed(a, b, categories, self.prime, self.buckets)
        return buckets

    def memo_key(self, device: bytes, value: int) -> int:
        """Return the value's bucket."""
        functions = self._functions(self._devices(device))
        return int(self._buckets(functions, [self._check_value(value)])[0])

    def memoize_many(self, devices: Devices, values: ArrayLike, coins: Coins) -> Codes:
        functions = self._functions(devices)
        buckets = self._buckets(functions, values)
        codes: Codes = functions * self.buckets
        codes += self.chain.permanent_round.randomize_many(buckets, coins)
        return codes

    def report_many(self, memos: Codes, coins: Coins) -> Codes:
        codes: Codes = memos // self.buckets * self.buckets
        codes += self.chain.report_many(memos - codes, coins)
        return codes

    def _check_codes(self, codes: Codes) -> None:
        self._form._check_codes(codes)

    def _counted(self, codes: Codes) -> Tally:
        return self._form._counted(codes)

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        return self._form._supported(codes, value)

    def channel(self) -> Channel:
        """Enumerate the k x (prime**2 buckets) channel of one report."""
        return self._form.channel_through(*self.chain.support)


def best_buckets(epsilon: float) -> int:
    """Return the number g of buckets of least variance for rare categories, at most 2**16.

    One report of an exactly calibrated chain is k-RR(epsilon) over the buckets for any
    lifetime, so it varies as optimal local hashing does, by
    (e - 1 + g)**2 / ((e - 1)**2 (g - 1)), least near g = e + 1 with e = e**epsilon
    (Wang et al. 2017, equation 12). The optimum published for LOLOHA moves with the
    lifetime because its second round is not calibrated exactly.
    """
    e = math.exp(check_epsilon(epsilon))
    g = min(math.floor(e) + 1, (1 << 16) - 1)
    return min(g, g + 1, key=lambda buckets: (e - 1 + buckets) ** 2 / (buckets - 1))
