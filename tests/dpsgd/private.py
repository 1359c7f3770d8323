"""A small private training: data, a model, and the ordinary loop."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.data import DataLoader, Dataset, TensorDataset

from dpsgd import PrivacyEngine
from dpsgd.training.sampling import PrivateDataLoader
from ldp.testing import SeededCoins

N, BATCH = 64, 8


def data(n: int = N) -> TensorDataset:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, 4, generator=generator)
    return TensorDataset(x, (x[:, 0] > 0).long())


def model() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def make(
    engine: PrivacyEngine | None = None,
    *,
    module: nn.Module | None = None,
    dataset: Dataset[Any] | None = None,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    noise: float = 1.0,
    norm: Any = 1.0,
    batch: int = BATCH,
    loader: DataLoader[Any] | None = None,
    **options: Any,
) -> tuple[PrivacyEngine, nn.Module, torch.optim.Optimizer, PrivateDataLoader]:
    engine = engine or PrivacyEngine(coins=SeededCoins(1))
    module = module or model()
    made = engine.make_private(
        module=module,
        optimizer=optimizer(module.parameters(), lr=0.1),
        data_loader=loader or DataLoader(dataset or data(), batch_size=batch),
        noise_multiplier=noise,
        max_grad_norm=norm,
        **options,
    )
    return engine, *made


class Sized(SeededCoins):
    """Coins by which batches have these sizes, of the last records."""

    sizes: tuple[int, ...] = ()

    def bernoulli_many(self, threshold: int, n: int) -> Any:
        size, *rest = self.sizes
        self.sizes = (*rest, size)
        return np.arange(n) >= n - size


def sized(*sizes: int) -> PrivacyEngine:
    coins = Sized(3)
    coins.sizes = sizes
    return PrivacyEngine(coins=coins)


def backward(module: nn.Module, batches: Iterator[Any]) -> None:
    """Draw a batch, and make the backward pass of its loss."""
    x, y = next(batches)
    F.cross_entropy(module(x), y).backward()


def train(
    module: nn.Module, optimizer: torch.optim.Optimizer, loader: Any, steps: int | None = None
) -> list[int]:
    sizes = []
    for x, y in itertools.islice(loader, steps):
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()
        sizes.append(len(x))
    return sizes
