"""The moments accountant as it was published, to reproduce published figures."""

import math

from dpsgd.accounting.accountant import Accountant, Events
from dpsgd.accounting.renyi import divergence

_ORDERS = range(1, 33)


class MomentsAccountant(Accountant):
    """Bound by the log moments of orders 1 to 32 and Markov's inequality.

    Guarantee: (epsilon, delta)-DP under the relation. `RDPAccountant` is never worse: this one
    cannot go below ln(1 / delta) / 32 once anything was released.
    Source: Abadi et al., "Deep learning with differential privacy", CCS 2016, theorem 2.
    """

    name = "moments"

    def _divergences(self, events: Events) -> list[tuple[int, float]]:
        """Return the orders, and log moments over these: Rényi divergences of one order more."""
        return [
            (k, sum(e.steps * divergence(e, self.relation, k) for e in events)) for k in _ORDERS
        ]

    def _epsilon(self, events: Events, delta: float) -> float:
        return min(found - math.log(delta) / k for k, found in self._divergences(events))

    def _delta(self, events: Events, epsilon: float) -> float:
        return min(math.exp(min(0.0, k * (d - epsilon))) for k, d in self._divergences(events))
