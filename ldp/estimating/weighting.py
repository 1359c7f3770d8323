"""Estimates for a population of which the respondents are no mirror, by weights of public groups.

The respondents of a group are a sample of the group's population; how many a group has may have any
reason. With the weights of `ldp.estimating.raking` the estimate is sum_i u_i z_i over the
respondents' unbiased reports z_i, u_i = w_i / sum w. In terms of the groups' own estimates it is
sum_g a_g f_g, with the weighted shares a_g.

Given the groups' counts, which are public and exact, the weights are fixed, and only people within
their groups and the noise of their reports are random: the variance is sum_g a_g**2 V_g.
Post-stratified shares a_g are the population's, so that this is all. Raked ones meet the margins
but keep the respondents' dependence between properties, which is random too: over samples, the
variance is that of sum_i u_i (z_i - mu_i), mu being the regression of the truths on the rows of the
margins, weighted by u (Deville and Särndal, JASA 87, 1992, section 3: the residual technique). With
n_g u_g = a_g that is

    sum_g u_g**2 n_g (v(f_g) + (f_g - mu_g)**2),

v(f) being the variance of one report in a group of truth f, its noise and the spread of people.
With one margin of all groups mu_g = f_g. It is estimated without bias however few reports a group
has: z's mean square given f, v(f) + f**2, is linear in f for every mechanism, so that it is needed
only at the mean of f over all groups, and the rest, mu_g**2 - 2 f_g mu_g, is linear in f_g, too. A
group's part is divided by one less its leverage in the regression (MacKinnon and White's HC2,
Journal of Econometrics 29, 1985), for one margin n_g / (n_g - 1).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from ldp.core.estimation import Cohorts, Estimate
from ldp.core.estimator import Estimator, Frequencies
from ldp.core.intervals import Interval, around
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.estimating.consistency import project
from ldp.estimating.marginals import Marginal
from ldp.estimating.points import PointDistribution, channel_from_points, estimate_points
from ldp.estimating.raking import Weights
from ldp.estimating.ratings import MeanRatings, RatedShares, possible, ratio
from ldp.estimating.simplex import definite, maximize_quadratic, tangent_inverse
from ldp.mechanisms.sets.set_bits import SetBits

Floats = NDArray[np.float64]

_CLOSE = 1e-7
"""The part of its range by which a regression may still move when it ends."""

_ROUNDS = 200

_MOST_LEVERAGE = 0.999
"""The most that a person's leverage is taken to be: one alone does not tell how people differ."""

_SCALE = 1 << 40
"""Reports of a tally whose counts are weights, in integers."""


@dataclass(frozen=True, eq=False)
class Weighted:
    """A weighted estimate, whose error is that over samples of respondents.

    `given_counts`, shape (parameters,), is the standard error given the groups' counts, about what
    the weights estimate with these counts: the same, for one margin of all groups.
    """

    estimate: Estimate
    given_counts: Floats


def weighted(
    groups: Sequence[Cohorts | None], weights: Weights, sets: ArrayLike | None = None
) -> Weighted:
    """Estimate the population's parameters from the cohorts of its groups.

    `groups` has the cohorts of each of the weights' groups, or None for one without reports. In a
    group its levels count by their reports, so that nothing is assumed of how their people differ.
    With `sets`, shape (sets, k), of ones and zeros, the parameters are the sums of frequencies over
    sets of values. Estimates of shares are unbiased, and need not lie in 0..1.

    Intervals of shares are about the estimate with z**2 people more, half of them with the value,
    in its variance as in its centre. For one group these are Agresti and Coull's ("Approximate is
    better than exact for interval estimation of binomial proportions", American Statistician 52,
    1998), with noise; for groups of equal error z**2 / groups people more in each, Price and
    Bonett's ("An improved confidence interval for a linear function of binomial proportions",
    Computational Statistics & Data Analysis 45, 2004). Here a margin's rows have them in proportion
    to the variance that they bring, so that a few people of a large weight widen the interval even
    where none of them has the value. Intervals of means are Wald's. Errors allow for the cohorts'
    `repeats`, and for several reports of a person in a group by the weights' `people`.

    Assumes that who answers has nothing to do with the answer, within each group that the weights
    have. Cost: O(reports' cohorts), one `debias` each, and O(groups k) for each margin and round of
    the regression. Raises `InvalidInput` for another number of groups, cohorts whose reports are
    not the weights' counts, other parameters, and sets of a mechanism that has no frequencies.
    """
    sample = _Sample(groups, weights)
    rows = None if sets is None else sample.checked_sets(sets)
    values = [part.values if rows is None else part.values @ rows.T for part in sample.parts]
    total: Floats = np.sum([part.u_n @ y for part, y in zip(sample.parts, values, strict=True)], 0)
    if rows is None:
        total = np.sum([part.total() for part in sample.parts], axis=0)
    fitted, leverage = sample.regression(values)
    variance, floor = sample.variance(values, fitted, leverage, rows)
    own, alone = sample.within(values, fitted, leverage)
    given, _ = sample.variance(values, own, alone, rows)
    error = np.sqrt(np.maximum(variance, floor))
    method = "post-stratified" if len(weights.margins) == 1 else "raked"
    ends: Callable[[float], Interval] | None = None
    if sample.bounds == (0.0, 1.0):

        def ends(z: float) -> Interval:
            more = sample.imagined(z)
            shift = more[:, np.newaxis] / (1 + more[:, np.newaxis]) * (0.5 - fitted)
            moved = [y + shift[part.group] for part, y in zip(sample.parts, values, strict=True)]
            fewer = 1 - (1 - leverage) * (1 + more)
            widened, least = sample.variance(moved, fitted + shift, fewer, rows, shift)
            middle = np.clip(total, 0, 1) + sample.shares @ shift
            half = z * np.sqrt(np.maximum(widened, least))
            return around(middle, half, (0, 1))

    found = Estimate(total, error, sample.n, sample.bounds, method, ends)
    return Weighted(found, np.sqrt(np.maximum(given, floor)))


def weighted_ratings(groups: Sequence[Cohorts | None], weights: Weights) -> MeanRatings:
    """Estimate the population's mean ratings from the `RatedShares` cohorts of its groups.

    Both the share of people who rated a key and their mean rating times this share are weighted;
    intervals are Fieller's, as those of `mean_ratings`. Raises as `weighted`.
    """
    sample = _Sample(groups, weights)
    shares = [part.values for part in sample.parts]
    balances = []
    for part in sample.parts:
        mechanism = part.mechanism
        assert isinstance(mechanism, RatedShares)
        balances.append(np.array([mechanism.balance(tally) for tally in part.tallies]))
    f = np.sum([part.u_n @ y for part, y in zip(sample.parts, shares, strict=True)], axis=0)
    d = np.sum([part.u_n @ y for part, y in zip(sample.parts, balances, strict=True)], axis=0)
    mu_f, leverage = sample.regression(shares)
    mu_d, _ = sample.regression(balances)
    moments = np.zeros((3, f.size))
    for part, y_f, y_d in zip(sample.parts, shares, balances, strict=True):
        mechanism = part.mechanism
        assert isinstance(mechanism, RatedShares)
        each, again = part.factors(leverage)
        m_f, m_d = mu_f[part.group], mu_d[part.group]
        share, balance = possible(each @ y_f / each.sum(), each @ y_d / each.sum())
        v_d, c = mechanism.balance_moments(share, balance, 1)
        about = [share * share, balance * balance, share * balance]
        known = [mechanism.variance(share, 1), v_d, c]
        pairs = [(y_f, m_f, y_f, m_f), (y_d, m_d, y_d, m_d), (y_f, m_f, y_d, m_d)]
        # Of people's truths: a sign is 1, -1 or 0, and its square says who rated.
        squares = [y_f, y_f, y_d]
        for index, (a, m_a, b, m_b) in enumerate(pairs):
            rest = m_a * m_b - a * m_b - b * m_a
            moments[index] += each.sum() * (known[index] + about[index]) + each @ rest
            moments[index] += again @ (squares[index] + rest)
    variance, squares_of_d, covariance = moments
    least = 1e-12
    return ratio(d, f, np.maximum(squares_of_d, least), np.maximum(variance, least), covariance)


def weighted_points(
    groups: Sequence[Cohorts | None], weights: Weights, points: int
) -> PointDistribution:
    """Estimate the shares of `points` points, or bins, in the population, with their covariance.

    A report of a number counts by one scoring step, linear in the counts, from a distribution near
    that of all respondents; so its group's estimate is unbiased however few reports it has.
    Arguments, assumptions and errors are those of `weighted`; cost: also `estimate_points` of all
    reports. Raises `InvalidInput` where a mechanism's reports are of no number, too.
    """
    made: dict[object, Frequencies] = {}
    sums: dict[object, tuple[Estimator, Tally]] = {}
    for cohorts in groups:
        for mechanism, tally in cohorts or ():
            if isinstance(mechanism, Marginal):
                continue
            before = sums.get(mechanism)
            sums[mechanism] = mechanism, before[1] + tally if before else tally
    pilot = estimate_points(Cohorts(list(sums.values())), points).pilot if sums else np.empty(0)

    def seen(mechanism: Estimator) -> Estimator:
        if isinstance(mechanism, Frequencies):
            return mechanism
        if mechanism not in made:
            made[mechanism] = _ScoredPoints(mechanism, pilot)
        return made[mechanism]

    sample = _Sample(
        [g and Cohorts([(seen(m), tally) for m, tally in g], g.repeats) for g in groups], weights
    )
    values = [part.values for part in sample.parts]
    value: Floats = np.sum([part.total() for part in sample.parts], axis=0)
    fitted, leverage = sample.regression(values)
    each = [part.covariance(fitted, leverage) for part in sample.parts]
    covariance: Floats = np.sum(each, axis=0)
    curvature = definite(tangent_inverse(definite(covariance)))
    nearest = maximize_quadratic(curvature, curvature @ value, value > 0)
    likely = nearest / nearest.sum()
    people = 1 / sample.people
    return PointDistribution(
        likely=likely,
        unconstrained=value,
        covariance=covariance,
        pilot=(people * likely + 1 / points) / (people + 1),
        n=sample.n,
        people=people,
    )


class _ScoredPoints(Frequencies):
    """The shares of points from a number's reports, by a scoring step from a fixed distribution."""

    name = "points"

    def __init__(self, mechanism: Estimator, pilot: Floats) -> None:
        self.k = pilot.size
        self._channel = channel_from_points(mechanism, pilot.size)
        weighed = self._channel / (pilot @ self._channel)
        steps = tangent_inverse(weighed @ self._channel.T) @ weighed
        self._codes: Floats = (pilot[:, np.newaxis] + steps).T

    @property
    def tally_size(self) -> int:
        return int(self._channel.shape[1])

    def matrix(self) -> Floats:
        return self._channel

    def debias(self, tally: Tally) -> Floats:
        found: Floats = tally.counts @ self._codes / tally.n
        return found

    def variance(self, truth: ArrayLike, n: int) -> Floats:
        return np.diag(self.covariance(truth, n)).copy()

    def _debiased_codes(self) -> Floats:
        return self._codes


@dataclass(frozen=True, eq=False)
class _Part:
    """The reports of one mechanism, by group; all arrays have a row for each group."""

    mechanism: Estimator
    own: list[Estimator]
    """The groups' own estimators, which differ from `mechanism` for an attribute in views."""
    tallies: list[Tally]
    group: NDArray[np.intp]
    n: Floats
    u: Floats
    """The weight of each report; over all parts they sum to one."""
    repeated: Floats
    codes: NDArray[np.bool_]
    values: Floats

    @property
    def u_n(self) -> Floats:
        """The weights of the groups' own estimates, shape (groups,)."""
        return self.u * self.n

    def factors(self, leverage: Floats) -> tuple[Floats, Floats]:
        """Return the weights of the groups' mean squares, and those of what people's truths add to
        them by repeats, shapes (groups,)."""
        each = self.u**2 * self.n / (1 - leverage[self.group])
        again = np.where(self.codes, 0, each * (self.repeated - 1))
        return each * np.where(self.codes, self.repeated, 1), again

    def total(self) -> Floats:
        """Return the part's share of the weighted estimate, shape (parameters,)."""
        return float(self.u_n.sum()) * self._mean(self.u_n)

    def _mean(self, weights: Floats) -> Floats:
        """Return the mean of the groups' estimates; weights have shape (groups,)."""
        if not isinstance(self.mechanism, SetBits):
            found: Floats = weights @ self.values / weights.sum()
            return found
        # An estimate from those who were asked about an item: a small group may have none.
        counts = (weights / self.n) @ np.array([tally.counts for tally in self.tallies])
        scaled = np.rint(counts * (_SCALE / counts.sum())).astype(np.int64)
        return self.mechanism.debias(Tally(int(scaled.sum()), scaled))

    def covariance(self, fitted: Floats, leverage: Floats) -> Floats:
        """Return the part's covariance about the fitted values, shape (k, k), of frequencies."""
        each, again = self.factors(leverage)
        own, values, whole = fitted[self.group], self.values, float(each.sum())
        mean = project(self._mean(each))

        def once(mechanism: Estimator) -> Floats:
            assert isinstance(mechanism, Frequencies)
            return mechanism.covariance(mean, 1)

        def rest(weights: Floats) -> Floats:
            crossed = (weights[:, np.newaxis] * values).T @ own
            found: Floats = (weights[:, np.newaxis] * own).T @ own - crossed - crossed.T
            return found

        found: Floats = whole * (self._average(each, once) + np.outer(mean, mean)) + rest(each)
        return found + np.diag(again @ values) + rest(again)

    def _average(self, each: Floats, once: Callable[[Estimator], Floats]) -> Floats:
        """Return the mean over groups of what their mechanisms have, which mostly is one."""
        if not isinstance(self.mechanism, Marginal):
            return once(self.mechanism)
        found: Floats = np.sum([x * once(m) for x, m in zip(each, self.own, strict=True)], axis=0)
        return found / float(each.sum())

    def variance(
        self,
        values: Floats,
        fitted: Floats,
        leverage: Floats,
        rows: Floats | None,
        shift: Floats | None,
    ) -> tuple[Floats, Floats]:
        """Return the part's variance about the fitted values, and the least that it can be.

        `shift` is by what the groups' values are other ones than those reported.
        """
        each, again = self.factors(leverage)
        own = fitted[self.group]
        low, high = self.mechanism.bounds if rows is None else (0.0, 1.0)
        truths = again @ ((high - values) * (low - own) ** 2 + (values - low) * (high - own) ** 2)
        truths = truths / (high - low)
        if self.mechanism.spread(0.0, self.tallies[0]) is not None:
            spreads = [
                self.mechanism.spread(float(mu), tally)
                for mu, tally in zip(own[:, 0], self.tallies, strict=True)
            ]
            found = np.atleast_1d(each @ np.array(spreads, dtype=float))
            return found + truths, found / 2
        whole = float(each.sum())
        mean = np.clip(self._mean(each), *self.mechanism.bounds)
        away = 0.0 if shift is None else each @ shift[self.group] / whole
        # So many equal weights have this variance: what does not shrink with them, as collisions of
        # a hash function that all groups share, is told by it.
        people = max(1, round(float(self.u_n.sum()) ** 2 / whole))
        if rows is not None:
            distribution = project(mean)
            mean = rows @ distribution
            once = self._average(each, lambda m: _of_sums(m, rows, distribution, people))
            moved = mean + away
            once, mean = once + moved * (1 - moved) - mean * (1 - mean), moved
        elif self.mechanism.parameters == 1:
            tally = Tally(int(self.n.sum()), np.sum([t.counts for t in self.tallies], axis=0))
            once = self.mechanism.tally_variance(mean, tally) * tally.n
        else:
            at = mean = mean + away
            once = self._average(each, lambda m: m.variance(at, people) * people)
        noise = np.maximum(once - (high - mean) * (mean - low), 1e-9 * once)
        if isinstance(self.mechanism, SetBits):
            return whole * once + truths, whole * noise
        apart = whole * mean**2 + each @ (own**2 - 2 * values * own)
        return whole * once + apart + truths, whole * noise


def _of_sums(mechanism: Estimator, rows: Floats, truth: Floats, people: int) -> Floats:
    assert isinstance(mechanism, Frequencies)
    return mechanism.sum_variances(rows, truth, people) * people


class _Sample:
    """The reports of all groups with a weight above 0."""

    def __init__(self, groups: Sequence[Cohorts | None], weights: Weights) -> None:
        counts = np.array([0 if group is None else group.n for group in groups], dtype=np.int64)
        if counts.shape != weights.counts.shape or (counts != weights.counts).any():
            raise InvalidInput("the groups' cohorts must have the reports that the weights count")
        used = np.flatnonzero((weights.each > 0) & (counts > 0))
        self.counts = counts[used].astype(float)
        self.n = int(counts[used].sum())
        u = weights.each[used] / (weights.each[used] @ self.counts)
        self.shares = u * self.counts
        self._own = self.counts / weights.people[used]
        self._margins = weights.margins[:, used]
        kinds: dict[object, list[tuple[int, Estimator, Tally, float, bool]]] = {}
        shapes = set()
        for place, index in enumerate(used.tolist()):
            cohorts = groups[index]
            assert cohorts is not None
            shapes.add((cohorts.parameters, cohorts.bounds))
            for (mechanism, tally), own in zip(cohorts, cohorts.repeats, strict=True):
                kind: object = mechanism
                if isinstance(mechanism, Marginal):  # of its own in every group
                    kind = tuple(part.question for part in mechanism.parts)
                row = place, mechanism, tally, own.factor, own.codes
                kinds.setdefault(kind, []).append(row)
        if len(shapes) > 1:
            raise InvalidInput(f"groups of different parameters cannot be weighted: {shapes}")
        ((_, self.bounds),) = shapes
        self.parts = []
        for members in kinds.values():
            places = np.array([row[0] for row in members], dtype=np.intp)
            self.parts.append(
                _Part(
                    mechanism=members[0][1],
                    own=[row[1] for row in members],
                    tallies=[row[2] for row in members],
                    group=places,
                    n=np.array([row[2].n for row in members], dtype=float),
                    u=u[places],
                    repeated=np.array([row[3] for row in members]),
                    codes=np.array([row[4] for row in members]),
                    values=np.array([row[1].debias(row[2]) for row in members]),
                )
            )

    @property
    def people(self) -> float:
        """The sum of the squares of the weights, and of more where people have several reports."""
        return float(sum((part.u**2 * part.n) @ part.repeated for part in self.parts))

    def checked_sets(self, sets: ArrayLike) -> Floats:
        """Return sets of values as an array."""
        rows = np.asarray(sets, dtype=float)
        for part in self.parts:
            if not isinstance(part.mechanism, Frequencies):
                raise InvalidInput(f"sums are of frequencies, got {part.mechanism.name}")
            if rows.ndim != 2 or rows.shape[1] != part.mechanism.k:
                raise InvalidInput(f"sets have shape (sets, {part.mechanism.k}), got {rows.shape}")
        return rows

    def means(self, values: Sequence[Floats]) -> Floats:
        """Return the groups' means over all parts, shape (groups, parameters)."""
        found = np.zeros((self.counts.size, values[0].shape[1]))
        for part, y in zip(self.parts, values, strict=True):
            np.add.at(found, part.group, part.n[:, np.newaxis] * y)
        found /= self.counts[:, np.newaxis]
        return found

    def regression(self, values: Sequence[Floats]) -> tuple[Floats, Floats]:
        """Return the regression of values on the margins' rows, shape (groups, parameters), and a
        bound on the leverage of a group's person, shape (groups,).

        It is found by fitting the rows of one margin after the other (backfitting).
        """
        y = self.means(values)
        indicators, leverage = [], np.zeros(self.counts.size)
        for at in self._margins:
            size = int(at.max()) + 1
            within = np.bincount(at, self.shares, size)
            entries = self.shares / within[at], (at, np.arange(at.size))
            indicators.append((at, csr_array(entries, shape=(size, at.size))))
            leverage += self.shares / self.counts / within[at]
        fitted = np.zeros_like(y)
        scale = max(float(np.abs(y).max()), 1e-12)
        for _ in range(_ROUNDS):
            largest = 0.0
            for at, indicator in indicators:
                step = indicator @ (y - fitted)
                fitted += step[at]
                largest = max(largest, float(np.abs(step).max()))
            if len(indicators) == 1 or largest < _CLOSE * scale:
                break
        return fitted, np.minimum(leverage * self._own, _MOST_LEVERAGE)

    def imagined(self, z: float) -> Floats:
        """Return the people to imagine in each group for one of its own, shape (groups,).

        They are z**2 in all, in proportion to the variance of each row of a margin, in units of
        its effective number of people; of several margins the most.
        """
        squares = np.zeros(self.counts.size)
        for part in self.parts:
            np.add.at(squares, part.group, part.u**2 * part.n * part.repeated)
        found = np.zeros(self.counts.size)
        for at in self._margins:
            within = np.bincount(at, squares)
            people = np.bincount(at, self.shares) ** 2 / within
            found = np.maximum(found, (within / people)[at])
        found *= z * z / float(squares.sum())
        return found

    def within(
        self, values: Sequence[Floats], fitted: Floats, leverage: Floats
    ) -> tuple[Floats, Floats]:
        """Return the groups' own means and leverages; of one report the given ones."""
        several = self.counts > 1
        own = np.where(several[:, np.newaxis], self.means(values), fitted)
        alone = np.minimum(self._own / self.counts, _MOST_LEVERAGE)
        return own, np.where(several, alone, leverage)

    def variance(
        self,
        values: Sequence[Floats],
        fitted: Floats,
        leverage: Floats,
        rows: Floats | None,
        shift: Floats | None = None,
    ) -> tuple[Floats, Floats]:
        """Return the variance about the fitted values, and the least that it can be.

        `shift`, shape (groups, parameters), is in `values` and in `fitted`, but not in the reports.
        """
        each = [
            part.variance(y, fitted, leverage, rows, shift)
            for part, y in zip(self.parts, values, strict=True)
        ]
        variance: Floats = np.sum([found for found, _ in each], axis=0)
        return variance, np.sum([least for _, least in each], axis=0)
