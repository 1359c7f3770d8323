"""Compiled loops over values of noise and of gradients: numpy takes twice as long.

Nothing checks sizes here. What one loop calls stands in the same file: the code on disk is renewed
where this file changes.
"""

import math
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ldp.core.compiled import compiled as compiled_on_disk
from ldp.errors import needs

with needs("private training", "train"):
    import numba  # noqa: F401

_LOST = np.finfo(np.float64).tiny / np.finfo(np.float64).eps

_loop = partial(compiled_on_disk, nogil=True, error_model="numpy")
compiled = partial(_loop, fastmath={"contract"})
_compiled_sums = partial(_loop, fastmath={"contract", "reassoc"})


@compiled
def add_rounded(
    sums: NDArray[np.floating[Any]],
    values: NDArray[np.float64],
    deviation: float,
    spacing: float,
    divisor: float,
) -> None:
    """Add values times `deviation` to sums, both rounded to multiples of `spacing`, and divide."""
    per_spacing = 1.0 / spacing  # exact, as are products with it: it is a power of two
    scale = deviation * per_spacing
    unit = spacing / divisor
    for i in range(sums.size):
        total = np.rint(values[i] * scale) + np.rint(np.float64(sums[i]) * per_spacing)
        sums[i] = total * unit


@_compiled_sums
def squares(rows: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Return the float64 sum of each row's squares, with a bound on underflow."""
    found = np.empty(len(rows))
    for i in range(found.size):
        row = rows[i]
        total = row.size * _LOST
        for k in range(row.size):
            value = np.float64(row[k])
            total += value * value
        found[i] = total
    return found


@_compiled_sums
def add_normal_products(
    values: NDArray[np.floating[Any]],
    grads: NDArray[np.floating[Any]],
    eps: float,
    products: NDArray[np.floating[Any]],
    sums: NDArray[np.floating[Any]],
) -> None:
    """Add grads (b, T, d) times values normalised to products (b, d), and grads to sums (b, d).

    A row of values is normalised to mean 0 and variance 1, but for `eps`.
    """
    samples, positions, size = values.shape
    for i in range(samples):
        for t in range(positions):
            row, grad = values[i, t], grads[i, t]
            mean = 0.0
            for k in range(size):
                mean += np.float64(row[k])
            mean /= size
            square = 0.0
            for k in range(size):
                square += (row[k] - mean) ** 2
            scale = products.dtype.type(1.0 / math.sqrt(square / size + eps))
            centre = products.dtype.type(mean)
            for k in range(size):
                products[i, k] += (row[k] - centre) * scale * grad[k]
                sums[i, k] += grad[k]
