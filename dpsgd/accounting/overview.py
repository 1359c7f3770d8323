"""One run under every accountant, side by side."""

import math
from dataclasses import dataclass

from dpsgd.accounting.accountant import Accountant
from dpsgd.accounting.baselines import abadis_baseline, advanced_composition, optimal_composition
from dpsgd.accounting.events import Event, NoSampling, PoissonSampling, Relation, check_delta
from dpsgd.accounting.gdp import CentralLimitApproximation, GDPAccountant
from dpsgd.accounting.moments import MomentsAccountant
from dpsgd.accounting.pld import PLDAccountant
from dpsgd.accounting.rdp import RDPAccountant
from dpsgd.accounting.zcdp import ZCDPAccountant
from ldp import InvalidInput

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
    figures.append(_optimal(event, relation, delta))
    epsilon = advanced_composition(event, relation, delta)
    figures.append(Figure("advanced composition", epsilon, True))
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


def _optimal(event: Event, relation: Relation, delta: float) -> Figure:
    name = "optimal composition"
    if event.steps > 10**6:
        return Figure(name, None, True, "for at most 10**6 steps")
    epsilon = optimal_composition(event, relation, delta)
    return Figure(name, epsilon, True, "" if math.isfinite(epsilon) else "steps too loud")
