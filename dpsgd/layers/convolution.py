"""Convolutions: linear maps of unfolded patches."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients, Piece
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import (
    Deferred,
    Dense,
    PerSample,
    gram_squares,
    increase,
    new_totals,
    prefers_dense,
)
from dpsgd.layers.registry import rule
from ldp import InvalidInput

_RUN = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CACHED = 1 << 19
"""Values formed or unfolded at once on a CPU: as many as stay in the cache."""
_TOGETHER = 1 << 27
"""Values formed or unfolded at once on other devices."""
_KEPT = 2
"""Values of a gradient that are kept for each one of an input and output, which are not then.

More would cost more memory than a second convolution costs time.
"""
_Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(layer: _Convolution, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Run a convolution, with explicit padding, so that patches have the multiplied values."""
    call.batch_dim(input, only=0)
    rank = len(layer.kernel_size)
    if input.ndim != rank + 2:
        raise InvalidInput(
            f"{call.name}: expected an input of rank {rank + 2}, got {tuple(input.shape)}"
        )
    sides = _sides(layer)
    zeros = layer.padding_mode == "zeros"
    symmetric = all(low == high for low, high in sides)
    padded = input
    if not (zeros and symmetric):
        flat = [side for pair in reversed(sides) for side in pair]
        padded = F.pad(input, flat, mode="constant" if zeros else layer.padding_mode)
        sides = [(0, 0)] * rank
    weight = layer.weight.detach()
    bias = None if layer.bias is None else layer.bias.detach()
    padding = [low for low, _ in sides]
    output: Tensor = _RUN[rank](
        padded, weight, bias, layer.stride, padding, layer.dilation, layer.groups
    )
    return call.tap(output, lambda g, x: _gradients(layer, padding, x, g), padded)


def _sides(layer: _Convolution) -> list[tuple[int, int]]:
    """Return the padding before and after, for each dimension."""
    if layer.padding == "valid":
        return [(0, 0)] * len(layer.kernel_size)
    if layer.padding == "same":
        totals = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(int(side), int(side)) for side in layer.padding]


def _gradients(
    layer: _Convolution, padding: Sequence[int], inputs: Tensor, outputs: Tensor
) -> Gradients:
    dtype = Piece(layer.weight).dtype
    inputs, outputs = inputs.to(dtype), outputs.to(dtype)
    if layer.weight.requires_grad:
        yield Piece(layer.weight), _weight_gradients(layer, padding, inputs, outputs)
    if layer.bias is not None and layer.bias.requires_grad:
        yield Piece(layer.bias), Dense(outputs.flatten(2).sum(2))


def _weight_gradients(
    layer: _Convolution, padding: Sequence[int], inputs: Tensor, outputs: Tensor
) -> PerSample:
    """Return the gradients where they are small; else norms, with sums by convolution."""
    weight, groups = layer.weight, layer.groups
    positions = outputs.shape[2:].numel()
    if not len(inputs):
        return Dense(outputs.new_zeros(0, *weight.shape))

    def formed(part: slice = slice(None)) -> Dense:
        return Dense(_backward(layer, padding, inputs[part], outputs[part], apart=True))

    def summed(factors: Tensor) -> Tensor:
        scaled = outputs * factors.view(-1, *[1] * (outputs.ndim - 1))
        return _backward(layer, padding, inputs, scaled)

    def dropping(dropped: Tensor) -> PerSample:
        mask = dropped.view(-1, *[1] * (inputs.ndim - 1))
        kept = inputs.masked_fill(mask, 0), outputs.masked_fill(mask, 0)
        return _weight_gradients(layer, padding, *kept)

    form = prefers_dense(positions, weight[0].numel(), layer.out_channels // groups)
    if form and weight.numel() <= _KEPT * (inputs[0].numel() + outputs[0].numel()):
        return formed()
    # Of some samples at a time: patches of the whole batch would be many times its size.
    values = weight.numel() if form else weight[0].numel() * groups * positions
    together = max(1, (_CACHED if inputs.is_cpu else _TOGETHER) // values)
    squares = new_totals((len(inputs),), outputs.device)
    for start in range(0, len(inputs), together):
        part = slice(start, start + together)
        if form:
            formed(part).add_squared_norms(squares[part])
        else:
            grads = outputs[part].reshape(-1, weight.shape[0] // groups, positions).mT
            patches = _patches(layer, padding, inputs[part])
            each = gram_squares(patches, grads)
            increase(squares[part], each.view(-1, groups).sum(1))
    return Deferred(squares, summed, lambda: formed().dense(), dropping)


def _patches(layer: _Convolution, padding: Sequence[int], inputs: Tensor) -> Tensor:
    """Return what each output sees, (n groups, positions, patch), kernel before channels."""
    last = inputs.movedim(1, -1).contiguous().movedim(-1, 1)  # so that channels are copied at once
    windows = F.pad(last, [p for side in reversed(padding) for p in (side, side)])
    sizes = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    for dim, (size, stride, dilation) in enumerate(sizes, 2):
        windows = windows.unfold(dim, dilation * (size - 1) + 1, stride)[..., ::dilation]
    count, _, *rest = windows.shape
    apart = windows.reshape(count * layer.groups, -1, *rest).movedim(1, -1)
    rank = len(padding)
    return apart.flatten(1 + rank).flatten(1, rank)


def _backward(
    layer: _Convolution,
    padding: Sequence[int],
    inputs: Tensor,
    outputs: Tensor,
    *,
    apart: bool = False,
) -> Tensor:
    """Return the weight's gradient, or with `apart` that of each sample, (b, *shape).

    Samples are groups of one convolution then. Source: Rochette, Manoel and Tramel, "Efficient
    per-example gradient computations in convolutional neural networks", 2019, section 3.
    """
    batch = len(inputs) if apart else 1
    weight = layer.weight.detach().to(inputs.dtype)
    if apart:
        inputs, outputs = inputs.flatten(0, 1)[None], outputs.flatten(0, 1)[None]
        weight = weight.new_empty(
            batch * len(weight), *weight.shape[1:]
        )  # of which no value counts
    _, gradient, _ = torch.ops.aten.convolution_backward(
        outputs,
        inputs,
        weight,
        None,
        list(layer.stride),
        list(padding),
        list(layer.dilation),
        False,
        [0] * len(padding),
        batch * layer.groups,
        [False, True, False],
    )
    result: Tensor = gradient
    return result.view(batch, *layer.weight.shape) if apart else result
