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

    def _log_moments(self, events: Events) -> list[tuple[int, float]]:
        """Return (order, log moment): the order times the Rényi divergence of one order more."""
        return [
            (order, order * sum(e.steps * divergence(e, self.relation, order) for e in events))
            for order in _ORDERS
        ]

    def _epsilon(self, events: Events, delta: float) -> float:
        return min((k - math.log(delta)) / order for order, k in self._log_moments(events))

    def _delta(self, events: Events, epsilon: float) -> float:
        return math.exp(
            min(0.0, min(k - order * epsilon for order, k in self._log_moments(events)))
        )
