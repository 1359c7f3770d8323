"""Change over time: differences between periods, trends, and the period in which values changed.

All three are contrasts, sums over periods of w_t f_t with weights that sum to zero. Reports of one
period are independent. Those of two periods may be of the same people, and nobody but they know of
whom, so that the covariance of two periods' estimates cannot be estimated from tallies. There are
two ways to an error:

- Without panels it is the largest that is possible. A person has x_t = 1 in period t or not. Of
  two periods whose weights have unlike signs, the covariance adds most variance where it is most
  negative. It is so where all people of the smaller period, of share g, are in the larger one, of
  share f, and where of them a share a had x = 1 there: -min(a g, (1 - a)(1 - g)) over the larger
  number of people (Frechet, Annales de l'Universite de Lyon A 14, 1951). Those who come back may
  be others than those who do not, so that a is as near to 1 - g, where this is most, as f and
  the ratio of the two numbers permit; of periods of equal size a is f. For means and for strata,
  and of like signs, the bound is that of Cauchy and Schwarz. Noise is independent where reports
  are drawn afresh. Where devices repeat codes (memos), one value has one memo and two values have
  two, which are independent: noise that is shared is shared with the same sign, so of unlike signs
  it only takes variance away, and of like signs the bound is that of whole reports.
- With panels it is estimated. A device drew one of 16 or so panels for life, whatever it answers.
  So panels are of different people, and each has an independent estimate of the contrast, in which
  whatever the same people do over time is contained: the error is that of the mean of the panels'
  contrasts, with a Student distribution of one degree less than panels ("random groups", Wolter,
  "Introduction to Variance Estimation", 2nd edition, 2007, section 2.2).

Where people chose levels, the estimate of a period is of the mix of those who answered in it, and a
change of that mix is no change of anybody's answer. So `series` weighs the levels of all periods
alike, and tells by how much the mix alone moved each estimate (the two parts of a difference of
Kitagawa, Journal of the American Statistical Association 50, 1955).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import fdtrc, ndtr, stdtr

from ldp.core.estimation import LEAST_PANELS, LEAST_REPORTS
from ldp.core.estimator import Estimator
from ldp.core.intervals import (
    Interval,
    around,
    check_confidence,
    clipped,
    critical_value,
    statistic,
    wilson_ends,
)
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.estimating.differences import holm

Floats = NDArray[np.float64]

Parts = Mapping[Hashable, tuple[Estimator, Tally]]
"""The reports of one period, by stratum, such as a level: an estimator and what it reads."""

TRIMMED = 0.1
"""The part of the periods at either end within which no break is looked for: the mean of a few
periods is too uncertain."""

_PAIRS = 2**20
"""Covariances of pairs of periods that are held in memory at once."""

_LEAST_VARIANCE = 1e-9
"""A variance of one report below which rounding decides."""

_CELL = 0.05
"""Width of the cells into which the values of a process are divided, in standard deviations."""

_FARTHEST = 6.0
"""The greatest statistic whose probability is integrated; beyond, a sum bounds it."""


@dataclass(frozen=True, eq=False)
class Series:
    """Estimates of the same parameters in each of several periods.

    `value` and `variance` have shape (periods, parameters). `truths`, of that shape, is at most the
    part of the variance that is due to people's truths. `n`, shape (periods,), counts reports, and
    `sample` is the number of people who, asked alike, would give these truths' variance.
    If `people`, all reports of a period weigh the same, and the parameters are shares of people.
    If `codes`, devices may have sent the same code in several periods. `mix`, shape
    (periods, parameters), is the estimate of the people who answered less the one here; None where
    these are the same. `scores`, shape (panels, periods, parameters), is each panel's part in the
    deviation of an estimate from what it estimates; None without panels.
    """

    value: Floats
    variance: Floats
    truths: Floats
    n: Floats
    sample: Floats
    bounds: tuple[float, float]
    people: bool
    codes: bool = False
    mix: Floats | None = None
    scores: Floats | None = None

    def __len__(self) -> int:
        return self.n.size

    @property
    def is_shares(self) -> bool:
        """Whether parameters are shares of people or of values, and no means."""
        return self.bounds == (0.0, 1.0)

    @property
    def precision(self) -> Floats:
        """One over the variance of each period's estimates, on average over these: (periods,).

        Of what is known without error the number of reports stands for it.
        """
        found: Floats = 1 / np.maximum(self.variance.mean(axis=1), _LEAST_VARIANCE / self.n)
        return found


def series(
    periods: Sequence[Parts],
    panels: Sequence[Sequence[Parts]] = (),
    *,
    codes: bool = False,
    repeated: float = 1.0,
) -> Series:
    """Estimate parameters in each period, from the tallies of its strata.

    Strata are weighed by their shares of the reports of all periods, so that an estimate does not
    change because the mix of strata does; where a period lacks a stratum, by their shares of the
    period's own reports, as all other estimates are. `panels` has for each panel the parts of the
    periods again, of that panel's reports alone; fewer than `LEAST_PANELS` panels, or panels of
    fewer than `LEAST_REPORTS` reports in a period on average, are not used. `repeated` is the
    factor of `ldp.core.repeated` where a person may have several reports in one period. Raises
    `InvalidInput` where a period has no reports, or parameters differ. Cost: one `debias` and two
    variances for each stratum and period, and a `debias` for each of a panel.
    """
    strata = list(dict.fromkeys(name for parts in periods for name in parts))
    counts = np.array(
        [[_reports(parts, name) for name in strata] for parts in periods], dtype=float
    )
    if not counts.size or not counts.any(axis=1).all():
        raise InvalidInput("each period must have reports")
    kept = np.flatnonzero(counts.any(axis=0)).tolist()
    strata = [strata[s] for s in kept]
    counts = counts[:, kept]
    n = counts.sum(axis=1)
    shapes = {(m.parameters, m.bounds) for parts in periods for m, _ in parts.values()}
    if len(shapes) > 1:
        raise InvalidInput(f"the periods estimate different parameters: {sorted(shapes)}")
    ((parameters, bounds),) = shapes
    values = np.zeros((len(strata), len(periods), parameters))
    for s, name in enumerate(strata):
        for t, parts in enumerate(periods):
            if counts[t, s]:
                mechanism, tally = parts[name]
                values[s, t] = mechanism.debias(tally)
    own = (counts / n[:, None]).T[..., None]  # (strata, periods, 1)
    alike = bool(counts.all()) and len(strata) > 1
    weights = own
    if alike:
        weights = np.broadcast_to((counts.sum(axis=0) / n.sum())[:, None, None], own.shape)
    value = (weights * values).sum(axis=0)
    noise, truths = _cells(periods, strata, counts, values, bounds)
    noise, truths = ((weights**2 * each).sum(axis=0) for each in (noise, truths))
    if not alike:  # the people of a period are one sample, in which strata have the shares they do
        common = (n[:, None] * value).sum(axis=0) / n.sum()
        truths = np.maximum(_spread(value, bounds), _spread(common, bounds)) / n[:, None]
    truths = repeated * truths
    return Series(
        value=value,
        variance=noise + truths,
        truths=truths,
        n=n,
        sample=1 / (repeated * (weights[..., 0] ** 2 / np.maximum(counts.T, 1)).sum(axis=0)),
        bounds=bounds,
        people=not alike and repeated == 1 and bounds == (0.0, 1.0),
        codes=codes,
        mix=(own * values).sum(axis=0) - value if alike else None,
        scores=_scores(panels, strata, counts, values, None if alike else value, weights),
    )


def _reports(parts: Parts, name: Hashable) -> int:
    return parts[name][1].n if name in parts else 0


def _spread(truth: Floats, bounds: tuple[float, float]) -> Floats:
    """Return the greatest variance of an answer whose mean this is (Bhatia and Davis, 2000)."""
    low, high = bounds
    inside = np.clip(truth, low, high)
    found: Floats = (high - inside) * (inside - low)
    return found


def _cells(
    periods: Sequence[Parts],
    strata: Sequence[Hashable],
    counts: Floats,
    values: Floats,
    bounds: tuple[float, float],
) -> tuple[Floats, Floats]:
    """Return the variances of the strata's estimates that are due to noise, and at most to truths.

    Both have shape (strata, periods, parameters), and are the larger ones of those at a period's
    own estimate and at that of all periods, so that tests and intervals agree, and a value that
    nobody reported in a period has an error.
    """
    noise, truths = np.zeros_like(values), np.zeros_like(values)
    for s, name in enumerate(strata):
        seen = np.flatnonzero(counts[:, s])
        some = [periods[t][name] for t in seen.tolist()]
        n = counts[seen, s][:, None]
        pooled = (n * values[s, seen]).sum(axis=0) / n.sum()
        for truth in (values[s, seen], np.broadcast_to(pooled, values[s, seen].shape)):
            inside = np.clip(truth, *bounds)
            whole = _variance(some, inside, n)
            due = np.minimum(whole, _spread(inside, bounds) / n)
            noise[s, seen] = np.maximum(noise[s, seen], whole - due)
            truths[s, seen] = np.maximum(truths[s, seen], due)
    return noise, truths


def _variance(parts: Sequence[tuple[Estimator, Tally]], truth: Floats, n: Floats) -> Floats:
    """Return the variances of one stratum's estimates, shape (periods, parameters)."""
    first = parts[0][0]
    if all(m is first for m, _ in parts) and _is_pure(first):
        moments = first.moments(truth, 1)
        if moments is not None:
            return moments[0] / n
    return np.array(
        [m.tally_variance(f, tally) for (m, tally), f in zip(parts, truth, strict=True)]
    )


def _is_pure(mechanism: Estimator) -> bool:
    """Tell whether the variance depends on a parameter and the number of reports alone."""
    return type(mechanism).tally_variance is Estimator.tally_variance


def _scores(
    panels: Sequence[Sequence[Parts]],
    strata: Sequence[Hashable],
    counts: Floats,
    values: Floats,
    center: Floats | None,
    weights: Floats,
) -> Floats | None:
    """Return the panels' parts in the deviations of the periods' estimates.

    A report of stratum s weighs weights / counts, and deviates from the stratum's estimate, or from
    `center`, shape (periods, parameters). The scores of a period sum to zero. Panels without
    reports have none.
    """
    found = []
    for panel in panels:
        score = np.zeros(values.shape[1:])
        reports = 0
        for t, parts in enumerate(panel):
            for s, name in enumerate(strata):
                if own := _reports(parts, name):
                    mechanism, tally = parts[name]
                    away = mechanism.debias(tally) - (values[s, t] if center is None else center[t])
                    score[t] += weights[s, t] * (own / counts[t, s]) * away
                    reports += own
        if reports:
            found.append(score)
    enough = counts.sum() >= LEAST_REPORTS * len(found) * counts.shape[0]
    return np.array(found) if len(found) >= LEAST_PANELS and enough else None


@dataclass(frozen=True, eq=False)
class Contrasts:
    """Sums over periods of w_t f_t; arrays have shape (contrasts, parameters).

    `degrees` are those of the Student distribution of a value over its standard error; infinite
    without panels. `widest`, shape (contrasts, 1), is the greatest that a contrast can be.
    """

    value: Floats
    standard_error: Floats
    degrees: float
    widest: Floats

    @property
    def p_value(self) -> Floats:
        """Of the two-sided test that a contrast is zero, for each by itself."""
        return _two_sided(_statistic(self), self.degrees)

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval:
        """Return intervals (low, high), each of the shape of `value`.

        Each covers its own contrast with probability `confidence`; with `simultaneous` those of all
        parameters of a contrast cover at once (Bonferroni). Raises `InvalidInput` unless
        0 < confidence < 1.
        """
        together = self.value.shape[1] if simultaneous else 1
        z = critical_value(confidence, together, self.degrees)
        return around(self.value, z * self.standard_error, (-self.widest, self.widest))


def _square_and_add(
    of: Series, found: Contrasts, confidence: float, simultaneous: bool
) -> Interval:
    """Return intervals of the differences of shares of two periods, shape (parameters,).

    The distance to each end is that of Wilson's intervals with noise of both shares, as their
    variances add up: sqrt(a^2 + 2 r a b + b^2), where -r is the correlation of the estimates
    (Newcombe, Statistics in Medicine 17, 1998, pages 873 and 2635). The normal interval covers too
    rarely where few reports say yes.
    """
    z = critical_value(confidence, of.value.shape[1] if simultaneous else 1)
    inside = np.clip(of.value, 0, 1)
    people, noise = of.sample[:, None], of.variance - of.truths
    low, high = wilson_ends(inside, noise * people, people, z)
    least = z * np.sqrt(noise)  # beyond 0 and 1 there is noise alone
    down, up = np.maximum(inside - low, least), np.maximum(high - inside, least)
    own = np.sqrt((inside * (1 - inside) / people + noise).prod(axis=0))
    shared = (found.standard_error[0] ** 2 - of.variance.sum(axis=0)) / 2
    r = np.minimum(1, np.divide(shared, own, out=np.zeros_like(own), where=own > 0))
    below, above = (
        np.sqrt(a**2 + 2 * r * a * b + b**2) for a, b in ((up[0], down[1]), (down[0], up[1]))
    )
    value, uncertain = found.value[0], _is_uncertain(found)[0]
    return clipped(value - uncertain * below, value + uncertain * above, (-1, 1))


def _statistic(of: Contrasts) -> Floats:
    """Return the values over their standard errors; 0 of what is known without error."""
    uncertain = _is_uncertain(of)
    return np.where(uncertain, of.value / np.where(uncertain, of.standard_error, 1), 0)


def _is_uncertain(of: Contrasts) -> NDArray[np.bool_]:
    """Tell which values have an error: of a sum over all values rounding is all there is."""
    found: NDArray[np.bool_] = of.standard_error > 1e-7 * of.widest
    return found


def _two_sided(z: Floats, degrees: float) -> Floats:
    far = -np.abs(z)
    found: Floats = 2 * (ndtr(far) if math.isinf(degrees) else stdtr(degrees, far))
    return found


def contrasts(of: Series, weights: ArrayLike) -> Contrasts:
    """Return contrasts of a series with their standard errors.

    `weights` has shape (contrasts, periods), and each contrast sums to zero. With panels the errors
    are those of the panels' contrasts; a parameter in which no panel differs from another has the
    error without panels. Raises `InvalidInput` for other weights. Cost: O(contrasts periods^2
    parameters) multiplications of matrices without panels, O(contrasts periods panels parameters)
    with them.
    """
    w = np.asarray(weights, dtype=float)
    if w.ndim != 2 or w.shape[1] != len(of) or not np.isfinite(w).all():
        raise InvalidInput(
            f"weights have the shape (contrasts, {len(of)}) and are finite, got shape {w.shape}"
        )
    if (np.abs(w.sum(axis=1)) > 1e-9 * np.abs(w).sum(axis=1)).any():
        raise InvalidInput("the weights of a contrast must sum to zero")
    widest = (of.bounds[1] - of.bounds[0]) * np.maximum(w, 0).sum(axis=1, keepdims=True)
    if of.scores is None:
        return Contrasts(w @ of.value, np.sqrt(_most_variance(of, w)), math.inf, widest)
    panels = of.scores.shape[0]
    apart = np.einsum("ct,ptk->pck", w, of.scores)
    variance = panels / (panels - 1) * (apart**2).sum(axis=0)
    lacking = variance <= 0
    if lacking.any():
        variance = np.where(lacking, _most_variance(of, w), variance)
    return Contrasts(w @ of.value, np.sqrt(variance), panels - 1, widest)


def _most_variance(of: Series, w: Floats) -> Floats:
    """Return the largest variances of contrasts that any people could make: (contrasts, k).

    That of independent periods, and twice the largest covariances of all pairs of periods.
    """
    up, down = np.maximum(w, 0), np.maximum(-w, 0)
    truths = np.sqrt(of.truths)
    shared = of.variance if of.codes else of.truths
    like = sum((each @ np.sqrt(shared)) ** 2 - each**2 @ shared for each in (up, down))
    unlike = _unlike(of, up, down) if of.people else (up @ truths) * (down @ truths)
    found: Floats = w**2 @ of.variance + like + 2 * unlike
    return found


def _unlike(of: Series, up: Floats, down: Floats) -> Floats:
    """Return sum_tu up_t c_tu down_u, where -c_tu is the least covariance of t and u."""
    rows, columns = (np.flatnonzero(w.any(axis=0)) for w in (up, down))
    one, other = of.n[rows, None, None], of.n[columns, None]
    larger, ratio = np.maximum(one, other), np.minimum(one, other) / np.maximum(one, other)
    found = np.empty((len(up), of.value.shape[1]))
    step = max(1, _PAIRS // (rows.size * columns.size))
    for start in range(0, found.shape[1], step):
        some = slice(start, start + step)
        f, g = (np.clip(of.value[at, some], 0, 1) for at in (rows, columns))
        first = one >= other
        most = np.where(first, f[:, None], g)  # of the larger period
        least = np.where(first, g, f[:, None])
        back = np.clip(
            1 - least, np.maximum(0, (most - 1 + ratio) / ratio), np.minimum(1, most / ratio)
        )
        bound = np.minimum(back * least, (1 - back) * (1 - least)) / larger
        both = up[:, rows] @ bound.transpose(2, 0, 1)  # (parameters, contrasts, columns)
        found[:, some] = (both * down[:, columns]).sum(axis=2).T
    return found


@dataclass(frozen=True, eq=False)
class Changes:
    """How parameters changed; arrays have shape (parameters,).

    `first` and `second` are what the change is between: estimates of two periods; of a trend those
    of its line in the first period and in the last; of a break the means before and after.
    `value` is the difference, or the slope of a line per unit of time. `mix` is by how much it
    would be more if the mix of strata counted (`Series.mix`); None where that is the same. `place`
    is the number of the first period after a break; None of what is no break. `any_p_value` is of
    the test that nothing changed at all (`_together`). `pair` is what a difference is of.
    """

    first: Floats
    second: Floats
    contrasts: Contrasts
    p_value: Floats
    adjusted_p_value: Floats
    mix: Floats | None
    place: NDArray[np.intp] | None = None
    any_p_value: float = 1.0
    pair: Series | None = None

    @property
    def value(self) -> Floats:
        """The changes."""
        return np.asarray(self.contrasts.value[0])

    @property
    def standard_error(self) -> Floats:
        """The standard errors of the changes."""
        return np.asarray(self.contrasts.standard_error[0])

    def interval(self, confidence: float = 0.95, *, simultaneous: bool = False) -> Interval:
        """Return intervals of the changes as `Contrasts.interval`, each of shape (parameters,).

        Those of breaks are for a break in the period that was found, as if it had been known.
        Differences of shares have Newcombe's, where errors are not told by panels: around
        differences of rare values they are not symmetric.
        """
        if self.pair is not None and self.pair.is_shares and math.isinf(self.contrasts.degrees):
            check_confidence(confidence)
            return _square_and_add(self.pair, self.contrasts, confidence, simultaneous)
        low, high = self.contrasts.interval(confidence, simultaneous=simultaneous)
        return low[0], high[0]


def _changes(of: Series, w: Floats, first: Floats, second: Floats) -> Changes:
    found = contrasts(of, w)
    p = found.p_value[0]
    mix = None if of.mix is None else (w @ of.mix)[0]
    return Changes(first, second, found, p, holm(p), mix, any_p_value=_together(of, w[0], found))


def _together(of: Series, w: Floats, found: Contrasts) -> float:
    """Return the p-value of the test that no parameter changed.

    With panels, more than twice as many as parameters, it is Hotelling's (Annals of Mathematical
    Statistics 2, 1931). Where the parameters always sum to one, the last is left out. Otherwise it
    is the least of Holm's p-values, which is valid whatever people do.
    """
    least = float(holm(found.p_value[0]).min())
    count = found.value.shape[1] - bool(np.allclose(of.value.sum(axis=1), 1))
    if of.scores is None or not 2 <= count < of.scores.shape[0] / 2 or not of.is_shares:
        return least
    panels = of.scores.shape[0]
    apart = np.einsum("t,ptk->pk", w, of.scores)[:, :count]
    value = found.value[0, :count]
    covariance = panels / (panels - 1) * apart.T @ apart
    if np.linalg.matrix_rank(covariance) < count:
        return least
    distance = float(value @ np.linalg.solve(covariance, value))
    ratio = (panels - count) / (count * (panels - 1)) * distance
    return float(fdtrc(count, panels - count, ratio))


def difference(of: Series) -> Changes:
    """Return the estimates of the second of two periods less those of the first.

    `ldp.planning.sizes.two_wave_power` plans the power of its test. Raises `InvalidInput` unless
    there are two periods.
    """
    if len(of) != 2:
        raise InvalidInput(f"a difference is of two periods, got {len(of)}")
    return replace(_changes(of, np.array([[-1.0, 1.0]]), of.value[0], of.value[1]), pair=of)


def trend(of: Series, times: ArrayLike) -> Changes:
    """Return the slopes of the straight lines through the estimates of the periods.

    `times`, shape (periods,), are rising numbers, such as 0, 1, 2, 4 where the period 3 is missing.
    Periods weigh by their precision: where all have as many reports the lines are those of least
    squares. Raises `InvalidInput` for fewer than three periods, and other times.
    """
    t = np.asarray(times, dtype=float)
    if t.shape != (len(of),) or not np.isfinite(t).all() or not (np.diff(t) > 0).all():
        raise InvalidInput(f"times are {len(of)} rising numbers, one for each period")
    if len(of) < 3:
        raise InvalidInput(f"a trend is of three periods at least, got {len(of)}")
    weight = of.precision / of.precision.sum()
    away = t - weight @ t
    w = (weight * away / (weight @ away**2))[None]
    w -= w.sum() * weight  # so that rounding leaves no multiple of the level
    slope, level = (w @ of.value)[0], weight @ of.value
    return _changes(of, w, level + slope * away[0], level + slope * away[-1])


def breaks(of: Series) -> Changes:
    """Return for each parameter the break that its periods show most clearly.

    For each period in the middle 80% the mean from it on is compared with the mean before it,
    periods weighed by their precision. The break is where |change| sqrt(s (1 - s)) is greatest, s
    being the share of the information before it (CUSUM): errors by panels, which differ by chance
    from place to place, do not move it. `p_value` is of the test that there is none, which allows
    for the search: the probability that the process of change / standard error exceeds its value
    there anywhere, if periods are independent and nothing changes (`search_p_value`). Source:
    Csorgo and Horvath, "Limit Theorems in Change-Point Analysis", 1997, section 1.1. Raises
    `InvalidInput` for fewer than five periods.
    """
    if len(of) < 5:
        raise InvalidInput(f"a break is looked for in five periods at least, got {len(of)}")
    weight = of.precision / of.precision.sum()
    places = candidates(len(of))
    after = np.arange(len(of)) >= places[:, None]
    share = (after * weight).sum(axis=1, keepdims=True)
    w = weight * (after / share - ~after / (1 - share))
    w -= w.sum(axis=1, keepdims=True) * weight
    found = contrasts(of, w)
    z = np.abs(_statistic(found))
    best = (np.abs(found.value) * np.sqrt(share * (1 - share))).argmax(axis=0)
    each = np.arange(best.size)
    if not math.isinf(found.degrees):  # the normal statistic of the same probability
        z = statistic(found.p_value)
    p = search_p_value(z[best, each], 1 - share[:, 0])
    one = Contrasts(
        found.value[best, each][None],
        found.standard_error[best, each][None],
        found.degrees,
        found.widest[best].T,
    )
    level = weight @ of.value
    after_share = share[best, 0]
    first = level - after_share * one.value[0]
    mix = None if of.mix is None else (w @ of.mix)[best, each]
    adjusted = holm(p)
    least = float(adjusted.min())
    return Changes(first, first + one.value[0], one, p, adjusted, mix, places[best], least)


def candidates(periods: int) -> NDArray[np.intp]:
    """Return the numbers of the periods in which a break is looked for, rising.

    At least `TRIMMED` of the periods lie before each, and as many from it on.
    """
    least = max(1, math.ceil(TRIMMED * periods - 1e-9))
    return np.arange(least, periods - least + 1)


def search_p_value(z: ArrayLike, before: ArrayLike) -> Floats:
    """Return P(max |Z| > z) of the differences between means after and before, of z's shape.

    `before`, rising in (0, 1), is the share of the information (of the reports, if all are alike)
    that lies before each place where a break is looked for. If periods are independent and nothing
    changes, the standardised differences are normal, and a Markov chain: their correlation at
    shares s < t is sqrt(s (1 - t) / (t (1 - s))). The chain is followed in cells, so that all z
    take one pass, of O(places) products of small matrices. The 95% points are 2.587 for 8 equal
    periods, 2.804 for 30 and 2.973 for 365. Raises `InvalidInput` for other shares.
    """
    s = np.asarray(before, dtype=float)
    if s.ndim != 1 or not s.size or s[0] <= 0 or s[-1] >= 1 or (np.diff(s) <= 0).any():
        raise InvalidInput("the shares of information before breaks must rise within (0, 1)")
    at = np.arange(_CELL / 2, _FARTHEST, _CELL)
    limits = np.arange(1, at.size + 1)
    inside = (np.arange(at.size)[:, None] < limits).astype(float)  # (cells, limits)
    density = 2 * np.exp(-(at**2) / 2) / math.sqrt(2 * math.pi) * _CELL
    held = density[:, None] * inside
    clock = np.log(s / (1 - s)) / 2  # in this time the chain is stationary
    last = clock[0]
    for now in clock[1:]:
        correlation = math.exp(last - now)
        error = math.sqrt(-math.expm1(2 * (last - now)))
        if error < _CELL:  # too little has happened to tell: with the next one
            continue
        last = now
        step = sum(
            np.exp(-(((at[:, None] - side * correlation * at) / error) ** 2) / 2)
            for side in (1, -1)
        ) * (_CELL / (error * math.sqrt(2 * math.pi)))
        held = (step @ held) * inside
    missed = np.maximum(1 - held.sum(axis=0), 1e-300)
    known = np.log(np.concatenate([[1.0], missed]))
    asked = np.asarray(z, dtype=float)
    chain = np.exp(np.interp(asked, np.arange(known.size) * _CELL, known))
    at_most = s.size * 2 * ndtr(-asked)  # Bonferroni's, which is sharp far out
    found: Floats = np.minimum(np.where(asked < _FARTHEST, chain, 1), np.minimum(at_most, 1))
    return found
