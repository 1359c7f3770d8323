"""The words that many people gave, found in prefix-hashed reports without a list of words.

Words are found in steps, one for each length of prefix that a group sees. The first looks at every
beginning, and each later one at every continuation of the prefixes that the step before supports
best (`ldp.estimating.decoding`).

What is listed is tested. A report that sees a word whole supports it, if nobody gave it, with
probability q exactly, independently of all other reports. A step tests words by reports that no
step before it used, so that its choice of prefixes does not depend on them. The chance of an error
is split evenly over the steps, and in each over all words that could be listed (Bonferroni).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, log_ndtr, ndtr

from ldp.core.estimation import Estimate
from ldp.core.exact import ONE
from ldp.core.intervals import Interval, quantile
from ldp.core.mechanism import Codes
from ldp.errors import InvalidInput
from ldp.estimating.decoding import BEAM, how_many, search
from ldp.estimating.words import (
    SupportCounts,
    WordReports,
    check_cohorts,
    count_supports,
    pooled,
    sees,
    weight_of,
)
from ldp.mechanisms.strings.prefix_hashing import STEP, PrefixHashing
from ldp.mechanisms.strings.spelling import Numbers

Floats = NDArray[np.float64]

_HALVINGS = 40

_EXPONENTS = np.geomspace(0.01, 60, 1500)
"""Exponents of Chernoff's bound that are tried, times the scores' standard error."""

_STEEPEST = 600.0
"""The most that an exponent times a weight may be: doubles hold e to the power of it."""


@dataclass(frozen=True, eq=False)
class Discovery:
    """Words that people gave, the most frequent first, with their shares, shape (words,).

    The list has a word that nobody gave with no more than the probability that `discover` was
    given. A word is on it because its estimate is high: near the least one that is listed, `least`
    of shape (words,), the estimate is too high on average. The intervals of `estimate` allow for
    it: they are those of an estimate that is known to exceed `least`. `looked_at` is the number of
    words that could have been listed.
    """

    words: tuple[str, ...]
    estimate: Estimate
    least: Floats
    looked_at: int


def discover(cohorts: Sequence[WordReports], error: float = 0.05) -> Discovery:
    """Return the words that reports prove people to have given, and their shares.

    With no more than the probability `error` any word is listed that nobody gave. The cohorts are
    levels and periods, whose reports are pooled, weighted by what each tells of rare words.
    Reports of the same people are no hindrance, but each period must have been answered afresh.
    Cost: for n reports with g buckets n (g - 1) steps for each of up to 60 prefixes a step, of
    about 2 ns, and some seconds.
    Raises `InvalidInput` unless 0 < error < 1, where there are no reports or the cohorts have
    different letters or lengths, and for reports whose lengths are more than 4 letters apart, of
    which listed words can be estimated only.
    Source: the search by groups of prefixes is that of PEM, Wang, Li and Jha, IEEE TDSC 18(2),
    2021; the tails of pooled levels are bounded as by Chernoff, Annals of Mathematical Statistics
    23(4), 1952. Intervals given that an estimate exceeds a limit: Zhong and Prentice,
    Biostatistics 9(4), 2008.
    """
    _check_chance("the chance of an error", error)
    check_cohorts(cohorts)
    if any(repeats.codes and repeats.factor > 1 for _, _, repeats in cohorts):
        raise InvalidInput("devices repeated their reports (memo): find words in one period")
    steps = _steps([mechanism for mechanism, _, _ in cohorts])
    spelling = cohorts[0][0].spelling
    prefixes = np.zeros(1, dtype=np.uint64)
    found: list[Numbers] = []
    errors: list[Floats] = []
    looked_at = 0
    for before, length in pairwise((0, *steps)):
        seen = [(m, _of_length(m, codes, length)) for m, codes, _ in cohorts]
        tests = how_many(spelling, before, length)[0] * len(prefixes)
        words, prefixes = search(spelling, seen, before, length, prefixes)
        found.append(words)
        errors.append(np.full(len(words), error / len(steps) / tests))
        looked_at += tests
        if not len(prefixes):
            break
    return _tested(cohorts, np.concatenate(found), np.concatenate(errors), looked_at)


def _steps(mechanisms: Sequence[PrefixHashing]) -> list[int]:
    """Return the lengths of the steps in which the mechanisms' words are found.

    Raises `InvalidInput` where they differ, or where one is more than 4 letters from the next.
    """
    each = {tuple(sorted(set(mechanism.lengths))) for mechanism in mechanisms}
    if len(each) > 1:
        raise InvalidInput(
            f"words are found in reports that see the same lengths, got {sorted(each)}: "
            "give a list of words"
        )
    (steps,) = each
    if max(b - a for a, b in pairwise((0, *steps))) > STEP:
        raise InvalidInput(
            f"words are found in steps of {STEP} letters at most, but the reports see "
            f"{list(steps)} letters: give a list of words"
        )
    return list(steps)


def _of_length(mechanism: PrefixHashing, codes: Codes, length: int) -> Codes:
    """Return the reports whose group sees so many letters."""
    own: Codes = codes[(np.array(mechanism.lengths) == length)[codes["group"]]]
    return own


def smallest_shares(
    levels: Sequence[tuple[PrefixHashing, float]], error: float = 0.05, chance: float = 0.5
) -> Floats:
    """Return the share of the people who must give a word for `discover` to list it.

    `levels` has each mechanism with the number of its reports, or of those expected. Entry i of
    the result, of shape (longest,), is for words of i + 1 letters, listed with the probability
    `chance`; it is 1 where no share is enough. Longer words need more: fewer reports see them
    whole, and there are more of them. A long word's beginnings must be found, too: each is taken
    to be this word's alone. Where many other beginnings are as frequent, more is needed.
    Raises `InvalidInput` as `discover`, and unless 0 < chance < 1.
    """
    _check_chance("the chance of an error", error)
    _check_chance("the chance of finding a word", chance)
    steps = _steps([mechanism for mechanism, _ in levels])
    spelling = levels[0][0].spelling
    kept, shares, bar = 1, np.zeros(spelling.longest), 0.0
    for before, length in pairwise((0, *steps)):
        ended, longer = how_many(spelling, before, length)
        each = error / len(steps) / (kept * ended)
        for letters in range(before + (before == 0), length + (length == steps[-1])):
            seen = [(m, n * _part(m, letters)) for m, n in levels]
            shares[letters - 1] = max(bar, _needed(seen, each, chance))
        seen = [(m, n * _part(m, length, exactly=True)) for m, n in levels]
        bar = max(bar, _needed(seen, min(0.5, BEAM / max(kept * longer, 1)), chance))
        kept = BEAM
    return shares


def _part(mechanism: PrefixHashing, letters: int, exactly: bool = False) -> float:
    """Return the part of the reports that see a word of so many letters whole, or only these."""
    groups = range(len(mechanism.lengths))
    own = [
        mechanism.lengths[g] == letters if exactly else sees(mechanism, g, letters) for g in groups
    ]
    return sum(compress(mechanism.chances, own)) / ONE


def _needed(seen: Sequence[tuple[PrefixHashing, float]], error: float, chance: float) -> float:
    """Return the share whose score exceeds, with this chance, the limit of scores by chance."""
    mechanisms, n = [mechanism for mechanism, _ in seen], np.array([[round(n)] for _, n in seen])
    (limit,) = _limits(mechanisms, n, np.array([error]))
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        share = (low + high) / 2
        mean, noise = 0.0, 0.0
        for mechanism, (reports,) in zip(mechanisms, n.tolist(), strict=True):
            (p, q), weight = map(float, mechanism.support), weight_of(mechanism)
            supported = share * (p - q) + q
            mean += weight * reports * share * (p - q)
            noise += weight**2 * reports * supported * (1 - supported)
        enough = mean >= limit + quantile(chance) * noise**0.5
        low, high = (low, share) if enough else (share, high)
    return high


def _limits(
    mechanisms: Sequence[PrefixHashing], seeing: NDArray[np.int64], errors: Floats
) -> Floats:
    """Return the scores that words which nobody gave exceed with these probabilities at most.

    `seeing`, of shape (mechanisms, words), counts the reports that see a word. The score of reports
    of one mechanism is that of a binomial, whose tail is exact; of several it is bounded by
    Chernoff's inequality, for every exponent, which holds however few reports a mechanism has.
    """
    q = [1 / mechanism.buckets for mechanism in mechanisms]
    weights = [weight_of(mechanism) for mechanism in mechanisms]
    cases, where = np.unique(np.vstack([seeing, errors]), axis=1, return_inverse=True)
    if len(set(mechanisms)) == 1:
        *reports, chances = cases
        n = np.sum(reports, axis=0)
        exact: Floats = weights[0] * (_exceeded(chances, n, q[0]) + 0.5 - n * q[0])
        return exact[where.reshape(-1)]
    *counts, chances = cases[..., np.newaxis]
    variance = sum(w**2 * n * p * (1 - p) for w, n, p in zip(weights, counts, q, strict=True))
    t = np.minimum(_EXPONENTS / np.sqrt(np.maximum(variance, 1e-18)), _STEEPEST / max(weights))
    moments = sum(
        n * (np.log1p(p * np.expm1(t * w)) - t * w * p)
        for w, n, p in zip(weights, counts, q, strict=True)
    )
    bounds: Floats = ((moments - np.log(chances)) / t).min(axis=1)[where.reshape(-1)]
    return bounds


def _exceeded(errors: Floats, n: Floats, p: float) -> Floats:
    """Return for each n the least count that Binomial(n, p) exceeds with this probability at most.

    By halving: scipy.stats has it, and takes a second to import.
    """
    low, high = np.full_like(n, -1), n
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        enough = betainc(middle + 1, n - middle, p) <= errors
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def _check_chance(what: str, chance: float) -> None:
    if not 0 < chance < 1:
        raise InvalidInput(f"{what} must lie strictly between 0 and 1, got {chance}")


# --- the list ------------------------------------------------------------------------------------


def _tested(
    cohorts: Sequence[WordReports], numbers: Numbers, errors: Floats, looked_at: int
) -> Discovery:
    """List the words whose supports, of all groups that see them, exceed the limits."""
    counts = [count_supports(mechanism, codes, numbers) for mechanism, codes, _ in cohorts]
    score = np.zeros(len(numbers))
    for own, (mechanism, _, _) in zip(counts, cohorts, strict=True):
        score += weight_of(mechanism) * (own.supporting - own.seeing / mechanism.buckets)
    mechanisms = [mechanism for mechanism, _, _ in cohorts]
    limits = _limits(mechanisms, np.array([own.seeing for own in counts]), errors)
    (listed,) = np.nonzero(score > limits)
    if not listed.size:
        none = np.zeros(0)
        n = sum(len(codes) for _, codes, _ in cohorts)
        return Discovery((), Estimate(none, none, n, (0.0, 1.0)), none, looked_at)
    words = cohorts[0][0].spelling.words(numbers[listed])
    chosen = [SupportCounts(own.seeing[listed], own.supporting[listed]) for own in counts]
    estimate = pooled(cohorts, words, chosen)
    order = np.argsort(-estimate.value, kind="stable")
    listed, words = listed[order], [words[i] for i in order.tolist()]
    least = estimate.value[order] * limits[listed] / score[listed]
    chosen = [SupportCounts(own.seeing[order], own.supporting[order]) for own in chosen]
    shown = Estimate(
        value=estimate.value[order],
        standard_error=estimate.standard_error[order],
        n=estimate.n,
        bounds=estimate.bounds,
        method=estimate.method,
        ends=partial(_above_the_least, cohorts, chosen, estimate.value[order], least),
    )
    return Discovery(tuple(words), shown, least, looked_at)


def _above_the_least(
    cohorts: Sequence[WordReports],
    counts: Sequence[SupportCounts],
    value: Floats,
    least: Floats,
    z: float,
) -> Interval:
    """Return the ends of the shares f for which an estimate above `least` would be as high as
    `value`, and as low, with more than half the probability of z standard errors.

    Estimates are counts: each stands for half a step to both sides.
    """
    noise, _, steps = _moments(cohorts, counts, np.clip(value, 0, 1))
    steps = np.where(steps < np.inf, steps / noise / (1 / noise).sum(axis=0), np.inf)
    step = steps.min(axis=0)
    edge = value - (np.floor((value - least) / step) + 0.5) * step
    tail, ends = float(ndtr(-z)), []
    for place, limit in ((value - step / 2, np.log(tail)), (value + step / 2, np.log1p(-tail))):
        low, high = np.zeros_like(value), np.ones_like(value)
        for _ in range(_HALVINGS):
            f = (low + high) / 2
            noise, more, _ = _moments(cohorts, counts, f)
            error = np.sqrt(((noise + more) / noise**2).sum(axis=0)) / (1 / noise).sum(axis=0)
            above = log_ndtr((f - place) / error) - log_ndtr((f - edge) / error) > limit
            low, high = np.where(above, low, f), np.where(above, f, high)
        ends.append((low + high) / 2)
    return ends[0], ends[1]


def _moments(
    cohorts: Sequence[WordReports], counts: Sequence[SupportCounts], truth: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return, of each cohort's estimates of words of these shares, the variance, what repeats add
    to it, and how much one support changes an estimate: shape (cohorts, words) each."""
    found = []
    for (mechanism, _, repeats), own in zip(cohorts, counts, strict=True):
        p, q = map(float, mechanism.support)
        supported, n = truth * (p - q) + q, np.maximum(own.seeing, 1e-9)
        noise = supported * (1 - supported) / (n * (p - q) ** 2)
        more = repeats.more(noise, np.minimum(noise, truth * (1 - truth) / n))
        found.append((noise, more, np.where(own.seeing, 1 / (n * (p - q)), np.inf)))
    noises, added, steps = (np.array(each) for each in zip(*found, strict=True))
    return noises, added, steps
