"""The design of waves: which patterns, and how often each, for the least error of ranges.

A pattern is a set W of bins; it is reported shifted by all shifts alike, so that at a uniform
truth the information of one report is circulant. Its eigenvalues are mixtures of the patterns':

    lambda_k = sum_j theta_j a_jk,   a_jk = D (e - 1)^2 |W_j^(k)|^2 / (|W_j| (e - 1) + D)^2

with W^ the discrete Fourier transform, D bins, e = e**epsilon and theta_j the chance of pattern j.
The variance of a range's share, on average over all ranges (over all rectangles in two
dimensions), is F = sum_{k != 0} g_k / lambda_k for one report. F is convex in theta. With the
prices G_j = sum_k g_k a_jk / lambda_k^2 the best chances have G_j <= F for all patterns, and no
mixture of patterns has less than F^2 / max_j G_j (Cauchy and Schwarz).

Source: multiplicative updates for convex designs, Silvey, Titterington and Torsney, "An algorithm
for optimal designs on a finite design space", Communications in Statistics 7(14), 1978.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Masks = NDArray[np.bool_]
"""Patterns as sets of bins, shape (patterns, bins); in two dimensions rows of a table in turn."""

MAX_CODES = 1 << 15
"""The most codes, patterns times bins: a tally counts every one, and is written with a commit."""

GAP = 1e-6
"""How much the average variance may exceed the least that these patterns allow, as a part of it."""

_ROUGH = 1e-4
"""The gap while patterns are still looked for."""

_UPDATES = 4000
"""The most updates of the chances."""

_RARE = 5e-4
"""Patterns drawn less often than this are dropped."""

_ROUNDS, _WORTH, _STARTS = 16, 5e-4, 12
"""New patterns are looked for so many times, or until the variance falls by less than this part of
it; each time from so many of the dearest patterns."""


@dataclass(frozen=True)
class Design:
    """Patterns, shape (patterns, bins), and the chance of each, shape (patterns,).

    `variance` is F, that of the share of a range from one report, on average over the ranges.
    """

    masks: Masks
    chances: Floats
    variance: float


@lru_cache(maxsize=64)
def design(sides: tuple[int, ...], epsilon: float) -> Design:
    """Return the best mixture of patterns that is found for D = prod(sides) bins.

    It starts from waves, {x : x j mod D < w} for all j, of a few widths w. Then patterns of higher
    price are looked for by adding, removing and exchanging single bins, and the chances are
    computed again, until that no longer helps: at large epsilon it saves up to 40%. Rare patterns
    are dropped, and those beyond `MAX_CODES` codes. Takes up to 5 s for 256 bins.
    """
    e, weights = math.exp(epsilon), range_weights(sides)
    bins = math.prod(sides)
    most = max(2, min(bins, MAX_CODES // bins))
    masks = first_patterns(sides, epsilon)
    chances, variance, prices = balance(masks, sides, e, weights, gap=_ROUGH)
    for _ in range(_ROUNDS):
        eigenvalues = chances @ gains(masks, sides, e)
        dearest = masks[np.argsort(-prices)[:_STARTS]]
        found = _dearer(dearest, sides, e, weights / eigenvalues**2, variance)
        kept = masks[chances > _RARE]
        masks = _distinct(np.concatenate([kept, found]), sides, e)
        chances, after, prices = balance(masks, sides, e, weights, gap=_ROUGH)
        gain, variance = 1 - after / variance, after
        if gain < _WORTH:
            break
    while True:
        often = np.argsort(-chances, kind="stable")[:most]
        masks = masks[often[chances[often] > _RARE]]
        chances, variance, _ = balance(masks, sides, e, weights)
        if chances.min() > _RARE:
            return Design(masks, chances, variance)


@lru_cache(maxsize=256)
def predicted_variance(sides: tuple[int, ...], epsilon: float) -> float:
    """Return the variance of the waves that `design` starts from, up to 10% above the design's."""
    e = math.exp(epsilon)
    masks = first_patterns(sides, epsilon)
    return balance(masks, sides, e, range_weights(sides), gap=_ROUGH)[1]


def first_patterns(sides: tuple[int, ...], epsilon: float) -> Masks:
    """Return the patterns that `design` starts from."""
    e = math.exp(epsilon)
    return _distinct(_waves(sides, e), sides, e)


def balance(
    masks: Masks, sides: Sequence[int], e: float, weights: Floats, *, gap: float = GAP
) -> tuple[Floats, float, Floats]:
    """Return the best chances of these patterns, the average variance F, and the prices."""
    each = gains(masks, sides, e)
    chances = np.full(len(masks), 1 / len(masks))
    for _ in range(_UPDATES):
        eigenvalues = chances @ each
        variance = float((weights / eigenvalues).sum())
        prices = each @ (weights / eigenvalues**2)
        if prices.max() <= (1 + gap) * variance:
            break
        chances = chances * np.sqrt(prices / variance)
        chances /= chances.sum()
    return chances, variance, prices


def gains(masks: Masks, sides: Sequence[int], e: float) -> Floats:
    """Return the patterns' eigenvalues a_jk of k != 0, shape (patterns, bins - 1)."""
    size = masks.sum(axis=1)
    power = np.abs(spectra(masks.astype(float), sides)[:, 1:]) ** 2
    scale = math.prod(sides) * (e - 1) ** 2 / (size * (e - 1) + math.prod(sides)) ** 2
    result: Floats = scale[:, np.newaxis] * power
    return result


def spectra(rows: Floats, sides: Sequence[int]) -> NDArray[np.complex128]:
    """Return each row's Fourier transform over the bins, shape (rows, bins)."""
    axes = tuple(range(1, len(sides) + 1))
    found = np.fft.fftn(rows.reshape(-1, *sides), axes=axes)
    result: NDArray[np.complex128] = found.reshape(rows.shape)
    return result


@cache
def range_weights(sides: tuple[int, ...]) -> Floats:
    """Return g_k of k != 0, shape (bins - 1,): |r^(k)|^2 / D on average over the ranges r."""
    product = np.ones(1)
    for side in sides:
        product = np.multiply.outer(product, _range_weights(side)).ravel()
    return product[1:]


def _range_weights(side: int) -> Floats:
    """Return |r^(k)|^2 / side on average over all ranges, by frequency k, shape (side,)."""
    lengths = np.arange(1, side + 1)
    turns = np.pi * np.arange(1, side)[:, np.newaxis] / side
    squares = np.vstack([lengths**2.0, (np.sin(turns * lengths) / np.sin(turns)) ** 2])
    result: Floats = squares @ (side + 1.0 - lengths) * 2 / (side**2 * (side + 1))
    return result


def _waves(sides: tuple[int, ...], e: float) -> Masks:
    """Return the patterns to start from."""
    if len(sides) == 1:
        return np.concatenate([waves(sides[0], width) for width in _widths(sides[0], 1 / (1 + e))])
    share = 1 / (1 + e)
    whole = [_of_share(side, share) for side in sides]
    halves = [_of_share(side, math.sqrt(share)) for side in sides]
    odd = [_of_share(side, (1 - math.sqrt(1 - 2 * share)) / 2) for side in sides]
    first, second = np.ones((1, sides[0]), np.bool_), np.ones((1, sides[1]), np.bool_)
    patterns = [
        _crossed(whole[0], second, np.logical_and),
        _crossed(first, whole[1], np.logical_and),
        _crossed(halves[0], halves[1], np.logical_and),
        _crossed(odd[0], odd[1], np.logical_xor),
    ]
    return np.concatenate(patterns)


def _crossed(first: Masks, second: Masks, how: np.ufunc) -> Masks:
    """Return the patterns of a table that each pair of patterns of its sides makes."""
    pairs = how(first[:, np.newaxis, :, np.newaxis], second[np.newaxis, :, np.newaxis, :])
    result: Masks = pairs.reshape(len(first) * len(second), -1)
    return result


def _of_share(side: int, share: float) -> Masks:
    return waves(side, max(1, round(side * share)))


def _widths(side: int, share: float) -> Iterable[int]:
    """Return the widths of waves to start from, around the share of e**epsilon and below."""
    best = side * share
    far = side / (1 + math.sqrt(1 / share - 1))
    tried = {1, 2, 3, 4, best / 2, best, math.sqrt(best * far), far}
    return sorted({max(1, round(width)) for width in tried if width <= side / 2} | {1})


def waves(side: int, width: int) -> Masks:
    """Return {x : x j mod side < width} for j = 1, ..., side / 2, shape (side // 2, side)."""
    places = np.outer(np.arange(1, side // 2 + 1), np.arange(side)) % side
    result: Masks = places < width
    return result


def _distinct(masks: Masks, sides: Sequence[int], e: float) -> Masks:
    """Return the patterns without empty and full ones, one of several with the same eigenvalues."""
    size = masks.sum(axis=1)
    masks = masks[(size > 0) & (size < masks.shape[1])]
    each = gains(masks, sides, e)
    _, first = np.unique(np.round(each / each.max(), 9), axis=0, return_index=True)
    result: Masks = masks[np.sort(first)]
    return result


def _dearer(
    starts: Masks, sides: Sequence[int], e: float, prices: Floats, variance: float
) -> Masks:
    """Return patterns of a price above `variance`, each the best near one of the starts."""
    bins = starts.shape[1]
    kernel = np.fft.ifftn(np.concatenate([[0.0], prices]).reshape(sides)).real.ravel() * bins
    places = np.indices(sides).reshape(len(sides), -1)
    apart = (places[:, :, np.newaxis] - places[:, np.newaxis]) % np.reshape(sides, (-1, 1, 1))
    square = kernel[np.ravel_multi_index(tuple(apart), tuple(sides))]
    found = [_climb(start, square, e) for start in starts]
    scale = bins * (e - 1) ** 2
    dear = [mask for mask, price in found if price * scale > variance]
    return np.array(dear, dtype=np.bool_).reshape(-1, bins)


def _climb(mask: Masks, square: Floats, e: float) -> tuple[Masks, float]:
    """Return the pattern where W' square W / (|W| (e - 1) + D)^2 is largest near `mask`.

    Each step adds, removes or exchanges the bins that raise it most.
    """
    own, bins = float(square[0, 0]), mask.size
    inside = mask.astype(float)
    while True:
        pull = square @ inside
        total, size = float(inside @ pull), inside.sum()
        value = total / (size * (e - 1) + bins) ** 2
        signs = 1 - 2 * inside
        flipped = (total + 2 * signs * pull + own) / ((size + signs) * (e - 1) + bins) ** 2
        flipped[(size + signs < 1) | (size + signs > bins - 1)] = 0
        members, others = np.flatnonzero(inside), np.flatnonzero(inside == 0)
        swaps = pull[others] - pull[members][:, np.newaxis] - square[np.ix_(members, others)]
        swapped = (total + 2 * swaps + 2 * own) / (size * (e - 1) + bins) ** 2
        if max(flipped.max(), swapped.max()) <= value * (1 + 1e-9):
            return inside > 0, value
        if flipped.max() >= swapped.max():
            inside[flipped.argmax()] = 1 - inside[flipped.argmax()]
        else:
            out, into = np.unravel_index(swapped.argmax(), swapped.shape)
            inside[members[out]], inside[others[into]] = 0, 1
