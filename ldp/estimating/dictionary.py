"""Regression of RAPPOR's debiased bits on the filters of listed strings."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ldp.core.estimation import Estimate
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.lasting.rappor import RAPPOR

_SMALLEST_EIGENVALUE = 1e-9
"""Least eigenvalue of the scaled normal matrix at which candidates can be told apart."""


def estimate_strings(mechanism: RAPPOR, tally: Tally, candidates: Sequence[str]) -> Estimate:
    """Estimate the frequency of each candidate, and of all other strings together.

    Returns an `Estimate` of shape (len(candidates) + 1,), the last entry being the share of
    strings that are not on the list, one minus the rest.
    Weighted least squares of the debiased bits on the candidates' filters, with an unlisted
    string taken to set any bit with probability hashes / bits, as it does over the choice of
    hashes. Every candidate is in the regression and none is selected by the data first, so the
    intervals cover at their level; a string is found where the lower end of its `simultaneous`
    interval is above 0. The covariance is that of the reports (noise of the bits, and
    sampling of the strings, which ties the bits of one filter together), plus an excess
    variance, estimated from the residuals and never negative, for the unlisted strings' uneven
    filters.
    Needs fewer candidates than the bits of the cohorts that reported. Assumes that cohorts are
    samples of one population. Cost: O(cohorts * bits * m**2) for m candidates.
    Raises `InvalidInput` where there are no reports, for a candidate that is listed twice or is
    no string, and for candidates whose filters cannot be told apart.
    Source: the regression of Erlingsson, Pihur and Korolova, CCS 2014, section 4, without its
    Lasso; White, "A heteroskedasticity-consistent covariance matrix", Econometrica 48(4),
    1980, for the form of the covariance.
    """
    if not tally.n:
        raise InvalidInput("there are no reports to estimate from")
    if len(set(candidates)) < len(candidates) or not candidates:
        raise InvalidInput("the candidates must be one or more different strings")
    reports, ones = mechanism.counts(tally)
    (present,) = np.nonzero(reports)
    n, density = reports[present], mechanism.hashes / mechanism.bits
    p, q = (float(x) for x in mechanism.support)
    shares = (ones[present] / n[:, np.newaxis] - q) / (p - q) - density
    filters = _filters(mechanism, present, candidates)
    design = filters - density
    if design.shape[2] >= shares.size:
        raise InvalidInput(
            f"{len(candidates)} candidates need more than {shares.size} bits of cohorts"
        )

    flat = np.broadcast_to(n[:, np.newaxis] * (p - q) ** 2, shares.shape)
    first, _ = _least_squares(design, shares, flat)
    expected = np.clip(design @ first + density, 0, 1)  # each bit's share of ones, before noise
    one = expected * (p - q) + q
    weights = flat / (one * (1 - one))
    found, bread = _least_squares(design, shares, weights)

    # The covariance of one report's bits: of their noise, and of the string they came from.
    listed = np.clip(first, 0, None)
    other = max(0.0, 1 - listed.sum())
    pairs = density * (mechanism.hashes - 1) / (mechanism.bits - 1)  # of bits of one filter
    noise = expected * p * (1 - p) + (1 - expected) * q * (1 - q)
    meat = np.zeros_like(bread)
    for j, count in enumerate(n):
        together = filters[j] * listed @ filters[j].T + other * pairs
        np.fill_diagonal(together, expected[j])
        together -= np.outer(expected[j], expected[j])
        covariance = together + np.diag(noise[j] / (p - q) ** 2)
        weighted = design[j] * weights[j, :, np.newaxis]
        meat += weighted.T @ (covariance / count) @ weighted

    residual = float((weights * (shares - design @ found) ** 2).sum())
    spread = np.einsum("jiv,ji,jiw->vw", design, weights**2, design, optimize=True)
    # A filter's number of ones is fixed, so uneven ones differ across bits: not independently.
    spread *= mechanism.bits / (mechanism.bits - 1)
    excess = residual - (shares.size - np.vdot(bread, meat))
    excess /= weights.sum() - np.vdot(bread, spread)
    total = bread @ (meat + max(0.0, excess) * spread) @ bread
    return Estimate(
        value=np.append(found, 1 - found.sum()),
        standard_error=np.sqrt(np.append(total.diagonal(), total.sum())),
        n=tally.n,
        bounds=mechanism.bounds,
    )


def _filters(
    mechanism: RAPPOR, cohorts: NDArray[np.intp], candidates: Sequence[str]
) -> NDArray[np.float64]:
    """Return the candidates' filters, shape (cohorts, bits, candidates)."""
    filters = np.zeros((cohorts.size, mechanism.bits, len(candidates)))
    for j, cohort in enumerate(cohorts.tolist()):
        for v, candidate in enumerate(candidates):
            filters[j, list(mechanism.positions(cohort, candidate)), v] = 1
    return filters


def _least_squares(
    design: NDArray[np.float64], shares: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted fit, shape (m,), and the inverse of its normal matrix, (m, m)."""
    columns = design.reshape(-1, design.shape[2])
    weighted = columns * weights.reshape(-1, 1)
    normal = columns.T @ weighted
    scale = np.sqrt(normal.diagonal())
    if np.linalg.eigvalsh(normal / np.outer(scale, scale))[0] < _SMALLEST_EIGENVALUE:
        raise InvalidInput("some candidates set the same bits: more cohorts or bits are needed")
    inverse = np.linalg.inv(normal).astype(np.float64, copy=False)
    return inverse @ (weighted.T @ shares.ravel()), inverse
