"""Small models that use layers in awkward ways."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Made(nn.Module):
    """Parts by name, layers and buffers, and what the forward makes of them and its input."""

    def __init__(self, run: Callable[[Any, Tensor], Any], **parts: nn.Module | Tensor) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            else:
                self.register_buffer(name, part)

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def _later(length: int, device: torch.device) -> Tensor:
    return torch.triu(torch.ones(length, length, dtype=torch.bool, device=device), 1)


class Attending(nn.Module):
    def __init__(self, causal: bool = False, padded: bool = False, **options: object) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, **options)
        self.causal = causal
        self.padded = padded

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        length = x.shape[1]
        mask = _later(length, x.device) if self.causal else None
        padding = (y[:, :, 0] > 0.5) if self.padded else None
        keys = x if self.causal else y
        out, weights = self.attention(
            x, keys, keys, attn_mask=mask, key_padding_mask=padding, need_weights=not self.causal
        )
        return out if weights is None else torch.cat([out, weights], 2)


class Bags(nn.Module):
    """Bags given by offsets: each sample's row, cut at its first 0."""

    def __init__(self, mode: str) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(11, 3, mode=mode)

    def forward(self, ids: Tensor) -> Tensor:
        lengths = (ids > 0).long().cumprod(1).sum(1)
        flat = torch.cat([row[:n] for row, n in zip(ids, lengths, strict=True)])
        weights = None if self.bag.mode == "mean" else torch.cos(flat.double())
        return self.bag(flat, lengths.cumsum(0) - lengths, weights)


def twice(layer: nn.Module) -> Made:
    return Made(lambda self, x: self.layer(torch.tanh(self.layer(x))), layer=layer)


class Language(nn.Module):
    """A language model of which the head is the embedding."""

    def __init__(self, positions: str, d: int = 6, vocabulary: int = 17) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, d)
        self.places = nn.Embedding(40, d)
        self.middle = nn.Linear(d, d)
        self.head = nn.Linear(d, vocabulary, bias=False)
        self.head.weight = self.embedding.weight
        self.positions = positions

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        if self.positions == "rows of one":
            places = places[None]
        elif self.positions == "expanded":
            places = places.expand(tokens.shape)
        x = self.embedding(tokens) + self.places(places)
        return self.head(torch.tanh(self.middle(x)))


def branches() -> Made:
    """Has a layer that is never used, and one of which the output is dropped."""

    def run(self: Any, x: Tensor) -> Tensor:
        self.dropped(x)
        return self.used(x)

    return Made(run, **{name: nn.Linear(3, 3) for name in ("used", "unused", "dropped")})


class Adapted(nn.Module):
    """A frozen linear layer with a low-rank adapter, as peft wraps it."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False)})
        self.scaling = 1.7

    def forward(self, x: Tensor) -> Tensor:
        low = self.lora_B["default"](self.lora_A["default"](x))
        return self.base_layer(x) + self.scaling * low


class Own(nn.Module):
    """Has a parameter of its own, and a layer inside."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 4))
        self.layer = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(torch.cat([self.token.expand(len(x), 1, 4), x], 1))


class With(nn.Module):
    """Has parameters p and q of these shapes, and what the forward makes of them and its input."""

    def __init__(
        self,
        run: Callable[[Any, Tensor], Any],
        *shapes: tuple[int, ...],
        layer: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.run, self.layer = run, layer
        for name, shape in zip("pq", shapes, strict=False):
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


class Mine(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(2 * x)


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(50))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(torch.einsum("i,bi->bi", self.scale, x), 0.5)


class Overlapping(nn.Module):
    """A weight that attention uses by rows, and a linear layer as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 12)
        self.head.weight = self.attention.in_proj_weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x, x, x)[0])


class Steps(nn.Module):
    """A recurrent cell that runs over the positions of each sample."""

    def __init__(self, cell: nn.RNNCellBase) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = None, []
        for step in x.unbind(1):
            state = self.cell(step, state)
            outputs.append(state[0] if isinstance(state, tuple) else state)
        return torch.stack(outputs, 1)
