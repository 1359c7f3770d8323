"""Threshold set selection: a random set of items, which likelier shares some with the own set."""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, include_threshold
from ldp.core.mechanism import Codes, check_below, check_threshold, integer_dtype
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.sets.base import MAX_MEMBERS, NONE, SetMechanism
from ldp.mechanisms.tools.distinct import distinct_many
from ldp.mechanisms.tools.subset_codes import SubsetCodes

MAX_LARGEST = 1 << 10
"""The most items of one set: a report's chances are exact sums of as many binomials."""

MAX_SIZE = 1 << 12
"""The most members of a report: a client computes with binomials of so many factors."""

_PATIENCE = 12
"""Sizes of a report that may be worse in a row before the search for the best one ends."""

_MOST_PAIR = 10.0
"""How many times the least variance of a pair is taken for a smaller one of an item."""

_FEW_FACTORS = 1 << 14
"""Factors of products of binomials that are added up exactly: a plan must not choose how long a
client computes."""

_BLOCK = 1 << 14
"""Sets that are randomised together."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SetSelection(SubsetCodes, SetMechanism):
    """Report `size` of the items + most members, likelier so if `meet` of them are in one's set.

    A set of a items is filled up with the dummies items, ..., items + most - a - 1, in order, so
    that every set has `most` members. A report Z of `size` members has a chance that is e**epsilon
    times as large if Z and the set share `meet` members as if they share fewer: with include /
    2**64 it is uniform among the former ("a hit"), else among the latter. As every set has equally
    many members, there are equally many hits for each.
    Without integers `size` and `meet` have the least variance of an item that a share of
    most / (2 items) of the people have. `size` 1 is PSFO with k-RR; `meet` 1 is PrivSet.
    Guarantee: epsilon-LDP for every two sets, of whatever sizes; with hi hits and lo others,
    e**realised_epsilon = include lo / ((2**64 - include) hi) <= e**epsilon.
    The dummies tell how many items people have: dummy j is in the sets of most - 1 - j items and
    fewer (`ldp.estimating.sets`).
    Cost: an integer of items + most for `size` 1, else a mask of ceil((items + most) / 8) bytes or
    `size` sorted indices of 1 or 2 bytes, whichever is shorter; a tally has items + most counts.
    Raises `InvalidInput` unless 1 <= most <= items, most <= 2**10, items + most <= 2**16,
    1 <= meet <= size <= 2**12, meet <= most, size - meet < items, and hits are likelier than
    they are among all reports.
    Source: Wang, Huang, Nie, Wang, Xu and Yang, "PrivSet: set-valued data analyses with locale
    differential privacy", INFOCOM 2018, for meet = 1; the threshold, `size` and the dummies in
    order are ours.
    """

    name: ClassVar[str] = "set_selection"
    noun = "members"
    items: int
    epsilon: float
    most: int
    size: int = 0
    meet: int = 0
    include: int = 0

    def _calibrate(self) -> None:
        if not (1 <= self.most <= min(self.items, MAX_LARGEST) and self.tally_size <= MAX_MEMBERS):
            raise InvalidInput(
                f"{self.name}: 1 <= most <= items, most <= {MAX_LARGEST} and items + most <= "
                f"{MAX_MEMBERS} are expected, got {self.items} items and most = {self.most}"
            )
        if self.size == 0 and self.meet == 0:
            size, meet = best_sizes(self.items, self.most, self.epsilon)
            object.__setattr__(self, "size", size)
            object.__setattr__(self, "meet", meet)
        if not (
            1 <= self.meet <= min(self.size, self.most)
            and self.size <= MAX_SIZE
            and self.size - self.meet < self.items
        ):
            raise InvalidInput(
                f"{self.name}: 1 <= meet <= size <= {MAX_SIZE}, meet <= most = {self.most} and "
                f"size - meet < items = {self.items} are expected, got size = {self.size} and "
                f"meet = {self.meet}"
            )
        hits, others = self._hits, self._others
        if self.include == 0:
            include = include_threshold(hits, others, self.epsilon)
            object.__setattr__(self, "include", include)
        check_threshold(f"{self.name}: include", self.include)
        if self.include * (hits + others) <= hits * ONE:
            raise InvalidInput(
                f"{self.name}: include must exceed 2**64 times the share of hits among all "
                f"reports, got {self.include}"
            )

    def _worst_ratio(self) -> Fraction:
        return Fraction(self.include * self._others, (ONE - self.include) * self._hits)

    @property
    def variation(self) -> Fraction:
        """The total variation of two sets without a common member, as are a full one and the empty
        one; a bound on it where reports are large."""
        hit, other = Fraction(self.include, self._hits), Fraction(ONE - self.include, self._others)
        return (hit - other) * self._apart / ONE

    @cached_property
    def _apart(self) -> int:
        """How many reports are hits of one set and not of another that has no member in common."""
        if self.meet * self.most * self.size > _FEW_FACTORS:
            return self._hits
        m, k, rest = self.most, self.size, self.items - self.most
        found = 0
        for j in range(self.meet, min(m, k) + 1):
            others = sum(
                math.comb(m, i) * math.comb(rest, k - j - i)
                for i in range(min(self.meet, k - j + 1))
            )
            found += math.comb(m, j) * others
        return found

    @property
    def tally_size(self) -> int:
        return self.items + self.most

    @property
    def largest(self) -> int:
        return self.most

    @classmethod
    def pairing(cls, items: int, epsilon: float, most: int) -> "SetSelection":
        """Return a mechanism whose reports tell pairs of items.

        It is the one of least variance of an item, of reports with two members at least. Where a
        pair's variance is then more than `_MOST_PAIR` times as large as with a threshold of one
        member, or of all that a set has, it is the one of these with the least variance of a pair.
        Raises `InvalidInput` for fewer than two items, and sets of one.
        """
        if min(items, most) < 2:
            raise InvalidInput(
                f"pairs are of two items of a set, got {items} items and sets of {most}"
            )
        sizes = [best_sizes(items, most, epsilon, 2)]
        sizes += [best_sizes(items, most, epsilon, 2, (meet,)) for meet in (1, most)]
        tried = [cls(items, epsilon, most, *each) for each in dict.fromkeys(sizes)]
        share = most / (2 * items)
        variances = [float(each.pair_variance(share, share, share**2)) for each in tried]
        least = min(variances)
        return tried[0 if variances[0] <= _MOST_PAIR * least else variances.index(least)]

    # --- chances -------------------------------------------------------------------------------

    @cached_property
    def _shared(self) -> dict[int, int]:
        """How many reports share so many members with a set, by their number."""
        found = {}
        first = max(0, self.size - self.items)
        number = math.comb(self.most, first) * math.comb(self.items, self.size - first)
        for j in range(first, min(self.most, self.size) + 1):
            found[j] = number
            # C(m, j + 1) C(d, k - j - 1) from C(m, j) C(d, k - j): quicker than two binomials.
            number = number * (self.most - j) * (self.size - j)
            number //= (j + 1) * (self.items - self.size + j + 1)
        return found

    @cached_property
    def _hits(self) -> int:
        return sum(number for j, number in self._shared.items() if j >= self.meet)

    @cached_property
    def _others(self) -> int:
        return sum(number for j, number in self._shared.items() if j < self.meet)

    @cached_property
    def _sides(self) -> tuple[tuple[list[int], list[int]], ...]:
        """The numbers of shared members of other reports, and of hits, each in increasing order
        with the running total of reports."""
        sides = []
        for hit in (False, True):
            some = {j: n for j, n in self._shared.items() if (j >= self.meet) == hit}
            sides.append((list(some), list(accumulate(some.values()))))
        return tuple(sides)

    @cached_property
    def _chances(self) -> dict[int, Fraction]:
        """The chance that a report shares so many members with the set, by their number."""
        p = Fraction(self.include, ONE)
        return {
            j: p * Fraction(n, self._hits)
            if j >= self.meet
            else (1 - p) * Fraction(n, self._others)
            for j, n in self._shared.items()
        }

    @cached_property
    def support(self) -> tuple[Fraction, Fraction]:
        """Return the chances that a report has a given member of the set, and another one."""
        mean = sum((j * chance for j, chance in self._chances.items()), Fraction(0))
        return mean / self.most, (self.size - mean) / self.items

    @cached_property
    def pair_support(self) -> tuple[float, float, float]:
        """The chances that a report has both of two given members, none, one or both of which are
        in the set: (pi_0, pi_1, pi_2). pi_2 is 0 where a set has one member, pi_0 where there is
        one item."""
        none, one, two = self._pair_support
        return float(none), float(one), float(two)

    @cached_property
    def tells_pairs(self) -> bool:
        """Whether reports tell which items go together: they and sets have two members at least,
        and pi_2 - 2 pi_1 + pi_0 is not 0. It is 0 at every epsilon of some sizes, such as reports
        of 4, with 2 shared members, about three items and sets of two."""
        return min(self.size, self.most) > 1 and self.pair_gain != 0

    @cached_property
    def pair_gain(self) -> float:
        """pi_2 - 2 pi_1 + pi_0, of exact chances: it is near 0 where reports hardly tell pairs."""
        none, one, two = self._pair_support
        return float(two - 2 * one + none)

    @cached_property
    def pair_slope(self) -> float:
        """(pi_1 - pi_0) / (p - q): what one of two items in the set adds to a report's chance of
        both, by what it adds to that of the item."""
        none, one, _ = self.pair_support
        return (one - none) / self._rounded_support[1]

    @cached_property
    def _pair_support(self) -> tuple[Fraction, Fraction, Fraction]:
        k, m, d = self.size, self.most, self.items
        none = one = two = Fraction(0)
        for j, chance in self._chances.items():
            none += chance * (k - j) * (k - j - 1)
            one += chance * j * (k - j)
            two += chance * j * (j - 1)
        return none / max(1, d * (d - 1)), one / (m * d), two / max(1, m * (m - 1))

    def pair_variance(self, f: ArrayLike, g: ArrayLike, both: ArrayLike) -> Floats:
        """Return the variance of one report's estimate of the share of people who have both of two
        items, which shares `f` and `g` have; inf where reports do not tell pairs.

        The estimate is (1{u, v in Z} - pi_0 - b (1{u in Z} + 1{v in Z} - 2 q)) / (pi_2 - 2 pi_1 +
        pi_0) of a report Z, with b = (pi_1 - pi_0) / (p - q): unbiased for 1{u, v in S}.
        """
        f, g, truth = (np.asarray(x, dtype=float) for x in (f, g, both))
        if not self.tells_pairs:
            return np.full(np.broadcast_shapes(f.shape, g.shape, truth.shape), math.inf)
        q, gain = self._rounded_support
        none, one, two = self.pair_support
        slope = self.pair_slope
        joint = none + (one - none) * (f + g - 2 * truth) + (two - none) * truth
        either = 2 * q + gain * (f + g)
        # The square of 1{u, v} - b (1{u} + 1{v}), whose products are 1{u, v} again.
        square = joint * (1 - 4 * slope + 2 * slope**2) + slope**2 * either
        found: Floats = np.maximum(square - (joint - slope * either) ** 2, 0) / self.pair_gain**2
        return found

    # --- randomising ---------------------------------------------------------------------------

    def randomize(self, value: Any, coins: Coins) -> Any:
        own = self._check_set(value)
        own.extend(range(self.items, self.items + self.most - len(own)))
        numbers, totals = self._sides[coins.bernoulli(self.include)]
        shared = numbers[bisect_right(totals, coins.below(totals[-1]))]
        members = [own[place] for place in coins.distinct(self.most, shared)]
        others = coins.distinct(self.items, self.size - shared)
        for member in own:  # positions among the others become members
            others += others >= member
        if self.size == 1:
            return int(others[0]) if others.size else members[0]
        if not self._masked:
            return np.sort(np.concatenate([others, members])).astype(self.code_dtype)
        bits = np.zeros(self.tally_size, dtype=np.bool_)
        bits[others] = True
        bits[members] = True
        return np.packbits(bits, bitorder="little")

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        """Return one code per set; which bytes decide is not fixed, the chances are the same."""
        sets = self._check_sets(values)
        codes = np.empty((len(sets), *self.code_shape), dtype=self.code_dtype)
        for start in range(0, len(sets), _BLOCK):
            block = slice(start, start + _BLOCK)
            own = self._filled(sets[block])
            shared = self._shared_many(len(own), coins)
            for j in np.unique(shared).tolist():
                rows = np.flatnonzero(shared == j)
                codes[start + rows] = self._reports(own[rows], j, coins)
        return codes

    def _filled(self, sets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return sets with their dummies, in increasing order, shape (n, most)."""
        full = np.full((len(sets), self.most), NONE, dtype=np.int64)
        full[:, : sets.shape[1]] = sets
        counts = np.count_nonzero(full >= 0, axis=1)[:, np.newaxis]
        return np.where(full >= 0, full, self.items + np.arange(self.most) - counts)

    def _shared_many(self, n: int, coins: Coins) -> NDArray[np.int64]:
        """Return how many members each of n reports shares with its set, shape (n,)."""
        shared = np.empty(n, dtype=np.int64)
        hits = coins.bernoulli_many(self.include, n)
        for hit, (numbers, totals) in zip((False, True), self._sides, strict=True):
            rows = np.flatnonzero(hits == hit)
            # A number in [0, 1) has its first 64 bits in a word; they decide but where the word is
            # the one in which a total lies: there an integer below the total's bound decides.
            limits = np.array([ONE * total // totals[-1] for total in totals[:-1]], dtype=np.uint64)
            words = coins.words(rows.size)
            found = np.searchsorted(limits, words, side="right")
            below = np.concatenate([[np.uint64(0)], limits])[found]
            for row in np.flatnonzero((found > 0) & (words == below)).tolist():
                found[row] = self._undecided(int(words[row]), totals, coins)
            shared[rows] = np.array(numbers)[found]
        return shared

    @staticmethod
    def _undecided(word: int, totals: list[int], coins: Coins) -> int:
        """Return the place among the totals of a number whose first 64 bits are known."""
        # (word + u / totals[-1]) / 2**64 is uniform on its interval to a multiple of the finest
        # step that the totals are made of.
        number = Fraction(word * totals[-1] + coins.below(totals[-1]), ONE)
        return bisect_right(totals, number)

    def _reports(self, own: NDArray[np.int64], shared: int, coins: Coins) -> Codes:
        """Return a code for each set, shape (n, most), that shares so many members with it."""
        places = distinct_many(coins, self.most, shared, len(own))
        others = distinct_many(coins, self.items, self.size - shared, len(own))
        for member in own.T:
            others += others >= member[:, np.newaxis]
        members = np.concatenate([np.take_along_axis(own, places, axis=1), others], axis=1)
        if self.size == 1:
            return members[:, 0]
        if not self._masked:
            return np.sort(members, axis=1)
        bits = np.zeros((len(own), self.tally_size), dtype=np.bool_)
        np.put_along_axis(bits, members, True, axis=1)
        return np.packbits(bits, axis=1, bitorder="little")

    # --- the wire ------------------------------------------------------------------------------

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return integer_dtype(self.tally_size) if self.size == 1 else super().code_dtype

    @property
    def code_shape(self) -> tuple[int, ...]:
        return () if self.size == 1 else super().code_shape

    @property
    def _masked(self) -> bool:
        return self.size > 1 and super()._masked

    def _check_codes(self, codes: Codes) -> None:
        if self.size == 1:
            check_below(self.name, codes, self.tally_size)
        else:
            super()._check_codes(codes)

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        return codes == value if self.size == 1 else super()._supported(codes, value)

    # --- estimating ----------------------------------------------------------------------------

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Return how many reports have each item, shape (items,)."""
        return tally.counts[: self.items]

    def pair_covariance(self, f: ArrayLike, g: ArrayLike, both: ArrayLike, n: int) -> Floats:
        """Return the covariance of the estimates of two different members' shares.

        Shares `f` and `g` of the people have one and the other, `both` have both; the arrays
        broadcast, and dummies are members too.
        """
        none, one, two = self.pair_support
        q, gain = self._rounded_support
        f, g, both = (np.asarray(x, dtype=float) for x in (f, g, both))
        joint = both * two + (f + g - 2 * both) * one + (1 - f - g + both) * none
        found: Floats = (joint - (f * gain + q) * (g * gain + q)) / (n * gain**2)
        return found

    def channel(self) -> Channel:
        """Enumerate the channel: a row for each of `sets`, an output for each report, as a tuple of
        sorted members."""
        inputs = sum(math.comb(self.items, a) for a in range(self.most + 1))
        self._check_enumerable(inputs, self._hits + self._others)
        p = Fraction(self.include, ONE)
        hit, other = p / self._hits, (1 - p) / self._others
        outputs = tuple(combinations(range(self.tally_size), self.size))
        rows = []
        for items in self.sets():
            own = {*items, *range(self.items, self.tally_size - len(items))}
            shares = (sum(member in own for member in output) for output in outputs)
            rows.append(tuple(hit if shared >= self.meet else other for shared in shares))
        return Channel(outputs, tuple(rows))


# --- the best sizes ----------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def best_sizes(
    items: int, most: int, epsilon: float, least: int = 1, meets: Sequence[int] = ()
) -> tuple[int, int]:
    """Return the size of a report, `least` or more, and its threshold, (size, meet), of the least
    variance: of any threshold, unless some are given.

    That is the variance of an item that a share of most / (2 items) of the people have. Thresholds
    are tried from 1 until one is worse than the one before, sizes until they have been worse for a
    while. Cost: some milliseconds; a second where there are 2**16 items.
    """
    best = (math.inf, 0, 0)
    for meet in meets or range(1, most + 1):
        found = min(_tried(items, most, epsilon, meet, least), default=best)
        if found >= best:
            break
        best = found
    return best[1], best[2]


def _tried(
    items: int, most: int, epsilon: float, meet: int, at_least: int
) -> Iterator[tuple[float, int, int]]:
    """Yield the variance, the size and the threshold of sizes that may be the best."""
    least, worse = math.inf, 0
    for size in range(max(meet, at_least), min(items + meet - 1, MAX_SIZE) + 1):
        variance = planned_variance(items, most, size, meet, epsilon)
        yield variance, size, meet
        worse = 0 if variance < least else worse + 1
        least = min(least, variance)
        if worse > _PATIENCE:
            return


def planned_variance(items: int, most: int, size: int, meet: int, epsilon: float) -> float:
    """Return the variance of one report's estimate of an item that a share of most / (2 items) of
    the people have, in doubles."""
    # The number of shared members of a uniform report is hypergeometric.
    first, last = max(0, size - items), min(most, size)
    j = np.arange(first, last + 1)
    steps = np.log((most - j[:-1]) * (size - j[:-1])) - np.log(
        (j[:-1] + 1) * (items - size + j[:-1] + 1.0)
    )
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    chances = np.exp(logs - logs.max())
    chances /= chances.sum()
    e = math.exp(epsilon)
    weighted = chances * np.where(j >= meet, e, 1.0)
    mean = float((j * weighted).sum() / weighted.sum())
    p, q = mean / most, (size - mean) / items
    s = q + most / (2 * items) * (p - q)
    return s * (1 - s) / (p - q) ** 2 if p > q else math.inf
