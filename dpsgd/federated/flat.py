"""A model as one vector, and a model whose parameters lie in one."""

from copy import deepcopy

import torch
from torch import Tensor, nn

from ldp import InvalidInput


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are trained, in the order in which a vector has them.

    That is by the bytes of their names, each flattened in C order. Raises `InvalidInput` unless
    there are any, all in float32 on one device, and no layer keeps statistics of the data.
    """
    for name, layer in model.named_modules():
        if getattr(layer, "running_mean", None) is not None:
            raise InvalidInput(
                f"{name or 'the model'} ({type(layer).__name__}) keeps statistics of the data, "
                "which no update holds: use GroupNorm, as dpsgd.fix(model) does"
            )
    found = {name: p for name, p in model.named_parameters() if p.requires_grad}
    if not found:
        raise InvalidInput("the model has no parameters that require a gradient")
    for name, parameter in found.items():
        if parameter.dtype != torch.float32:
            raise InvalidInput(f"{name} must be float32, got {parameter.dtype}")
    if len({p.device for p in found.values()}) > 1:
        raise InvalidInput("the model's parameters must be on one device")
    return [found[name] for name in sorted(found, key=str.encode)]


def read(model: nn.Module) -> Tensor:
    """Return the trained parameters as a new vector."""
    return torch.cat([p.detach().flatten() for p in trained(model)])


@torch.no_grad()
def write(model: nn.Module, vector: Tensor) -> None:
    """Set the trained parameters to those of a vector."""
    parameters = trained(model)
    parts = torch.split(vector, [p.numel() for p in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.copy_(part.view_as(parameter))


class Flat:
    """A copy of a model whose trained parameters are views of one vector, `values`."""

    def __init__(self, model: nn.Module) -> None:
        self.model = deepcopy(model)
        self.values = read(self.model)
        self.parameters: tuple[Tensor, ...] = tuple(trained(self.model))
        for parameter, part in zip(self.parameters, self.parts(self.values), strict=True):
            parameter.data = part

    def parts(self, vector: Tensor) -> list[Tensor]:
        """Return the views of a vector that are as the parameters."""
        parts = torch.split(vector, [p.numel() for p in self.parameters])
        return [part.view_as(p) for part, p in zip(parts, self.parameters, strict=True)]
