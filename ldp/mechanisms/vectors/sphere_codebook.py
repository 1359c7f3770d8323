"""The sphere codebook: a vector as one of the random directions that agree with it best."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.channel import Channel
from ldp.core.coins import Coins
from ldp.core.exact import ONE, exp_bounds, include_threshold
from ldp.core.randomizer import Codes, Randomizer
from ldp.errors import InvalidInput
from ldp.mechanisms.vectors.caps import best_size, mean_of_best
from ldp.mechanisms.vectors.codewords import SEED_BYTES, directions

MAX_DIMENSION = 1 << 16
MAX_CODES = 1 << 16
MAX_WORK = 1 << 27
"""Numbers that one report may take: 256 MiB of keystream, a second or two."""

_CODES = 1024
_BLOCK = 1 << 19
"""Numbers of a block of directions: a few MiB."""

_SLACK = 2.0**-20


@dataclass(frozen=True)
class SphereCodebook(Randomizer):
    """Report a random seed and one of its `codes` directions, likely among the `size` best.

    A vector g of a norm of at most 1 becomes the unit vector v = (g, sqrt(1 - |g|^2)) in one
    dimension more. The seed, drawn afresh and public, names `codes` directions u_1, u_2, ...,
    uniform on the sphere. The `size` ones of the largest <u, v> are the good ones, ties going to
    the lower numbers. With include / 2**64 the report is one of them, else one of the others,
    uniformly.

    Guarantee: epsilon-LDP for every pair of vectors, exactly. The seed says nothing about the
    vector; given it, whatever the vector and however inner products are rounded, exactly `size`
    codes have the probability include / size, and all others the same smaller one, so
    e**realised_epsilon = include (codes - size) / ((2**64 - include) size) <= e**epsilon.
    Several reports of a person add up.
    Estimate: `debias`, m being the mean of <u, v> over the reported u: the first coordinates of
    u / m are g on average over seeds. Its mean squared distance from g is at most
    `squared_error` = 1 / m^2 - 1, whatever g. With 1,024 codes that is within 0.5% of PrivUnit's,
    the best unbiased mechanism for unit vectors, up to epsilon 4, and within 4% at 8.
    Accuracy, and not privacy, rests on both sides computing the same directions: `codewords`
    makes them of integers.
    Cost: a code is the seed, 8 bytes, and the number, 1 or 2. A device computes
    codes * (dimension + 1) numbers per report in blocks of a few MiB (5 ms of CPU for 490
    dimensions), a server dimension + 1 numbers.
    Raises `InvalidInput` unless 1 <= dimension <= 2**16, 2 <= codes <= 2**16,
    1 <= size <= codes / 2, codes * (dimension + 1) <= 2**27 and include / 2**64 > size / codes.
    Source: subset selection (Ye and Barg, IEEE Trans. Information Theory 64(8), 2018) on a public
    random codebook; compared with PrivUnit (Bhowmick et al., "Protection against reconstruction",
    2018, section 4.1; optimal by Asi, Feldman and Talwar, ICML 2022).
    """

    name: ClassVar[str] = "sphere_codebook"
    dimension: int
    epsilon: float
    codes: int = 0
    size: int = 0
    include: int = 0

    def _calibrate(self) -> None:
        if not 1 <= self.dimension <= MAX_DIMENSION:
            raise InvalidInput(
                f"{self.name}: dimension must lie in 1..{MAX_DIMENSION:,}, got {self.dimension:,}: "
                "the error grows with it, and larger vectors would be nothing but noise"
            )
        if self.codes == 0:
            object.__setattr__(self, "codes", _CODES)
        if not 2 <= self.codes <= MAX_CODES:
            raise InvalidInput(f"{self.name}: codes must lie in 2..{MAX_CODES:,}, got {self.codes}")
        if self.codes * self._lifted > MAX_WORK:
            raise InvalidInput(
                f"{self.name}: codes * (dimension + 1) must be at most {MAX_WORK:,}, got "
                f"{self.codes * self._lifted:,}: a device computes so many numbers for a report"
            )
        if self.size == 0:
            odds = float(exp_bounds(Fraction(self.epsilon))[0])
            object.__setattr__(self, "size", best_size(self._lifted, self.codes, odds))
        if not 1 <= self.size <= self.codes // 2:
            raise InvalidInput(
                f"{self.name}: size must lie in 1..{self.codes // 2} for {self.codes} codes, "
                f"got {self.size}"
            )
        if self.include == 0:
            include = include_threshold(self.size, self.codes - self.size, self.epsilon)
            object.__setattr__(self, "include", include)
        if not self.size * ONE < self.include * self.codes < self.codes * ONE:
            raise InvalidInput(
                f"{self.name}: include must lie between 2**64 size / codes, the share of the good "
                f"codes, and 2**64, got {self.include}"
            )

    def _worst_ratio(self) -> Fraction:
        return Fraction(self.include * (self.codes - self.size), (ONE - self.include) * self.size)

    # --- the device ------------------------------------------------------------------------

    def randomize(self, value: ArrayLike, coins: Coins) -> NDArray[np.uint8]:
        """Return one code, shape (code_bytes,), for a vector, shape (dimension,).

        Raises `InvalidInput` for another shape, numbers that are not finite, or a norm above 1.
        """
        unit = self._unit(value)
        seed = coins.words(1).astype("<u8").tobytes()
        good = self._good(seed, unit)
        if coins.bernoulli(self.include):
            number = good[coins.below(self.size)]
        else:
            others = np.setdiff1d(np.arange(self.codes), good, assume_unique=True)
            number = others[coins.below(self.codes - self.size)]
        return np.frombuffer(seed + int(number).to_bytes(self._number_bytes, "little"), np.uint8)

    def _unit(self, value: ArrayLike) -> NDArray[np.float64]:
        """Return the unit vector that stands for the value, shape (dimension + 1,)."""
        vector = np.asarray(value, dtype=np.float64)
        if vector.shape != (self.dimension,):
            raise InvalidInput(
                f"{self.name}: a vector has the shape ({self.dimension},), got {vector.shape}"
            )
        square = float(vector @ vector)
        if not square <= (1 + _SLACK) ** 2:  # which nan does not
            raise InvalidInput(
                f"{self.name}: the L2 norm of a vector is at most 1, got {math.sqrt(square):g}"
            )
        return np.append(vector, math.sqrt(max(0.0, 1 - square)))

    def _good(self, seed: bytes, unit: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the numbers of the `size` directions nearest to a unit vector, ascending."""
        step = max(1, _BLOCK // self._lifted)
        products = np.empty(self.codes)
        for start in range(0, self.codes, step):
            block = range(start, min(start + step, self.codes))
            directed = directions(seed, block, self._lifted).astype(np.float64)
            lengths = np.sqrt(np.einsum("ij,ij->i", directed, directed))
            products[block.start : block.stop] = directed @ unit / np.maximum(lengths, 1)
        return np.sort(np.argsort(-products, kind="stable")[: self.size])

    def channel(self, seed: bytes, values: Sequence[ArrayLike]) -> Channel:
        """Return the exact channel given a seed: a row per vector, a column per number."""
        inside = Fraction(self.include, ONE) / self.size
        outside = (1 - Fraction(self.include, ONE)) / (self.codes - self.size)
        rows = []
        for value in values:
            good = set(self._good(seed, self._unit(value)).tolist())
            rows.append(tuple(inside if j in good else outside for j in range(self.codes)))
        return Channel(tuple(range(self.codes)), tuple(rows))

    # --- the wire --------------------------------------------------------------------------

    @property
    def code_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    @property
    def code_shape(self) -> tuple[int, ...]:
        return (SEED_BYTES + self._number_bytes,)

    @property
    def _number_bytes(self) -> int:
        return 1 if self.codes <= 1 << 8 else 2

    @property
    def _lifted(self) -> int:
        return self.dimension + 1

    def _numbers(self, codes: Codes) -> NDArray[np.int64]:
        places = 256 ** np.arange(self._number_bytes)
        return np.asarray(codes[:, SEED_BYTES:] @ places, dtype=np.int64)

    def _check_codes(self, codes: Codes) -> None:
        numbers = self._numbers(codes)
        if numbers.size and numbers.max() >= self.codes:
            raise InvalidInput(
                f"a {self.name} code names a direction below {self.codes}, got {numbers.max()}"
            )

    # --- the server ------------------------------------------------------------------------

    @cached_property
    def gain(self) -> float:
        """The mean inner product of the unit vector with the reported direction: m, 0 < m < 1.

        Rounded so that 1 / m is a float32: the last bits, in which machines differ, are gone.
        """
        p = self.include / ONE
        others = self.size / (self.codes - self.size)  # all means together are zero
        gain = mean_of_best(self._lifted, self.codes, self.size) * (p - (1 - p) * others)
        return 1 / float(np.float32(1 / gain))

    @property
    def squared_error(self) -> float:
        """The mean squared distance of one report's estimate from its vector, or slightly above."""
        return 1 / self.gain**2 - 1

    def debias(self, code: Codes) -> NDArray[np.float64]:
        """Return the unbiased estimate of one report, shape (dimension,), of a norm <= 1 / m.

        `code`, shape (code_bytes,), is a possible one, as `decode` returns it. The bits of the
        result are the same on every machine with IEEE 754.
        """
        number = int(self._numbers(code[np.newaxis])[0])
        seed = code[:SEED_BYTES].tobytes()
        direction = directions(seed, range(number, number + 1), self._lifted)[0].astype(np.float64)
        length = math.sqrt(float(direction @ direction))  # the square is an integer below 2**53
        estimate: NDArray[np.float64] = direction[:-1] / (max(length, 1) * self.gain)
        return estimate

    def updates_needed(self, norm: float) -> int:
        """Return how many reports bring the root of the mean squared error of their mean down to
        a third of the length of the vectors' mean, which is `norm`, 0 < norm <= 1.

        Counts the mechanism's noise alone: how much the vectors differ comes on top.
        """
        if not 0 < norm <= 1:
            raise InvalidInput(f"{self.name}: expected 0 < norm <= 1, got {norm}")
        return math.ceil(self.squared_error / (norm / 3) ** 2)
