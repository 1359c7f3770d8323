"""Tests that two attributes are independent, from what was reported about both.

The reports of a record are drawn independently given the record, so where the attributes are
independent their codes are too. The statistic is

    n tr(S1**-1 C S2**-1 C'),

C being the covariance of the two reports' estimates of the values, without the first of each, and
S1 and S2 the covariances of each attribute's own. Of two mechanisms whose tallies count codes, as
many as there are values, it is Pearson's chi-squared of the table of the pairs of codes: the
estimates are a linear map of the codes, which cancels. Otherwise it is the Wald statistic of C
under the covariance S1 (x) S2 that C has where the attributes are independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import chdtrc, chdtri, chndtr

from ldp.core.mechanism import Categorical, Counted, Mechanism
from ldp.core.repeated import Repeated
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.estimating.consistency import project
from ldp.estimating.joint import JointTable, PairCohort, with_records
from ldp.estimating.pairs import product_means, reading

Floats = NDArray[np.float64]

FEW = 5
"""The least records for each pair of values in a cohort, and the least that are expected to support
a pair of groups of values (Cochran, Biometrics 10, 1954)."""

_NEGLIGIBLE = 1e-10
"""The share of the largest eigenvalue of a covariance below which one is rounding."""


@dataclass(frozen=True)
class Independence:
    """The test that two attributes are independent.

    `statistic` is nearly chi-squared with `degrees` degrees of freedom if they are, or less (with
    repeats); `p_value` is the probability that it exceeds the value found. `noncentrality` is an
    estimate of that of the statistic, max(0, statistic - degrees): with so much, a test of
    significance alpha finds the dependence with the probability `power(alpha)`.
    """

    statistic: float
    degrees: int
    p_value: float
    noncentrality: float

    def power(self, significance: float = 0.05) -> float:
        """Return the power of a repetition, if the noncentrality is what it seems to be."""
        return power(self.noncentrality, self.degrees, significance)


def power(noncentrality: float, degrees: int, significance: float = 0.05) -> float:
    """Return the probability with which a test of this significance finds a dependence.

    Raises `InvalidInput` unless 0 < significance < 1.
    """
    if not 0 < significance < 1:
        raise InvalidInput(f"significance must lie strictly between 0 and 1, got {significance}")
    return float(1 - chndtr(chdtri(degrees, significance), degrees, noncentrality))


def independence(cohorts: Sequence[PairCohort], repeats: Repeated = ()) -> Independence:
    """Test whether two categorical attributes are independent, from records that report both.

    Each cohort has the records of one level of each attribute. Statistics and degrees of freedom
    add up over cohorts, which need not be alike: independence is tested at each. Where people may
    be in several periods, a cohort's statistic is divided by the factor of its repeats: the
    variance of an average of reports is at most so many times that of independent ones
    (`ldp.core.repeated`), so the test says "dependent" of independent attributes no oftener than
    its significance. It is not a test of whether the levels mixed are independent (Simpson's
    paradox). In each cohort values that few reports support are taken together, until independent
    answers would have at least `FEW` records that support any pair: with fewer the statistic is
    far from chi-squared. An attribute that comes down to one group tests nothing, and p is 1. A
    cohort of fewer than `FEW` records for each pair of values tells next to nothing: it is left
    out where another one has more. Raises `InvalidInput` where there are no records, and for a
    number. Source: Pearson, Philosophical Magazine 50, 1900; the trace is Pillai's (Annals of
    Mathematical Statistics 26, 1955) times n.
    """
    statistic, degrees = 0.0, 0
    given = with_records(cohorts, repeats)
    enough = [one for one in given if one[2].n >= FEW * _cells(one[0], one[1])]
    for first, second, tally, own in enough or given:
        if not isinstance(first, Categorical) or not isinstance(second, Categorical):
            raise InvalidInput(
                "independence is tested between values: ask for the means of a number within "
                "groups, or fit a regression"
            )
        one, f = _spread(first, tally.first)
        other, g = _spread(second, tally.second)
        away = product_means(first, second, tally) - np.outer(f, g)
        rows, columns = _groups(
            _supported(first, tally.first), _supported(second, tally.second), tally.n
        )
        found, rank = _trace(
            rows @ one @ rows.T, rows @ away @ columns.T, columns @ other @ columns.T
        )
        statistic += tally.n * found / own.factor
        degrees += rank
    return _tested(statistic, degrees)


def _cells(first: Mechanism, second: Mechanism) -> int:
    return first.parameters * second.parameters


def independence_of(table: JointTable) -> Independence:
    """Test independence from a joint table and its covariance alone, as one question about pairs
    has them: the Wald test of p - f g', f and g being the table's margins.

    The covariance of p - f g' is by the delta method. Of many records that report both attributes
    it is about the statistic of `independence`, which is nearer to its distribution: use that.
    """
    k1, k2 = table.value.shape
    f, g = table.value.sum(axis=1), table.value.sum(axis=0)
    slopes = np.eye(k1 * k2).reshape(k1, k2, k1, k2)
    slopes = slopes - np.einsum("xa,b,y->xyab", np.eye(k1), np.ones(k2), g)
    slopes = slopes - np.einsum("a,yb,x->xyab", np.ones(k1), np.eye(k2), f)
    kept = slopes[1:, 1:].reshape((k1 - 1) * (k2 - 1), -1)
    away = (table.value - np.outer(f, g))[1:, 1:].ravel()
    inverted, rank = _pseudoinverse(kept @ table.covariance @ kept.T)
    return _tested(float(away @ inverted @ away), rank)


def noncentrality(first: Categorical, second: Categorical, truth: ArrayLike, n: int) -> float:
    """Return the noncentrality of the test for n records of a population.

    `truth` is the joint distribution, shape (k1, k2). Without privacy it is n phi**2, phi**2 being
    the sum of (p - f g)**2 / (f g). Raises `InvalidInput` for another shape.
    """
    shares = np.asarray(truth, dtype=float)
    if shares.shape != (first.k, second.k):
        raise InvalidInput(f"the truth has the shape {(first.k, second.k)}, got {shares.shape}")
    f, g = shares.sum(axis=1), shares.sum(axis=0)
    one, other = (m.covariance(own, 1) for m, own in ((first, f), (second, g)))
    return n * _trace(one, shares - np.outer(f, g), other)[0]


def detectable(degrees: int, significance: float = 0.05, chance: float = 0.8) -> float:
    """Return the least noncentrality that a test of this significance finds with this chance."""
    low, high = 0.0, 1.0
    while power(high, degrees, significance) < chance:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if power(middle, degrees, significance) < chance else (low, middle)
        )
    return high


def _spread(mechanism: Categorical, tally: Tally) -> tuple[Floats, Floats]:
    """Return the covariance of one report's estimates, and their mean, in these records."""
    mean = mechanism.debias(tally)
    if not isinstance(mechanism, Counted):
        near = project(mean)
        return mechanism.covariance(near, 1), mean
    values = reading(mechanism).slope
    second = (values.T * (tally.counts / tally.n)) @ values
    return second - np.outer(mean, mean), mean


def _supported(mechanism: Categorical, tally: Tally) -> Floats:
    """Return the share of reports that support each value, or do not, if these are fewer.

    An estimate with the fourth standardised moment m is as far from normal as the indicator of a
    share s with (s**2 + (1 - s)**2) / (s (1 - s)) = m + 1: nearly 1 / s, for small ones.
    """
    if isinstance(mechanism, Counted):
        values, chance = reading(mechanism).slope, tally.counts / tally.n
        away = values - chance @ values
        second, fourth = chance @ away**2, chance @ away**4
        return np.divide(
            second**2, fourth + second**2, out=np.zeros(mechanism.k), where=second > _NEGLIGIBLE
        )
    share = tally.counts / tally.n
    if share.size != mechanism.k:
        return np.full(mechanism.k, 1 / mechanism.k)
    return np.asarray(share * (1 - share) / (share**2 + (1 - share) ** 2))


def _groups(first: Floats, second: Floats, n: int) -> tuple[Floats, Floats]:
    """Return groups of each attribute's values, as rows of indicators: enough together that of n
    records, of which such shares support the values, every pair of groups expects `FEW`.

    The rarest group joins the next one. The group of the first value stays the first.
    """
    made, shares = [np.eye(first.size), np.eye(second.size)], [first, second]
    while n * shares[0].min() * shares[1].min() < FEW:
        sizes = [own.size for own in shares]
        several = [i for i in (0, 1) if sizes[i] > 2] or [i for i in (0, 1) if sizes[i] > 1]
        if not several:
            break
        at = min(several, key=lambda i: float(shares[i].min()))
        one, other = np.sort(np.argsort(shares[at], kind="stable")[:2])
        made[at][one] += made[at][other]
        shares[at] = shares[at].copy()
        shares[at][one] += shares[at][other]
        made[at], shares[at] = np.delete(made[at], other, 0), np.delete(shares[at], other)
    return made[0], made[1]


def _trace(first: Floats, across: Floats, second: Floats) -> tuple[float, int]:
    """Return tr(S1**-1 C S2**-1 C') without the first values, and its degrees of freedom."""
    one, degrees = _pseudoinverse(first[1:, 1:])
    other, more = _pseudoinverse(second[1:, 1:])
    inner = across[1:, 1:]
    return float(np.trace(one @ inner @ other @ inner.T)), degrees * more


def _pseudoinverse(covariance: Floats) -> tuple[Floats, int]:
    """Return the inverse on the directions in which the covariance is not zero, and their number.

    There is none in the direction of a value that was certainly not given.
    """
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _NEGLIGIBLE * max(values.max(initial=0.0), 0)
    inverted = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    return inverted, int(kept.sum())


def _tested(statistic: float, degrees: int) -> Independence:
    p_value = float(chdtrc(degrees, statistic)) if degrees else 1.0
    return Independence(statistic, degrees, p_value, max(0.0, statistic - degrees))
