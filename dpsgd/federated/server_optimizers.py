"""What the server does with the aggregated update of a round: a step, with momentum or adaptive.

An optimizer is a value, and its state a tuple of arrays that the caller keeps between rounds.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import check_positive
from ldp import InvalidInput

Model = NDArray[np.float32]
State = tuple[NDArray[np.float64], ...]

_BETA2, _TAU = 0.99, 1e-3


class ServerOptimizer(Protocol):
    """A step from one round's model to the next."""

    def initial(self, dimension: int) -> State:
        """Return the state before the first round, of arrays of shape (dimension,)."""
        ...

    def step(self, model: Model, update: NDArray[np.floating], state: State) -> tuple[Model, State]:
        """Return the next model and state; nothing that was given is changed.

        `update` is what to add to the model, shape (dimension,): the negative of a gradient.
        """
        ...


@dataclass(frozen=True)
class SGD:
    """Add `learning_rate` times the update and what is left of earlier ones.

    Learning rate 1 without momentum is FedAvg's step. Raises `InvalidInput` unless learning_rate is
    finite and > 0, and 0 <= momentum < 1.
    Source: Hsu, Qi and Brown, "Measuring the effects of non-identical data distribution for
    federated visual classification", 2019, section 4 (FedAvgM).
    """

    learning_rate: float = 1.0
    momentum: float = 0.0

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        check_momentum(self.momentum)

    def initial(self, dimension: int) -> State:
        return (np.zeros(dimension),) if self.momentum else ()

    def step(self, model: Model, update: NDArray[np.floating], state: State) -> tuple[Model, State]:
        if not self.momentum:
            return _moved(model, self.learning_rate * update), state
        velocity = self.momentum * state[0] + update
        return _moved(model, self.learning_rate * velocity), (velocity,)


@dataclass(frozen=True)
class Adam:
    """FedAdam: divide the mean update by the root of its mean square plus 1e-3.

    There is no correction of the bias of the first rounds; the mean square starts at 1e-6.
    Raises `InvalidInput` unless learning_rate is finite and > 0, and 0 <= momentum < 1.
    Source: Reddi et al., "Adaptive federated optimization", ICLR 2021, algorithm 2, with beta1 =
    `momentum`, beta2 = 0.99 and tau = 1e-3 of their experiments, and v_(-1) = tau^2.
    """

    learning_rate: float = 0.01
    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_positive("learning_rate", self.learning_rate)
        check_momentum(self.momentum)

    def initial(self, dimension: int) -> State:
        return np.zeros(dimension), np.full(dimension, _TAU**2)

    def step(self, model: Model, update: NDArray[np.floating], state: State) -> tuple[Model, State]:
        mean, square = state
        mean = self.momentum * mean + (1 - self.momentum) * update
        square = self._squared(square, np.square(update, dtype=np.float64))
        return _moved(model, self.learning_rate * mean / (np.sqrt(square) + _TAU)), (mean, square)

    def _squared(
        self, square: NDArray[np.float64], new: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return _BETA2 * square + (1 - _BETA2) * new


@dataclass(frozen=True)
class Yogi(Adam):
    """FedYogi: as `Adam`, with a mean square that a round changes by no more than its own square.

    Source: Reddi et al., ICLR 2021, algorithm 2.
    """

    def _squared(
        self, square: NDArray[np.float64], new: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        return square - (1 - _BETA2) * new * np.sign(square - new)


def named(name: str, learning_rate: float, momentum: float) -> ServerOptimizer:
    """Return the optimizer that a training names: "sgd", "adam" or "yogi".

    Raises `InvalidInput` for another name, and for what the optimizer refuses.
    """
    kinds: dict[str, type[SGD] | type[Adam]] = {"sgd": SGD, "adam": Adam, "yogi": Yogi}
    if name not in kinds:
        raise InvalidInput(f"optimizer must be one of {', '.join(kinds)}, got {name!r}")
    return kinds[name](learning_rate, momentum)


def check_momentum(momentum: float) -> None:
    """Raise `InvalidInput` unless 0 <= momentum < 1."""
    if not 0 <= momentum < 1:
        raise InvalidInput(f"momentum must be >= 0 and < 1, got {momentum}")


def _moved(model: Model, step: NDArray[np.floating]) -> Model:
    return (model + step).astype(np.float32)
