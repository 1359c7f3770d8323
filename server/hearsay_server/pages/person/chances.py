"""Chances in words: as so many of 100 people."""

import math
from collections.abc import Sequence
from fractions import Fraction

_MOST_PEOPLE = 10**6
"""The most people of whom a chance speaks."""

EDGE = 1e-12
"""A chance in doubles that is this small is none."""


def of_many(*chances: Fraction | float) -> tuple[str, ...]:
    """Return chances as so many of 100 people, or of the power of ten that tells them apart.

    Chances in doubles that are within 10**-12 of 0 or 1 count as these.
    """
    many = people(*chances)
    return tuple(f"{counted(chance, many)} of {many:,}" for chance in chances)


def people(*chances: Fraction | float) -> int:
    """Return of how many people to speak: 100, or the power of ten that tells the chances apart,
    and from none and all."""
    many = 100
    while many < _MOST_PEOPLE and not _are_apart(chances, many):
        many *= 10
    return many


def _are_apart(chances: Sequence[Fraction | float], many: int) -> bool:
    edges = [chance for chance in chances if EDGE < chance < 1 - EDGE]
    rounded = [round(chance * many) for chance in edges]
    return len({*rounded}) == len({*edges}) and not {0, many} & {*rounded}


def counted(chance: Fraction | float, many: int) -> str:
    """Return how many of so many people a chance is."""
    if chance <= EDGE:
        return "none"
    return "all" if chance >= 1 - EDGE else f"{round(chance * many):,}"


def factor(epsilon: float) -> str:
    """Return e**epsilon, rounded up: the most that a report changes anybody's odds by."""
    odds = math.exp(epsilon)
    step = 10.0 ** (math.floor(math.log10(odds)) - 1)
    up = math.ceil(odds / step * (1 - 1e-12)) * step
    return f"{up:,.0f}" if up >= 10 else f"{up:.1f}"
