"""Gaussian differential privacy: exact without sampling, and its central limit approximation."""

import math

from dpsgd.accounting.accountant import Accountant, Events
from dpsgd.accounting.events import (
    Event,
    FixedSizeSampling,
    NoSampling,
    Unsampled,
    check_unsampled,
)
from dpsgd.accounting.gaussian import delta_of_mean, epsilon_of_mean
from ldp import InvalidInput


class GDPAccountant(Accountant):
    """Bound unsampled steps exactly: together they are one Gaussian mechanism.

    Guarantee: (epsilon, delta)-DP under the relation, and no smaller epsilon holds. Refuses
    sampled steps, whose trade-off curves are not Gaussian.
    Source: Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022, corollary 3.3.
    """

    name = "gdp"

    def _check(self, event: Event | Unsampled) -> None:
        super()._check(event)
        event.noise_per_difference(self.relation)
        check_unsampled(event, self.name)

    def _mean(self, events: Events) -> float:
        """Return the mu for which the events together are mu-GDP: N(mu, 1) against N(0, 1)."""
        return math.hypot(
            *(math.sqrt(e.steps) / e.noise_per_difference(self.relation) for e in events)
        )

    def _epsilon(self, events: Events, delta: float) -> float:
        return epsilon_of_mean(self._mean(events), delta)

    def _delta(self, events: Events, epsilon: float) -> float:
        return delta_of_mean(self._mean(events), epsilon)


class CentralLimitApproximation(GDPAccountant):
    """Approximate Poisson-sampled steps by one Gaussian mechanism: NOT a guarantee.

    The limit for many steps of a small rate; the epsilon is often below the truth, by no known
    amount. Never report it as privacy.
    Source: Bu, Dong, Long and Su, "Deep learning with Gaussian differential privacy", HDSR 2020,
    corollary 4: mu**2 = q**2 T (e**(1 / z**2) - 1).
    """

    name = "central_limit_approximation"
    is_guarantee = False

    def _check(self, event: Event | Unsampled) -> None:
        event.check_relation(self.relation)
        event.noise_per_difference(self.relation)
        if isinstance(event.sampling, FixedSizeSampling):
            raise InvalidInput(f"{self.name} is for PoissonSampling or NoSampling")

    def _mean(self, events: Events) -> float:
        means = [super()._mean([e for e in events if isinstance(e.sampling, NoSampling)])]
        for event in events:
            if isinstance(event.sampling, NoSampling):
                continue
            mean = 1 / event.noise_per_difference(self.relation)
            if mean > 26:  # e**(mean**2) is no double
                return math.inf
            rate, steps = event.sampling.rate, event.steps
            means.append(rate * math.sqrt(steps * math.expm1(mean * mean)))
        return math.hypot(*means)
