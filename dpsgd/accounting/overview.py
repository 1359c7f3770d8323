"""One run under every accountant, side by side, and under composition alone."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dpsgd.accounting.accountant import Accountant
from dpsgd.accounting.composition import Guarantee, advanced, amplified, optimal
from dpsgd.accounting.events import (
    Event,
    NoSampling,
    PoissonSampling,
    Relation,
    check_delta,
    check_noise_multiplier,
)
from dpsgd.accounting.gaussian import epsilon_of_mean
from dpsgd.accounting.gdp import CentralLimitApproximation, GDPAccountant
from dpsgd.accounting.moments import MomentsAccountant
from dpsgd.accounting.pld import PLDAccountant
from dpsgd.accounting.rdp import RDPAccountant
from dpsgd.accounting.zcdp import ZCDPAccountant
from ldp import InvalidInput

_SPLITS = tuple(i / 20 for i in range(1, 20))
_ACCOUNTANTS: dict[str, type[Accountant]] = {
    "privacy loss distribution": PLDAccountant,
    "Gaussian DP, exact": GDPAccountant,
    "Rényi DP": RDPAccountant,
    "zCDP": ZCDPAccountant,
    "moments accountant": MomentsAccountant,
}


@dataclass(frozen=True)
class Figure:
    """One accountant's epsilon for a run, or None and a note of the reason."""

    name: str
    epsilon: float | None
    is_guarantee: bool
    note: str = ""


def compare(event: Event, relation: Relation, delta: float) -> list[Figure]:
    """Return the figure of every accountant, guarantees first.

    Raises `InvalidInput` unless 0 < delta < 1 and the event's sampling goes with the relation.
    """
    check_delta(delta)
    event.check_relation(relation)
    figures = [_figure(name, kind, event, relation, delta) for name, kind in _ACCOUNTANTS.items()]
    few = event.steps <= 10**6
    least = optimal_composition(event, relation, delta) if few else None
    note = "" if few else "for at most 10**6 steps"
    figures.append(Figure("optimal composition", least, True, note))
    strong = advanced_composition(event, relation, delta)
    figures.append(Figure("advanced composition", strong, True))
    limit = "central limit approximation"
    figures.append(_figure(limit, CentralLimitApproximation, event, relation, delta))
    if isinstance(event.sampling, PoissonSampling | NoSampling) and not event.silent:
        z, rate = event.noise_per_difference(relation), event.sampling.rate
        baseline = abadis_baseline(z, rate, event.steps, delta)
        figures.append(Figure("Abadi's baseline", baseline, False))
    return figures


def _figure(
    name: str, kind: type[Accountant], event: Event, relation: Relation, delta: float
) -> Figure:
    accountant = kind(relation)
    try:
        accountant.step(
            noise_multiplier=event.noise_multiplier, sampling=event.sampling, steps=event.steps
        )
    except InvalidInput:
        return Figure(name, None, kind.is_guarantee, "not for this sampling")
    return Figure(name, accountant.get_epsilon(delta), kind.is_guarantee)


def advanced_composition(event: Event, relation: Relation, delta: float) -> float:
    """Return the epsilon of an event by amplified steps under advanced composition.

    A guarantee, of the best of 19 splits of delta between the steps and the composition; each
    step is the exact Gaussian mechanism. Infinite where that is no double. Raises `InvalidInput`
    for a sampling that does not go with the relation, and unless 0 < delta < 1.
    """
    return min(_composed(event, relation, delta, share, advanced) for share in _SPLITS)


def optimal_composition(event: Event, relation: Relation, delta: float) -> float:
    """Return the epsilon of an event under optimal composition, for at most 10**6 steps."""
    return min(_composed(event, relation, delta, share, optimal) for share in (0.25, 0.5, 0.75))


def abadis_baseline(noise_multiplier: float, rate: float, steps: int, delta: float) -> float:
    """Return the "strong composition" that the moments accountant was compared with.

    NOT a guarantee: it amplifies epsilon linearly in the rate, which is below the truth, from
    the classic calibration beyond its epsilon < 1. With (4, .01, 10**4, 1e-5) it gives 9.34.
    Source: Abadi et al., CCS 2016, section 5.1 and figure 2.
    """
    check_delta(delta)
    check_noise_multiplier(noise_multiplier)
    if not 0 < rate <= 1 or steps < 1:
        raise InvalidInput(f"rate must lie in (0, 1] and steps be >= 1, got {rate} and {steps}")

    def at(share: float) -> float:
        per_step = min(0.5, (1 - share) * delta / (rate * steps))
        epsilon = rate * math.sqrt(2 * math.log(1.25 / per_step)) / noise_multiplier
        return math.sqrt(2 * steps * math.log(1 / (share * delta))) * epsilon + steps * epsilon**2

    return min(at(share) for share in _SPLITS)


def _composed(
    event: Event,
    relation: Relation,
    delta: float,
    share: float,
    compose: Callable[[Guarantee, int, float], Guarantee],
) -> float:
    event.check_relation(relation)
    check_delta(delta)
    if event.silent:
        return 0.0
    rate, steps = event.sampling.rate, event.steps
    # 1e-8 less, because results are rounded up on the way.
    per_step = min(0.5, (1 - share) * (1 - 1e-8) * delta / rate / steps)
    epsilon = epsilon_of_mean(1 / event.noise_per_difference(relation), per_step)
    if not epsilon < 300:
        return math.inf
    step = amplified(Guarantee(epsilon, per_step), rate)
    return compose(step, steps, share * delta * (1 - 1e-8)).epsilon
