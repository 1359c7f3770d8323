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

    Formal guarantee of every policy: a sample's clipped gradient has a Euclidean norm of at most
    `limits[m]` over the parameters of group m, and of at most `sensitivity` over all.
    """

    @property
    @abstractmethod
    def limits(self) -> tuple[float, ...]:
        """For each group of parameters, the largest norm of one sample's clipped gradient."""

    def at(self, limits: Sequence[float]) -> "ClippingPolicy":
        """Return the policy with other limits, where it has limits to choose."""
        return self

    def factors(self, norms: Tensor) -> Tensor:
        """Return the scale factors of gradients with these finite norms; both (groups, b)."""
        most = self.limits[0] if self.groups == 1 else norms.new_tensor(self.limits)[:, None]
        # A norm of 0 gives infinity, which becomes 1.
        return norms.reciprocal().mul_(most * _rounded_down(norms)).clamp_(max=1.0)

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
        """Return each group's noise: all together are one Gaussian release with the multiplier."""
        return [noise_multiplier * self.sensitivity] * self.groups


@dataclass(frozen=True)
class FlatClipping(ClippingPolicy):
    """Scale a sample's whole gradient down to norm `max_grad_norm` where it is longer.

    Source: Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1.
    Raises `InvalidInput` unless max_grad_norm is finite and > 0.
    """

    max_grad_norm: float

    def __post_init__(self) -> None:
        norm = check_positive("max_grad_norm", self.max_grad_norm)
        object.__setattr__(self, "max_grad_norm", norm)

    @property
    def limits(self) -> tuple[float, ...]:
        return (self.max_grad_norm,)

    def at(self, limits: Sequence[float]) -> "FlatClipping":
        return FlatClipping(*limits)


@dataclass(frozen=True)
class AutomaticClipping(ClippingPolicy):
    """Scale every gradient g by 1 / (|g| + gamma), short ones too: AUTO-S. The sensitivity is 1.

    The learning rate takes the place of a norm. Raises `InvalidInput` unless gamma is finite and
    > 0. Source: Bu, Wang, Zha and Karypis, "Automatic clipping", NeurIPS 2023, equation 4.
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
    for the norm of all. `noise` maps the same names to the noise of each over its own norm, up to
    one factor, which is 1 with noise_multiplier=combined_noise_multiplier(noise.values()): then
    the noise of a long gradient does not drown a short one.

    Source: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018,
    section 3.1; for `noise`, `combined_noise_multiplier`. Raises `InvalidInput` unless every norm
    and noise is finite and > 0, and the names of both are the same.
    """

    max_grad_norms: Mapping[str, float]
    noise: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        if not self.max_grad_norms:
            raise InvalidInput("max_grad_norms must name the parameters, got none")
        for field, what in (("max_grad_norms", "max_grad_norm"), ("noise", "noise")):
            if (given := getattr(self, field)) is not None:
                checked = {k: check_positive(f"the {what} of {k}", v) for k, v in given.items()}
                # A copy, as the caller's may change between a backward pass and the noise for it.
                object.__setattr__(self, field, checked)
        if self.noise is not None and self.noise.keys() != self.max_grad_norms.keys():
            raise InvalidInput(
                f"noise must have the names of max_grad_norms, {sorted(self.max_grad_norms)}, got "
                f"{sorted(self.noise)}"
            )

    @classmethod
    def evenly(cls, names: list[str], max_grad_norm: float) -> "PerLayerClipping":
        """Give each of M parameters or layers max_grad_norm / sqrt(M): together, max_grad_norm."""
        return cls.by_dimension(dict.fromkeys(names, 1), max_grad_norm)

    @classmethod
    def by_dimension(cls, sizes: Mapping[str, int], max_grad_norm: float) -> "PerLayerClipping":
        """Give each a norm that grows as the root of its number of values: `sizes`, by name."""
        check_positive("max_grad_norm", max_grad_norm)
        total = sum(sizes.values())
        return cls({name: max_grad_norm * math.sqrt(n / total) for name, n in sizes.items()})

    @property
    def limits(self) -> tuple[float, ...]:
        return tuple(self.max_grad_norms.values())

    def at(self, limits: Sequence[float]) -> "PerLayerClipping":
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


def _rounded_down(norms: Tensor) -> float:
    """Return 1 - 4 machine epsilons, a factor for quotients by norms, which may be rounded up."""
    return float(1 - 4 * torch.finfo(norms.dtype).eps)
