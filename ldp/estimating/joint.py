"""Joint tables of two attributes, shares within groups, differences between groups.

A `JointTable` comes from records that report both attributes (`joint`), or from any estimate of
the shares of pairs of values with its covariance, as that of one question about pairs has: what is
worked out from a table asks for its values, covariance and number of reports alone.

The estimates are unbiased and may be negative: they are never projected, which would bias whatever
is summed from them. `JointTable.likely` is the most likely distribution, for what must be one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from ldp.core.estimation import Cohorts
from ldp.core.intervals import Interval, around, clipped, critical_value, fieller, interval
from ldp.core.mechanism import Categorical, Mechanism
from ldp.core.repeated import Repeated, Repeats
from ldp.errors import InvalidInput
from ldp.estimating.consistency import project
from ldp.estimating.differences import holm
from ldp.estimating.pairs import PairTally, product_means, reading, second_moments
from ldp.estimating.pooling import pool_with_covariance
from ldp.estimating.simplex import definite, maximize_quadratic, tangent_inverse
from ldp.mechanisms.numbers.mean import MeanMechanism

Floats = NDArray[np.float64]

MAX_CELLS = 1 << 10
"""The most cells of a joint table: its covariance has their square."""

MAX_DIFFERENCES = 1 << 14
"""The most differences between groups in one answer."""

CLEAR = 3.0
"""Standard errors by which a group's share must exceed zero for the shares within it to be told."""

PairCohort = tuple[Mechanism, Mechanism, PairTally]
"""Records whose two attributes have these mechanisms, and what they tell together."""


def check_cells(first: int, second: int) -> None:
    """Raise `InvalidInput` unless a table of so many rows and columns is small enough."""
    if first * second > MAX_CELLS:
        raise InvalidInput(
            f"a joint table has {MAX_CELLS} cells at most, got {first} x {second}: ask about "
            "attributes with fewer values"
        )


@dataclass(frozen=True, eq=False)
class JointTable:
    """The shares of the pairs of two attributes' values, shape (k1, k2).

    `value` is unbiased; `covariance`, shape (k1 k2, k1 k2), is that of its entries, row by row;
    `n` records went in. `method` says how levels were taken together. Raises `InvalidInput` for
    other shapes and for more than `MAX_CELLS` cells.
    """

    value: Floats
    covariance: Floats
    n: int
    method: str = "debias"

    def __post_init__(self) -> None:
        if self.value.ndim != 2 or self.covariance.shape != (self.value.size,) * 2:
            raise InvalidInput(
                "a joint table has the shape (k1, k2) and a covariance of (k1 k2, k1 k2), got "
                f"{self.value.shape} and {self.covariance.shape}"
            )
        check_cells(*self.value.shape)

    @property
    def standard_error(self) -> Floats:
        """The standard errors of the shares, shape (k1, k2)."""
        error: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 0)).reshape(self.value.shape)
        return error

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval:
        """Return Wald intervals of the shares, clipped to [0, 1], each of shape (k1, k2).

        With `simultaneous` all cover at once (Bonferroni). Raises `InvalidInput` unless
        0 < confidence < 1.
        """
        together = self.value.size if simultaneous else 1
        return interval(self.value, self.standard_error, (0, 1), confidence, together=together)

    def transposed(self) -> "JointTable":
        """Return the table with the attributes' places exchanged."""
        order = np.arange(self.value.size).reshape(self.value.shape).T.ravel()
        covariance = self.covariance[np.ix_(order, order)]
        return JointTable(self.value.T, covariance, self.n, self.method)

    @cached_property
    def likely(self) -> Floats:
        """The distribution nearest to the estimate in the metric of its covariance, (k1, k2).

        It maximises the quasi-likelihood of the estimate (`ldp.estimating.pooling`): noise that
        the cells share moves them together, as it does not under a Euclidean projection.
        """
        value = self.value.ravel()
        total = value.sum()
        around = value + (1 - total) / value.size
        curvature = definite(tangent_inverse(_on_tangent(self.covariance)))
        nearest = maximize_quadratic(curvature, curvature @ around, around > 0)
        shares: Floats = (nearest / nearest.sum()).reshape(self.value.shape)
        return shares


def _on_tangent(covariance: Floats) -> Floats:
    """Return an information whose inverse on {x : sum x = 0} is the covariance's part there."""
    size = len(covariance)
    centered = covariance - covariance.mean(axis=0)
    centered -= centered.mean(axis=1, keepdims=True)
    centered += 1e-12 * np.trace(centered) / size * np.eye(size)
    return np.asarray(tangent_inverse(centered))


def joint(
    cohorts: Sequence[PairCohort], repeats: Repeated = (), *, alike: bool = False
) -> JointTable:
    """Estimate the joint table of two categorical attributes.

    A cohort has the records of one level of each attribute; cohorts without records are left out.
    The table is that of the people who answered: each cohort counts by its share of the records,
    whatever its people are like. If `alike` the cohorts are samples of one population, and are
    weighed by the inverses of their covariances, which are taken at one table that they share:
    that of weights by their precision alone.
    `repeats` are those of the cohorts, as of `Cohorts`. Covariances are those of the products of
    the two reports' estimates, E[uu' x vv'] - pp' summed over a distribution near the estimate:
    with k-RR the Cramer-Rao bound. Cost: O((k1 k2)**2 k2 + k1**3 + k2**3), and (k1 k2)**3 if
    several cohorts are alike. Raises `InvalidInput` where there are no records, an attribute is a
    number, or the table has more than `MAX_CELLS` cells.
    """
    given = with_records(cohorts, repeats)
    values = []
    for first, second, tally, _ in given:
        if not isinstance(first, Categorical) or not isinstance(second, Categorical):
            raise InvalidInput("a joint table is of values: a number has means within groups")
        check_cells(first.k, second.k)
        values.append(product_means(first, second, tally))
    n = sum(tally.n for _, _, tally, _ in given)
    shares = np.array([tally.n / n for _, _, tally, _ in given])
    mixed = np.tensordot(shares, np.array(values), axes=1)
    covariances = [_covariance(one, value) for one, value in zip(given, values, strict=True)]
    if alike and len(given) > 1:
        flat = [value.ravel() for value in values]
        precise = np.array([1 / np.trace(own) for own in covariances])
        pilot = np.tensordot(precise / precise.sum(), np.array(values), axes=1)
        value, covariance = _weighted(flat, [_covariance(one, pilot) for one in given])
        return JointTable(value.reshape(mixed.shape), covariance, n, "gls")
    most = max(own.factor for *_, own in given)
    covariance = _mixed_covariance(shares, values, mixed, covariances, n, most)
    return JointTable(mixed, covariance, n, "stratified" if len(given) > 1 else "debias")


def of_cohorts(cohorts: Cohorts, shape: tuple[int, int], *, alike: bool = False) -> JointTable:
    """Return the joint table of cohorts whose parameters are the cells of this shape, row by row.

    They are questions about pairs of values, each answered by one report. `alike` is as of `joint`.
    Raises `InvalidInput` as `joint`, and for another number of parameters.
    """
    check_cells(*shape)
    if cohorts.parameters != shape[0] * shape[1]:
        raise InvalidInput(f"a table of {shape} has not {cohorts.parameters} cells")
    if alike or len(cohorts) == 1:
        found, covariance = pool_with_covariance(cohorts, "gls")
        method = "gls" if len(cohorts) > 1 else "debias"
        return JointTable(found.value.reshape(shape), covariance, cohorts.n, method)
    each = [pool_with_covariance(one, "gls") for one in cohorts.alone()]
    shares = cohorts.counts / cohorts.n
    values = [found.value for found, _ in each]
    mixed = np.tensordot(shares, np.array(values), axes=1)
    covariance = _mixed_covariance(
        shares, values, mixed, [own for _, own in each], cohorts.n, cohorts.most_repeated
    )
    return JointTable(mixed.reshape(shape), covariance, cohorts.n, "stratified")


def with_records(
    cohorts: Sequence[PairCohort], repeats: Repeated
) -> list[tuple[Mechanism, Mechanism, PairTally, Repeats]]:
    """Return the cohorts that have records, each with its repeats.

    Raises `InvalidInput` where there are none, or another number of repeats than of cohorts.
    """
    known = repeats or [Repeats()] * len(cohorts)
    if len(known) != len(cohorts):
        raise InvalidInput(f"there are {len(cohorts)} cohorts, but {len(known)} repeats")
    given = [(*one, own) for one, own in zip(cohorts, known, strict=True) if one[2].n]
    if not given:
        raise InvalidInput("there are no records that report both attributes")
    return given


def _near(value: Floats, people: float) -> Floats:
    """Return a distribution near the estimate in which every cell is possible."""
    near = project(value.ravel())
    near += 1 / (people + near.size)
    found: Floats = (near / near.sum()).reshape(value.shape)
    return found


def _covariance(cohort: tuple[Mechanism, Mechanism, PairTally, Repeats], table: Floats) -> Floats:
    """Return the covariance of the table estimated from a cohort, if it is near `table`."""
    first, second, tally, repeats = cohort
    assert isinstance(first, Categorical)
    assert isinstance(second, Categorical)
    n, near = tally.n, _near(table, tally.n / repeats.factor)
    inner = np.einsum("xy,xab->yab", near, second_moments(first))
    flat = near.ravel()
    covariance = (_expanded(inner, second) - np.outer(flat, flat)) / n
    if repeats.factor > 1:
        truths = (np.diag(flat) - np.outer(flat, flat)) / n
        covariance += (repeats.factor - 1) * (covariance if repeats.codes else truths)
    return covariance


def _expanded(inner: Floats, second: Categorical) -> Floats:
    """Return sum_y inner[y] (x) E[v v' | y], shape (f k, f k), of inner of shape (k, f, f)."""
    k, f = inner.shape[:2]
    moments = second_moments(second)
    found = inner.reshape(k, f * f).T @ moments.reshape(k, k * k)
    return np.ascontiguousarray(found.reshape(f, f, k, k).transpose(0, 2, 1, 3)).reshape(
        f * k, f * k
    )


def _mixed_covariance(
    shares: Floats,
    values: Sequence[Floats],
    mixed: Floats,
    covariances: Sequence[Floats],
    n: int,
    most_repeated: float,
) -> Floats:
    """Return the covariance of sum_g w_g f_g; who answers at which level is a sample."""
    covariance: Floats = np.zeros_like(covariances[0])
    for share, value, own in zip(shares, values, covariances, strict=True):
        away = (value - mixed).ravel()
        covariance += share**2 * own
        if len(values) > 1:
            covariance += most_repeated * share * np.outer(away, away) / n
    return covariance


def _weighted(values: Sequence[Floats], covariances: Sequence[Floats]) -> tuple[Floats, Floats]:
    """Return sum_g W_g f_g, W_g being proportional to the inverse of the covariance, and its own.

    A covariance may be singular in the direction of the sum alone, which is known to be one.
    """
    size = len(covariances[0])
    informations = []
    for covariance in covariances:
        level = np.trace(covariance) / size
        informations.append(np.linalg.inv(covariance + level / size))
    total = np.linalg.inv(np.sum(informations, axis=0))
    parts = [own @ value for own, value in zip(informations, values, strict=True)]
    value = total @ np.sum(parts, axis=0)
    weights = [total @ own for own in informations]
    each = zip(weights, covariances, strict=True)
    return value, np.sum([w @ own @ w.T for w, own in each], axis=0)


@dataclass(frozen=True, eq=False)
class Groups:
    """What is so within groups: shares of values, or a mean, by group.

    `value` has the shape (groups, parameters), `covariance` is that of its entries, group by group.
    `share` and `share_error`, shape (groups,), are the groups' shares of the population. A group
    whose share is not `clear` has no estimate to rely on: a quotient by almost nothing.
    `with_share`, shape (groups, parameters), is the covariance of the values with their group's
    share, where they are quotients by it; None where they are not.
    """

    value: Floats
    covariance: Floats
    share: Floats
    share_error: Floats
    n: int
    bounds: tuple[float, float] = (0.0, 1.0)
    with_share: Floats | None = None

    @property
    def clear(self) -> NDArray[np.bool_]:
        """Which groups' shares exceed zero by `CLEAR` standard errors, shape (groups,)."""
        known: NDArray[np.bool_] = self.share > CLEAR * self.share_error
        return known

    @property
    def standard_error(self) -> Floats:
        """The standard errors, shape (groups, parameters)."""
        error: Floats = np.sqrt(np.maximum(np.diag(self.covariance), 0)).reshape(self.value.shape)
        return error

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval:
        """Return intervals within the range; all of it where not clear.

        Of quotients they are Fieller's (`ldp.estimating.ratings`), else Wald's. With `simultaneous`
        all cover at once (Bonferroni). Raises `InvalidInput` unless 0 < confidence < 1.
        """
        z = critical_value(confidence, self.value.size if simultaneous else 1)
        below = above = z * self.standard_error
        if self.with_share is not None:
            f, v_f = self.share[:, None], self.share_error[:, None] ** 2
            # By the delta method, of the quotient's own variance and covariance with its divisor.
            covariance = self.value * v_f + f * self.with_share
            v_d = (f * self.standard_error) ** 2 + self.value * (2 * covariance - self.value * v_f)
            low, high = fieller(self.value * f, f, v_d, v_f, covariance, z)
            below, above = self.value - low, high - self.value
        center = np.clip(self.value, *self.bounds)
        low, high = clipped(center - below, center + above, self.bounds)
        unclear = ~self.clear
        low[unclear], high[unclear] = self.bounds
        return low, high

    def rescaled(self, bounds: tuple[float, float]) -> "Groups":
        """Return the groups with their values mapped linearly from the range onto `bounds`."""
        factor = (bounds[1] - bounds[0]) / (self.bounds[1] - self.bounds[0])
        value = bounds[0] + (self.value - self.bounds[0]) * factor
        covariance = factor**2 * self.covariance
        together = None if self.with_share is None else factor * self.with_share
        return Groups(
            value, covariance, self.share, self.share_error, self.n, bounds, with_share=together
        )


def within(table: JointTable) -> Groups:
    """Return the shares of the columns' values within each row's value, by the delta method.

    The groups are the rows. P(v | g) = p_gv / sum_w p_gw, with the covariance of the table.
    """
    groups, k = table.value.shape
    share = table.value.sum(axis=1)
    slopes = np.zeros((groups, k, groups, k))
    value = table.value / _nonzero(share)[:, None]
    for g in range(groups):
        slopes[g, :, g, :] = (np.eye(k) - value[g][:, None]) / _nonzero(share)[g]
    return _quotients(value, slopes, table.covariance, share, table.n, (0.0, 1.0))


def _quotients(
    value: Floats,
    slopes: Floats,
    covariance: Floats,
    share: Floats,
    n: int,
    bounds: tuple[float, float],
) -> Groups:
    """Return groups from the slopes, (groups, parameters, *table), of their values."""
    groups = len(value)
    flat = slopes.reshape(value.size, -1)
    sums = np.kron(np.eye(groups), np.ones(covariance.shape[0] // groups))
    if slopes.shape[2] != groups:  # means: the first row of the table has the shares
        sums = np.eye(groups, covariance.shape[0])
    error = np.sqrt(np.maximum(np.einsum("gi,ij,gj->g", sums, covariance, sums), 0))
    by_group = (flat @ covariance @ sums.T).reshape(groups, -1, groups)
    together = np.einsum("gpg->gp", by_group)
    return Groups(value, flat @ covariance @ flat.T, share, error, n, bounds, with_share=together)


def _nonzero(share: Floats) -> Floats:
    """Return the shares, tiny ones away from zero: those groups are not clear anyway."""
    tiny = np.finfo(float).tiny ** 0.25
    found: Floats = np.where(np.abs(share) < tiny, tiny, share)
    return found


def means_within(cohorts: Sequence[PairCohort], repeats: Repeated = ()) -> Groups:
    """Estimate the mean of a number, the first attribute, within the values of the second.

    The mean of group g is E[z 1_g] / P(g), on the mechanism's scale [-1, 1]. Cohorts count by
    their shares of the records, as in `joint`; with repeats of a number the whole variance counts
    as that of the truths. Raises `InvalidInput` as `joint`, and where the first attribute is not a
    number.
    """
    given = with_records(cohorts, repeats)
    values, covariances = [], []
    for first, second, tally, own in given:
        if not isinstance(first, MeanMechanism) or not isinstance(second, Categorical):
            raise InvalidInput("means within groups are of a number within values")
        value = product_means(first, second, tally)
        one, other = reading(first).slope, reading(second)
        by_code = tally.products @ other.slope
        by_code += np.outer(tally.first.counts, other.constant)
        inner = np.einsum("cy,ca,cb->yab", by_code / tally.n, one, one)
        flat = value.ravel()
        covariance = (_expanded(_semidefinite(inner), second) - np.outer(flat, flat)) / tally.n
        values.append(value)
        covariances.append(own.factor * covariance)
    n = sum(tally.n for _, _, tally, _ in given)
    shares = np.array([tally.n / n for _, _, tally, _ in given])
    mixed = np.tensordot(shares, np.array(values), axes=1)
    most = max(own.factor for *_, own in given)
    covariance = _mixed_covariance(shares, values, mixed, covariances, n, most)
    share = mixed[0]
    safe, groups = _nonzero(share), share.size
    mean = mixed[1] / safe
    slopes = np.zeros((groups, 1, 2, groups))
    each = np.arange(groups)
    slopes[each, 0, 0, each] = -mean / safe
    slopes[each, 0, 1, each] = 1 / safe
    return _quotients(mean[:, None], slopes, covariance, share, n, (-1.0, 1.0))


def _semidefinite(matrices: Floats) -> Floats:
    """Return the symmetric matrices, shape (m, f, f), with their negative eigenvalues at zero."""
    values, vectors = np.linalg.eigh(matrices)
    found: Floats = (vectors * np.maximum(values, 0)[:, None, :]) @ vectors.transpose(0, 2, 1)
    return found


@dataclass(frozen=True, eq=False)
class GroupDifferences:
    """The second group less the first, of each pair of groups; arrays (pairs, parameters).

    `pairs` are (first, second) positions among the groups. `adjusted_p_value` allows for all
    pairs and parameters together (`holm`). Differences with a group that is not clear are nan,
    with a p-value of one.
    """

    pairs: Sequence[tuple[int, int]]
    first: Floats
    second: Floats
    value: Floats
    standard_error: Floats
    p_value: Floats
    adjusted_p_value: Floats
    bounds: tuple[float, float] = field(default=(0.0, 1.0))

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval:
        """Return intervals of the differences, each of shape (pairs, parameters).

        Each covers its own difference with probability `confidence`; with `simultaneous` all do
        at once (Bonferroni). Raises `InvalidInput` unless 0 < confidence < 1.
        """
        z = critical_value(confidence, self.value.size if simultaneous else 1)
        widest = self.bounds[1] - self.bounds[0]
        return around(self.value, z * self.standard_error, (-widest, widest))


def differences_between(groups: Groups, reference: int | None = None) -> GroupDifferences:
    """Compare all pairs of groups, or each with the group `reference`, by the delta method.

    The two groups are of the same reports, whose covariance counts. Raises `InvalidInput` for a
    reference that is no group, and for more than `MAX_DIFFERENCES` differences.
    """
    count, parameters = groups.value.shape
    if reference is None:
        pairs = list(combinations(range(count), 2))
    elif 0 <= reference < count:
        pairs = [(reference, g) for g in range(count) if g != reference]
    else:
        raise InvalidInput(f"the reference is one of {count} groups, got {reference}")
    if len(pairs) * parameters > MAX_DIFFERENCES:
        raise InvalidInput(
            f"{len(pairs)} pairs of groups of {parameters} values are more than {MAX_DIFFERENCES} "
            "differences: name a group to compare the others with"
        )
    first, second = (np.array([pair[i] for pair in pairs], dtype=np.intp) for i in (0, 1))
    blocks = groups.covariance.reshape(count, parameters, count, parameters)
    own = np.einsum("gvgv->gv", blocks)
    across = np.einsum("gvhv->ghv", blocks)
    variance = own[first] + own[second] - 2 * across[first, second]
    error = np.sqrt(np.maximum(variance, 0))
    value = groups.value[second] - groups.value[first]
    unclear = ~(groups.clear[first] & groups.clear[second])
    value[unclear] = error[unclear] = np.nan
    with np.errstate(invalid="ignore", divide="ignore"):
        p_value = np.asarray(2 * ndtr(-np.abs(value) / error))
    p_value[np.isnan(p_value)] = 1.0
    return GroupDifferences(
        pairs,
        groups.value[first],
        groups.value[second],
        value,
        error,
        p_value,
        holm(p_value.ravel()).reshape(p_value.shape),
        groups.bounds,
    )
