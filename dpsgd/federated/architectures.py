"""Models for trying a training on one machine: the app of a real one brings its own."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ldp import InvalidInput

_HIDDEN = 200
"""Units of each hidden layer of "2nn" (McMahan et al., AISTATS 2017, section 3)."""

NAMES = ("softmax", "2nn")


def build(name: str, features: int, classes: int, seed: int = 0) -> nn.Module:
    """Return a model with weights drawn from a seed.

    "softmax" is one linear layer; "2nn" has two hidden layers of 200 units with ReLU. Both take
    float features, shape (n, features), and return the logits of the classes, shape (n, classes).
    Raises `InvalidInput` for another name, or fewer than one feature or two classes.
    """
    if name not in NAMES:
        raise InvalidInput(f"architecture must be one of {', '.join(NAMES)}, got {name!r}")
    if features < 1 or classes < 2:
        raise InvalidInput(
            f"a model needs features and at least two classes, got {features} and {classes}"
        )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        if name == "softmax":
            return nn.Sequential(nn.Linear(features, classes))
        return nn.Sequential(
            nn.Linear(features, _HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, _HIDDEN),
            nn.ReLU(),
            nn.Linear(_HIDDEN, classes),
        )


def from_tensors(name: str, tensors: Mapping[str, NDArray[Any]]) -> nn.Module:
    """Return the model of an architecture that has these weights, by their names in `build`'s.

    Raises `InvalidInput` where they are not those of a model of this architecture.
    """
    weights = [tensor for key, tensor in tensors.items() if key.endswith("weight")]
    if not weights or any(weight.ndim != 2 for weight in weights):
        raise InvalidInput(f"a model of {name!r} has matrices of weights, got {_shapes(tensors)}")
    ordered = [tensors[key] for key in sorted(tensors) if key.endswith("weight")]
    model = build(name, ordered[0].shape[1], ordered[-1].shape[0])
    expected = {key: tuple(value.shape) for key, value in model.state_dict().items()}
    if expected != {key: tensor.shape for key, tensor in tensors.items()}:
        raise InvalidInput(
            f"a model of {name!r} with {ordered[0].shape[1]} features and {ordered[-1].shape[0]} "
            f"classes has {_listed(expected)}; this one has {_shapes(tensors)}"
        )
    model.load_state_dict(
        {key: torch.from_numpy(np.array(tensor)) for key, tensor in tensors.items()}
    )
    return model


def to_tensors(model: nn.Module) -> dict[str, NDArray[np.float32]]:
    """Return a model's weights by name, as float32 arrays of their own."""
    return {
        key: value.detach().to("cpu", torch.float32).numpy().copy()
        for key, value in model.state_dict().items()
    }


def _shapes(tensors: Mapping[str, NDArray[Any]]) -> str:
    return _listed({key: tensor.shape for key, tensor in tensors.items()})


def _listed(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{key} {shape}" for key, shape in sorted(shapes.items()))
