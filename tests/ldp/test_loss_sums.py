"""Sums of losses: the bound on the transforms' rounding, and lattices."""

import math

import numpy as np
import pytest
from exact_powers import exact_power

from ldp import InvalidInput
from ldp.core.loss_sums import _Sum, mixed, on_lattice
from ldp.core.losses import Losses, bounded


@pytest.mark.parametrize(("size", "times"), [(3, 90), (40, 12), (200, 4)])
@pytest.mark.parametrize("theta", [0.01, 0.5, 3.0])
def test_transforms_err_by_less_than_the_bound(size: int, times: int, theta: float) -> None:
    """Against exact integers, and with a margin of 20."""
    rng = np.random.default_rng(size)
    masses = rng.exponential(size=size) ** 3
    losses = Losses(1.0, 2 / size, -(size // 2), tuple((masses / masses.sum()).tolist()))
    _, found, error, _ = _Sum([(losses, times)])._convolved(theta)
    at = (losses.lowest + np.arange(size)) * losses.unit
    logs = np.log(np.array(losses.masses)) + theta * at
    tilted = np.exp(logs - logs.max())
    whole = [round(weight * 2**60) for weight in tilted.tolist()]
    total = sum(whole) ** times
    exact = [weight / total for weight in exact_power(whole, times)]
    assert float(np.linalg.norm(found - exact)) <= error / 20


@pytest.mark.parametrize("gap", [0.3, 0.013, 1.0, 2.5])
def test_a_coarser_lattice_only_raises_the_divergence(gap: float) -> None:
    losses = bounded(1.0, 0.3)
    lowest, masses = on_lattice(losses, gap)
    moved = Losses(1.0, gap, lowest, tuple(masses.tolist()))
    for epsilon in np.linspace(-2, 2, 41):
        assert moved.divergence(epsilon) >= losses.divergence(epsilon) * (1 - 1e-12)
    assert math.fsum(masses) == pytest.approx(1, abs=1e-11)


def test_a_lattice_that_has_all_points_changes_nothing() -> None:
    losses = bounded(1.0, 0.3)
    lowest, masses = on_lattice(losses, 0.25)
    assert lowest == -4
    assert tuple(masses[::4]) == losses.masses
    assert np.count_nonzero(masses) == 3


def test_a_public_coin_averages_the_divergences() -> None:
    one, other = bounded(1.0, 0.3), bounded(0.7, 0.1)
    losses = mixed([(3, [one]), (1, [other]), (4, [])])
    for epsilon in (-0.9, -0.2, 0.0, 0.1, 0.5, 0.8):
        nothing = max(0.0, -math.expm1(epsilon))
        parts = 3 * one.divergence(epsilon) + other.divergence(epsilon) + 4 * nothing
        found = losses.divergence(epsilon)
        assert parts / 8 * (1 - 1e-12) <= found <= parts / 8 + 1e-5
    assert losses.epsilon == 1.0


def test_reports_that_a_coin_makes_together_add_up() -> None:
    one = bounded(1.0, 0.3)
    losses = mixed([(1, [one, one]), (1, [one])])
    low, none, up = one.masses
    twice = [low * low, 2 * low * none, none * none + 2 * low * up, 2 * none * up, up * up]
    expected = [a / 2 + b / 2 for a, b in zip(twice, [0.0, low, none, up, 0.0], strict=True)]
    assert losses.masses == pytest.approx(expected)
    assert (losses.lowest, losses.epsilon) == (-2, 2.0)


def test_a_coin_that_makes_no_report_costs_nothing() -> None:
    assert mixed([(1, [])]).divergence(0.0) == 0.0


def test_a_coin_has_weights() -> None:
    with pytest.raises(InvalidInput, match="weights must be >= 0, one above, got"):
        mixed([(0, []), (-1, [])])
