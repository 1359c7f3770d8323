"""Histogram encodings: Laplace noise on each coordinate of a one-hot vector."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import MAX_OUTPUTS, Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, ceil_threshold, check_epsilon, exp_bounds, floor_threshold
from ldp.core.mechanism import Categorical, Codes, check_below
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.frequency.unary import UnaryEncoding
from ldp.mechanisms.tools.sampling import draw_many, thresholds

_BLOCK = 1 << 14
"""Coordinates per block: as many as fit a core's cache."""

_LEVELS = 256
"""The largest grid: a coordinate takes one byte."""


def thresholding_histogram(k: int, epsilon: float) -> UnaryEncoding:
    """Return THE: noise of scale 2/epsilon on each coordinate, then one bit: above theta or not.

    The reported bits are independent, so it is a unary encoding with p = 1 - b / (2 c) and
    q = 1 / (2 b), where c = e**(epsilon/2) and b = e**(epsilon theta/2); the theta of least
    variance for rare categories has b = (c + 1 + sqrt(c**2 - c + 1)) / 3.
    The noise vector keeps epsilon, the bits spend less of it: with a = c / b their worst ratio
    is (2 a - 1) (2 b - 1) < (a b)**2 = e**epsilon, so `realised_epsilon` is below `epsilon`: by
    1% at 0.1, 10% at 1, 38% at 8. With less noise, so that the bits spend all of it, the best
    theta is 1 and the encoding is OUE, `UnaryEncoding(k, epsilon)`, which is to be preferred.
    Raises `InvalidInput` as `UnaryEncoding` does.
    Source: Wang, Blocki, Li and Jha, USENIX Security 2017, section 4.1; the optimum in closed
    form is the root of the derivative of their equation 6.
    """
    c = exp_bounds(Fraction(check_epsilon(epsilon)) / 2)[0]
    root = float(c)
    b = Fraction((root + 1 + math.sqrt(root * root - root + 1)) / 3)
    return UnaryEncoding(k, epsilon, floor_threshold(1 - b / (2 * c)), ceil_threshold(1 / (2 * b)))


@dataclass(frozen=True)
class SummingHistogram(Categorical):
    """SHE: report the whole one-hot vector, each coordinate with discrete Laplace noise.

    A coordinate is a level of a grid, 0..m-1: level y of another category's coordinate has
    probability weights[y] / 2**64, of the own one weights[m - 1 - y] / 2**64. Without weights
    they are the noise lambda**|steps|, lambda = e**(-epsilon / (2 steps a unit)), clamped to
    the grid. A tally sums the levels; the estimate corrects for clamping, so it is
    unbiased on any grid.
    Guarantee: epsilon-LDP for every pair of categories, which differ in two coordinates: with
    r the largest weights[y] / weights[m - 1 - y], e**realised_epsilon = r**2 <= e**epsilon.
    Variance: about 8 / epsilon**2 + f (1 - f) for epsilon >= 0.1, twice that of OUE or more; it
    is here for comparison.
    Cost: k bytes. Raises `InvalidInput` unless 2 <= k <= 2**16 and there are 2..256 positive
    weights that sum to 2**64 and have the lower levels likelier.
    Source: Wang, Blocki, Li and Jha, USENIX Security 2017, section 4.1; Ghosh, Roughgarden and
    Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC 2009, for the noise.
    """

    name: ClassVar[str] = "she"
    k: int
    epsilon: float
    weights: tuple[int, ...] = ()

    @classmethod
    def on_grid(cls, k: int, epsilon: float, steps: int, reach: int) -> Self:
        """Return the mechanism whose grid has `steps` steps from 0 to 1 and `reach` more on
        either side; raise `InvalidInput` unless both are positive and it has <= 256 levels."""
        check_epsilon(epsilon)
        if steps < 1 or reach < 1 or steps + 2 * reach >= _LEVELS:
            raise InvalidInput(
                f"{cls.name}: steps and reach must be positive and steps + 2 reach "
                f"below {_LEVELS}, got {steps} and {reach}"
            )
        return cls(k, epsilon, _noise(epsilon, steps, reach))

    def _calibrate(self) -> None:
        self._check_k(1 << 16)
        if not self.weights:
            steps = max(1, math.ceil(4 * self.epsilon))  # lambda ~ e**(-1/8): near continuous
            reach = (_LEVELS - 1 - steps) // 2
            object.__setattr__(self, "weights", _noise(self.epsilon, steps, reach))
        if not 2 <= len(self.weights) <= _LEVELS:
            raise InvalidInput(
                f"{self.name}: a grid has 2..{_LEVELS} levels, got {len(self.weights)}"
            )
        thresholds(self.name, self.weights)
        if self._moments[1] <= 0:
            raise InvalidInput(f"{self.name}: the weights must put other categories lower")

    def _worst_ratio(self) -> Fraction:
        pairs = zip(self.weights, reversed(self.weights), strict=True)
        return max(Fraction(weight, mirrored) for weight, mirrored in pairs) ** 2

    @cached_property
    def _thresholds(self) -> NDArray[np.uint64]:
        return thresholds(self.name, self.weights)

    @cached_property
    def _moments(self) -> tuple[float, float, float]:
        """Mean level of another category, excess of the own category's, and variance of a level."""
        first = sum(y * weight for y, weight in enumerate(self.weights))
        second = sum(y * y * weight for y, weight in enumerate(self.weights))
        mean = Fraction(first, ONE)
        added = len(self.weights) - 1 - 2 * mean
        return float(mean), float(added), float(Fraction(second, ONE) - mean**2)

    @property
    def decode_cost(self) -> int:
        return self.k

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return np.dtype("u1")

    @property
    def code_shape(self) -> tuple[int, ...]:
        return (self.k,)

    @property
    def tally_size(self) -> int:
        return self.k

    def randomize(self, value: int, coins: Coins) -> Codes:
        code: Codes = self.randomize_many(np.array([self._check_value(value)]), coins)[0]
        return code

    def randomize_many(self, values: ArrayLike, coins: Coins) -> Codes:
        array = self._check_values(values)
        codes = np.empty((array.size, self.k), dtype=self.code_dtype)
        step = max(1, _BLOCK // self.k)
        for start in range(0, array.size, step):
            block = codes[start : start + step]
            block[:] = draw_many(self._thresholds, block.size, coins).reshape(block.shape)
            own = np.arange(len(block)), array[start : start + step]
            block[own] = len(self.weights) - 1 - block[own]
        return codes

    def _check_codes(self, codes: Codes) -> None:
        check_below(self.name, codes, len(self.weights))

    def _counted(self, codes: Codes) -> Tally:
        return Tally(len(codes), codes.sum(axis=0, dtype=np.int64))

    def each_counted(self, codes: Codes) -> NDArray[np.int64]:
        return codes.astype(np.int64)

    def debias(self, tally: Tally) -> NDArray[np.float64]:
        mean, added, _ = self._moments
        values: NDArray[np.float64] = (tally.counts / tally.n - mean) / added
        return values

    def variance(self, truth: ArrayLike, n: int) -> NDArray[np.float64]:
        _, added, spread = self._moments
        f = np.asarray(truth, dtype=float)
        variance: NDArray[np.float64] = (spread / added**2 + f * (1 - f)) / n
        return variance

    def channel(self) -> Channel:
        """Enumerate the k x m**k channel; an output has the levels of all coordinates."""
        levels = len(self.weights)
        if levels**self.k > MAX_OUTPUTS:
            raise InvalidInput(f"a channel of {levels}**{self.k} codes is too large to enumerate")
        outputs = tuple(product(range(levels), repeat=self.k))
        other = [Fraction(weight, ONE) for weight in self.weights]
        rows = tuple(
            tuple(
                math.prod(
                    (other[-1 - y if v == x else y] for v, y in enumerate(output)),
                    start=Fraction(1),
                )
                for output in outputs
            )
            for x in range(self.k)
        )
        return Channel(outputs, rows)


def _noise(epsilon: float, steps: int, reach: int) -> tuple[int, ...]:
    """Return the weights of another category's levels; the coordinate 0 is level `reach`.

    A level and its mirror image get their common mass in floating point, because how likely
    the pair is tells nothing about the category; how it is split does, and that is exact.
    """
    size = steps + 2 * reach + 1
    decay = math.exp(-epsilon / (2 * steps))

    def mass(y: int) -> float:
        tail = 1 if y in (0, size - 1) else 1 - decay
        return float(decay ** abs(y - reach) * tail / (1 + decay))

    # Even, so that the half of the likelier level can always be the larger one.
    pairs = [2 * max(1, int((mass(y) + mass(size - 1 - y)) * ONE / 2)) for y in range(size // 2)]
    middle = [int(mass(size // 2) * ONE)] * (size % 2)
    (middle or pairs)[-1] += ONE - sum(pairs) - sum(middle)
    nearer, farther = [], []
    for y, pair in enumerate(pairs):
        gain = Fraction(min(steps, size - 1 - 2 * y), 2 * steps) * Fraction(epsilon)
        farther.append(math.ceil(pair / (1 + exp_bounds(gain)[0])))
        nearer.append(pair - farther[-1])
    return (*nearer, *middle, *reversed(farther))
