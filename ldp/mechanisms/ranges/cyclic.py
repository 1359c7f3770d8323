"""Channels whose codes are shifts: all products with them by Fourier transforms.

A row of such a channel is a function b on the bins, which form a cycle in each of one or two
dimensions; `sides` are the numbers of bins, and functions are flat arrays of D = prod(sides). The
code (j, s) has the probability rows[j, x - s] from bin x, differences being modulo the sides.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Spectra = NDArray[np.complex128]


def _forward(rows: Floats, sides: Sequence[int]) -> Spectra:
    axes = tuple(range(1, len(sides) + 1))
    result: Spectra = np.fft.rfftn(rows.reshape(-1, *sides), axes=axes)
    return result


def _back(spectrum: Spectra, sides: Sequence[int]) -> Floats:
    axes = tuple(range(1, len(sides) + 1))
    result: Floats = np.fft.irfftn(spectrum, s=tuple(sides), axes=axes)
    return result.reshape(len(spectrum), -1)


def convolved(one: Floats, other: Floats, sides: Sequence[int]) -> Floats:
    """Return sum_s one[j, x - s] other[j, s] for every x, shape (rows, D); one row serves all."""
    return _back(_forward(one, sides) * _forward(other, sides), sides)


def mirrored(rows: Floats, sides: Sequence[int]) -> Floats:
    """Return rows[j, -x], shape (rows, D)."""
    axes = tuple(range(1, len(sides) + 1))
    flipped = np.roll(np.flip(rows.reshape(-1, *sides), axis=axes), 1, axis=axes)
    return np.ascontiguousarray(flipped).reshape(rows.shape)


def gram(rows: NDArray[Any], weights: NDArray[Any], sides: Sequence[int]) -> Floats:
    """Return sum_{j, s} weights[j, s] rows[j, x - s] rows[j, y - s], shape (D, D).

    In Fourier space that is sum_j rows^(j, k) conj(rows^(j, l)) weights^(j, k - l), one product of
    a vector and a matrix for each difference k - l. Cost: O(rows D**2); 15 ms for 100 rows of
    256 bins. Differences at which all weights^ vanish cost nothing: at even weights only 0 is left.
    """
    shape, bins = tuple(sides), rows.shape[1]
    axes = tuple(range(1, len(shape) + 1))
    spectrum = np.fft.fftn(rows.reshape(-1, *shape), axes=axes)
    weighing = np.fft.fftn(weights.reshape(-1, *shape), axes=axes).reshape(len(rows), bins)
    live = np.abs(weighing).max(axis=0)
    apart = np.array(np.unravel_index(np.arange(bins), shape))
    conjugate = spectrum.conj()
    found = np.zeros((bins, bins), dtype=spectrum.dtype)
    done = np.zeros(bins, dtype=np.bool_)
    places = np.arange(bins)
    for difference in np.flatnonzero(live > 64 * np.finfo(live.dtype).eps * live[0]).tolist():
        if done[difference]:
            continue
        step = apart[:, difference]
        moved = np.roll(conjugate, tuple(step.tolist()), axis=axes)
        sums = weighing[:, difference] @ (spectrum * moved).reshape(len(rows), bins)
        others = (apart - step[:, np.newaxis]) % np.reshape(shape, (-1, 1))
        partners = np.ravel_multi_index(tuple(others), shape)
        found[places, partners] = sums
        found[partners, places] = sums.conj()
        opposite = int(np.ravel_multi_index(tuple(-step % np.array(shape)), shape))
        done[[difference, opposite]] = True
    # The matrix is found[k, l] = sum_{x, y} e^(-i (k x - l y)) result[x, y].
    both = np.fft.ifftn(found.reshape(*shape, bins), axes=tuple(range(len(shape))))
    both = both.reshape(bins, *shape)
    result: Floats = (np.fft.fftn(both, axes=axes).real / bins).astype(np.float64)
    return result.reshape(bins, bins)


@dataclass(frozen=True, eq=False)
class CyclicChannel:
    """The channel of codes (j, s), Pr = rows[j, x - s], the code's number being D j + s.

    `rows` has shape (patterns, D). Products cost O(patterns D log D).
    """

    sides: tuple[int, ...]
    rows: Floats

    @property
    def k(self) -> int:
        """The number of bins."""
        return int(self.rows.shape[1])

    @property
    def codes(self) -> int:
        """The number of codes."""
        return self.rows.size

    @cached_property
    def _spectrum(self) -> Spectra:
        return _forward(self.rows, self.sides)

    @cached_property
    def _mirrored_spectrum(self) -> Spectra:
        return _forward(mirrored(self.rows, self.sides), self.sides)

    @cached_property
    def mean(self) -> Floats:
        """Each code's probability if all bins are alike, shape (codes,)."""
        return np.repeat(self.rows.mean(axis=1), self.k)

    def outputs(self, f: Floats) -> Floats:
        """Return each code's probability where bins have the shares f, shape (codes,)."""
        spectrum = self._mirrored_spectrum * _forward(f[np.newaxis], self.sides)
        return _back(spectrum, self.sides).ravel()

    def pull(self, values: Floats) -> Floats:
        """Return sum_y Q[x][y] values[y], shape (D,)."""
        each = _forward(values.reshape(self.rows.shape), self.sides)
        spectrum = (self._spectrum * each).sum(axis=0, keepdims=True)
        result: Floats = _back(spectrum, self.sides)[0]
        return result

    def information(self, weights: Floats, *, rough: bool = False) -> Floats:
        """Return (Q - mean) diag(weights) (Q - mean)', shape (D, D), `rough` in half the time."""
        centered = self.rows - self.rows.mean(axis=1, keepdims=True)
        kind = np.float32 if rough else np.float64
        scaled = weights.reshape(self.rows.shape).astype(kind)
        return gram(centered.astype(kind), scaled, self.sides)

    def dense(self) -> Floats:
        """Return the channel's matrix, shape (D, codes)."""
        places = np.array(np.unravel_index(np.arange(self.k), self.sides))
        apart = places[:, :, np.newaxis] - places[:, np.newaxis]
        apart %= np.reshape(self.sides, (-1, 1, 1))
        index = np.ravel_multi_index(tuple(apart), self.sides)
        return np.hstack([row[index] for row in self.rows])
