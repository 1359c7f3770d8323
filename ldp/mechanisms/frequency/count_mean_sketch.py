"""Count-mean sketches: many categories hashed into few buckets by a public family."""

import hashlib
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE
from ldp.core.mechanism import Codes, Counted, FrequencyOracle, check_threshold
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.hadamard import HRR
from ldp.mechanisms.frequency.unary import UnaryEncoding
from ldp.mechanisms.tools.hashing import check_hashes, collision, hash_prime, hashed, support_under

_MAX_HASHES = 1 << 16
_MAX_CELLS = 1 << 24


@dataclass(frozen=True)
class _Sketch(FrequencyOracle):
    """Hash the category with one of `hashes` public functions, drawn uniformly, and report the
    function with its bucket, randomised by an oracle over the `buckets`.

    Function i is h(v) = floor(((a v**2 + b v + c) mod prime) buckets / prime), where a, b and c
    are the first three 8-byte little-endian words, modulo the prime, of the SHA-256 of `seed`
    and i as 8 bytes each, little-endian. The seed is public; it is fixed before the answers are
    known, and says nothing about them.
    The family is a fixed one, so its collisions do not average out with n: an estimate is
    unbiased over the draw of the seed, and keeps the error of its collisions for every n.
    `variance` has both: s(1 - s) / (n (p - q)**2) of the reports, and of the collisions
    (sum of f**2 over the other categories) / ((buckets - 1) hashes), which polynomials of
    degree two, three-wise independent, attain. Pooled cohorts of one seed share that error.
    """

    k: int
    epsilon: float
    hashes: int = 1024
    buckets: int = 1024
    seed: int = 1
    prime: int = 0
    flip: int = 0

    @cached_property
    @abstractmethod
    def _inner(self) -> FrequencyOracle:
        """The oracle over the buckets, which flips with `flip`."""

    @abstractmethod
    def _join(self, functions: NDArray[Any], codes: Codes) -> Codes:
        """Return the sketch's codes from hash function numbers and the inner oracle's codes."""

    @abstractmethod
    def _bucket_supports(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many of one function's reports support each bucket."""

    def _calibrate(self) -> None:
        self._check_k(1 << 20)
        if not 1 <= self.hashes <= _MAX_HASHES:
            raise InvalidInput(
                f"{self.name}: hashes must lie in 1..{_MAX_HASHES}, got {self.hashes}"
            )
        if not 1 <= self.seed < ONE:
            raise InvalidInput(f"{self.name}: seed must lie in 1..2**64 - 1, got {self.seed}")
        if not 2 <= self.buckets <= 1 << 15:
            raise InvalidInput(f"{self.name}: buckets must lie in 2..32768, got {self.buckets}")
        if self.hashes * self.buckets > _MAX_CELLS:
            raise InvalidInput(
                f"{self.name}: hashes * buckets must be at most {_MAX_CELLS}, "
                f"got {self.hashes * self.buckets}"
            )
        if self.prime == 0:
            object.__setattr__(self, "prime", hash_prime(self.k, self.buckets))
        check_hashes(self.name, self.k, self.buckets, self.prime)

    def _worst_ratio(self) -> Fraction:
        return self._inner._worst_ratio()

    @property
    def named(self) -> None:
        return None

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        """Return (p, q), q being the average over all functions of the family's kind."""
        return support_under(*self._inner.support, self.prime, self.buckets)

    @property
    def variation(self) -> Fraction | None:
        return self._inner.variation  # less, where some functions put both into one bucket

    @property
    def tally_size(self) -> int:
        return self.hashes * self._inner.tally_size

    @property
    @abstractmethod
    def _outputs(self) -> int:
        """The number of codes of one function."""

    @cached_property
    def coefficients(self) -> NDArray[np.int64]:
        """The coefficients a, b and c of each function, shape (3, hashes)."""
        seed = self.seed.to_bytes(8, "little")
        digests = (
            hashlib.sha256(seed + i.to_bytes(8, "little")).digest() for i in range(self.hashes)
        )
        words = np.frombuffer(b"".join(digests), dtype="<u8").reshape(self.hashes, 4)
        return (words[:, :3] % self.prime).astype(np.int64).T.copy()

    def _hashed(self, functions: Any, values: NDArray[np.int64]) -> NDArray[np.int64]:
        a, b, c = (coefficient[functions] for coefficient in self.coefficients)
        lines = (a * values + b) % self.prime
        result: NDArray[np.int64] = hashed(lines, c, values, self.prime, self.buckets)
        return result

    def _randomize(self, value: int, coins: Coins) -> tuple[int, Any]:
        """Draw a hash function; return its number and the inner oracle's code of the bucket."""
        value = self._check_value(value)
        function = coins.below(self.hashes)
        a, b, c = self.coefficients[:, function].tolist()
        bucket = hashed((a * value + b) % self.prime, c, value, self.prime, self.buckets)
        return function, self._inner.randomize(bucket, coins)

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values).astype(np.int64)
        functions = coins.below_many(self.hashes, array.size)
        codes = self._inner.randomize_many(self._hashed(functions, array), coins)
        return self._join(functions, codes)

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        values = np.arange(self.k)
        result = np.zeros(self.k, dtype=np.int64)
        for i, counts in enumerate(tally.counts.reshape(self.hashes, -1)):
            result += self._bucket_supports(counts)[self._hashed(i, values)]
        return result

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the variance of `debias` over reports and seeds.

        `truth` has shape (k,), or () for the worst case of one other category.
        """
        f = np.asarray(truth, dtype=float)
        others = np.square(1 - f)
        if f.ndim:
            squares = np.square(f)
            others = np.clip(squares.sum() - squares, 0, others)
        c = float(collision(self.prime, self.buckets))
        collisions = c / (1 - c) / self.hashes * others
        return np.asarray(super().variance(f, n) + collisions * (1 - 1 / n))

    def moments(self, truth: NDArray[np.float64], n: int) -> None:
        return None  # collisions depend on all categories

    def channel(self) -> Channel:
        """Enumerate the channel; an output is a function's number and its oracle's output."""
        outputs = self.hashes * self._outputs
        if outputs > MAX_OUTPUTS:
            raise InvalidInput(f"a channel of {outputs} codes is too large to enumerate")
        inner = self._inner.channel()
        rows = [tuple(chance / self.hashes for chance in row) for row in inner.rows]
        buckets = self._hashed(np.arange(self.hashes)[:, None], np.arange(self.k))
        return Channel(
            tuple((i, y) for i in range(self.hashes) for y in inner.outputs),
            tuple(tuple(chance for b in column for chance in rows[b]) for column in buckets.T),
        )


@dataclass(frozen=True)
class CountMeanSketch(_Sketch):
    """Apple's CMS: the bucket as symmetric unary encoding, `buckets` flipped bits.

    See `_Sketch` for the family and the error. Without integers, 1024 functions into 1024
    buckets.
    Guarantee: epsilon-LDP for every pair of categories: the function is drawn
    without regard to the category, and given it the report is unary encoding's.
    Cost: 4 bytes for the function and ceil(buckets / 8) for the bits; a tally holds
    hashes * buckets counts, its supports take O(k hashes).
    Raises `InvalidInput` unless 2 <= k <= 2**20, 1 <= hashes <= 2**16,
    2 <= buckets <= 2**15, hashes * buckets <= 2**24, 1 <= seed < 2**64 and prime is one of
    at least k and buckets.
    Source: Apple's Differential Privacy Team, "Learning with privacy at scale", 2017.
    """

    name: ClassVar[str] = "cms"

    def _calibrate(self) -> None:
        super()._calibrate()
        if self.flip == 0:
            encoding = UnaryEncoding.symmetric(self.buckets, self.epsilon)
            object.__setattr__(self, "flip", encoding.other)
        check_threshold(f"{self.name}: flip", self.flip)

    @cached_property
    def _inner(self) -> UnaryEncoding:
        return UnaryEncoding(self.buckets, self.epsilon, ONE - self.flip, self.flip)

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return np.dtype([("function", "<u4"), ("bits", "u1", self._inner.code_shape)])

    def randomize(self, value: int, coins: Coins) -> Any:
        return np.array(self._randomize(value, coins), dtype=self.code_dtype)[()]

    def _join(self, functions: NDArray[Any], codes: Codes) -> Codes:
        joined = np.empty(len(codes), dtype=self.code_dtype)
        joined["function"], joined["bits"] = functions, codes
        return joined

    def _check_codes(self, codes: Codes) -> None:
        functions = codes["function"]
        if codes.size and functions.max() >= self.hashes:
            raise InvalidInput(
                f"a {self.name} function must be below {self.hashes}, got {functions.max()}"
            )
        self._inner._check_codes(codes["bits"])

    def _counted(self, codes: Codes) -> Tally:
        counts = np.zeros((self.hashes, self.buckets), dtype=np.int64)
        order = np.argsort(codes["function"], kind="stable")
        bounds = np.searchsorted(codes["function"][order], np.arange(self.hashes + 1))
        for function, (start, end) in enumerate(pairwise(bounds)):
            counts[function] = self._inner._counted(codes["bits"][order[start:end]]).counts
        return Tally(len(codes), counts.ravel())

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        buckets = self._hashed(codes["function"], np.asarray(value))
        supported: NDArray[Any] = (
            codes["bits"][np.arange(len(codes)), buckets >> 3] >> (buckets & 7) & 1
        )
        return supported

    def _bucket_supports(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        return counts

    @property
    def _outputs(self) -> int:
        return 1 << self.buckets


@dataclass(frozen=True)
class HadamardCountMeanSketch(Counted, _Sketch):
    """Apple's HCMS: the bucket by one-bit Hadamard response.

    See `_Sketch` for the family and the error, `HRR` for the bit. Without integers, 1024
    functions into 1024 buckets. Guarantee: epsilon-LDP for every pair of categories: the
    function is drawn without regard to the category, and given it the report is HRR's.
    Cost: one code of 1, 2, 4 or 8 bytes; a tally holds hashes * 2 (K - 1) counts, K being the
    smallest power of two >= buckets; its supports take O(hashes (k + K log K)).
    Raises `InvalidInput` unless 2 <= k <= 2**20, 1 <= hashes <= 2**16,
    2 <= buckets <= 2**15, hashes * buckets <= 2**24, 1 <= seed < 2**64 and prime is one of
    at least k and buckets.
    Source: Apple's Differential Privacy Team, "Learning with privacy at scale", 2017.
    """

    name: ClassVar[str] = "hcms"

    def _calibrate(self) -> None:
        super()._calibrate()
        if self.flip == 0:
            object.__setattr__(self, "flip", HRR(self.buckets, self.epsilon).flip)
        check_threshold(f"{self.name}: flip", self.flip)

    @cached_property
    def _inner(self) -> HRR:
        return HRR(self.buckets, self.epsilon, self.flip)

    def randomize(self, value: int, coins: Coins) -> int:
        function, code = self._randomize(value, coins)
        return function * self._outputs + int(code)

    def _join(self, functions: NDArray[Any], codes: Codes) -> Codes:
        joined = functions.astype(self.code_dtype) * self._outputs + codes
        return joined.astype(self.code_dtype, copy=False)

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        functions, signs = np.divmod(codes.astype(np.int64), self._outputs)
        return self._inner._supported(signs, self._hashed(functions, np.asarray(value)))

    def _bucket_supports(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        return self._inner.supports(Tally(int(counts.sum()), counts))

    @property
    def _outputs(self) -> int:
        return self._inner.tally_size
