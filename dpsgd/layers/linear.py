"""Linear layers, and linear maps for the rules of other layers."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients
from dpsgd.clipping.own import function
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Dense, outer
from dpsgd.layers.registry import rule


@rule(nn.Linear)
def linear(layer: nn.Linear, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Run a linear layer on an input of any rank of at least 2."""
    return tapped_linear(call, input, layer.weight, layer.bias, call.batch_dim(input))


@function(F.linear)
def _linear(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    return tapped_linear(call, input, weight, bias, call.batch_dim(input))


@rule("transformers.pytorch_utils.Conv1D")
def transposed(layer: Any, call: Call, x: Tensor) -> Tensor:
    """Run a linear map of which the weight has shape (inputs, outputs)."""
    return tapped_linear(call, x, layer.weight, layer.bias, call.batch_dim(x), transposed=True)


@function(torch.matmul, Tensor.matmul)
def _product(call: Call, input: Tensor, other: Tensor) -> Any:  # noqa: A002
    if other.ndim != 2 or not isinstance(other, nn.Parameter):
        return NotImplemented
    return tapped_linear(call, input, other, None, call.batch_dim(input), transposed=True)


def tapped_linear(
    call: Call,
    value: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    dim: int,
    *,
    transposed: bool = False,
) -> Tensor:
    """Return value W^T + b, `transposed` value W + b, tapped; `dim` is the batch's."""
    # Flat, because the output of more than two dimensions would be a view.
    flat = value if value.ndim == 2 else value.flatten(0, -2)
    matrix = weight.detach().T if transposed else weight.detach()
    output = F.linear(flat, matrix, None if bias is None else bias.detach())

    def gradients(grads: Tensor, value: Tensor) -> Gradients:
        grads = grads.reshape(*value.shape[:-1], grads.shape[1])
        return linear_gradients(weight, bias, value, grads, dim, transposed=transposed)

    tapped = call.tap(output, gradients, value)
    return tapped if value.ndim == 2 else tapped.view(*value.shape[:-1], output.shape[1])


def linear_gradients(
    weight: Tensor,
    bias: Tensor | None,
    inputs: Tensor,
    outputs: Tensor,
    dim: int,
    *,
    transposed: bool = False,
) -> Gradients:
    """Yield the gradients of a linear map from its inputs and output gradients."""
    inputs, outputs = _by_position(inputs, dim), _by_position(outputs, dim)
    if weight.requires_grad:
        factors = (outputs, inputs) if transposed else (inputs, outputs)
        yield weight, outer(*factors, weight.shape)
    if bias is not None and bias.requires_grad:
        yield bias, Dense(outputs.squeeze(1) if outputs.shape[1] == 1 else outputs.sum(1))


def _by_position(values: Tensor, dim: int) -> Tensor:
    """Return values as (b, T, d), with the batch moved from dimension `dim`."""
    values = values.movedim(dim, 0)
    return values.reshape(len(values), values.shape[1:-1].numel(), values.shape[-1])
