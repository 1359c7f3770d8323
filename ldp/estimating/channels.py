"""Products with a channel, by whatever structure it has.

The likelihood of a cohort needs a channel Q[x][y] = Pr[code y | category x] only in products: the
probabilities of codes f Q, sums over codes Q v, and the information Q diag(w) Q'. A dense matrix
does for any; k-RR's takes O(k), and that of shifts takes Fourier transforms.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class ChannelProducts(Protocol):
    """Products with a channel of k categories and so many codes."""

    @property
    def k(self) -> int:
        """The number of categories."""
        ...

    @property
    def codes(self) -> int:
        """The number of codes."""
        ...

    @property
    def mean(self) -> Floats:
        """Each code's probability on average over the categories, shape (codes,)."""
        ...

    def outputs(self, f: Floats) -> Floats:
        """Return the probabilities of the codes, shape (codes,)."""
        ...

    def pull(self, values: Floats) -> Floats:
        """Return sum_y Q[x][y] values[y], shape (k,)."""
        ...

    def information(self, weights: Floats, *, rough: bool = False) -> Floats:
        """Return Q diag(weights) Q' on {x : sum x = 0}: shape (k,) if diagonal, else (k, k).

        `rough` may be as imprecise as single precision: enough to steer a step.
        """
        ...


class DenseProducts:
    """Products with any matrix, shape (k, codes)."""

    def __init__(self, matrix: Floats) -> None:
        self._matrix = matrix
        self.mean: Floats = matrix.mean(axis=0)

    @property
    def k(self) -> int:
        return len(self._matrix)

    @property
    def codes(self) -> int:
        return int(self._matrix.shape[1])

    def outputs(self, f: Floats) -> Floats:
        result: Floats = f @ self._matrix
        return result

    def pull(self, values: Floats) -> Floats:
        result: Floats = self._matrix @ values
        return result

    def information(self, weights: Floats, *, rough: bool = False) -> Floats:
        root = self._matrix - self.mean  # the same on the tangent space, and better conditioned
        if rough:
            root = root.astype(np.float32)
        root *= np.sqrt(weights).astype(root.dtype)
        square: Floats = (root @ root.T).astype(np.float64)
        return square


class DiagonalProducts:
    """Products with Q = 1 a' + d I, as k-RR's is.

    Q diag(w) Q' is d**2 diag(w) up to terms that vanish on {x : sum x = 0}.
    """

    def __init__(self, matrix: Floats, others: Floats) -> None:
        self.mean: Floats = matrix.mean(axis=0)
        self._others = others
        # The rows sum to one, so the diagonal exceeds `others` by the same amount everywhere.
        self._excess = float(1 - others.sum())

    @property
    def k(self) -> int:
        return self._others.size

    @property
    def codes(self) -> int:
        return self._others.size

    def outputs(self, f: Floats) -> Floats:
        result: Floats = f.sum() * self._others + f * self._excess
        return result

    def pull(self, values: Floats) -> Floats:
        result: Floats = self._others @ values + self._excess * values
        return result

    def information(self, weights: Floats, *, rough: bool = False) -> Floats:
        result: Floats = self._excess**2 * weights
        return result


def products(matrix: Floats) -> ChannelProducts:
    """Return the quickest products with a matrix, shape (k, codes)."""
    k, codes = matrix.shape
    if k == codes:
        others = matrix[1].copy()
        others[1] = matrix[0, 1]
        rest = matrix == others
        np.fill_diagonal(rest, True)
        if rest.all():
            return DiagonalProducts(matrix, others)
    return DenseProducts(matrix)
