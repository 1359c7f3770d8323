"""Permanent plus instantaneous chains: randomise once for life, then once per report."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, ceil_threshold, check_epsilon, exp_bounds, float_above, log_upper
from ldp.core.longitudinal import Devices, Longitudinal
from ldp.core.mechanism import Codes, FrequencyOracle, check_threshold, two_valued
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.krr import KRR, krr_channel
from ldp.mechanisms.frequency.unary import UnaryEncoding, bits_channel
from ldp.mechanisms.tools.bits import toss_row, toss_rows


class _Chain(Longitudinal, FrequencyOracle):
    """Base of the chains: a memo per category, and a permanent round that sets the code's form."""

    @property
    @abstractmethod
    def permanent_round(self) -> KRR | UnaryEncoding:
        """The mechanism that draws a memo; its epsilon is `memo_epsilon`."""

    @property
    def memo_limit(self) -> int:
        return self.k

    def _memo_ratio(self) -> Fraction:
        return self.permanent_round._worst_ratio()

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return self.permanent_round.code_dtype

    @property
    def code_shape(self) -> tuple[int, ...]:
        return self.permanent_round.code_shape

    def _check_codes(self, codes: Codes) -> None:
        self.permanent_round._check_codes(codes)

    def _counted(self, codes: Codes) -> Tally:
        return self.permanent_round._counted(codes)

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        return self.permanent_round._supported(codes, value)

    def memo_key(self, device: bytes, value: int) -> int:
        return self._check_value(value)

    def memoize_many(self, devices: Devices, values: ArrayLike, coins: Coins) -> Codes:
        return self.permanent_round.randomize_many(self._check_values(values), coins)


@dataclass(frozen=True)
class KRRChain(_Chain):
    """L-GRR: k-RR drawn once per category and kept, then k-RR of it for each report.

    `permanent` and `instantaneous` are the two rounds' `KRR.resample`; `calibrate` computes
    them. A chain of two k-RR is a k-RR: its keep probabilities multiply.
    Guarantee: one report is epsilon-LDP, any number of reports of a category that never changes
    `memo_epsilon`-LDP; d distinct categories cost d times that between lives whose categories
    repeat at the same times ONLY (a, b, a and c, d, c), and any two lives
    `epsilon_of_any_lives`, which grows with the reports.
    Cost: one code of 1, 2 or 4 bytes; a memo takes as many.
    Raises `InvalidInput` unless 2 <= k <= 2**32 and both rounds add noise.
    Source: Arcolezi, Couchot, Al Bouna and Xiao, "Improving the utility of locally
    differentially private protocols for longitudinal and multidimensional frequency
    estimates", DCN 2022. Its second round is mis-calibrated for k > 2: with k = 5 and
    lifetime 2, "epsilon 1" delivers .860. Here epsilon is met exactly.
    """

    name: ClassVar[str] = "krr_chain"
    k: int
    epsilon: float
    permanent: int
    instantaneous: int

    @classmethod
    def calibrate(cls, k: int, epsilon: float, memo_epsilon: float) -> Self:
        """Return the chain of `epsilon` per report and `memo_epsilon` per category.

        Raises `InvalidInput` unless epsilon < memo_epsilon.
        """
        _check_rounds(epsilon, memo_epsilon)
        permanent = KRR(k, memo_epsilon).resample
        whole = k / (exp_bounds(Fraction(epsilon))[0] + k - 1)  # resample of the two together
        kept = (1 - whole) / (1 - Fraction(permanent, ONE))
        return cls(k, epsilon, permanent, ceil_threshold(1 - kept))

    def _calibrate(self) -> None:
        self._check_k(1 << 32)
        check_threshold(f"{self.name}: permanent", self.permanent)
        check_threshold(f"{self.name}: instantaneous", self.instantaneous)
        _ = self.permanent_round, self.instantaneous_round  # each checks itself

    @cached_property
    def permanent_round(self) -> KRR:
        return _krr(self.k, self.permanent)

    @cached_property
    def instantaneous_round(self) -> KRR:
        """The mechanism that turns a memo into a report; alone it protects nothing for life."""
        return _krr(self.k, self.instantaneous)

    @property
    def instantaneous_epsilon(self) -> float:
        return self.instantaneous_round.realised_epsilon

    def _worst_ratio(self) -> Fraction:
        p, q = self.support
        return p / q

    @property
    def named(self) -> tuple[int, int]:
        return 1, 1

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        kept = (1 - Fraction(self.permanent, ONE)) * (1 - Fraction(self.instantaneous, ONE))
        q = (1 - kept) / self.k
        return kept + q, q

    def memoize(self, device: bytes, value: int, coins: Coins) -> int:
        self._devices(device)
        return self.permanent_round.randomize(self._check_value(value), coins)

    def report(self, memo: int, coins: Coins) -> int:
        return self.instantaneous_round.randomize(memo, coins)

    def randomize(self, value: int, coins: Coins) -> int:
        return self.report(self.memoize(b"", value, coins), coins)

    def report_many(self, memos: Codes, coins: Coins) -> Codes:
        return self.instantaneous_round.randomize_many(memos, coins)

    def matrix(self) -> NDArray[np.float64]:
        return two_valued(self.k, *self.support)

    def channel(self) -> Channel:
        """Enumerate the k x k channel of one report."""
        return krr_channel(self.k, *self.support)


@dataclass(frozen=True)
class UnaryChain(_Chain):
    """Unary encoding drawn once per category and kept, then its bits flipped for each report.

    `permanent` and `instantaneous` are pairs (own, other): a bit that is 1 stays 1 with
    own / 2**64, one that is 0 becomes 1 with other / 2**64. `l_sue`, `l_oue` and `l_osue`
    compute them.
    Guarantee: one report is epsilon-LDP, any number of reports of a category that never changes
    `memo_epsilon`-LDP; d distinct categories cost d times that between lives whose categories
    repeat at the same times ONLY (a, b, a and c, d, c), and any two lives
    `epsilon_of_any_lives`, which grows with the reports.
    Cost: ceil(k / 8) bytes; a memo takes as many.
    Raises `InvalidInput` unless 2 <= k <= 2**20 and 0 < other < own < 2**64 in both rounds.
    Source: Erlingsson, Pihur and Korolova, CCS 2014 (L-SUE with one hash is basic RAPPOR);
    Arcolezi et al., DCN 2022. The variance published for the chain holds at f = 0 only.
    """

    name: ClassVar[str] = "unary_chain"
    k: int
    epsilon: float
    permanent: tuple[int, ...]
    instantaneous: tuple[int, ...]

    @classmethod
    def l_sue(cls, k: int, epsilon: float, memo_epsilon: float) -> Self:
        """Return the chain of two symmetric rounds: the report's channel is SUE(epsilon)."""
        _check_rounds(epsilon, memo_epsilon)
        first = UnaryEncoding.symmetric(k, memo_epsilon)
        return cls._weakest(first, epsilon, _symmetric)

    @classmethod
    def l_oue(cls, k: int, epsilon: float, memo_epsilon: float) -> Self:
        """Return the chain of two rounds that keep a 1 with probability 1/2.

        Two such rounds lose much of a true 1, so epsilon must stay below
        ln((2 e**memo_epsilon + 1) / 3); raises `InvalidInput` otherwise. `l_osue` has no
        such limit and less variance.
        """
        _check_rounds(epsilon, memo_epsilon)
        first = UnaryEncoding(k, memo_epsilon)
        return cls._weakest(first, epsilon, lambda other: (ONE // 2, other))

    @classmethod
    def l_osue(cls, k: int, epsilon: float, memo_epsilon: float) -> Self:
        """Return OUE followed by a symmetric round: the report's channel is OUE(epsilon).

        So the memo costs no accuracy at all.
        """
        _check_rounds(epsilon, memo_epsilon)
        return cls._weakest(UnaryEncoding(k, memo_epsilon), epsilon, _symmetric)

    @classmethod
    def _weakest(
        cls, first: UnaryEncoding, epsilon: float, second: Callable[[int], tuple[int, int]]
    ) -> Self:
        """Return the chain with the least `other` in its second round that keeps epsilon."""
        permanent = first.own, first.other
        limit = exp_bounds(Fraction(epsilon))[0]
        low, high = 0, ONE // 2  # the ratio falls with `other`, to 1 where it equals `own`
        while high - low > 1:
            middle = (low + high) // 2
            if odds_ratio(*chained(permanent, second(middle))) <= limit:
                high = middle
            else:
                low = middle
        if low == 0:
            most = log_upper(odds_ratio(*chained(permanent, second(0))))
            raise InvalidInput(
                f"{cls.name}: epsilon must be below {most:.6g} for these rounds, got {epsilon:g}"
            )
        return cls(first.k, epsilon, permanent, second(high))

    def _calibrate(self) -> None:
        check_round(f"{self.name}: permanent", self.permanent)
        check_round(f"{self.name}: instantaneous", self.instantaneous)
        _ = self.permanent_round  # it checks itself, and k

    @cached_property
    def permanent_round(self) -> UnaryEncoding:
        own, other = self.permanent
        ratio = odds_ratio(Fraction(own, ONE), Fraction(other, ONE))
        return UnaryEncoding(self.k, log_upper(ratio), own, other)

    @property
    def instantaneous_epsilon(self) -> float:
        """The epsilon of one bit times k, because two memos may differ in all k bits."""
        return bits_epsilon(self.k, self.instantaneous)

    def _worst_ratio(self) -> Fraction:
        return odds_ratio(*self.support)

    @property
    def named(self) -> tuple[int, int]:
        return 0, self.k

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        return chained(self.permanent, self.instantaneous)

    def memoize(self, device: bytes, value: int, coins: Coins) -> Codes:
        self._devices(device)
        return self.permanent_round.randomize(self._check_value(value), coins)

    def randomize(self, value: int, coins: Coins) -> Codes:
        memo = self.permanent_round.randomize(self._check_value(value), coins)
        return flip_row(memo, self.k, self.instantaneous, coins)

    def _report(self, memo: Codes, coins: Coins) -> Codes:
        return flip_row(memo, self.k, self.instantaneous, coins)

    def report_many(self, memos: Codes, coins: Coins) -> Codes:
        return flip_bits(memos, self.k, self.instantaneous, coins)

    def channel(self) -> Channel:
        """Enumerate the k x 2**k channel of one report."""
        return bits_channel(self.k, *self.support)


def chained(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[Fraction, Fraction]:
    """Return the probabilities of a 1 from a 1, and from a 0, after two rounds (own, other)."""
    own, other = Fraction(second[0], ONE), Fraction(second[1], ONE)
    p, q = (Fraction(threshold, ONE) for threshold in first)
    return p * own + (1 - p) * other, q * own + (1 - q) * other


def flip_bits(rows: Codes, columns: int, pair: tuple[int, ...], coins: Coins) -> Codes:
    """Return packed rows, shape (n, width), after a round (own, other), each bit on its own."""
    own, other = pair
    drawn = toss_rows(coins, other, len(rows), columns)
    if own + other == ONE:  # a symmetric round needs one coin a bit
        return rows ^ drawn
    flipped: Codes = rows & toss_rows(coins, own, len(rows), columns) | ~rows & drawn
    return flipped


def flip_row(row: Codes, columns: int, pair: tuple[int, ...], coins: Coins) -> Codes:
    """Return one packed row, shape (width,), as `flip_bits` does, for one report."""
    own, other = pair
    drawn = toss_row(coins, other, columns)
    if own + other == ONE:
        return row ^ drawn
    flipped: Codes = row & toss_row(coins, own, columns) | ~row & drawn
    return flipped


def odds_ratio(p: Fraction, q: Fraction) -> Fraction:
    """Return the factor that one pair of differing bits has in the worst-case ratio."""
    return p * (1 - q) / ((1 - p) * q)


def bits_epsilon(bits: int, pair: tuple[int, ...]) -> float:
    """Return the epsilon, rounded up, of a round (own, other) over rows of `bits` bits."""
    own, other = pair
    ratio = max(Fraction(own, other), Fraction(ONE - other, ONE - own))
    return float_above(bits * Fraction(log_upper(ratio)))


def check_round(name: str, pair: tuple[int, ...]) -> None:
    """Raise `InvalidInput` unless a round is (own, other) with 0 < other < own < 2**64."""
    if len(pair) != 2:
        raise InvalidInput(f"{name} is a pair (own, other), got {pair}")
    check_threshold(f"{name} own", pair[0])
    check_threshold(f"{name} other", pair[1])
    if pair[1] >= pair[0]:
        raise InvalidInput(f"{name} other must be below own, got {pair}")


def _symmetric(other: int) -> tuple[int, int]:
    return ONE - other, other


def _krr(k: int, resample: int) -> KRR:
    return KRR(k, log_upper(1 + Fraction(k * (ONE - resample), resample)), resample)


def _check_rounds(epsilon: float, memo_epsilon: float) -> None:
    if check_epsilon(epsilon) >= check_epsilon(memo_epsilon, "memo_epsilon"):
        raise InvalidInput(
            f"epsilon of one report must be below memo_epsilon {memo_epsilon:g}, got {epsilon:g}"
        )
