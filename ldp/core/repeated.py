"""Bounds on the variance of reports of several periods, in which people may answer repeatedly.

Within a period each report is of another person, and they are independent. Over periods a person
may answer again, with the same truth, or send the same code again (a memo). Nobody but the person
knows: a server knows how many reports came in each period, and this is all that is used here.

Let an estimate weigh each report of level g by a_g. The noise of fresh codes is independent over
periods, and averages out over reports; the variance of people's truths does not. A person's m
reports add the sum of their m shares, whose square is at most m times the sum of their squares
(Cauchy and Schwarz), however the shares depend. So the variance of the persistent part is at most

    sum_g a_g**2 N_g R_g v_g,    R_g = sum_t sum_u min(n_gt, n_u) / N_g,

where v_g is its variance in one report, and R_g bounds the mean of m over the N_g reports of level
g: of the n_gt people of a period t no more than min(n_gt, n_u) are among the n_u of period u. With
one level, and the same people in all of T equal periods, R = T, and the bound is exact; it is 1 for
one period. It holds for people who come, go, change their answers, and change the level.

The persistent part is the truth, of a variance of at most (high - f)(f - low) (Bhatia and Davis,
American Mathematical Monthly 107, 2000; f(1 - f), exactly, for a category), or with memos the whole
report.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.errors import InvalidInput

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Repeats:
    """The dependence between a cohort's reports and other reports of the same people.

    `factor` is R_g >= 1. If `codes`, the codes may be the same in all periods, and not only the
    truths behind them.
    """

    factor: float = 1.0
    codes: bool = False

    def __post_init__(self) -> None:
        if not self.factor >= 1:
            raise InvalidInput(f"a factor of repeats must be >= 1, got {self.factor}")

    def more(self, variance: Floats, truths: Floats) -> Floats:
        """Return the variance that repeats add to the `variance` of independent reports, of
        which `truths` is the part due to people's truths."""
        return (self.factor - 1) * (variance if self.codes else truths)


Repeated = Sequence[Repeats]
"""One `Repeats` for each cohort; empty where all reports are of different people."""


def factors(reports: ArrayLike) -> Floats:
    """Return R_g, shape (levels,), of the numbers of reports, shape (levels, periods).

    It is 1 for a level without reports. Raises `InvalidInput` for another shape.
    """
    counts = np.asarray(reports, dtype=float)
    if counts.ndim != 2:
        raise InvalidInput(f"reports have the shape (levels, periods), got {counts.shape}")
    both = np.minimum(counts[:, :, None], counts.sum(axis=0)).sum(axis=(1, 2))
    whole = counts.sum(axis=1)
    found: Floats = np.maximum(1, both / np.where(whole, whole, 1))
    return found
