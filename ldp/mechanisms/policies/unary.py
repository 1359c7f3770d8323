"""Unary encoding under a policy: every class of values has bits of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, ceil_threshold, exp_bounds, floor_threshold
from ldp.core.mechanism import Codes
from ldp.core.policy import UNIT, Policy, Ratios
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.policies.base import PolicyCategorical
from ldp.mechanisms.tools.bits import (
    PackedBits,
    check_unused_bits,
    set_bit,
    single_bits,
    toss_row,
    toss_rows,
)

_BLOCK = 1 << 17
"""Bytes of bits per block: as many as fit a core's cache."""


@dataclass(frozen=True)
class PolicyUnary(PackedBits, PolicyCategorical):
    """Report k independent bits: the own bit is 1 with own[a] / 2**64, another value's with
    other[b] / 2**64, for the classes a and b of the two values.

    A bit of a class with other = 0 reveals its value. Counting the bits is enough, value by
    value, but the estimate of one value is no better than that; it need not sum to one.
    Guarantee: `policy`, for every report and every two values; see `PolicyMechanism`. The ratio
    of a value of class a against one of class b is at most own[a] / other[a] times
    (1 - other[b]) / (1 - own[b]), when both bits tell.
    Cost: ceil(k / 8) bytes, bit v of a code being bit v % 8 of byte v // 8.
    Raises `InvalidInput` unless 2 <= k <= 2**16, there is one pair for each class of the policy
    with 0 <= other < own < 2**64, and the policy is kept.
    Source: Murakami and Kawamoto, USENIX Security 2019, section 4.2, for one-sided policies; Gu
    et al., ICDE 2020, section V, for classes with epsilons of their own.
    """

    name: ClassVar[str] = "policy_unary"
    k: int
    epsilon: float
    own: tuple[int, ...]
    other: tuple[int, ...]
    policy: tuple[int, ...]

    @classmethod
    def utility_optimised(
        cls, k: int, sensitive: Iterable[int], epsilon: float, *, symmetric: bool = False
    ) -> Self:
        """Return utility-optimised RAPPOR (uRAP) for a one-sided policy.

        Sensitive bits are those of OUE, or of SUE where `symmetric`; an ordinary value sets its
        own bit as often as the policy allows, and no other does. Raises `InvalidInput` as
        `Policy.one_sided` does.
        """
        policy = Policy.one_sided(k, sensitive, epsilon)
        limit = Fraction(policy.distances[0][0] or policy.distances[0][1], UNIT)
        exp_low, half = exp_bounds(limit)[0], exp_bounds(limit / 2)[0]
        own = floor_threshold(half / (half + 1)) if symmetric else ONE // 2
        p = Fraction(own, ONE)
        other = ceil_threshold(p / (p + exp_low * (1 - p)))
        revealed = floor_threshold(1 - p * ONE / (other * exp_low))
        bits = [(own, other), (revealed, 0)][: len(policy.sizes)]
        owns, others = zip(*bits, strict=True)
        return cls(k, policy.epsilon, owns, others, policy.integers)

    def _calibrate(self) -> None:
        self._check_k(1 << 16)
        size = len(self.promise.sizes)
        if not len(self.own) == len(self.other) == size:
            raise InvalidInput(
                f"{self.name}: one pair of own and other for each of {size} classes, "
                f"got {len(self.own)} and {len(self.other)}"
            )
        for own, other in zip(self.own, self.other, strict=True):
            if not other < own < ONE:
                raise InvalidInput(
                    f"{self.name}: 0 <= other < own < 2**64 in every class, got {own} and {other}"
                )

    @cached_property
    def _ratios(self) -> Ratios:
        pairs = list(zip(self.own, self.other, strict=True))
        return tuple(
            tuple(Fraction(p * (ONE - s), q * (ONE - r)) if q else None for r, s in pairs)
            for p, q in pairs
        )

    @cached_property
    def _classes(self) -> NDArray[np.intp]:
        return np.array(self.promise.classes, dtype=np.intp)

    @cached_property
    def _masks(self) -> NDArray[np.uint8]:
        """The bits of each class, packed: shape (classes, code bytes)."""
        each = np.arange(len(self.own))[:, None] == self._classes
        return np.packbits(each, axis=1, bitorder="little")

    def randomize(self, value: int, coins: Coins) -> Codes:
        value = self._check_value(value)
        code: Codes = np.zeros(self.code_shape, dtype=np.uint8)
        for other, mask in zip(self.other, self._masks, strict=True):
            code |= toss_row(coins, other, self.k) & mask
        set_bit(code, value, coins.bernoulli(self.own[self.promise.classes[value]]))
        return code

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values).astype(np.intp)
        n = array.size
        codes = np.zeros((n, *self.code_shape), dtype=np.uint8)
        for other, mask in zip(self.other, self._masks, strict=True):
            codes |= toss_rows(coins, other, n, self.k) & mask
        # Every row tosses the coin of every class for its own bit, and keeps its class's.
        tossed = np.stack([coins.bernoulli_many(own, n) for own in self.own])
        byte, bit = single_bits(array)
        own = bit * tossed[self._classes[array], np.arange(n)]
        at = np.arange(n), byte
        codes[at] = codes[at] & ~bit | own
        return codes

    def _check_codes(self, codes: Codes) -> None:
        check_unused_bits(self.name, codes, self.k)
        if (self._reveals(codes) > 1).any():
            raise InvalidInput(f"a {self.name} code reveals two categories at once")

    def _reveals(self, codes: Codes) -> NDArray[np.int64]:
        """Return how many categories each row reveals, shape (n,)."""
        sure = [mask for other, mask in zip(self.other, self._masks, strict=True) if not other]
        total = np.zeros(len(codes), dtype=np.int64)
        for mask in sure:
            total += np.unpackbits(codes & mask, axis=1).sum(axis=1, dtype=np.int64)
        return total

    @cached_property
    def _support(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        own, other = (np.array(t, dtype=float)[self._classes] / ONE for t in (self.own, self.other))
        return own, other

    @property
    def step(self) -> NDArray[np.float64]:
        own, other = self._support
        return np.asarray(1 / (own - other))

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        own, other = self._support
        values: NDArray[np.float64] = (tally.counts / tally.n - other) / (own - other)
        return values

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        own, other = self._support
        seen = np.asarray(truth, dtype=float) * (own - other) + other
        return np.asarray(seen * (1 - seen) / (n * (own - other) ** 2))

    def channel(self) -> Channel:
        """Enumerate the k x 2**k channel; an output's bit v is category v's."""
        if self.k > MAX_OUTPUTS.bit_length() - 1:
            raise InvalidInput(f"a channel of 2**{self.k} codes is too large to enumerate")
        own, other = (
            [Fraction(t[c], ONE) for c in self.promise.classes] for t in (self.own, self.other)
        )
        rows = []
        for x in range(self.k):
            row = [Fraction(1)]
            for v in range(self.k):
                p = own[v] if v == x else other[v]
                row = [r * (1 - p) for r in row] + [r * p for r in row]
            rows.append(tuple(row))
        return Channel(tuple(range(1 << self.k)), tuple(rows))
