"""Linear algebra for distributions: on the simplex, and on its tangent space {x : sum x = 0}.

A curvature (or information) is symmetric and positive there; it is an array of shape (k,) if
diagonal, else (k, k).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.linalg.lapack import dpotri

from ldp.errors import InvalidInput

Floats = NDArray[np.float64]


def maximize_quadratic(curvature: Floats, slope: Floats, free: NDArray[np.bool_]) -> Floats:
    """Maximise slope . x - x' curvature x / 2 over distributions x, shape (k,).

    `curvature` must be positive definite, and `free` the active set to start from, not empty.
    Exchanges all coordinates on the wrong side of the active set at once, and one at a time
    when that stops helping, which always ends (Kim and Park, "Fast nonnegative matrix
    factorization", SIAM J. Sci. Comput. 33(6), 2011).
    """
    free = free.copy()
    fewest, patience = free.size + 1, 3
    x = np.zeros(free.size)
    for _ in range(10 * free.size + 100):  # rounding could make it cycle; then x is near enough
        x = np.zeros(free.size)
        if curvature.ndim == 1:
            inverse = 1 / curvature[free]
            level = (inverse @ slope[free] - 1) / inverse.sum()
            x[free] = inverse * (slope[free] - level)
            dual = slope - level
        else:
            factor = _cholesky(curvature[np.ix_(free, free)])
            right = np.stack([slope[free], np.ones(int(free.sum()))], axis=1)
            both = cho_solve(factor, right, check_finite=False)
            level = (both[:, 0].sum() - 1) / both[:, 1].sum()
            x[free] = both[:, 0] - level * both[:, 1]
            dual = slope - curvature @ x - level
        wrong = np.where(free, x < 0, dual > 1e-12 * np.abs(slope).max())
        count = int(wrong.sum())
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, 3
        elif patience:
            patience -= 1
        else:
            wrong[: np.flatnonzero(wrong)[-1]] = False
        free ^= wrong
    return np.maximum(x, 0)


def definite(information: Floats) -> Floats:
    """Return a positive definite curvature, with a ridge where the channels are nearly alike.

    Categories that no channel tells apart are refused later, where it matters.
    """
    if information.ndim == 1:
        floored: Floats = np.maximum(information, 1e-12 * information.max() + 1e-300)
        return floored
    matrix = _bordered(information)
    unit = np.diag(matrix).mean()
    for ridge in (0.0, 1e-9, 1e-6, 1e-3):
        candidate = matrix + ridge * unit * np.eye(len(matrix)) if ridge else matrix
        try:
            pivots = np.diag(_cholesky(candidate.copy())[0])
        except LinAlgError:
            continue
        if pivots.min() ** 2 > 1e-12 * unit:
            break
    return candidate


def tangent_inverse(information: Floats) -> Floats:
    """Return T (T' I T)**-1 T', T spanning {x : sum x = 0}; shape (k, k).

    Raises `InvalidInput` where the information is singular there.
    """
    indistinct = InvalidInput("the cohorts' channels do not tell all categories apart")
    if information.ndim == 1:
        if information.min() <= 0:
            raise indistinct
        inverted = np.diag(1 / information)
    else:
        try:
            factor = _cholesky(_bordered(information))
        except LinAlgError:
            raise indistinct from None
        pivots = np.diag(factor[0])
        if (pivots.min() / pivots.max()) ** 2 < 1e-13:
            raise indistinct
        inverted = _inverse(factor[0])
    across = inverted.sum(axis=1)
    result: Floats = inverted - np.outer(across, across) / across.sum()
    return result


def tangent_pseudoinverse(information: Floats) -> tuple[Floats, int]:
    """Return `tangent_inverse` and its rank, k - 1; where singular, a ridge's and a smaller rank.

    Where the information is not singular the ridge's inverts it, to about 1e-6.
    """
    size = len(information)
    try:
        return tangent_inverse(information), size - 1
    except InvalidInput:
        ridge = 1e-10 * float(np.trace(information)) / size
        if not ridge:
            return np.zeros((size, size)), 0
        inverted = tangent_inverse(information + ridge * np.eye(size))
        return inverted, size - 1 - round(ridge * float(np.trace(inverted)))


def inverse(matrix: Floats) -> Floats:
    """Return the inverse of a positive definite matrix, shape (k, k).

    Raises `InvalidInput` where it is not definite.
    """
    try:
        return _inverse(_cholesky(matrix.copy())[0])
    except LinAlgError:
        raise InvalidInput("a covariance is not positive definite") from None


def _bordered(information: Floats) -> Floats:
    """Return the information made definite off the tangent space too, where its value is free."""
    bordered: Floats = information + np.trace(information) / len(information)
    return bordered


def _inverse(factor: Floats) -> Floats:
    """Return the inverse of a matrix from its lower Cholesky factor, which is overwritten."""
    lower = dpotri(factor, lower=1, overwrite_c=1)[0]
    full: Floats = np.tril(lower) + np.tril(lower, -1).T
    return full


def _cholesky(matrix: Floats) -> tuple[Floats, bool]:
    """Return the Cholesky factor of a symmetric matrix, in place; LAPACK wants it transposed."""
    factor: tuple[Floats, bool] = cho_factor(
        matrix.T, lower=True, overwrite_a=True, check_finite=False
    )
    return factor
