"""Clipping policies: scale factors of per-sample gradients, from their norms."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from dpsgd.accounting.events import check_positive
from dpsgd.accounting.gaussian import combined_noise_multiplier
from ldp import InvalidInput


class ClippingPolicy(ABC):
    """Compute scale factors of per-sample gradients from their norms.

    Formal guarantee of every policy: for any gradient of a sample, the clipped gradient
    has a Euclidean norm of at most `limits[m]` over the parameters of group m, and of at most
    `sensitivity` over all together.
    """

    @property
    @abstractmethod
    def limits(self) -> tuple[float, ...]:
        """For each group of parameters, the largest norm of one sample's clipped gradient."""

    @abstractmethod
    def factors(self, norms: Tensor) -> Tensor:
        """Return the scale factors of gradients with these finite norms; both (groups, b)."""

    @property
    def groups(self) -> int:
        """The number of groups of parameters that are clipped apart."""
        return len(self.limits)

    @property
    def sensitivity(self) -> float:
        """The largest norm that one sample's clipped gradient can have."""
        return math.hypot(*self.limits)

    def group(self, parameter: str) -> int:
        """Return the group, 0..groups-1, of the parameter with this name."""
        return 0

    def deviations(self, noise_multiplier: float) -> list[float]:
        """Return the standard deviation of each group's noise: by default, the same for all.

        Formal guarantee: all groups together are one Gaussian release with the noise multiplier.
        """
        return [noise_multiplier * self.sensitivity] * self.groups


@dataclass(frozen=True)
class FlatClipping(ClippingPolicy):
    """Scale a sample's whole gradient down to norm `max_grad_norm` where it is longer.

    Source: Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1.
    Raises `InvalidInput` unless max_grad_norm is finite and > 0.
    """

    max_grad_norm: float

    def __post_init__(self) -> None:
        check_positive("max_grad_norm", self.max_grad_norm)

    @property
    def limits(self) -> tuple[float, ...]:
        return (self.max_grad_norm,)

    def at(self, limits: Sequence[float]) -> "FlatClipping":
        """Return the policy with another norm."""
        return FlatClipping(*limits)

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
    limits = (1.0,)

    def __post_init__(self) -> None:
        check_positive("gamma", self.gamma)

    def factors(self, norms: Tensor) -> Tensor:
        return _rounded_down(norms) / (norms + self.gamma)


@dataclass(frozen=True)
class PerLayerClipping(ClippingPolicy):
    """Clip the gradient of each parameter, or of all in a layer, by itself, to its own norm.

    `max_grad_norms` maps names to norms: of parameters ("0.weight") or of the modules that they
    are in ("0"); the longest that fits counts. Without `noise` the noise is the same everywhere,
    for the norm of all. `noise` maps the same names to what the noise of each is, over its own
    norm; one factor for all makes them together what was asked for: with
    noise_multiplier=combined_noise_multiplier(noise.values()) the factor is 1. That gains where
    norms are far apart: the noise of a long gradient then does not drown a short one.

    Source: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018,
    section 3.1; for `noise`, `combined_noise_multiplier`. Raises `InvalidInput` unless every norm
    and noise is finite and > 0, and the names of both are the same.
    """

    max_grad_norms: Mapping[str, float]
    noise: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        # The caller's may change between a backward pass and the noise for it.
        object.__setattr__(self, "max_grad_norms", dict(self.max_grad_norms))
        object.__setattr__(self, "noise", None if self.noise is None else dict(self.noise))
        if not self.max_grad_norms:
            raise InvalidInput("max_grad_norms must name the parameters, got none")
        for name, norm in self.max_grad_norms.items():
            check_positive(f"the max_grad_norm of {name}", norm)
        for name, value in (self.noise or {}).items():
            check_positive(f"the noise of {name}", value)
        if self.noise is not None and self.noise.keys() != self.max_grad_norms.keys():
            raise InvalidInput(
                f"noise must have the names of max_grad_norms, {sorted(self.max_grad_norms)}, got "
                f"{sorted(self.noise)}"
            )

    @classmethod
    def evenly(cls, names: list[str], max_grad_norm: float) -> "PerLayerClipping":
        """Give each of M parameters or layers max_grad_norm / sqrt(M): together, max_grad_norm."""
        check_positive("max_grad_norm", max_grad_norm)
        return cls(dict.fromkeys(names, max_grad_norm / math.sqrt(max(1, len(names)))))

    @classmethod
    def by_dimension(cls, sizes: Mapping[str, int], max_grad_norm: float) -> "PerLayerClipping":
        """Give each parameter or layer a norm that grows as the root of its number of values.

        `sizes` maps names to these numbers. Together, the norms are max_grad_norm.
        """
        check_positive("max_grad_norm", max_grad_norm)
        total = sum(sizes.values())
        return cls({name: max_grad_norm * math.sqrt(n / total) for name, n in sizes.items()})

    @property
    def limits(self) -> tuple[float, ...]:
        return tuple(self.max_grad_norms.values())

    def at(self, limits: Sequence[float]) -> "PerLayerClipping":
        """Return the policy with other norms, one for each group."""
        return replace(self, max_grad_norms=dict(zip(self.max_grad_norms, limits, strict=True)))

    def deviations(self, noise_multiplier: float) -> list[float]:
        if self.noise is None:
            return super().deviations(noise_multiplier)
        factor = noise_multiplier / combined_noise_multiplier(list(self.noise.values()))
        return [factor * self.noise[name] * norm for name, norm in self.max_grad_norms.items()]

    def group(self, parameter: str) -> int:
        name = parameter
        while name not in self.max_grad_norms:
            name, dot, _ = name.rpartition(".")
            if not dot:
                raise InvalidInput(f"max_grad_norms has no norm for {parameter}")
        return list(self.max_grad_norms).index(name)

    def factors(self, norms: Tensor) -> Tensor:
        return _shortened(norms, norms.new_tensor(self.limits)[:, None])


def _shortened(norms: Tensor, most: Tensor | float) -> Tensor:
    """Return the factors, at most 1, that bring gradients of these norms to `most`."""
    # A norm of 0 gives infinity, which becomes 1.
    return norms.reciprocal().mul_(most * _rounded_down(norms)).clamp_(max=1.0)


def _rounded_down(norms: Tensor) -> float:
    """Return 1 - 4 machine epsilons, a factor for quotients by norms, which may be rounded up."""
    return float(1 - 4 * torch.finfo(norms.dtype).eps)
