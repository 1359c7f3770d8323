"""Oracles that the tests of repeated answers share: slow, and obviously right."""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from math import prod

Matrix = Sequence[Sequence[Fraction]]


def bit_rows(inputs: Sequence[int], width: int, own: int, other: int) -> Matrix:
    """Return Pr[bits y | bits x] for every y, each bit of x kept or raised on its own."""
    p, q = Fraction(own, 1 << 64), Fraction(other, 1 << 64)
    chance = {(1, 1): p, (1, 0): 1 - p, (0, 1): q, (0, 0): 1 - q}
    return [
        [prod(chance[x >> b & 1, y >> b & 1] for b in range(width)) for y in range(1 << width)]
        for x in inputs
    ]


def composed(first: Matrix, second: Matrix) -> Matrix:
    return [
        [sum(a * row[y] for a, row in zip(x, second, strict=True)) for y in range(len(second[0]))]
        for x in first
    ]


def worst_joint_ratio(permanent: Matrix, instantaneous: Matrix, reports: int) -> Fraction:
    """Return the worst ratio of two inputs' probabilities of `reports` reports of one memo."""
    worst = Fraction(1)
    width = len(instantaneous[0])
    for codes in itertools.combinations_with_replacement(range(width), reports):
        seen = [prod(row[y] for y in codes) for row in instantaneous]
        column = [sum(a * b for a, b in zip(row, seen, strict=True)) for row in permanent]
        worst = max(worst, max(column) / min(column))
    return worst
