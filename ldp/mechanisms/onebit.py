"""The one-bit mean mechanism."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.channel import Channel
from ldp.coins import Coins
from ldp.errors import InvalidInput
from ldp.exact import ONE, ceil_threshold, exp_bounds
from ldp.mechanism import Codes, Mechanism, check_threshold
from ldp.tally import Tally


@dataclass(frozen=True)
class OneBitMean(Mechanism):
    """Round a number in [-1, 1] at random to -1 or 1, then flip it with flip / 2**64.

    A code is the bit (0 for -1, 1 for 1); a tally counts both; an estimate is the mean, shape
    (1,). Rounding happens before the channel, so the guarantee does not depend on it.
    Guarantee: epsilon-LDP for every pair of numbers, with
    e**realised_epsilon = (2**64 - flip) / flip <= e**epsilon.
    Cost: one byte. Source: Duchi, Jordan and Wainwright, "Minimax optimal procedures for
    locally private estimation", JASA 113(521), 2018, for d = 1; variance
    ((e**epsilon + 1) / (e**epsilon - 1))**2 - t**2 for one report.
    """

    name: ClassVar[str] = "onebit"
    epsilon: float
    flip: int = 0

    def _calibrate(self) -> None:
        if self.flip == 0:
            exp_low = exp_bounds(Fraction(self.epsilon))[0]
            object.__setattr__(self, "flip", ceil_threshold(1 / (exp_low + 1)))
        check_threshold(f"{self.name}: flip", self.flip)
        if self.flip >= ONE // 2:
            raise InvalidInput(f"{self.name}: flip must be below 2**63, got {self.flip}")

    def _worst_ratio(self) -> Fraction:
        return Fraction(ONE - self.flip, self.flip)

    @property
    def _contrast(self) -> float:
        """How far a report's expectation moves with the number: 1 - 2 flip."""
        return float(1 - Fraction(2 * self.flip, ONE))

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return np.dtype("u1")

    @property
    def tally_size(self) -> int:
        return 2

    @property
    def parameters(self) -> int:
        return 1

    @property
    def bounds(self) -> tuple[float, float]:
        return -1.0, 1.0

    def randomize(self, value: float, coins: Coins) -> int:
        if isinstance(value, bool) or not isinstance(value, int | float | np.number):
            raise InvalidInput(f"{self.name}: a number is expected, got {value!r}")
        number = float(value)
        if not (math.isfinite(number) and -1 <= number <= 1):
            raise InvalidInput(f"{self.name}: a number must lie in [-1, 1], got {value!r}")
        up = coins.bernoulli(int((Fraction(number) + 1) / 2 * ONE))
        return int(up ^ coins.bernoulli(self.flip))

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = np.asarray(values)
        if array.ndim != 1 or array.dtype.kind not in "iuf":
            raise InvalidInput(
                f"{self.name}: numbers are a 1-d array, got {array.dtype} of shape {array.shape}"
            )
        numbers = array.astype(float)
        if not np.all((numbers >= -1) & (numbers <= 1)):  # nan fails the comparison too
            raise InvalidInput(f"{self.name}: numbers must lie in [-1, 1]")
        share = (numbers + 1) / 2
        threshold = np.minimum(share, 1 - 2.0**-53) * 2.0**64
        up = (coins.words(array.size) < threshold.astype(np.uint64)) | (share == 1)
        bits: Codes = up ^ coins.bernoulli_many(self.flip, array.size)
        return bits.view(np.uint8)

    def _check_codes(self, codes: Codes) -> None:
        if codes.size and codes.max() > 1:
            raise InvalidInput(f"a {self.name} code is 0 or 1, got {codes.max()}")

    def tally(self, codes: Codes) -> Tally:
        return Tally(len(codes), np.bincount(codes, minlength=2))

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        down, up = tally.counts
        return np.array([(up - down) / tally.n / self._contrast])

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        return (1 / self._contrast**2 - np.asarray(truth, dtype=float) ** 2) / n

    def channel(self) -> Channel:
        """Enumerate the 2 x 2 channel from the grid {-1, 1}; other numbers are mixtures."""
        flip = Fraction(self.flip, ONE)
        return Channel((0, 1), ((1 - flip, flip), (flip, 1 - flip)))
