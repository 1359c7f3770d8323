"""Zero-concentrated differential privacy: rho adds up over unsampled steps."""

import math
from collections.abc import Sequence

from dpsgd.accounting.accountant import Accountant
from dpsgd.accounting.events import Event, check_unsampled


class ZCDPAccountant(Accountant):
    """Bound unsampled steps by rho = sum of 1 / (2 z**2) with the simple conversion.

    Guarantee: (epsilon, delta)-DP under the relation, epsilon = rho + 2 sqrt(rho ln(1 / delta)).
    Looser than `GDPAccountant`, and reported by many papers. Refuses sampled steps, which it
    does not amplify.
    Source: Bun and Steinke, "Concentrated differential privacy", TCC 2016, propositions 1.3, 1.6.
    """

    name = "zcdp"

    def _check(self, event: Event) -> None:
        super()._check(event)
        check_unsampled(event, self.name)

    def rho(self) -> float:
        """Return the rho of the history."""
        return self._rho(self._pooled())

    def _rho(self, events: Sequence[Event]) -> float:
        noise = [e.noise_per_difference(self.relation) for e in events]
        return math.fsum(e.steps * 0.5 / z / z for e, z in zip(events, noise, strict=True))

    def _epsilon(self, events: Sequence[Event], delta: float) -> float:
        rho = self._rho(events)
        return rho + 2 * math.sqrt(rho * -math.log(delta))

    def _delta(self, events: Sequence[Event], epsilon: float) -> float:
        rho = self._rho(events)
        gap = epsilon - rho
        if gap <= 0:
            return 1.0
        least = math.ulp(0.0)  # smaller values are rounded upwards
        return max(least, math.exp(-gap / (4 * rho) * gap)) if rho else least
