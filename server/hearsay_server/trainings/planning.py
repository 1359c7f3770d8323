"""Plan a training: how often a device takes part, and the noise that keeps a budget."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from hearsay.federated.declaration import UNIT
from hearsay.federated.parsing import MOST_RHO
from hearsay_server.trainings.figures import epsilon_of
from ldp import InvalidInput
from ldp.planning import prefix_sums
from ldp.planning.prefix_sums import MOST_ROUNDS, PrefixSums


@dataclass(frozen=True)
class Pace:
    """How often a device takes part at most: what its ledger holds to."""

    participations: int
    separation: int


def pace_of(people: int, available: float, updates_per_round: int, rounds: int) -> Pace:
    """Return the fewest participations, as far apart as can be, that fill every round.

    Of `people`, the share `available` has a device that is there when it is asked. A device that
    took part comes again once all others that are there had their turn: after present /
    updates_per_round rounds. Raises `InvalidInput` where a round takes more updates than devices
    are there.
    """
    if not 0 < available <= 1:
        raise InvalidInput(f"--available must be a share > 0 and at most 1, got {available!r}")
    if not 1 <= rounds <= MOST_ROUNDS:
        raise InvalidInput(f"--rounds must be 1 to {MOST_ROUNDS:,}, got {rounds:,}")
    present = math.floor(people * available)
    if not 1 <= updates_per_round <= present:
        raise InvalidInput(
            f"--updates-per-round must be 1 to the {present:,} of {people:,} people who are there, "
            f"got {updates_per_round:,}"
        )
    separation = min(rounds, present // updates_per_round)
    return Pace(-(-rounds // separation), separation)


@dataclass(frozen=True)
class Noise:
    """Noise of one mechanism that keeps a budget.

    `first` and `last` are the standard deviations of the noise in one coordinate of the summed
    updates of the first round and of all rounds, over `max_update_norm`; `mean` is the root mean
    square of that over the rounds, by which mechanisms are compared.
    """

    mechanism: PrefixSums
    bands: int
    millionths: int
    rho: Fraction
    first: float
    last: float
    mean: float

    @property
    def noise_multiplier(self) -> float:
        """The noise's standard deviation over `max_update_norm`, at sensitivity one."""
        return self.millionths / UNIT


def mechanisms(rounds: int, pace: Pace, rho: Fraction) -> Sequence[Noise]:
    """Return the mechanisms that keep rho-zCDP of one person, the one of least error first.

    The Toeplitz root has the bands of least error.
    """
    if not 0 < rho < MOST_RHO:
        raise InvalidInput(f"rho must be > 0 and less than {MOST_RHO:,}, got {float(rho):g}")
    bands = prefix_sums.best_bands(rounds, pace.participations, pace.separation)
    toeplitz = _noise("toeplitz", rounds, bands, pace, rho)
    tree = _noise("tree", rounds, 0, pace, rho)
    return sorted((toeplitz, tree), key=lambda found: found.mean)


@dataclass(frozen=True)
class SplitNoise:
    """Skellam noise of devices whose updates two servers sum, with `min_updates` of them.

    `first` and `last` are as those of `Noise`, but for what the rounding adds: a thousandth.
    """

    rho: Fraction
    first: float
    last: float


def split(rounds: int, pace: Pace, rho: Fraction) -> SplitNoise:
    """Return the noise of devices that keeps rho over all participations of a person.

    Each round has noise of its own, so its deviation in the sum grows as the root of the rounds.
    """
    first = math.sqrt(pace.participations / (2 * float(rho)))
    return SplitNoise(rho, first, first * math.sqrt(rounds))


def rho_for(epsilon: float, delta: float) -> Fraction:
    """Return the largest rho (but for rounding) of Gaussian noise that keeps epsilon at delta."""
    from dpsgd.accounting.gaussian import analytic_noise

    rho = 1 / (2 * Fraction(analytic_noise(epsilon, delta)) ** 2)
    assert epsilon_of(rho, delta) <= epsilon * (1 + 1e-6)
    return rho


def _noise(mechanism: PrefixSums, rounds: int, bands: int, pace: Pace, rho: Fraction) -> Noise:
    def spent(millionths: int) -> Fraction:
        return prefix_sums.rho(
            mechanism,
            rounds,
            bands,
            pace.participations,
            pace.separation,
            Fraction(millionths, UNIT),
        )

    # rho falls with the square of the multiplier, but for its rounding.
    millionths = max(1, math.floor(UNIT * math.sqrt(spent(UNIT) / rho)) - 1)
    while spent(millionths) > rho:
        millionths += 1
    errors = millionths / UNIT * prefix_sums.errors(mechanism, rounds, bands)
    mean = float(np.sqrt(np.mean(np.square(errors))))
    first, last = float(errors[0]), float(errors[-1])
    return Noise(mechanism, bands, millionths, spent(millionths), first, last, mean)
