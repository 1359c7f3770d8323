"""Sums of updates in integers: the order in which updates come does not matter."""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import check_integer, check_positive
from ldp.errors import InvalidInput

MOST_UPDATES = 1 << 20
_FINE = 40
_WIDTH = 1 << 10

Update = NDArray[np.float32] | NDArray[np.float64]


class ExactSum:
    """Add clipped updates as integer multiples of a power of two, at most 2**20 of them.

    An update longer than `max_norm` in L2 is scaled down to it. Then each coordinate is rounded
    toward zero to a multiple of `spacing`, which no norm grows by: the norm of what one update adds
    is at most `max_norm` in exact arithmetic, however doubles round. The integers cannot overflow.

    Proof, u being 2**-53: a sum of d squares of doubles that is computed in any order is at least
    (1 - (d + 1) u) of the exact one, and so the root of it, times 1 + (d + 8) u, is at least the
    norm, for d < 2**27. An update that is scaled has its coordinates multiplied by at most
    (1 - 2**-50) max_norm over this bound, with a relative error of u in each. One that is not
    scaled has at most norm `max_norm`, and products with the power of two are exact.

    Raises `InvalidInput` unless dimension is in 1..2**26 and max_norm in [1e-100, 1e100], and where
    spacing, by default 2**-40 of max_norm or more, is so fine that 2**20 updates could overflow.
    Cost: 2 ms for 200,000 parameters.
    """

    def __init__(self, dimension: int, max_norm: float, spacing: float | None = None) -> None:
        self.dimension = check_integer("dimension", dimension, 1)
        self._norm = check_positive("max_norm", max_norm)
        if dimension > 1 << 26:
            raise InvalidInput(f"dimension must be at most 2**26, got {dimension}")
        if not 1e-100 <= max_norm <= 1e100:
            raise InvalidInput(f"max_norm must be between 1e-100 and 1e100, got {max_norm:g}")
        coarse = 2.0 ** math.floor(math.log2(max_norm))
        self.spacing = coarse * 2.0**-_FINE if spacing is None else spacing
        if not max_norm / self.spacing * MOST_UPDATES <= 2.0**62:
            raise InvalidInput(
                f"sums of {MOST_UPDATES} updates of norm {max_norm:g} in steps of "
                f"{self.spacing:g} would overflow 64 bits: fewer rounds, parameters or noise"
            )
        self.updates = 0
        """How many updates were added."""
        self.units = np.zeros(dimension, dtype=np.int64)
        """The sum in multiples of `spacing`, shape (dimension,)."""

    def add(self, update: Update) -> None:
        """Clip an update and add it.

        Raises `InvalidInput`, and changes nothing, for another shape, values that are not finite,
        and more than 2**20 updates.
        """
        values = np.asarray(update, dtype=np.float64)
        if values.shape != (self.dimension,):
            raise InvalidInput(
                f"an update of shape ({self.dimension},) is expected, got {values.shape}"
            )
        if self.updates >= MOST_UPDATES:
            raise InvalidInput(f"a sum has {MOST_UPDATES} updates at most")
        bound = _norm(values) * (1 + (self.dimension + 8) * 2.0**-53)
        if not math.isfinite(bound):
            raise InvalidInput("an update must be finite, and its norm below 1e150")
        factor = 1 / self.spacing
        if bound > self._norm:
            factor *= self._norm / bound * (1 - 2.0**-50)
        self.units += (values * factor).astype(np.int64)  # rounds toward zero
        self.updates += 1

    def add_all(self, updates: Iterable[Update]) -> "ExactSum":
        """Add several updates, one at a time, and return this sum."""
        for update in updates:
            self.add(update)
        return self

    def value(self) -> NDArray[np.float64]:
        """Return the sum in float64, shape (dimension,): without noise, so it protects nobody."""
        summed: NDArray[np.float64] = self.units * np.float64(self.spacing)
        return summed


def _norm(values: NDArray[np.float64]) -> float:
    """Return the norm with the same bits on every machine: the order of the sum is fixed."""
    with np.errstate(over="ignore", invalid="ignore"):
        squares = values * values
        whole = squares.size - squares.size % _WIDTH
        partial = squares[:whole].reshape(-1, _WIDTH).sum(axis=0)  # row by row
    parts = np.concatenate([partial, squares[whole:]])
    return math.sqrt(math.fsum(parts)) if np.isfinite(parts).all() else math.inf
