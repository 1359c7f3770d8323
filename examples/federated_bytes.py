"""Measure what fewer bytes per update cost: `python federated_bytes.py FOLDER`.

FOLDER has the idx files of MNIST. FedAvg trains the network of two hidden layers of 200 (199,210
parameters) of McMahan et al. (AISTATS 2017) on 100 clients, of which 10 take part in a round, IID,
one epoch in batches of 10. Each update is written and read as a device and a server do it, by
`hearsay.federated.encoding`. The table has the bytes of an update and the test accuracy after 5
and 10 rounds.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from idx import load
from torch import Tensor, nn

from dpsgd.federated import Accuracy, FedAvg, Federation, LocalSGD, iid
from dpsgd.federated.architectures import build
from dpsgd.federated.local import Device, LocalTrainer
from hearsay.federated.declaration import Training
from hearsay.federated.encoding import decode, encode, size
from hearsay.federated.parsing import parse
from hearsay.v1 import training_pb2
from ldp import Coins

ROUNDS = (5, 10)
ENCODINGS = {  # kind, bits, coordinates, max_update_norm
    "float32": ("float32", 0, 0, 10.0),
    "quantized, 8 bits": ("quantized", 8, 0, 10.0),
    "quantized, 4 bits": ("quantized", 4, 0, 10.0),
    "quantized, 2 bits": ("quantized", 2, 0, 10.0),
    "a tenth of the coordinates": ("float32", 0, 19_921, 10.0),
    "a tenth, 8 bits": ("quantized", 8, 19_921, 10.0),
    "a tenth, 8 bits, bound of 2": ("quantized", 8, 19_921, 2.0),
}


def declared(kind: str, bits: int, coordinates: int, norm: float, dimension: int) -> Training:
    """Return a training whose updates are written in this way."""
    message = training_pb2.Training(
        name="digits",
        title="Digits",
        architecture="2nn",
        initial=bytes(32),
        dimension=dimension,
        rounds=100,
        round_seconds=60,
        updates_per_round=10,
        min_updates=1,
        participations=100,
        separation=1,
        local={"epochs": 1, "batch_size": 10, "learning_rate": 0.1},
        max_update_norm=norm,
        aggregation={"rule": "mean", "optimizer": "sgd", "learning_rate": 1},
        encoding={"kind": kind, "bits": bits, "coordinates": coordinates},
        record_level={"noise_multiplier_millionths": 1_000_000, "max_grad_norm": 1},
    )
    return parse(message.SerializeToString(deterministic=True))


@dataclass(frozen=True)
class Sent:
    """Train as `train` does, and return what a server reads of each update."""

    train: LocalTrainer
    training: Training

    def start(self, model: nn.Module, features: Tensor, labels: Tensor) -> Device:
        """Return the devices of a training."""
        return _Devices(self.train.start(model, features, labels), self.training)


class _Devices:
    def __init__(self, devices: Device, training: Training) -> None:
        self._devices, self._training = devices, training

    def update(self, client: int, rows: Tensor, model: Tensor, seed: int) -> Tensor:
        made = self._devices.update(client, rows, model, seed)
        payload = encode(self._training, made.cpu().numpy(), Coins())
        return torch.as_tensor(np.array(decode(self._training, payload))).to(made.device)

    def get_epsilon(self, delta: float) -> float:
        return self._devices.get_epsilon(delta)


def network() -> nn.Module:
    """Return the network of two hidden layers, the same each time."""
    return nn.Sequential(nn.Flatten(), build("2nn", 784, 10))


def main(folder: Path) -> None:
    """Write the table, row by row."""
    train, test = load(folder)
    features, held_out = (split.images.astype(np.float32) / 255 for split in (train, test))
    labels, wanted = (split.labels.astype(np.int64) for split in (train, test))
    clients = iid(labels, 100, rng=np.random.default_rng(0))
    for name, how in ENCODINGS.items():
        model = network()
        training = declared(*how, sum(each.numel() for each in model.parameters()))
        federation = Federation(
            model,
            features,
            labels,
            clients=clients,
            train=Sent(LocalSGD(lr=0.1, batch_size=10), training),
            strategy=FedAvg(fraction_fit=0.1),
        )
        accuracy = Accuracy(held_out, wanted)
        history = federation.fit(max(ROUNDS), evaluate=accuracy)
        found = [f"{100 * (history.rounds[n - 1].score or 0):.1f}%" for n in ROUNDS]
        sys.stdout.write(f"| {' | '.join([name, f'{size(training):,}', *found])} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
