"""Composition of (epsilon, delta) guarantees, knowing nothing of the mechanisms."""

import math
from collections.abc import Sequence

from dpsgd.accounting.events import ROUNDED_UP, check_delta, check_integer, check_rate
from ldp.planning.composition import Guarantee as Guarantee
from ldp.planning.composition import optimal as _optimal_pure


def amplified(guarantee: Guarantee, rate: float) -> Guarantee:
    """Return the guarantee of a step on a Poisson sample, under add and remove, or a fixed-size
    one under replacement: (ln(1 + rate (e**epsilon - 1)), rate delta).

    Raises `InvalidInput` unless 0 <= rate <= 1.
    Source: Balle, Barthe and Gaboardi, NeurIPS 2018, theorems 8 and 9.
    """
    if check_rate(rate) == 0:
        return Guarantee(0.0, 0.0)
    epsilon = guarantee.epsilon
    # e**epsilon overflows; its logarithm plus the rate's does not.
    grown = math.log1p(rate * math.expm1(epsilon)) if epsilon < 700 else epsilon + math.log(rate)
    return Guarantee(min(epsilon, grown * ROUNDED_UP), rate * guarantee.delta)


def advanced(guarantee: Guarantee, times: int, slack: float) -> Guarantee:
    """Compose `times` equal guarantees as `unequal` does."""
    return unequal([(guarantee, times)], slack)


def unequal(parts: Sequence[tuple[Guarantee, int]], slack: float) -> Guarantee:
    """Compose guarantees, each so many times, paying `slack` of delta for a smaller epsilon.

    sum e (exp(e) - 1) / (exp(e) + 1) + sqrt(2 ln(1 / slack) sum e**2), or sum e where that is
    less; sum delta + slack. Raises `InvalidInput` unless all times are >= 0 and 0 < slack < 1, and
    where the epsilon is no double.
    Source: Kairouz, Oh and Viswanath, ICML 2015, theorem 3.5; the first term is at most half of
    that of Dwork, Rothblum and Vadhan, FOCS 2010, theorem III.3.
    """
    check_delta(slack)
    for _, times in parts:
        check_integer("times", times, 0)
    mean = math.fsum(n * g.epsilon * math.tanh(g.epsilon / 2) for g, n in parts)
    root = math.hypot(*(math.sqrt(n) * g.epsilon for g, n in parts))
    plain = math.fsum(n * g.epsilon for g, n in parts)
    total = min(plain, mean + root * math.sqrt(2 * math.log(1 / slack)))
    delta = math.fsum(n * g.delta for g, n in parts) + slack
    return Guarantee(total * ROUNDED_UP, min(1.0, delta * ROUNDED_UP))


def optimal(guarantee: Guarantee, times: int, slack: float) -> Guarantee:
    """Compose `times` equal guarantees optimally, at most `slack` of delta beside their own.

    No bound that knows only the guarantee and `times` has a smaller epsilon, on the lattice
    (times - 2 i) epsilon. The delta is 1 - (1 - delta)**t (1 - delta_i). Raises `InvalidInput`
    unless 1 <= times <= 10**6 and 0 < slack < 1. Cost: O(times log times).
    Source: Kairouz, Oh and Viswanath, ICML 2015, theorem 3.3.
    """
    check_delta(slack)
    check_integer("times", times, 1)
    if not guarantee.delta < 1:
        return Guarantee(guarantee.epsilon, 1.0)
    pure = _optimal_pure(guarantee.epsilon, times, slack)
    if pure.delta >= 1:
        return pure
    log_kept = times * math.log1p(-guarantee.delta) + math.log1p(-pure.delta)
    return Guarantee(pure.epsilon, min(1.0, -math.expm1(log_kept) * ROUNDED_UP))
