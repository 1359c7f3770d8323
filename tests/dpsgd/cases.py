"""Layers of every kind, with inputs, to be compared with a loop over single samples."""

from collections.abc import Callable

import torch
from models import Adapted, Attending, Language, Made, Mine, Overlapping, Own, Steps, With, twice
from oracle import Case
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

BATCH = 5
MIXED_BATCH = 4


def ids(*shape: int, below: int = 11) -> Tensor:
    return torch.randint(below, shape)


LAYERS: dict[str, Case] = {
    "rows of a weight and all of it": (Overlapping, (3, 4)),
    "RNN cell": (lambda: Steps(nn.RNNCell(4, 3)), (3, 4)),
    "RNN cell, ReLU, without bias": (
        lambda: Steps(nn.RNNCell(4, 3, bias=False, nonlinearity="relu")),
        (3, 4),
    ),
    "LSTM cell": (lambda: Steps(nn.LSTMCell(4, 3)), (3, 4)),
    "GRU cell": (lambda: Steps(nn.GRUCell(4, 3)), (3, 4)),
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "linear without bias": (lambda: nn.Linear(4, 3, bias=False), (4,)),
    "linear of rank 3": (lambda: nn.Linear(4, 3), (6, 4)),
    "linear of rank 4": (lambda: nn.Linear(4, 3), (2, 3, 4)),
    "wide linear, few positions": (lambda: nn.Linear(40, 30), (3, 40)),
    "as many positions as samples": (lambda: nn.Linear(4, 3), (BATCH, 4)),
    "two linears, an in-place ReLU between": (
        lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 2)),
        (4,),
    ),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3), (3, 9)),
    "conv1d, every option": (
        lambda: nn.Conv1d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2),
        (4, 11),
    ),
    "conv2d": (lambda: nn.Conv2d(3, 4, 3), (3, 6, 7)),
    "conv2d, every option": (
        lambda: nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(2, 1), dilation=(1, 2), groups=2),
        (4, 7, 6),
    ),
    "depthwise conv2d": (lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), (4, 6, 6)),
    "conv2d of few positions": (lambda: nn.Conv2d(8, 12, 3, groups=2, stride=2), (8, 5, 5)),
    "conv3d": (
        lambda: nn.Conv3d(2, 4, (1, 2, 3), padding=1, groups=2, stride=(1, 2, 1)),
        (2, 3, 4, 5),
    ),
    "conv2d padded to the same, unevenly": (
        lambda: nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)),
        (2, 7, 8),
    ),
    **{
        f"conv{n}d padded {mode}": (
            lambda n=n, mode=mode: (nn.Conv1d, nn.Conv2d, nn.Conv3d)[n - 1](
                2, 3, 3, padding=1, padding_mode=mode
            ),
            (2, *[4] * n),
        )
        for n in (1, 2, 3)
        for mode in ("circular", "reflect", "replicate")
    },
    "conv2d, convolved again": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 2, 3)),
        (2, 6, 6),
    ),
    "embedding": (lambda: nn.Embedding(11, 3), lambda: ids(BATCH, 6)),
    "embedding of one id": (lambda: nn.Embedding(11, 3), lambda: ids(BATCH)),
    "embedding, long": (lambda: nn.Embedding(11, 2), lambda: ids(BATCH, 9)),
    "embedding of rank 3": (lambda: nn.Embedding(11, 3), lambda: ids(BATCH, 2, 3)),
    "embedding with padding": (
        lambda: nn.Embedding(4, 3, padding_idx=1),
        lambda: ids(BATCH, 6, below=4),
    ),
    "sparse embedding": (lambda: nn.Embedding(11, 3, sparse=True), lambda: ids(BATCH, 6)),
    "bag of sums": (lambda: nn.EmbeddingBag(11, 3, mode="sum"), lambda: ids(BATCH, 6)),
    "bag of means": (lambda: nn.EmbeddingBag(11, 3, mode="mean"), lambda: ids(BATCH, 6)),
    "bag with padding": (
        lambda: nn.EmbeddingBag(4, 3, mode="mean", padding_idx=2),
        lambda: ids(BATCH, 6, below=4),
    ),
    "layer norm": (lambda: nn.LayerNorm(4), (4,)),
    "layer norm of two dimensions": (lambda: nn.LayerNorm((3, 4)), (2, 3, 4)),
    "layer norm without bias": (lambda: nn.LayerNorm(4, bias=False), (3, 4)),
    "rms norm": (lambda: nn.RMSNorm(4), (3, 4)),
    "group norm": (lambda: nn.GroupNorm(2, 4), (4, 3, 3)),
    "group norm of channels": (lambda: nn.GroupNorm(2, 4), (4,)),
    "instance norm 1d": (lambda: nn.InstanceNorm1d(4, affine=True), (4, 6)),
    "instance norm 2d": (lambda: nn.InstanceNorm2d(4, affine=True), (4, 3, 3)),
    "instance norm 3d": (lambda: nn.InstanceNorm3d(4, affine=True), (4, 2, 3, 2)),
    "rnn": (lambda: nn.RNN(3, 4, batch_first=True), (6, 3)),
    "rnn of relu": (
        lambda: nn.RNN(3, 4, 2, nonlinearity="relu", batch_first=True, bias=False),
        (6, 3),
    ),
    "lstm": (lambda: nn.LSTM(3, 4, batch_first=True), (6, 3)),
    "deep lstm both ways": (lambda: nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True), (6, 3)),
    "gru": (lambda: nn.GRU(3, 4, batch_first=True), (6, 3)),
    "gru both ways": (lambda: nn.GRU(3, 4, 2, batch_first=True, bidirectional=True), (6, 3)),
}
"""Layers with a rule."""

OWN: dict[str, Case] = {
    "class token": (Own, (2, 4)),
    "subclass": (lambda: Mine(4, 3), (4,)),
    "repeated token": (
        lambda: With(lambda self, x: torch.cat([x, self.p.repeat(len(x), 1, 1)], dim=1), (1, 1, 4)),
        (3, 4),
    ),
    "token of rank 1": (
        lambda: With(lambda self, x: torch.cat((self.p.expand(len(x), 1, 4), x), -2), (4,)),
        (3, 4),
    ),
    "positions, as many as samples": (lambda: With(lambda self, x: x + self.p, (BATCH, 4)), (5, 4)),
    "cut positions": (
        lambda: With(lambda self, x: x + self.p[:, : x.shape[1]].to(x.dtype), (1, 9, 4)),
        (3, 4),
    ),
    "scale in place": (
        lambda: With(lambda self, x: (2 * x).mul_(self.p).sub_(self.p), (4,)),
        (3, 4),
    ),
    "scale of channels": (lambda: With(lambda self, x: x * self.p[:, None, None], (3,)), (3, 2, 2)),
    "function of two": (
        lambda: With(lambda self, x: x * (1 + self.p.exp() * self.q), (4,), (2, 1, 4)),
        (2, 3, 4),
    ),
    "scalar, used twice": (
        lambda: With(lambda self, x: torch.where(x > 0, x * self.p, x**2 - self.p), ()),
        (3,),
    ),
    "masked token": (
        lambda: With(lambda self, x: x + self.p.expand(*x.shape) * (x[:, :, :1] > 0), (1, 1, 4)),
        (3, 4),
    ),
    "weight as a whole": (lambda: With(lambda self, x: torch.tanh(x) @ self.p, (4, 3)), (6, 4)),
    "weight times two": (lambda: With(lambda self, x: x @ (2 * self.p), (4, 3)), (6, 4)),
    "weight of rows": (
        lambda: With(lambda self, x: F.linear(x, self.p, self.q), (3, 4), (3,)),
        (4,),
    ),
    "mixing of positions": (lambda: With(lambda self, x: self.p @ x, (6, 6)), (6, 4)),
    "bias of attention": (
        lambda: With(lambda self, x: F.scaled_dot_product_attention(x, x, x, self.p), (3, 3)),
        (2, 3, 4),
    ),
    "norm": (
        lambda: With(lambda self, x: F.layer_norm(x, (4,), self.p, self.q), (4,), (4,)),
        (3, 4),
    ),
    "mean over what was expanded": (
        lambda: With(lambda self, x: x + self.p.expand(len(x), 5, 4).mean(0), (1, 5, 4)),
        (5, 4),
    ),
    "queries": (
        lambda: With(
            lambda self, x: self.layer(self.p.expand(len(x), -1, -1)) + x[:, None],
            (1, 2, 4),
            layer=nn.Linear(4, 4),
        ),
        (4,),
    ),
    "first states": (
        lambda: With(
            lambda self, x: self.layer(x, tuple(v.expand(1, len(x), 4) for v in (self.p, self.q))),
            (1, 1, 4),
            (1, 1, 4),
            layer=nn.LSTM(4, 4, batch_first=True),
        ),
        (3, 4),
    ),
    "list": (
        lambda: With(
            lambda self, x: x * self.layer[0] - self.layer[1],
            layer=nn.ParameterList([torch.randn(4), torch.randn(4)]),
        ),
        (3, 4),
    ),
    "mean of embedded positions": (
        lambda: With(
            lambda self, x: x + self.layer(torch.arange(5, device=x.device)).mean(0),
            layer=nn.Embedding(7, 4),
        ),
        (5, 4),
    ),
    "subclass of an embedding": (
        lambda: type("Scaled", (nn.Embedding,), {"forward": _scaled})(11, 3, padding_idx=0),
        lambda: ids(BATCH, 6),
    ),
}
"""Modules with parameters of their own that meet samples in known ways."""


def _repeated(self: With, x: Tensor) -> Tensor:
    tokens = self.p.repeat(len(x), 1, 1)
    tokens[:, 0] = 0
    return torch.cat([tokens.mul_(3), x], 1)


def _written(self: With, x: Tensor) -> Tensor:
    places = x.new_zeros(1, 3, 4)
    places[:, 1] = self.p
    return x + places


OTHERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "repeated, and changed in place": (lambda: With(_repeated, (1, 2, 4)), (3, 4)),
    "unknown function": (
        lambda: With(lambda self, x: torch.einsum("btd,d->bt", x, self.p), (4,)),
        (2, 4),
    ),
    "written to another tensor": (lambda: With(_written, (4,)), (3, 4)),
    "rows that are not a copy for each sample": (
        lambda: With(lambda self, x: x + self.p.expand(len(x), -1, -1).clone(), (1, 3, 4)),
        (3, 4),
    ),
    "PReLU": (lambda: nn.Sequential(nn.Linear(4, 3), nn.PReLU(3)), (4,)),
    "transposed convolution": (lambda: nn.ConvTranspose2d(2, 3, 2), (2, 4, 4)),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), (4,)),
}
"""Layers without a rule."""


def _scaled(self: nn.Embedding, given: Tensor) -> Tensor:
    return 3 * nn.Embedding.forward(self, given)


MIXED: dict[str, Case] = {
    "linear": (lambda: nn.Linear(8, 6), (8,)),
    "linear by Gram": (lambda: nn.Linear(40, 30), (3, 40)),
    "conv formed": (lambda: nn.Conv2d(2, 3, 3), (2, 6, 6)),
    "conv by Gram": (
        lambda: nn.Conv2d(8, 12, 3, stride=2, padding_mode="circular", padding=1),
        (8, 4, 4),
    ),
    "norms": (
        lambda: nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.RMSNorm(8), nn.GroupNorm(2, 8)),
        (8,),
    ),
    "embedding and head tied": (
        lambda: Language("expanded"),
        lambda: torch.randint(17, (MIXED_BATCH, 5)),
    ),
    "lstm": (lambda: nn.LSTM(3, 4, batch_first=True), (5, 3)),
    "gru": (lambda: nn.GRU(3, 4, 2, batch_first=True), (5, 3)),
    "attention": (
        lambda: Made(lambda self, x: self.attending(x, x), attending=Attending(causal=True)),
        (6, 4),
    ),
    "bag": (
        lambda: nn.EmbeddingBag(11, 3, mode="mean"),
        lambda: torch.randint(11, (MIXED_BATCH, 6)),
    ),
    "reused": (lambda: twice(nn.Linear(5, 5)), (5,)),
    "adapted": (lambda: Adapted(nn.Linear(6, 4), 2), (3, 6)),
    "own": (Own, (2, 4)),
    "no rule": OTHERS["unknown function"],
}
"""Layers for autocast."""
