"""The quadratic programme against all active sets, one by one; the tangent space by its basis."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ldp import InvalidInput
from ldp.estimating.simplex import (
    definite,
    maximize_quadratic,
    tangent_inverse,
    tangent_pseudoinverse,
)

Floats = NDArray[np.float64]


def best_by_enumeration(curvature: Floats, slope: Floats) -> float:
    """Solve on every support; the best feasible solution is the maximum."""
    k, best = slope.size, -np.inf
    for size in range(1, k + 1):
        for chosen in itertools.combinations(range(k), size):
            at = list(chosen)
            system = np.ones((size + 1, size + 1))
            system[:size, :size], system[size, size] = curvature[np.ix_(at, at)], 0
            x = np.linalg.solve(system, np.append(slope[at], 1.0))[:size]
            if x.min() >= 0:
                best = max(best, slope[at] @ x - x @ curvature[np.ix_(at, at)] @ x / 2)
    return float(best)


@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.booleans())
@settings(max_examples=80, deadline=None)
def test_the_maximum_is_the_best_of_all_supports(seed: int, k: int, diagonal: bool) -> None:
    rng = np.random.default_rng(seed)
    root = np.diag(rng.random(k) + 0.1) if diagonal else rng.normal(size=(k, k + 2))
    curvature, slope = root @ root.T, 3 * rng.normal(size=k)
    given_form = np.diag(curvature).copy() if diagonal else curvature
    x = maximize_quadratic(given_form, slope, np.arange(k) < 1)
    assert x.min() >= 0
    assert x.sum() == pytest.approx(1)
    value = slope @ x - x @ curvature @ x / 2
    assert value == pytest.approx(best_by_enumeration(curvature, slope), abs=1e-9)


def test_a_singular_matrix_is_made_definite() -> None:
    ones = np.diag([1.0, 0.0, 0.0])
    assert np.linalg.eigvalsh(definite(ones)).min() > 0


@pytest.mark.parametrize("diagonal", [True, False])
def test_the_tangent_inverse_inverts_on_the_tangent_space(diagonal: bool) -> None:
    rng = np.random.default_rng(1)
    root = np.diag(rng.random(5) + 0.1) if diagonal else rng.normal(size=(5, 9))
    information = root @ root.T
    basis = np.vstack([np.eye(4), -np.ones(4)])
    expected = basis @ np.linalg.inv(basis.T @ information @ basis) @ basis.T
    ours = tangent_inverse(np.diag(information).copy() if diagonal else information)
    assert ours == pytest.approx(expected)


@pytest.mark.parametrize("information", [np.zeros(3), np.ones((3, 3)), np.diag([1.0, 0.0, 0.0])])
def test_no_information_is_no_covariance(information: Floats) -> None:
    with pytest.raises(InvalidInput, match="do not tell all categories apart"):
        tangent_inverse(information)


@pytest.mark.parametrize("rank", [0, 1, 3, 4])
def test_the_pseudoinverse_solves_what_the_information_covers_and_knows_its_rank(rank: int) -> None:
    rng = np.random.default_rng(2)
    root = rng.normal(size=(5, rank))
    root -= root.mean(axis=0)
    information = root @ root.T
    inverted, found = tangent_pseudoinverse(information)
    assert found == rank
    assert information @ inverted @ information == pytest.approx(information, abs=1e-5)
