"""Pooling cohorts: one population, seen through several levels, policies and mechanisms.

Near some f, a cohort's evidence on the frequencies is a score and an information; cohorts are
independent, so both add up. Where a tally counts codes (`Frequencies.matrix`) they are from
its multinomial likelihood, and nothing in the reports is lost. Where it counts supports, as for
unary encoding, subsets and hashes, the whole reports' likelihood cannot be had from it, and
they are from its mean and covariance, a quasi-likelihood: the estimate is the best that is
linear in the counts (Wedderburn, "Quasi-likelihood functions, generalized linear models, and the
Gauss-Newton method", Biometrika 61, 1974). The covariances are exact, except between two
categories under hashing, where they are for ideal hashing (`Frequencies.covariance`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

from ldp.core.estimation import Cohorts, Estimate, estimate, scalar_weighted
from ldp.core.estimator import MAX_MATRIX, Frequencies
from ldp.core.mechanism import Supporting
from ldp.core.repeated import Repeats
from ldp.core.tally import Tally
from ldp.errors import InvalidInput
from ldp.estimating.consistency import project
from ldp.estimating.likelihood import (
    Cohort,
    CohortLikelihood,
    LikelihoodEstimate,
    maximum_likelihood,
)
from ldp.estimating.simplex import (
    definite,
    inverse,
    maximize_quadratic,
    tangent_inverse,
    tangent_pseudoinverse,
)

Floats = NDArray[np.float64]

Moment = tuple[Frequencies, Tally]
Evidence = tuple[Floats, Floats]
"""A score, shape (k,), and an information, shape (k, k), both on {x : sum x = 0}."""

Method = Literal["mle", "gls", "inverse_variance", "scalar"]

MAX_CATEGORIES = 1 << 12
"""The most categories for which methods that work with k x k matrices are offered."""

_STEPS = 40

FEW = 5.0
"""The least expected count that is nearly normal (Cochran, Biometrics 10, 1954)."""

_ENOUGH = 1e-3
"""The gap to the maximum log-likelihood, in nats, at which scoring steps end."""


@dataclass(frozen=True)
class Homogeneity:
    """The test that all cohorts are samples of one population.

    `statistic` is nearly chi-squared with `degrees` degrees of freedom if they are; `p_value` is
    the probability that it exceeds the value found, 1 where nothing is frequent enough to test.
    """

    statistic: float
    degrees: int
    p_value: float


def named(method: str) -> Method:
    """Return the method of this name; raise `InvalidInput` where there is none."""
    for known in get_args(Method):
        if method == known:
            return cast(Method, known)
    raise InvalidInput(f"method must be one of {', '.join(get_args(Method))}, got {method!r}")


def pool(cohorts: Cohorts, method: Method | None = None) -> Estimate:
    """Pool the cohorts' reports into one unbiased estimate, tagged with the method.

    | method           | weights                                    | for                     |
    |------------------|--------------------------------------------|-------------------------|
    | mle              | Fisher's information of each tally         | k <= 4096 categories    |
    | gls              | inverse covariance matrix of each `debias` | k <= 4096 categories    |
    | inverse_variance | one per cohort and parameter               | every mechanism         |
    | scalar           | one per cohort (Nie et al.)                | every mechanism         |

    Without a method it is the first that applies. mle is asymptotically the best that the
    tallies allow (the Cramer-Rao bound where all of them count codes); gls equals it where
    the channels are square, and loses as much as `debias` elsewhere; both use that frequencies
    sum to one, and their values do. Where cohorts differ in epsilon alone, mle has
    about 1% less total variance than inverse variances and 5% less than scalar weights; where
    they protect different values, or use different mechanisms, about 10% and 30 to 40% less.
    Values are unconstrained and the intervals are population intervals around them (`Estimate`);
    `fit` has the most likely distribution too. All weights come from one estimate that the
    cohorts share, that of inverse variances, and from no count of their own: the bias is of
    order 1/n, and mle does not lose to inverse variances where most categories are rare, as
    the maximum of the likelihood does (there a code that happens to be seen weighs more). A
    code counts as 4 expected ones at least in mle's errors: of 50 values by Zipf's law at 125
    reports per level its 95% intervals cover 99% on average and 91% at worst, those of inverse
    variances 66% and 40%, as they have no width for a value that is never revealed.

    Assumes that the cohorts are samples of one population, as `homogeneity` tests; and that
    reports are of different people, but for what the cohorts' `repeats` say: weights and errors
    are then those for the covariances of `ldp.core.repeated`.
    Cost: O(cohorts k**3) for mle and gls, O(cohorts k) for the others. Raises `InvalidInput`
    where the method does not apply.
    """
    if method is None:
        method = "mle" if _fits_matrices(cohorts) else "inverse_variance"
    match named(method):
        case "mle":
            return pool_with_covariance(cohorts, "mle")[0]
        case "gls":
            return pool_with_covariance(cohorts, "gls")[0]
        case "inverse_variance":
            return estimate(cohorts)
        case "scalar":
            return scalar_weighted(cohorts)


def fit(cohorts: Cohorts) -> LikelihoodEstimate:
    """Return the most likely frequencies of the cohorts, and the unconstrained estimate.

    If all tallies count codes this is `maximum_likelihood`, with its certified gap. Otherwise
    it is the maximum of the quasi-likelihood, by scoring steps whose quadratic model is
    maximised on the simplex; `gap` is then the gain of another step by the score. The
    unconstrained estimate is one scoring step from the estimate that gives `pool` its weights.
    Raises `InvalidInput` as `pool` does.
    """
    codes, moments = _parts(cohorts)
    likelihood = CohortLikelihood(codes) if codes else None
    start = near_distribution(cohorts)
    if likelihood and not moments:
        found = maximum_likelihood(codes)
        f, gap, evidence = found.value, found.gap, _codes_score(likelihood, start)
    else:
        f, gap = _maximize(likelihood, moments, start)
        evidence = _evidence(likelihood, moments, start)
    return LikelihoodEstimate(f, gap, *_scored(start, evidence, cohorts.n, "mle"))


def homogeneity(cohorts: Cohorts) -> Homogeneity:
    """Test that two or more cohorts with reports are samples of one population.

    The statistic is a quadratic (Wald) form, sum_g (f_g - f)' I_g (f_g - f), f_g being the
    estimate from cohort g alone and I_g its information near the pooled f; for one
    parameter, Cochran's sum; for items' shares the largest of these, with Bonferroni's correction.
    It is not the likelihood ratio, which it equals to second order,
    but exists where a tally has no likelihood. Codes, or coordinates of an estimate, of which
    a cohort expects fewer than `FEW` are taken together, as Cochran's rule has it (Biometrics
    10, 1954), but not codes expected once that come half as often as at the uniform distribution.
    The degrees are those of the merged codes: (G - 1) (k - 1) where nothing is rare. Cohorts that
    differ in their rare values only are then found alike. With repeats the informations are
    those for the greatest covariances, and the test is conservative. Raises `InvalidInput` as
    `pool` does, and for fewer than two cohorts.
    """
    if len(cohorts) < 2:
        raise InvalidInput("homogeneity is a question for two or more cohorts with reports")
    if cohorts.parameters == 1:
        return _cochran(cohorts)
    if _are_shares(cohorts):
        return _one_by_one(cohorts)
    f = near_distribution(cohorts)
    each = []
    for one in cohorts.alone():
        codes, moments = _parts(one)
        own = [_coarse_evidence(code, f) for code in codes]
        own += [_moments_evidence(*moment, f, coarse=True) for moment in moments]
        each.append(with_repeats(own[0], one.repeats[0], f, one.n))
    total, common = _added(each)
    inverted, rank = tangent_pseudoinverse(common)
    step = inverted @ total
    statistic, degrees = 0.0, -rank
    for score, information in each:
        inverted, rank = tangent_pseudoinverse(information)
        away = inverted @ score - step
        statistic += float(away @ information @ away)
        degrees += rank
    return _test(statistic, degrees)


def _coarse(cohort: Cohort, f: Floats) -> Cohort:
    """Merge the codes that are rare at f, unless all are rare because there are many.

    Where all are nearly as rare their chances are known, and many small terms, of one or more
    expected, add up to a nearly chi-squared sum.
    """
    chances = f @ cohort.channel
    usual = cohort.channel.mean(axis=0)
    groups = _grouped(cohort.n * chances, chances <= np.maximum(usual / 2, 1 / cohort.n))
    if groups is None:
        return cohort
    # A single merged code tells nothing; its exact ones keep rounding errors out.
    channel = cohort.channel @ groups.T if len(groups) > 1 else np.ones((f.size, 1))
    return Cohort(channel, cohort.counts @ groups.T.astype(np.int64))


def _coarse_evidence(cohort: Cohort, f: Floats) -> Evidence:
    """Return a cohort's evidence with its rare codes merged, so that no weight needs a bound."""
    likelihood = CohortLikelihood([_coarse(cohort, f)])
    outputs = likelihood.outputs(f)
    weights = [cohort.n / chances for chances in outputs]
    return likelihood.residuals(outputs, weights), _dense(likelihood.information(weights))


def _grouped(expected: Floats, candidates: NDArray[np.bool_]) -> Floats | None:
    """Return the 0/1 matrix, shape (groups, size), that merges candidates expected below `FEW`.

    The next smallest join them until `FEW` are expected of them all. None if there are none.
    """
    rare = candidates & (expected < FEW)
    if not rare.any():
        return None
    order = np.lexsort((expected, ~rare))
    enough = int(np.searchsorted(np.cumsum(expected[order]), FEW)) + 1
    together = np.zeros(expected.size, dtype=np.bool_)
    together[order[: max(int(rare.sum()), enough)]] = True
    return np.vstack([together, np.eye(expected.size)[~together]]).astype(np.float64)


def can_be_tested(cohorts: Cohorts) -> bool:
    """Tell whether `homogeneity` applies: to means, to shares of items that need not sum to one,
    and to so many categories at most."""
    return cohorts.parameters == 1 or _are_shares(cohorts) or _fits_matrices(cohorts)


def _are_shares(cohorts: Cohorts) -> bool:
    """Tell whether the parameters are shares of people, of which one may be in several."""
    return all(isinstance(m, Supporting) and not isinstance(m, Frequencies) for m, _ in cohorts)


def _fits_matrices(cohorts: Cohorts) -> bool:
    return all(isinstance(m, Frequencies) and m.k <= MAX_CATEGORIES for m, _ in cohorts)


def _parts(cohorts: Cohorts, *, codes: bool = True) -> tuple[list[Cohort], list[Moment]]:
    """Split the cohorts into codes with a likelihood, and tallies with moments only."""
    likelihoods, moments = [], []
    for mechanism, tally in cohorts:
        if not isinstance(mechanism, Frequencies) or mechanism.k > MAX_CATEGORIES:
            raise InvalidInput(
                f"mle and gls are for 2..{MAX_CATEGORIES} categories, not for {mechanism.name} "
                f"of {mechanism.parameters} parameters: use inverse_variance"
            )
        small = mechanism.k * mechanism.tally_size <= MAX_MATRIX
        matrix = mechanism.matrix() if codes and small else None
        if matrix is None:
            moments.append((mechanism, tally))
        else:
            likelihoods.append(Cohort(matrix, tally.counts))
    return likelihoods, moments


def near_distribution(cohorts: Cohorts) -> Floats:
    """Return a distribution near the pooled estimate, with every frequency positive."""
    near = project(estimate(cohorts).value)
    people = sum(t.n / own.factor for (_, t), own in zip(cohorts, cohorts.repeats, strict=True))
    near += 1 / (people + near.size)
    start: Floats = near / near.sum()
    return start


def _maximize(
    codes: CohortLikelihood | None, moments: Sequence[Moment], f: Floats
) -> tuple[Floats, float]:
    """Maximise the quasi-likelihood from f by scoring steps; return f and its gap."""
    for step in range(_STEPS):
        score, information = _evidence(codes, moments, f)
        gap = float(score.max() - f @ score)
        if gap <= _ENOUGH:
            break
        curvature = definite(information)
        target = maximize_quadratic(curvature, score + curvature @ f, f > 0)
        if step >= _STEPS // 4:
            target += f  # whole steps may go back and forth between two weights
        f = _kept(codes, f, target / target.sum())
    return f, gap


def _scored(f: Floats, evidence: Evidence, n: int, method: str) -> tuple[Estimate, Floats]:
    """Return the estimate one unconstrained scoring step from f, and its covariance."""
    score, information = evidence
    covariance = tangent_inverse(information)
    error = np.sqrt(np.diag(covariance))
    return Estimate(f + covariance @ score, error, n, (0.0, 1.0), method), covariance


def pool_with_covariance(
    cohorts: Cohorts, method: Literal["mle", "gls"]
) -> tuple[Estimate, Floats]:
    """Return `pool` by mle or gls, and the covariance of its values, shape (k, k).

    The estimate is one scoring step from `near_distribution`, by the sum of the cohorts' evidence.
    """
    f = near_distribution(cohorts)
    each = []
    for one in cohorts.alone():
        codes, moments = _parts(one, codes=method == "mle")
        evidence = _evidence(CohortLikelihood(codes) if codes else None, moments, f)
        each.append(with_repeats(evidence, one.repeats[0], f, one.n))
    return _scored(f, _added(each), cohorts.n, method)


def planned_covariance(cohorts: Sequence[tuple[Frequencies, float]], f: Floats) -> Floats:
    """Return the covariance that `pool` by mle would have, shape (k, k), before any report.

    The cohorts are mechanisms with their numbers of reports, one at least, from a population of
    frequencies f > 0, shape (k,). For mechanisms whose tallies count codes it is the Cramer-Rao
    bound. Raises `InvalidInput` where a code cannot come from f, or the cohorts do not tell all
    categories apart. Cost: O(cohorts k**3).
    """
    information = np.zeros((f.size, f.size))
    for mechanism, n in cohorts:
        matrix = mechanism.matrix()
        if matrix is None:
            information += n * inverse(_covariance_of_one(mechanism, f))
        else:
            information += matrix @ (matrix * (n / (f @ matrix))).T
    return tangent_inverse(information)


def with_repeats(evidence: Evidence, repeats: Repeats, f: Floats, n: int) -> Evidence:
    """Return the evidence of n reports, with the covariance that repeats add to I**-1.

    That is (R - 1) C / n, C = diag(f) - f f' being the truths' covariance, whose inverse is
    diag(1 / f) on {x : sum x = 0}: by Woodbury (I**-1 + d C)**-1 = I - I (I + C**-1 / d)**-1 I.
    """
    score, information = evidence
    if repeats.factor == 1:
        return evidence
    if repeats.codes:
        return score / repeats.factor, information / repeats.factor
    inner = information @ tangent_inverse(information + np.diag(n / ((repeats.factor - 1) * f)))
    return score - inner @ score, information - inner @ information


def _kept(codes: CohortLikelihood | None, f: Floats, target: Floats) -> Floats:
    """Return the target, or a point nearer to f where every observed code stays possible."""
    while codes and not codes.keeps_seen(codes.outputs(f), codes.outputs(target)):
        target = (f + target) / 2
    return target


def _evidence(codes: CohortLikelihood | None, moments: Sequence[Moment], f: Floats) -> Evidence:
    each = [_moments_evidence(*moment, f) for moment in moments]
    if codes:
        score, information = _codes_score(codes, f)
        each.append((score, _dense(information)))
    return _added(each)


def _added(each: Sequence[Evidence]) -> Evidence:
    score: Floats = np.sum([score for score, _ in each], axis=0)
    information: Floats = np.sum([information for _, information in each], axis=0)
    return score, information


def _codes_score(likelihood: CohortLikelihood, f: Floats) -> Evidence:
    """Return the codes' evidence, its information of shape (k,) if that is diagonal."""
    outputs = likelihood.outputs(f)
    weights = likelihood.expected_weights(outputs)
    return likelihood.residuals(outputs, weights), likelihood.information(weights)


def _dense(information: Floats) -> Floats:
    return np.diag(information) if information.ndim == 1 else information


def _moments_evidence(
    mechanism: Frequencies, tally: Tally, f: Floats, *, coarse: bool = False
) -> Evidence:
    """Return n C**-1 (debias - f) and n C**-1, C being the covariance of one report's debias.

    If `coarse`, the rare coordinates are summed into one.
    """
    k, n = f.size, tally.n
    seen = np.maximum(f, 1 / (n + k))  # where f is zero a variance must not be
    covariance = _covariance_of_one(mechanism, seen / seen.sum())
    step = np.maximum(mechanism.step, 1e-9)
    groups = _grouped(n * np.diag(covariance) / step**2, mechanism.step > 0) if coarse else None
    if groups is None:
        information = n * inverse(covariance)
    else:
        information = n * groups.T @ inverse(groups @ covariance @ groups.T) @ groups
    return information @ (mechanism.debias(tally) - f), information


def _one_by_one(cohorts: Cohorts) -> Homogeneity:
    """Test each parameter by Cochran's sum; the p-value is the largest one's, for all of them.

    By Bonferroni's correction nothing is assumed of how the parameters depend on each other.
    """
    truth = np.clip(estimate(cohorts).value, *cohorts.bounds)
    values = np.array([m.debias(tally) for m, tally in cohorts])
    seen = [m.tally_variance(truth, tally) for m, tally in cohorts]
    variances = cohorts.allowing(truth, seen)
    center = (values / variances).sum(axis=0) / (1 / variances).sum(axis=0)
    largest = _test(float(((values - center) ** 2 / variances).sum(axis=0).max()), len(cohorts) - 1)
    return replace(largest, p_value=min(1.0, cohorts.parameters * largest.p_value))


def _covariance_of_one(mechanism: Frequencies, f: Floats) -> Floats:
    """Return the covariance of one report's debias, shape (k, k), regular."""
    covariance = mechanism.covariance(f, 1)
    level = np.trace(covariance) / f.size
    if covariance.sum() <= 1e-9 * f.size * level:
        covariance = covariance + level / f.size  # the estimate always sums to one: no news there
    return covariance


def _cochran(cohorts: Cohorts) -> Homogeneity:
    pooled = estimate(cohorts)
    truth = np.clip(pooled.value, *pooled.bounds)
    values = np.array([m.debias(tally)[0] for m, tally in cohorts])
    seen = [m.tally_variance(truth, tally) for m, tally in cohorts]
    variances = cohorts.allowing(truth, seen)[:, 0]
    center = (values / variances).sum() / (1 / variances).sum()
    return _test(float(((values - center) ** 2 / variances).sum()), len(cohorts) - 1)


def _test(statistic: float, degrees: int) -> Homogeneity:
    p_value = float(chdtrc(degrees, statistic)) if degrees else 1.0
    return Homogeneity(statistic, degrees, p_value)
