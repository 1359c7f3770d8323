"""Embeddings: gradients that fall on the rows that were looked up."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from dpsgd.clipping.clipped_sums import Gradients
from dpsgd.clipping.own import Own, function, leaf_of
from dpsgd.clipping.taps import Call
from dpsgd.gradients.persample import Rows
from dpsgd.layers.registry import rule
from ldp import InvalidInput


@rule(nn.Embedding)
def embedding(layer: nn.Embedding, call: Call, input: Tensor) -> Tensor:  # noqa: A002
    """Look rows up. Rows of ids without a batch meet samples as a module's own parameters do."""
    output: Tensor = _embedding(call, input, layer.weight, layer.padding_idx)
    return output


@function(F.embedding)
def _embedding(
    call: Call,
    input: Tensor,  # noqa: A002
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if max_norm is not None or scale_grad_by_freq:
        raise call.uncovered("an embedding with max_norm or scale_grad_by_freq")
    dim = call.find_batch(input)
    # Flat, because the output of more dimensions would be a view.
    flat = F.embedding(input.flatten(), weight.detach(), padding_idx)
    shape = *input.shape, flat.shape[1]

    def gradients(grads: Tensor, ids: Tensor) -> Gradients:
        rows = ids.movedim(dim or 0, 0).long()
        grads = grads.reshape(shape).movedim(dim or 0, 0)
        yield from of_rows(rows.reshape(len(rows), rows[:1].numel()), grads)

    def of_rows(rows: Tensor, grads: Tensor) -> Gradients:
        grads = grads.reshape(*rows.shape, grads.shape[-1])
        if padding_idx is not None:
            grads = grads.masked_fill((rows == padding_idx)[:, :, None], 0)
        yield weight, Rows(rows, grads, weight.shape)

    if dim is not None:
        return call.dims.apart(call.tap(flat, gradients, input).view(shape), dim)
    rows = input.flatten().long()
    leaf = leaf_of(flat.view(shape), call)
    return Own.of(leaf, call, {leaf: lambda grads: of_rows(rows.expand(len(grads), -1), grads)})


@rule(nn.EmbeddingBag)
def embedding_bag(
    layer: nn.EmbeddingBag,
    call: Call,
    input: Tensor,  # noqa: A002
    offsets: Tensor | None = None,
    per_sample_weights: Tensor | None = None,
) -> Tensor:
    """Look rows up and add or average them: one bag for each sample.

    Bags are the rows of `input`, or begin at `offsets` in a flat one and are padded.
    """
    if offsets is None:
        call.batch_dim(input, only=0)
        ids, present = input, torch.ones_like(input, dtype=torch.bool)
        weights = per_sample_weights
    else:
        if layer.include_last_offset:
            raise InvalidInput(f"{call.name}: include_last_offset leaves no batch of offsets")
        ids, present, weights = _padded(input, offsets, per_sample_weights)
        call.batch_dim((ids * present).sum(1), only=0)  # offsets depend on other samples
    if layer.padding_idx is not None:
        present = present & (ids != layer.padding_idx)
    scale = present.to(layer.weight.dtype)
    if weights is not None:
        scale = scale * weights
    elif layer.mode == "mean":
        scale = scale / scale.sum(1, keepdim=True).clamp_min(1)
    rows = F.embedding(ids, layer.weight.detach())
    output = torch.einsum("btd,bt->bd", rows, scale)

    def gradients(grads: Tensor, ids: Tensor, scale: Tensor) -> Gradients:
        spread = grads[:, None] * scale[:, :, None]
        yield layer.weight, Rows(ids.long(), spread, layer.weight.shape)

    return call.tap(output, gradients, ids, scale)


def padding_rows(module: nn.Module) -> dict[Tensor, int]:
    """Return the tables of embeddings with a padding row, which never has a gradient.

    A table that another layer uses too, such as a head, is not among them.
    """
    rows: dict[Tensor, int | None] = {}
    for layer in module.modules():
        row = layer.padding_idx if isinstance(layer, nn.Embedding | nn.EmbeddingBag) else None
        for parameter in layer.parameters(recurse=False):
            rows[parameter] = row if rows.get(parameter, row) == row else None
    return {parameter: row for parameter, row in rows.items() if row is not None}


def _padded(
    ids: Tensor, offsets: Tensor, weights: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return flat bags as padded rows: ids, a mask of the present ones, and weights."""
    ends = torch.cat([offsets[1:], offsets.new_tensor([ids.numel()])])[: offsets.numel()]
    lengths = ends - offsets
    longest = int(lengths.max()) if lengths.numel() else 0
    places = torch.arange(longest, device=ids.device)
    present = places < lengths[:, None]
    where = torch.where(present, offsets[:, None] + places, 0)
    if not ids.numel():
        where, present = where[:, :0], present[:, :0]
    return ids[where], present, None if weights is None else weights[where]
