"""Noise for the sums over rounds: matrices, sensitivities, and rho of a whole training.

A training releases A G + B xi. Row t of G is the sum of the updates of round t, A is the lower
triangle of ones, so that row t of A G is the sum of all rounds up to t, B C = A, and xi are
independent normal values. It is a Gaussian mechanism of C G, since B (C G + xi) is all that is
released: its sensitivity is how far one person moves C G (Li et al., "The matrix mechanism", VLDB
Journal 2015; for streams, where a round depends on releases before it: Denisov et al., NeurIPS
2022, theorem 2.1). Two choices of C:

- "toeplitz": the first `bands` diagonals of A's square root, whose coefficients are
  c_0 = 1, c_k = c_(k-1) (1 - 1 / (2 k)) (Fichtenberger, Henzinger and Upadhyay, ICML 2023;
  with bands: Choquette-Choo et al., NeurIPS 2023; Kalinin and Lampert, NeurIPS 2024). Here each is
  an integer over 2**32.
- "tree": a row for each node of a binary tree over the rounds, which has a 1 for each round below
  the node (Dwork et al., STOC 2010; Chan, Shi and Song, ICALP 2010), and B = A C^+, the least
  squares estimate from all nodes (Honaker 2015; Kairouz et al., ICML 2021).

Nothing of a sensitivity or a rho is rounded down: they are exact rationals. Errors are doubles.
"""

import math
from fractions import Fraction
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ldp.core.exact import float_above
from ldp.errors import InvalidInput

PrefixSums = Literal["toeplitz", "tree"]
"""The matrix C of a training."""

MOST_ROUNDS = 1 << 16
_BITS = 32
_SPARE = 30  # bits of the coefficients' recurrence below those that are kept
_CANDIDATES = 64  # numbers of bands of which each is tried; above, eight in each octave


@lru_cache(maxsize=16)
def coefficients(bands: int) -> NDArray[np.int64]:
    """Return c_0 .. c_(bands-1) of the square root, times 2**32: falling, positive, c_0 = 2**32.

    Raises `InvalidInput` unless 1 <= bands <= 65,536.
    """
    _check("bands", bands, MOST_ROUNDS)
    kept, exact = np.empty(bands, dtype=np.int64), 1 << _BITS + _SPARE
    for k in range(bands):
        if k:
            exact = exact * (2 * k - 1) // (2 * k)
        kept[k] = exact >> _SPARE
    kept.flags.writeable = False
    return kept


def squared_sensitivity(
    mechanism: PrefixSums, rounds: int, bands: int, participations: int, separation: int
) -> Fraction:
    """Return the square of how far one person moves C G, for updates of norm 1 at most.

    For a person whose updates become zeros, in at most `participations` rounds, any two of which
    are at least `separation` apart. Replacing the updates by others moves C G twice as far.

    All entries of C^T C are >= 0, so equal updates are the worst, and the figure is the largest
    norm of a sum of columns.

    - toeplitz: exact. The worst rounds are 0, s, 2 s, ..: the coefficients c fall and are >= 0, so
      that the product of columns i < j, the sum over n < T - j of c_n c_(n+j-i), grows if j or
      j - i falls; and the m-th and n-th of any admitted rounds have j >= n s, j - i >= (n - m) s.
    - tree: the sum over nodes of (participations below the node)^2. A node of 2^h rounds has
      ceil(2^h / s) of them at most, and squares of a given sum are largest if as many nodes as
      possible are full. Exact where s is a power of two; an upper bound for others.

    Raises `InvalidInput` for another mechanism, and unless rounds and separation are integers in
    1..65,536, bands (of a tree: 0) and participations in 1..rounds. Cost: 20 ms for 65,536 rounds.
    """
    _check_all(mechanism, rounds, bands, participations, separation)
    times = min(participations, -(-rounds // separation))
    if mechanism == "tree":
        square = 0
        for height in range(_height(rounds) + 1):
            most = min(times, -(-(1 << height) // separation))
            full, rest = divmod(times, most)
            square += full * most**2 + rest**2
        return Fraction(square)
    rows = -(-rounds // separation)
    table = np.zeros((rows, separation), dtype=np.int64)
    table.reshape(-1)[:bands] = coefficients(bands)
    combined = table.cumsum(axis=0)  # below 2**48: column 0, plus column s, plus column 2 s, ..
    combined[times:] -= combined[: rows - times].copy()
    terms = combined.reshape(-1)[:rounds].tolist()
    return Fraction(sum(term * term for term in terms), 1 << 2 * _BITS)


def sensitivity(
    mechanism: PrefixSums, rounds: int, bands: int, participations: int, separation: int
) -> float:
    """Return the root of `squared_sensitivity`, rounded up."""
    square = squared_sensitivity(mechanism, rounds, bands, participations, separation)
    scaled = math.ceil(square * (1 << 128))
    root = math.isqrt(scaled)
    return float_above(Fraction(root + (root * root < scaled), 1 << 64))


def rho(
    mechanism: PrefixSums,
    rounds: int,
    bands: int,
    participations: int,
    separation: int,
    noise_multiplier: Fraction,
) -> Fraction:
    """Return rho of all rounds together: sensitivity^2 / (2 noise_multiplier^2), exactly.

    Guarantee: rho-zCDP of all models that a training publishes, for a person whose updates become
    zeros, if the server is honest and the person's device keeps `participations` and `separation`.
    Replacing one person's updates by others costs four times as much.
    `noise_multiplier` is the standard deviation of xi over the largest norm of an update. Raises
    `InvalidInput` unless it is > 0, and as `squared_sensitivity`.
    Source: Bun and Steinke, "Concentrated differential privacy", TCC 2016, proposition 1.6.
    """
    if isinstance(noise_multiplier, float) and not math.isfinite(noise_multiplier):
        raise InvalidInput(f"noise_multiplier must be finite and > 0, got {noise_multiplier}")
    noise = Fraction(noise_multiplier)
    if noise <= 0:
        raise InvalidInput(f"noise_multiplier must be finite and > 0, got {noise_multiplier}")
    square = squared_sensitivity(mechanism, rounds, bands, participations, separation)
    return square / (2 * noise * noise)


def errors(mechanism: PrefixSums, rounds: int, bands: int) -> NDArray[np.float64]:
    """Return the standard deviation of the noise in the sum up to each round, shape (rounds,).

    At noise multiplier 1 and for updates of norm 1 at most, in each coordinate: the norms of the
    rows of B. Raises as `squared_sensitivity`.
    """
    _check_all(mechanism, rounds, bands, 1, 1)
    if mechanism == "tree":
        return np.sqrt(_tree_variances(_height(rounds))[:rounds])
    series = np.zeros(rounds)
    series[:bands] = coefficients(bands) * 2.0**-_BITS
    of_sums = np.cumsum(_reciprocal(series))  # the first column of B = A C^-1
    return np.sqrt(np.cumsum(of_sums * of_sums))


def best_bands(rounds: int, participations: int, separation: int, most: int | None = None) -> int:
    """Return the number of bands with the least error at equal privacy, `most` at most.

    The error is the root of the mean square of `errors`, times the sensitivity. Every number up to
    64 is tried, the separation, and above 64 eight in each octave. A server keeps the noise of
    bands - 1 rounds. Raises `InvalidInput` as `squared_sensitivity`.
    Cost: 2 s for 65,536 rounds.
    """
    _check_all("toeplitz", rounds, 1, participations, separation)
    most = rounds if most is None else min(_check("most", most, MOST_ROUNDS), rounds)
    octaves = range(8 * int(math.log2(MOST_ROUNDS / _CANDIDATES)))
    tried = {separation, most, *range(1, _CANDIDATES + 1)}
    tried |= {round(_CANDIDATES * 2 ** (step / 8)) for step in octaves}

    def error(bands: int) -> float:
        mean_square = float(np.mean(np.square(errors("toeplitz", rounds, bands))))
        of = ("toeplitz", rounds, bands, participations, separation)
        return sensitivity(*of) * math.sqrt(mean_square)  # type: ignore[arg-type]

    best: int = min(sorted(bands for bands in tried if bands <= most), key=error)
    return best


def height_variance(height: int) -> Fraction:
    """Return the variance of the tree's noise in the sum of 2**height rounds of one node.

    By the least squares estimate from the node and all below it: 1 / v_h = 1 / (2 v_(h-1)) + 1,
    v_0 = 1 (Honaker 2015, estimation from below).
    """
    return Fraction(1 << height, (2 << height) - 1)


def _tree_variances(height: int) -> NDArray[np.float64]:
    """Return the variances of the noise in the prefix sums of a tree, shape (2**height,).

    The noise of a prefix of a node is b S + r, S being the noise of the node's sum and r
    independent of it. Given S, the left child has S / 2 + e and the right one S / 2 - e, with e of
    half the variance of a child.
    """
    slopes, rest = np.ones(1), np.zeros(1)
    for level in range(height):
        split = float(height_variance(level)) / 2
        slopes, rest = (
            np.concatenate([slopes / 2, (1 + slopes) / 2]),
            np.concatenate([rest + slopes**2 * split, rest + (1 - slopes) ** 2 * split]),
        )
    return slopes**2 * float(height_variance(height)) + rest


def _height(rounds: int) -> int:
    return (rounds - 1).bit_length()


def _reciprocal(series: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the power series 1 / series to as many terms, by Newton's method; series[0] = 1."""
    inverse = np.ones(1)
    while inverse.size < series.size:
        size = min(2 * inverse.size, series.size)
        length = 4 * inverse.size
        transformed = np.fft.rfft(inverse, length)
        product = np.fft.rfft(series[:size], length) * transformed
        inverse = np.fft.irfft(transformed * (2 - product), length)[:size]
    return inverse


def _check_all(
    mechanism: str, rounds: int, bands: int, participations: int, separation: int
) -> None:
    if mechanism not in get_args(PrefixSums):
        known = " or ".join(get_args(PrefixSums))
        raise InvalidInput(f"the mechanism of prefix sums must be {known}, got {mechanism!r}")
    _check("rounds", rounds, MOST_ROUNDS)
    if mechanism == "toeplitz":
        _check("bands", bands, rounds)
    elif isinstance(bands, bool) or bands != 0:
        raise InvalidInput(f"a tree has no bands: they must be 0, got {bands!r}")
    _check("participations", participations, rounds)
    _check("separation", separation, MOST_ROUNDS)


def _check(name: str, value: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InvalidInput(f"{name} must be an integer in 1..{most}, got {value!r}")
    return value
