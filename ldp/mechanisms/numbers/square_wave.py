"""The square wave mechanism for the whole distribution of a number."""

import math
from dataclasses import dataclass
from typing import ClassVar

from ldp.mechanisms.numbers.window import WindowMechanism


@dataclass(frozen=True)
class SquareWave(WindowMechanism):
    """Report uniformly from a window of the most informative width, or from all codes.

    The window is 2 b of the distance it moves, b being the half-width that maximises a bound
    on the mutual information of number and report. `ldp.estimating.points` estimates how whole
    numbers are distributed, `ldp.estimating.distribution` draws a curve of any numbers; `estimate`
    gives the mean, unbiased, though a `PiecewiseMechanism` gives it with less variance.
    Guarantee, cost and errors: those of `WindowMechanism`.
    Source: Li, Wang, Lopuhaä-Zwakenberg, Skoric and Li, "Estimating numerical distributions
    under local differential privacy", SIGMOD 2020.
    """

    name: ClassVar[str] = "square_wave"

    @property
    def _default_grid(self) -> int:
        return 256

    @property
    def _relative_window(self) -> float:
        return 2 * half_width(self.epsilon)


def half_width(epsilon: float) -> float:
    """Return b, the best half-width of the wave for numbers in [0, 1]; it tends to 1/2 at 0.

    Source: Li et al. 2020: where their bound on the mutual information is largest.
    """
    if epsilon < 1e-4:  # the quotient below loses its digits; this is its expansion
        return 0.5 - epsilon / 3
    exp, rest = math.exp(epsilon), math.expm1(epsilon)
    return (epsilon * exp - rest) / (2 * exp * (rest - epsilon))
