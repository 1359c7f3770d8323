"""The piecewise mechanism for the mean."""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from ldp.core.exact import check_epsilon
from ldp.mechanisms.numbers.window import WindowMechanism

DEFAULT_GRID = 1024


@dataclass(frozen=True)
class PiecewiseMechanism(WindowMechanism):
    """Report a number near the true one with a high density and any other with a low one.

    The published window is 1 / s of the distance it moves, with s = e**(epsilon / 2). On the
    default grid of 1024 steps the variance of a report of t is then within 1% of that on the
    continuum, t**2 / (s - 1) + (s + 3) / (3 (s - 1)**2), for epsilon <= 4, and below it beyond.
    `optimal` takes a wider window, of less variance. Guarantee, cost and errors: those of
    `WindowMechanism`.
    Source: Wang, Xiao, Yang et al., "Collecting and analyzing multidimensional data with local
    differential privacy", ICDE 2019, section III-B, here with an exact finite
    channel and the debiasing that belongs to it.
    """

    name: ClassVar[str] = "piecewise"

    @classmethod
    def optimal(cls, epsilon: float, grid: int = DEFAULT_GRID) -> Self:
        """Return the mechanism whose window minimises the variance of the worst number.

        It saves 3% of that variance at epsilon 1, 11% at 2 and 33% at 4. Source: the idea of
        Zhao, Zhao, Yang et al., "Local differential privacy-based federated learning for
        Internet of Things", IEEE IoT Journal 8(11), 2021 (PM-OPT); the search is ours.
        """
        windows = np.arange(1, 2 * grid)
        middle, slope = variance_terms(epsilon, windows / grid)
        return cls(epsilon, grid, int(windows[np.argmin(middle + slope)]))

    @property
    def _default_grid(self) -> int:
        return DEFAULT_GRID

    @property
    def _relative_window(self) -> float:
        return math.exp(-self.epsilon / 2)


def variance_terms(
    epsilon: float, relative_window: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (a, b) such that a report of t has variance a + b t**2, on a fine grid.

    `relative_window` is the window's width over the distance it moves, any shape.
    """
    e, r = math.exp(check_epsilon(epsilon)), relative_window
    noise = (1 + r) ** 3 * (1 + r * e) / (3 * r**2 * (e - 1) ** 2)
    return noise + r * (1 + r * e) / (3 * (e - 1)), (1 + r) / (r * (e - 1))
