"""Gaussian differential privacy: exact without sampling, and its central limit approximation."""

import math
from typing import ClassVar

from dpsgd.accounting.accountant import Accountant, Events
from dpsgd.accounting.events import Event, PoissonSampling, Sampling, Unsampled
from dpsgd.accounting.gaussian import delta_of_mean, epsilon_of_mean
from ldp import InvalidInput


class GDPAccountant(Accountant):
    """Bound unsampled steps exactly: together they are one Gaussian mechanism.

    Guarantee: (epsilon, delta)-DP under the relation, and no smaller epsilon holds. Refuses
    sampled steps, whose trade-off curves are not Gaussian.
    Source: Dong, Roth and Su, "Gaussian differential privacy", JRSS B 2022, corollary 3.3.
    """

    name = "gdp"
    _amplifies: ClassVar[tuple[type[Sampling], ...]] = ()

    def _check(self, event: Event | Unsampled) -> None:
        super()._check(event)
        rate = event.sampling.rate
        if 0 < rate < 1 and not isinstance(event.sampling, self._amplifies):
            raise InvalidInput(
                f"{self.name} does not account for sampling (rate {rate:g}): use "
                "RDPAccountant or PLDAccountant"
            )
        self._mean_of(event)

    def _mean(self, events: Events) -> float:
        """Return the mu for which the events together are mu-GDP: N(mu, 1) against N(0, 1)."""
        return math.hypot(*(math.sqrt(e.steps) * self._mean_of(e) for e in events))

    def _mean_of(self, event: Event | Unsampled) -> float:
        if isinstance(event, Unsampled):
            raise InvalidInput(
                f"{type(event).__name__} is no Gaussian noise, of which alone {self.name} knows: "
                "use RDPAccountant or PLDAccountant"
            )
        return 1 / event.noise_per_difference(self.relation)

    def _epsilon(self, events: Events, delta: float) -> float:
        return epsilon_of_mean(self._mean(events), delta)

    def _delta(self, events: Events, epsilon: float) -> float:
        return delta_of_mean(self._mean(events), epsilon)


class CentralLimitApproximation(GDPAccountant):
    """Approximate Poisson-sampled steps by one Gaussian mechanism: NOT a guarantee.

    The epsilon is often below the truth, by no known amount. Never report it as privacy.
    Source: Bu, Dong, Long and Su, "Deep learning with Gaussian differential privacy", HDSR 2020,
    corollary 4: mu**2 = q**2 T (e**(1 / z**2) - 1).
    """

    name = "central_limit_approximation"
    is_guarantee = False
    _amplifies = (PoissonSampling,)

    def _mean_of(self, event: Event | Unsampled) -> float:
        mean, rate = super()._mean_of(event), event.sampling.rate
        if rate == 1:
            return mean
        # Beyond 26, e**(mean**2) is no double.
        return rate * math.sqrt(math.expm1(mean * mean)) if mean <= 26 else math.inf
