"""Ask each person about one item, drawn at random, and randomise the yes or no."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, flip_threshold
from ldp.core.mechanism import Codes, Counted, check_flip
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.sets.base import MAX_MEMBERS, SetMechanism

_UNASKED = 0.25
"""As many reports an item counts as having whom nobody was asked about: its interval is then all of
0 to 1."""


@dataclass(frozen=True)
class SetBits(Counted, SetMechanism):
    """Report whether one item, drawn uniformly, is in the set; the bit is flipped with flip /
    2**64.

    A code is 2 item + bit; a tally counts all of them. The estimate of an item is that of the
    people who were asked about it; it is 1/2 where nobody was. A set may have any number of items.
    Nothing but the mean of the sets' sizes can be told besides the items' shares.
    Guarantee: epsilon-LDP for every two sets: the item says nothing of the set, and
    e**realised_epsilon = (2**64 - flip) / flip <= e**epsilon.
    Cost: an integer of 2 items codes. The variance is items times that of one item's randomized
    response, which beats `SetSelection` for sets of half of the items or more.
    Raises `InvalidInput` unless 2 <= items <= 2**15 and flip < 2**63.
    Source: Warner, "Randomized response", JASA 60(309), 1965, for one item.
    """

    name: ClassVar[str] = "set_bits"
    items: int
    epsilon: float
    flip: int = 0

    def _calibrate(self) -> None:
        if not 2 <= self.items <= MAX_MEMBERS // 2:
            raise InvalidInput(
                f"{self.name}: items must lie in 2..{MAX_MEMBERS // 2}, got {self.items}"
            )
        if self.flip == 0:
            object.__setattr__(self, "flip", flip_threshold(Fraction(self.epsilon)))
        check_flip(self.name, self.flip)

    def _worst_ratio(self) -> Fraction:
        return Fraction(ONE - self.flip, self.flip)

    @property
    def variation(self) -> Fraction:
        return 1 - Fraction(2 * self.flip, ONE)

    @property
    def tally_size(self) -> int:
        return 2 * self.items

    @property
    def largest(self) -> int:
        return self.items

    @property
    def support(self) -> tuple[Fraction, Fraction]:
        """Return the chances of a yes from those who have the item, and from others."""
        flip = Fraction(self.flip, ONE)
        return 1 - flip, flip

    def randomize(self, value: Any, coins: Coins) -> int:
        own = self._check_set(value)
        item = coins.below(self.items)
        return 2 * item + ((item in own) ^ coins.bernoulli(self.flip))

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        sets = self._check_sets(values)
        items = coins.below_many(self.items, len(sets)).astype(np.int64)
        bits = (sets == items[:, np.newaxis]).any(axis=1)
        codes = 2 * items + (bits ^ coins.bernoulli_many(self.flip, len(sets)))
        found: Codes = codes.astype(self.code_dtype)
        return found

    def _supported(self, codes: Codes, value: int) -> NDArray[Any]:
        supported: NDArray[Any] = codes == 2 * value + 1
        return supported

    # --- estimating ----------------------------------------------------------------------------

    def _asked(self, tally: Tally) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return how many people were asked about each item, and how many said yes."""
        pairs: NDArray[np.int64] = tally.counts.reshape(self.items, 2)
        return pairs.sum(axis=1), pairs[:, 1]

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Return how many reports say yes to each item, shape (items,)."""
        return self._asked(tally)[1]

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        q, gain = self._rounded_support
        asked, yes = self._asked(tally)
        shares = (yes / np.maximum(asked, 1) - q) / gain
        return np.where(asked > 0, shares, 0.5)

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the variance where n / items people are asked about each item."""
        return self.items * super().variance(truth, n)

    def tally_variance(self, truth: ArrayLike, tally: Tally) -> NDArray[np.float64]:
        """Return the variance for as many people as were asked about each item."""
        asked, _ = self._asked(tally)
        return super().variance(truth, 1) / np.maximum(asked, _UNASKED)

    def moments(
        self, truth: NDArray[np.float64], n: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the second and third moments where n / items people are asked about each item."""
        found = super().moments(truth, n)
        assert found is not None
        second, third = found
        return self.items * second, self.items**2 * third

    def channel(self) -> Channel:
        """Enumerate the channel: a row for each of `sets`, an output for each code."""
        self._check_enumerable(2 ** min(self.items, 40), self.tally_size)
        flip = Fraction(self.flip, ONE)
        rows = []
        for own in self.sets():
            yes = [1 - flip if item in own else flip for item in range(self.items)]
            rows.append(tuple(x / self.items for y in yes for x in (1 - y, y)))
        return Channel(tuple(range(self.tally_size)), tuple(rows))
