"""Privacy of records: each client trains with DP-SGD on its own data.

It protects each record against everybody who reads the client's updates, and not the person: what
all the records of one person have in common, an update may tell.
"""

from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from dpsgd.accounting import Accountant, RDPAccountant, Relation
from dpsgd.accounting.events import check_integer, check_positive
from dpsgd.federated.flat import read, write
from dpsgd.federated.records import Loss, check_records
from dpsgd.federated.server_optimizers import check_momentum
from dpsgd.training.engine import PrivacyEngine
from ldp import Coins
from ldp.testing import SeededCoins


@dataclass(frozen=True, kw_only=True)
class RecordLevel:
    """Train by DP-SGD: Poisson samples of `batch_size` expected records, clipped, with noise.

    Take it for `train=` of a `Federation`. Each record's gradient is clipped to L2 norm
    `max_grad_norm`, and noise of noise_multiplier * max_grad_norm is added to the sum.
    A client with fewer records than `batch_size` takes all of them in each step.

    Guarantee: (epsilon, delta)-DP of all updates of one client together, for one
    record of that client added or removed, whoever reads the updates: nobody else must be honest.
    The number of the client's records is public. A person is NOT protected, only each record: a
    person with n records alike has up to n epsilon, at a delta that grows faster.
    Here noise comes from the simulation's seed: who knows the seed knows the noise.
    Raises `InvalidInput` unless lr, norm and noise are finite and > 0, epochs and batch_size
    integers >= 1, and 0 <= momentum < 1; at the start for a model that `PrivacyEngine` refuses.
    Source: Abadi et al., "Deep learning with differential privacy", CCS 2016, algorithm 1.
    """

    lr: float
    noise_multiplier: float
    max_grad_norm: float
    epochs: int = 1
    batch_size: int = 10
    momentum: float = 0.0
    loss: Loss = cross_entropy

    def __post_init__(self) -> None:
        for name in ("lr", "noise_multiplier", "max_grad_norm"):
            check_positive(name, getattr(self, name))
        check_integer("epochs", self.epochs, 1)
        check_integer("batch_size", self.batch_size, 1)
        check_momentum(self.momentum)

    def start(self, model: nn.Module, features: Tensor, labels: Tensor) -> "_PrivateDevices":
        """Return devices that train copies of the model; raise as `check_records`."""
        check_records(model, features, labels, self.loss)
        return _PrivateDevices(self, model, features, labels)


class _PrivateDevices:
    """The devices of a training, each with the account of its own records."""

    def __init__(
        self, how: RecordLevel, model: nn.Module, features: Tensor, labels: Tensor
    ) -> None:
        self._how, self._model, self._features, self._labels = how, model, features, labels
        self._accounts: dict[int, Accountant] = {}

    def update(self, client: int, rows: Tensor, model: Tensor, seed: int) -> Tensor:
        """Return how a client moves the model in a round; zeros without records."""
        if not len(rows):
            return torch.zeros_like(model)
        account = self._accounts.setdefault(client, RDPAccountant(Relation.ADD_REMOVE))
        trained = trained_privately(
            self._how,
            self._model,
            model,
            self._features[rows],
            self._labels[rows],
            account,
            SeededCoins(seed),
        )
        return trained - model

    def get_epsilon(self, delta: float) -> float:
        """Return the largest epsilon of any client's records, by all rounds it took part in."""
        histories = {account.history: account for account in self._accounts.values()}
        return max((account.get_epsilon(delta) for account in histories.values()), default=0.0)


def trained_privately(
    how: RecordLevel,
    model: nn.Module,
    start: Tensor,
    features: Tensor,
    labels: Tensor,
    account: Accountant,
    coins: Coins,
) -> Tensor:
    """Return the parameters after a client's epochs from `start`, shape (dimension,).

    What the steps release is recorded in `account`, whose relation must be ADD_REMOVE. `features`
    and `labels` are the client's records, at least one; the model gives the layers alone.
    """
    engine = PrivacyEngine(accountant=lambda relation: account, coins=coins)
    copied = deepcopy(model)
    write(copied, start)
    module, optimizer, loader = engine.make_private(
        module=copied.train(),
        optimizer=torch.optim.SGD(copied.parameters(), lr=how.lr, momentum=how.momentum),
        data_loader=DataLoader(
            TensorDataset(features, labels), batch_size=min(how.batch_size, len(features))
        ),
        noise_multiplier=how.noise_multiplier,
        max_grad_norm=how.max_grad_norm,
    )
    for _ in range(how.epochs):
        for batch, wanted in loader:
            optimizer.zero_grad()
            how.loss(module(batch), wanted).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return read(copied)
