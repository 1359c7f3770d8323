"""Probabilities as integers over 2**64, rounded so that privacy is never overstated.

A mechanism's probabilities are rationals with denominator `ONE`. Its requested epsilon is a
double; e**epsilon is irrational. The functions here bracket e**epsilon between rationals, so
that a calibration can round toward privacy and a check can be exact.
"""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from ldp.errors import InvalidInput

ONE = 1 << 64
"""The integer that stands for probability one."""

MAX_EPSILON = 32.0
"""The largest epsilon; beyond it 64-bit probabilities are too coarse and the promise too weak."""

# Decimal.exp and Decimal.ln are correctly rounded at the context's precision (General Decimal
# Arithmetic Specification), so one unit in the last place brackets the true value.
_PRECISION = 60


def check_epsilon(epsilon: float, what: str = "epsilon") -> float:
    """Return `epsilon` as a float, or raise `InvalidInput` unless 0 < epsilon <= 32."""
    if isinstance(epsilon, bool) or not isinstance(epsilon, int | float):
        raise InvalidInput(f"{what} must be a number, got {epsilon!r}")
    if not 0 < epsilon < math.inf:  # an int may be beyond all floats
        raise InvalidInput(f"{what} must be finite and > 0, got {epsilon!r}")
    if epsilon > MAX_EPSILON:
        raise InvalidInput(f"{what} must be at most {MAX_EPSILON:g}, got {epsilon!r}")
    return float(epsilon)


@lru_cache(maxsize=1024)
def exp_bounds(x: Fraction) -> tuple[Fraction, Fraction]:
    """Bracket e**x between two rationals about 10**-57 apart (relative)."""
    down = Context(prec=_PRECISION, rounding=ROUND_FLOOR)
    up = Context(prec=_PRECISION, rounding=ROUND_CEILING)
    low = down.divide(Decimal(x.numerator), Decimal(x.denominator))
    high = up.divide(Decimal(x.numerator), Decimal(x.denominator))
    return (
        Fraction(down.exp(low).next_minus(down)),
        Fraction(up.exp(high).next_plus(up)),
    )


@lru_cache(maxsize=1024)
def log_upper(ratio: Fraction) -> float:
    """Return the smallest double that is certainly >= ln(ratio), for ratio >= 1."""
    if ratio < 1:
        raise InvalidInput(f"a worst-case probability ratio is at least 1, got {ratio}")
    if ratio == 1:
        return 0.0
    up = Context(prec=_PRECISION, rounding=ROUND_CEILING)
    value = up.ln(up.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))).next_plus(up)
    result = float(value)
    return math.nextafter(result, math.inf) if Decimal(result) < value else result


def certainly_at_most(ratio: Fraction, epsilon: float) -> bool:
    """Tell whether ratio <= e**epsilon can be certified."""
    return ratio <= exp_bounds(Fraction(epsilon))[0]


def floor_threshold(probability: Fraction) -> int:
    """Return the largest integer t with t / 2**64 <= probability."""
    return math.floor(probability * ONE)


def ceil_threshold(probability: Fraction) -> int:
    """Return the smallest integer t with t / 2**64 >= probability."""
    return math.ceil(probability * ONE)


def flip_threshold(epsilon: Fraction) -> int:
    """Return the least t for which flipping a bit with probability t / 2**64 keeps epsilon."""
    return ceil_threshold(1 / (exp_bounds(epsilon)[0] + 1))


def include_threshold(inside: int, outside: int, epsilon: float) -> int:
    """Return the largest t with (t / inside) / ((2**64 - t) / outside) <= e**epsilon.

    A report is uniform over `inside` codes with probability t / 2**64, else over `outside` others.
    """
    weight = inside * exp_bounds(Fraction(epsilon))[0]
    return floor_threshold(weight / (weight + outside))


def float_above(value: Fraction) -> float:
    """Return the smallest double >= value, so that bounds of a cost never fall short."""
    return -float_below(-value)


def float_below(value: Fraction) -> float:
    """Return the largest double <= value, so that shares of a budget never exceed it."""
    result = float(value)
    return math.nextafter(result, -math.inf) if Fraction(result) > value else result
