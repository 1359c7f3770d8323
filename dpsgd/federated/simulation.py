"""A federated training on one machine, with the data of all clients at hand."""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from dpsgd.accounting.events import check_integer
from dpsgd.federated import flat
from dpsgd.federated.attackers import Attack
from dpsgd.federated.drawing import Uniform
from dpsgd.federated.history import History, Round
from dpsgd.federated.local import LocalTrainer, batches
from dpsgd.federated.protection import Protected, Protection, Setting
from dpsgd.federated.records import outputs_of_one
from dpsgd.federated.rules import RULES, mean
from dpsgd.federated.strategies import FedAvg, Strategy
from ldp import InvalidInput

Evaluate = Callable[[nn.Module], float]
Rows = ArrayLike | Tensor


class Federation:
    """Simulate the federated training of a model, on the device that the model is on.

    `features` has shape (n, ...), in float32 unless the model takes integers, and `labels` (n,), in
    int64 for cross-entropy: the records of all clients. `clients` has for each the places of its
    records, as `iid`, `shards` and `dirichlet` return them. `train` says what a client does in a
    round, `strategy` how many take part and how their updates are aggregated, `privacy` how people
    are protected, and `attack` which clients are hostile, if any.
    The same `seed` gives the same training on the same machine, but for layers such as Dropout,
    which take torch's own coins.

    A simulation knows all data, and protects nobody by itself: what it says of privacy holds for a
    training that is run in this way by parties as honest as `privacy` needs them.

    Raises `InvalidInput` where lengths differ, where the model does not take the features or has
    fewer classes than there are labels, for a client without records or with places beyond n
    or that occur twice, in one client or in two, for a model that `dpsgd.federated.flat.trained`
    refuses, where a round has too few clients for the strategy's rule, and for any rule but "mean",
    or weights by records, with `privacy`: no other rule has a bounded sensitivity.
    """

    def __init__(
        self,
        model: nn.Module,
        features: Rows,
        labels: Rows,
        *,
        clients: Sequence[NDArray[np.int64]],
        train: LocalTrainer,
        strategy: Strategy,
        privacy: Protection | None = None,
        attack: Attack | None = None,
        seed: int = 0,
    ) -> None:
        self._model = flat.read(model)
        self.model = model
        device = self._model.device
        features, labels = torch.as_tensor(features), torch.as_tensor(labels)
        sizes = _check_clients(clients, len(features), len(labels))
        self._per_round = strategy.per_round(len(clients))
        if privacy is not None:
            _check_private(strategy)
        self._hostile = frozenset(attack.clients if attack else ())
        if beyond := [client for client in self._hostile if client >= len(clients)]:
            raise InvalidInput(f"there are {len(clients)} clients, and {beyond[0]} is none of them")
        if attack:
            labels = _poisoned(labels, [clients[i] for i in sorted(self._hostile)], attack)
        self._rows = [torch.as_tensor(rows).to(device) for rows in clients]
        self._sizes = sizes
        self._strategy, self._privacy, self._attack = strategy, privacy, attack
        self._seed = check_integer("seed", seed, 0)
        self._devices = train.start(model, features.to(device), labels.to(device))
        self._protected: Protected | None = None
        self._fitted = False

    def fit(
        self,
        rounds: int,
        *,
        evaluate: Evaluate | None = None,
        progress: Callable[[Round], object] | None = None,
    ) -> History:
        """Train for so many rounds, and return what came of each. The model is trained in place.

        After each round `evaluate` is called with the model in eval mode, without gradients, and
        then `progress` with the round; where that returns something true, the training ends.
        Raises `InvalidInput` unless rounds >= 1, on a second call, since the rounds of one training
        are protected together, and where updates have nan or inf: the model is then the last
        round's.
        """
        check_integer("rounds", rounds, 1)
        if self._fitted:
            raise InvalidInput("this federation was fitted before: make a new one")
        setting = Setting(
            clients=len(self._rows),
            per_round=self._per_round,
            rounds=rounds,
            dimension=len(self._model),
            seed=self._seed,
        )
        if self._privacy is not None:
            self._protected = self._privacy.start(setting)
        self._fitted = True
        drawing = self._protected or Uniform(setting.clients, setting.per_round)
        rng = np.random.default_rng(self._seed)
        model = self._model.cpu().numpy()
        state = self._strategy.optimizer.initial(setting.dimension)
        history: list[Round] = []
        for number in range(1, rounds + 1):
            clients = drawing.draw(number, rng)
            update = self._aggregate(number, clients)
            model, state = self._strategy.optimizer.step(model, update, state)
            self._model = torch.as_tensor(model).to(self._model.device)
            flat.write(self.model, self._model)
            history.append(self._told(number, clients, evaluate))
            if progress is not None and progress(history[-1]):
                break
        return History(tuple(history))

    def get_epsilon(self, delta: float) -> float:
        """Return the epsilon, at this delta, of what the rounds so far reveal of a person.

        It is inf without `privacy`. Which pairs of data sets it is about, and who must be honest,
        the kind of privacy says.
        """
        if self._privacy is None:
            return math.inf
        return 0.0 if self._protected is None else self._protected.get_epsilon(delta)

    def get_record_epsilon(self, delta: float) -> float:
        """Return the largest epsilon of what the updates so far reveal of any single record.

        It is inf unless clients train privately themselves.
        """
        return self._devices.get_epsilon(delta)

    def _aggregate(self, number: int, clients: NDArray[np.int64]) -> NDArray[np.floating]:
        updates = self._updates(number, clients)
        if self._protected is not None:
            return self._protected.aggregate(number, clients, updates)
        if self._strategy.rule == "mean":
            equal = isinstance(self._strategy, FedAvg) and self._strategy.weights == "equal"
            return mean(updates, None if equal else self._sizes[clients].tolist())
        return RULES[self._strategy.rule](list(updates), self._strategy.hostile_updates)

    def _updates(self, number: int, clients: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        """Yield the update of each client, as it is sent."""
        hostile = [client for client in clients if client in self._hostile]
        if self._attack is None or not hostile or len(hostile) == len(clients):
            yield from (self._trained(number, client) for client in clients)
            return
        found = {client: self._trained(number, client) for client in clients}
        honest = np.stack([own for client, own in found.items() if client not in self._hostile])
        forged = self._attack.forge(honest)
        if forged is not None:
            found |= dict.fromkeys(hostile, forged.astype(np.float32))
        yield from found.values()

    def _trained(self, number: int, client: np.int64) -> NDArray[np.float32]:
        coins = np.random.default_rng((self._seed, number, int(client)))
        seed = int(coins.integers(2**63))
        update = self._devices.update(int(client), self._rows[client], self._model, seed)
        found: NDArray[np.float32] = update.cpu().numpy()
        return found

    def _told(self, number: int, clients: NDArray[np.int64], evaluate: Evaluate | None) -> Round:
        score = None
        if evaluate is not None:
            was_training = self.model.training
            with torch.no_grad():
                score = float(evaluate(self.model.eval()))
            self.model.train(was_training)
        of_model = 4 * len(self._model)
        of_update = of_model if self._protected is None else self._protected.bytes_up
        taking = tuple(int(client) for client in clients)
        return Round(number, taking, score, len(taking) * of_update, len(taking) * of_model)


class Accuracy:
    """Evaluate a classifier: the share of records whose label has the largest output.

    `features` has shape (n, ...) and `labels` (n,). Raises `InvalidInput` unless there are as many,
    at least 1.
    """

    def __init__(self, features: Rows, labels: Rows, *, batch_size: int = 4096) -> None:
        self._features, self._labels = torch.as_tensor(features), torch.as_tensor(labels)
        self._batch_size = check_integer("batch_size", batch_size, 1)
        if not len(self._features) == len(self._labels) >= 1:
            raise InvalidInput(
                f"there are {len(self._features)} features and {len(self._labels)} labels"
            )

    def __call__(self, model: nn.Module) -> float:
        """Return the accuracy of a model, in [0, 1]; raise `InvalidInput` where they do not fit."""
        device = next(model.parameters()).device
        self._features, self._labels = self._features.to(device), self._labels.to(device)
        outputs_of_one(model, self._features)
        right = 0
        for features, labels in batches(self._batch_size, self._features, self._labels):
            right += int((model(features).argmax(1) == labels).sum())
        return right / len(self._labels)


def _check_clients(
    clients: Sequence[NDArray[np.int64]], features: int, labels: int
) -> NDArray[np.int64]:
    """Return how many records each client has."""
    if features != labels:
        raise InvalidInput(f"there are {features} features and {labels} labels")
    check_integer("the number of clients", len(clients), 1)
    for i, rows in enumerate(clients):
        places = np.asarray(rows)
        if places.ndim != 1 or places.size == 0 or places.dtype.kind not in "iu":
            raise InvalidInput(f"client {i} must have the places of its records, at least 1")
        if places.min() < 0 or places.max() >= features:
            raise InvalidInput(f"client {i} has places beyond the {features} records")
    counts = np.bincount(np.concatenate([np.asarray(rows) for rows in clients]))
    if (most := counts.max()) > 1:
        raise InvalidInput(
            f"record {counts.argmax()} occurs {most} times in clients: each record must belong to "
            "one client, once, as privacy is counted by client and record"
        )
    return np.array([len(rows) for rows in clients])


def _check_private(strategy: Strategy) -> None:
    if strategy.rule != "mean":
        raise InvalidInput(
            f"{strategy.rule} cannot be used with privacy: one person can move it further than any "
            "bound that noise could hide; use FedAvg, FedAdam or FedYogi"
        )
    if isinstance(strategy, FedAvg) and strategy.weights == "records":
        raise InvalidInput(
            'weights must be "equal" with privacy, got "records": how many records a client has is '
            "its own, and a heavy client would move the sum further"
        )


def _poisoned(labels: Tensor, hostile: Sequence[NDArray[np.int64]], attack: Attack) -> Tensor:
    labels = labels.clone()
    for rows in hostile:
        labels[torch.as_tensor(rows)] = torch.as_tensor(attack.poison(labels[rows].cpu().numpy()))
    return labels
