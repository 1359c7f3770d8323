"""Convolutions: linear maps of unfolded patches."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.bookkeeping import Call, Gradients, Piece
from dpsgd.layers.registry import rule
from dpsgd.persample import (
    Deferred,
    Dense,
    LastToFront,
    PerSample,
    gram_squares,
    prefers_dense,
)
from ldp import InvalidInput

_RUN = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_CACHED = 1 << 19
"""Values unfolded together on a CPU: what stays in the cache."""
_TOGETHER = 1 << 27
"""Values unfolded together on other devices."""
_Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d


@rule(nn.Conv1d, nn.Conv2d, nn.Conv3d)
def convolution(layer: _Convolution, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Run a convolution; padding is made explicit, so that patches are what was multiplied."""
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
    """Keep the gradients where they are small; else their norms, and sum by convolution."""
    channels = layer.out_channels // layer.groups

    def formed() -> Tensor:
        """Return the gradients with the kernel before its channels, (b, p, kernel..., channels)."""
        total = outputs.new_empty(len(outputs), layer.groups, channels, layer.weight[0].numel())
        for part, patches, grads in _parts(layer, padding, inputs, outputs):
            torch.matmul(grads, patches, out=total[part])
        _, depth, *kernel = layer.weight.shape
        return total.view(len(outputs), layer.out_channels, *kernel, depth)

    def summed(factors: Tensor) -> Tensor:
        scaled = outputs * factors.view(-1, *[1] * (outputs.ndim - 1))
        return _summed(layer, padding, inputs, scaled)

    def dropping(dropped: Tensor) -> PerSample:
        mask = dropped.view(-1, *[1] * (inputs.ndim - 1))
        kept = inputs.masked_fill(mask, 0), outputs.masked_fill(mask, 0)
        return _weight_gradients(layer, padding, *kept)

    positions = outputs.shape[2:].numel()
    form = prefers_dense(positions, layer.weight[0].numel(), channels)
    if form and layer.weight.numel() <= inputs.shape[1:].numel() + outputs.shape[1:].numel():
        return LastToFront(Dense(formed()))
    squares = outputs.new_empty(len(outputs))
    gradients = outputs.new_empty(0)  # memory for every part
    for part, patches, grads in _parts(layer, padding, inputs, outputs):
        if form:
            gradients = torch.matmul(grads, patches, out=gradients[: len(patches)])
            squares[part] = Dense(gradients).squared_norms()
        else:
            each = gram_squares(patches.flatten(0, 1), grads.mT.flatten(0, 1))
            squares[part] = each.view(-1, layer.groups).sum(1)
    return Deferred(squares, summed, lambda: formed().movedim(-1, 2), dropping)


def _parts(
    layer: _Convolution, padding: Sequence[int], inputs: Tensor, outputs: Tensor
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield patches (n, groups, positions, patch) and output gradients (n, groups, p, positions).

    Of some samples at a time: patches of the whole batch would be many times its size, and leave
    the cache. A patch has its channels last, which are copied together. The next part overwrites
    the patches, as to get memory costs as much as to fill it: keep none.
    """
    channels = layer.out_channels // layer.groups
    grads = outputs.reshape(len(outputs), layer.groups, channels, outputs.shape[2:].numel())
    depth, *kernel = layer.weight.shape[1:]
    patch = layer.weight[0].numel() * layer.groups * grads.shape[3]
    step = max(1, (_CACHED if inputs.device.type == "cpu" else _TOGETHER) // max(1, patch))
    shape = (layer.groups, *outputs.shape[2:], *kernel, depth)
    sizes = [size + 2 * p for size, p in zip(inputs.shape[2:], padding, strict=True)]
    padded = inputs.new_zeros(min(step, len(inputs)), *sizes, inputs.shape[1])
    inside = padded
    for dim, p in enumerate(padding, 1):
        inside = inside.narrow(dim, p, inputs.shape[dim + 1])
    first, *strides, _ = padded.stride()
    within = [stride * d for stride, d in zip(strides, layer.dilation, strict=True)]
    between = [stride * s for stride, s in zip(strides, layer.stride, strict=True)]
    windows = padded.as_strided((len(padded), *shape), (first, depth, *between, *within, 1))
    patches = torch.empty_like(windows, memory_format=torch.contiguous_format)
    flat = patches.view(len(padded), layer.groups, grads.shape[3], layer.weight[0].numel())
    for start in range(0, len(inputs), step):
        part = slice(start, start + step)
        size = len(inputs[part])
        inside[:size].copy_(inputs[part].movedim(1, -1))
        patches[:size].copy_(windows[:size])
        yield part, flat[:size], grads[part]


def _summed(layer: _Convolution, padding: Sequence[int], inputs: Tensor, outputs: Tensor) -> Tensor:
    rank = len(layer.kernel_size)
    _, gradient, _ = torch.ops.aten.convolution_backward(
        outputs,
        inputs,
        layer.weight.detach().to(inputs.dtype),
        None,
        list(layer.stride),
        list(padding),
        list(layer.dilation),
        False,
        [0] * rank,
        layer.groups,
        [False, True, False],
    )
    result: Tensor = gradient
    return result
