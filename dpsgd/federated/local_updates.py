"""Local privacy: each update leaves a device as one code of the sphere codebook."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import check_integer, check_positive
from dpsgd.federated.drawing import KeptApart
from dpsgd.federated.protection import Setting
from ldp import InvalidInput, SphereCodebook
from ldp.core.exact import check_epsilon, float_above
from ldp.testing import SeededCoins


@dataclass(frozen=True, kw_only=True)
class LocalUpdates:
    """Randomise each update on its device; the server averages unbiased estimates of them.

    An update longer than `max_update_norm` is scaled down to it, and becomes one code of
    `ldp.SphereCodebook(dimension, epsilon, codes)`, 10 bytes. A client takes part in at most
    `participations` rounds.

    Guarantee: each update is epsilon-LDP for every pair of updates, and those of a client
    together participations * epsilon, whoever reads them. Nobody has to be honest but the app on
    the client's own device. `get_epsilon` counts the participations of the busiest client so far,
    at every delta.
    The sum of a round is divided by the number of clients that it should have, as on a server. The
    last rounds can have fewer, where those left have taken part in all of their rounds but one and
    cannot come twice: they move the model less.
    It is a niche: the error of a mean update is that of `SphereCodebook.squared_error`, some 6
    times the dimension at epsilon 1, so the model must be small and the people many.
    `SphereCodebook.updates_needed` says how many.
    Cost: a simulated update costs what a device's does, codes * (dimension + 1) numbers.
    Raises `InvalidInput` for what `SphereCodebook` refuses: where the dimension is at stake, at
    the beginning of the training.
    """

    epsilon: float
    max_update_norm: float
    codes: int = 1024
    participations: int = 1

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_positive("max_update_norm", self.max_update_norm)
        check_integer("codes", self.codes, 2)
        check_integer("participations", self.participations, 1)

    def start(self, setting: Setting) -> "_Training":
        """Return the protection of one training."""
        return _Training(self, setting)


class _Training:
    """Draws clients that may still take part, and averages the estimates of their updates."""

    def __init__(self, how: LocalUpdates, setting: Setting) -> None:
        self._mechanism = SphereCodebook(setting.dimension, how.epsilon, how.codes)
        self._norm = how.max_update_norm
        self._setting = setting
        self._coins = SeededCoins(setting.seed)
        self._drawing = KeptApart(
            setting.clients,
            setting.per_round,
            participations=how.participations,
            separation=1,
        )
        needed = setting.rounds * setting.per_round
        if needed > setting.clients * how.participations:
            raise InvalidInput(
                f"{setting.rounds} rounds of {setting.per_round} updates need {needed:,} "
                f"participations, and {setting.clients:,} clients have {how.participations} each"
            )

    @property
    def bytes_up(self) -> int:
        return self._mechanism.code_bytes

    def draw(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        return self._drawing.draw(number, rng)

    def aggregate(
        self, number: int, clients: NDArray[np.int64], updates: Iterable[NDArray[np.float32]]
    ) -> NDArray[np.float64]:
        total = np.zeros(self._setting.dimension)
        for update in updates:
            total += self._mechanism.debias(
                self._mechanism.randomize(self._unit(update), self._coins)
            )
        return total * (self._norm / self._setting.per_round)

    def _unit(self, update: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return an update over the norm that it may have, of a norm of at most 1.

        An update with nan or inf counts as zeros: that a device sends says nothing of its data.
        """
        scaled = update.astype(np.float64) / self._norm
        length = float(np.linalg.norm(scaled))
        if not math.isfinite(length):
            return np.zeros(self._setting.dimension)
        return scaled / length if length > 1 else scaled

    def get_epsilon(self, delta: float) -> float:
        spent = Fraction(self._mechanism.realised_epsilon) * int(self._drawing.used.max())
        return float_above(spent)
