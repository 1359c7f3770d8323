"""Multi-head attention: four linear maps around a scaled dot product."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Blocks, Dense, outer
from dpsgd.layers.linear import tapped_linear
from dpsgd.layers.registry import rule
from ldp import InvalidInput


@rule(nn.MultiheadAttention)
def attention(
    layer: nn.MultiheadAttention,
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Run attention. A packed in_proj is three linear maps; bias_k and bias_v are a position."""
    if query.ndim != 3:
        raise InvalidInput(f"{call.name}: expected a query of rank 3, got {tuple(query.shape)}")
    dim = 0 if layer.batch_first else 1
    for given in (query, key, value):
        call.batch_dim(given, only=dim)
    if is_causal and attn_mask is None:
        raise InvalidInput(f"{call.name}: is_causal is a hint about attn_mask, which is None")
    q, k, v = _projected(layer, call, *(t.transpose(0, dim) for t in (query, key, value)))
    added = 0
    if layer.bias_k is not None and layer.bias_v is not None:
        k, v = (
            torch.cat([t, _tapped_row(call, bias)], 1)
            for t, bias in ((k, layer.bias_k), (v, layer.bias_v))
        )
        added += 1
    if layer.add_zero_attn:
        k, v = (F.pad(t, (0, 0, 0, 1)) for t in (k, v))
        added += 1
    mask = _mask(layer, q, attn_mask, key_padding_mask, added)
    q, k, v = (
        t.reshape(*t.shape[:2], layer.num_heads, layer.head_dim).transpose(1, 2) for t in (q, k, v)
    )
    dropout = layer.dropout if layer.training else 0.0
    weights = None
    if need_weights:
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        weights = torch.softmax(scores if mask is None else scores + mask, -1)
        weights = F.dropout(weights, dropout, training=dropout > 0)
        heads = weights @ v
    else:
        heads = F.scaled_dot_product_attention(q, k, v, mask, dropout)
    heads = heads.transpose(1, 2).flatten(2)
    output = tapped_linear(call, heads, layer.out_proj.weight, layer.out_proj.bias, 0)
    if weights is not None and average_attn_weights:
        weights = weights.mean(1)
    return output if layer.batch_first else output.transpose(0, 1), weights


def _projected(layer: nn.MultiheadAttention, call: Call, *inputs: Tensor) -> Sequence[Tensor]:
    """Return queries, keys and values, of inputs with the batch first.

    They are tapped as one, since their maps may be blocks of one weight.
    """
    packed, bias = layer.in_proj_weight, layer.in_proj_bias
    separate = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
    weights = separate if packed is None else packed.detach().chunk(3)
    biases = (None,) * 3 if bias is None else bias.detach().chunk(3)
    outputs = [
        F.linear(x, weight.detach(), own)
        for x, weight, own in zip(inputs, weights, biases, strict=True)
    ]
    lengths = [x.shape[1] for x in inputs]

    def gradients(grads: Tensor, *inputs: Tensor) -> Gradients:
        parts = torch.split(grads, lengths, 1)
        forms = [
            outer(x, part, weight.shape)
            for x, part, weight in zip(inputs, parts, weights, strict=True)
        ]
        if packed is not None and packed.requires_grad:
            yield packed, Blocks(forms)
        for weight, form in zip(separate, forms, strict=True):
            if weight is not None and weight.requires_grad:
                yield weight, form
        if bias is not None and bias.requires_grad:
            yield bias, Dense(torch.cat([part.sum(1) for part in parts], 1))

    return torch.split(call.tap(torch.cat(outputs, 1), gradients, *inputs), lengths, 1)


def _tapped_row(call: Call, bias: Tensor) -> Tensor:
    """Return a bias as a position of each sample, (b, 1, E)."""

    def gradients(grads: Tensor) -> Gradients:
        if bias.requires_grad:
            yield bias, Dense(grads.view(len(grads), *bias.shape))

    return call.tap(bias.detach().view(1, 1, -1).repeat(call.batch, 1, 1), gradients)


def _mask(
    layer: nn.MultiheadAttention,
    query: Tensor,
    attention: Tensor | None,
    padding: Tensor | None,
    added: int,
) -> Tensor | None:
    """Return both masks as one to add to scores; it never masks the `added` positions."""
    total: Tensor | None = None
    if attention is not None:
        mask = _additive(attention, query.dtype)
        if mask.ndim == 3:
            mask = mask.reshape(len(query), layer.num_heads, *mask.shape[1:])
        total = F.pad(mask, (0, added))
    if padding is not None:
        mask = F.pad(_additive(padding, query.dtype), (0, added))[:, None, None]
        total = mask if total is None else total + mask
    return total


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)
