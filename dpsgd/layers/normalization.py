"""Normalisations within a sample, and the gradients of their scale and shift."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients, wide
from dpsgd.clipping.own import function
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Dense
from dpsgd.gradients.precision import exact
from dpsgd.layers.registry import rule
from dpsgd.noise.compiled import add_normal_products

_Instance = nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d


@rule(nn.LayerNorm)
def layer_norm(layer: nn.LayerNorm, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Normalise over the last dimensions."""
    shape, eps = layer.normalized_shape, layer.eps
    output: Tensor = _layer_norm(call, input, shape, layer.weight, layer.bias, eps)
    return output


@function(F.layer_norm)
def _layer_norm(
    call: Call,
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    shape = tuple(normalized_shape)
    output = F.layer_norm(input, shape, _detached(weight), _detached(bias), eps)

    def sums(rows: Tensor, grads: Tensor) -> Iterable[Tensor]:
        if rows.is_cpu:
            found = grads.new_zeros(2, len(grads), grads.shape[2])
            add_normal_products(rows.numpy(), grads.numpy(), eps, *found.numpy())
            return found
        return (F.layer_norm(rows, rows.shape[2:], eps=eps) * grads).sum(1), grads.sum(1)

    return _tapped_last(call, shape, (weight, bias), output, input, sums)


@rule(nn.RMSNorm)
def rms_norm(layer: nn.RMSNorm, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Divide by the root of the mean square over the last dimensions."""
    shape, eps = layer.normalized_shape, layer.eps
    output = F.rms_norm(input, list(shape), _detached(layer.weight), eps)

    def sums(rows: Tensor, grads: Tensor) -> Iterable[Tensor]:
        return ((F.rms_norm(rows, rows.shape[2:], eps=eps) * grads).sum(1),)

    return _tapped_last(call, shape, (layer.weight,), output, input, sums)


@rule(nn.GroupNorm, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def group_norm(layer: nn.GroupNorm | _Instance, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Normalise groups of channels, or each channel; the batch may be empty."""
    call.batch_dim(input, only=0)
    groups = layer.num_groups if isinstance(layer, nn.GroupNorm) else layer.num_features
    widened = input.to(wide(layer.weight.dtype))
    output: Tensor = _Groups.apply(call.anchor, call, layer, groups, widened)  # type: ignore[no-untyped-call]
    return output.to(input.dtype)


def _tapped_last(
    call: Call,
    shape: tuple[int, ...],
    parameters: Iterable[Tensor | None],
    output: Tensor,
    value: Tensor,
    sums: Callable[[Tensor, Tensor], Iterable[Tensor]],
) -> Tensor:
    """Tap a norm; sums(values, grads), of shape (b, T, d), has the parameters' gradients (b, d)."""
    dim = call.batch_dim(value)

    def gradients(grads: Tensor, value: Tensor) -> Gradients:
        rows, grads = (
            v.movedim(dim, 0).reshape(call.batch, -1, math.prod(shape)).contiguous()
            for v in (value, grads)
        )
        for parameter, total in zip(parameters, sums(rows, grads), strict=True):
            if parameter is not None and parameter.requires_grad:
                yield parameter, Dense(total.view(len(total), *shape))

    return call.tap(output, gradients, value)


class _Groups(torch.autograd.Function):
    """Normalisation of groups of channels, whose backward books the gradients by sample.

    It takes the samples for channels of one: that gives the gradients of each one's scale and
    shift beside the input's, as fast as those of all samples.
    """

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, call: Call, layer: nn.GroupNorm, groups: int, value: Tensor
    ) -> Tensor:
        weight, bias = (
            None if p is None else p.detach().to(value.dtype) for p in (layer.weight, layer.bias)
        )
        batch, channels, *inner = value.shape
        sizes = batch, channels, math.prod(inner), groups
        output, *moments = torch.ops.aten.native_group_norm(
            value.contiguous(), weight, bias, *sizes, layer.eps
        )
        ctx.save_for_backward(value, weight, *moments)
        ctx.call, ctx.layer, ctx.sizes = call, layer, sizes
        result: Tensor = output
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grads: Tensor) -> Any:
        value, weight, *moments = ctx.saved_tensors
        batch, channels, inner, groups = ctx.sizes
        inputs, scale = grads, grads.new_zeros(0)
        shift = scale
        with exact(value.device.type):
            if batch:
                together = (v.reshape(1, batch * channels, inner) for v in (grads, value))
                inputs, scale, shift = torch.ops.aten.native_group_norm_backward(
                    *together,
                    *(moment.view(1, -1) for moment in moments),
                    weight.repeat(batch),
                    *(1, batch * channels, inner, batch * groups),
                    [True, True, True],
                )
            both = zip((ctx.layer.weight, ctx.layer.bias), (scale, shift), strict=True)
            ctx.call.book(
                (parameter, Dense(gradients.view(batch, channels)))
                for parameter, gradients in both
                if parameter is not None and parameter.requires_grad
            )
        return None, None, None, None, inputs.view_as(value)


def _detached(parameter: Tensor | None) -> Tensor | None:
    return None if parameter is None else parameter.detach()
