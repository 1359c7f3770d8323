"""A training as values, which devices take part in and servers aggregate by.

Both sides build it from the same frozen bytes, by `hearsay.federated.parsing.parse`.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

from hearsay.plans.two_servers import Splitting
from hearsay.plans.units import BILLION
from ldp import InvalidInput, SphereCodebook
from ldp.planning import prefix_sums
from ldp.planning.prefix_sums import PrefixSums
from ldp.two_servers import account, rounding

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


@dataclass(frozen=True)
class SplitNoise:
    """The device splits its update, with its part of Skellam noise, between two servers.

    `scale` is integers per unit of an update; sums are modulo 2**bits. `variance` is that of one
    device's noise in each coordinate; of the devices of a sum `colluding` may tell their noise.
    `helper` is who runs the helper.
    """

    kind: ClassVar[str] = "two_servers"
    scale: float
    bits: int
    variance: Fraction
    colluding: int
    leader_key: bytes
    helper_key: bytes
    helper: str


Protection = CentralNoise | LocalNoise | RecordLevel | SplitNoise
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
    - `SplitNoise`: the sums of all rounds together have a Renyi divergence of at most a * `rho` at
      every integer order a >= 2 for one person's updates against zeros in their place (at most four
      times that for other updates in their place), against either of the two servers, if the other
      one is honest and all but `colluding` devices of each sum are.
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
        """What the whole training spends for one person's updates against zeros in their place,
        rounded up to billionths: zCDP of the server's noise, and Renyi divergence over the order of
        noise that devices split. None where there is neither."""
        if isinstance(self.protection, SplitNoise):
            exact = self.participations * account.rho(
                *self.norms,
                account.honest_variance(
                    self.protection.variance, self.min_updates, self.protection.colluding
                ),
            )
            return Fraction(math.ceil(exact * BILLION), BILLION)
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
    def split(self) -> SplitNoise:
        """How updates are split between two servers; raises `InvalidInput` where they are not."""
        if not isinstance(self.protection, SplitNoise):
            raise InvalidInput(f"updates of {self.name!r} are not split between two servers")
        return self.protection

    @property
    def padded(self) -> int:
        """The length of a split update: the least power of two that is no less than `dimension`."""
        return 1 << (self.dimension - 1).bit_length()

    @cached_property
    def norms(self) -> tuple[int, int]:
        """The L1 and the squared L2 norm that the integers of a split update keep to."""
        return rounding.norm_bounds(self.max_update_norm, self.split.scale, self.padded)

    @cached_property
    def splitting(self) -> Splitting:
        """By what updates are split between two servers; raises as `split`."""
        keys = self.split.leader_key, self.split.helper_key
        return Splitting(
            self.name, self.revision, *keys, self.min_updates, self.padded, self.split.bits
        )

    @property
    def has_seed(self) -> bool:
        """Whether the server keeps a secret for the training: the seed of its noise, or the private
        key of its shares."""
        return isinstance(self.protection, CentralNoise | SplitNoise)

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
        """Who must be honest for what is promised: "server", "one of two servers" or "nobody"."""
        if isinstance(self.protection, SplitNoise):
            return "one of two servers"
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
            case SplitNoise() as split:
                assert self.rho is not None
                return (
                    "Each update is split between the server and a helper"
                    f"{f' of {split.helper}' if split.helper else ''}. Either of them learns sums "
                    f"of {self.min_updates:,} or more updates alone, with the devices' noise: rho "
                    f"{float(self.rho):.4g} for one person's updates against zeros in their place, "
                    f"if the other one is honest and all but {split.colluding:,} devices of each "
                    "sum are. Both together read every update."
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
