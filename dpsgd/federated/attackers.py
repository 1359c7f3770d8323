"""Clients that want the model to fail, to try a strategy against.

Each knows more than a real one would: it is the worst case of what it does.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dpsgd.accounting.events import check_integer, check_positive

Updates = NDArray[np.float32]


class Attack(Protocol):
    """Some clients, and what they do instead of training honestly."""

    @property
    def clients(self) -> tuple[int, ...]:
        """The ids of the hostile clients."""
        ...

    def poison(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the labels that a hostile client trains on."""
        ...

    def forge(self, honest: Updates) -> NDArray[np.float64] | None:
        """Return what each hostile client of a round sends, None if what it trained.

        `honest` are the honest clients' updates of the round, shape (m, d), with m >= 1.
        """
        ...


@dataclass(frozen=True)
class _Attack:
    clients: tuple[int, ...]

    def __post_init__(self) -> None:
        for client in self.clients:
            check_integer("a client", client, 0)

    def poison(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        return labels

    def forge(self, honest: Updates) -> NDArray[np.float64] | None:
        return None


@dataclass(frozen=True)
class LabelFlip(_Attack):
    """Train on labels `classes` - 1 - y in the place of y.

    Raises `InvalidInput` for classes < 2.
    """

    classes: int = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("classes", self.classes, 2)

    def poison(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.classes - 1 - labels


@dataclass(frozen=True)
class SignFlip(_Attack):
    """Send -`factor` times the mean of the honest updates."""

    factor: float = 5.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("factor", self.factor)

    def forge(self, honest: Updates) -> NDArray[np.float64] | None:
        mean: NDArray[np.float64] = honest.mean(axis=0, dtype=np.float64)
        return -self.factor * mean


@dataclass(frozen=True)
class ALittleIsEnough(_Attack):
    """Send the mean of the honest updates less `deviations` of their standard deviations.

    Source: Baruch, Baruch and Goldberg, "A little is enough: circumventing defenses for distributed
    learning", NeurIPS 2019, section 3 (with the moments of the honest updates themselves).
    """

    deviations: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("deviations", self.deviations)

    def forge(self, honest: Updates) -> NDArray[np.float64] | None:
        mean: NDArray[np.float64] = honest.mean(axis=0, dtype=np.float64)
        spread: NDArray[np.float64] = honest.std(axis=0, dtype=np.float64)
        return mean - self.deviations * spread
