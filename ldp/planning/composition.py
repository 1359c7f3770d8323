"""Composition of local guarantees, never understated.

Sums are exact: doubles are rationals, and a result is rounded up to a double once, at the end.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldp.core.channel import Channel
from ldp.core.exact import float_above
from ldp.core.loss_sums import epsilon_of_sum
from ldp.core.losses import Losses, losses_of
from ldp.core.mechanism import Mechanism
from ldp.errors import InvalidInput

DELTA = 1e-6
"""The probability of the events that a composition leaves out, where none is given."""


@dataclass(frozen=True)
class Guarantee:
    """(epsilon, delta)-LDP for every pair of inputs; delta = 0 is pure.

    Raises `InvalidInput` unless epsilon is finite and >= 0 and 0 <= delta <= 1.
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon >= 0):
            raise InvalidInput(f"epsilon must be finite and >= 0, got {self.epsilon}")
        if not 0 <= self.delta <= 1:
            raise InvalidInput(f"delta must lie in [0, 1], got {self.delta}")


def sequential(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Compose reports about the same record: both parameters add up.

    Holds for mechanisms chosen one after the other in the light of earlier reports. No reports
    give (0, 0). Source: Dwork and Roth 2014, theorems 3.16 and B.1.
    """
    delta = sum((Fraction(g.delta) for g in guarantees), Fraction(0))
    return Guarantee(
        float_above(sum((Fraction(g.epsilon) for g in guarantees), Fraction(0))),
        float_above(min(delta, Fraction(1))),
    )


def parallel(guarantees: Sequence[Guarantee]) -> Guarantee:
    """Compose reports where each record takes part in only one: the worst of each parameter.

    Which one must not depend on the record's value: by user, or by a public coin. Raises
    `InvalidInput` where there is none. Source: McSherry, SIGMOD 2009, theorem 4.
    """
    if not guarantees:
        raise InvalidInput("parallel composition needs at least one guarantee")
    return Guarantee(max(g.epsilon for g in guarantees), max(g.delta for g in guarantees))


def repeated(guarantee: Guarantee, times: int) -> Guarantee:
    """Compose `times` reports of the same guarantee about one record."""
    if times < 0:
        raise InvalidInput(f"times must be at least 0, got {times}")
    return Guarantee(
        float_above(Fraction(guarantee.epsilon) * times),
        float_above(min(Fraction(guarantee.delta) * times, Fraction(1))),
    )


def optimal(epsilon: float, times: int, delta: float) -> Guarantee:
    """Compose `times` pure epsilon-LDP reports about one record at a given delta, optimally.

    Returns the least of the epsilons (times - 2 i) epsilon whose delta is at most the one
    allowed; no other bound that knows only epsilon and times is smaller at these points.
    The delta returned is that point's own, rounded up. Raises `InvalidInput` unless
    1 <= times <= 10**6. Cost: O(times log times).
    Source: Kairouz, Oh and Viswanath, "The composition theorem for differential privacy", ICML
    2015, theorem 3.3: delta_i = sum_{l < i} C(t, l) (e**((t - l) eps) - e**((t - 2 i + l) eps))
    / (1 + e**eps)**t.
    """
    Guarantee(epsilon, delta)
    if not 1 <= times <= 10**6:
        raise InvalidInput(f"times must lie in 1..10**6, got {times}")
    logs = _log_terms(epsilon, times)
    i, too_many = 0, times // 2 + 1
    while too_many - i > 1:
        middle = (i + too_many) // 2
        if _optimal_delta(logs, epsilon, middle) <= delta:
            i = middle
        else:
            too_many = middle
    reached = _optimal_delta(logs, epsilon, i)
    return Guarantee(float_above(Fraction(epsilon) * (times - 2 * i)), reached)


def of_channels(
    reports: Iterable[tuple[Mechanism | Channel | Losses, int]], delta: float = DELTA
) -> float:
    """Compose fresh reports about one record at a given delta, by the channels that drew them.

    `reports` are channels and how many reports each drew. Returns an epsilon, rounded up, for
    which all reports together are (epsilon, delta)-LDP: for any two records, whose answers may
    change from report to report, also in the light of the reports before. It is at most the sum
    of the epsilons, and for equal channels at most `optimal`, up to its rounding; infinite where
    codes rule an input out with more than delta. No bound is smaller, but for rounding, where
    `losses_of` is exact and the two inputs that it is exact for are always the same.
    Which channels draw, and how many reports there are, must not depend on earlier codes: for
    such a choice only the sum of epsilons is a bound (Rogers et al., "Privacy odometers and
    filters", NIPS 2016). Mechanisms with a policy count as `losses_of` says: for the answers that
    the policy protects.
    Raises `InvalidInput` as `losses_of`, for a negative number of reports, and unless
    0 <= delta < 1. Cost: some milliseconds for 10**4 equal reports, up to a second for 10**5, and
    four for 10**6; 0.1 s where epsilons differ, or for a table. From about 2**21 reports on the
    lattice of the losses is too coarse to tell much: the result still holds, but is far from the
    least.
    Source: Zhu, Dong and Wang, AISTATS 2022, theorem 10; Koskela, Jälkö and Honkela, "Computing
    tight differential privacy guarantees using FFT", AISTATS 2020.
    """
    if not 0 <= delta < 1:
        raise InvalidInput(f"delta must lie in [0, 1), got {delta}")
    counted: dict[Losses, int] = {}
    for channel, times in reports:
        if times < 0:
            raise InvalidInput(f"the number of reports must be >= 0, got {times}")
        if times:
            losses = losses_of(channel)
            counted[losses] = counted.get(losses, 0) + times
    found = epsilon_of_sum(list(counted.items()), delta)
    if any(losses.certain for losses in counted):
        return found
    pure = sum((Fraction(losses.epsilon) * n for losses, n in counted.items()), Fraction(0))
    return min(found, float_above(pure))


def _log_terms(epsilon: float, times: int) -> NDArray[np.float64]:
    """Return ln(C(t, j) e**((t - j) eps) / (1 + e**eps)**t) for j = 0..t // 2."""
    factorials = np.array([math.lgamma(j + 1) for j in range(times + 1)])
    j = np.arange(times // 2 + 1)
    norm = times * math.log1p(math.exp(-epsilon))
    logs: NDArray[np.float64] = factorials[-1] - factorials[j] - factorials[times - j]
    return logs - j * epsilon - norm


def _optimal_delta(logs: NDArray[np.float64], epsilon: float, i: int) -> float:
    """Return delta_i, rounded up: logarithms keep its terms from overflow, 1e-6 exceeds their
    error, and the least double for each term exceeds the loss where it underflows."""
    shares = -np.expm1(2 * epsilon * (np.arange(i) - i))
    return min(1.0, float((np.exp(logs[:i]) * shares).sum()) * (1 + 1e-6) + i * 5e-324)
