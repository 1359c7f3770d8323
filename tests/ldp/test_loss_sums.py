"""Sums of losses: the bound on the transforms' rounding, and lattices."""

import math

import numpy as np
import pytest
from exact_powers import exact_power

from ldp.core.loss_sums import _on_lattice, _Sum
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
    lowest, masses = _on_lattice(losses, gap)
    moved = Losses(1.0, gap, lowest, tuple(masses.tolist()))
    for epsilon in np.linspace(-2, 2, 41):
        assert moved.divergence(epsilon) >= losses.divergence(epsilon) * (1 - 1e-12)
    assert math.fsum(masses) == pytest.approx(1, abs=1e-11)


def test_a_lattice_that_has_all_points_changes_nothing() -> None:
    losses = bounded(1.0, 0.3)
    lowest, masses = _on_lattice(losses, 0.25)
    assert lowest == -4
    assert tuple(masses[::4]) == losses.masses
    assert np.count_nonzero(masses) == 3
