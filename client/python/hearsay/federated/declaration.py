"""A training as values, which devices take part in and servers aggregate by.

Both sides build it from the same frozen bytes, by `hearsay.federated.parsing.parse`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from hearsay.plans.units import BILLION
from ldp import SphereCodebook
from ldp.planning import prefix_sums
from ldp.planning.prefix_sums import PrefixSums

UNIT = 1_000_000
"""A noise multiplier is an integer of millionths: this many are 1."""


@dataclass(frozen=True)
class LocalTraining:
    """What a device does with its data: SGD for `epochs` passes; `batch_size` 0 is all records.

    `proximal` is the mu of FedProx's term (Li et al., MLSys 2020, equation 2); 0 is none.
    """

    epochs: int
    batch_size: int
    learning_rate: float
    momentum: float
    proximal: float


@dataclass(frozen=True)
class Aggregation:
    """What the server does with the updates of a round.

    `hostile` is how many of them may be, for the rules that need it, else 0. `momentum` is that of
    the optimizer "sgd", and the first beta of "adam" and "yogi".
    """

    rule: str
    hostile: int
    optimizer: str
    learning_rate: float
    momentum: float


@dataclass(frozen=True)
class Encoding:
    """How a device writes an update: `bits` is 0 for float32, `coordinates` 0 for all of them."""

    kind: str
    bits: int
    coordinates: int


@dataclass(frozen=True)
class CentralNoise:
    """The server adds noise that is correlated over rounds; `bands` is 0 for the tree."""

    kind: ClassVar[str] = "central"
    mechanism: PrefixSums
    bands: int
    noise_multiplier_millionths: int

    @property
    def noise_multiplier(self) -> Fraction:
        """The noise's standard deviation over `max_update_norm`, at sensitivity one."""
        return Fraction(self.noise_multiplier_millionths, UNIT)


@dataclass(frozen=True)
class LocalNoise:
    """The device sends one code of a pure mechanism for each update."""

    kind: ClassVar[str] = "local_noise"
    mechanism: SphereCodebook


@dataclass(frozen=True)
class RecordLevel:
    """The device trains with DP-SGD on its own records: it clips gradients to `max_grad_norm`."""

    kind: ClassVar[str] = "record_level"
    noise_multiplier_millionths: int
    max_grad_norm: float

    @property
    def noise_multiplier(self) -> Fraction:
        """The noise's standard deviation over `max_grad_norm`."""
        return Fraction(self.noise_multiplier_millionths, UNIT)


Protection = CentralNoise | LocalNoise | RecordLevel
"""`kind` is its name in a training's file, its bytes, a device's ledger and JSON."""


@dataclass(frozen=True)
class Training:
    """A declared training of one model, checked. `hearsay.federated.parsing.parse` builds it.

    Guarantee, by `protection`, for a device that keeps `participations` and `separation`, and
    updates of an L2 norm of at most `max_update_norm`:
    - `CentralNoise`: all models of the training together are `rho`-zCDP for one person's updates
      against zeros in their place (four times that for other updates in their place), if the
      server adds the noise that it declares and shows nobody the updates. Nothing is promised
      against the server.
    - `LocalNoise`: each update is `epsilon_per_update`-LDP, whoever reads it.
    - `RecordLevel`: nothing for the person; each record has what the device's own account says.
    How many took part in a round is not protected.
    """

    name: str
    title: str
    architecture: str
    initial: bytes
    dimension: int
    rounds: int
    round_seconds: int
    updates_per_round: int
    min_updates: int
    participations: int
    separation: int
    local: LocalTraining
    max_update_norm: float
    aggregation: Aggregation
    encoding: Encoding | None
    """None under `LocalNoise`, whose code is the payload."""
    protection: Protection
    revision: bytes

    @cached_property
    def rho(self) -> Fraction | None:
        """The zCDP of the whole training for one person's updates against zeros in their place,
        rounded up to billionths; None where the server adds no noise."""
        if not isinstance(self.protection, CentralNoise):
            return None
        exact = prefix_sums.rho(
            self.protection.mechanism,
            self.rounds,
            self.protection.bands,
            self.participations,
            self.separation,
            self.protection.noise_multiplier,
        )
        return Fraction(math.ceil(exact * BILLION), BILLION)

    @property
    def rho_billionths(self) -> int:
        """The integer that a ledger stores: `rho` in billionths; 0 where there is none."""
        return 0 if self.rho is None else int(self.rho * BILLION)

    @property
    def epsilon_per_update(self) -> float | None:
        """The pure epsilon of one update, whoever reads it; None without local noise."""
        if isinstance(self.protection, LocalNoise):
            return self.protection.mechanism.realised_epsilon
        return None

    @property
    def trusted(self) -> str:
        """Who must be honest for what is promised: "server" or "nobody"."""
        return "server" if isinstance(self.protection, CentralNoise) else "nobody"

    @property
    def trust(self) -> str:
        """What a person is promised, by what, and who must be honest for it: for people."""
        match self.protection:
            case CentralNoise():
                assert self.rho is not None
                return (
                    f"The server reads every update. All models together are {float(self.rho):.4g}-"
                    "zCDP for one person's updates against zeros in their place, if the server is "
                    "honest: it must add the noise that it declares and show nobody the updates. "
                    "Against the server itself nothing is promised."
                )
            case LocalNoise():
                return (
                    f"Each update is randomised on the device: epsilon "
                    f"{self.epsilon_per_update:.4g} for one update, whoever reads it. Nobody has "
                    "to be honest for that but the app on the device."
                )
            case RecordLevel() as level:
                return (
                    "Each single record on the device is protected by noise of multiplier "
                    f"{float(level.noise_multiplier):g} in the device's own steps, whoever reads "
                    "the update, if the app's code adds it: nothing here checks that. The person "
                    "is not protected: an update may tell what their records have in common."
                )
