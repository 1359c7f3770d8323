"""dBitFlip: a few bits of the unary encoding, drawn once and reported as they are."""

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, flip_threshold
from ldp.core.longitudinal import Devices, Longitudinal
from ldp.core.mechanism import Categorical, Codes, check_flip, integer_dtype
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.tools.bits import row_bytes

_BLOCK = 1 << 22
"""Entries of the table of asked categories held at once."""


@dataclass(frozen=True)
class DBitFlip(Longitudinal, Categorical):
    """Ask d categories, drawn for life, whether each is the value; flip each answer once.

    Answers flip with flip / 2**64 and are kept: every report of a value is the same, so a
    CHANGE OF VALUE IS VISIBLE to an observer of two reports that differ, and that the value
    stayed within the categories not asked is likely where they agree. A chain or `LOLOHA`,
    whose reports carry fresh noise, blurs a change, and hides it from few reports only.
    Guarantee: epsilon-LDP for any number of reports of a value that never changes (a memo and a
    report are the same, so `memo_epsilon` is `realised_epsilon`). Any two lives: none, from
    the second report on. Categories not asked share a memo, so lives whose memos repeat at
    the same times differ by at most min(d + 1, k) memos; but which are asked is drawn,
    so below d = k - 1 no life that changes is sure of that.
    e**realised_epsilon is ((1 - flip) / flip)**2, without the square for d = 1, where two
    values differ in one answer only: there flip is smaller than published.
    A code is d integers 2 v + answer, v ascending; cost: d times 1, 2 or 4 bytes, and k steps
    once per device.
    Raises `InvalidInput` unless 2 <= k <= 2**20 and 1 <= d <= k.
    Source: Ding, Kulkarni and Yekhanin, "Collecting telemetry data privately", NIPS 2017,
    section 3 and equation 6.
    """

    name: ClassVar[str] = "dbitflip"
    k: int
    epsilon: float
    d: int
    flip: int = 0

    def _calibrate(self) -> None:
        self._check_k(1 << 20)
        if not 1 <= self.d <= self.k:
            raise InvalidInput(f"{self.name}: d must lie in 1..{self.k}, got {self.d}")
        if self.flip == 0:
            share = Fraction(self.epsilon) / min(self.d, 2)
            object.__setattr__(self, "flip", flip_threshold(share))
        check_flip(self.name, self.flip)

    def _worst_ratio(self) -> Fraction:
        return Fraction(ONE - self.flip, self.flip) ** min(self.d, 2)

    def _memo_ratio(self) -> Fraction:
        return self._worst_ratio()

    @property
    def instantaneous_epsilon(self) -> float:
        """Infinite: a report is its memo."""
        return math.inf

    @property
    def memo_limit(self) -> int:
        return min(self.d + 1, self.k)

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        """Return (p, q) of an answer, given that its category was asked."""
        return 1 - Fraction(self.flip, ONE), Fraction(self.flip, ONE)

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return integer_dtype(2 * self.k)

    @property
    def code_shape(self) -> tuple[int, ...]:
        return (self.d,)

    @property
    def device_bytes(self) -> int:
        return self.code_bytes

    def enroll_many(self, n: int, coins: Coins) -> Devices:
        asked = np.empty((n, self.d), dtype=self.code_dtype)
        step = max(1, _BLOCK // self.k)
        for start in range(0, n, step):
            block = asked[start : start + step]
            block[:] = self._asked(len(block), coins)
        return asked.view(np.uint8)

    def _asked(self, n: int, coins: Coins) -> NDArray[np.intp]:
        """Draw n uniform d-subsets of the categories, rows ascending (Floyd, CACM 30(9), 1987)."""
        chosen = np.zeros((n, self.k), dtype=bool)
        rows = np.arange(n)
        for last in range(self.k - self.d, self.k):
            drawn = coins.below_many(last + 1, n)
            chosen[rows, np.where(chosen[rows, drawn], last, drawn)] = True
        return np.nonzero(chosen)[1].reshape(n, self.d)

    def enroll(self, coins: Coins) -> bytes:
        return self._asked_once(coins).tobytes()

    def memoize(self, device: bytes, value: int, coins: Coins) -> Codes:
        category = self._check_value(value)
        return self._answered_once(self._categories(self._devices(device))[0], category, coins)

    def randomize(self, value: int, coins: Coins) -> Codes:
        category = self._check_value(value)
        return self._answered_once(self._asked_once(coins), category, coins)

    def _asked_once(self, coins: Coins) -> Codes:
        """Draw as `_asked`, for one device: shape (d,)."""
        asked: Codes = coins.distinct(self.k, self.d).astype(self.code_dtype)
        return asked

    def _answered_once(self, asked: Codes, category: int, coins: Coins) -> Codes:
        flips = np.unpackbits(
            coins.toss(self.flip, row_bytes(self.d)), count=self.d, bitorder="little"
        )
        codes: Codes = 2 * asked + (flips ^ (asked == category))
        return codes

    def _devices(self, device: bytes) -> Devices:
        devices = super()._devices(device)
        asked = self._categories(devices)
        if (asked >= self.k).any() or (np.diff(asked.astype(np.int64), axis=1) <= 0).any():
            raise InvalidInput(f"{self.name}: a device keeps {self.d} ascending categories")
        return devices

    def _categories(self, devices: Devices) -> Codes:
        asked: Codes = np.ascontiguousarray(devices).view(self.code_dtype).reshape(-1, self.d)
        return asked

    def memo_key(self, device: bytes, value: int) -> int:
        """Return the value if the device asks its category, else k."""
        asked = self._categories(self._devices(device))
        category = self._check_value(value)
        return category if category in asked else self.k

    def memoize_many(self, devices: Devices, values: ArrayLike, coins: Coins) -> Codes:
        asked = self._categories(devices)
        truth = asked == self._check_values(values)[:, np.newaxis]
        answers = truth ^ coins.bernoulli_many(self.flip, truth.size).reshape(truth.shape)
        codes: Codes = 2 * asked + answers.astype(self.code_dtype)
        return codes

    def report_many(self, memos: Codes, coins: Coins) -> Codes:
        """Return the memos themselves."""
        return memos.copy()

    def _check_codes(self, codes: Codes) -> None:
        asked = (codes >> 1).astype(np.int64)
        if asked.size and asked.max() >= self.k:
            raise InvalidInput(
                f"a {self.name} code must ask categories below {self.k}, got {asked.max()}"
            )
        if (np.diff(asked, axis=1) <= 0).any():
            raise InvalidInput(f"a {self.name} code must ask each category once, in order")

    @property
    def tally_size(self) -> int:
        return 2 * self.k

    def _counted(self, codes: Codes) -> Tally:
        """Count each category's answers: 2 v of no, 2 v + 1 of yes."""
        return Tally(len(codes), np.bincount(codes.ravel(), minlength=2 * self.k))

    def each_counted(self, codes: Codes) -> NDArray[np.int64]:
        counts = np.zeros((len(codes), self.tally_size), dtype=np.int64)
        np.put_along_axis(counts, codes.astype(np.intp), 1, axis=1)
        return counts

    def evidence(self, codes: Codes, value: int) -> NDArray[np.int64]:
        """Return 0 where the category was not asked, 1 where the answer is no, 2 where yes."""
        asked = codes >> 1 == self._check_value(value)
        answers: NDArray[np.int64] = (asked * (1 + (codes & 1))).sum(axis=1, dtype=np.int64)
        return answers

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        p, q = (float(x) for x in self.support)
        no, yes = tally.counts[0::2], tally.counts[1::2]
        return (yes - q * (no + yes)) * (self.k / self.d / tally.n / (p - q))

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        # A report's term is (k / d) (answer - q) / (p - q) where asked, else 0; its mean is f.
        p, q = (float(x) for x in self.support)
        f = np.asarray(truth, dtype=float)
        yes = f * (p - q) + q
        square = (yes * (1 - q) ** 2 + (1 - yes) * q**2) / (p - q) ** 2
        result: NDArray[np.float64] = (self.k / self.d * square - f**2) / n
        return result

    def channel(self) -> Channel:
        """Enumerate the channel over the C(k, d) 2**d codes, as tuples."""
        sets = math.comb(self.k, self.d)
        if sets << self.d > MAX_OUTPUTS:
            raise InvalidInput(f"a channel of {sets} * 2**{self.d} codes is too large to enumerate")
        p, q = self.support
        outputs: list[tuple[int, ...]] = []
        rows: list[list[Fraction]] = [[] for _ in range(self.k)]
        for asked in combinations(range(self.k), self.d):
            for answers in product((0, 1), repeat=self.d):
                outputs.append(tuple(2 * v + a for v, a in zip(asked, answers, strict=True)))
                for value, row in enumerate(rows):
                    kept = sum((v == value) == a for v, a in zip(asked, answers, strict=True))
                    row.append(p**kept * q ** (self.d - kept) / sets)
        return Channel(tuple(outputs), tuple(tuple(row) for row in rows))
