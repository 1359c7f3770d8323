"""Oracles that the tests of repeated answers share: slow, and obviously right."""

import itertools
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp import Estimate, Mechanism, Tally
from ldp.testing import SeededCoins

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


def estimates(
    mechanism: Mechanism, values: NDArray[np.int64], coins: SeededCoins
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the estimates and their standard errors, a row per row of `values`."""
    codes = mechanism.randomize_many(values.ravel(), coins)
    groups = codes.reshape(*values.shape, *mechanism.code_shape)
    results: list[Estimate] = [mechanism.estimate(mechanism.tally(group)) for group in groups]
    return (
        np.array([result.value for result in results]),
        np.array([result.standard_error for result in results]),
    )


def assert_unbiased_with_its_variance(
    mechanism: Mechanism, truth: ArrayLike, coins: SeededCoins, trials: int = 8000, n: int = 100
) -> None:
    """Assert bias within 4 SE, and MSE within 5% of the variance, over fresh populations."""
    truth = np.asarray(truth, dtype=float)
    values = np.random.default_rng(7).choice(truth.size, size=(trials, n), p=truth)
    assert_moments(debiased(mechanism, values, coins), truth, mechanism.variance(truth, n))


def assert_moments(
    found: NDArray[np.float64], truth: NDArray[np.float64], variance: NDArray[np.float64]
) -> None:
    limit = 4 * np.sqrt(variance / len(found))
    np.testing.assert_array_less(abs(found.mean(axis=0) - truth), limit)
    ratio = ((found - truth) ** 2).mean(axis=0) / variance
    np.testing.assert_allclose(ratio, 1, atol=0.05)


def debiased(mechanism: Mechanism, values: NDArray[Any], coins: SeededCoins) -> NDArray[np.float64]:
    """Return the debiased estimates, a row per row of `values`."""
    codes = mechanism.randomize_many(values.ravel(), coins)
    groups = codes.reshape(*values.shape, *mechanism.code_shape)
    tallies: list[Tally] = [mechanism.tally(group) for group in groups]
    return np.array([mechanism.debias(tally) for tally in tallies])
