"""The channel of least variance that a policy allows, with a certificate.

The information of a channel is linear in the weights of its columns, and columns that keep a
policy are mixtures of the extreme rays of a cone. So the least variance is a convex program over
weights of rays, with one row-sum constraint per class: values of a class are alike, hence by
convexity some best channel treats them alike too.
"""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.policy import Policy
from ldp.errors import InvalidInput
from ldp.mechanisms import PolicySubsets, PolicyTable, SubsetSelection
from ldp.planning.columns import realise, subset_columns
from ldp.planning.rays import Pool, Prices, Rays

Floats = NDArray[np.float64]

_ROUNDS = 200
_NEWTON = 200
_ENOUGH = 1e-11
_ACTIVE = 1e-7
_CHEAP = 1 << 22
"""The most columns of a policy that are all priced rather than searched."""

_BATCH = 24
"""Columns added between two solutions."""


@dataclass(frozen=True)
class Design:
    """A mechanism that keeps the policy, its variance, and a lower bound over all channels.

    `variance` is the variance of one report, summed over the values, of the efficient estimate
    at the planned frequencies; that of n reports is 1/n of it. No channel that keeps the policy
    has less than `bound` there, by duality; where the classes are too large for all columns to
    be looked at, `certified` is False, and the bound holds for the columns that were.
    """

    mechanism: PolicyTable | PolicySubsets
    variance: float
    bound: float
    certified: bool

    @property
    def gap(self) -> float:
        """The variance that might still be saved, relative to the bound."""
        return self.variance / self.bound - 1


def design(policy: Policy, frequencies: ArrayLike | None = None, *, gap: float = 1e-8) -> Design:
    """Return the channel under `policy` of least summed variance, to a relative `gap`.

    `frequencies`, shape (k,), is the population planned for; uniform where none is given. Its
    totals by class count, because values of a class are treated alike. For one class it is
    subset selection of the best size (Ye and Barg 2018); otherwise column generation: solve for
    the weights of a few columns by an interior point method, price all others by the dual
    solution, add the best of them, until none would help.
    Raises `InvalidInput` for frequencies that are no distribution, or zero for a whole class,
    and for policies with so many different distances that their columns cannot be listed.
    Source: A-optimal design (Fedorov, 1972); extremal channels as in Kairouz, Oh and Viswanath,
    JMLR 17, 2016; column generation with the dual bound of a convex program.
    """
    masses = _class_masses(policy, frequencies)
    if len(policy.sizes) == 1:
        best = SubsetSelection(policy.k, policy.epsilon)
        variance = float(best.variance(np.full(policy.k, 1 / policy.k), 1).sum())
        columns = subset_columns(policy, best.size)
        return Design(realise(policy, columns), variance, variance, True)
    pool = Pool(policy, masses)
    rays, weights, variance, bound = _generate(pool, gap)
    exact = [
        (column, Fraction(float(weight)))
        for column, weight in zip(pool.columns(rays), weights, strict=True)
    ]
    return Design(realise(policy, exact), variance, bound, pool.complete)


def _class_masses(policy: Policy, frequencies: ArrayLike | None) -> Floats:
    if frequencies is None:
        return np.array(policy.sizes) / policy.k
    f = np.asarray(frequencies, dtype=float)
    if f.shape != (policy.k,) or not (f.min() >= 0 and abs(f.sum() - 1) <= 1e-9):  # nan too
        raise InvalidInput(f"frequencies must be a distribution of {policy.k} values")
    masses = np.bincount(np.array(policy.classes), weights=f)
    if masses.min() <= 0:
        raise InvalidInput(
            f"planned frequencies must not be zero for a whole class, got {masses.tolist()}"
        )
    shares: Floats = masses / masses.sum()
    return shares


def _generate(pool: Pool, gap: float) -> tuple[Rays, Floats, float, float]:
    """Return columns, their weights, the summed variance, and a lower bound of it."""
    rays, bound = pool.start(), 0.0
    constant = float((pool.masses**2 / pool.counts).sum())  # of n Var, for every channel
    for _ in range(_ROUNDS):
        weights, rows = _solve(pool, rays)
        trace, prices = _prices(pool, rays, weights, rows)
        all_of_them = pool.columns_in_all <= _CHEAP
        if not all_of_them:
            excess, found = pool.search(prices, _BATCH)
            all_of_them = pool.complete and excess <= gap * trace / 4
        if all_of_them:
            excess, found = pool.price(prices, _BATCH)
        # With prices lowered by the excess no column is worth adding: they are feasible for the
        # dual of the program linearised at the weights, where the trace is of degree -1.
        bound = max(bound, 2 * trace + float(rows.sum()) - max(excess, 0.0))
        rays = rays.where(weights > _ACTIVE * weights.max())
        if trace - bound <= gap * trace or not found.pattern.size:
            break
        rays = rays.joined(found)
    needed = _basis(rays, _solve(pool, rays)[0])
    rays = rays.where(needed)
    weights, rows = _solve(pool, rays)
    trace, _ = _prices(pool, rays, weights, rows)
    return rays, weights, trace - constant, bound - constant


def _information(pool: Pool, rays: Rays, weights: Floats) -> tuple[Floats, Floats]:
    """Return the information: eigenvalues within classes, and the matrix on their unit vectors."""
    scaled = weights / rays.output
    unit = rays.mean * np.sqrt(pool.counts)
    return scaled @ rays.spread, (unit * scaled[:, None]).T @ unit


def _basis(rays: Rays, weights: Floats) -> NDArray[np.bool_]:
    """Return the mask of columns that can make the same information: as few as it has entries.

    Source: Caratheodory's theorem: where columns are linearly dependent, weights can move along
    the dependence, information unchanged, until one of them is zero.
    """
    a, b = np.triu_indices(rays.mean.shape[1])
    entries = np.column_stack([rays.spread, rays.mean[:, a] * rays.mean[:, b]])
    share = entries * (weights / rays.output)[:, None]
    left = np.arange(weights.size)
    factor = np.ones(weights.size)
    while left.size > share.shape[1]:
        dependence = np.linalg.svd((share[left] * factor[left, None]).T)[2][-1]
        dependence /= dependence[np.abs(dependence).argmax()]
        factor[left] *= np.maximum(1 - dependence, 0)
        left = left[1 - dependence > _ACTIVE]
    chosen = np.zeros(weights.size, dtype=np.bool_)
    chosen[left] = True
    return chosen


def _prices(pool: Pool, rays: Rays, weights: Floats, rows: Floats) -> tuple[float, Prices]:
    """Return the inverse information's trace, and the prices by which columns reduce it."""
    within, between = _information(pool, rays, weights)
    safe = np.where(pool.counts > 1, within, 1)
    inverse, root = np.linalg.inv(between), np.sqrt(pool.counts)
    variances = (pool.counts - 1) / safe
    trace = float(variances.sum() + np.trace(inverse))
    return trace, Prices(variances / safe, root[:, None] * (inverse @ inverse) * root, rows)


def _solve(pool: Pool, rays: Rays) -> tuple[Floats, Floats]:
    """Return the weights of least trace, shape (T,), and the prices of the row sums, shape (C,).

    A primal-dual interior point method: Newton steps for mean' weights = 1,
    gradient = mean rows + slack and weights slack = mu, with mu falling to zero. Columns are in
    units of their mean level, and the trace of its start.
    """
    size, classes = rays.mean.shape
    level = rays.mean.mean(axis=1)
    mean = rays.mean / level[:, None]
    weights = np.full(size, 1 / mean.sum(axis=0).max())
    unit = -float(_derivatives(pool, rays, weights / level)[0] @ (weights / level))
    rows, slack = np.zeros(classes), np.full(size, 1 / weights.sum())
    kkt = np.zeros((size + classes, size + classes))
    kkt[:size, size:], kkt[size:, :size] = -mean, mean.T
    for _ in range(_NEWTON):
        gradient, hessian = _derivatives(pool, rays, weights / level)
        gradient, hessian = gradient / level / unit, hessian / np.outer(level, level) / unit
        missing = 1 - weights @ mean
        dual = gradient - mean @ rows - slack
        complement = float(weights @ slack)
        trace = -float(gradient @ weights)  # of degree -1 in the weights
        lack = max(complement, np.abs(dual).max()) / trace
        if lack < _ENOUGH and np.abs(missing).max() < _ENOUGH:
            break
        target = 0.1 * complement / size / weights
        kkt[:size, :size] = hessian + np.diag(slack / weights)
        try:
            move = np.linalg.solve(kkt, np.append(target - slack - dual, missing))
        except np.linalg.LinAlgError:
            break  # as near as doubles come; the bound says how near
        change = move[:size], target - slack - slack / weights * move[:size]
        # Not quite to where the first weight or slack would vanish.
        falls = [-d / now for now, d in zip((weights, slack), change, strict=True)]
        reach = min(1.0, 0.99 / max(1e-9, *(float(fall.max()) for fall in falls)))
        weights, slack = weights + reach * change[0], slack + reach * change[1]
        rows = rows + reach * move[size:]
    return weights / level, rows * unit


def _derivatives(pool: Pool, rays: Rays, weights: Floats) -> tuple[Floats, Floats]:
    """Return the gradient, shape (T,), and Hessian, shape (T, T), of the trace."""
    within, between = _information(pool, rays, weights)
    safe = np.where(pool.counts > 1, within, 1)
    slope = (pool.counts - 1) / safe**2
    spread = rays.spread / rays.output[:, None]
    along = rays.mean * np.sqrt(pool.counts / rays.output[:, None])
    across = np.linalg.solve(between, along.T)
    once, twice = along @ across, across.T @ across
    hessian = (spread * (2 * slope / safe)) @ spread.T + 2 * once * twice
    return -(spread @ slope) - np.diag(twice), hessian
