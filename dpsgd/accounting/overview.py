"""One run under every accountant, side by side, and under composition alone."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from dpsgd.accounting.accountant import Accountant
from dpsgd.accounting.composition import Guarantee, advanced, amplified, optimal
from dpsgd.accounting.events import Event, FixedSizeSampling, Relation, check_delta
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
    "central limit approximation": CentralLimitApproximation,
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
    figures = [_figure(name, kind(relation), event, delta) for name, kind in _ACCOUNTANTS.items()]
    if event.steps > 10**6:
        figures.append(Figure("optimal composition", None, True, "for at most 10**6 steps"))
    else:
        least = min(_composed(event, relation, delta, s, optimal) for s in (0.25, 0.5, 0.75))
        figures.append(Figure("optimal composition", least, True))
    strong = min(_composed(event, relation, delta, share, advanced) for share in _SPLITS)
    figures.append(Figure("advanced composition", strong, True))
    if not isinstance(event.sampling, FixedSizeSampling) and not event.silent:
        figures.append(Figure("Abadi's baseline", _baseline(event, relation, delta), False))
    return sorted(figures, key=lambda figure: not figure.is_guarantee)


def _figure(name: str, accountant: Accountant, event: Event, delta: float) -> Figure:
    try:
        accountant.record(event)
    except InvalidInput:
        return Figure(name, None, accountant.is_guarantee, "not for this sampling")
    return Figure(name, accountant.get_epsilon(delta), accountant.is_guarantee)


def _composed(
    event: Event,
    relation: Relation,
    delta: float,
    share: float,
    compose: Callable[[Guarantee, int, float], Guarantee],
) -> float:
    """Return the epsilon of amplified exact steps, to whose composition a share of delta goes."""
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


def _baseline(event: Event, relation: Relation, delta: float) -> float:
    """Return the "strong composition" that the moments accountant was compared with.

    NOT a guarantee: it amplifies epsilon linearly in the rate, which is below the truth, from
    the classic calibration beyond its epsilon < 1.
    Source: Abadi et al., CCS 2016, section 5.1 and figure 2.
    """
    rate, steps = event.sampling.rate, event.steps

    def at(share: float) -> float:
        per_step = min(0.5, (1 - share) * delta / (rate * steps))
        noise = event.noise_per_difference(relation)
        epsilon = rate * math.sqrt(2 * math.log(1.25 / per_step)) / noise
        return math.sqrt(2 * steps * math.log(1 / (share * delta))) * epsilon + steps * epsilon**2

    return min(at(share) for share in _SPLITS)
