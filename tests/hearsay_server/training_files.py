"""A training's file and its first model, for tests of what is declared."""

from pathlib import Path

import numpy as np

from hearsay.federated import models
from hearsay_server.trainings.training import Declared, from_file

TRAINING = """
[training]
name = "digits"
title = "Handwritten digits"
architecture = "softmax"
model = "digits.safetensors"
rounds = 100
round_seconds = 3600
updates_per_round = 20
min_updates = 10
participations = 4
separation = 25
max_update_norm = 1.5

[training.local]
batch_size = 10
learning_rate = 0.1

[training.central]
noise_multiplier = 2.0000001
"""

MODEL = models.write({"0.weight": np.ones((3, 2), np.float32), "0.bias": np.zeros(3, np.float32)})


def written(folder: Path, toml: str = TRAINING, model: bytes = MODEL) -> Path:
    """Write a training's file beside its first model."""
    (folder / "digits.safetensors").write_bytes(model)
    (folder / "digits.toml").write_text(toml)
    return folder / "digits.toml"


def declared(folder: Path, toml: str = TRAINING, model: bytes = MODEL) -> Declared:
    """Return a training that is read from its file."""
    return from_file(written(folder, toml, model))
