"""The bounds of an answer's divergence, against the exact chances that all neighbours have."""

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logsumexp
from scipy.stats import norm

from dpsgd.pate import divergences

Floats = NDArray[np.float64]
ORDERS = np.array([1.5, 2.0, 4.0, 8.0, 16.0])
NODES, WEIGHTS = np.polynomial.legendre.leggauss(400)


def label_chances(votes: Floats, sigma: float) -> Floats:
    """The chance of each label: the integral of its noise's density where all others are below."""
    low, high = votes.min() - 9 * sigma, votes.max() + 12 * sigma
    x = low + (high - low) * (NODES + 1) / 2
    below = norm.cdf((x - votes[:, np.newaxis]) / sigma)
    density = norm.pdf((x - votes[:, np.newaxis]) / sigma) / sigma
    others = [np.prod(np.delete(below, k, axis=0), axis=0) for k in range(len(votes))]
    return np.array(density * others @ WEIGHTS * (high - low) / 2)


def neighbours(votes: Floats) -> list[Floats]:
    """The votes after each way in which one teacher votes otherwise."""
    found = []
    for one, other in itertools.permutations(range(len(votes)), 2):
        if votes[one]:
            moved = votes.copy()
            moved[one] -= 1
            moved[other] += 1
            found.append(moved)
    return found


def divergence(p: Floats, q: Floats) -> Floats:
    """The Rényi divergences of the orders."""
    moments = ORDERS[:, np.newaxis] * np.log(p) + (1 - ORDERS[:, np.newaxis]) * np.log(q)
    return np.asarray(logsumexp(moments, axis=1)) / (ORDERS - 1)


CASES = [
    (votes, sigma)
    for votes in [(12, 0, 0), (10, 2, 0), (7, 5, 0), (4, 4, 4), (30, 1, 0), (20, 11, 0), (25, 1)]
    for sigma in (0.8, 2.0, 3.0, 5.0, 9.0)
]


def test_no_neighbour_tells_more_of_a_label_than_the_bound() -> None:
    used = compared = 0
    for votes, sigma in CASES:
        here = np.array(votes, dtype=float)
        p = label_chances(here, sigma)
        assert p.sum() == pytest.approx(1, abs=1e-9)
        (bound,) = divergences.of_labels(np.array([votes]), sigma, ORDERS - 1)
        simple = ORDERS / sigma**2
        used += int((bound < 0.9 * simple).any())
        for there in neighbours(here):
            q = label_chances(there, sigma)
            if min(p.min(), q.min()) < 1e-13:
                continue  # below what the quadrature resolves
            compared += 1
            assert (divergence(p, q) <= bound).all()
            assert (np.maximum(divergence(p, q), divergence(q, p)) <= simple).all()
    assert used >= 5
    assert compared > 100


def test_no_neighbour_tells_more_of_the_check_than_the_bound() -> None:
    used = 0
    for top, threshold, sigma in itertools.product((5, 10, 18), (4.0, 9.5, 16.0), (1.0, 2.0, 4.0)):
        (bound,) = divergences.of_thresholds(np.array([[top, 1]]), threshold, sigma, ORDERS - 1)
        simple = ORDERS / (2 * sigma**2)
        used += int((bound < 0.9 * simple).any())
        p = norm.cdf([(top - threshold) / sigma, (threshold - top) / sigma])
        for moved in (top - 1, top + 1):
            q = norm.cdf([(moved - threshold) / sigma, (threshold - moved) / sigma])
            assert (divergence(p, q) <= bound * (1 + 1e-9)).all()
            assert (divergence(q, p) <= simple * (1 + 1e-9)).all()
    assert used >= 5


@pytest.mark.parametrize(
    ("votes", "order", "expected"),
    [
        ([200, 30, 10, 5, 5, 0, 0, 0, 0, 0], 8, 1.035895e-3),
        ([240, 5, 5, 0, 0, 0, 0, 0, 0, 0], 8, 4.750952e-5),
        ([240, 5, 5, 0, 0, 0, 0, 0, 0, 0], 20, 1.150276e-4),
        ([130, 110, 10, 0, 0, 0, 0, 0, 0, 0], 8, 0.005),  # as the noise alone has it
    ],
)
def test_a_label_of_250_teachers_with_noise_of_40_costs_what_is_known(
    votes: list[int], order: float, expected: float
) -> None:
    ((found,),) = divergences.of_labels(np.array([votes]), 40, np.array([order - 1]))
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_check_of_a_threshold_costs_what_is_known() -> None:
    ((found,),) = divergences.of_thresholds(np.array([[240, 10]]), 200, 150, np.array([7.0]))
    assert found == pytest.approx(1.777778e-4, rel=1e-6)


def test_extreme_votes_have_finite_bounds() -> None:
    votes = np.array([[10**6, 0], [500_000, 500_000]])
    excesses = np.geomspace(1e-2, 1e5, 50)
    for sigma in (2.0**-10, 1.0, 1e6):
        for bound in (
            divergences.of_labels(votes, sigma, excesses),
            divergences.of_thresholds(votes, 6e5, sigma, excesses),
        ):
            assert np.isfinite(bound).all()
            assert (bound >= 0).all()
            assert (bound <= (1 + excesses) / sigma**2).all()
