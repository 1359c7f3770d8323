"""A small training, its updates, and what is stored of it, for tests of the server's rounds."""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hearsay.federated import models
from hearsay.federated.calls import PART
from hearsay.federated.declaration import Training
from hearsay.federated.parsing import parse
from hearsay.v1 import training_pb2
from hearsay_server.storage import models as stored_models
from hearsay_server.storage import rounds, trainings, updates
from hearsay_server.storage.database import Database
from hearsay_server.storage.updates import Outcome, Part, Place
from hearsay_server.trainings import aggregation

NOW = datetime(2026, 7, 4, 12, tzinfo=UTC)
SEED = bytes.fromhex("5a19c3") * 10 + b"!?"
PERIOD = timedelta(seconds=600)


def first_model(dimension: int = 6) -> bytes:
    """Return the file of a model of zeros, of two tensors."""
    tensors = {"w": np.zeros((1, dimension - 1), np.float32), "b": np.zeros(1, np.float32)}
    return models.write(tensors)


def declared(protection: str = "record_level", dimension: int = 6, **fields: Any) -> bytes:
    """Return the frozen bytes of a training, by mean with central noise, else by median."""
    wire = training_pb2.Training(
        name="digits",
        title="A test.",
        architecture="2nn",
        initial=hashlib.sha256(first_model(dimension)).digest(),
        dimension=dimension,
        rounds=4,
        round_seconds=int(PERIOD.total_seconds()),
        updates_per_round=3,
        min_updates=2,
        participations=2,
        separation=2,
        max_update_norm=1.0,
    )
    wire.local.epochs, wire.local.learning_rate = 1, 0.1
    wire.aggregation.rule = "median" if protection == "record_level" else "mean"
    wire.aggregation.optimizer, wire.aggregation.learning_rate = "sgd", 1.0
    wire.aggregation.momentum = 0.5
    wire.encoding.kind = "float32"
    if protection == "central":
        wire.central.mechanism, wire.central.bands = "toeplitz", 2
        wire.central.noise_multiplier_millionths = 1_000_000
    else:
        wire.record_level.noise_multiplier_millionths = 1_000_000
        wire.record_level.max_grad_norm = 1.0
    for name, value in fields.items():
        setattr(wire, name, value)
    return wire.SerializeToString(deterministic=True)


def register(database: Database, data: bytes | None = None, seed: bytes = SEED) -> Training:
    """Upload the first model and create a training, with a seed."""
    data = data or declared()
    training = parse(data)
    file = first_model(training.dimension)
    for offset in range(0, len(file), PART):
        part = file[offset : offset + PART]
        stored_models.put(database, training.initial, len(file), offset, part, NOW)
    trainings.create(database, data, NOW, draw=lambda size: seed[:size])
    return training


def vector(number: int, dimension: int = 6) -> NDArray[np.float32]:
    """Return the update of one device, of a norm below 1."""
    drawn = np.random.default_rng(number).normal(size=dimension)
    return (drawn / (1.1 * np.linalg.norm(drawn))).astype(np.float32)


def part(database: Database, of: Training, number: int, **fields: Any) -> Part:
    """Return the whole update of one device to the newest round, with other fields if given."""
    newest = rounds.newest(database, of.name)
    payload = vector(number, of.dimension).tobytes()
    known = {
        "id": number.to_bytes(16, "little"),
        "training": of.name,
        "revision": of.revision,
        "round": newest.round,
        "model": newest.model,
        "size": len(payload),
        "data": payload,
    }
    return Part(**{**known, **fields})


def send(database: Database, training: Training, *numbers: int, **fields: Any) -> list[Outcome]:
    """Count the whole updates of some devices, each checked before as the service does."""
    outcomes = []
    for number in numbers:
        sent = part(database, training, number, **fields)
        found = updates.look(database, sent, NOW)
        outcomes.append(updates.count(database, sent, NOW) if isinstance(found, Place) else found)
    return outcomes


def aggregate(database: Database, training: Training, now: datetime = NOW) -> bool:
    """Aggregate the newest round, which is closed."""
    newest = rounds.newest(database, training.name)
    work = rounds.work(database, training, newest.round)
    assert work is not None
    return rounds.store(database, work, *made(database, work), now)


def made(database: Database, work: rounds.Work) -> tuple[bytes, bytes | None]:
    """Return the model and the optimizer's state that a closed round makes."""
    found = rounds.payloads(database, work.training, work.round)
    vectors = (np.frombuffer(payload, "<f4") for payload in found)
    return aggregation.next_model(
        work.training,
        work.round,
        work.file,
        vectors,
        since=work.since,
        noise=aggregation.noise_of(work.training, work.seed),
        state=work.optimizer,
    )


def states(database: Database, training: Training) -> Sequence[tuple[int, str, int]]:
    """Return the number, the state and the updates of each round."""
    return [(r.round, r.state, r.updates) for r in trainings.rounds(database, training.name)]
