"""Unary encoding: one bit per category, each flipped on its own."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, check_epsilon, flip_threshold
from ldp.core.mechanism import Codes, FrequencyOracle, check_threshold
from ldp.errors import InvalidInput
from ldp.mechanisms.tools.bits import (
    PackedBits,
    check_unused_bits,
    set_bit,
    single_bits,
    toss_row,
    toss_rows,
)


@dataclass(frozen=True)
class UnaryEncoding(PackedBits, FrequencyOracle):
    """Report k independent bits: the own bit is 1 with probability own / 2**64, another's with
    other / 2**64.

    Without integers this is the optimised encoding (OUE: own = 1/2), the one of least variance
    for rare categories; `symmetric` gives SUE, and own and other may be set by hand.
    Guarantee: epsilon-LDP for every pair of categories, with
    e**realised_epsilon = p (1 - q) / ((1 - p) q) <= e**epsilon.
    Cost: ceil(k / 8) bytes, bit v of a code being bit v % 8 of byte v // 8.
    Raises `InvalidInput` unless 2 <= k <= 2**20 and 0 < other < own < 2**64.
    Source: Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency
    estimation", USENIX Security 2017, sections 4.2 and 4.3.
    """

    name: ClassVar[str] = "unary"
    two_valued: ClassVar[bool] = True
    k: int
    epsilon: float
    own: int = 0
    other: int = 0

    @classmethod
    def symmetric(cls, k: int, epsilon: float) -> Self:
        """Return SUE, basic RAPPOR's encoding: every bit is flipped with the same probability.

        Source: Erlingsson, Pihur and Korolova, CCS 2014; Wang et al. 2017, section 4.2.
        """
        flip = flip_threshold(Fraction(check_epsilon(epsilon)) / 2)
        return cls(k, epsilon, ONE - flip, flip)

    def _calibrate(self) -> None:
        self._check_k(1 << 20)
        if self.own == 0 and self.other == 0:
            object.__setattr__(self, "own", ONE // 2)
            object.__setattr__(self, "other", flip_threshold(Fraction(self.epsilon)))
        check_threshold(f"{self.name}: own", self.own)
        check_threshold(f"{self.name}: other", self.other)
        if self.other >= self.own:
            raise InvalidInput(
                f"{self.name}: other must be below own, got {self.other} and {self.own}"
            )

    def _worst_ratio(self) -> Fraction:
        p, q = self.support
        return p * (1 - q) / ((1 - p) * q)

    @property
    def decode_cost(self) -> int:
        return self.k

    @property
    def named(self) -> tuple[int, int]:
        return 0, self.k

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        return Fraction(self.own, ONE), Fraction(self.other, ONE)

    def randomize(self, value: int, coins: Coins) -> Codes:
        value = self._check_value(value)
        code = toss_row(coins, self.other, self.k)
        set_bit(code, value, coins.bernoulli(self.own))
        return code

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = toss_rows(coins, self.other, array.size, self.k)
        byte, bit = single_bits(array)
        own = bit * coins.bernoulli_many(self.own, array.size)
        at = np.arange(array.size), byte
        codes[at] = codes[at] & ~bit | own
        return codes

    def _check_codes(self, codes: Codes) -> None:
        check_unused_bits(self.name, codes, self.k)

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        return codes[:, value >> 3] >> (value & 7) & 1

    def channel(self) -> Channel:
        return bits_channel(self.k, *self.support)


def bits_channel(k: int, p: Fraction, q: Fraction) -> Channel:
    """Enumerate the k x 2**k channel of independent bits; an output's bit v is category v's.

    Raises `InvalidInput` where it is too large.
    """
    if k > MAX_OUTPUTS.bit_length() - 1:
        raise InvalidInput(f"a channel of 2**{k} codes is too large to enumerate")
    outputs = tuple(range(1 << k))
    rows = []
    for x in range(k):
        row = []
        for y in outputs:
            others = (y & ~(1 << x)).bit_count()
            own = p if y >> x & 1 else 1 - p
            row.append(own * q**others * (1 - q) ** (k - 1 - others))
        rows.append(tuple(row))
    return Channel(outputs, tuple(rows))
