"""Normal values by the ziggurat, from words of 64 bits.

The ziggurat (Marsaglia and Tsang, "The ziggurat method for generating random variables", Journal
of Statistical Software 5(8), 2000) takes a value from under the density by a point in one of 512
layers of one area. Which layer and where in it come from different bits of a word (Doornik, "An
improved ziggurat method to generate normal random samples", 2005).

Only unsigned integers may overflow here.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dpsgd.noise.compiled import compiled

Words = NDArray[np.uint64]
_LAYERS = 512
_TAIL = 3.8520461503683903
"""Where the tail begins: with another place, the top of the last layer would not be at 1."""


def _stacked() -> list[float]:
    """Return the right ends of layers of the area of the tail, and 0."""
    area = _TAIL * _density(_TAIL) + math.sqrt(math.pi / 2) * math.erfc(_TAIL / math.sqrt(2))
    ends = [area / _density(_TAIL), _TAIL]  # the lowest as if its tail belonged to a rectangle
    while len(ends) < _LAYERS:
        ends.append(math.sqrt(-2 * math.log(_density(ends[-1]) + area / ends[-1])))
    return [*ends, 0.0]


def _density(x: float) -> float:
    return math.exp(-x * x / 2)


_ENDS = np.array(_stacked())
_HEIGHTS = np.exp(-_ENDS * _ENDS / 2)
_HEIGHTS[-1] = 1.0
_UNITS = _ENDS[:-1] * 2.0**-54
"""By layer, the value of one unit in a word's upper 55 bits, of which one is the sign."""
_INNER = _ENDS[1:].copy()
"""By layer, the bound below which a value is under the density at every height."""


def words_for(size: int) -> int:
    """Return a number of words that is enough for `size` values, but with chance 2**-300."""
    return size + size // 16 + 256


@compiled
def fill_normal(out: NDArray[np.float64], words: Words) -> None:
    """Overwrite a flat array with normal values by words, of which each serves only once.

    A value takes one word. One in 125, at the edge of a layer or in the tail, takes two more from
    those after the first `out.size`. If it is rejected, the second of them gives another point, or
    in the tail two more words are drawn. Raises `IndexError` where words are too few.
    """
    at = out.size
    for i in range(out.size):
        word = words[i]
        value = _point(word)
        if abs(value) >= _INNER[_layer(word)]:
            value, at = _at_the_edge(word, words, at)
        out[i] = value


@compiled
def _at_the_edge(word: np.uint64, words: Words, at: int) -> tuple[float, int]:
    """Return a value for a word at an edge, and the place after the words that it took."""
    value = _point(word)
    while True:
        if at + 2 > words.size:
            raise IndexError("too few words")
        first, second = words[at], words[at + 1]
        at += 2
        layer = _layer(word)
        if layer > 0:
            lower, upper = _HEIGHTS[layer], _HEIGHTS[layer + np.uint64(1)]
            if lower + _uniform(first) * (upper - lower) < math.exp(-0.5 * value * value):
                return value, at
            word = second
            value = _point(word)
            if abs(value) < _INNER[_layer(word)]:
                return value, at
        else:
            beyond = -math.log(_uniform(first)) / _TAIL
            if -2 * math.log(_uniform(second)) > beyond * beyond:
                return math.copysign(_TAIL + beyond, value), at


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
