"""Tensors of a CPU, and the arrays that share their memory: slices of arrays cost less."""

from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Values: TypeAlias = Tensor | NDArray[np.floating[Any]]
"""A tensor, or on a CPU the array that shares its memory."""


def bare(values: Tensor) -> Values:
    """Return a CPU's tensor as an array in the same memory, another device's as it is."""
    return values.numpy() if values.is_cpu else values


def tensor_of(values: Values) -> Tensor:
    """Return values as a tensor in the same memory: `as_tensor` would obey a default device."""
    return values if isinstance(values, Tensor) else torch.from_numpy(values)
