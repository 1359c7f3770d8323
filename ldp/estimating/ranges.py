"""The range of a number whose size nobody knows, from a pilot that asks for it in growing bins.

A mean of numbers in [low, high] has noise in proportion to high - low, and numbers outside, which
are clamped, bias it. So the range for n reports is the one of least

    (E (low - x)+ + E (x - high)+)**2 + ((high - low) / 2)**2 v / n,

where v is the mechanism's largest variance on [-1, 1]. The two biases have opposite signs, and
are added all the same: whether they cancel out is not known. At the best high the share that is
clamped there, times the bias, is (high - low) v / (4 n): the more reports or epsilon, the wider the
range. (Amin, Kulesza, Munoz Medina and Vassilvitskii, "Bounding user contributions: a
bias-variance trade-off in differential privacy", ICML 2019, trade the same two for a sum of
clamped numbers under central noise.)

The pilot's shares of bins are too noisy for that: a percent of the people in a bin that nobody is
in would move the range by powers of ten. So a distribution of few parameters is fitted to them
(`fitted`), whose tails fall on the logarithmic scale.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, log_softmax

from ldp.core.intervals import critical_value, wilson
from ldp.errors import InvalidInput
from ldp.mechanisms.ranges.waves import MAX_BINS

Floats = NDArray[np.float64]

_SHAPE = 1.5
"""The tails' exponent, before any report: between a Pareto tail (1) and a lognormal one (2)."""
_SHAPE_SPREAD = 0.2
_LEAN = 0.5
"""Standard deviation, before any report, of the log of the two sides' ratio of widths."""
_PART = 4.0
"""That of the log odds of numbers of one sign against zeros."""
_SEEN = 2.5
"""Standard errors from which the rarer sign is taken to occur at all."""
_EVEN = 1.01
"""How much larger a squared error may be where the range begins with zero."""
_STARTS = (-6.0, -4.0, -2.0, 0.0, 2.0, 4.0, 6.0, 8.0)
"""How far from the pilot's middle a fit begins, in logarithms."""


def growing_edges(
    smallest: float, largest: float, *, per_decade: int = 5, negative: bool = True
) -> tuple[float, ...]:
    """Return the ends of bins that grow, for numbers of up to `largest`.

    One bin is about zero, up to `smallest`; from there, for each sign, `per_decade` bins for each
    factor of ten. Without `negative` the first bin begins at 0. Raises `InvalidInput` unless
    0 < smallest < largest, and for more than `MAX_BINS` bins.
    """
    if not (0 < smallest < largest < math.inf and per_decade >= 1):
        raise InvalidInput(
            "growing bins take 0 < smallest < largest and at least one bin for a factor of ten, "
            f"got {smallest:g}, {largest:g} and {per_decade}"
        )
    steps = math.ceil(per_decade * math.log10(largest / smallest) - 1e-9)
    bins = 1 + steps * (2 if negative else 1)
    if not 3 <= bins <= MAX_BINS:
        raise InvalidInput(
            f"from {smallest:g} to {largest:g} there are {bins} bins, more than 3..{MAX_BINS}: "
            "take a larger smallest number, or fewer bins for a factor of ten"
        )
    up = [float(f"{smallest * 10 ** (step / per_decade):.3g}") for step in range(steps + 1)]
    return (*(-edge for edge in reversed(up)), *up) if negative else (0.0, *up)


@dataclass(frozen=True, eq=False)
class Fitted:
    """A distribution over bins, shape (bins,), and which signs it has."""

    shares: Floats
    signs: tuple[int, ...]


@dataclass(frozen=True)
class Range:
    """A range for the mean of a number, and what comes of it.

    `clamped` is the share of people whose numbers lie outside, by the fitted distribution, and
    `clamped_low` to `clamped_high` its interval by the pilot's reports alone, whatever the
    distribution is. `bias` is by how much clamping moves the mean at most, by the fitted
    distribution; `bias_high` is the upper end of its interval by the reports alone, numbers being
    even in each bin. `noise` is the standard error that the mechanism adds, and `error` both noise
    and `bias` together. `beyond` is the fitted share of numbers in the pilot's outermost bins: of
    these only is known that they are large. `misfit` is the most standard errors by which the
    share of numbers below any edge of the pilot differs from the fitted one.
    """

    low: float
    high: float
    clamped: float
    clamped_low: float
    clamped_high: float
    bias: float
    bias_high: float
    noise: float
    error: float
    beyond: float
    misfit: float


def fitted(edges: ArrayLike, estimate: ArrayLike, covariance: ArrayLike) -> Fitted:
    """Fit a distribution to the unbiased estimate of a pilot's bins.

    Zeros, positive and negative numbers have each their share; on the logarithmic scale the
    density of each sign has one mode, and falls as exp(-(d / s)**b / b) at distance d, with widths
    s of its own on both sides: b = 2 is lognormal, 1 has the tails of Pareto's distribution. The
    rarer sign is left out where it is not 2.5 standard errors above zero. Fitted by generalised
    least squares, with weak normal priors of the logarithms of b and s, and of their difference.
    `estimate` has shape (bins,), sums to one, and has the covariance `covariance`. Raises
    `InvalidInput` for other shapes, and unless zero lies in a bin, which may be the first one.
    """
    from scipy.optimize import minimize  # loaded for those alone who ask for a range

    ends, found, spread = _checked(edges, estimate, covariance)
    middle = int(np.searchsorted(ends, 0.0, side="right")) - 1
    precision = np.linalg.pinv(spread)
    place = np.arange(found.size)
    sides = []
    for sign, mine in ((1, place[middle + 1 :]), (-1, place[:middle][::-1])):
        if mine.size:
            error = math.sqrt(np.sum(spread[np.ix_(mine, mine)]))
            sides.append((float(np.sum(found[mine])) / error, sign, mine))
    sides.sort(key=lambda side: -side[0])
    sides = [side for j, side in enumerate(sides) if j == 0 or side[0] > _SEEN]
    logs = []
    for _, sign, mine in sides:
        inner = np.where(sign > 0, ends[mine], -ends[mine + 1])
        outer = max(abs(ends[mine[-1]]), abs(ends[mine[-1] + 1]))
        logs.append(np.log(np.append(inner, outer)))
    count = len(sides)

    def shares(parameters: Floats) -> Floats:
        result = np.zeros(found.size)
        parts = np.exp(log_softmax(np.append(0.0, parameters[:count])))
        result[middle] = parts[0]
        rows = parameters[count:].reshape(count, 4)
        for (_, _, mine), at, part, row in zip(sides, logs, parts[1:], rows, strict=True):
            below = _below(at, row)
            below[0], below[-1] = 0.0, 1.0
            result[mine] = part * np.diff(below)
        return result

    def misfit(parameters: Floats) -> float:
        rest = found - shares(parameters)
        rows = parameters[count:].reshape(count, 4)
        prior = np.sum((parameters[:count] / _PART) ** 2) + np.sum(rows[:, 1:] ** 2)
        prior += np.sum(((rows[:, 1] - rows[:, 2]) / _LEAN) ** 2)
        return float(rest @ precision @ rest + prior) / 2

    fits = []
    for away in _STARTS:
        start = [3.0] * count
        for (_, _, mine), at in zip(sides, logs, strict=True):
            sums = np.maximum.accumulate(np.cumsum(found[mine]))
            half = min(int(np.searchsorted(sums, sums[-1] / 2)), mine.size - 1)
            start += [at[half] + away, 0.0, 0.0, 0.0]
        fits.append(minimize(misfit, start, method="BFGS", options={"maxiter": 300}))
    best = min(fits, key=lambda fit: float(fit.fun))
    return Fitted(shares(best.x), tuple(sign for _, sign, _ in sides))


def propose(
    edges: ArrayLike,
    estimate: ArrayLike,
    covariance: ArrayLike,
    *,
    pilot: int,
    n: int,
    variance: float,
    confidence: float = 0.95,
) -> Range:
    """Return the range for n reports of a number, from `pilot` reports of its bins.

    `edges`, `estimate` and `covariance` are those of `fitted`; `variance` is the largest variance
    of one report on [-1, 1], by the mechanism that is to be used. Low and high have two digits.
    They are the best ones of the fitted distribution. Of one with two modes, or with a few numbers
    far above all others, they may be far too narrow: `misfit` and `bias_high` tell.
    In simulations with wages the squared error of the mean was at the median 1.0 to 1.5 times the
    least possible, for pilots of 5,000 reports and more at epsilon 1 (tests/ldp/test_ranges.py).
    Raises `InvalidInput` as `fitted`, and unless the counts and the variance are positive.
    Cost: about 0.3 s for 100 bins.
    """
    if pilot < 1 or n < 1 or not (math.isfinite(variance) and variance > 0):
        raise InvalidInput(
            "a range takes at least one report of the pilot and of the survey, and a variance "
            f"> 0, got {pilot}, {n} and {variance}"
        )
    z = critical_value(confidence)
    ends, found, spread = _checked(edges, estimate, covariance)
    model = fitted(ends, found, spread)
    tried = _round_numbers(ends)
    above, below = _excess(ends, tried)
    bias = (below @ model.shares)[:, None] + (above @ model.shares)[None, :]
    noise = (tried[None, :] - tried[:, None]) / 2 * math.sqrt(variance / n)
    squares = np.where(noise > 0, bias**2 + noise**2, np.inf)
    i, j = np.unravel_index(int(squares.argmin()), squares.shape)
    zero = int(np.flatnonzero(tried == 0)[0])
    if squares[zero, j] <= _EVEN * squares[i, j]:
        i = np.intp(zero)  # the plainer one of two that are as good
    low, high = float(tried[i]), float(tried[j])
    width = np.diff(ends)
    inside = np.clip(np.minimum(ends[1:], high) - np.maximum(ends[:-1], low), 0, width) / width
    # Bins that lie outside for certain, and all that may: the outermost have no known end.
    least, most = inside == 0, inside < 1
    most[-1] = True
    most[0] |= ends[0] < 0
    excess = above[j] + below[i]
    error = math.sqrt(max(0.0, float(excess @ spread @ excess)))
    tails = np.tri(found.size - 1, found.size)
    errors = np.sqrt(np.maximum(np.einsum("ij,ij->i", tails @ spread, tails), 0))
    apart = np.abs(tails @ (found - model.shares))
    misfits = np.divide(apart, errors, out=np.zeros_like(errors), where=errors > 0)
    outermost = model.shares[-1] + (model.shares[0] if ends[0] < 0 else 0.0)
    return Range(
        low,
        high,
        float((1 - inside) @ model.shares),
        _interval(least, found, spread, pilot, z)[0],
        _interval(most, found, spread, pilot, z)[1],
        float(bias[i, j]),
        max(float(bias[i, j]), float(excess @ found) + z * error),
        float(noise[i, j]),
        math.sqrt(float(squares[i, j])),
        float(outermost),
        float(misfits.max()),
    )


def _checked(
    edges: ArrayLike, estimate: ArrayLike, covariance: ArrayLike
) -> tuple[Floats, Floats, Floats]:
    ends, found, spread = (np.array(a, dtype=float) for a in (edges, estimate, covariance))
    rises = ends.ndim == 1 and ends.size >= 4 and bool((np.diff(ends) > 0).all())
    if not rises or not ends[0] <= 0 < ends[-1]:
        raise InvalidInput(
            f"edges must rise, from 0 or less to more than 0, and make three bins, got {edges!r}"
        )
    if found.shape != (ends.size - 1,) or spread.shape != (found.size, found.size):
        raise InvalidInput(
            f"{ends.size - 1} bins have as many shares with their covariance, got shapes "
            f"{found.shape} and {spread.shape}"
        )
    if not (np.isfinite(found).all() and np.isfinite(spread).all()):
        raise InvalidInput("the pilot's estimates must be finite")
    return ends, found, spread


def _below(at: Floats, row: Floats) -> Floats:
    """Return the share below each place by (mode, log widths of both sides, log of the shape)."""
    mode, (left, right) = row[0], np.exp(np.clip(row[1:3], -6, 6))
    shape = _SHAPE * math.exp(_SHAPE_SPREAD * float(np.clip(row[3], -6, 6)))
    share = left / (left + right)
    lower = gammainc(1 / shape, (np.maximum(mode - at, 0) / left) ** shape / shape)
    upper = gammainc(1 / shape, (np.maximum(at - mode, 0) / right) ** shape / shape)
    found: Floats = share * (1 - lower) + (1 - share) * upper
    return found


def _round_numbers(ends: Floats) -> Floats:
    """Return zero and the numbers of two digits in the pilot's range."""
    smallest = float(ends[ends > 0][0])
    powers = range(math.floor(math.log10(smallest)), math.ceil(math.log10(ends[-1])) + 1)
    up = np.array(
        [float(f"{digits / 10:g}e{power}") for power in powers for digits in range(10, 100)]
    )
    up = up[up >= smallest]
    every = np.concatenate([-up[::-1], [0.0], up])
    result: Floats = every[(every >= ends[0]) & (every <= ends[-1])]
    return result


def _excess(ends: Floats, cuts: Floats) -> tuple[Floats, Floats]:
    """Return E (x - cut)+ and E (cut - x)+ of numbers even in each bin, (cuts, bins)."""
    a, b, c = ends[None, :-1], ends[None, 1:], cuts[:, None]
    least, most = np.maximum(a, c), np.minimum(b, c)
    above = np.where(b > c, (b - least) * ((b + least) / 2 - c) / (b - a), 0.0)
    below = np.where(a < c, (most - a) * (c - (most + a) / 2) / (b - a), 0.0)
    return above, below


def _interval(
    chosen: NDArray[np.bool_], found: Floats, spread: Floats, n: int, z: float
) -> tuple[float, float]:
    """Return the interval of the share of some bins, by the pilot's reports alone."""
    if not chosen.any():
        return 0.0, 0.0
    value = float(np.sum(found[chosen]))
    inside = min(1.0, max(0.0, value))
    noise = max(0.0, n * float(np.sum(spread[np.ix_(chosen, chosen)])) - inside * (1 - inside))
    low, high = wilson(value, noise, n, z)
    return float(low), float(high)
