"""Private statistics of arrays: each draws its noise exactly, and enters its accountant first.

    released = mean(ages, bounds=(0, 100), noise_multiplier=5.0, accountant=accountant)
    released.value, released.std_error

Guarantee: everything released with one accountant, trainings included, is (epsilon, delta)-DP under
its relation with what `get_epsilon` says. The time that a draw takes is not hidden. The number of
rows is public under every relation: an added row was one of NaN before. Values are rounded to
integers, and noise is drawn in integers, so that no floating-point number tells more.
`dpsgd.noise.discrete` has the samplers.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsgd.accounting import Accountant, Event, NoSampling, Pure, Relation
from dpsgd.accounting.accountant import enter
from dpsgd.noise.discrete import discrete_gaussian, discrete_laplace, survives
from ldp import Coins, InvalidInput

Floats = NDArray[np.float64]

_BITS = 30
"""Values are rounded to so many bits of half their range, and noise to as many bits more."""
_CELLS = 1 << 20
_EDGES = np.concatenate([-np.exp2(np.arange(30, -31, -1)), [0], np.exp2(np.arange(-30, 31))])
_FALSE_ALARM = 0.05


@dataclass(frozen=True)
class Release:
    """What may be seen, and the standard error that the noise alone gives it; None of a choice."""

    value: Any
    std_error: Any


def count(
    values: ArrayLike, *, epsilon: float, accountant: Accountant, coins: Coins | None = None
) -> Release:
    """Count the rows that are true, with discrete Laplace noise. `values` has shape (n,).

    Guarantee: `Pure(epsilon)` under every relation. Raises `InvalidInput`, and releases nothing,
    for an epsilon or an accountant that is not valid.
    Source: Ghosh, Roughgarden and Sundararajan, STOC 2009.
    """
    array = np.asarray(values)
    if array.dtype != np.bool_ or array.ndim != 1:
        raise InvalidInput(
            f"values must be booleans of shape (n,), got {array.dtype} {array.shape}"
        )
    rate = Pure(epsilon).epsilon
    enter(accountant, Pure(rate))
    noise = discrete_laplace(Fraction(rate), coins or Coins())
    return Release(int(array.sum()) + noise, math.sqrt(2 * math.exp(-rate)) / -math.expm1(-rate))


def bounds(
    values: ArrayLike,
    *,
    epsilon: float,
    accountant: Accountant,
    edges: ArrayLike = _EDGES,
    coins: Coins | None = None,
) -> Release:
    """Find a range that holds nearly all values of each column, for `mean` and `covariance`.

    The columns of `values`, of shape (n,) or (n, d), are counted in the bins between `edges`
    (ascending; by default powers of two to 2**30, of both signs), values beyond in the outermost.
    `value` is the (lower, upper) of the columns, from the first to the last bin with more than
    ln(bins / .05) / epsilon rows by noisy count: a false alarm has a chance of at most 5%.
    Guarantee: `Pure(epsilon / d)` for each of d columns. A row is in one bin of a column, and a
    replaced one in two. Raises `InvalidInput` as `count`.
    Source: Wilson et al., "Differentially private SQL with bounded user contribution", PETS 2020.
    """
    array, at = _numbers(values), _numbers(edges)
    if at.ndim != 1 or at.size < 2 or not (np.isfinite(at).all() and (np.diff(at) > 0).all()):
        raise InvalidInput(f"edges must be two finite numbers or more, ascending, got {edges!r}")
    columns = array.reshape(len(array), -1).T
    each = Pure(epsilon).epsilon / len(columns)
    enter(accountant, Pure(each, steps=len(columns)))
    rate = Fraction(each) / (2 if accountant.relation is Relation.REPLACE_ONE else 1)
    coins = coins or Coins()
    found = []
    for column in columns:
        kept = np.clip(column[~np.isnan(column)], at[0], at[-1])
        noisy = np.histogram(kept, at)[0] + [discrete_laplace(rate, coins) for _ in at[1:]]
        likely = noisy > math.log(len(noisy) / _FALSE_ALARM) / rate
        (bins,) = np.nonzero(likely if likely.any() else noisy == noisy.max())
        found.append((at[bins[0]], at[bins[-1] + 1]))
    lower, upper = np.array(found).T.reshape(2, *array.shape[1:])
    return Release((lower, upper), None)


def mean(
    values: ArrayLike,
    *,
    bounds: tuple[ArrayLike, ArrayLike],
    noise_multiplier: float,
    accountant: Accountant,
    coins: Coins | None = None,
) -> Release:
    """Release the mean of each column, clipped to its `bounds`, with discrete Gaussian noise.

    `values` has shape (n,) or (n, d), and `bounds` are a lower and an upper one for all columns or
    for each. A NaN counts as the middle. The noise of a column's sum has the standard deviation
    noise_multiplier sqrt(d) times half the range of its bounds.
    Guarantee: that of one step of `accountant` with `NoSampling`: exactly by Rényi divergences;
    `PLDAccountant` and `GDPAccountant` leave out that the noise is within
    (noise_multiplier 2**60)**-2, in total variation, of a rounded continuous Gaussian.
    Raises `InvalidInput` as `count`, and unless lower < upper. Cost: 25 us for each column.
    """
    unit, middle, half = _scaled(values, bounds)
    means, error = _means(unit, unit.shape[1], lambda x: x, noise_multiplier, accountant, coins)
    shape = np.shape(values)[1:]
    return Release((middle + half * means).reshape(shape), (half * error).reshape(shape))


def covariance(
    values: ArrayLike,
    *,
    bounds: tuple[ArrayLike, ArrayLike],
    noise_multiplier: float,
    accountant: Accountant,
    coins: Coins | None = None,
) -> Release:
    """Release the covariance matrix (divided by n) of columns clipped to their `bounds`.

    Arguments, guarantee and raised errors are those of `mean`, for values of shape (n, d). All of
    the m = d (d + 3) / 2 first and second moments are one release, with noise of noise_multiplier
    sqrt(m) in units of half the ranges. The matrix is symmetric, and may have negative eigenvalues.
    Cost: 25 us for each moment, and n m additions.
    """
    unit, _, half = _scaled(values, bounds)
    d = unit.shape[1]
    i, j = np.triu_indices(d)
    found, error = _means(
        unit,
        d + i.size,
        lambda rows: np.hstack([rows, rows[:, i] * rows[:, j]]),
        noise_multiplier,
        accountant,
        coins,
    )
    first, scale = found[:d], half[i] * half[j]
    matrix, errors = np.empty((2, d, d))
    matrix[i, j] = matrix[j, i] = scale * (found[d:] - first[i] * first[j])
    spread = 1 + first[i] ** 2 + first[j] ** 2 + 2 * (i == j) * first[i] ** 2
    errors[i, j] = errors[j, i] = scale * error * np.sqrt(spread)
    return Release(matrix, errors)


def select(
    scores: Sequence[float] | Floats,
    *,
    epsilon: float,
    accountant: Accountant,
    sensitivity: float = 1.0,
    coins: Coins | None = None,
) -> Release:
    """Choose the index of a high score, of which one row moves each by at most `sensitivity`.

    Guarantee: `Pure(epsilon)` under the relation that the sensitivity is for. Scores are tried in
    a random order, and each is taken with probability exp(epsilon (score - best) /
    (2 sensitivity)), exactly. Raises `InvalidInput` as `count`, and unless there are scores, all
    finite, and 0 < sensitivity < inf. Source: McKenna and Sheldon, "Permute-and-flip", NeurIPS
    2020, which is never worse than the exponential mechanism.
    """
    array = _numbers(scores)
    if array.ndim != 1 or not (np.isfinite(array).all() and 0 < sensitivity < math.inf):
        raise InvalidInput("scores must be finite, of shape (n,), and 0 < sensitivity < inf")
    event = Pure(epsilon)
    # Integers beyond 2**53 are no doubles, and rounding would add to the sensitivity.
    *exact, moved = (Fraction(np.asarray(number).tolist()) for number in (*scores, sensitivity))
    best, rate = max(exact), Fraction(event.epsilon) / 2 / moved
    enter(accountant, event)
    coins = coins or Coins()
    order = iter(coins.permutation(array.size).tolist())
    return Release(next(k for k in order if survives(rate * (best - exact[k]), coins)), None)


def _numbers(values: Any) -> Floats:
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"expected an array of numbers, got {type(values).__name__}") from None
    if array.ndim not in (1, 2) or not array.size:
        raise InvalidInput(f"an array of shape (n,) or (n, d) is expected, got {array.shape}")
    return array


def _scaled(values: Any, bounds: tuple[Any, Any]) -> tuple[Floats, Floats, Floats]:
    """Return values scaled to [-1, 1], shape (n, d), and the middle and half of each range."""
    array = _numbers(values)
    array = array.reshape(len(array), -1)
    try:
        lower, upper = (np.full(array.shape[1], b, dtype=np.float64) / 2 for b in bounds)
    except (TypeError, ValueError):
        raise InvalidInput(f"expected two bounds for each of {array.shape[1]} columns") from None
    middle, half = lower + upper, upper - lower
    if not (np.isfinite(half).all() and (half > 0).all()):
        raise InvalidInput("bounds must be finite, each lower one below its upper one")
    with np.errstate(over="ignore"):
        unit = np.clip((array - middle) / half, -1.0, 1.0)
    return np.nan_to_num(unit, copy=False), middle, half


def _means(
    unit: Floats,
    width: int,
    features: Callable[[Floats], Floats],
    noise_multiplier: float,
    accountant: Accountant,
    coins: Coins | None,
) -> tuple[Floats, float]:
    """Return the noisy mean of `width` features in [-1, 1] of each row, and its standard error."""
    enter(accountant, Event(noise_multiplier, NoSampling(), 1))
    total = np.zeros(width, dtype=np.int64)
    rows = max(1, _CELLS // width)
    for start in range(0, len(unit), rows):
        part = features(unit[start : start + rows])
        total += np.rint(part * (1 << _BITS)).astype(np.int64).sum(axis=0)
    # A row moves the integers by sqrt(width) 2**(2 bits) in all, twice that if it is replaced.
    variance = math.ceil(Fraction(float(noise_multiplier)) ** 2 * (width << 4 * _BITS))
    coins = coins or Coins()
    whole = len(unit) << 2 * _BITS
    noisy = [(summed << _BITS) + discrete_gaussian(variance, coins) for summed in total.tolist()]
    return np.array([summed / whole for summed in noisy]), math.sqrt(variance) / whole
