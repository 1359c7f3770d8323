"""k-ary randomized response, and Warner's for two answers."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, ceil_threshold, exp_bounds
from ldp.core.mechanism import Codes, Counted, FrequencyOracle, check_threshold, two_valued
from ldp.core.tally import Tally
from ldp.errors import InvalidInput

_BLOCK = 1 << 17
"""Reports per block, to randomise or count: as many as fit a core's cache."""


@dataclass(frozen=True)
class KRR(Counted, FrequencyOracle):
    """Keep the category, or with probability resample / 2**64 draw any of the k uniformly.

    Guarantee: epsilon-LDP for every pair of categories, with
    e**realised_epsilon = 1 + k (2**64 - resample) / resample <= e**epsilon.
    Cost: one code of 1, 2 or 4 bytes. Raises `InvalidInput` unless 2 <= k <= 2**32.
    Source: Kairouz, Bonawitz and Ramage, "Discrete distribution estimation under local
    privacy", ICML 2016; the mixture with a uniform draw is the same channel.
    """

    name: ClassVar[str] = "krr"
    two_valued: ClassVar[bool] = True
    k: int
    epsilon: float
    resample: int = 0

    def _calibrate(self) -> None:
        self._check_k(1 << 32)
        if self.resample == 0:
            exp_low = exp_bounds(Fraction(self.epsilon))[0]
            resample = ceil_threshold(self.k / (exp_low + self.k - 1))
            object.__setattr__(self, "resample", resample)
        check_threshold(f"{self.name}: resample", self.resample)

    def _worst_ratio(self) -> Fraction:
        return 1 + Fraction(self.k * (ONE - self.resample), self.resample)

    @property
    def named(self) -> tuple[int, int]:
        return 1, 1

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        q = Fraction(self.resample, ONE * self.k)
        return 1 - Fraction(self.resample, ONE) + q, q

    def randomize(self, value: int, coins: Coins) -> int:
        value = self._check_value(value)
        return coins.below(self.k) if coins.bernoulli(self.resample) else value

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = np.empty(array.size, dtype=self.code_dtype)
        for start in range(0, array.size, _BLOCK):
            kept = array[start : start + _BLOCK].astype(self.code_dtype)
            drawn = coins.below_many(self.k, kept.size).astype(self.code_dtype)
            resampled = coins.bernoulli_many(self.resample, kept.size).view(np.uint8)
            # kept ^ (kept ^ drawn) where resampled: np.where, five times as fast.
            mask = np.negative(resampled.astype(self.code_dtype))
            np.bitwise_xor(kept, (kept ^ drawn) & mask, out=codes[start : start + _BLOCK])
        return codes

    def _counted(self, codes: Codes) -> Tally:
        counts = np.zeros(self.k, dtype=np.int64)
        for start in range(0, len(codes), _BLOCK):
            counts += np.bincount(codes[start : start + _BLOCK], minlength=self.k)
        return Tally(len(codes), counts)

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        supported: NDArray[Any] = codes == value
        return supported

    def matrix(self) -> NDArray[np.float64]:
        return two_valued(self.k, *self.support)

    def channel(self) -> Channel:
        return krr_channel(self.k, *self.support)


class RandomizedResponse(KRR):
    """k-RR for two answers: tell the truth, or toss a fair coin.

    Guarantee: epsilon-LDP. Source: Warner, "Randomized response: a survey technique for
    eliminating evasive answer bias", JASA 60(309), 1965.
    """

    def __init__(self, epsilon: float) -> None:
        super().__init__(k=2, epsilon=epsilon)


def krr_channel(k: int, p: Fraction, q: Fraction) -> Channel:
    """Enumerate the k x k channel with p on the diagonal; `InvalidInput` if too large."""
    if k > MAX_OUTPUTS:
        raise InvalidInput(f"a channel of {k} codes is too large to enumerate")
    rows = tuple(tuple(p if x == y else q for y in range(k)) for x in range(k))
    return Channel(tuple(range(k)), rows)
