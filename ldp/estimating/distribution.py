"""A curve of how a number is distributed, reconstructed from randomised reports, without errors.

For a number that takes a few values, as whole numbers do, `ldp.estimating.points` has shares with
intervals. This curve is for numbers that can be any in their range.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.estimation import Cohorts
from ldp.core.estimator import Estimator
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.estimating.points import channel_from_points
from ldp.mechanisms.numbers.mean import MeanMechanism

_MOST_POINTS = 257
"""A finer curve takes longer and shows no more: the smoothing is as wide as a few points."""

_TOLERANCE = 1e-6  # total variation per step of EM; the fixed point is what is wanted
_MOST_STEPS = 5_000

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Distribution:
    """A curve of a population's distribution on [-1, 1], by grid point.

    `probabilities` has shape (points,); the mass of a grid point is spread evenly over the cell
    around it. It has no errors: the bias of smoothing has no bound where a population has atoms,
    jumps, or peaks narrower than the mechanism's window, and intervals that ignored it covered 10
    to 60% of the shares of whole numbers.
    """

    probabilities: Array
    n: int

    def cumulative(self, values: ArrayLike) -> Array:
        """Return the share of the population at or below each of `values`, shape (m,)."""
        return self._shares_below(np.atleast_1d(values)) @ self.probabilities

    def histogram(self, edges: ArrayLike) -> Array:
        """Return the share of the population between consecutive `edges`, shape (len - 1,).

        Raises `InvalidInput` unless the edges rise and lie in [-1, 1].
        """
        cuts = np.asarray(edges, dtype=float)
        if cuts.ndim != 1 or cuts.size < 2 or not (np.diff(cuts) > 0).all():
            raise InvalidInput("the edges of a histogram are two or more rising numbers")
        return np.diff(self._shares_below(cuts) @ self.probabilities)

    def quantiles(self, levels: ArrayLike) -> Array:
        """Return the quantile at each of `levels`, shape (m,).

        Raises `InvalidInput` unless 0 < level < 1.
        """
        wanted = np.atleast_1d(np.asarray(levels, dtype=float))
        if wanted.ndim != 1 or not ((wanted > 0) & (wanted < 1)).all():
            raise InvalidInput(f"levels must lie strictly between 0 and 1, got {levels!r}")
        cuts = _cell_edges(self.probabilities.size)
        return _inverse(self.cumulative(cuts), cuts, wanted)

    def _shares_below(self, values: ArrayLike) -> Array:
        """Return the share of each point's cell that lies below each value, shape (m, points)."""
        numbers = np.asarray(values, dtype=float)
        if not ((numbers >= -1) & (numbers <= 1)).all():
            raise InvalidInput("the numbers of a distribution lie in [-1, 1]")
        cuts = _cell_edges(self.probabilities.size)
        shares: Array = np.clip((numbers[:, None] - cuts[:-1]) / np.diff(cuts), 0, 1)
        return shares


def reconstruct(mechanism: Estimator, tally: Tally) -> Distribution:
    """Draw the population's distribution from the reports of one cohort: see `pooled`."""
    return pooled(Cohorts([(mechanism, tally)]))


def pooled(cohorts: Cohorts) -> Distribution:
    """Draw the distribution that all cohorts are samples of, by EM with smoothing.

    One likelihood has the reports of all cohorts, each with its channel, so that a report counts
    for what it tells and for no more, however few its cohort has. The curve has the points of
    the finest grid, or 257 where that is finer. Works for every mean mechanism; `SquareWave` is
    made for it. Cost: up to half a second. Raises `InvalidInput` where a mechanism's
    reports are of no number. For EM without smoothing, which follows the noise of the counts, give
    the channel's `matrix` to `ldp.estimating.likelihood.iterative_bayesian_update`.
    Source: Li et al., SIGMOD 2020 (EMS); pooling is ours.
    """
    n = cohorts.n
    steps = [m.steps for m, _ in cohorts if isinstance(m, MeanMechanism)]
    points = min(_MOST_POINTS, 1 + max(steps, default=1))
    channels = [tally.n / n * channel_from_points(m, points) for m, tally in cohorts]
    seen = np.concatenate([tally.counts for _, tally in cohorts]) / n
    return Distribution(smoothed_em(np.concatenate(channels, axis=1), seen), n)


def smoothed_em(matrix: Array, shares: Array) -> Array:
    """Return the fixed point, shape (inputs,), of EM with a (1, 2, 1) / 4 average at each step.

    `shares`, shape (codes,), are the frequencies of the codes; they sum to one. Every two steps of
    EM are followed by a leap along them, without which it takes thousands (Varadhan and Roland,
    "Simple and globally convergent methods for accelerating the convergence of any EM
    algorithm", Scandinavian Journal of Statistics 35, 2008: SQUAREM, with their third length).
    """

    def step(masses: Array) -> Array:
        moved = _smooth(masses * (matrix @ (shares / (masses @ matrix))))
        normal: Array = moved / moved.sum()
        return normal

    found = np.full(len(matrix), 1 / len(matrix))
    for _ in range(_MOST_STEPS // 3):
        first = step(found)
        second = step(first)
        if np.abs(second - first).sum() < _TOLERANCE:
            return second
        found = step(_leap(found, first, second))
    return found


def _leap(start: Array, first: Array, second: Array) -> Array:
    """Extrapolate from two steps, as far as no mass becomes negative; at least to the second."""
    change = first - start
    bend = second - 2 * first + start
    norm = float(np.linalg.norm(bend))
    length = float(np.linalg.norm(change)) / norm if norm else 1.0
    while length > 1.01:
        there: Array = start + 2 * length * change + length**2 * bend
        if there.min() >= 0:
            return there
        length = (length + 1) / 2
    return second


def _smooth(masses: Array) -> Array:
    """Average with weights (1, 2, 1) / 4, reflected at the ends."""
    result = masses / 2
    result[1:] += masses[:-1] / 4
    result[:-1] += masses[1:] / 4
    result[0] += masses[0] / 4
    result[-1] += masses[-1] / 4
    return result


def _cell_edges(points: int) -> Array:
    grid = np.linspace(-1, 1, points)
    return np.concatenate(([-1.0], (grid[:-1] + grid[1:]) / 2, [1.0]))


def _inverse(shares: Array, cuts: Array, levels: Array) -> Array:
    """Return the least number at which the rising `shares` reach each level."""
    above = np.searchsorted(shares, levels).clip(1, shares.size - 1)
    low, high = shares[above - 1], shares[above]
    part = np.clip((levels - low) / np.where(high > low, high - low, 1), 0, 1)
    result: Array = cuts[above - 1] + part * (cuts[above] - cuts[above - 1])
    return result
