"""A model as one vector: its trained parameters by name, each flattened."""

from collections.abc import Sequence

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


def parts(vector: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """Return the views of a vector that have the shapes of the parameters."""
    cut = torch.split(vector, [p.numel() for p in parameters])
    return [part.view_as(p) for part, p in zip(cut, parameters, strict=True)]


def read(model: nn.Module) -> Tensor:
    """Return the trained parameters as a new vector."""
    return torch.cat([p.detach().flatten() for p in trained(model)])


def write(model: nn.Module, vector: Tensor) -> None:
    """Set the trained parameters to those of a vector."""
    parameters: list[Tensor] = [p.detach() for p in trained(model)]
    torch._foreach_copy_(parameters, parts(vector, parameters))
