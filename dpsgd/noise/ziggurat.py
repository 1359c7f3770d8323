"""Normal values by the ziggurat, from words of 64 bits.

The ziggurat (Marsaglia and Tsang, "The ziggurat method for generating random variables", Journal
of Statistical Software 5(8), 2000) takes a value from under the density by a point in one of 512
layers of one area. Which layer and where in it come from different bits of a word (Doornik, "An
improved ziggurat method to generate normal random samples", 2005).

Nothing checks sizes here, and only unsigned integers may overflow.
"""

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from dpsgd.noise.compiled import add_rounded, compiled
from dpsgd.noise.keystream import STEP, Keystream, Words

_LAYERS = 512
_EDGES = 2 * STEP
"""Words drawn per block for values at the edges of layers."""
_TOGETHER = 16 * STEP
"""Values drawn per block."""
PART = 16 * _TOGETHER
"""The most values in one part of a draw."""
_PLACES = 32
"""Low bits of the block counter: position within a part. The part's number is above them."""
_SPARE = 1 << 31
"""The position within a part from which blocks are for values at edges."""

_Room: TypeAlias = tuple[Words, Words, Words, NDArray[np.int64]]
"""Buffers: words for values, words for edges, indices of edge values, counts of words spent."""


def _stacked(start: float) -> tuple[list[float], float]:
    """Return the right ends of layers of the area of the tail from `start`, and the top's error.

    The lowest layer is as wide as if its tail belonged to the rectangle. The error is positive
    where the top of the layers is too high, and negative where it is too low.
    """
    area = start * _density(start) + math.sqrt(math.pi / 2) * math.erfc(start / math.sqrt(2))
    ends = [area / _density(start), start]
    while True:
        height = _density(ends[-1]) + area / ends[-1]
        if len(ends) == _LAYERS or height >= 1:
            return ends, height - 1 + _LAYERS - len(ends)
        ends.append(math.sqrt(-2 * math.log(height)))


def _density(x: float) -> float:
    return math.exp(-x * x / 2)


_TAIL: float = brentq(lambda start: _stacked(start)[1], 3, 5, xtol=1e-15)
_ENDS = np.array([*_stacked(_TAIL)[0], 0.0])
_HEIGHTS = np.exp(-_ENDS * _ENDS / 2)
_HEIGHTS[-1] = 1.0
_UNITS = _ENDS[:-1] * 2.0**-54
"""By layer, the value of one unit in a word's upper 55 bits, of which one is the sign."""
_INNER = _ENDS[1:].copy()
"""By layer, the bound below which a value is under the density at every height."""


@compiled
def fill_normal(out: NDArray[np.float64], schedule: Words, keystream: Keystream) -> None:
    """Overwrite a flat array with normal values by a key's schedule, which serves only once."""
    room = _new_room()
    for start in range(0, out.size, _TOGETHER):
        number, place = start // PART, start % PART
        _draw(out[start : start + _TOGETHER], room, schedule, keystream, number, place)


@compiled
def add_normal(
    sums: NDArray[np.floating[Any]],
    schedule: Words,
    keystream: Keystream,
    number: int,
    deviation: float,
    spacing: float,
    apart: bool,
    divisor: float,
) -> None:
    """Run `add_rounded` on at most `PART` sums, with the normal values of part `number`.

    Each number of a schedule serves only once, and the numbers of `fill_normal` count from 0.
    """
    values, room = np.empty(_TOGETHER), _new_room()
    for start in range(0, sums.size, _TOGETHER):
        part = sums[start : start + _TOGETHER]
        _draw(values[: part.size], room, schedule, keystream, number, start)
        add_rounded(part, values, deviation, spacing, apart, divisor)


@compiled
def _new_room() -> _Room:
    words, others = np.empty(_TOGETHER, np.uint64), np.empty(_EDGES, np.uint64)
    return words, others, np.empty(_TOGETHER, np.uint64), np.empty(2, np.int64)


@compiled
def _draw(
    out: NDArray[np.float64],
    room: _Room,
    schedule: Words,
    keystream: Keystream,
    number: int,
    start: int,
) -> None:
    """Draw values of part `number` from `start` on: from 0, or where the last call ended.

    A value takes one word. One in 125, at the edge of a layer or in the tail, takes two more. If it
    is rejected, the second word gives another point, or in the tail two more words are drawn.
    """
    words, others, edges, spent = room
    if start == 0:
        spent[0], spent[1] = _EDGES, 0
    first_pair = number << _PLACES
    keystream(words, schedule, first_pair + start // 2)
    edge = np.uint64(0)
    for i in range(out.size):
        out[i] = _point(words[i])
        if abs(out[i]) >= _INNER[_layer(words[i])]:
            edges[edge] = np.uint64(i)
            edge += np.uint64(1)
    for k in range(edge):
        word = words[edges[k]]
        value = _point(word)
        while True:
            if spent[0] > _EDGES - 2:
                keystream(others, schedule, first_pair + _SPARE + spent[1])
                spent[0] = 0
                spent[1] += _EDGES // 2
            first, second = others[spent[0]], others[spent[0] + 1]
            spent[0] += 2
            layer = _layer(word)
            if layer > 0:
                lower, upper = _HEIGHTS[layer], _HEIGHTS[layer + np.uint64(1)]
                if lower + _uniform(first) * (upper - lower) < math.exp(-0.5 * value * value):
                    break
                word = second
                value = _point(word)
                if abs(value) < _INNER[_layer(word)]:
                    break
            else:
                beyond = -math.log(_uniform(first)) / _TAIL
                if -2 * math.log(_uniform(second)) > beyond * beyond:
                    value = math.copysign(_TAIL + beyond, value)
                    break
        out[edges[k]] = value


@compiled
def _layer(word: np.uint64) -> np.uint64:
    return word & np.uint64(_LAYERS - 1)


@compiled
def _point(word: np.uint64) -> float:
    """Return a word's value in its layer: the upper 55 bits, of which one is the sign."""
    unit: float = _UNITS[_layer(word)]
    return (float(np.int64(word) >> 9) + 0.5) * unit


@compiled
def _uniform(word: np.uint64) -> float:
    """Return a word as a number in (0, 1], (word + 1/2) / 2**64."""
    return (np.float64(word) + 0.5) * 2.0**-64
