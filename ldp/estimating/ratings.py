"""Shares of people who rated a key, and their mean ratings, from sets of signed items.

A rating of key c is the item 2 c ("+") or 2 c + 1 ("-"), drawn so that its mean on the scale [-1,
1] is the rating (`SetSelection`). With the items' shares f+ and f-, F = f+ + f- is the share of
people who rated the key, D = f+ - f- is their mean rating times F, and D / F is the mean rating.
One person never has both signs of a key.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.estimation import Cohorts
from ldp.core.intervals import Ends, Interval, clipped, fieller
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.mechanisms.sets.base import SetMechanism
from ldp.mechanisms.sets.set_selection import SetSelection

Floats = NDArray[np.float64]

SURE = 3.0
"""Standard errors from which the share of people who rated a key is told from none: with a smaller
share the mean of their ratings says nothing."""


class RatedShares(SetSelection):
    """`SetSelection` of signed items whose estimate is the share that rated each key, shape
    (keys,)."""

    @classmethod
    def of(cls, mechanism: SetMechanism) -> "RatedShares":
        """Return the mechanism of a plan as one that estimates who rated each key.

        Raises `InvalidInput` for another mechanism, or an odd number of items.
        """
        if not isinstance(mechanism, SetSelection) or mechanism.items % 2:
            raise InvalidInput(f"{mechanism.name} has no signed items, which ratings are made of")
        return cls.from_integers(mechanism.epsilon, mechanism.integers)

    @property
    def parameters(self) -> int:
        return self.items // 2

    def supports(self, tally: Tally) -> NDArray[np.int64]:
        """Return how many signs of each key the reports have, shape (keys,)."""
        found: NDArray[np.int64] = self._signs(tally).sum(axis=1)
        return found

    def _signs(self, tally: Tally) -> NDArray[np.int64]:
        return tally.counts[: self.items].reshape(-1, 2)

    def debias(self, tally: Tally) -> Floats:
        q, gain = self._rounded_support
        return (self.supports(tally) / tally.n - 2 * q) / gain

    def balance(self, tally: Tally) -> Floats:
        """Return the estimate of D, shape (keys,)."""
        signs = self._signs(tally)
        found: Floats = (signs[:, 0] - signs[:, 1]) / (tally.n * self._rounded_support[1])
        return found

    def _counted_signs(self, truth: ArrayLike) -> tuple[Floats, Floats]:
        """Return the mean number of a key's signs in a report, and the chance of both."""
        q, gain = self._rounded_support
        none, one, _ = self.pair_support
        shares = np.asarray(truth, dtype=float)
        return 2 * q + shares * gain, none + shares * (one - none)

    def variance(self, truth: ArrayLike, n: int) -> Floats:
        """Return the variance of the share, which the ratings themselves do not change."""
        mean, both = self._counted_signs(truth)
        return (mean + 2 * both - mean**2) / (n * self._rounded_support[1] ** 2)

    def moments(self, truth: Floats, n: int) -> tuple[Floats, Floats]:
        mean, both = self._counted_signs(truth)
        gain = self._rounded_support[1]
        one = mean - 2 * both
        third = one * (1 - mean) ** 3 + both * (2 - mean) ** 3 - (1 - one - both) * mean**3
        return self.variance(truth, n), third / (n**2 * gain**3)

    def balance_moments(self, shares: Floats, balance: Floats, n: int) -> tuple[Floats, Floats]:
        """Return the variance of D's estimate, and its covariance with that of F."""
        mean, both = self._counted_signs(shares)
        gain = self._rounded_support[1]
        variance = ((mean - 2 * both) / gain**2 - balance**2) / n
        return variance, balance * (1 - mean) / (n * gain)


@dataclass(frozen=True, eq=False)
class MeanRatings:
    """The mean ratings on the scale [-1, 1], of all keys, shapes (keys,).

    `value` and `standard_error` are nan where `known` is false: where the share of people who rated
    the key is within `SURE` standard errors of none, nothing is known of their mean rating.
    `ends` gives the interval at z standard errors.
    """

    value: Floats
    standard_error: Floats
    known: NDArray[np.bool_]
    ends: Ends


def mean_ratings(cohorts: Cohorts, *, alike: bool = False) -> MeanRatings:
    """Estimate the mean rating of each key among those who rated it, from `RatedShares` cohorts.

    Cohorts count by their reports, or, if their people are `alike`, by the inverse of their
    variance. The standard error is that of the ratio D / F by its derivative. Intervals are
    Fieller's: the means m for which D - m F is within z of its standard errors of 0, held to [-1,
    1]. They allow for the cohorts' `repeats`. Source: Fieller, "Some problems in interval
    estimation", JRSS B 16(2), 1954.
    """
    each = []
    for mechanism, tally in cohorts:
        assert isinstance(mechanism, RatedShares)
        each.append((mechanism.debias(tally), mechanism.balance(tally)))
    shares, balances = (np.array(x) for x in zip(*each, strict=True))
    w = (cohorts.counts / cohorts.n)[:, np.newaxis]
    share, balance = possible((w * shares).sum(axis=0), (w * balances).sum(axis=0))
    parts = []
    for (mechanism, tally), own in zip(cohorts, cohorts.repeats, strict=True):
        assert isinstance(mechanism, RatedShares)
        v = mechanism.variance(share, tally.n)
        u, c = mechanism.balance_moments(share, balance, tally.n)
        # Of people's truths: a sign is 1, -1 or 0, and its square says who rated.
        truths = np.array([share * (1 - share), share - balance**2, balance * (1 - share)])
        parts.append([x + own.more(x, t / tally.n) for x, t in zip((v, u, c), truths, strict=True)])
    moments = np.array(parts)  # (cohorts, 3, keys)
    if alike:
        w = 1 / moments[:, 0]
        w = w / w.sum(axis=0)
    f, d = (w * shares).sum(axis=0), (w * balances).sum(axis=0)
    variance, squares, covariance = (w[:, np.newaxis] ** 2 * moments).sum(axis=0)
    if not alike and len(cohorts) > 1:  # who answers at which level is a sample
        away, apart = shares - f, balances - d
        factor = cohorts.most_repeated / cohorts.n
        variance = variance + factor * (w * away**2).sum(axis=0)
        squares = squares + factor * (w * apart**2).sum(axis=0)
        covariance = covariance + factor * (w * away * apart).sum(axis=0)
    return ratio(d, f, squares, variance, covariance)


def ratio(d: Floats, f: Floats, v_d: Floats, v_f: Floats, covariance: Floats) -> MeanRatings:
    """Return the mean ratings D / F of estimates with these variances and covariance."""
    known = f > SURE * np.sqrt(v_f)
    value = np.divide(d, f, out=np.full_like(f, math.nan), where=known)
    noise = v_d - 2 * value * covariance + value**2 * v_f
    error = np.divide(np.sqrt(noise), f, out=np.full_like(f, math.nan), where=known)

    def ends(z: float) -> Interval:
        return clipped(*fieller(d, f, v_d, v_f, covariance, z), (-1, 1))

    return MeanRatings(value, error, known, ends)


def possible(share: Floats, balance: Floats) -> tuple[Floats, Floats]:
    """Return a share and a balance that a population can have, near the given ones."""
    f = np.clip(share, 0, 1)
    return f, np.clip(balance, -f, f)
