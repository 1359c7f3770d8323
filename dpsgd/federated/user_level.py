"""User-level privacy by the server's noise: DP-FTRL, and DP-FedAvg with Poisson sampling.

Everything here holds if the server is honest: it sees every update, adds the noise, and throws the
updates away. What is protected is a person: all their updates together may become zeros.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting import PoissonSampling, RDPAccountant, Relation
from dpsgd.accounting.events import check_delta, check_integer, check_positive
from dpsgd.accounting.gaussian import epsilon_of_mean
from dpsgd.clipping.schedules import Schedule
from dpsgd.federated.drawing import KeptApart, Poisson
from dpsgd.federated.exact_sums import ExactSum
from dpsgd.federated.protection import Setting
from dpsgd.federated.round_noise import RoundNoise
from ldp.planning.prefix_sums import PrefixSums, best_bands, sensitivity

_MOST_BANDS = 64

Updates = Iterable[NDArray[np.float32]]


@dataclass(frozen=True, kw_only=True)
class _FTRL:
    """DP-FTRL: noise whose errors cancel over the rounds, for people who take part now and then."""

    max_update_norm: float
    noise_multiplier: float
    participations: int
    separation: int

    mechanism: ClassVar[PrefixSums]

    def __post_init__(self) -> None:
        check_positive("max_update_norm", self.max_update_norm)
        check_positive("noise_multiplier", self.noise_multiplier)
        check_integer("participations", self.participations, 1)
        check_integer("separation", self.separation, 1)

    def start(self, setting: Setting) -> "_Correlated":
        """Return the protection of one training."""
        return _Correlated(self, setting, self._bands(setting.rounds))

    def sensitivity(self, rounds: int) -> float:
        """Return how far one person moves what noise is added to, in units of max_update_norm."""
        times = min(self.participations, rounds)
        bands = self._bands(rounds)
        return sensitivity(self.mechanism, rounds, bands, times, self.separation)

    def _bands(self, rounds: int) -> int:
        return 0


@dataclass(frozen=True, kw_only=True)
class TreeFTRL(_FTRL):
    """DP-FTRL with the binary tree and the least squares estimate of all its nodes.

    Each update is clipped to L2 norm `max_update_norm`. The noise has standard deviation
    noise_multiplier * max_update_norm at each node. A person takes part in at most `participations`
    rounds, any two of them at least `separation` apart, which the simulation enforces by whom it
    draws and, in a federation, each device.

    Guarantee: (epsilon, delta)-DP of all models of all rounds, for one person whose updates become
    zeros, by the exact curve of the Gaussian mechanism; `dpsgd.federated.round_noise` has the
    proof. No sampling is assumed: who takes part may be known. Replacing the updates of a person by
    others doubles the sensitivity.
    Raises `InvalidInput` unless norm and noise are finite and > 0 and the integers >= 1.
    Source: Kairouz et al., "Practical and private (deep) learning without sampling or shuffling",
    ICML 2021, algorithm 1 and section 3; Honaker, "Efficient use of differentially private binary
    trees", TPDP 2015.
    """

    mechanism: ClassVar[PrefixSums] = "tree"


@dataclass(frozen=True, kw_only=True)
class ToeplitzFTRL(_FTRL):
    """DP-FTRL with the square root of the matrix of prefix sums, in `bands` bands: take this one.

    As `TreeFTRL`, with less error at the same privacy. `bands` is by default the number of least
    error, 64 at most: the noise of so many rounds is kept in memory.

    Guarantee, conditions and what is raised are those of `TreeFTRL`.
    Source: Choquette-Choo et al., "(Amplified) banded matrix factorization", NeurIPS 2023 (bands,
    many participations); Fichtenberger, Henzinger and Upadhyay, "Constant matters", ICML 2023
    (the root); Kalinin and Lampert, "Banded square root matrix factorization for differentially
    private model training", NeurIPS 2024 (both). The sensitivity is proved in `prefix_sums`.
    """

    bands: int | None = None

    mechanism: ClassVar[PrefixSums] = "toeplitz"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bands is not None:
            check_integer("bands", self.bands, 1)

    def _bands(self, rounds: int) -> int:
        if self.bands is not None:
            return min(self.bands, rounds)
        return best_bands(rounds, min(self.participations, rounds), self.separation, _MOST_BANDS)


class _Correlated:
    """A training with noise that is correlated over its rounds."""

    def __init__(self, kind: _FTRL, setting: Setting, bands: int) -> None:
        times = min(kind.participations, setting.rounds)
        self._kind, self._setting, self._bands, self._at = kind, setting, bands, 0
        self._noise = RoundNoise(
            kind.mechanism,
            rounds=setting.rounds,
            bands=bands,
            participations=times,
            separation=kind.separation,
            noise_multiplier=kind.noise_multiplier,
            max_update_norm=kind.max_update_norm,
            dimension=setting.dimension,
            seed=_seed(setting),
        )
        self._kept_apart = KeptApart(
            setting.clients, setting.per_round, participations=times, separation=kind.separation
        )
        self._kept_apart.check_enough(setting.rounds)

    @property
    def bytes_up(self) -> int:
        """The bytes of one update: float32 values."""
        return 4 * self._setting.dimension

    def draw(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return who takes part, among those who may."""
        return self._kept_apart.draw(number, rng)

    def aggregate(
        self, number: int, clients: NDArray[np.int64], updates: Updates
    ) -> NDArray[np.float64]:
        """Return the noisy sum of the clipped updates over the number that is to take part."""
        self._at = number
        noisy = self._noise.release(number, _summed(self._noise.sum(), updates))
        return noisy / self._setting.per_round

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon of the rounds so far; of a tree, of all its rounds from the first."""
        check_delta(delta)
        if not self._at:
            return 0.0
        kind = self._kind
        rounds = self._setting.rounds if kind.mechanism == "tree" else self._at
        times, bands = min(kind.participations, rounds), min(self._bands, rounds)
        moved = sensitivity(kind.mechanism, rounds, bands, times, kind.separation)
        return epsilon_of_mean(moved / kind.noise_multiplier, delta)


@dataclass(frozen=True, kw_only=True)
class UserLevel:
    """DP-FedAvg: each client takes part in each round by a secret coin, with fresh noise.

    A client's coin comes up with the number of clients in a round over that of all. Updates are
    clipped to L2 norm `max_update_norm` and summed with equal weights, Gaussian noise of standard
    deviation noise_multiplier * max_update_norm is added, and the sum is divided by the expected
    number of clients. Both may be schedules (`dpsgd.clipping.schedules`) of the rounds before.

    Guarantee: (epsilon, delta)-DP by the RDP accountant of Poisson-sampled Gaussian noise, for one
    person added or removed. It needs that the server draws, tells nobody whom it drew, and that
    everybody who is drawn takes part: devices that choose themselves, or fail, break it. So it is
    for simulations and for enrolled clients that always answer; take `ToeplitzFTRL` for devices.
    Raises `InvalidInput` unless norm and noise are finite and > 0.
    Source: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018,
    algorithm 1 with the estimator of fixed denominator.
    """

    max_update_norm: float | Schedule
    noise_multiplier: float | Schedule

    def __post_init__(self) -> None:
        for name in ("max_update_norm", "noise_multiplier"):
            if not callable(value := getattr(self, name)):
                check_positive(name, value)

    def start(self, setting: Setting) -> "_Sampled":
        """Return the protection of one training."""
        return _Sampled(self, setting)


class _Sampled:
    """A training whose clients are Poisson-sampled in each round."""

    def __init__(self, kind: UserLevel, setting: Setting) -> None:
        self._kind, self._setting, self._seed = kind, setting, _seed(setting)
        self._sampling = PoissonSampling(setting.per_round / setting.clients)
        self._poisson = Poisson(setting.clients, self._sampling.rate)
        self._accountant = RDPAccountant(Relation.ADD_REMOVE)

    @property
    def bytes_up(self) -> int:
        """The bytes of one update: float32 values."""
        return 4 * self._setting.dimension

    def draw(self, number: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Return whose coin came up."""
        return self._poisson.draw(number, rng)

    def aggregate(
        self, number: int, clients: NDArray[np.int64], updates: Updates
    ) -> NDArray[np.float64]:
        """Return the noisy sum of the clipped updates over the expected number of clients."""
        multiplier = _at(self._kind.noise_multiplier, number)
        noise = RoundNoise(
            "toeplitz",
            rounds=self._setting.rounds,
            bands=1,
            participations=1,
            separation=1,
            noise_multiplier=multiplier,
            max_update_norm=_at(self._kind.max_update_norm, number),
            dimension=self._setting.dimension,
            seed=self._seed,
        )
        self._accountant.step(noise_multiplier=multiplier, sampling=self._sampling)
        return noise.release(number, _summed(noise.sum(), updates)) / self._setting.per_round

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon of the rounds so far."""
        return self._accountant.get_epsilon(delta)


def _at(value: float | Schedule, number: int) -> float:
    return value(number - 1) if callable(value) else value


def _summed(total: ExactSum, updates: Updates) -> ExactSum:
    """Add updates; one that diverged, with values that are not finite, counts as zeros."""
    for update in updates:
        if np.isfinite(update).all():
            total.add(update)
    return total


def _seed(setting: Setting) -> bytes:
    return hashlib.sha256(f"noise of a simulated training, seed {setting.seed}".encode()).digest()
