"""Multi-head attention: four linear maps around a scaled dot product."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Dense
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
    q, k, v = _projected(layer, call, query, key, value, dim=dim)
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


def _projected(layer: nn.MultiheadAttention, call: Call, *inputs: Tensor, dim: int) -> list[Tensor]:
    """Return queries, keys and values, batch first."""
    weight, bias = layer.in_proj_weight, layer.in_proj_bias
    if weight is None:
        own = (layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight)
        found = [tapped_linear(call, x, w, None, dim) for x, w in zip(inputs, own, strict=True)]
        if bias is not None:
            biases = _tapped_row(call, bias).transpose(0, dim).chunk(3, 2)
            found = [x + own for x, own in zip(found, biases, strict=True)]
    else:  # the same input is mapped once; of another, parts of the result are of no use
        mapped = {
            x: tapped_linear(call, x, weight, bias, dim).chunk(3, 2) for x in dict.fromkeys(inputs)
        }
        found = [mapped[x][i] for i, x in enumerate(inputs)]
    return [x.transpose(0, dim) for x in found]


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
