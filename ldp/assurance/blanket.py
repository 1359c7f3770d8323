"""Amplification by shuffling from the privacy blanket: the part that all inputs' reports share.

Each input's report is, with probability `mass`, drawn from one distribution, the blanket, that does
not depend on the input. An observer of shuffled reports who is even told which reports are not from
the blanket learns about one report only how likely it makes the reports that are: the divergence is
that of a sum of independent terms, which holds for every number of reports.
Source: Balle, Bell, Gascon and Nissim, "The privacy blanket of the shuffle model", CRYPTO 2019,
lemmas 5.2 and 5.3 (BBGN). The sum is evaluated by a Fourier transform, rounded up throughout.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ldp.core.channel import Channel
from ldp.core.mechanism import FrequencyOracle, Mechanism
from ldp.errors import InvalidInput

Floats = NDArray[np.float64]

_SLACK = 1 + 1e-6
"""Factor by which deltas are rounded up: the atoms' probabilities are doubles."""

_MOST_REPORTS = 10**7
"""More reports than these count as so many: a larger cohort is no worse."""

_CLOSE = 1e-3
"""The relative distance from the smallest epsilon at which the search ends."""

_STEPS_PER_DEVIATION = 25
"""Steps of the lattice in a standard deviation of one term: its variance grows by 4e-4 at most."""

_MOST_POINTS = 1 << 20
_FEWEST_POINTS = 1 << 12
"""Points of the lattice that the sum is put on."""

_TAIL = 1e-3
"""The part of delta that may lie beyond the lattice's top."""

_UNIT = 2.0**-53
"""Half the distance from 1 to the next double."""

_MOST_INPUTS = 16
_MOST_OUTPUTS = 1 << 10
"""Channels that are enumerated have at most so many inputs and codes."""

_MOST_PAIRS = 64
"""Pairs of inputs, or of records, that are looked at: each takes a transform or more."""

_MOST_ATOMS = 1 << 12
"""Different likelihoods of one record at which its questions are not combined any more."""


@dataclass(frozen=True, eq=False)
class Pair:
    """How the blanket tells two inputs apart: how likely each makes the blanket's reports.

    With probability `mass[i]` a report is from the blanket and is `first[i]` times as likely
    under the first input as it is to come from the blanket, and `second[i]` times under the
    second. All of shape (atoms,); `mass` sums to the blanket's mass, `mass * first` to 1.
    """

    mass: Floats
    first: Floats
    second: Floats


def pairs_of(mechanism: Mechanism) -> list[Pair] | None:
    """Return the pairs of inputs of a mechanism that differ in what the blanket tells of them.

    None where none are known: no blanket is claimed. Of a two-valued frequency oracle all pairs are
    alike. A code has one probability r b for the values that it supports, and b for others, so
    that b is the blanket's share, of total mass 1 - p (1 - 1 / r). From Pr[own supported] = p and
    Pr[another supported] = q follow the blanket's masses: (p - q) / (r - 1) where the one value
    is supported and the other is not, as much the other way round, p / r less that for both, and
    1 - p - (p - q) / (r - 1) for neither. A code that supports all values has r b for all: to take
    b for the blanket there, too, only makes the blanket smaller, which is valid.
    Other mechanisms are enumerated where their channel is small.
    """
    if mechanism.guarantee != "pure":
        return None
    if isinstance(mechanism, FrequencyOracle) and mechanism.two_valued:
        p, q = mechanism.support
        ratio = mechanism._worst_ratio()
        apart = (p - q) / (ratio - 1)
        mass = [apart, apart, p / ratio - apart, 1 - p - apart]
        r = float(ratio)
        return [_pair(mass, [r, 1, r, 1], [1, r, r, 1])]
    try:
        channel = mechanism.channel()
    except InvalidInput:
        return None
    return of_channel(channel)


def of_channel(channel: Channel) -> list[Pair] | None:
    """Return the ordered pairs of a channel's inputs, each kind once.

    None where the channel is too large, or where some code rules an input out.
    """
    if len(channel.rows) > _MOST_INPUTS or len(channel.outputs) > _MOST_OUTPUTS:
        return None
    least = [min(column) for column in zip(*channel.rows, strict=True)]
    if min(least) == 0:
        return None
    found: dict[tuple[tuple[Fraction, Fraction, Fraction], ...], Pair] = {}
    for first, second in product(channel.rows, repeat=2):
        if first == second:
            continue
        atoms: dict[tuple[Fraction, Fraction], Fraction] = {}
        for one, other, mass in zip(first, second, least, strict=True):
            key = one / mass, other / mass
            atoms[key] = atoms.get(key, Fraction()) + mass
        kind = tuple(sorted((mass, *key) for key, mass in atoms.items()))
        if kind not in found:
            found[kind] = _pair(*zip(*kind, strict=True))
    return list(found.values())


def _pair(
    mass: Sequence[Fraction | float],
    first: Sequence[Fraction | float],
    second: Sequence[Fraction | float],
) -> Pair:
    return Pair(*(np.array([float(each) for each in those]) for those in (mass, first, second)))


def together(answers: Sequence[Sequence[Pair]]) -> list[Pair] | None:
    """Return the pairs of records of several answers, from the pairs of each answer's inputs.

    Records may differ in all answers or in some; where they agree, the answer's likelihoods
    are those of one input twice. The blanket of a record is the product of its answers'. None where
    there would be too many.
    """
    nothing = np.ones(1)
    whole = [Pair(nothing, nothing, nothing)]
    for pairs in answers:
        own = [*pairs, *(Pair(each.mass, each.first, each.first) for each in pairs)]
        sizes = [max(each.mass.size for each in some) for some in (whole, own)]
        if len(whole) * len(own) > 2 * _MOST_PAIRS or math.prod(sizes) > _MOST_ATOMS:
            return None
        whole = [_product(before, each) for before in whole for each in own]
    found = [each for each in whole if (each.first != each.second).any()]
    return found if len(found) <= _MOST_PAIRS else None


def _product(one: Pair, other: Pair) -> Pair:
    """Return the pair of two answers together; atoms that rounding alone tells apart are one."""
    mass = np.outer(one.mass, other.mass).ravel()
    first = np.outer(one.first, other.first).ravel()
    second = np.outer(one.second, other.second).ravel()
    alike, places = np.unique(np.stack([first, second]).round(12), axis=1, return_inverse=True)
    size = alike.shape[1]
    sums, most, least = np.zeros(size), np.zeros(size), np.full(size, np.inf)
    np.add.at(sums, places.ravel(), mass)
    np.maximum.at(most, places.ravel(), first)
    np.minimum.at(least, places.ravel(), second)
    return Pair(sums, most, least)


def epsilon(pairs: Sequence[Pair], n: int, delta: float, most: float) -> float:
    """Return an upper bound on the epsilon, at `delta`, of n shuffled reports; `most` if none.

    `most` is an epsilon that holds, as that of one report. Raises `InvalidInput` unless n >= 1 and
    0 < delta < 1. Cost: some ten Fourier transforms for each pair that was the worst so far, and
    one for each other pair; of 2**20 points where n is 10**6.
    """
    if n < 1 or not 0 < delta < 1:
        raise InvalidInput(f"expected n >= 1 and delta between 0 and 1, got {n} and {delta}")
    n = min(n, _MOST_REPORTS)
    enough = 0.0
    for pair in pairs:
        if delta_of(pair, n, enough, delta) > delta:
            enough = _least(pair, n, delta, enough, most)
    return enough


def _least(pair: Pair, n: int, delta: float, low: float, most: float) -> float:
    """Return an epsilon above `low` at which a pair keeps delta, or `most`: by interpolation of the
    logarithm of delta."""
    high, target = most, math.log(delta)
    below, above = math.log(delta_of(pair, n, low, delta)), math.log(delta * 1e-6)
    while high - low > _CLOSE * high:
        part = min(0.9, max(0.1, (below - target) / (below - above)))
        middle = low + part * (high - low)
        found = delta_of(pair, n, middle, delta)
        if found <= delta:
            high, above = middle, math.log(max(found, delta * 1e-6))
        else:
            low, below = middle, math.log(found)
    return high


def delta_of(pair: Pair, n: int, epsilon: float, about: float) -> float:
    """Return an upper bound on the delta that n shuffled reports keep at `epsilon`, for one pair.

    BBGN's bound is (1 / n) E[(Z_1 + ... + Z_n)_+], where Z is `first` - e**epsilon `second` with
    the chance `mass`, else 0. It is rounded up in these places:

    - Z is taken with the likelihoods rounded away from each other, by more than doubles lose.
    - Z is put on a lattice, each atom as the two neighbours between which it lies, with its mean.
      That is a mean-preserving spread, and (.)_+ is convex, so the expectation only grows.
    - The lattice is a ring: what lies below it appears at its top, where it counts too much; the
      expectation of what lies above it is bounded by Chernoff's inequality, and added.
    - The transform: the transformed atoms have an error of at most c = 8 u log2(points) in the
      Euclidean norm relative to theirs (Higham, Accuracy and stability of numerical algorithms,
      2002, theorem 24.2, with u = 2**-53), their n-th power n times that and its own 4 u n, and
      the transform back c once more. By Cauchy and Schwarz the sum over the positive part of the
      lattice has an error of at most (n (c + 4 u) + c) |weights|.
    """
    apart = 64 * _UNIT
    z = pair.first * (1 + apart) - math.exp(epsilon) * pair.second * (1 - apart)
    mean = float(pair.mass @ z)
    deviation = math.sqrt(float(pair.mass @ (z - mean) ** 2) + (1 - pair.mass.sum()) * mean**2)
    spread = math.sqrt(n) * deviation
    bottom, top = max(n * min(0.0, z.min()), n * mean - 9 * spread), n * mean + 9 * spread
    step = min(
        max(deviation / _STEPS_PER_DEVIATION, (top - bottom) / _MOST_POINTS),
        (top - bottom) / _FEWEST_POINTS,
    )
    places, chances = _spread(z / step, pair.mass)
    top, beyond = _top(places * step, chances, n, spread, _TAIL * about * n)
    if top == 0:
        return min(1.0, beyond * _SLACK / n)
    first, last = math.floor(bottom / step), math.ceil(top / step)
    points = 1 << max(last - first + 1, int(np.ptp(places)) + 2).bit_length()
    atoms = np.bincount(places % points, chances, points)
    sums = np.fft.irfft(np.fft.rfft(atoms) ** n, points)
    counted = np.arange(1, last + 1)
    weights = counted * step
    inside = float(np.maximum(sums[counted % points], 0) @ weights)
    c = 8 * _UNIT * math.log2(points)
    rounding = (n * (c + 4 * _UNIT) + c) * float(np.linalg.norm(weights))
    return min(1.0, (inside * _SLACK + beyond + rounding) / n)


def _spread(z: Floats, mass: Floats) -> tuple[NDArray[np.int64], Floats]:
    """Return the integers next to each atom, and the chances that keep its mean; 0 has the rest."""
    below = np.floor(z)
    above = z - below
    places = np.concatenate([below, below + 1, [0.0]]).astype(np.int64)
    return places, np.concatenate([mass * (1 - above), mass * above, [max(0.0, 1 - mass.sum())]])


def _top(z: Floats, chances: Floats, n: int, spread: float, enough: float) -> tuple[float, float]:
    """Return a top above which the sum of n terms has an expectation of `enough` at most, and a
    bound on that expectation; 0 where all of the positive part is so small.

    E[S; S > a] <= (a + 1 / t) E[exp(t Z)]**n exp(-t a) for every t > 0.
    """
    t = np.geomspace(0.1, 100, 120) / spread
    largest = float(z.max())
    moments = n * (np.log(np.exp(np.outer(t, z - largest)) @ chances) + t * largest)

    def beyond(a: float) -> float:
        return math.exp(min(700.0, float((np.log(a + 1 / t) + moments - t * a).min())))

    top = 0.0
    while top < n * largest:
        if (found := beyond(top)) <= enough:
            return top, found
        top += spread / 4
    return n * largest, 0.0
