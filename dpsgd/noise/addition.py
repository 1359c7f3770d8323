"""Add noise to sums, and round what is released to multiples of a public power of two."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from dpsgd.noise.compiled import add_rounded
from dpsgd.noise.shared import Values, tensor_of


@dataclass(frozen=True)
class Rounding:
    """Add noise in float64, and round the sum to multiples of a public power of two.

    Every value that is released then stands for millions of values of the noise or more, and
    shows no pattern of how these or float64 are rounded. That is an argument and a test, not a
    proof; a proof, for exact normal values, is `Grid`'s.
    """

    spacing: float
    _widening: ClassVar[float] = 1.0
    _apart: ClassVar[bool] = False

    @classmethod
    def for_noise(cls, deviation: float) -> "Rounding":
        """Return the rounding for noise of standard deviation `deviation`."""
        return cls(2.0 ** (math.floor(math.log2(deviation)) - 26))

    def prepared(self, summed: Tensor) -> Tensor:
        """Return a float64 copy of a sum to add noise to, rounded first by a `Grid`."""
        total = summed.to(torch.float64, copy=True)
        return self._round(total) if self._apart else total  # several then add up exactly

    def before_finish(self) -> "Rounding":
        """Return the rounding for noise on one of several prepared sums that will be added up."""
        # With float64's own spacing: only the total, with its noise, is rounded.
        return self if self._apart else replace(self, spacing=self.spacing * 2.0**-26)

    def finish(self, total: Tensor) -> Tensor:
        """Return the release of a noisy prepared sum, or of several that were added up."""
        return total if self._apart else self._round(total)

    def release(
        self, summed: Values, normal: Values, deviation: float, divisor: float = 1.0
    ) -> None:
        """Add noise of a deviation to a flat sum and divide, in place; normals serve only once."""
        if isinstance(summed, Tensor):
            noise = tensor_of(normal).mul_(deviation * self._widening)
            noise = self._round(noise) if self._apart else noise
            summed.copy_(self.finish(noise.add_(self.prepared(summed))).div_(divisor))
        else:
            add_rounded(summed, np.asarray(normal), *self.options(deviation), divisor)

    def options(self, deviation: float) -> tuple[float, float, bool]:
        """Return (deviation, spacing, apart), by which `add_rounded` does as `release` does."""
        return deviation * self._widening, self.spacing, self._apart

    def _round(self, values: Tensor) -> Tensor:
        return values.div_(self.spacing).round_().mul_(self.spacing)


@dataclass(frozen=True)
class Grid(Rounding):
    """Round sums and noise to multiples of one public power of two before they meet.

    Proved, for normal values without error: rounding moves the sums of neighbours apart
    by less than 1/4096 of their sensitivity, for which the noise is widened; multiples of the
    grid, rounded, plus a multiple, are the rounded sum of both. So the release is the Gaussian
    mechanism on a grid, rounded: no bit of it tells the floating-point errors of the sum
    (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012).
    Not proved: that the normal values are exact (they have 53 bits and end at 13.3 standard
    deviations), that the sums of clipped gradients were added without error, and anything about
    timing.
    """

    _widening = 1 + 1 / 4096
    _apart = True

    @classmethod
    def for_sums(cls, sensitivity: float, dimensions: int) -> "Grid":
        """Return the grid for sums of this sensitivity with `dimensions` values in all."""
        return cls(2.0 ** math.floor(math.log2(sensitivity / (4096 * math.sqrt(dimensions)))))
