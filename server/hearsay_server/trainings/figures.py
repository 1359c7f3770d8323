"""What a training spends up to a round, as figures for people."""

import math
from fractions import Fraction

from hearsay.federated.declaration import CentralNoise, LocalNoise, SplitNoise, Training
from ldp import InvalidInput
from ldp.planning import prefix_sums
from ldp.two_servers.account import epsilon_of as split_epsilon

DELTA = 1e-5
"""The delta that figures are for where none is given."""


def spent_rho(training: Training, rounds: int) -> Fraction | None:
    """Return the rho of the first models, of so many rounds; None where a training spends none.

    With the Toeplitz root the first rounds have the noise of a training that ends with them. The
    noise of a tree is that of the whole training's tree from the first round on, and its rho that
    of as many participations as there were by then. 0 where no model was made.
    """
    noise = training.protection
    if isinstance(noise, SplitNoise):
        assert training.rho is not None
        return training.rho / training.participations * times(training, rounds)
    if not isinstance(noise, CentralNoise):
        return None
    if not rounds:
        return Fraction(0)
    return prefix_sums.rho(
        noise.mechanism,
        training.rounds if noise.mechanism == "tree" else rounds,
        min(noise.bands, rounds),
        times(training, rounds),
        training.separation,
        noise.noise_multiplier,
    )


def check_delta(delta: float) -> None:
    """Raise `InvalidInput` for what is no delta."""
    if not 0 < delta < 1:
        raise InvalidInput(f"--delta must be > 0 and < 1, got {delta!r}")


def check_norm(norm: float) -> None:
    """Raise `InvalidInput` for what is no share of `max_update_norm`."""
    if not 0 < norm <= 1:
        raise InvalidInput(f"--norm must be a share > 0 and at most 1, got {norm!r}")


def times(training: Training, rounds: int) -> int:
    """Return how often a person takes part in the first rounds at most."""
    return min(training.participations, -(-rounds // training.separation))


def spent_epsilon(training: Training, rounds: int, delta: float = DELTA) -> float | None:
    """Return the most epsilon of a person in the first rounds: at a delta with noise of the server,
    and pure with local noise. None where nothing is promised to people."""
    if isinstance(training.protection, LocalNoise):
        each = training.epsilon_per_update
        assert each is not None
        return each * times(training, rounds)
    rho = spent_rho(training, rounds)
    return None if rho is None else epsilon_at(training, rho, delta)


def epsilon_at(training: Training, rho: Fraction, delta: float) -> float:
    """Return the epsilon of a training's noise that spends rho, at a delta."""
    return split_epsilon(rho, delta) if has_split_noise(training) else epsilon_of(rho, delta)


def has_split_noise(training: Training) -> bool:
    """Tell whether two servers sum a training's updates."""
    return isinstance(training.protection, SplitNoise)


def epsilon_of(rho: Fraction, delta: float) -> float:
    """Return the least epsilon at a delta of Gaussian noise that is rho-zCDP, rounded up.

    The sums of all rounds with their noise are one Gaussian mechanism, also where later updates
    depend on earlier models (Denisov et al., NeurIPS 2022, theorem 2.1).
    """
    from dpsgd.accounting.gaussian import epsilon_of_mean

    return epsilon_of_mean(math.sqrt(2 * float(rho)), delta)
