"""A record as a vector of integers, its exact sensitivity, and estimates from sums of them.

An attribute is a block of cells. An answer to a question with k choices is `scale` in the cell of
the choice. A number is rounded to a point u of the grid 0..scale and fills two cells: u and
scale - u, so that their sum counts the answers. An absent answer leaves its cells at zero. Two
answers to a question are at most 2 * scale**2 apart, squared, in both kinds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.coins import Coins
from ldp.errors import InvalidInput
from ldp.two_servers.rounding import grid_share
from ldp.two_servers.skellam import skellam


@dataclass(frozen=True)
class Choice:
    """A question with `size` choices 0..size-1."""

    name: str
    size: int

    def __post_init__(self) -> None:
        if self.size < 2:
            raise InvalidInput(f"{self.name}: size must be at least 2, got {self.size}")

    @property
    def cells(self) -> int:
        """The number of the block's cells."""
        return self.size

    def encode(self, value: int, scale: int, coins: Coins) -> list[int]:
        """Return the cells of an answer."""
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < self.size:
            raise InvalidInput(f"{self.name}: expected an integer in 0..{self.size - 1}")
        return [scale * (place == value) for place in range(self.size)]

    def every(self, scale: int) -> list[list[int]]:
        """Return the cells of all answers, and of none."""
        return [[scale * (p == v) for p in range(self.size)] for v in range(-1, self.size)]


@dataclass(frozen=True)
class Number:
    """A number in lower..upper."""

    name: str
    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not -math.inf < self.lower < self.upper < math.inf:
            raise InvalidInput(
                f"{self.name}: expected finite lower < upper, got {self.lower} and {self.upper}"
            )

    @property
    def cells(self) -> int:
        """The number of the block's cells."""
        return 2

    def encode(self, value: float, scale: int, coins: Coins) -> list[int]:
        """Return the cells of an answer, rounded without bias."""
        u = grid_share(value, self.lower, self.upper, scale, coins)
        return [u, scale - u]

    def every(self, scale: int) -> list[list[int]]:
        """Return the cells of all answers, and of none."""
        return [[0, 0], *([u, scale - u] for u in range(scale + 1))]


@dataclass(frozen=True)
class Layout:
    """The blocks of a record, and the integer that stands for one answer."""

    blocks: tuple[Choice | Number, ...]
    scale: int

    def __post_init__(self) -> None:
        if not self.blocks or not 1 <= self.scale <= 1 << 16:
            raise InvalidInput(
                f"expected at least one block and a scale in 1..2**16, got {len(self.blocks)} "
                f"blocks and scale {self.scale}"
            )
        names = [block.name for block in self.blocks]
        if len(set(names)) < len(names):
            raise InvalidInput(f"names must differ, got {', '.join(names)}")

    @property
    def dim(self) -> int:
        """The number of cells of a record."""
        return sum(block.cells for block in self.blocks)

    @property
    def distances(self) -> tuple[int, int]:
        """The largest L1 distance and the largest squared L2 distance of two records, of which one
        may be empty: both are reached, by records that differ in every block.

        Two choices differ by `scale` in two cells, two numbers by at most as much in both, and an
        answer from none by less.
        """
        return 2 * len(self.blocks) * self.scale, 2 * len(self.blocks) * self.scale**2

    def enumerated_distances(self) -> tuple[int, int]:
        """Return `distances` from the cells of every two records: slow, for tests of small
        layouts."""
        far = []
        for block in self.blocks:  # two records may differ in each block as they like
            pairs = list(product(block.every(self.scale), repeat=2))
            gaps = [[x - y for x, y in zip(a, b, strict=True)] for a, b in pairs]
            l1 = max(sum(map(abs, gap)) for gap in gaps)
            far.append((l1, max(sum(x * x for x in gap) for gap in gaps)))
        return sum(l1 for l1, _ in far), sum(squared for _, squared in far)

    def encode(self, answers: Mapping[str, Any], coins: Coins) -> NDArray[np.int64]:
        """Return a record's cells, shape (dim,); absent answers, and None, leave zeros.

        Raises `InvalidInput` for an unknown name and for a value outside of its domain.
        """
        if unknown := answers.keys() - {block.name for block in self.blocks}:
            raise InvalidInput(f"unknown attributes: {', '.join(sorted(unknown))}")
        cells: list[int] = []
        for block in self.blocks:
            value = answers.get(block.name)
            cells += [0] * block.cells if value is None else block.encode(value, self.scale, coins)
        return np.array(cells, dtype=np.int64)

    def randomize(
        self, answers: Mapping[str, Any], variance: Fraction, coins: Coins
    ) -> NDArray[np.int64]:
        """Return a record with its own part of the noise, shape (dim,): what is split and sent."""
        return self.encode(answers, coins) + skellam(variance, self.dim, coins)

    def least_bits(self, most: int, variance: Fraction) -> int:
        """Return the least of 16, 32, 64 bits in which the sum of `most` records does not wrap.

        Beyond 12 standard deviations of noise a cell wraps with a probability below 2e-30 a sum
        (Bernstein's bound; exact tails are smaller). A wrap spoils the sum, never its privacy.
        """
        size = most * self.scale + 12 * math.sqrt(float(most * variance)) + 24
        for bits in (16, 32, 64):
            if size < 1 << bits - 1:
                return bits
        raise InvalidInput(f"sums of {most} records do not fit into 64 bits")


@dataclass(frozen=True)
class Counted:
    """The estimates of a block: counts of choices, shape (k,), or of the answers to a number.

    `answered` is the estimated number of answers. For a number, `values` is its mean, shape (1,).
    For a choice, `values` are the shares among the answers. Errors are standard errors: those of
    counts are of the noise alone; those of `values` include sampling.
    """

    name: str
    counts: NDArray[np.float64]
    count_error: float
    answered: float
    answered_error: float
    values: NDArray[np.float64]
    errors: NDArray[np.float64]


def estimate(
    layout: Layout, total: ArrayLike, records: int, variance: Fraction, repeats: int = 1
) -> list[Counted]:
    """Return the estimates of each block from the sum of `records` records, all with noise.

    One person has at most `repeats` of them, which the sampling errors allow for.

    `variance` is that of one device's noise. The counts are unbiased. Ratios are estimated by the
    delta method, so their errors hold where the answers are many beside the noise.
    """
    cells = np.asarray(total, dtype=np.float64) / layout.scale
    if cells.shape != (layout.dim,) or records < 1:
        raise InvalidInput(f"expected {layout.dim} cells and a record, got {cells.shape}")
    noise = float(records * variance) / layout.scale**2
    found, at = [], 0
    for block in layout.blocks:
        counts = cells[at : at + block.cells]
        at += block.cells
        answered = float(counts.sum())
        n = max(answered, 1.0)
        parts = counts / n
        # By the delta method: of a count less its part of all counts.
        spread = noise * (1 - 2 * parts + block.cells * parts**2) / n**2
        sampling = repeats * np.clip(parts * (1 - parts), 0, 0.25) / n
        if isinstance(block, Number):
            # The variance of the answers is not told; that of the farthest answers bounds it.
            width = block.upper - block.lower
            values = block.lower + width * parts[:1]
            errors = width * np.sqrt(spread[:1] + sampling[:1])
        else:
            values, errors = parts, np.sqrt(spread + sampling)
        found.append(
            Counted(
                block.name,
                counts,
                math.sqrt(noise),
                answered,
                math.sqrt(block.cells * noise),
                values,
                errors,
            )
        )
    return found


def calibrate(
    distances: tuple[int, int], rho: Fraction, least: int, colluding: int, unit: int = 1 << 10
) -> Fraction:
    """Return the least variance of one device, in steps of 1 / unit, that keeps to rho.

    Solves rho v**2 - D2**2 v / 2 - (D2**2 + 3 D1) / 2 >= 0 for the honest devices' variance v.
    """
    l1, squared = distances
    if not rho > 0 or not 0 <= colluding < least:
        raise InvalidInput(
            f"expected rho > 0 and 0 <= colluding < least, got {rho}, {colluding}, {least}"
        )
    honest = least - colluding

    def enough(steps: int) -> bool:
        v = Fraction(steps, unit) * honest
        return Fraction(squared) * v + squared + 3 * l1 <= 2 * rho * v * v

    steps = 1
    while not enough(steps):
        steps *= 2
    low, high = steps // 2, steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return Fraction(high, unit)
