"""Adam with bias correction for the noise in the gradients."""

import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ldp import InvalidInput


class AdamBC(Optimizer):
    """Adam with the noise's part taken out of the second moment: DP-AdamBC.

    Adam divides by the root of the mean square of gradients, most of which is noise in a private
    training; then all coordinates move alike. Here a step is
    lr * m / sqrt(max(v - noise variance, gamma)). Nothing of this costs privacy: the variance is
    public. `gamma` should be near the square of a typical gradient coordinate: it bounds a step by
    lr * |m| / sqrt(gamma). The engine sets `noise_deviations`, those of one coordinate of each
    gradient, before each step.

    Source: Tang, Shpilevskiy and Lécuyer, "DP-AdamBC", AAAI 2024, arXiv 2312.14334, algorithm 1.
    Raises `InvalidInput` unless lr and gamma are finite and > 0 and both betas lie in [0, 1).
    """

    noise_deviations: Mapping[Tensor, float] = MappingProxyType({})

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        gamma: float = 5e-8,
    ) -> None:
        for name, value in (("lr", lr), ("gamma", gamma)):
            if not (math.isfinite(value) and value > 0):
                raise InvalidInput(f"{name} must be finite and > 0, got {value}")
        if not all(0 <= beta < 1 for beta in betas):
            raise InvalidInput(f"betas must lie in [0, 1), got {betas}")
        super().__init__(params, {"lr": lr, "betas": betas, "gamma": gamma})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update the parameters that have a gradient; return the loss of a closure."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, group["lr"], group["betas"], group["gamma"])
        return None if closure is None else closure()

    def _move(self, parameter: Tensor, lr: float, betas: tuple[float, float], gamma: float) -> None:
        if parameter not in self.noise_deviations:
            raise InvalidInput("AdamBC must know the noise: give it to PrivacyEngine.make_private")
        assert parameter.grad is not None
        gradient = parameter.grad.to(torch.promote_types(parameter.dtype, torch.float32))
        state = self.state[parameter]
        if not state:
            zeros = torch.zeros_like(gradient)
            state.update(step=0, mean=zeros, square=zeros.clone(), variance=0.0)
        state["step"] += 1
        for name in ("mean", "square"):  # a checkpoint comes back in the parameter's type
            state[name] = state[name].to(gradient.dtype)
        first, second = betas
        deviation = self.noise_deviations[parameter]
        state["mean"].lerp_(gradient, 1 - first)
        state["square"].mul_(second).addcmul_(gradient, gradient, value=1 - second)
        state["variance"] = second * state["variance"] + (1 - second) * deviation**2
        bias = 1 - second ** state["step"]
        square = ((state["square"] - state["variance"]) / bias).clamp_min_(gamma)
        size = lr / (1 - first ** state["step"])
        parameter.sub_((state["mean"] / square.sqrt_()).mul_(size).to(parameter.dtype))
