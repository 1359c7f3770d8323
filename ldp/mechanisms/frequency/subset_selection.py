"""Subset selection: a random set of categories, in which the own one is likelier."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, exp_bounds, include_threshold
from ldp.core.mechanism import Codes, FrequencyOracle, check_threshold
from ldp.errors import InvalidInput
from ldp.mechanisms.tools.bits import single_bits, toss_rows
from ldp.mechanisms.tools.subset_codes import BIT_COUNT, SubsetCodes

_BLOCK = 1 << 17
"""Bytes of masks per block: as many as fit a core's cache."""


@dataclass(frozen=True)
class SubsetSelection(SubsetCodes, FrequencyOracle):
    """Report `size` of the k categories: the own one among them with include / 2**64, the
    others drawn uniformly.

    Without integers the subset size is the one of least variance, and the mechanism then
    attains the minimax constant of frequency estimation (Ye and Barg 2018).
    Guarantee: epsilon-LDP for every pair of categories, with p = include / 2**64 and
    e**realised_epsilon = p (k - size) / ((1 - p) size) <= e**epsilon.
    Cost: a mask of ceil(k / 8) bytes, bit v being bit v % 8 of byte v // 8, or the `size`
    sorted indices of 1 or 2 bytes where that is shorter: k and size decide.
    Raises `InvalidInput` unless 2 <= k <= 2**16, 1 <= size <= k // 2 and p > size / k.
    Source: Ye and Barg, "Optimal schemes for discrete distribution estimation under locally
    differential privacy", IEEE Trans. Information Theory 64(8), 2018; Wang et al., "Mutual
    information optimally local private discrete distribution estimation", 2016.
    """

    name: ClassVar[str] = "subset"
    two_valued: ClassVar[bool] = True
    k: int
    epsilon: float
    size: int = 0
    include: int = 0

    def _calibrate(self) -> None:
        self._check_k(1 << 16)
        if self.size == 0:
            object.__setattr__(self, "size", _best_size(self.k, self.epsilon))
        if not 1 <= self.size <= self.k // 2:
            raise InvalidInput(
                f"{self.name}: size must lie in 1..{self.k // 2} for k = {self.k}, got {self.size}"
            )
        if self.include == 0:
            include = include_threshold(self.size, self.k - self.size, self.epsilon)
            object.__setattr__(self, "include", include)
        check_threshold(f"{self.name}: include", self.include)
        if self.include * self.k <= self.size * ONE:
            raise InvalidInput(
                f"{self.name}: include must exceed 2**64 size / k, the share of any other "
                f"category, got {self.include}"
            )

    def _worst_ratio(self) -> Fraction:
        # One subset has p / C(k-1, size-1) from within, (1 - p) / C(k-1, size) from without.
        return Fraction(self.include * (self.k - self.size), (ONE - self.include) * self.size)

    @property
    def decode_cost(self) -> int:
        return self.size

    @property
    def named(self) -> tuple[int, int]:
        return self.size, self.size

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        p = Fraction(self.include, ONE)
        return p, (self.size - p) / (self.k - 1)

    def randomize(self, value: int, coins: Coins) -> Codes:
        value = self._check_value(value)
        own = coins.bernoulli(self.include)
        others = coins.distinct(self.k - 1, self.size - own)
        bits = np.zeros(self.k, dtype=np.bool_)
        bits[others + (others >= value)] = True
        bits[value] = own
        if self._masked:
            return np.packbits(bits, bitorder="little")
        return np.flatnonzero(bits).astype(self.code_dtype)

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = np.empty((array.size, *self.code_shape), dtype=self.code_dtype)
        step = max(1, _BLOCK // self._mask_bytes)
        for start in range(0, array.size, step):
            block = slice(start, start + step)
            masks = self._masks(array[block].astype(np.intp), coins)
            codes[block] = masks if self._masked else self._indices(masks)
        return codes

    def _masks(self, values: NDArray[np.intp], coins: Coins) -> NDArray[np.uint8]:
        """Return one random subset per value as a mask, shape (n, _mask_bytes).

        Independent coins give each other category the same chance; given that they number at
        most `size` (or all are tossed again), and completed with uniform categories, they are
        a uniform subset, because every step treats the other categories alike. The coins fall
        one standard deviation short, so that few rows are tossed again.
        """
        spread = math.sqrt(self.size * (1 - self.size / self.k))
        coin = int(max(0.0, self.size - spread) / self.k * 2.0**32) << 32
        own_byte, own_bit = single_bits(values)
        own = own_bit * coins.bernoulli_many(self.include, values.size)
        masks = np.empty((values.size, self._mask_bytes), dtype=np.uint8)
        missing = np.empty(values.size, dtype=np.int64)
        rows = np.arange(values.size)
        while rows.size:
            fresh = toss_rows(coins, coin, rows.size, self.k)
            places = np.arange(rows.size), own_byte[rows]
            fresh[places] = (fresh[places] & ~own_bit[rows]) | own[rows]
            masks[rows] = fresh
            missing[rows] = self.size - BIT_COUNT[fresh].sum(axis=1, dtype=np.int64)
            rows = rows[missing[rows] < 0]
        rows = np.flatnonzero(missing)
        while rows.size:
            chosen = coins.below_many(self.k, rows.size).astype(np.intp)
            byte, bit = single_bits(chosen)
            new = ((masks[rows, byte] & bit) == 0) & (chosen != values[rows])
            masks[rows[new], byte[new]] |= bit[new]
            missing[rows] -= new
            rows = rows[missing[rows] > 0]
        return masks

    def covariance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the exact covariance: a subset's size is fixed, so its members are not
        independent given the category."""
        f = np.broadcast_to(np.asarray(truth, dtype=float), (self.k,))
        p, q = self.support
        # The chances that a subset has the own category and a given other, and two given others.
        own = p * Fraction(self.size - 1, self.k - 1)
        others = (self.size - 1) * (self.size - 2 * p) / max(1, (self.k - 1) * (self.k - 2))
        s = f * float(p - q) + float(q)
        both = float(others) + float(own - others) * np.add.outer(f, f)
        result: NDArray[np.float64] = (both - np.outer(s, s)) / (n * float(p - q) ** 2)
        np.fill_diagonal(result, self.variance(f, n))
        return result

    def channel(self) -> Channel:
        """Enumerate the k x C(k, size) channel; an output is a tuple of sorted categories."""
        if math.comb(self.k, self.size) > MAX_OUTPUTS:
            raise InvalidInput(
                f"a channel of C({self.k}, {self.size}) codes is too large to enumerate"
            )
        p = Fraction(self.include, ONE)
        within = p / math.comb(self.k - 1, self.size - 1)
        without = (1 - p) / math.comb(self.k - 1, self.size)
        outputs = tuple(combinations(range(self.k), self.size))
        rows = (tuple(within if x in y else without for y in outputs) for x in range(self.k))
        return Channel(outputs, tuple(rows))


def _best_size(k: int, epsilon: float) -> int:
    """Return the subset size of least variance summed over the categories at uniform truth:
    the smallest w with w (w + 1) e**(2 epsilon) >= (k - w)(k - w - 1), where size w + 1 first
    stops being better than w in (w e**epsilon + k - w)**2 / (w (k - w)).
    """
    square = exp_bounds(Fraction(epsilon))[0] ** 2
    sizes = range(1, k // 2 + 1)
    return sizes[
        bisect_left(sizes, True, key=lambda w: w * (w + 1) * square >= (k - w) * (k - w - 1))
    ]
