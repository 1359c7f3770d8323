"""Privacy loss distributions: the tightest figure, computed with the dp-accounting package."""

import math
from functools import lru_cache, reduce

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_mechanism import (
    AdditiveNoisePrivacyLoss,
    AdjacencyType,
    GaussianPrivacyLoss,
    LaplacePrivacyLoss,
)

from dpsgd.accounting.accountant import Accountant, Events
from dpsgd.accounting.events import (
    Event,
    FixedSizeSampling,
    Laplace,
    NoSampling,
    PoissonSampling,
    Relation,
    Unsampled,
)
from dpsgd.accounting.rdp import RDPAccountant
from dpsgd.accounting.renyi import divergence
from dpsgd.accounting.selection import BestOf
from ldp.core.loss_sums import on_lattice

_FINEST = 1e-4
"""The step of the grid of privacy losses, where the run is neither very long nor very loud."""
_MOST_LOSSES = 6e4
_MOST_COMPOSED_LOSSES = 6e5
"""Points of the grid, of one step and of all: beyond an epsilon of about 30 the grid is coarser, so
that cost is bounded. With five times as many epsilon is lower by less than 1e-5 of itself."""
_ROUNDING = 1e-15
"""The most that rounding in the Fourier transforms takes from delta per step: 40 times more than
was ever seen (unsampled steps against the exact curve: 2.5e-17 for each)."""
_TRUNCATED = 1e-15
_MOST_STEPS = 10**7
"""The most sampled steps; beyond, the transforms take minutes and rounding is not small."""
_LARGEST_EPSILON = 1e6
"""The largest epsilon; beyond, the grid is so coarse that e**step is no double."""


class PLDAccountant(RDPAccountant):
    """Bound by the distribution of the privacy loss on a grid, rounded pessimistically.

    Guarantee: (epsilon, delta)-DP under the relation. Every approximation is pessimistic:
    the grid (connect the dots), the tails that are cut off, and an allowance of 1e-15 of delta a
    step for rounding in the Fourier transforms, without which answers are too small below a delta
    of about 1e-10. Where the allowance is more than half of delta, beyond 10**7 sampled steps or
    an epsilon of 10**6, and wherever it is smaller, the bound of `RDPAccountant` is returned.
    Cost: 10 ms to half a second, kept for the last four histories; every different event adds a
    convolution.
    Source: Doroshenko et al., "Connect the dots", PETS 2022; for fixed-size sampling the curve
    of `renyi.divergence`.
    """

    name = "pld"
    set_budget = Accountant.set_budget

    def _epsilon(self, events: Events, delta: float) -> float:
        bound = super()._epsilon(events, delta)
        left = delta - _allowance(events)
        if bound == 0 or left <= delta / 2:
            return bound
        with np.errstate(over="ignore"):  # e**epsilon beyond doubles: infinite, and not the least
            found = [float(pmf.get_epsilon_for_delta(left)) for pmf in self._composed(events)]
        return min(bound, max(found, default=math.inf))

    def _delta(self, events: Events, epsilon: float) -> float:
        bound = super()._delta(events, epsilon)
        allowance = _allowance(events)
        if bound <= 2 * allowance:
            return bound
        found = [float(pmf.get_delta_for_epsilon(epsilon)) for pmf in self._composed(events)]
        return min(bound, max(found, default=math.inf) + allowance)

    def _composed(self, events: Events) -> list[pld_pmf.PLDPmf]:
        """Return the composed losses of removing, and of adding if they differ; or none."""
        steps = sum(e.steps for e in events if not _is_one(e))
        if steps > _MOST_STEPS or any(isinstance(e, BestOf) for e in events):
            return []
        known = (highest := super()._epsilon(events, 1e-12)) <= _LARGEST_EPSILON
        return _composed(tuple(events), self.relation, highest) if known else []


@lru_cache(maxsize=4)
def _composed(
    events: tuple[Event | Unsampled, ...], relation: Relation, highest: float
) -> list[pld_pmf.PLDPmf]:
    grid, composed = _grid(events, relation, highest), []
    sampled = any(isinstance(e.sampling, PoissonSampling) for e in events)
    for kind in (AdjacencyType.REMOVE, AdjacencyType.ADD)[: 1 + sampled]:
        parts = [_losses(event, relation, kind, grid) for event in events]
        composed.append(reduce(lambda one, other: one.compose(other, _TRUNCATED), parts))
    return composed


def _grid(events: Events, relation: Relation, highest: float) -> float:
    """Return the grid's step: fine beside the losses of a step, coarse enough to be quick."""
    fine, coarse = _FINEST, 2 * highest / _MOST_COMPOSED_LOSSES
    for event in events:
        if event.steps > 1 and not _is_one(event):
            fine = min(fine, math.sqrt(2 * divergence(event, relation, 1e-7)) / 4)
        if isinstance(event, Unsampled):
            most = event.dominating().epsilon
        else:
            most = _gaussian(event, relation).connect_dots_bounds().epsilon_upper
        coarse = max(coarse, most / _MOST_LOSSES)
    return max(fine, coarse)


def _is_one(event: Event | Unsampled) -> bool:
    """Tell whether all steps of an event together are one Gaussian mechanism."""
    return isinstance(event, Event) and isinstance(event.sampling, NoSampling)


def _gaussian(
    event: Event, relation: Relation, kind: AdjacencyType = AdjacencyType.REMOVE
) -> GaussianPrivacyLoss:
    z = event.noise_per_difference(relation)
    if _is_one(event):
        z /= math.sqrt(event.steps)
    return GaussianPrivacyLoss(z, sampling_prob=event.sampling.rate, adjacency_type=kind)


def _losses(
    event: Event | Unsampled, relation: Relation, kind: AdjacencyType, grid: float
) -> pld_pmf.DensePLDPmf:
    """Return the losses of all steps of an event, on the grid."""
    if isinstance(event, Unsampled) and not isinstance(event, Laplace):
        losses = event.dominating()
        lowest, masses = on_lattice(losses, grid)
        single = pld_pmf.DensePLDPmf(grid, lowest, masses, losses.certain, True)
    else:
        loss: AdditiveNoisePrivacyLoss
        if isinstance(event, Laplace):
            loss = LaplacePrivacyLoss(event.noise_multiplier)
        else:
            loss = _gaussian(event, relation, kind)
        bounds = loss.connect_dots_bounds()
        lowest = math.floor(bounds.epsilon_lower / grid)
        highest = math.ceil(bounds.epsilon_upper / grid)
        fixed = isinstance(event.sampling, FixedSizeSampling)
        epsilons = np.arange(0 if fixed else lowest, highest + 1) * grid
        deltas = loss.get_delta_for_epsilon(epsilons)
        if fixed:  # below 0 the curve is the reflection of that above
            lowest, epsilons = -highest, -epsilons[:0:-1]
            below = np.exp(epsilons) * deltas[:0:-1] - np.expm1(epsilons)
            deltas = np.concatenate([below, deltas])
        # Masses are second differences of deltas: rounding moves mass between neighbours, and nets
        # to nothing; where it makes one negative it is set to 0, which only adds mass.
        single = pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
            grid, lowest, highest, np.clip(deltas, 0, 1)
        ).to_dense_pmf()
    steps = 1 if _is_one(event) else event.steps
    return single.self_compose(steps) if steps > 1 else single


def _allowance(events: Events) -> float:
    return _ROUNDING * (10 * len(events) + sum(e.steps for e in events))
