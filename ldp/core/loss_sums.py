"""Sums of independent privacy losses: the epsilon of many reports together, never understated.

The masses of each report's losses stand on a lattice. They are tilted: multiplied by
e**(theta loss), and scaled to a sum of one, so that the losses near the answer are the likely
ones. Sums of tilted losses are convolutions, by Fourier transforms that are long enough for the
whole sum, so that nothing wraps around and nothing is cut off. Undoing the tilt multiplies the
rounding of the transforms by the same tiny number as the masses, so that the error is small
beside delta, however small that is.

Rounding. The masses that go in are at least the true ones. With u = 2**-53, a transform of length
2**t has a relative error of at most t eta in the 2-norm, eta = 7 u for weights that are correctly
rounded (Higham, "Accuracy and stability of numerical algorithms", 2002, theorem 24.2); 32 u is
allowed for. Transforms of masses are at most 1 in size, so that a product of `times` of them errs
by at most the sum of their errors, and 6 u for each multiplication. The bound of the 2-norm of all
errors turns into one of delta by the inequality of Cauchy and Schwarz, and is added. Scaling,
tilting and evaluating round by factors near 1, which are multiplied up.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ldp.core.exact import float_above
from ldp.core.losses import Losses
from ldp.errors import InvalidInput

Floats = NDArray[np.float64]
Parts = Sequence[tuple[Losses, int]]
"""Losses, and how many reports have them: each at least one."""

_U = 2.0**-53
_TRANSFORM = 32 * _U
"""Relative error of a transform for each doubling of its length."""

_FINEST = 1024
"""Points of the common lattice in the smallest unit, where units differ."""
_MOST_POINTS = 1 << 16
"""Points of a common lattice; times 64, of one that all losses have in common without that."""
_PRECISION = 1e-7
"""How near to the least epsilon a search comes, relative to it and to a lattice step."""
_LEAST_TILT = 1e-6
_MOST_TILT = 16.0
"""The largest tilt times the lattice's step: neighbours keep masses above the error."""


def epsilon_of_sum(parts: Parts, delta: float) -> float:
    """Return the least epsilon found at which the sum's divergence is at most `delta`, rounded up.

    It is 0 where the divergence at 0 is at most delta already, and infinite where delta is less
    than the mass at infinity.
    """
    kept = [(losses, times) for losses, times in parts if times]
    certain = -math.expm1(sum(n * math.log1p(-x.certain) for x, n in kept if x.certain < 1))
    if any(losses.certain == 1 for losses, _ in kept) or certain * (1 + 1e-12) >= delta:
        return math.inf if any(losses.certain for losses, _ in kept) else _largest(kept)
    if not kept:
        return 0.0
    return _Sum(kept).epsilon(delta - certain * (1 + 1e-12))


def _largest(parts: Parts) -> float:
    return float_above(sum((Fraction(x.epsilon) * times for x, times in parts), Fraction(0)))


def mixed(choices: Sequence[tuple[int, Sequence[Losses]]]) -> Losses:
    """Return losses that dominate reports of which a public coin chooses some.

    `choices` has the weight of each choice, and the losses of the independent reports that it
    makes; the coin must not depend on any answer. The divergence is the average of the choices'.
    Losses with units that are no multiples of each other are put on a common, finer lattice.
    Raises `InvalidInput` unless there is a positive weight, and none is negative.
    """
    whole = sum(weight for weight, _ in choices)
    if whole <= 0 or any(weight < 0 for weight, _ in choices):
        raise InvalidInput(f"weights must be >= 0, one above, got {[w for w, _ in choices]}")
    every = [(losses, 1) for _, made in choices for losses in made]
    if not every:
        return Losses(0.0, 1.0, 0, (1.0,))
    gap = _common_gap(every, 128)
    made_of = []
    for weight, made in choices:
        lowest, masses, kept = 0, np.ones(1), 1.0
        for losses in made:
            low, more = on_lattice(losses, gap)
            lowest, masses = lowest + low, np.convolve(masses, more)
            kept *= 1 - losses.certain
        share = float_above(Fraction(weight, whole)) * (1 + 4 * masses.size * _U)
        made_of.append((lowest, masses * share, share * (1 - kept)))
    lowest = min(low for low, _, _ in made_of)
    total = np.zeros(max(low + masses.size for low, masses, _ in made_of) - lowest)
    for low, masses, _ in made_of:
        total[low - lowest : low - lowest + masses.size] += masses
    total *= 1 + 2 * len(choices) * _U
    epsilon = max(sum((Fraction(x.epsilon) for x in made), Fraction(0)) for _, made in choices)
    certain = sum(missing for _, _, missing in made_of) * (1 + 2 * len(choices) * _U)
    return Losses(float_above(epsilon), gap, lowest, tuple(total.tolist()), min(1.0, certain))


class _Sum:
    """The distribution of a sum of losses, tilted towards one answer."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._gap = _common_gap(parts)
        self._lattice = [(*on_lattice(losses, self._gap), times) for losses, times in parts]

    def epsilon(self, delta: float) -> float:
        theta = self._tilt(delta)
        lowest, masses, error, log_scale = self._convolved(theta)
        losses = (lowest + np.arange(masses.size)) * self._gap
        largest, log_delta = float(losses[-1]), math.log(delta)

        def exceeds(epsilon: float) -> bool:
            # Losses and the exponent are rounded by less than 2**-50 of what they are made of.
            margin = (abs(epsilon) + largest) * 2.0**-50
            first = int(np.searchsorted(losses, epsilon - margin))
            if first == losses.size:
                return False  # no loss is as large
            above = np.maximum(losses[first:] - epsilon, 0.0) + margin
            logs = np.log(-np.expm1(-above)) - theta * above
            most = float(logs.max())
            weights = np.exp(logs - most)  # what underflows is less than 1e-300 in all
            slack = (abs(log_scale) + theta * (abs(epsilon) + largest) + 64) * 2.0**-50
            slack += 2 * masses.size * _U  # of the sums
            found = float(weights @ masses[first:]) + error * float(np.sqrt(weights @ weights))
            log_found = math.log(found + 1e-300) + most + log_scale - theta * epsilon + slack
            return log_found > log_delta

        top = math.ceil(largest / self._gap)
        low, high = -1, top  # in lattice steps: the divergence at the largest loss is 0
        while high - low > 1:
            middle = (low + high) // 2
            if exceeds(middle * self._gap):
                low = middle
            else:
                high = middle
        if high == 0:
            return 0.0
        least, most = low * self._gap, high * self._gap
        while most - least > _PRECISION * max(most, self._gap):
            between = (least + most) / 2
            if exceeds(between):
                least = between
            else:
                most = between
        return most

    def _tilt(self, delta: float) -> float:
        """Return the theta of the least Rényi bound on epsilon; every theta is sound.

        Source: Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy",
        NeurIPS 2020, proposition 12.
        """

        def bound(log_theta: float) -> float:
            theta = math.exp(log_theta)
            logs = sum(
                times * _log_moment(low, masses, self._gap, theta)
                for low, masses, times in self._lattice
            )
            excess = theta * math.log(theta) - (theta + 1) * math.log1p(theta)
            return (logs + excess - math.log(delta)) / theta

        low, high = math.log(_LEAST_TILT), math.log(_MOST_TILT / self._gap)
        while high - low > 0.01:
            left, right = (2 * low + high) / 3, (low + 2 * high) / 3
            low, high = (low, right) if bound(left) <= bound(right) else (left, high)
        return math.exp(low)

    def _convolved(self, theta: float) -> tuple[int, Floats, float, float]:
        """Return the lowest lattice point of the sum, its tilted masses, a bound on the 2-norm of
        their errors, and the logarithm of what undoes the scaling, rounded up."""
        length = 1 + sum(times * (masses.size - 1) for _, masses, times in self._lattice)
        size = 1 << max(1, (length - 1).bit_length())
        product: NDArray[np.complex128] | None = None
        lowest, log_scale, reports = 0, 0.0, 0
        for low, masses, times in self._lattice:
            losses = (low + np.arange(masses.size)) * self._gap
            log_moment = _log_moment(low, masses, self._gap, theta)
            with np.errstate(divide="ignore"):
                tilted = np.exp(np.log(masses) + theta * losses - log_moment)
            # `tilted` is off by factors of at most e**slack.
            slack = (abs(log_moment) + theta * float(np.abs(losses).max()) + 800) * 2.0**-50
            total = float(tilted.sum()) * (1 + masses.size * _U)
            log_scale += times * (log_moment + slack + math.log(total))
            transformed = _power(np.fft.rfft(tilted / total, size), times)
            product = transformed if product is None else product * transformed
            lowest, reports = lowest + times * low, reports + times
        assert product is not None
        masses = np.maximum(np.fft.irfft(product, size)[:length], 0.0)
        each = _TRANSFORM * math.log2(size)
        error = (each * (reports + 1) + 8 * _U * reports) * math.exp(
            2 * reports * each * math.sqrt(size)
        )
        return lowest, masses, error, log_scale


def _power(values: NDArray[np.complex128], times: int) -> NDArray[np.complex128]:
    result: NDArray[np.complex128] | None = None
    while times:
        if times & 1:
            result = values if result is None else result * values
        times >>= 1
        if times:
            values = values * values
    assert result is not None
    return result


def _log_moment(lowest: int, masses: Floats, gap: float, theta: float) -> float:
    """Return ln E e**(theta loss), in doubles."""
    (at,) = np.nonzero(masses)
    logs = np.log(masses[at]) + theta * gap * (lowest + at)
    most = float(logs.max())
    return most + math.log(float(np.exp(logs - most).sum()))


def _common_gap(parts: Parts, finest: int = _FINEST) -> float:
    """Return the step of a lattice for all losses: the smallest unit where the others are
    multiples of it, else a fine one, of at most `finest` points in the smallest unit."""
    smallest = min(losses.unit for losses, _ in parts)
    span = sum(times * (len(x.masses) - 1) * x.unit for x, times in parts)
    fits = all((Fraction(x.unit) / Fraction(smallest)).denominator == 1 for x, _ in parts)
    if fits and span <= 64 * _MOST_POINTS * smallest:
        return smallest
    return max(smallest / finest, span / _MOST_POINTS)


def on_lattice(losses: Losses, gap: float) -> tuple[int, Floats]:
    """Return losses on another lattice: its lowest point and the masses from there on.

    A loss between two points becomes a mass at either, so that P and Q keep theirs: the
    divergence is a line in e**epsilon between the points, where it was convex (Doroshenko et
    al., "Connect the dots", PETS 2022). Rounding adds to both masses.
    """
    steps = Fraction(losses.unit) / Fraction(gap)
    masses = np.array(losses.masses)
    index = losses.lowest + np.arange(masses.size)
    if steps.denominator == 1:
        stride = int(steps)
        spread = np.zeros((masses.size - 1) * stride + 1)
        spread[::stride] = masses
        return losses.lowest * stride, spread
    at = index * losses.unit
    below = np.floor(at / gap).astype(np.int64)
    share = np.clip(np.expm1(below * gap - at) / math.expm1(-gap), 0.0, 1.0)
    error = 16 * _U * (1 + np.abs(at) / gap)
    lowest = int(below[0])
    spread = np.zeros(int(below[-1]) - lowest + 2)
    np.add.at(spread, below - lowest, masses * (1 - share + error))
    np.add.at(spread, below - lowest + 1, masses * (share + error))
    return lowest, spread * (1 + masses.size * 2 * _U)
