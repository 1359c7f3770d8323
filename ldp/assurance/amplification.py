"""Amplification by shuffling: epsilon and delta of a cohort's reports in random order.

Only reports with the same randomizer hide each other. Cohort, attribute and level are in the
clear, so `n` is always the size of the cohort, never of the survey. The bounds hold
against everyone but the shuffler, who still sees local reports, and only if every other member
of the cohort answered honestly; n minus the suspected forgeries is the safe count.
The variation-ratio bound of later work is not offered: for k-RR with k >= 4 exact enumeration
exceeds it (k = 4, epsilon = 1, n = 8: delta .0706 at .2 against .0703), as its erratum says
(Feldman, McMillan and Talwar, SODA 2023, lemma 3.5).
Source: Feldman, McMillan and Talwar, "Hiding among the clones: a simple and nearly optimal
analysis of privacy amplification by shuffling", FOCS 2021 (FMT).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betainc

from ldp.assurance import blanket
from ldp.core.channel import Channel
from ldp.core.exact import check_epsilon, exp_bounds, float_above, float_below
from ldp.core.longitudinal import Longitudinal
from ldp.core.mechanism import Mechanism
from ldp.errors import InvalidInput
from ldp.mechanisms import KRR

_SLACK = 1 + 1e-6
"""Factor by which deltas are rounded up; binomial tails in doubles are good to 1e-8."""

_MOST_REPORTS = 10**10
"""The largest cohort that is bounded numerically: more than there are people."""

_BLOCKS = 1 << 14
"""The most clone counts at which the divergence is evaluated."""


def closed_form(epsilon: float, n: int, delta: float) -> float:
    """Return FMT's closed bound (theorem 3.1) for n shuffled reports of local `epsilon`.

    ln(1 + (e**eps - 1) / (e**eps + 1) (8 sqrt(e**eps ln(4 / delta) / n) + 8 e**eps / n)), for
    any epsilon-LDP randomizer. Raises `InvalidInput` where it does not hold: unless
    epsilon <= ln(n / (16 ln(2 / delta))). `clone_bound` is smaller, and holds always.
    """
    _check(epsilon, n, delta)
    if epsilon > math.log(n / (16 * math.log(2 / delta))):
        raise InvalidInput(
            f"the closed bound holds for epsilon <= ln(n / (16 ln(2 / delta))): {n} reports "
            f"are too few for {epsilon:g}; use the numerical bound"
        )
    e = math.exp(epsilon)
    spread = 8 * math.sqrt(e * math.log(4 / delta) / n) + 8 * e / n
    return min(epsilon, math.log1p((e - 1) / (e + 1) * spread))


@dataclass(frozen=True)
class Shuffled:
    """An upper bound on the epsilon of reports in random order, and the bound that gives it.

    `bound` is "blanket" (`ldp.assurance.blanket`) or "clones" (`clone_bound`).
    """

    epsilon: float
    bound: str


def shuffled(answers: Sequence[Mechanism], n: int, delta: float) -> Shuffled:
    """Return the smaller of two bounds on the epsilon, at `delta`, of n shuffled records.

    A record has one report of each mechanism in `answers`, and all n the same ones. The bounds are
    the privacy blanket's, where the mechanisms' blankets are known, and that of clones, with the
    mass 2 / (e**epsilon + 1) for one report of k-RR and e**-epsilon for anything else. Cost: some
    seconds where n is 10**6. Raises `InvalidInput` for a `Longitudinal` mechanism, without
    mechanisms, and unless 1 <= n <= 10**10 and 0 < delta < 1.
    """
    if not answers:
        raise InvalidInput("a record has one answer at least, got none")
    for mechanism in answers:
        if isinstance(mechanism, Longitudinal):
            raise InvalidInput(
                f"{mechanism.name} is not bounded: its reports share a memo from round to round, "
                "and many carry a hash, categories or cohort drawn for life, so shuffling does not "
                "unlink a device's reports and the rounds do not compose"
            )
    epsilon = float_above(sum((Fraction(each.realised_epsilon) for each in answers), Fraction()))
    (first, *others) = answers
    mass = krr_clone_mass(first) if isinstance(first, KRR) and not others else None
    clones = clone_bound(epsilon, n, delta, mass)
    each = [blanket.pairs_of(mechanism) for mechanism in answers]
    pairs = None if None in each else blanket.together([pairs for pairs in each if pairs])
    if pairs is not None:
        found = blanket.epsilon(pairs, n, delta, clones)
        if found < clones:
            return Shuffled(found, "blanket")
    return Shuffled(clones, "clones")


def clone_bound(epsilon: float, n: int, delta: float, mass: float | None = None) -> float:
    """Return FMT's numerical bound (section 3) for n shuffled reports of local `epsilon`.

    `mass` is the chance that another report is a clone of one of the two compared; e**-epsilon,
    the default, is valid for every epsilon-LDP randomizer, and `clone_mass` gives a channel's own.
    Cost: 20 sqrt(n mass) steps. Raises `InvalidInput` unless 0 < mass <= 1,
    1 <= n <= 10**10 and 0 < delta < 1.
    """
    _check(epsilon, n, delta)
    others = _Clones.of(n, _default_mass(epsilon) if mass is None else mass)
    low, high = 0.0, epsilon
    if others.delta(epsilon, 0.0) <= delta:
        return 0.0
    while high - low > 1e-6 * high:
        middle = (low + high) / 2
        if others.delta(epsilon, middle) <= delta:
            high = middle
        else:
            low = middle
    return high


def clone_delta(epsilon: float, n: int, shuffled: float, mass: float | None = None) -> float:
    """Return the delta that n shuffled reports keep at an epsilon of `shuffled`, rounded up.

    The hockey-stick divergence of (A + D, C - A + 1 - D) and (A + 1 - D, C - A + D), with
    C ~ Bin(n - 1, mass), A ~ Bin(C, 1/2), D ~ Bernoulli(e**eps / (e**eps + 1)). Given C the
    likelihood ratio rises with the first count, so the divergence is a difference of tails.
    One more clone is post-processing and only lessens it, so blocks of C count as their least.
    """
    _check(epsilon, n, 0.5)
    if not shuffled >= 0:
        raise InvalidInput(f"the shuffled epsilon must be >= 0, got {shuffled}")
    others = _Clones.of(n, _default_mass(epsilon) if mass is None else mass)
    return others.delta(epsilon, shuffled)


@dataclass(frozen=True)
class _Clones:
    """Lower bounds on the number of clones: at least `counts[i]` with probability `chances[i]`,
    or, with probability `outside`, any number."""

    counts: NDArray[np.int64]
    chances: NDArray[np.float64]
    outside: float

    @classmethod
    def of(cls, n: int, mass: float) -> Self:
        if n > _MOST_REPORTS:
            raise InvalidInput(
                f"n must be at most {_MOST_REPORTS} for the numerical bound, got {n}; the bound "
                f"at {_MOST_REPORTS} holds for every larger cohort too"
            )
        if not 0 < mass <= 1:
            raise InvalidInput(f"a clone mass lies in (0, 1], got {mass}")
        others = n - 1
        reach = 10 * math.sqrt(others * mass * (1 - mass)) + 40
        low = max(0, math.floor(others * mass - reach))
        high = min(others, math.ceil(others * mass + reach))
        counts = np.arange(low, high + 1)
        chances = _chance(counts, others, mass)
        starts = np.arange(0, counts.size, -(-counts.size // _BLOCKS))
        outside = _tail(high + 1, others, mass) + _tail(others - low + 1, others, 1 - mass)
        return cls(counts[starts], np.add.reduceat(chances, starts), float(outside))

    def delta(self, epsilon: float, shuffled: float) -> float:
        if shuffled >= epsilon:
            return 0.0
        e, w = math.exp(shuffled), 1 / (1 + math.exp(-epsilon))
        # From this first count on, the likelihood ratio exceeds e.
        share = (e * w - (1 - w)) / ((1 + e) * (2 * w - 1))
        first = np.floor((self.counts + 1) * share) + 1
        fewer = _tail(first, self.counts, 0.5)
        more = fewer + _chance(first - 1, self.counts, 0.5)
        p = w * more + (1 - w) * fewer
        q = (1 - w) * more + w * fewer
        inside = float(self.chances @ np.maximum(p - e * q, 0))
        return min(1.0, (inside + self.outside) * _SLACK)


def clone_mass(channel: Channel) -> float:
    """Return the largest mass that is valid for every pair of a channel's inputs, rounded down.

    min over x0, x1, x, y of 2 Q[x][y] / (Q[x0][y] + Q[x1][y]): the two reports compared are
    mixtures whose components add up to Q[x0] + Q[x1], so that any other report is a clone of
    either with that mass (FMT, section 3). At least e**-epsilon.
    """
    masses = []
    for column in zip(*channel.rows, strict=True):
        ascending = sorted(column)
        if ascending[-1]:
            masses.append(2 * ascending[0] / (ascending[-1] + ascending[-2]))
    return float_below(min(masses))


def krr_clone_mass(mechanism: KRR) -> float:
    """Return 2 / (e**epsilon + 1), k-RR's `clone_mass`, without enumerating; rounded down."""
    p, q = mechanism.support
    return float_below(2 * q / (p + q))


def _tail(count: ArrayLike, n: ArrayLike, p: float) -> NDArray[np.float64]:
    """Return Pr[Bin(n, p) >= count]."""
    count, n = np.asarray(count, dtype=float), np.asarray(n, dtype=float)
    inside = betainc(np.maximum(count, 1), np.maximum(n - count + 1, 1), p)
    return np.where(count < 1, 1.0, np.where(count > n, 0.0, inside))


def _chance(count: ArrayLike, n: ArrayLike, p: float) -> NDArray[np.float64]:
    """Return Pr[Bin(n, p) = count]."""
    from scipy.stats import binom  # takes a second, and this module explains every survey

    found: NDArray[np.float64] = binom.pmf(count, n, p)
    return found


def _default_mass(epsilon: float) -> float:
    return float_below(1 / exp_bounds(Fraction(epsilon))[1])


def _check(epsilon: float, n: int, delta: float) -> None:
    check_epsilon(epsilon)
    if n < 1:
        raise InvalidInput(f"n must be at least 1, got {n}")
    if not 0 < delta < 1:
        raise InvalidInput(f"delta must lie strictly between 0 and 1, got {delta}")
