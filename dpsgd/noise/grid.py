"""Noise is added on a grid: sums and noise are rounded to it before they meet."""

from dataclasses import dataclass

import torch
from torch import Tensor

from dpsgd.noise.compiled import add_rounded
from dpsgd.noise.spacing import WIDENING, spacing_for


@dataclass(frozen=True)
class Grid:
    """Round sums and noise to multiples of one public power of two before they meet.

    Proved, for normal values without error: rounding moves the sums of neighbours apart
    by less than 1/4096 of their sensitivity, for which the noise is widened; multiples of the
    grid, rounded, plus a multiple, are the rounded sum of both. So the release is the Gaussian
    mechanism on a grid, rounded: no bit of it tells the floating-point errors of the sum
    (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012).
    Not proved: that the normal values are exact (they have 53 bits and end at 13.3 standard
    deviations), that the sums of clipped gradients were added without error, and anything about
    timing.

    What 53 bits come to: they give multiples of the grid uneven chances, by about
    r = 2^-51 deviation / spacing of each. Each value that a record moves adds 2 r^2 to mu^2, the
    square of the mean that the account tells from 0. With the finest spacing that is the part
    2^-75 dimensions^2 noise_multiplier^4 of mu^2, in any number of steps. For 10^8 parameters it is
    3e-7 at a noise multiplier of 1, and 1/400 at 10. Above 45 it is more than mu^2 itself: the
    account is then too low.
    """

    spacing: float

    @classmethod
    def for_sums(cls, sensitivity: float, dimensions: int, deviation: float) -> "Grid":
        """Return the grid for sums of this sensitivity with `dimensions` values in all.

        It is fine beside the noise of standard deviation `deviation`, too, however small. Raises
        `InvalidInput` for sums or noise near the least or the largest float64.
        """
        return cls(spacing_for(sensitivity, dimensions, deviation))

    def rounded(self, summed: Tensor) -> Tensor:
        """Return a sum on the grid, in float64: several, and noise, then add up exactly."""
        return summed.to(torch.float64, copy=True).div_(self.spacing).round_().mul_(self.spacing)

    def release(
        self, summed: Tensor, normal: Tensor, deviation: float, divisor: float = 1.0
    ) -> None:
        """Add noise of a deviation to a flat sum and divide, in place; normals serve only once."""
        deviation *= WIDENING
        if summed.is_cpu:
            add_rounded(summed.numpy(), normal.numpy(), deviation, self.spacing, divisor)
        else:
            total = self.rounded(normal.mul_(deviation)).add_(self.rounded(summed))
            summed.copy_(total.mul_(1 / divisor))
