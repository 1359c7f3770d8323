"""Clipping policies: scale factors of per-sample gradients, from their norms."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ldp import InvalidInput


class ClippingPolicy(ABC):
    """Compute scale factors of per-sample gradients from their norms.

    Formal guarantee of every policy: for any gradient of a sample, the clipped gradient
    has a Euclidean norm of at most `sensitivity`, over all parameters together.
    """

    groups: int
    """The number of groups of parameters that are clipped apart."""

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """The largest norm that one sample's clipped gradient can have."""

    @abstractmethod
    def group(self, parameter: str) -> int:
        """Return the group, 0..groups-1, of the parameter with this name."""

    @abstractmethod
    def factors(self, norms: Tensor) -> Tensor:
        """Return the scale factors of gradients with these finite norms; both (groups, b)."""


@dataclass(frozen=True)
class FlatClipping(ClippingPolicy):
    """Scale a sample's whole gradient down to norm `max_grad_norm` where it is longer.

    Source: Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1.
    Raises `InvalidInput` unless max_grad_norm is finite and > 0.
    """

    max_grad_norm: float
    groups = 1

    def __post_init__(self) -> None:
        check_norm("max_grad_norm", self.max_grad_norm)

    @property
    def sensitivity(self) -> float:
        return self.max_grad_norm

    def group(self, parameter: str) -> int:
        return 0

    def factors(self, norms: Tensor) -> Tensor:
        return _shortened(norms, self.max_grad_norm)


@dataclass(frozen=True)
class AutomaticClipping(ClippingPolicy):
    """Scale every gradient g by 1 / (|g| + gamma), short ones too: AUTO-S. The sensitivity is 1.

    There is no norm to choose; the learning rate takes its place. Source: Bu, Wang, Zha and
    Karypis, "Automatic clipping", NeurIPS 2023, equation 4. Raises `InvalidInput` unless gamma
    is finite and > 0.
    """

    gamma: float = 0.01
    groups = 1
    sensitivity = 1.0

    def __post_init__(self) -> None:
        check_norm("gamma", self.gamma)

    def group(self, parameter: str) -> int:
        return 0

    def factors(self, norms: Tensor) -> Tensor:
        return _rounded_down(norms) / (norms + self.gamma)


@dataclass(frozen=True)
class PerLayerClipping(ClippingPolicy):
    """Clip the gradient of each parameter, or of all in a layer, by itself, to its own norm.

    `max_grad_norms` maps names to norms: of parameters ("0.weight") or of the modules that they
    are in ("0"); the longest that fits counts. Source: McMahan et al., "Learning differentially
    private recurrent language models", ICLR 2018, section 3.1. Raises `InvalidInput` unless every
    norm is finite and > 0.
    """

    max_grad_norms: Mapping[str, float]

    def __post_init__(self) -> None:
        if not self.max_grad_norms:
            raise InvalidInput("max_grad_norms must name the parameters, got none")
        for name, norm in self.max_grad_norms.items():
            check_norm(f"the max_grad_norm of {name}", norm)

    @classmethod
    def evenly(cls, names: list[str], max_grad_norm: float) -> "PerLayerClipping":
        """Give each of M parameters or layers max_grad_norm / sqrt(M): together, max_grad_norm."""
        check_norm("max_grad_norm", max_grad_norm)
        return cls(dict.fromkeys(names, max_grad_norm / math.sqrt(max(1, len(names)))))

    @classmethod
    def by_dimension(cls, sizes: Mapping[str, int], max_grad_norm: float) -> "PerLayerClipping":
        """Give each parameter or layer a norm that grows as the root of its number of values.

        `sizes` maps names to these numbers. Together, the norms are max_grad_norm.
        """
        check_norm("max_grad_norm", max_grad_norm)
        total = sum(sizes.values())
        return cls({name: max_grad_norm * math.sqrt(n / total) for name, n in sizes.items()})

    @property
    def groups(self) -> int:  # type: ignore[override]
        return len(self.max_grad_norms)

    @property
    def sensitivity(self) -> float:
        return math.hypot(*self.max_grad_norms.values())

    def group(self, parameter: str) -> int:
        name = parameter
        while name not in self.max_grad_norms:
            name, dot, _ = name.rpartition(".")
            if not dot:
                raise InvalidInput(f"max_grad_norms has no norm for {parameter}")
        return list(self.max_grad_norms).index(name)

    def factors(self, norms: Tensor) -> Tensor:
        return _shortened(norms, norms.new_tensor(list(self.max_grad_norms.values()))[:, None])


def check_norm(name: str, value: float) -> None:
    """Raise `InvalidInput` unless the value is a finite number > 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{name} must be finite and > 0, got {value!r}")


def _shortened(norms: Tensor, most: Tensor | float) -> Tensor:
    """Return the factors, at most 1, that bring gradients of these norms to `most`."""
    # A norm of 0 gives infinity, which becomes 1.
    return norms.reciprocal().mul_(most * _rounded_down(norms)).clamp_(max=1.0)


def _rounded_down(norms: Tensor) -> float:
    """Return 1 - 4 machine epsilons, a factor for quotients by norms, which may be rounded up."""
    return float(1 - 4 * torch.finfo(norms.dtype).eps)
