"""Convolutions: linear maps of unfolded patches."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Dense, PerSample, gram_squares, prefers_dense
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

    def gradients(grads: Tensor, inputs: Tensor) -> Gradients:
        if layer.weight.requires_grad:
            yield layer.weight, weight_gradients(Unfolded(layer, padding, inputs, grads))
        if layer.bias is not None and layer.bias.requires_grad:
            yield layer.bias, Dense(grads.flatten(2).sum(2))

    return call.tap(output, gradients, padded)


def _sides(layer: _Convolution) -> list[tuple[int, int]]:
    """Return the padding before and after, for each dimension."""
    if layer.padding == "valid":
        return [(0, 0)] * len(layer.kernel_size)
    if layer.padding == "same":
        totals = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        return [(total // 2, total - total // 2) for total in totals]
    return [(int(side), int(side)) for side in layer.padding]


@dataclass(eq=False)
class Unfolded(PerSample):
    """Gradients of a convolution's weight, summed or formed only on demand."""

    layer: _Convolution
    padding: list[int]
    inputs: Tensor
    outputs: Tensor

    @property
    def positions(self) -> int:
        """The number of places of the output."""
        return self.outputs.shape[2:].numel()

    @property
    def prefers_dense(self) -> bool:
        """Whether the gradients themselves are cheaper than Gram matrices."""
        weight = self.layer.weight
        return prefers_dense(self.positions, weight[0].numel(), len(weight) // self.layer.groups)

    def add_squared_norms(self, totals: Tensor) -> None:
        weight, groups, form = self.layer.weight, self.layer.groups, self.prefers_dense
        # Of some samples at a time: patches of the whole batch would be many times its size.
        values = weight.numel() if form else weight[0].numel() * groups * self.positions
        together = max(1, (_CACHED if totals.is_cpu else _TOGETHER) // values)
        for part, inputs, outputs in zip(
            *(torch.split(v, together) for v in (totals, self.inputs, self.outputs)), strict=True
        ):
            if form:
                Dense(self._gradient(inputs, outputs, apart=True)).add_squared_norms(part)
            else:
                grads = outputs.reshape(-1, len(weight) // groups, self.positions).mT
                part += gram_squares(self._patches(inputs), grads).view(-1, groups).sum(1)

    def weighted_sum(self, factors: Tensor) -> Tensor:
        scaled = self.outputs * factors.view(-1, *[1] * (self.outputs.ndim - 1))
        return self._gradient(self.inputs, scaled)

    def dense(self) -> Tensor:
        return self._gradient(self.inputs, self.outputs, apart=True)

    def _patches(self, inputs: Tensor) -> Tensor:
        """Return what each output sees, (n groups, positions, patch), kernel before channels."""
        layer, rank = self.layer, len(self.padding)
        last = inputs.movedim(1, -1).contiguous().movedim(-1, 1)  # to copy channels at once
        windows = F.pad(last, [p for side in reversed(self.padding) for p in (side, side)])
        sizes = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
        for dim, (size, stride, dilation) in enumerate(sizes, 2):
            windows = windows.unfold(dim, dilation * (size - 1) + 1, stride)[..., ::dilation]
        count, _, *rest = windows.shape
        apart = windows.reshape(count * layer.groups, -1, *rest).movedim(1, -1)
        return apart.flatten(1 + rank).flatten(1, rank)

    def _gradient(self, inputs: Tensor, outputs: Tensor, *, apart: bool = False) -> Tensor:
        """Return the weight's gradient, or with `apart` that of each sample, (b, *shape).

        Samples are groups of one convolution then. Source: Rochette, Manoel and Tramel, "Efficient
        per-example gradient computations in convolutional neural networks", 2019, section 3.
        """
        layer, batch = self.layer, len(inputs) if apart else 1
        weight = layer.weight.detach().to(inputs.dtype)
        if apart:
            inputs, outputs = inputs.flatten(0, 1)[None], outputs.flatten(0, 1)[None]
            size = batch * len(weight), *weight.shape[1:]
            weight = weight.new_empty(size)  # of which no value counts
        _, gradient, _ = torch.ops.aten.convolution_backward(
            *(outputs, inputs, weight, None),
            *(list(layer.stride), self.padding, list(layer.dilation)),
            *(False, [0] * len(self.padding), batch * layer.groups),
            [False, True, False],
        )
        result: Tensor = gradient
        return result.view(batch, *layer.weight.shape) if apart else result


def weight_gradients(gradients: Unfolded) -> PerSample:
    """Return the gradients themselves where they are small."""
    weight, inputs, outputs = gradients.layer.weight, gradients.inputs, gradients.outputs
    if not len(inputs):
        return Dense(outputs.new_zeros(0, *weight.shape))
    small = weight.numel() <= _KEPT * (inputs[0].numel() + outputs[0].numel())
    return Dense(gradients.dense()) if small and gradients.prefers_dense else gradients
