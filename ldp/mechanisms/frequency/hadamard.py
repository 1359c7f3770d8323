"""Hadamard response: supports that are rows of a Hadamard matrix, counted by fast transform.

Entry (x, y) of the Hadamard matrix of order 2**m is 1 where x & y has an even number of bits,
and -1 otherwise (Sylvester's construction).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, flip_threshold, include_threshold
from ldp.core.mechanism import (
    Categorical,
    Codes,
    Counted,
    FrequencyOracle,
    check_flip,
    check_threshold,
)
from ldp.core.tally import Tally
from ldp.errors import InvalidInput

_BLOCK = 1 << 14
"""Reports per block: as many as fit a core's cache."""


@dataclass(frozen=True)
class HRR(Counted, FrequencyOracle):
    """Draw a row of the Hadamard matrix, report its sign in the category's column, flipped
    with flip / 2**64.

    The order K is the smallest power of two >= k. Row 0, which is constant, is never drawn:
    it would tell nothing, and without it two categories share a sign in only K/2 - 1 of the
    K - 1 rows, which takes the factor ((K - 1) / K)**2 off the published variance. A report is
    the integer 2 (row - 1) + bit, the bit being 0 for the sign 1.
    Guarantee: epsilon-LDP for every pair of categories, with
    e**realised_epsilon = (2**64 - flip) / flip <= e**epsilon.
    Cost: one code of 1, 2 or 4 bytes; a tally holds 2 (K - 1) counts, and its supports take
    O(K log K). Raises `InvalidInput` unless 2 <= k <= 2**24.
    Source: Nguyên et al., "Collecting and analyzing data from smart device users with local
    differential privacy", 2016; Cormode, Kulkarni and Srivastava, "Marginal release under
    local differential privacy", SIGMOD 2018.
    """

    name: ClassVar[str] = "hrr"
    two_valued: ClassVar[bool] = True
    k: int
    epsilon: float
    flip: int = 0

    def _calibrate(self) -> None:
        self._check_k(1 << 24)
        if self.flip == 0:
            object.__setattr__(self, "flip", flip_threshold(Fraction(self.epsilon)))
        check_flip(self.name, self.flip)

    def _worst_ratio(self) -> Fraction:
        return Fraction(ONE - self.flip, self.flip)

    @property
    def order(self) -> int:
        """The order K of the Hadamard matrix."""
        return 1 << (self.k - 1).bit_length()

    @property
    def named(self) -> None:
        return None

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        flip = Fraction(self.flip, ONE)
        same_sign = Fraction(self.order // 2 - 1, self.order - 1)
        return 1 - flip, same_sign * (1 - flip) + (1 - same_sign) * flip

    @property
    def tally_size(self) -> int:
        return 2 * (self.order - 1)

    def randomize(self, value: int, coins: Coins) -> int:
        value = self._check_value(value)
        row = 1 + coins.below(self.order - 1)
        bit = ((row & value).bit_count() & 1) ^ coins.bernoulli(self.flip)
        return 2 * (row - 1) + bit

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = np.empty(array.size, dtype=self.code_dtype)
        for start in range(0, array.size, _BLOCK):
            block = array[start : start + _BLOCK].astype(self.code_dtype)
            rows = coins.below_many(self.order - 1, block.size).astype(self.code_dtype)
            bits = _parity(block & (rows + 1)) ^ coins.bernoulli_many(self.flip, block.size)
            codes[start : start + _BLOCK] = 2 * rows + bits
        return codes

    def _supported(self, codes: Codes, value: int | NDArray[np.int64]) -> NDArray[Any]:
        rows, bits = np.divmod(codes.astype(np.int64), 2)
        supported: NDArray[Any] = _parity(rows + 1 & value) == bits
        return supported

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        signed = np.zeros(self.order, dtype=np.int64)
        signed[1:] = tally.counts[::2] - tally.counts[1::2]
        return (tally.n + walsh_hadamard(signed)[: self.k]) // 2

    def matrix(self) -> NDArray[np.float64]:
        odd = _parity(np.arange(self.k)[:, None] & np.arange(1, self.order))
        bits = np.stack([odd, 1 - odd], axis=2).reshape(self.k, self.tally_size)
        flip = self.flip / ONE
        return np.where(bits, flip, 1 - flip) / (self.order - 1)

    def channel(self) -> Channel:
        """Enumerate the k x 2 (order - 1) channel."""
        if self.tally_size > MAX_OUTPUTS:
            raise InvalidInput(f"a channel of {self.tally_size} codes is too large to enumerate")
        flip = Fraction(self.flip, ONE)
        p, q = (1 - flip) / (self.order - 1), flip / (self.order - 1)
        rows = []
        for v in range(self.k):
            signs = ((v & row).bit_count() & 1 for row in range(1, self.order))
            rows.append(tuple(chance for sign in signs for chance in ((q, p) if sign else (p, q))))
        return Channel(tuple(range(self.tally_size)), tuple(rows))


@dataclass(frozen=True)
class HadamardResponse(Counted, Categorical):
    """Report one of K points; the points of the category's set are likelier.

    The K = blocks * width points form blocks, dealt to the categories in turn: category v has
    block v mod blocks, and in it the column 1 + v // blocks of the Hadamard matrix of order
    `width`, the smallest that has enough. Its set is the width / 2 points of the block whose
    sign in that column is 1. A report is a point of that set with include / 2**64, otherwise
    one of all the others, uniformly in either case.
    The estimate is a sum of signs: a report in a category's block counts 1 or -1, any other
    nothing, which is unbiased because two columns are orthogonal.
    Without integers the number of blocks is the power of two of least variance at uniform
    truth; it grows like e**epsilon.
    Guarantee: epsilon-LDP for every pair of categories, with p = include / 2**64, s = width / 2
    and e**realised_epsilon = p (K - s) / ((1 - p) s) <= e**epsilon.
    Cost: one code of 1, 2 or 4 bytes; a tally holds K <= 4 k counts, an estimate takes
    O(K log K). Raises `InvalidInput` unless 2 <= k <= 2**24 and blocks is a power of two <= k.
    Source: Acharya, Sun and Zhang, "Hadamard response: estimating distributions privately,
    efficiently, and with little communication", AISTATS 2019, section 5.
    """

    name: ClassVar[str] = "hadamard"
    k: int
    epsilon: float
    blocks: int = 0
    include: int = 0

    def _calibrate(self) -> None:
        self._check_k(1 << 24)
        if self.blocks == 0:
            sizes = [1 << i for i in range(self.k.bit_length())]
            trials = (type(self)(self.k, self.epsilon, blocks) for blocks in sizes)
            best = min(trials, key=lambda trial: trial._variance(1 / self.k, 1 / trial.blocks))
            object.__setattr__(self, "blocks", best.blocks)
        if self.blocks & (self.blocks - 1) or self.blocks > self.k:
            raise InvalidInput(
                f"{self.name}: blocks must be a power of two up to k = {self.k}, got {self.blocks}"
            )
        if self.include == 0:
            include = include_threshold(self._size, self.tally_size - self._size, self.epsilon)
            object.__setattr__(self, "include", include)
        check_threshold(f"{self.name}: include", self.include)
        if 2 * self.blocks * self.include <= ONE:
            raise InvalidInput(
                f"{self.name}: include must exceed 2**63 / blocks, got {self.include}"
            )

    @property
    def width(self) -> int:
        """The number of points of a block."""
        columns = -(-self.k // self.blocks)
        return 1 << columns.bit_length()

    @property
    def _size(self) -> int:
        return self.width // 2

    def _chances(self) -> tuple[Fraction, Fraction]:
        """Return the probability of one point of the own set, and of one other point."""
        p = Fraction(self.include, ONE)
        return p / self._size, (1 - p) / (self.tally_size - self._size)

    def _worst_ratio(self) -> Fraction:
        within, without = self._chances()
        return within / without

    @property
    def variation(self) -> Fraction:
        # Sets of two blocks have no point in common; two of one block share half of theirs.
        within, without = self._chances()
        return Fraction(self._size, 1 if self.blocks > 1 else 2) * (within - without)

    @property
    def tally_size(self) -> int:
        return self.blocks * self.width

    def randomize(self, value: int, coins: Coins) -> int:
        own_block, column = self._check_value(value) % self.blocks, value // self.blocks + 1
        size = self._size
        inside = coins.bernoulli(self.include)
        drawn = coins.below(size if inside else self.tally_size - size)
        # As `_points`: the other half of the own block comes first among the points outside.
        if drawn >= size:
            other_block, place = divmod(drawn - size, self.width)
            return (other_block + (other_block >= own_block)) * self.width + place
        low = column & -column
        point = drawn + (drawn & -low)
        if (point & column).bit_count() & 1 == inside:
            point += low
        return own_block * self.width + point

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = np.empty(array.size, dtype=self.code_dtype)
        for start in range(0, array.size, _BLOCK):
            block = array[start : start + _BLOCK].astype(np.int64)
            codes[start : start + _BLOCK] = self._points(block, coins)
        return codes

    def _points(self, values: NDArray[np.int64], coins: Coins) -> NDArray[np.int64]:
        size, n = self._size, values.size
        own_block = values % self.blocks
        column: NDArray[np.int64] = values // self.blocks + 1
        inside = coins.bernoulli_many(self.include, n)
        # The points outside the set: first the other half of its block, then other blocks.
        drawn = coins.below_many(self.tally_size - size, n).astype(np.int64)
        drawn = np.where(inside, coins.below_many(size, n), drawn)
        # Put a bit into the number at the column's lowest bit, of the value that gives the
        # point its sign: a bijection from 0..size-1 to the half block of that sign.
        low = column & -column
        point = drawn + (drawn & -low)
        wrong = _parity(point & column) == inside
        point = np.where(wrong, point + low, point)
        other_block, place = np.divmod(drawn - size, self.width)
        other_block += other_block >= own_block
        elsewhere = drawn >= size
        return np.where(elsewhere, other_block * self.width + place, own_block * self.width + point)

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        within, without = self._chances()
        signed = walsh_hadamard(tally.counts.reshape(self.blocks, self.width))
        contrast = float(self._size * (within - without))
        values: NDArray[np.float64] = signed[:, 1:].T.ravel()[: self.k] / (tally.n * contrast)
        return values

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the variance; `truth` has shape (k,), or () for one frequency, the others
        sharing the rest evenly. Infeasible truths are taken to fill their blocks at most."""
        f = np.asarray(truth, dtype=float)
        block = np.arange(self.k) % self.blocks
        if f.ndim:
            masses = np.bincount(block, weights=f, minlength=self.blocks).clip(0, 1)
        else:
            masses = f + (1 - f) / (self.k - 1) * (np.bincount(block) - 1)
        return np.asarray(self._variance(f, masses[block]) / n)

    def tally_variance(self, truth: ArrayLike, tally: Tally) -> NDArray[np.float64]:
        """Return the variance of `debias`, with each block's mass estimated from its reports.

        The tally counts a block's reports exactly; a sum of its categories' estimates would have
        the noise of them all. A mass is at least its category's frequency, so no error is zero.
        """
        f = np.asarray(truth, dtype=float)
        within, without = self._chances()
        seen = tally.counts.reshape(self.blocks, self.width).sum(axis=1) / tally.n
        masses = (seen - float(self.width * without)) / float(self._size * (within - without))
        mass = np.maximum(masses[np.arange(self.k) % self.blocks], f)
        return np.asarray(self._variance(f, mass) / tally.n)

    def _variance(self, f: ArrayLike, mass: ArrayLike) -> Any:
        """Return the variance of one report for frequencies f in blocks of total `mass`."""
        within, without = self._chances()
        contrast = float(self._size * (within - without))
        in_block = np.asarray(mass) * contrast + float(self.width * without)
        return in_block / contrast**2 - np.square(f)

    def matrix(self) -> NDArray[np.float64]:
        within, without = self._chances()
        v = np.arange(self.k)[:, None]
        block, point = np.divmod(np.arange(self.tally_size), self.width)
        outside = _parity(1 + v // self.blocks & point) | (v % self.blocks != block)
        return np.where(outside, float(without), float(within))

    def channel(self) -> Channel:
        """Enumerate the k x (blocks * width) channel."""
        if self.tally_size > MAX_OUTPUTS:
            raise InvalidInput(f"a channel of {self.tally_size} codes is too large to enumerate")
        within, without = self._chances()
        rows = []
        for v in range(self.k):
            column, block = 1 + v // self.blocks, v % self.blocks
            row = [without] * self.tally_size
            for y in range(self.width):
                if not (y & column).bit_count() & 1:
                    row[block * self.width + y] = within
            rows.append(tuple(row))
        return Channel(tuple(range(self.tally_size)), tuple(rows))


def walsh_hadamard(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the product of the Hadamard matrix with the last axis, whose length is 2**m."""
    result = counts.copy()
    half = 1
    while half < counts.shape[-1]:
        pairs = result.reshape(-1, 2, half)
        first, second = pairs[:, 0], pairs[:, 1]
        second -= first  # in place, first + second and first - second: no temporaries
        first *= 2
        first += second
        np.negative(second, out=second)
        half *= 2
    return result


def _parity(words: NDArray[Any]) -> NDArray[Any]:
    """Return 1 where a word has an odd number of bits, 0 elsewhere; overwrites `words`."""
    shift = words.dtype.itemsize * 4
    while shift:
        words ^= words >> shift
        shift //= 2
    words &= 1
    return words
