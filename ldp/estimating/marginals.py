"""Frequencies of a part of the answers that were asked together.

A question may be asked of several attributes at once (a view): its categories are the combinations
of their values. A frequency of one attribute's value, or of fewer attributes' combinations, is the
sum over the combinations that contain it. Several questions may tell the same frequency: questions
are drawn, or answered, without regard to the answers, so all of them are unbiased, and the best
weights are in inverse proportion to their variances.
Source: the marginals that a view releases are used as in Zhang, Wang, Li, He and Chen, "CALM:
Consistent adaptive local marginal for marginal release under local differential privacy", CCS 2018.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ldp.core.estimation import Cohorts
from ldp.core.estimator import Frequencies
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.estimating.pooling import near_distribution

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Part:
    """The reports of one question, and which of its categories add up to which wanted ones.

    `wanted` has shape (categories of the question,): the wanted category that each belongs to.
    """

    question: Frequencies
    tally: Tally
    wanted: NDArray[np.intp]


class Marginal(Frequencies):
    """An estimator of k frequencies, each a sum over categories of the questions that tell it.

    `tally`, shape (all counts,), has the counts of the questions one after the other; its n is the
    number of all reports. The estimate of a frequency is the mean of the questions' estimates,
    weighted by the inverses of their variances at one estimate that the questions share, so that
    no weight depends on a question's own luck. Variances are those of `Frequencies.sum_covariance`,
    with the combinations of a wanted category as frequent, relative to each other, as they were
    found to be; for mechanisms that protect all pairs of categories alike, this does not matter.

    Assumes that reports are of different people. Where a person may be in several questions,
    `ldp.core.repeated` has the factors, with a question in the place of a period.
    Cost: O(K**2) for a question of K combinations, once for each variance.
    Raises `InvalidInput` where no question has reports, or a category has no place in 0..k-1.
    """

    name: ClassVar[str] = "marginal"

    def __init__(self, parts: Sequence[Part], k: int) -> None:
        self.k = k
        self._parts = [part for part in parts if part.tally.n]
        if not self._parts:
            raise InvalidInput("there are no reports to estimate from")
        for part in self._parts:
            if part.wanted.shape != (part.question.k,) or set(part.wanted) != set(range(k)):
                raise InvalidInput(
                    f"each of {part.question.k} combinations belongs to one of {k} categories, "
                    f"and each category has some, got {part.wanted}"
                )
        self._sets = [np.equal.outer(np.arange(k), part.wanted) * 1.0 for part in self._parts]
        self._within = [
            _within(part, sets) for part, sets in zip(self._parts, self._sets, strict=True)
        ]
        counts = [part.tally.counts for part in self._parts]
        self.tally = Tally(sum(part.tally.n for part in self._parts), np.concatenate(counts))
        self._shares = [part.tally.n / self.tally.n for part in self._parts]
        self._ends = np.cumsum([count.size for count in counts])[:-1]
        self._weights = self._weighted_at(np.full(k, 1 / k))
        first = np.maximum(self.debias(self.tally), 0)
        self._weights = self._weighted_at((first + 1 / k) / (first.sum() + 1))

    @property
    def parts(self) -> Sequence[Part]:
        """The questions that have reports."""
        return self._parts

    @property
    def tally_size(self) -> int:
        return self.tally.counts.size

    def debias(self, tally: Tally) -> Floats:
        """Return the estimate, shape (k,), of a tally with as many reports of each question as
        `tally` has."""
        own = np.split(tally.counts, self._ends)
        each = zip(self._parts, self._sets, own, strict=True)
        values = [s @ part.question.debias(Tally(part.tally.n, counts)) for part, s, counts in each]
        found: Floats = (self._weights * values).sum(axis=0)
        return found

    def variance(self, truth: ArrayLike, n: int) -> Floats:
        found: Floats = (self._weights**2 * self._variances(truth)).sum(axis=0) / n
        return found

    def covariance(self, truth: ArrayLike, n: int) -> Floats:
        """Return the covariance of `debias`, shape (k, k), for n draws from a population.

        `truth` broadcasts to shape (k,) and is scaled to sum to one.
        """
        found = np.zeros((self.k, self.k))
        each = zip(self._parts, self._sets, self._joints(truth), self._shares, strict=True)
        for (part, sets, joint, share), weights in zip(each, self._weights, strict=True):
            own = part.question.sum_covariance(sets, joint, 1) / share
            found += np.outer(weights, weights) * own
        return found / n

    @property
    def step(self) -> Floats:
        """The largest change of one report's `debias` per count; zero where a question has none."""
        steps = [
            np.array([part.question.step[members > 0].min() for members in sets]) / share
            for part, sets, share in zip(self._parts, self._sets, self._shares, strict=True)
        ]
        found: Floats = (self._weights * steps).max(axis=0)
        return found if np.min(steps) > 0 else np.zeros(self.k)

    def _weighted_at(self, truth: Floats) -> Floats:
        precise = 1 / self._variances(truth)
        weights: Floats = precise / precise.sum(axis=0)
        return weights

    def _variances(self, truth: ArrayLike) -> Floats:
        """Return n times the variance of each question's own estimate, shape (questions, k)."""
        each = zip(self._parts, self._sets, self._joints(truth), self._shares, strict=True)
        return np.array(
            [part.question.sum_variances(s, joint, 1) / share for part, s, joint, share in each]
        )

    def _joints(self, truth: ArrayLike) -> list[Floats]:
        """Return for each question a distribution of its combinations with this marginal."""
        f = np.broadcast_to(np.asarray(truth, dtype=float), (self.k,))
        f = f / f.sum() if f.any() else np.full(self.k, 1 / self.k)
        each = zip(self._parts, self._within, strict=True)
        return [f[part.wanted] * within for part, within in each]


def _within(part: Part, sets: Floats) -> Floats:
    """Return how frequent each combination is among those of its wanted category."""
    mechanism, tally = part.question, part.tally
    joint = near_distribution(Cohorts([(mechanism, tally)]))
    shares: Floats = joint / (sets @ joint)[part.wanted]
    return shares


def table_variance(questions: Sequence[Frequencies]) -> float:
    """Return the total variance of a joint table, from one record that reports all its attributes.

    Given the record the reports are independent, so that products of their estimates are unbiased
    for a combination. The variance is the sum over all combinations, where the attributes are
    uniform and independent: the product of S_j + 1 / k_j less the product of 1 / k_j, with the
    total variances S_j of one report of attribute j, which has k_j values.
    """
    uniform = [1 / each.k for each in questions]
    squares = [
        float(each.variance(np.full(each.k, share), 1).sum()) + share
        for each, share in zip(questions, uniform, strict=True)
    ]
    return math.prod(squares) - math.prod(uniform)
