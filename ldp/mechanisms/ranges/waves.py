"""Waves: shifted patterns of bins, for shares of ranges, in one and two dimensions."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, include_threshold
from ldp.core.mechanism import Categorical, Codes, Counted, check_threshold
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.ranges import wave_design
from ldp.mechanisms.ranges.cyclic import CyclicChannel, convolved, gram, mirrored
from ldp.mechanisms.ranges.wave_design import GAP, MAX_CODES, range_weights, spectra
from ldp.mechanisms.tools.sampling import draw_many, thresholds

Floats = NDArray[np.float64]

MAX_BINS = 256

_DENSE = 1 << 20
"""The most entries of a channel matrix that is given; with more the moments are enough."""

_BLOCK = 1 << 14
"""Reports per block: as many as fit a core's cache."""

_GUIDE = 16
"""Leading bits of a word that mostly tell which pattern it draws."""


@dataclass(frozen=True)
class Waves(Counted, Categorical):
    """Report a shifted pattern of bins, in which the own bin is likelier than another.

    There are k bins: `sides` = (k,), in order; or in two dimensions (rows, columns), and bin
    columns r + c. `masks` has the patterns as bits: of ceil(k / 64) words each, bin v is bit
    v % 64 of word v // 64. A pattern j is drawn with chances[j] / 2**64; then with
    include[j] / 2**64 one of its bins u, else one of the others, uniformly. Reported are j and
    the shift s = x - u, modulo each side, as the code k j + s. So the own bin x is in the pattern
    shifted by s with probability include / 2**64.
    Without integers the patterns are `wave_design.design`'s, those of least variance for the
    shares of ranges that are found; `variance` and `covariance` are exact.
    Guarantee: epsilon-LDP for every pair of bins. A pattern of w bins realises
    include (k - w) / ((2**64 - include) w) <= e**epsilon, whatever its chance.
    Cost: one code of 1 or 2 bytes; patterns k counts, at most 2**15, in a tally; a report takes
    three draws. Estimates need a few Fourier transforms, covariances k of them.
    Raises `InvalidInput` unless there are 2 to 256 bins in one or two dimensions, 2 or more
    patterns, none of them empty or full, whose chances sum to 2**64, which together tell all
    bins apart.
    Source: derived for this library; the frequency-domain view is that of Haar and hierarchical
    mechanisms (Cormode, Kulkarni and Srivastava, "Answering range queries under local
    differential privacy", VLDB 2019), which waves replace.
    """

    name: ClassVar[str] = "waves"
    sides: tuple[int, ...]
    epsilon: float
    masks: tuple[int, ...] = ()
    chances: tuple[int, ...] = ()
    include: tuple[int, ...] = ()

    @classmethod
    def over(cls, bins: int, epsilon: float) -> "Waves":
        """Return the best waves that are found for so many bins in order."""
        return cls((bins,), epsilon)

    @property
    def k(self) -> int:  # type: ignore[override]
        """The number of bins."""
        return math.prod(self.sides)

    def _calibrate(self) -> None:
        if not 1 <= len(self.sides) <= 2 or not 2 <= self.k <= MAX_BINS:
            raise InvalidInput(
                f"{self.name}: sides must be one or two, of 2 to {MAX_BINS} bins together, "
                f"got {self.sides!r}"
            )
        if not (self.masks or self.chances or self.include):
            self._design()
        if self.patterns < 2 or self.k * self.patterns > MAX_CODES:
            raise InvalidInput(
                f"{self.name}: of {self.k} bins there may be 2 to {MAX_CODES // self.k} "
                f"patterns, got {self.patterns}"
            )
        if len(self.masks) != self.patterns * self._words or len(self.include) != self.patterns:
            raise InvalidInput(
                f"{self.name}: {self.patterns} patterns have {self._words} words of masks and one "
                f"include each, got {len(self.masks)} and {len(self.include)}"
            )
        _ = self._limits  # checks the chances
        for mask, include in zip(self._sets, self.include, strict=True):
            if not 0 < mask < (1 << self.k) - 1:
                raise InvalidInput(
                    f"{self.name}: a pattern has some of the {self.k} bins, not none or all, "
                    f"got the mask {mask:#x}"
                )
            check_threshold(f"{self.name}: include", include)
            if include * self.k <= mask.bit_count() * ONE:
                raise InvalidInput(
                    f"{self.name}: include must exceed 2**64 w / k for a pattern of w bins, "
                    f"got {include} for {mask.bit_count()} of {self.k}"
                )
        if not self._eigenvalues[1:].min() > 1e-9 * self._eigenvalues[1:].max():
            raise InvalidInput(f"{self.name}: the patterns do not tell all bins apart")

    def _design(self) -> None:
        """Take the best patterns, and round the chances down; the first takes up the rest."""
        best = wave_design.design(self.sides, self.epsilon)
        masks, weights = best.masks, [math.floor(Fraction(c) * ONE) for c in best.chances.tolist()]
        if len(masks) == 1:  # a chance of one is no integer below 2**64
            masks, weights = np.repeat(masks, 2, axis=0), [ONE // 2, ONE // 2]
        weights[0] += ONE - sum(weights)
        sets = [sum(1 << v for v in np.flatnonzero(mask).tolist()) for mask in masks]
        include = [
            include_threshold(own.bit_count(), self.k - own.bit_count(), self.epsilon)
            for own in sets
        ]
        words = [own >> 64 * word & ONE - 1 for own in sets for word in range(self._words)]
        object.__setattr__(self, "masks", tuple(words))
        object.__setattr__(self, "chances", tuple(weights))
        object.__setattr__(self, "include", tuple(include))

    def _worst_ratio(self) -> Fraction:
        each = zip(self._sets, self.include, strict=True)
        return max(
            Fraction(p * (self.k - own.bit_count()), (ONE - p) * own.bit_count()) for own, p in each
        )

    @cached_property
    def variation(self) -> Fraction:
        """The largest total variation of two bins' reports, up to 10**-12 above it.

        Two bins that are d apart are told by the codes of which a shifted pattern has one of
        them only, as many as the pattern has bins that it loses by a shift of d.
        """
        bits = [[own >> v & 1 for v in range(self.k)] for own in self._sets]
        grids = np.array(bits, dtype=np.bool_).reshape(self.patterns, *self.sides)
        axes = tuple(range(1, grids.ndim))
        sizes = grids.sum(axis=axes)
        inside = np.array(self.include) / ONE
        gains = np.array(self.chances) / ONE * (inside / sizes - (1 - inside) / (self.k - sizes))
        largest = max(
            float((grids & ~np.roll(grids, shift, axis=axes)).sum(axis=axes) @ gains)
            for shift in np.ndindex(*self.sides)
        )
        return Fraction(largest) * (1 + Fraction(1, 10**12))

    @property
    def patterns(self) -> int:
        """The number of patterns."""
        return len(self.chances)

    @property
    def tally_size(self) -> int:
        return self.k * self.patterns

    @property
    def _words(self) -> int:
        return -(-self.k // 64)

    @cached_property
    def _sets(self) -> tuple[int, ...]:
        """The patterns, each as one integer with a bit for each bin."""
        words = self._words
        return tuple(
            sum(self.masks[words * j + i] << 64 * i for i in range(words))
            for j in range(self.patterns)
        )

    # --- randomising -----------------------------------------------------------------------

    @cached_property
    def _limits(self) -> NDArray[np.uint64]:
        return thresholds(self.name, self.chances)

    @cached_property
    def _orders(self) -> tuple[tuple[list[int], list[int]], ...]:
        """Each pattern's bins, and the other bins, both ascending."""
        every = range(self.k)
        return tuple(
            ([v for v in every if own >> v & 1], [v for v in every if not own >> v & 1])
            for own in self._sets
        )

    def randomize(self, value: int, coins: Coins) -> int:
        value = self._check_value(value)
        pattern = int(draw_many(self._limits, 1, coins)[0])
        inside, outside = self._orders[pattern]
        among = inside if coins.bernoulli(self.include[pattern]) else outside
        away = among[coins.below(len(among))]
        return self.k * pattern + self._shift(value, away)

    def _shift(self, value: int, away: int) -> int:
        """Return value - away, modulo each side."""
        if len(self.sides) == 1:
            return (value - away) % self.k
        rows, columns = self.sides
        down, across = value // columns - away // columns, value - away
        return columns * (down % rows) + across % columns

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = np.empty(array.size, dtype=self.code_dtype)
        for start in range(0, array.size, _BLOCK):
            block = array[start : start + _BLOCK].astype(np.int32)
            codes[start : start + _BLOCK] = self._report(block, coins)
        return codes

    def _report(self, values: NDArray[np.int32], coins: Coins) -> NDArray[np.int32]:
        """Return a code per value; the pattern and the bin u do not depend on the values."""
        pattern = self._draw_patterns(values.size, coins)
        outside = coins.words(values.size) >= self._batch.include[pattern]
        row = 2 * pattern + outside
        place = _below_each(self._batch.bounds[row], coins)
        away = self._batch.bins[self._batch.starts[row] + place]
        shift = values - away
        shift += self.k * (shift < 0)
        if len(self.sides) == 2:
            shift = self._batch.shifts[values, away]
        result: NDArray[np.int32] = self.k * pattern + shift
        return result

    def _draw_patterns(self, n: int, coins: Coins) -> NDArray[np.int32]:
        """Return n patterns by their chances: mostly from the leading bits of a word."""
        words = coins.words(n)
        pattern = self._batch.guide[(words >> np.uint64(64 - _GUIDE)).astype(np.intp)]
        unsure = np.flatnonzero(pattern < 0)
        pattern[unsure] = np.searchsorted(self._batch.limits, words[unsure], side="right")
        return pattern

    @cached_property
    def _batch(self) -> "_Batch":
        return _Batch.of(self)

    # --- estimating ------------------------------------------------------------------------

    @cached_property
    def channel_of_shifts(self) -> CyclicChannel:
        """The channel, by its patterns and their chances, in doubles."""
        own = np.array([[bits >> v & 1 for v in range(self.k)] for bits in self._sets], dtype=bool)
        sizes = own.sum(axis=1).tolist()
        each = zip(self.chances, self.include, sizes, strict=True)
        inside, outside = [], []
        for chance, p, size in each:
            inside.append(chance / ONE * (p / ONE) / size)
            outside.append(chance / ONE * ((ONE - p) / ONE) / (self.k - size))
        rows = np.where(own, np.array(inside)[:, None], np.array(outside)[:, None])
        return CyclicChannel(self.sides, rows)

    @cached_property
    def _eigenvalues(self) -> Floats:
        """lambda_k of `wave_design`, shape (k,); infinite at 0: the shares sum to one."""
        channel = self.channel_of_shifts
        shares = channel.rows.sum(axis=1) / self.k
        power = np.abs(spectra(channel.rows, self.sides)) ** 2
        values: Floats = (power / shares[:, np.newaxis]).sum(axis=0)
        values[0] = np.inf
        return values

    @cached_property
    def _values(self) -> Floats:
        """What one report adds to the estimate, shape (patterns, k).

        The report (j, s) counts _values[j, x - s] + 1 / k for bin x.
        """
        channel = self.channel_of_shifts
        shares = channel.rows.sum(axis=1, keepdims=True) / self.k
        spectrum = spectra(channel.rows / shares, self.sides) / self._eigenvalues
        axes = tuple(range(1, len(self.sides) + 1))
        values = np.fft.ifftn(spectrum.reshape(-1, *self.sides), axes=axes).real
        result: Floats = values.reshape(self.patterns, self.k)
        return result

    @cached_property
    def _squares(self) -> Floats:
        """The mean square of a report's value for bin 0, by the own bin x, shape (k,).

        Every pair of bins that are as far apart, modulo the sides, has the same.
        """
        squares = self._values**2
        found = convolved(self.channel_of_shifts.rows, mirrored(squares, self.sides), self.sides)
        result: Floats = found.sum(axis=0)
        return result

    def debias(self, tally: Tally) -> Floats:
        shares = (tally.counts / tally.n).reshape(self.patterns, self.k)
        values: Floats = convolved(self._values, shares, self.sides).sum(axis=0) + 1 / self.k
        return values

    def variance(self, truth: ArrayLike, n: int) -> Floats:
        """Return the exact variance of `debias`; `truth` of shape (k,) is scaled to sum to one,
        and zeros count as uniform."""
        f = np.asarray(truth, dtype=float)
        if not f.ndim:
            own = float(self._squares[0])
            others = (float(self._squares.sum()) - own) / (self.k - 1)
            alone: Floats = (f * own + (1 - f) * others - (f - 1 / self.k) ** 2) / n
            return alone
        f = self._distribution(f)
        second = convolved(mirrored(self._squares[None], self.sides), f[None], self.sides)[0]
        result: Floats = (second - (f - 1 / self.k) ** 2) / n
        return result

    def tally_variance(self, truth: ArrayLike, tally: Tally) -> Floats:
        """Return the variance of `debias` under the shares of the codes in the tally.

        One more report, of each code as uniform truth gives it, is counted with them, so that a
        handful of equal codes never claims an error of zero.
        """
        outputs = self._seen(tally)
        square = convolved(self._values**2, outputs, self.sides).sum(axis=0)
        away = convolved(self._values, outputs, self.sides).sum(axis=0)
        result: Floats = (square - away**2) / tally.n
        return result

    def _seen(self, tally: Tally) -> Floats:
        """Return the shares of the codes with one more report, shape (patterns, k)."""
        shares = self.channel_of_shifts.rows.sum(axis=1, keepdims=True) / self.k
        result: Floats = (tally.counts.reshape(self.patterns, self.k) + shares) / (tally.n + 1)
        return result

    def covariance(self, truth: ArrayLike, n: int) -> Floats:
        """Return the exact covariance of `debias`, shape (k, k), for n draws from a population.

        `truth` is taken as in `variance`.
        """
        f = self._distribution(np.broadcast_to(np.asarray(truth, dtype=float), (self.k,)))
        outputs = self.channel_of_shifts.outputs(f)
        return self._covariance_under(outputs.reshape(self.patterns, self.k), n)

    def tally_covariance(self, tally: Tally) -> Floats:
        """Return the covariance of `debias`, shape (k, k), as `tally_variance` its diagonal.

        The variance of a range, or of any other weights r, is r' covariance r. Takes 25 ms for
        256 bins.
        """
        return self._covariance_under(self._seen(tally), tally.n)

    def _covariance_under(self, outputs: Floats, n: int) -> Floats:
        away = convolved(self._values, outputs, self.sides).sum(axis=0)
        result: Floats = (gram(self._values, outputs, self.sides) - np.outer(away, away)) / n
        return result

    def _distribution(self, truth: Floats) -> Floats:
        result: Floats = truth / truth.sum() if truth.any() else np.full(self.k, 1 / self.k)
        return result

    @property
    def range_variance(self) -> float:
        """The variance of a range's share from one report, on average over all ranges.

        At equal shares; over all rectangles in two dimensions.
        """
        return float((range_weights(self.sides) / self._eigenvalues[1:]).sum())

    @property
    def gap(self) -> float:
        """By how much `range_variance` may exceed the least that any chances of these patterns,
        and of all waves {x : x j mod k < w}, would give, as a part of it.

        It follows from the integers alone, by the dual prices of `wave_design`.
        """
        every = [self._masks]
        if len(self.sides) == 1:
            every += [wave_design.waves(self.k, width) for width in range(1, self.k // 2 + 1)]
        gains = (wave_design.gains(masks, self.sides, math.exp(self.epsilon)) for masks in every)
        dearest = max(float((each @ self._dual).max()) for each in gains)
        return max(GAP, self.range_variance / self._least(dearest) - 1)

    @property
    def least_range_variance(self) -> float:
        """A bound below `range_variance`: no epsilon-LDP channel that treats all shifts of the bins
        alike has less at equal shares.

        The best channel reports sets of bins (Kairouz, Oh and Viswanath, "Extremal mechanisms for
        local differential privacy", JMLR 17, 2016). A set of w of k bins has sum_{k != 0}
        |W^(k)|^2 = w (k - w), so that its dual price is at most the largest single term's. The
        bound is near at epsilon up to 1, and far off above 3.
        """
        e, sizes = math.exp(self.epsilon), np.arange(1, self.k)
        best = (sizes * (self.k - sizes) / (sizes * (e - 1) + self.k) ** 2).max()
        price = self.k * (e - 1) ** 2 * float(self._dual.max() * best)
        return min(self._least(price), self.range_variance)

    @property
    def _masks(self) -> NDArray[np.bool_]:
        """The patterns, shape (patterns, k)."""
        rows = self.channel_of_shifts.rows
        found: NDArray[np.bool_] = rows > rows.mean(axis=1, keepdims=True)
        return found

    @cached_property
    def _dual(self) -> Floats:
        """g_k / lambda_k^2 of near the best mixture of these patterns and the design's first ones.

        Prices at these bound every mixture. The own mixture's, from which rare patterns are left
        out, would bound them less well.
        """
        masks = np.concatenate([self._masks, wave_design.first_patterns(self.sides, self.epsilon)])
        e, weights = math.exp(self.epsilon), range_weights(self.sides)
        chances = wave_design.balance(masks, self.sides, e, weights)[0]
        dual: Floats = weights / (chances @ wave_design.gains(masks, self.sides, e)) ** 2
        return dual

    def _least(self, dearest: float) -> float:
        """Return the least average variance of patterns of which none has a higher price."""
        return float(np.sqrt(range_weights(self.sides) * self._dual).sum()) ** 2 / dearest

    def matrix(self) -> Floats | None:
        if self.k * self.tally_size > _DENSE:
            return None
        return self.channel_of_shifts.dense()

    def channel(self) -> Channel:
        """Enumerate the channel; an output is a code."""
        if self.k * self.tally_size > MAX_OUTPUTS:
            raise InvalidInput(
                f"a channel of {self.k} x {self.tally_size} is too large to enumerate"
            )
        each = []
        for own, chance, p in zip(self._sets, self.chances, self.include, strict=True):
            size, share = own.bit_count(), Fraction(chance, ONE)
            within = share * Fraction(p, ONE * size)
            each.append((own, within, share * Fraction(ONE - p, ONE * (self.k - size))))
        rows = tuple(
            tuple(
                within if own >> self._shift(x, s) & 1 else without
                for own, within, without in each
                for s in range(self.k)
            )
            for x in range(self.k)
        )
        return Channel(tuple(range(self.tally_size)), rows)


def _below_each(bounds: NDArray[np.uint64], coins: Coins) -> NDArray[np.uint32]:
    """Return an integer uniform on 0..bound-1 for each bound below 2**32; see `below_many`."""
    words = coins.words(-(-bounds.size // 2)).view(np.uint32)[: bounds.size]
    products = words.astype(np.uint64) * bounds
    rest = products.astype(np.uint32)
    rejected = np.flatnonzero(rest < bounds)  # few, and most of these are not
    rejected = rejected[rest[rejected] < np.uint64(1 << 32) % bounds[rejected]]
    drawn = (products >> np.uint64(32)).astype(np.uint32)
    if rejected.size:
        drawn[rejected] = _below_each(bounds[rejected], coins)
    return drawn


@dataclass(frozen=True, eq=False)
class _Batch:
    """Tables for randomising in bulk; a row is 2 j for the bins of pattern j, 2 j + 1 for others.

    `guide` has the pattern of a word's leading bits, -1 where they do not tell.
    """

    limits: NDArray[np.uint64]
    guide: NDArray[np.int32]
    include: NDArray[np.uint64]
    bounds: NDArray[np.uint64]
    starts: NDArray[np.int32]
    bins: NDArray[np.int32]
    shifts: NDArray[np.int32]

    @classmethod
    def of(cls, waves: Waves) -> "_Batch":
        limits = waves._limits
        firsts = np.arange(1 << _GUIDE, dtype=np.uint64) << np.uint64(64 - _GUIDE)
        lasts = firsts + np.uint64((1 << 64 - _GUIDE) - 1)
        low = np.searchsorted(limits, firsts, side="right")
        high = np.searchsorted(limits, lasts, side="right")
        lists = [each for pair in waves._orders for each in pair]
        sizes = np.array([len(each) for each in lists])
        every = range(waves.k) if len(waves.sides) == 2 else ()
        return cls(
            limits=limits,
            guide=np.where(low == high, low, -1).astype(np.int32),
            include=np.array(waves.include, dtype=np.uint64),
            bounds=sizes.astype(np.uint64),
            starts=(np.cumsum(sizes) - sizes).astype(np.int32),
            bins=np.array([v for each in lists for v in each], dtype=np.int32),
            shifts=np.array([[waves._shift(x, u) for u in every] for x in every], dtype=np.int32),
        )
