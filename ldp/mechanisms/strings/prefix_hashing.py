"""Prefix hashing: words of an open dictionary, as hashed prefixes of a few lengths."""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, exp_bounds
from ldp.core.mechanism import Codes, Mechanism
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.krr import KRR
from ldp.mechanisms.strings.spelling import BITS, Numbers, Spelling
from ldp.mechanisms.tools.bits import parity
from ldp.mechanisms.tools.sampling import draw_many, thresholds

MAX_BUCKETS = 1 << 8
MAX_GROUPS = 16

STEP = 4
"""The letters by which the prefixes of one group are longer than those of the group before: all
words of so many letters can be looked for at once."""

_GAMMA, _MIX = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_SHIFTS = (30, 27, 31)

_BLOCK = 1 << 14
"""Reports per block: as many as fit a core's cache."""


@dataclass(frozen=True)
class PrefixHashing(Mechanism):
    """Report a random hash function of a prefix of the word and, by k-RR, the prefix's bucket.

    A word is given as the integer of `spelling`: 5 bits a letter, the first one lowest. A report
    draws a group with chances[i] / 2**64, and keeps the first lengths[i] letters of the word.
    It draws a seed of 32 bits, from which splitmix64 makes 64-bit rows r_1, ..., r_t. The bucket,
    one of 2**t, has as bit i - 1 the parity of r_i AND the prefix, and is randomised by k-RR.
    A code is the group, the seed and the randomised bucket: it supports the prefixes that have this
    bucket. Over random rows two different prefixes share a bucket with probability 2**-t, whether
    the rows are independent or not, so that a report supports its own prefix with p of k-RR and any
    other with exactly q = 2**-t (`support`). Over the seeds that is so but for about 10**-5 of it.
    Without integers the groups have equal chances, and the buckets, at most 256, are those of least
    variance, next to e**epsilon + 1.
    The tally counts reports by group, and the parameters are the groups' shares. Words are found
    and estimated from the reports themselves, by `ldp.estimating.discovery`.
    Guarantee: epsilon-LDP for every pair of words: group and seed are drawn without regard to the
    word, and given them the bucket is k-RR's, whatever the rows.
    Cost: 6 bytes a report.
    Raises `InvalidInput` unless the alphabet has 1 to 31 letters, there are 2 to 16 lengths in
    1..12, none below the one before it, and buckets is a power of two in 2..256.
    Source: hashing by random parities is Carter and Wegman's H_3, JCSS 18(2), 1979; groups of
    prefix lengths are those of PEM, Wang, Li and Jha, IEEE TDSC 18(2), 2021; the rest is optimised
    local hashing, Wang, Blocki, Li and Jha, USENIX Security 2017. splitmix64: Steele, Lea and
    Flood, OOPSLA 2014.
    """

    name: ClassVar[str] = "prefix_hashing"
    seeds: ClassVar[int] = 1 << 32
    alphabet: tuple[int, ...]
    lengths: tuple[int, ...]
    epsilon: float
    chances: tuple[int, ...] = ()
    buckets: int = 0
    resample: int = 0

    @classmethod
    def over(cls, alphabet: str, longest: int, epsilon: float) -> Self:
        """Return the mechanism for words to be found, whose groups see 4, 8 and 12 letters.

        Words of at most 4 letters are seen whole by everybody, in two groups of one length.
        """
        steps = [min(length, longest) for length in range(STEP, longest + STEP, STEP)]
        return cls(_points(alphabet), tuple(steps if len(steps) > 1 else steps * 2), epsilon)

    @classmethod
    def whole(cls, alphabet: str, longest: int, epsilon: float) -> Self:
        """Return the mechanism for words of a list: all reports see the whole word."""
        return cls(_points(alphabet), (longest, longest), epsilon)

    def _calibrate(self) -> None:
        lengths = self.lengths
        if not 2 <= len(lengths) <= MAX_GROUPS or list(lengths) != sorted(lengths):
            raise InvalidInput(
                f"{self.name}: there are 2 to {MAX_GROUPS} lengths, none below the one before "
                f"it, got {list(lengths)}"
            )
        Spelling(self.alphabet, lengths[0], self.name)
        _ = self.spelling
        if not self.chances:
            others = len(lengths) - 1  # the first chance takes what is left by rounding
            chances = (ONE - others * (ONE // len(lengths)), *[ONE // len(lengths)] * others)
            object.__setattr__(self, "chances", chances)
        if len(self.chances) != len(lengths):
            raise InvalidInput(
                f"{self.name}: each of the {len(lengths)} lengths has one chance, "
                f"got {len(self.chances)}"
            )
        _ = self._limits  # checks the chances
        if self.buckets == 0:
            object.__setattr__(self, "buckets", best_buckets(self.epsilon))
        if not 2 <= self.buckets <= MAX_BUCKETS or self.buckets & self.buckets - 1:
            raise InvalidInput(
                f"{self.name}: buckets must be a power of two in 2..{MAX_BUCKETS}, "
                f"got {self.buckets}"
            )
        if self.resample == 0:
            object.__setattr__(self, "resample", self._krr.resample)

    @cached_property
    def spelling(self) -> Spelling:
        """How words are written as the integers that the mechanism takes."""
        return Spelling(self.alphabet, self.lengths[-1], self.name)

    @cached_property
    def _krr(self) -> KRR:
        return KRR(self.buckets, self.epsilon, self.resample)

    @cached_property
    def _limits(self) -> NDArray[np.uint64]:
        return thresholds(self.name, self.chances)

    def _worst_ratio(self) -> Fraction:
        return self._krr._worst_ratio()

    @property
    def variation(self) -> Fraction:
        return self._krr.support[0] - self._krr.support[1]  # less by the seeds of one bucket

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        """Return (p, q): the probabilities that a report supports its own prefix, and another."""
        return self._krr.support[0], Fraction(1, self.buckets)

    @property
    def rows(self) -> int:
        """The number t of rows, one for each bit of a bucket."""
        return self.buckets.bit_length() - 1

    @cached_property
    def masks(self) -> Numbers:
        """The bits of each group's prefixes, shape (groups,)."""
        return np.array([(1 << BITS * length) - 1 for length in self.lengths], dtype=np.uint64)

    # --- randomising -----------------------------------------------------------------------

    def randomize(self, value: int, coins: Coins) -> Any:
        value = self.spelling.check(value)
        group = int(draw_many(self._limits, 1, coins)[0])
        seed = coins.below(self.seeds)
        prefix = value & (1 << BITS * self.lengths[group]) - 1
        bits = ((_row(seed, i) & prefix).bit_count() & 1 for i in range(self.rows))
        bucket = sum(bit << i for i, bit in enumerate(bits))
        code = group, seed, self._krr.randomize(bucket, coins)
        return np.array(code, dtype=self.code_dtype)[()]

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        words = self.spelling.check_many(values)
        codes = np.empty(words.size, dtype=self.code_dtype)
        for start in range(0, words.size, _BLOCK):
            block = codes[start : start + _BLOCK]
            groups = draw_many(self._limits, block.size, coins)
            seeds = coins.below_many(self.seeds, block.size)
            prefixes = words[start : start + _BLOCK] & self.masks[groups]
            bucket = self.hashed(seeds, prefixes)
            block["group"], block["seed"] = groups, seeds
            block["bucket"] = self._krr.randomize_many(bucket, coins)
        return codes

    def hashed(self, seeds: NDArray[np.uint32], prefixes: Numbers) -> NDArray[np.uint8]:
        """Return the bucket of each prefix under the function of its seed, shape (n,)."""
        buckets = np.zeros(len(seeds), dtype=np.uint8)
        for i, row in enumerate(self.each_row(seeds)):
            buckets |= parity(row & prefixes) << np.uint8(i)
        return buckets

    def each_row(self, seeds: NDArray[np.uint32]) -> Iterator[Numbers]:
        """Yield r_1, ..., r_t of the seeds, each of shape (n,)."""
        state = seeds.astype(np.uint64)
        for _ in range(self.rows):
            state += np.uint64(_GAMMA)
            yield _mixed(state)

    # --- the wire --------------------------------------------------------------------------

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return np.dtype([("group", "u1"), ("seed", "<u4"), ("bucket", "u1")])

    def _check_codes(self, codes: Codes) -> None:
        limits = ("group", len(self.lengths)), ("seed", self.seeds), ("bucket", self.buckets)
        for part, limit in limits:
            if codes.size and codes[part].max() >= limit:
                raise InvalidInput(
                    f"a {self.name} {part} must be below {limit}, got {codes[part].max()}"
                )

    # --- estimating ------------------------------------------------------------------------

    @property
    def tally_size(self) -> int:
        return len(self.lengths)

    def _counted(self, codes: Codes) -> Tally:
        return Tally(len(codes), np.bincount(codes["group"], minlength=self.tally_size))

    def each_counted(self, codes: Codes) -> NDArray[np.int64]:
        return np.asarray(codes["group"][:, np.newaxis] == np.arange(self.tally_size), np.int64)

    def evidence(self, codes: Codes, value: int) -> NDArray[np.int64]:
        """Return 1 for each code that supports the word's prefix, else 0, shape (n,)."""
        prefixes = np.uint64(self.spelling.check(value)) & self.masks[codes["group"]]
        return np.asarray(self.hashed(codes["seed"], prefixes) == codes["bucket"], np.int64)

    @property
    def parameters(self) -> int:
        return len(self.lengths)

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, 1.0

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        """Return the share of the reports of each group, which tells nothing of words."""
        return tally.counts / tally.n

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        shares = np.asarray(truth, dtype=float)
        return np.asarray(shares * (1 - shares) / n)

    def words(self) -> Iterator[int]:
        """Yield the integers of all words, the shortest first: the inputs of `channel`."""
        for length in range(1, self.lengths[-1] + 1):
            for word in product(self.spelling.letters, repeat=length):
                yield self.spelling.number("".join(word))

    def channel(self) -> Channel:
        """Enumerate the channel; an output is a code's group, seed and bucket.

        With 2**32 seeds it is too large: tests enumerate a mechanism with fewer `seeds`.
        """
        outputs = len(self.lengths) * self.seeds * self.buckets
        inputs = sum(len(self.alphabet) ** length for length in range(1, self.lengths[-1] + 1))
        if max(inputs, outputs, inputs * outputs >> 4) > MAX_OUTPUTS:
            raise InvalidInput(
                f"a channel of {inputs} words and {outputs} codes is too large to enumerate"
            )
        seeds = np.arange(self.seeds, dtype=np.uint32)
        p, other = self._krr.support
        chances = [Fraction(chance, ONE * self.seeds) for chance in self.chances]
        rows = []
        for word in self.words():
            prefixes = np.uint64(word) & self.masks
            own = [self.hashed(seeds, np.full(seeds.size, each)).tolist() for each in prefixes]
            rows.append(
                tuple(
                    chance * (p if y == bucket else other)
                    for chance, buckets in zip(chances, own, strict=True)
                    for bucket in buckets
                    for y in range(self.buckets)
                )
            )
        every = product(range(len(self.lengths)), range(self.seeds), range(self.buckets))
        return Channel(tuple(every), tuple(rows))


def best_buckets(epsilon: float) -> int:
    """Return the power of two up to 256 of least variance for rare words.

    With g buckets it is proportional to (e**epsilon + g - 1)**2 / (g - 1): g below 2 g where
    e**(2 epsilon) <= (g - 1)(2 g - 1).
    """
    squared = exp_bounds(2 * Fraction(epsilon))[0]
    buckets = 2
    while buckets < MAX_BUCKETS and squared > (buckets - 1) * (2 * buckets - 1):
        buckets *= 2
    return buckets


def _points(alphabet: str) -> tuple[int, ...]:
    if not isinstance(alphabet, str):
        raise InvalidInput(f"an alphabet is a string of its letters, got {alphabet!r}")
    return tuple(map(ord, alphabet))


def _row(seed: int, index: int) -> int:
    """Return output `index` of splitmix64 from a seed, the first one being 0."""
    z = (seed + (index + 1) * _GAMMA) % ONE
    for shift, factor in zip(_SHIFTS, _MIX, strict=False):
        z = (z ^ z >> shift) * factor % ONE
    return z ^ z >> _SHIFTS[-1]


def _mixed(state: Numbers) -> Numbers:
    """Return splitmix64's outputs for states that are already stepped, shape (n,)."""
    z = state.copy()
    for shift, factor in zip(_SHIFTS, _MIX, strict=False):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(_SHIFTS[-1])
    return z
