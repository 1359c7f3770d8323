"""Sensitivities by enumeration, and the errors of noise that is correlated over rounds."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from ldp import InvalidInput
from ldp.planning.prefix_sums import (
    PrefixSums,
    best_bands,
    coefficients,
    errors,
    rho,
    sensitivity,
    squared_sensitivity,
)

ROUNDS = 12


def toeplitz(rounds: int, bands: int) -> NDArray[np.float64]:
    matrix = np.zeros((rounds, rounds))
    for k, c in enumerate(coefficients(bands) / 2**32):
        matrix += c * np.eye(rounds, k=-k)
    return matrix


def tree(rounds: int) -> NDArray[np.float64]:
    """Return a row of ones for each node of the smallest binary tree over the rounds."""
    leaves = 1 << (rounds - 1).bit_length()
    nodes = []
    size = 1
    while size <= leaves:
        for first in range(0, leaves, size):
            nodes.append([float(first <= t < first + size) for t in range(rounds)])
        size *= 2
    return np.array(nodes)


def matrix_of(mechanism: PrefixSums, rounds: int, bands: int) -> NDArray[np.float64]:
    return toeplitz(rounds, bands) if mechanism == "toeplitz" else tree(rounds)


def patterns(rounds: int) -> NDArray[np.int64]:
    """Return every set of rounds, as rows of 0 and 1."""
    return np.arange(1 << rounds)[:, None] >> np.arange(rounds) & 1


def gaps(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the least distance of two rounds of each set."""
    least = np.full(len(rows), rows.shape[1])
    for distance in range(rows.shape[1] - 1, 0, -1):
        least[(rows[:, distance:] & rows[:, :-distance]).any(axis=1)] = distance
    return least


@pytest.mark.parametrize(
    ("mechanism", "bands"), [("tree", 0), *(("toeplitz", b) for b in (1, 3, 12))]
)
def test_the_sensitivity_is_that_of_the_worst_of_all_sets_of_rounds(
    mechanism: PrefixSums, bands: int
) -> None:
    rows = patterns(ROUNDS)
    moved = np.square(rows @ matrix_of(mechanism, ROUNDS, bands).T).sum(axis=1)
    counts, distances = rows.sum(axis=1), gaps(rows)
    for times, separation in itertools.product(range(1, ROUNDS + 1), repeat=2):
        admitted = (counts <= times) & (distances >= separation)
        worst = float(moved[admitted].max())
        claimed = float(squared_sensitivity(mechanism, ROUNDS, bands, times, separation))
        assert claimed >= worst * (1 - 1e-12)
        if mechanism == "toeplitz" or separation & (separation - 1) == 0:
            assert claimed == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize(("mechanism", "bands"), [("tree", 0), ("toeplitz", 4)])
def test_no_signs_or_directions_of_updates_move_more_than_equal_ones(
    mechanism: PrefixSums, bands: int
) -> None:
    matrix = matrix_of(mechanism, 8, bands)
    signs = np.array(list(itertools.product((-1, 0, 1), repeat=8)))
    signs = signs[np.abs(signs).sum(axis=1) <= 4]
    limit = sensitivity(mechanism, 8, bands, 4, 1) ** 2
    assert np.square(signs @ matrix.T).sum(axis=1).max() == pytest.approx(limit, rel=1e-9)
    rng = np.random.default_rng(1)
    updates = rng.normal(size=(2000, 8, 3))
    updates /= np.linalg.norm(updates, axis=2, keepdims=True)
    updates[:, 4:] = 0
    assert np.square(matrix @ updates).sum(axis=(1, 2)).max() <= limit


def test_a_sensitivity_is_an_exact_rational_and_is_rounded_up() -> None:
    c = coefficients(5).tolist()
    combined = [c[0], c[1], c[2], c[3] + c[0], c[4] + c[1], c[2], c[3]]
    exact = Fraction(sum(value**2 for value in combined), 2**64)
    assert squared_sensitivity("toeplitz", 7, 5, 2, 3) == exact
    assert (
        exact
        <= Fraction(sensitivity("toeplitz", 7, 5, 2, 3)) ** 2
        < exact * (1 + Fraction(1, 2**50))
    )
    assert rho("toeplitz", 7, 5, 2, 3, Fraction(3, 2)) == exact / Fraction(9, 2)
    assert rho("tree", 16, 0, 1, 1, Fraction(5)) == Fraction(1, 10)


@pytest.mark.parametrize(
    ("rounds", "mechanism", "bands", "figure"),
    [
        (16, "toeplitz", 1, 2.915),
        (16, "tree", 0, 1.938),
        (16, "toeplitz", 16, 1.797),
        (256, "toeplitz", 1, 11.336),
        (256, "tree", 0, 3.102),
        (256, "toeplitz", 256, 2.669),
    ],
)
def test_errors_of_one_participation(
    rounds: int, mechanism: PrefixSums, bands: int, figure: float
) -> None:
    error = sensitivity(mechanism, rounds, bands, 1, 1) * rms(mechanism, rounds, bands)
    assert error == pytest.approx(figure, abs=5e-4)


@pytest.mark.parametrize(("bands", "figure"), [(1, 22.672), (256, 6.632), (64, 5.599)])
def test_errors_of_four_participations_64_apart(bands: int, figure: float) -> None:
    error = sensitivity("toeplitz", 256, bands, 4, 64) * rms("toeplitz", 256, bands)
    assert error == pytest.approx(figure, abs=5e-4)


def rms(mechanism: PrefixSums, rounds: int, bands: int) -> float:
    return math.sqrt(np.mean(np.square(errors(mechanism, rounds, bands))))


@pytest.mark.parametrize(
    ("mechanism", "rounds", "bands"),
    [("tree", 16, 0), ("tree", 11, 0), ("toeplitz", 16, 16), ("toeplitz", 13, 4), ("tree", 1, 0)],
)
def test_errors_are_the_rows_of_the_factor(mechanism: PrefixSums, rounds: int, bands: int) -> None:
    whole = 1 << (rounds - 1).bit_length() if mechanism == "tree" else rounds
    sums = np.tril(np.ones((whole, whole)))
    factor = sums @ np.linalg.pinv(matrix_of(mechanism, whole, bands))
    expected = np.linalg.norm(factor, axis=1)[:rounds]
    assert errors(mechanism, rounds, bands) == pytest.approx(expected, rel=1e-9)


def test_the_best_bands_have_the_least_error() -> None:
    assert best_bands(256, 4, 64) == 64
    assert best_bands(256, 4, 64, most=16) == 16
    found = best_bands(40, 3, 9)
    figures = [sensitivity("toeplitz", 40, b, 3, 9) * rms("toeplitz", 40, b) for b in range(1, 41)]
    assert found == 1 + int(np.argmin(figures))


def test_a_training_of_65536_rounds_has_its_rho() -> None:
    rounds = 65_536
    every_round = rho("toeplitz", rounds, 1, rounds, 1, Fraction(2))
    assert every_round == Fraction(rounds, 8)
    assert sensitivity("toeplitz", rounds, 64, 4, 64) == pytest.approx(
        2 * sensitivity("toeplitz", rounds, 64, 1, 1), rel=1e-9
    )
    assert rho("tree", rounds, 0, rounds, 1, Fraction(1)) == sum(
        Fraction(rounds << height, 2) for height in range(17)
    )


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("median", 4, 1, 1, 1), "toeplitz or tree"),
        (("toeplitz", 0, 1, 1, 1), "rounds"),
        (("toeplitz", 65_537, 1, 1, 1), "rounds"),
        (("toeplitz", 4, 5, 1, 1), "bands"),
        (("toeplitz", 4, 0, 1, 1), "bands"),
        (("tree", 4, 2, 1, 1), "no bands"),
        (("tree", 4, 0, 5, 1), "participations"),
        (("tree", 4, 0, 1, 0), "separation"),
        (("tree", 4, 0, True, 1), "participations"),
        (("tree", 4.0, 0, 1, 1), "rounds"),
    ],
)
def test_impossible_numbers_are_refused(
    arguments: tuple[PrefixSums, int, int, int, int], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named):
        rho(*arguments, Fraction(1))


@pytest.mark.parametrize("noise", [Fraction(0), Fraction(-1), math.inf, math.nan])
def test_a_rho_without_noise_is_refused(noise: Fraction) -> None:
    with pytest.raises(InvalidInput, match="noise_multiplier"):
        rho("toeplitz", 4, 1, 1, 1, noise)
