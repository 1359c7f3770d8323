"""Normalisations within a sample, and the gradients of their scale and shift."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients, Piece
from dpsgd.clipping.own import function
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Dense
from dpsgd.layers.registry import rule

_Instance = nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d


@rule(nn.LayerNorm)
def layer_norm(layer: nn.LayerNorm, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Normalise over the last dimensions."""
    shape, eps = layer.normalized_shape, layer.eps
    weight, bias = _detached(layer.weight), _detached(layer.bias)
    output = F.layer_norm(input, shape, weight, bias, eps)
    return _tapped_last(call, layer, output, input, lambda x: F.layer_norm(x, shape, eps=eps))


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
    own = SimpleNamespace(normalized_shape=shape, weight=weight, bias=bias, eps=eps)
    output: Tensor = layer_norm(own, call, input)
    return output


@rule(nn.RMSNorm)
def rms_norm(layer: nn.RMSNorm, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Divide by the root of the mean square over the last dimensions."""
    shape, eps = layer.normalized_shape, layer.eps
    output = F.rms_norm(input, list(shape), _detached(layer.weight), eps)
    return _tapped_last(call, layer, output, input, lambda x: F.rms_norm(x, list(shape), eps=eps))


@rule(nn.GroupNorm)
def group_norm(layer: nn.GroupNorm, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Normalise groups of channels."""
    return _tapped_groups(layer, call, input, layer.num_groups)


@rule(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
def instance_norm(layer: _Instance, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Normalise each channel of each sample, as groups of one channel; the batch may be empty."""
    return _tapped_groups(layer, call, input, layer.num_features)


def _tapped_last(
    call: Call,
    layer: nn.LayerNorm | nn.RMSNorm,
    output: Tensor,
    value: Tensor,
    normalize: Callable[[Tensor], Tensor],
) -> Tensor:
    dim, rank = call.batch_dim(value), len(layer.normalized_shape)

    def gradients(grads: Tensor, value: Tensor) -> Gradients:
        between = tuple(i for i in range(1, grads.ndim - rank))
        normal, grads = normalize(value).movedim(dim, 0), grads.movedim(dim, 0)
        return _affine(layer, lambda x: x.sum(between) if between else x, normal, grads)

    return call.tap(output, gradients, value)


def _tapped_groups(
    layer: nn.GroupNorm | _Instance, call: Call, value: Tensor, groups: int
) -> Tensor:
    call.batch_dim(value, only=0)
    weight, bias = _detached(layer.weight), _detached(layer.bias)

    def gradients(grads: Tensor, value: Tensor) -> Gradients:
        inner = tuple(range(2, grads.ndim))
        normal = F.group_norm(value, groups, eps=layer.eps)
        return _affine(layer, lambda x: x.sum(inner) if inner else x, normal, grads)

    return call.tap(F.group_norm(value, groups, weight, bias, layer.eps), gradients, value)


def _affine(
    layer: nn.Module, reduce: Callable[[Tensor], Tensor], normal: Tensor, grads: Tensor
) -> Gradients:
    weight, bias = layer.weight, getattr(layer, "bias", None)
    if isinstance(weight, nn.Parameter) and weight.requires_grad:
        grads = grads.to(Piece(weight).dtype)
        yield Piece(weight), Dense(reduce(normal * grads))
    if isinstance(bias, nn.Parameter) and bias.requires_grad:
        yield Piece(bias), Dense(reduce(grads.to(Piece(bias).dtype)))


def _detached(parameter: nn.Parameter | None) -> Tensor | None:
    return None if parameter is None else parameter.detach()
