"""How many items people's sets have, and which items they have together.

A set is filled up with dummies in order (`SetSelection`), so dummy j is in exactly the sets of
most - 1 - j items or fewer: the dummies' shares are the distribution of the sizes, added up. As the
members of all sets and reports are equally many, the shares of all members always sum to `most`,
and the mean size that the items' shares sum to is the one that the dummies tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.estimation import Estimate
from ldp.core.estimator import Estimator
from ldp.core.mechanism import Mechanism
from ldp.core.repeated import Repeats
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.estimating.pairs import PairTally
from ldp.mechanisms.sets.base import SetMechanism
from ldp.mechanisms.sets.set_selection import SetSelection

Floats = NDArray[np.float64]


class SetSizes(SetSelection):
    """`SetSelection` whose estimate is the distribution of the sizes 0..most, shape (most + 1,)."""

    @classmethod
    def of(cls, mechanism: SetMechanism) -> "SetSizes":
        """Return the mechanism of a plan as one that estimates sizes.

        Raises `InvalidInput` for `SetBits`, whose reports tell their mean only.
        """
        if not isinstance(mechanism, SetSelection):
            raise InvalidInput(
                f"{mechanism.name} asks each person about one item, and tells no sizes but their "
                "mean"
            )
        return cls.from_integers(mechanism.epsilon, mechanism.integers)

    @property
    def parameters(self) -> int:
        return self.most + 1

    def debias(self, tally: Tally) -> Floats:
        q, gain = self._rounded_support
        dummies = (tally.counts[self.items :] / tally.n - q) / gain
        return np.diff(dummies[::-1], prepend=0.0, append=1.0)

    def variance(self, truth: ArrayLike, n: int) -> Floats:
        return np.diag(self.covariance(truth, n)).copy()

    def moments(self, truth: Floats, n: int) -> None:
        return None

    def covariance(self, truth: ArrayLike, n: int) -> Floats:
        """Return the covariance of `debias`, shape (most + 1, most + 1), for n people whose sizes
        are distributed as `truth`, which broadcasts to shape (most + 1,)."""
        shares = np.broadcast_to(np.asarray(truth, dtype=float), (self.most + 1,))
        # Up to each size but the largest; a set with a dummy has all earlier ones, too.
        up_to = np.clip(np.cumsum(shares)[:-1], 0, 1)
        both = np.minimum.outer(up_to, up_to)
        joint = self.pair_covariance(up_to[:, np.newaxis], up_to, both, n)
        np.fill_diagonal(joint, super().variance(up_to, n))
        steps = np.diff(np.eye(self.most), axis=0, prepend=0.0, append=0.0)
        found: Floats = steps @ joint @ steps.T
        return found


@dataclass(frozen=True)
class MeanSize(Estimator):
    """The mean size of sets, shape (1,), in [0, largest], from the reports of a mechanism."""

    name: ClassVar[str] = "mean size"
    mechanism: SetMechanism
    largest: int
    """The number of items of the largest set that people may have."""

    @property
    def tally_size(self) -> int:
        return self.mechanism.tally_size

    @property
    def parameters(self) -> int:
        return 1

    @property
    def bounds(self) -> tuple[float, float]:
        return 0.0, float(self.largest)

    def debias(self, tally: Tally) -> Floats:
        return np.array([self.mechanism.debias(tally).sum()])

    def variance(self, truth: ArrayLike, n: int) -> Floats:
        """Return the variance where a set is empty or has `largest` items: the greatest spread."""
        share = np.clip(np.asarray(truth, dtype=float) / self.largest, 0, 1)
        full = float(share.mean())
        if isinstance(self.mechanism, SetSelection):
            sizes = np.zeros(self.largest + 1)
            sizes[0], sizes[-1] = 1 - full, full
            return np.full(share.shape, self._of_sizes(sizes, n))
        each = full * self.largest / self.mechanism.items
        return np.full(share.shape, self.mechanism.items * self.mechanism.variance(each, n))

    def tally_variance(self, truth: ArrayLike, tally: Tally) -> Floats:
        """Return the variance for the sizes, or the items' shares, that the tally tells."""
        if isinstance(self.mechanism, SetSelection):
            sizes = np.clip(SetSizes.of(self.mechanism).debias(tally), 0, 1)
            return np.array([self._of_sizes(sizes / max(sizes.sum(), 1e-9), tally.n)])
        shares = np.clip(self.mechanism.debias(tally), 0, 1)
        return np.array([self.mechanism.tally_variance(shares, tally).sum()])

    def _of_sizes(self, sizes: Floats, n: int) -> float:
        each = np.arange(self.largest + 1)
        return float(each @ SetSizes.of(self.mechanism).covariance(sizes, n) @ each)


# --- pairs ---------------------------------------------------------------------------------------


def can_pair(mechanism: Mechanism) -> bool:
    """Tell whether pairs of items can be estimated from reports."""
    return isinstance(mechanism, SetSelection) and mechanism.tells_pairs


def pairs(cohorts: Sequence[tuple[SetSelection, PairTally, Repeats]]) -> Estimate:
    """Estimate the share of people who have both of two items, for all pairs u < v.

    The parameters are the pairs in the order of `numpy.triu_indices(items, 1)`. Of a report Z,
    (1{u, v in Z} - pi_0 - b (1{u in Z} + 1{v in Z} - 2 q)) / (pi_2 - 2 pi_1 + pi_0) is unbiased for
    1{u, v in S}, with b = (pi_1 - pi_0) / (p - q). Cohorts count by their reports, as `stratified`;
    errors are for the population, and allow for the cohorts' `repeats`. They are the mechanism's
    for shares near the estimates that a population can have: the noise of one pair is too skewed
    to be told from how often the sample has it. Intervals are Wald's. A cohort's pair tally is
    that of its reports with themselves.
    Raises `InvalidInput` without reports that tell pairs (`can_pair`).
    """
    seen = [(m, tally, own) for m, tally, own in cohorts if tally.n and can_pair(m)]
    if not seen:
        raise InvalidInput("there are no reports whose pairs of items can be told")
    n = sum(tally.n for _, tally, _ in seen)
    rows, columns = np.triu_indices(seen[0][0].items, 1)
    values, variances = [], []
    for mechanism, tally, own in seen:
        q, gain = mechanism._rounded_support
        singles = tally.first.counts / tally.n
        both = tally.products[rows, columns] / tally.n
        either = singles[rows] + singles[columns]
        none, *_ = mechanism.pair_support
        value = (both - none - mechanism.pair_slope * (either - 2 * q)) / mechanism.pair_gain
        f, g, truth = _possible((singles[rows] - q) / gain, (singles[columns] - q) / gain, value)
        variance = mechanism.pair_variance(f, g, truth) / tally.n
        values.append(value)
        variances.append(variance + own.more(variance, truth * (1 - truth) / tally.n))
    weights = np.array([[tally.n / n] for _, tally, _ in seen])
    found = (weights * np.array(values)).sum(axis=0)
    spread = (weights * (np.array(values) - found) ** 2).sum(axis=0) / n
    factor = max(own.factor for _, _, own in seen)
    error = np.sqrt((weights**2 * np.array(variances)).sum(axis=0) + factor * spread)
    method = "stratified" if len(seen) > 1 else "debias"
    return Estimate(found, error, n, (0.0, 1.0), method)


def _possible(f: Floats, g: Floats, both: Floats) -> tuple[Floats, Floats, Floats]:
    """Return shares of two items, and of both, that a population can have, near the given ones."""
    f, g = np.clip(f, 0, 1), np.clip(g, 0, 1)
    return f, g, np.clip(both, np.maximum(0, f + g - 1), np.minimum(f, g))
