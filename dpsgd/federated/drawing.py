"""Who takes part in a round: drawn uniformly, kept apart, or by Poisson sampling."""

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import check_integer, check_rate
from ldp import InvalidInput


class Uniform:
    """Draw `per_round` of `clients` people without replacement, afresh in each round.

    Raises `InvalidInput` unless 1 <= per_round <= clients.
    """

    def __init__(self, clients: int, per_round: int) -> None:
        self._clients = check_integer("clients", clients, 1)
        self._per_round = check_integer("per_round", per_round, 1)
        if per_round > clients:
            raise InvalidInput(f"per_round must be at most clients ({clients}), got {per_round}")

    def draw(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the ids of a round, in increasing order."""
        return np.sort(rng.choice(self._clients, self._per_round, replace=False))


class KeptApart:
    """Draw among the people who may take part: at most so often, and so many rounds apart.

    A person takes part in at most `participations` rounds, and in none of the `separation` - 1
    rounds after one. A round gets `per_round` people, or all who may take part where there are
    fewer. So the same client of two rounds t < u has u - t >= separation, whatever is drawn.
    Raises `InvalidInput` for an integer below 1, and where per_round > clients.
    """

    def __init__(
        self, clients: int, per_round: int, *, participations: int, separation: int
    ) -> None:
        self._uniform = Uniform(clients, per_round)
        self._per_round = per_round
        self._participations = check_integer("participations", participations, 1)
        self._separation = check_integer("separation", separation, 1)
        self.used = np.zeros(clients, np.int64)
        """In how many rounds each client took part, shape (clients,)."""
        self._last = np.full(clients, -self._separation, np.int64)

    def check_enough(self, rounds: int) -> None:
        """Raise `InvalidInput` where people may not take part often enough to fill all rounds."""
        needed = rounds * self._per_round
        if needed > self.used.size * self._participations:
            raise InvalidInput(
                f"{rounds} rounds of {self._per_round} updates need {needed:,} participations, "
                f"and {self.used.size:,} clients have {self._participations} each"
            )

    def draw(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the ids of a round, in increasing order, and count their participation."""
        apart = number - self._last >= self._separation
        eligible = np.flatnonzero(apart & (self.used < self._participations))
        drawn = rng.choice(eligible, min(self._per_round, eligible.size), replace=False)
        drawn = np.sort(drawn).astype(np.int64)
        self.used[drawn] += 1
        self._last[drawn] = number
        return drawn


class Poisson:
    """Draw each of `clients` people with probability `rate`, independently of all others.

    Raises `InvalidInput` unless clients >= 1 and 0 <= rate <= 1.
    """

    def __init__(self, clients: int, rate: float) -> None:
        self._clients = check_integer("clients", clients, 1)
        self._rate = check_rate(rate)

    def draw(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return the ids of a round, in increasing order: any number of them, also none."""
        return np.flatnonzero(rng.random(self._clients) < self._rate)
