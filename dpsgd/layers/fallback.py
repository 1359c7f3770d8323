"""The fallback rule: run a layer for each sample with its own copy of the weights."""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from dpsgd.clipping.clipped_sums import wide
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Dense
from ldp import InvalidInput


def by_sample(layer: nn.Module, call: Call, *args: Any, **kwargs: Any) -> Any:
    """Run a layer under vmap, with every parameter repeated for each sample.

    The gradients of the repeated parameters are those of the samples. Randomness, such as
    dropout's, differs between samples, and is the same forward and backward. Raises
    `InvalidInput` where an input has its batch elsewhere than in dimension 0.
    """
    leaves, structure = tree_flatten((args, kwargs))
    dims = [call.find_batch(v) if isinstance(v, Tensor) else None for v in leaves]
    if not torch.is_grad_enabled():  # looking for batch dimensions
        return type(layer).forward(layer, *args, **kwargs)
    if any(dims):
        raise InvalidInput(f"{call.name}: its batch must be dimension 0 of its inputs, got {dims}")

    def book(parameter: nn.Parameter, gradients: Tensor) -> None:
        call.book([(parameter, Dense(gradients.detach().to(wide(parameter.dtype))))])

    plain = _Plain(layer)
    repeated, frozen = {}, {}
    for name, parameter in plain.named_parameters():
        if parameter.requires_grad:
            many = parameter.detach().expand(call.batch, *parameter.shape).requires_grad_()
            many.register_hook(partial(book, parameter))  # type: ignore[no-untyped-call]
            repeated[name] = many
        else:
            frozen[name] = parameter.detach()

    def run(weights: dict[str, Tensor], *sample: Any) -> Any:
        batch = [v if d is None else v[None] for v, d in zip(sample, dims, strict=True)]
        args, kwargs = tree_unflatten(batch, structure)
        output = torch.func.functional_call(plain, {**weights, **frozen}, args, kwargs)
        return tree_map(lambda v: v.squeeze(0) if isinstance(v, Tensor) else v, output)

    mapped = torch.func.vmap(run, in_dims=(0, *dims), randomness="different")
    return mapped(repeated, *leaves)


class _Plain(nn.Module):
    """A layer run by its class's forward, even where the instance has another."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.layer).forward(self.layer, *args, **kwargs)
