"""What a client does with its records in a round: some epochs of SGD from the round's model."""

import math
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpsgd.accounting.events import check_integer, check_positive
from dpsgd.federated import flat
from dpsgd.federated.records import Loss, check_records
from dpsgd.federated.server_optimizers import check_momentum
from ldp import InvalidInput


class Device(Protocol):
    """The devices of one simulated training: their data, and how they train on it."""

    def update(self, client: int, rows: Tensor, model: Tensor, seed: int) -> Tensor:
        """Return how a client moves the model in a round, as a new vector, shape (dimension,).

        `rows` are the places of its records, and `model` the round's parameters, which are not
        changed; both are on the data's device. `seed` is of this client's coins in this round.
        """
        ...

    def get_epsilon(self, delta: float) -> float:
        """Return the largest epsilon of any single record so far, inf if nothing protects it."""
        ...


class LocalTrainer(Protocol):
    """A frozen value that says how clients train."""

    def start(self, model: nn.Module, features: Tensor, labels: Tensor) -> Device:
        """Return the devices of a training; all records are on the model's device.

        Raises `InvalidInput` where the model does not fit the records.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class LocalSGD:
    """Train by SGD on shuffled batches: `epochs` passes, of `batch_size` records a step.

    The last batch of a pass may be smaller; batch_size 0 is all records at once. `momentum` begins
    anew in each round. `proximal` is the mu of FedProx: it adds mu / 2 times the squared distance
    from the round's model to the loss. Nothing here protects a record.
    Raises `InvalidInput` unless epochs >= 1, batch_size >= 0, lr is finite and > 0,
    0 <= momentum < 1, and proximal is finite and >= 0.
    Source: McMahan et al., AISTATS 2017, algorithm 1; Li et al., "Federated optimization in
    heterogeneous networks", MLSys 2020, algorithm 2 (the same number of epochs everywhere).
    """

    lr: float
    epochs: int = 1
    batch_size: int = 10
    momentum: float = 0.0
    proximal: float = 0.0
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        check_positive("lr", self.lr)
        check_integer("epochs", self.epochs, 1)
        check_integer("batch_size", self.batch_size, 0)
        check_momentum(self.momentum)
        if not 0 <= self.proximal < math.inf:
            raise InvalidInput(f"proximal must be finite and >= 0, got {self.proximal}")

    def start(self, model: nn.Module, features: Tensor, labels: Tensor) -> Device:
        """Return devices that train a copy of the model; raise as `check_records`."""
        check_records(model, features, labels, self.loss)
        return _Devices(self, model, features, labels)


def batches(size: int, features: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the records in batches of a size; the last may be smaller."""
    return zip(torch.split(features, size), torch.split(labels, size), strict=True)


class _Devices:
    """Train one client after another on the same copy of the model."""

    def __init__(self, how: LocalSGD, model: nn.Module, features: Tensor, labels: Tensor) -> None:
        self._how, self._model = how, deepcopy(model).train()
        self._parameters = flat.trained(self._model)
        self._features, self._labels = features, labels

    def update(self, client: int, rows: Tensor, model: Tensor, seed: int) -> Tensor:
        coins = torch.Generator().manual_seed(seed)
        how = self._how
        start = flat.parts(model, self._parameters)
        here: list[Tensor] = [p.detach() for p in self._parameters]  # of the same memory
        torch._foreach_copy_(here, start)
        velocity = [torch.zeros_like(p) for p in here] if how.momentum else None
        for _ in range(how.epochs):
            mixed = rows[torch.randperm(len(rows), generator=coins).to(rows.device)]
            size = how.batch_size or len(rows)
            for batch, wanted in batches(size, self._features[mixed], self._labels[mixed]):
                loss = how.loss(self._model(batch), wanted)
                step = torch.autograd.grad(loss, self._parameters, materialize_grads=True)
                if how.proximal:
                    away = torch._foreach_sub(here, start)
                    step = torch._foreach_add(step, away, alpha=how.proximal)
                if velocity is not None:
                    torch._foreach_mul_(velocity, how.momentum)
                    torch._foreach_add_(velocity, step)
                torch._foreach_add_(here, velocity or step, alpha=-how.lr)
        return flat.read(self._model).sub_(model)

    def get_epsilon(self, delta: float) -> float:
        return math.inf
