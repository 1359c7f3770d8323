"""The training loop of the estimators, private or on randomised rows alone."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from dpsgd.training.engine import PrivacyEngine

Loss = Callable[[Tensor, Tensor], Tensor]
"""A loss for each row, shape (n,), of the module's output and the row's target."""

Score = Callable[[], float]
"""How good the model at hand is on public data."""

REPORTED = 20
"""How many times a training reports its progress, about."""

_LEAST, _MOST = 64, 4096
"""The sizes of batches between which a quarter of the rows is taken."""


@dataclass(frozen=True)
class Progress:
    """Where a training stands: steps made, and the epsilon that they spent at the model's delta.

    `epsilon` is of the training alone, inf without noise. `score` is that on the public validation
    data, None without. Nothing here tells of the training data but `epsilon`, which does not
    depend on it.
    """

    step: int
    steps: int
    epsilon: float
    score: float | None


def usual_batch(rows: int) -> int:
    """Return the batch size for a number of rows: a quarter of them, 64 to 4,096."""
    return min(rows, max(_LEAST, min(_MOST, rows // 4)))


class Table(Dataset[Any]):
    """Rows of tensors, of which a whole batch is looked up at once."""

    def __init__(self, *tensors: Tensor) -> None:
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, row: int) -> tuple[Tensor, ...]:
        return tuple(tensor[row] for tensor in self.tensors)

    def __getitems__(self, rows: Sequence[int]) -> tuple[Tensor, ...]:
        chosen = torch.as_tensor(rows, dtype=torch.int64)
        return tuple(tensor[chosen] for tensor in self.tensors)


def train(
    module: nn.Module,
    optimizer: Optimizer,
    table: Table,
    loss: Loss,
    *,
    batch_size: int,
    steps: int,
    engine: PrivacyEngine | None,
    after: Callable[[int], bool],
    **private: Any,
) -> None:
    """Make `steps` steps on batches of about `batch_size` rows, privately if there is an engine.

    Each part of the module stays in the mode, train or eval, that it is in. `private` is what
    `PrivacyEngine.make_private` takes beside. `after` is called with the number
    of steps made, and ends the training where it returns true.
    """
    loader = DataLoader(table, batch_size, shuffle=True, collate_fn=lambda batch: batch)
    if engine is not None:
        module, optimizer, loader = engine.make_private(
            module=module, optimizer=optimizer, data_loader=loader, **private
        )
    done, earlier = 0, _made(engine)
    for inputs, targets in _forever(loader):
        optimizer.zero_grad()
        loss(module(inputs), targets).mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        before, done = done, done + 1
        if engine is not None:  # a batch may come in parts, of which the last one steps
            done = _made(engine) - earlier
        if done > before and (after(done) or done >= steps):
            return


def _made(engine: PrivacyEngine | None) -> int:
    return 0 if engine is None else sum(event.steps for event in engine.accountant.history)


def _forever(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader
