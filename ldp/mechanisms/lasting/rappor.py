"""RAPPOR: strings of an open dictionary, as noisy Bloom filters."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import (
    ONE,
    ceil_threshold,
    check_epsilon,
    float_below,
    floor_threshold,
    log_upper,
)
from ldp.core.longitudinal import Devices, Longitudinal
from ldp.core.mechanism import Codes, as_array
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.lasting.chains import (
    UnaryChain,
    bits_epsilon,
    chained,
    check_round,
    flip_bits,
    flip_row,
    odds_ratio,
)
from ldp.mechanisms.tools.bits import check_unused_bits, row_bytes
from ldp.mechanisms.tools.bloom import distinct_positions

_COHORT_BYTES = 2
_MAX_HASHES = 64
"""The most hashes: more than are ever useful, and few enough for the exact ratio's power."""
_BLOCK = 1 << 12
"""Reports unpacked at once by a tally."""


@dataclass(frozen=True)
class RAPPOR(Longitudinal):
    """Set `hashes` of `bits` bits by the string, flip them for life, and again per report.

    The positions depend on the string and on the device's cohort, drawn for life: several
    hash families tell apart strings that collide in one. A string always sets exactly
    `hashes` bits. `permanent` and `instantaneous` are pairs (own, other): a bit that is 1 stays
    1 with own / 2**64, one that is 0 becomes 1 with other / 2**64.
    The parameters are the shares of strings that set each bit of each cohort, shape
    (cohorts * bits,); `ldp.estimating.dictionary.estimate_strings` turns a tally into
    frequencies of strings.
    Guarantee: one report is epsilon-LDP for every pair of strings, any number of reports of a
    string that never changes `memo_epsilon`-LDP; d distinct strings cost d times that between
    lives whose strings repeat at the same times ONLY, and any two lives `epsilon_of_any_lives`,
    which grows with the reports, and with `bits`. Two strings differ in at most 2 `hashes` bits, so
    epsilon and `memo_epsilon` are `hashes` times the log odds ratio of a bit.
    Cost: 2 bytes of cohort and ceil(bits / 8).
    Raises `InvalidInput` unless 1 <= hashes <= 64, 2 hashes <= bits <= 2**16,
    1 <= cohorts <= 2**16, cohorts * bits <= 2**24, 0 < other < own < 2**64 in both rounds, and
    `memo_epsilon` <= 32.
    Source: Erlingsson, Pihur and Korolova, "RAPPOR: randomized aggregatable
    privacy-preserving ordinal response", CCS 2014, theorem 1 and equations 2 and 3.
    """

    name: ClassVar[str] = "rappor"
    epsilon: float
    bits: int
    hashes: int
    cohorts: int
    permanent: tuple[int, ...]
    instantaneous: tuple[int, ...]

    @classmethod
    def calibrate(
        cls,
        epsilon: float,
        memo_epsilon: float,
        *,
        bits: int = 128,
        hashes: int = 2,
        cohorts: int = 64,
    ) -> Self:
        """Return RAPPOR of `epsilon` per report and `memo_epsilon` per string.

        Both rounds are symmetric. Raises `InvalidInput` unless epsilon < memo_epsilon.
        """
        _check_hashes(hashes)
        one, life = (
            float_below(Fraction(check_epsilon(value, what)) / hashes)
            for value, what in ((epsilon, "epsilon"), (memo_epsilon, "memo_epsilon"))
        )
        chain = UnaryChain.l_sue(2, one, life)
        return cls(epsilon, bits, hashes, cohorts, chain.permanent, chain.instantaneous)

    @classmethod
    def published(
        cls, f: float, p: float, q: float, *, bits: int = 128, hashes: int = 2, cohorts: int = 64
    ) -> Self:
        """Return RAPPOR with the paper's f, p (of a 0) and q (of a 1); epsilon follows.

        Raises `InvalidInput` unless 0 < f < 1 and 0 < p < q < 1.
        """
        if not (0 < f < 1 and 0 < p < q < 1):
            raise InvalidInput(f"{cls.name}: 0 < f < 1 and 0 < p < q < 1, got {f}, {p} and {q}")
        _check_hashes(hashes)
        half = ceil_threshold(Fraction(f) / 2)
        permanent = ONE - half, half
        instantaneous = floor_threshold(Fraction(q)), ceil_threshold(Fraction(p))
        check_round(f"{cls.name}: permanent", permanent)
        check_round(f"{cls.name}: instantaneous", instantaneous)
        epsilon = log_upper(odds_ratio(*chained(permanent, instantaneous)) ** hashes)
        return cls(epsilon, bits, hashes, cohorts, permanent, instantaneous)

    def _calibrate(self) -> None:
        _check_hashes(self.hashes)
        if not 2 * self.hashes <= self.bits <= 1 << 16:
            raise InvalidInput(
                f"{self.name}: 2 hashes <= bits <= {1 << 16}, got {self.hashes} and {self.bits}"
            )
        if not 1 <= self.cohorts <= 1 << 16 or self.cohorts * self.bits > 1 << 24:
            raise InvalidInput(
                f"{self.name}: cohorts must lie in 1..{1 << 16}, and cohorts times bits within "
                f"{1 << 24}, got {self.cohorts} cohorts of {self.bits} bits"
            )
        check_round(f"{self.name}: permanent", self.permanent)
        check_round(f"{self.name}: instantaneous", self.instantaneous)
        check_epsilon(log_upper(self._memo_ratio()), f"{self.name}: memo_epsilon")

    def _worst_ratio(self) -> Fraction:
        return odds_ratio(*self.support) ** self.hashes

    def _memo_ratio(self) -> Fraction:
        own, other = self.permanent
        return odds_ratio(Fraction(own, ONE), Fraction(other, ONE)) ** self.hashes

    @property
    def instantaneous_epsilon(self) -> float:
        """The epsilon of one bit times `bits`, because two memos may differ in all bits."""
        return bits_epsilon(self.bits, self.instantaneous)

    @property
    def memo_limit(self) -> int:
        """The number of filters: strings with the same filter share a memo."""
        return math.comb(self.bits, self.hashes)

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        """Return the probabilities of a reported 1 where the filter's bit is 1, and 0."""
        return chained(self.permanent, self.instantaneous)

    # --- randomising -----------------------------------------------------------------------

    def positions(self, cohort: int, value: str) -> tuple[int, ...]:
        """Return the bits that a string sets in a cohort, ascending.

        Raises `InvalidInput` unless the value is a string that UTF-8 can write.
        """
        if not isinstance(value, str):
            raise InvalidInput(f"{self.name}: a string is expected, got {value!r}")
        try:
            text = value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"{self.name}: UTF-8 cannot write {value!r}") from None
        return distinct_positions(text, cohort, self.hashes, self.bits)

    @property
    def device_bytes(self) -> int:
        return _COHORT_BYTES

    def enroll_many(self, n: int, coins: Coins) -> Devices:
        cohorts = coins.below_many(self.cohorts, n).astype("<u2")
        return cohorts.view(np.uint8).reshape(n, _COHORT_BYTES)

    def _devices(self, device: bytes) -> Devices:
        devices = super()._devices(device)
        self._check_cohorts(devices)
        return devices

    def memo_key(self, device: bytes, value: str) -> int:
        """Return the string's filter in the device's cohort, bit i standing for 2**i."""
        (cohort,) = self._cohorts(self._devices(device))
        return sum(1 << position for position in self.positions(int(cohort), value))

    def memoize_many(self, devices: Devices, values: ArrayLike, coins: Coins) -> Codes:
        return self._flipped(devices, self._filters(devices, values), self.permanent, coins)

    def report_many(self, memos: Codes, coins: Coins) -> Codes:
        cohorts, memo = np.split(memos, [_COHORT_BYTES], axis=1)
        return self._flipped(cohorts, memo, self.instantaneous, coins)

    def enroll(self, coins: Coins) -> bytes:
        return coins.below(self.cohorts).to_bytes(_COHORT_BYTES, "little")

    def memoize(self, device: bytes, value: str, coins: Coins) -> Codes:
        devices = self._devices(device)
        packed = self._filters(devices, [value])[0]
        return np.append(devices[0], flip_row(packed, self.bits, self.permanent, coins))

    def randomize(self, value: str, coins: Coins) -> Codes:
        return self._report(self.memoize(self.enroll(coins), value, coins), coins)

    def _report(self, memo: Codes, coins: Coins) -> Codes:
        cohort, packed = memo[:_COHORT_BYTES], memo[_COHORT_BYTES:]
        return np.append(cohort, flip_row(packed, self.bits, self.instantaneous, coins))

    def _filters(self, devices: Devices, values: ArrayLike) -> NDArray[np.uint8]:
        """Return the packed filters, shape (n, ceil(bits / 8)), hashing each string once."""
        shape = as_array(self.name, values).shape
        if shape != (len(devices),):
            raise InvalidInput(f"{self.name}: strings are a 1-d array, got the shape {shape}")
        strings = list(cast(Iterable[str], values))  # numpy would drop a string's trailing NULs
        known: dict[tuple[int, str], int] = {}
        cohorts = self._cohorts(devices).tolist()
        rows = [known.setdefault(pair, len(known)) for pair in zip(cohorts, strings, strict=True)]
        dense = np.zeros((len(known), self.bits), dtype=bool)
        for (cohort, value), row in known.items():
            dense[row, list(self.positions(cohort, value))] = True
        return np.packbits(dense, axis=1, bitorder="little")[rows]

    def _flipped(
        self, cohorts: Devices, packed: Codes, pair: tuple[int, ...], coins: Coins
    ) -> Codes:
        return np.concatenate([cohorts, flip_bits(packed, self.bits, pair, coins)], axis=1)

    # --- the wire --------------------------------------------------------------------------

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return np.dtype("u1")

    @property
    def code_shape(self) -> tuple[int, ...]:
        return (_COHORT_BYTES + row_bytes(self.bits),)

    def _cohorts(self, codes: Codes) -> NDArray[np.uint16]:
        head = np.ascontiguousarray(codes[:, :_COHORT_BYTES])
        return head.view("<u2").reshape(len(codes))

    def _check_cohorts(self, codes: Codes) -> None:
        cohorts = self._cohorts(codes)
        if cohorts.size and cohorts.max() >= self.cohorts:
            raise InvalidInput(
                f"a {self.name} cohort must be below {self.cohorts}, got {cohorts.max()}"
            )

    def _check_codes(self, codes: Codes) -> None:
        self._check_cohorts(codes)
        check_unused_bits(self.name, codes, self.bits)

    # --- estimating ------------------------------------------------------------------------

    @property
    def tally_size(self) -> int:
        return self.cohorts * (self.bits + 1)

    def _counted(self, codes: Codes) -> Tally:
        """Count the reports of each cohort, then the ones of each cohort and bit."""
        cohorts = self._cohorts(codes)
        order = np.argsort(cohorts, kind="stable")
        ones = np.zeros((self.cohorts, self.bits), dtype=np.int64)
        for start in range(0, len(codes), _BLOCK):
            rows = order[start : start + _BLOCK]
            present, first = np.unique(cohorts[rows], return_index=True)
            unpacked = np.unpackbits(
                codes[rows, _COHORT_BYTES:], axis=1, count=self.bits, bitorder="little"
            )
            ones[present] += np.add.reduceat(unpacked, first, axis=0, dtype=np.int64)
        reports = np.bincount(cohorts, minlength=self.cohorts)
        return Tally(len(codes), np.concatenate([reports, ones.ravel()]))

    def evidence(self, codes: Codes, value: str) -> NDArray[np.int64]:
        """Return how many of the string's bits, in the report's cohort, are set: 0..hashes."""
        cohorts, rows = np.unique(self._cohorts(codes), return_inverse=True)
        places = np.array([self.positions(int(cohort), value) for cohort in cohorts])[rows]
        octets = np.take_along_axis(codes[:, _COHORT_BYTES:], places >> 3, axis=1)
        bits = octets >> (places & 7).astype(np.uint8) & 1
        ones: NDArray[np.int64] = bits.sum(axis=1, dtype=np.int64)
        return ones

    def counts(self, tally: Tally) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return a tally's reports, shape (cohorts,), and ones, shape (cohorts, bits)."""
        reports, ones = np.split(tally.counts, [self.cohorts])
        return reports, ones.reshape(self.cohorts, self.bits)

    @property
    def parameters(self) -> int:
        return self.cohorts * self.bits

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        p, q = (float(x) for x in self.support)
        reports, ones = self.counts(tally)
        excess = ones - q * reports[:, np.newaxis]
        shares: NDArray[np.float64] = (excess * (self.cohorts / tally.n / (p - q))).ravel()
        return shares

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        # A report's term is cohorts (bit - q) / (p - q) in its cohort, else 0; its mean is truth.
        p, q = (float(x) for x in self.support)
        share = np.asarray(truth, dtype=float)
        one = share * (p - q) + q
        square = (one * (1 - q) ** 2 + (1 - one) * q**2) / (p - q) ** 2
        result: NDArray[np.float64] = (self.cohorts * square - share**2) / n
        return result

    def channel(self) -> Channel:
        """Enumerate one cohort's channel from each possible filter, in the order of
        `itertools.combinations`, to each of the 2**bits reports.

        Every string has one of these rows. The cohort is drawn before any value.
        """
        if self.memo_limit << self.bits > 16 * MAX_OUTPUTS:
            raise InvalidInput(
                f"a channel of {self.memo_limit} filters and 2**{self.bits} codes is too large "
                "to enumerate"
            )
        p, q = self.support
        chance = (1 - q, q), (1 - p, p)  # by the filter's bit, then the reported one
        outputs, one = tuple(range(1 << self.bits)), Fraction(1)
        rows = tuple(
            tuple(
                math.prod((chance[i in ones][y >> i & 1] for i in range(self.bits)), start=one)
                for y in outputs
            )
            for ones in combinations(range(self.bits), self.hashes)
        )
        return Channel(outputs, rows)


def _check_hashes(hashes: int) -> None:
    if not 1 <= hashes <= _MAX_HASHES:
        raise InvalidInput(f"{RAPPOR.name}: hashes must lie in 1..{_MAX_HASHES}, got {hashes}")
