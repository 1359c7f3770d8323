"""Zero-concentrated differential privacy: rho adds up over unsampled steps."""

import math

from dpsgd.accounting.accountant import Events
from dpsgd.accounting.events import Event, Unsampled
from dpsgd.accounting.gdp import GDPAccountant


class ZCDPAccountant(GDPAccountant):
    """Bound unsampled steps by the sum of their rho, with the simple conversion.

    rho is 1 / (2 z**2) of Gaussian noise, and epsilon**2 / 2 of any epsilon-DP release. A
    channel that rules an input out has none. Refuses sampled steps, which it does not amplify.

    Guarantee: (epsilon, delta)-DP under the relation, epsilon = rho + 2 sqrt(rho ln(1 / delta)).
    Source: Bun and Steinke, "Concentrated differential privacy", TCC 2016, propositions 1.3 to 1.6.
    """

    name = "zcdp"

    def _rho(self, events: Events) -> float:
        mean = self._mean(events)
        return mean * mean / 2

    def _mean_of(self, event: Event | Unsampled) -> float:
        if not isinstance(event, Unsampled):
            return super()._mean_of(event)
        losses = event.dominating()
        return math.inf if losses.certain else losses.epsilon

    def _epsilon(self, events: Events, delta: float) -> float:
        rho = self._rho(events)
        return rho + 2 * math.sqrt(rho * -math.log(delta))

    def _delta(self, events: Events, epsilon: float) -> float:
        rho = self._rho(events)
        gap, least = epsilon - rho, math.ulp(0.0)  # smaller values are rounded upwards
        if gap <= 0:
            return 1.0
        return max(least, math.exp(-gap / (4 * rho) * gap)) if rho else least
