"""The models that `dpsgd_speed.py` measures, with inputs, targets, batches and goals."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


class Block(nn.Module):
    def __init__(self, d: int, heads: int, *, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.before, self.between = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        q, k, v = (
            layer(y).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        x = x + self.o(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.between(x))


class Blocks(nn.Module):
    """Blocks over embedded values, with learned places and a norm at the end."""

    def __init__(
        self, start: nn.Module, d: int, blocks: int, heads: int, length: int, causal: bool = False
    ) -> None:
        super().__init__()
        self.start, self.places = start, nn.Embedding(length, d)
        self.blocks = nn.Sequential(*(Block(d, heads, causal=causal) for _ in range(blocks)))
        self.norm = nn.LayerNorm(d)

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        # Copied: Opacus cannot take an expanded view.
        places = torch.arange(x.shape[1], device=x.device).repeat(len(x), 1)
        return self.norm(self.blocks(x + self.places(places)))


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class Last(nn.Module):
    """The state after the last step of a recurrent layer."""

    def forward(self, given: tuple[Tensor, Any]) -> Tensor:
        return given[0][:, -1]


class Swapped(nn.Module):
    """(b, c, T) as (b, T, c), or the other way."""

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2)


class Residual(nn.Module):
    def __init__(self, channels: int, out: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(channels, out, 3, stride, 1, bias=False),
            nn.GroupNorm(8, out),
            nn.ReLU(),
            nn.Conv2d(out, out, 3, 1, 1, bias=False),
            nn.GroupNorm(8, out),
        )
        self.short: nn.Module = nn.Identity()
        if stride > 1 or channels != out:
            self.short = nn.Sequential(
                nn.Conv2d(channels, out, 1, stride, bias=False), nn.GroupNorm(8, out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.inner(x) + self.short(x))


class Logits(nn.Module):
    """The logits of a model of transformers: (b, classes), or (b, vocabulary, T)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        logits: Tensor = self.model(input_ids=ids).logits
        return logits if logits.ndim == 2 else logits.transpose(1, 2)


def mlp(width: int = 512) -> nn.Module:
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, 10))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def transformer(d: int = 128, blocks: int = 2, heads: int = 4, length: int = 64) -> nn.Module:
    body = Blocks(nn.Embedding(1000, d), d, blocks, heads, length)
    return nn.Sequential(body, Mean(), nn.Linear(d, 10))


def vit(d: int = 128) -> nn.Module:
    patches = nn.Sequential(nn.Conv2d(3, d, 4, 4), nn.Flatten(2), Swapped())
    return nn.Sequential(Blocks(patches, d, 4, 4, 64), Mean(), nn.Linear(d, 10))


def gpt(d: int = 128, vocabulary: int = 5000, length: int = 64) -> nn.Module:
    """A language model of which the head is the embedding."""
    words, head = nn.Embedding(vocabulary, d), nn.Linear(d, vocabulary, bias=False)
    nn.init.normal_(words.weight, std=0.02)  # or probabilities are denormal, which takes time
    head.weight = words.weight
    return nn.Sequential(Blocks(words, d, 2, 4, length, causal=True), head, Swapped())


def lstm() -> nn.Module:
    words = nn.Embedding(1000, 64)
    return nn.Sequential(words, nn.LSTM(64, 128, batch_first=True), Last(), nn.Linear(128, 10))


def resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1, bias=False),
        nn.GroupNorm(8, 32),
        nn.ReLU(),
        *(Residual(32, 32, 1), Residual(32, 64, 2), Residual(64, 128, 2)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(128, 10),
    )


def words() -> nn.Module:
    return nn.Sequential(nn.Embedding(50_000, 64), Mean(), nn.Linear(64, 10))


def timm_vit() -> nn.Module:
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(32, 4, num_classes=10, embed_dim=128, depth=4, num_heads=4)


def torchvision_vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 4, 4, 4, 128, 512, num_classes=10)


def bert() -> nn.Module:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=5000,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=512,
        num_labels=10,
    )
    return Logits(BertForSequenceClassification(config))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=5000, n_positions=64, n_embd=128, n_layer=2, n_head=4)
    return Logits(GPT2LMHeadModel(config))


def _images(batch: int) -> Tensor:
    return torch.randn(batch, 3, 32, 32)


def _ids(batch: int, below: int = 1000, length: int = 64) -> Tensor:
    return torch.randint(below, (batch, length))


@dataclass(frozen=True)
class Model:
    """How to build a model, and what to measure it with; targets are one class of 10 by default."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]
    batch: int = 256
    goal: tuple[float, float] | None = None  # of time and memory, over plain PyTorch
    targets: Callable[[int], Tensor] = lambda batch: torch.randint(10, (batch,))


_text = partial(_ids, below=5000)

MODELS = {
    "mlp": Model(mlp, lambda b: torch.randn(b, 784), goal=(1.5, 1.2)),
    "cnn": Model(cnn, lambda b: torch.randn(b, 1, 28, 28), goal=(1.4, 1.3)),
    "transformer": Model(transformer, _ids, goal=(1.15, 1.2)),
    "vit": Model(vit, _images, 64, (1.3, 1.2)),
    "lstm": Model(lstm, _ids, 64, (1.3, 1.2)),
    "resnet": Model(resnet, _images, 32, (1.3, 1.2)),
    "words": Model(words, partial(_ids, below=50_000), 256, (1.3, 1.2)),
    "gpt": Model(gpt, _text, 16, (1.15, 1.2), _text),
    "timm vit": Model(timm_vit, _images, 64, (1.3, 1.2)),
    "torchvision vit": Model(torchvision_vit, _images, 64, (1.3, 1.2)),
    "bert": Model(bert, _text, 16, (1.3, 1.2)),
    "gpt2": Model(gpt2, _text, 16, (1.3, 1.2), _text),
    "wide mlp": Model(lambda: mlp(8192), lambda b: torch.randn(b, 784)),
    "large transformer": Model(
        lambda: transformer(512, 6, 8, 128), lambda b: torch.randint(1000, (b, 128))
    ),
}
