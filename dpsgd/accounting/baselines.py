"""Baseline epsilons by composition alone, which papers compare with."""

import math
from collections.abc import Callable

from dpsgd.accounting.composition import Guarantee, advanced, amplified, optimal
from dpsgd.accounting.events import Event, Relation, check_delta, check_noise_multiplier
from dpsgd.accounting.gaussian import epsilon_of_mean
from ldp import InvalidInput

_SPLITS = tuple(i / 20 for i in range(1, 20))


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
