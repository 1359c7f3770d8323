"""A declared training for tests, and its bytes."""

from typing import Any

from hearsay.federated.declaration import Training
from hearsay.federated.parsing import parse
from hearsay.v1 import training_pb2


def declared(**fields: Any) -> training_pb2.Training:
    """Return a training that is valid, with noise of the server unless `fields` say otherwise."""
    training = training_pb2.Training(
        name="digits",
        title="Handwritten digits",
        architecture="2nn",
        initial=bytes(32),
        dimension=10,
        rounds=100,
        round_seconds=60,
        updates_per_round=20,
        min_updates=10,
        participations=4,
        separation=25,
        local={"epochs": 1, "batch_size": 10, "learning_rate": 0.1},
        max_update_norm=1.0,
        aggregation={"rule": "mean", "optimizer": "sgd", "learning_rate": 1.0},
        encoding={"kind": "float32"},
        central={
            "mechanism": "toeplitz",
            "bands": 25,
            "noise_multiplier_millionths": 2_000_000,
        },
    )
    training.MergeFrom(training_pb2.Training(**fields))
    return training


def frozen(training: training_pb2.Training) -> bytes:
    """Return a training's canonical bytes."""
    data: bytes = training.SerializeToString(deterministic=True)
    return data


def parsed(**fields: Any) -> Training:
    """Return a training as both sides read it."""
    return parse(frozen(declared(**fields)))
