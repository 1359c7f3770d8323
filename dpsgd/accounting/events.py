"""Events of an accountant: noise, sampling of the records, and the neighboring relation."""

import enum
import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from ldp import InvalidInput


class Relation(enum.Enum):
    """The neighboring relation: the pairs of data sets that a guarantee is about.

    A figure under one relation says nothing about another: nothing here converts between them.
    """

    ADD_REMOVE = "add_remove"
    """One record more or less. A record moves a clipped sum by max_grad_norm at most."""
    REPLACE_ONE = "replace_one"
    """One record exchanged for any other: twice max_grad_norm. The size is public."""
    REPLACE_SPECIAL = "replace_special"
    """One record exchanged for a blank that adds nothing: max_grad_norm. The size is public."""

    @property
    def sensitivity(self) -> float:
        """The sensitivity of a clipped sum, in units of max_grad_norm."""
        return 2.0 if self is Relation.REPLACE_ONE else 1.0


@dataclass(frozen=True)
class PoissonSampling:
    """Take each record with probability `rate`, independently of all others.

    Raises `InvalidInput` unless 0 <= rate <= 1.
    """

    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", _number("sampling rate", self.rate))
        if not 0 <= self.rate <= 1:
            raise InvalidInput(f"sampling rate must lie in [0, 1], got {self.rate}")


@dataclass(frozen=True)
class FixedSizeSampling:
    """Take `batch` of `dataset` records uniformly without replacement, afresh for each step.

    Batches of a shuffled pass over the data are NOT this: they are drawn from the rest.
    Raises `InvalidInput` unless 0 <= batch <= dataset and dataset >= 1.
    """

    batch: int
    dataset: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "batch", _integer("batch", self.batch, 0))
        object.__setattr__(self, "dataset", _integer("dataset", self.dataset, 1))
        if self.batch > self.dataset:
            raise InvalidInput(f"batch must be at most dataset ({self.dataset}), got {self.batch}")

    @property
    def rate(self) -> float:
        """The probability that a record is in a batch."""
        return self.batch / self.dataset


@dataclass(frozen=True)
class NoSampling:
    """Use every record in every step."""

    @property
    def rate(self) -> float:
        """The probability that a record is in a batch: 1."""
        return 1.0


Sampling = PoissonSampling | FixedSizeSampling | NoSampling

_VALID = {
    PoissonSampling: (Relation.ADD_REMOVE, Relation.REPLACE_SPECIAL),
    FixedSizeSampling: (Relation.REPLACE_ONE,),
    NoSampling: tuple(Relation),
}
_KINDS = {"poisson": PoissonSampling, "fixed_size": FixedSizeSampling, "none": NoSampling}


@dataclass(frozen=True)
class Event:
    """`steps` releases of a clipped sum with Gaussian noise.

    `noise_multiplier` is the noise's standard deviation over max_grad_norm, for every relation:
    that neighbours may differ by twice max_grad_norm is the accountant's business. Raises
    `InvalidInput` unless noise_multiplier is finite and > 0 and steps an integer >= 0.
    """

    noise_multiplier: float
    sampling: Sampling
    steps: int

    def __post_init__(self) -> None:
        check_noise_multiplier(self.noise_multiplier)
        object.__setattr__(self, "noise_multiplier", float(self.noise_multiplier))
        if not isinstance(self.sampling, tuple(_VALID)):
            raise InvalidInput(
                "sampling must be PoissonSampling, FixedSizeSampling or NoSampling, got "
                f"{self.sampling!r}"
            )
        object.__setattr__(self, "steps", _integer("steps", self.steps, 0))

    @property
    def silent(self) -> bool:
        """Whether no release depends on the data: no steps, or a sampling rate of 0."""
        return self.steps == 0 or self.sampling.rate == 0

    def check_relation(self, relation: Relation) -> None:
        """Raise `InvalidInput` where the sampling has no guarantee under the relation."""
        valid = _VALID[type(self.sampling)]
        if relation not in valid:
            names = " or ".join(r.name for r in valid)
            raise InvalidInput(
                f"{type(self.sampling).__name__} is accounted for under {names}, "
                f"not under {relation.name}"
            )

    def noise_per_difference(self, relation: Relation) -> float:
        """Return the noise's standard deviation over the distance of neighbouring sums."""
        return self.noise_multiplier / relation.sensitivity

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON values."""
        kind = next(name for name, cls in _KINDS.items() if isinstance(self.sampling, cls))
        return {
            "noise_multiplier": self.noise_multiplier,
            "sampling": {"kind": kind, **vars(self.sampling)},
            "steps": self.steps,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> "Event":
        """Return the event that `to_dict` wrote; raises `InvalidInput` for anything else."""
        try:
            sampling = dict(document["sampling"])
            kind = _KINDS[sampling.pop("kind")]
            return cls(document["noise_multiplier"], kind(**sampling), document["steps"])
        except InvalidInput:
            raise
        except (KeyError, TypeError, ValueError):
            raise InvalidInput(f"not an event of an accountant: {document!r}") from None


def check_unsampled(event: Event, accountant: str) -> None:
    """Raise `InvalidInput` for an event with a sampling rate strictly between 0 and 1."""
    if 0 < event.sampling.rate < 1:
        raise InvalidInput(
            f"{accountant} does not account for sampling (rate {event.sampling.rate:g}): "
            "use RDPAccountant or PLDAccountant"
        )


def check_noise_multiplier(value: float) -> None:
    """Raise `InvalidInput` unless the value is a finite number > 0."""
    _number("noise_multiplier", value)
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"noise_multiplier must be finite and > 0, got {value}")


def check_delta(delta: float) -> None:
    """Raise `InvalidInput` unless 0 < delta < 1."""
    _number("delta", delta)
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie strictly between 0 and 1, got {delta}")


def check_epsilon(epsilon: float) -> None:
    """Raise `InvalidInput` unless epsilon is finite and >= 0."""
    _number("epsilon", epsilon)
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise InvalidInput(f"epsilon must be finite and >= 0, got {epsilon}")


def _number(name: str, value: float) -> float:
    """Return a number of any type, such as numpy's, as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidInput(f"{name} must be a number, got {value!r}")
    return float(value)


def _integer(name: str, value: int, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise InvalidInput(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)
