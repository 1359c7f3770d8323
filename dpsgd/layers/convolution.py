"""Convolutions: linear maps of unfolded patches."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients, Piece
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import (
    Deferred,
    Dense,
    LastToFront,
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
"""Values unfolded per block on a CPU: as many as stay in the cache."""
_TOGETHER = 1 << 27
"""Values unfolded per block on other devices."""
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
    channels = layer.out_channels // layer.groups

    def formed() -> PerSample:
        total = outputs.new_empty(len(outputs), layer.groups, channels, layer.weight[0].numel())
        for part, patches, grads in _parts(layer, padding, inputs, outputs):
            torch.matmul(grads, patches, out=total[part])
        _, depth, *kernel = layer.weight.shape
        if _along_rows(layer, outputs):
            return Dense(total.view(len(outputs), *layer.weight.shape))
        return LastToFront(Dense(total.view(len(outputs), layer.out_channels, *kernel, depth)))

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
        return formed()
    squares = new_totals((len(outputs),), outputs.device)
    gradients: Tensor | None = None  # memory for every part
    for part, patches, grads in _parts(layer, padding, inputs, outputs):
        if form:
            if gradients is None:
                gradients = torch.matmul(grads, patches)
            else:
                gradients = torch.matmul(grads, patches, out=gradients[: len(patches)])
            Dense(gradients).add_squared_norms(squares[part])
        else:
            each = gram_squares(patches.flatten(0, 1), grads.mT.flatten(0, 1))
            increase(squares[part], each.view(-1, layer.groups).sum(1))
    return Deferred(squares, summed, lambda: formed().dense(), dropping)


def _parts(
    layer: _Convolution, padding: Sequence[int], inputs: Tensor, outputs: Tensor
) -> Iterator[tuple[slice, Tensor, Tensor]]:
    """Yield patches (n, groups, positions, patch) and output gradients (n, groups, p, positions).

    Of some samples at a time: patches of the whole batch would be many times its size, and leave
    the cache. The next part overwrites the patches, as to get memory costs as much as to fill it:
    keep none.
    """
    channels = layer.out_channels // layer.groups
    grads = outputs.reshape(len(outputs), layer.groups, channels, outputs.shape[2:].numel())
    patch = layer.weight[0].numel() * layer.groups * grads.shape[3]
    step = max(1, (_CACHED if inputs.device.type == "cpu" else _TOGETHER) // max(1, patch))
    prepare = _unfold_rows if _along_rows(layer, outputs) else _unfold_channels
    unfold = prepare(layer, padding, inputs[:step], outputs)
    for start in range(0, len(inputs), step):
        part = slice(start, start + step)
        yield part, unfold(inputs[part]), grads[part]


def _along_rows(layer: _Convolution, outputs: Tensor) -> bool:
    """Tell whether patches are copied in longer runs along rows of outputs than along channels.

    With strides, that takes a kernel that is a multiple of them: `_unfold_rows`.
    """
    sides = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    regular = all(s == 1 or (d == 1 and k % s == 0) for k, s, d in sides)
    adjacent = layer.dilation[-1] == 1 and layer.groups == 1
    run = layer.weight.shape[1] * (layer.kernel_size[-1] if adjacent else 1)
    return regular and outputs.shape[-1] > run


def _unfold_channels(
    layer: _Convolution, padding: Sequence[int], inputs: Tensor, outputs: Tensor
) -> Callable[[Tensor], Tensor]:
    """Return a function from inputs, as many or fewer, to patches, kernel before channels."""
    depth, *kernel = layer.weight.shape[1:]
    sizes = [size + 2 * p for size, p in zip(inputs.shape[2:], padding, strict=True)]
    padded = inputs.new_zeros(len(inputs), *sizes, inputs.shape[1])
    inside = _inside(padded.movedim(-1, 1), padding, inputs)
    first, *strides, _ = padded.stride()
    within = [stride * d for stride, d in zip(strides, layer.dilation, strict=True)]
    between = [stride * s for stride, s in zip(strides, layer.stride, strict=True)]
    shape = (len(inputs), layer.groups, *outputs.shape[2:], *kernel, depth)
    windows = padded.as_strided(shape, (first, depth, *between, *within, 1))
    patches = torch.empty_like(windows, memory_format=torch.contiguous_format)
    flat = patches.view(*shape[:2], outputs.shape[2:].numel(), layer.weight[0].numel())
    return _copying(inside, [(patches, windows)], flat)


def _unfold_rows(
    layer: _Convolution, padding: Sequence[int], inputs: Tensor, outputs: Tensor
) -> Callable[[Tensor], Tensor]:
    """Return a function from inputs, as many or fewer, to patches in the weight's order.

    Inputs are kept apart by their place modulo the stride, so that the values a row of outputs
    sees at one place of the kernel lie together.
    """
    depth = layer.weight.shape[1]
    count, channels, *lengths = inputs.shape
    extents = zip(lengths, padding, layer.stride, strict=True)
    steps = [-(-(size + 2 * p) // s) for size, p, s in extents]
    padded = inputs.new_zeros(
        count, channels, *[n * s for n, s in zip(steps, layer.stride, strict=True)]
    )
    inside = _inside(padded, padding, inputs)
    rank = len(steps)
    apart = padded.view(count, channels, *_interleaved(steps, layer.stride))
    apart = apart.permute(0, 1, *range(3, 3 + 2 * rank, 2), *range(2, 2 + 2 * rank, 2))
    phases = apart.contiguous()
    first, channel, *strides = phases.stride()
    phase, step = strides[:rank], strides[rank:]
    within = [stride * d for stride, d in zip(step, layer.dilation, strict=True)]
    turns = [k // s for k, s in zip(layer.kernel_size, layer.stride, strict=True)]
    kernel = _interleaved(turns, layer.stride)
    shape = (count, layer.groups, depth, *kernel, *outputs.shape[2:])
    strides = [first, depth * channel, channel, *_interleaved(within, phase), *step]
    windows = phases.as_strided(shape, strides)
    patches = torch.empty_like(windows, memory_format=torch.contiguous_format)
    flat = patches.view(*shape[:2], layer.weight[0].numel(), outputs.shape[2:].numel()).mT
    moved = [] if phases is apart else [(phases, apart)]  # without strides they are the same
    return _copying(inside, [*moved, (patches, windows)], flat)


def _inside(padded: Tensor, padding: Sequence[int], inputs: Tensor) -> Tensor:
    """Return the part of a padded tensor (b, channels, sizes...) where inputs go."""
    for dim, p in enumerate(padding, 2):
        padded = padded.narrow(dim, p, inputs.shape[dim])
    return padded


def _copying(
    inside: Tensor, copies: Sequence[tuple[Tensor, Tensor]], result: Tensor
) -> Callable[[Tensor], Tensor]:
    """Return a function that copies inputs to `inside`, runs `copies`, and returns `result`."""

    def copy(inputs: Tensor) -> Tensor:
        size = len(inputs)
        inside[:size].copy_(inputs)
        for target, source in copies:
            target[:size].copy_(source[:size])
        return result[:size]

    return copy


def _interleaved(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [number for pair in zip(first, second, strict=True) for number in pair]


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
