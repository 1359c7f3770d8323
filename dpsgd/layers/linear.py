"""Linear layers, and linear maps for the rules of other layers."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients, Piece
from dpsgd.clipping.own import function
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Dense, Outer, PerSample, outer
from dpsgd.layers.registry import rule


@rule(nn.Linear)
def linear(layer: nn.Linear, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Run a linear layer on an input of any rank of at least 2."""
    weight = Piece(layer.weight)
    bias = None if layer.bias is None else Piece(layer.bias)
    return tapped_linear(call, input, weight, bias, call.batch_dim(input))


@function(F.linear)
def _linear(call: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:  # noqa: A002
    own = None if bias is None else Piece(bias)
    return tapped_linear(call, input, Piece(weight), own, call.batch_dim(input))


@rule("transformers.pytorch_utils.Conv1D")
def transposed(layer: Any, call: Call, x: Tensor) -> Tensor:
    """Run a linear map of which the weight has shape (inputs, outputs)."""
    weight, bias = Piece(layer.weight), Piece(layer.bias)
    return tapped_linear(call, x, weight, bias, call.batch_dim(x), transposed=True)


@function(torch.matmul, Tensor.matmul)
def _product(call: Call, input: Tensor, other: Tensor) -> Any:  # noqa: A002
    if other.ndim != 2 or not isinstance(other, nn.Parameter):
        return NotImplemented
    return tapped_linear(call, input, Piece(other), None, call.batch_dim(input), transposed=True)


def tapped_linear(
    call: Call,
    value: Tensor,
    weight: Piece,
    bias: Piece | None,
    dim: int,
    *,
    transposed: bool = False,
) -> Tensor:
    """Return value W^T + b, `transposed` value W + b, with the gradients of W and b tapped.

    `dim` is the batch's.
    """
    # Flat, because the output of more than two dimensions would be a view.
    flat = value if value.ndim == 2 else value.flatten(0, -2)
    shape = value.shape[:-1]
    matrix = weight.value.T if transposed else weight.value
    output = F.linear(flat, matrix, None if bias is None else bias.value)

    def gradients(grads: Tensor, value: Tensor) -> Gradients:
        if value.ndim != 2:
            grads = grads.reshape(*shape, grads.shape[1])
        return linear_gradients(weight, bias, value, grads, dim, transposed=transposed)

    tapped = call.tap(output, gradients, value)
    return tapped if value.ndim == 2 else tapped.view(*shape, output.shape[1])


def linear_gradients(
    weight: Piece,
    bias: Piece | None,
    inputs: Tensor,
    outputs: Tensor,
    dim: int,
    *,
    transposed: bool = False,
) -> Gradients:
    """Yield the gradients of a linear map from its inputs and output gradients."""
    dtype = weight.dtype
    if not inputs.dtype == outputs.dtype == dtype:  # to convert to the same type takes time, too
        inputs, outputs = inputs.to(dtype), outputs.to(dtype)
    if inputs.ndim == 2 and dim == 0 and not transposed:
        yield from one_position(weight, bias, inputs, outputs)
        return
    outputs = _by_position(outputs, dim)
    if weight.parameter.requires_grad:
        factors = _by_position(inputs, dim), outputs
        yield weight, outer(*(factors[::-1] if transposed else factors), weight.shape)
    if bias is not None and bias.parameter.requires_grad:
        yield bias, summed(outputs)


def summed(outputs: Tensor) -> PerSample:
    """Return the gradients of a bias from output gradients of shape (b, T, p)."""
    return Dense(outputs.squeeze(1) if outputs.shape[1] == 1 else outputs.sum(1))


def one_position(weight: Piece, bias: Piece | None, inputs: Tensor, outputs: Tensor) -> Gradients:
    """Yield the gradients of one position, (b, d) and (b, p); others may be joined to them."""
    if weight.parameter.requires_grad:
        yield weight, Outer(inputs, outputs, weight.shape)
    if bias is not None and bias.parameter.requires_grad:
        yield bias, Dense(outputs)


def _by_position(values: Tensor, dim: int) -> Tensor:
    """Return values as (b, T, d), with the batch moved from dimension `dim`."""
    values = values.movedim(dim, 0)
    positions = values.shape[1:-1].numel()
    return values.reshape(values.shape[0], positions, values.shape[-1])
