"""Normal values against the density that the layers must add up to."""

import math
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.special import erfc

from dpsgd.noise import ziggurat
from dpsgd.noise.keystream import Cipher, compile_chacha, load_cipher
from dpsgd.noise.ziggurat import PART, add_normal, fill_normal

UNIT = 2.0**-54
SHIFT = 9
"""The bits of a word that say which layer."""
ENDS = ziggurat._ENDS.tolist()


def test_layers_are_of_one_area_and_cover_the_density() -> None:
    ends, heights = ziggurat._ENDS, ziggurat._HEIGHTS
    assert ends.size == heights.size == 513
    assert (np.diff(ends) < 0).all()
    tail = math.sqrt(math.pi / 2) * erfc(ziggurat._TAIL / math.sqrt(2))
    lowest = ziggurat._TAIL * heights[1] + tail
    assert ends[0] * heights[1] == pytest.approx(lowest, rel=1e-14)
    assert ends[1:-1] * np.diff(heights[1:]) == pytest.approx(lowest, rel=1e-11)
    assert heights == pytest.approx(np.exp(-(ends**2) / 2), rel=1e-14)


def test_what_layers_accept_adds_up_to_the_density() -> None:
    # A layer is as likely as another, and so are its points; from `inner` on they are accepted
    # with the chance that the density is above a point of its height.
    ends, heights, inner = ziggurat._ENDS, ziggurat._HEIGHTS, ziggurat._INNER
    assert (inner == ends[1:]).all()
    for x in np.linspace(0, ziggurat._TAIL, 1000, endpoint=False):
        density = 0.0
        for layer in range(512):
            if x >= ziggurat._UNITS[layer] / UNIT:
                continue
            chance = 1.0
            if layer > 0 and x >= inner[layer]:
                above = math.exp(-x * x / 2) - heights[layer]
                chance = min(1.0, above / (heights[layer + 1] - heights[layer]))
            density += chance / ends[layer]
        assert density == pytest.approx(math.exp(-x * x / 2) / (ends[0] * heights[1]), rel=1e-9)


@numba.njit
def scripted(words: NDArray[np.uint64], state: Any, first: int) -> None:
    """Fill with one word for every value, and with others in turn for what takes more."""
    for i in range(words.size):
        words[i] = state[1 + i % (state.size - 1)] if first >= 1 << 31 else state[0]


def drawn(first: int, *others: int) -> float:
    out = np.empty(3)
    fill_normal(out, np.array([first, *(others or [0])], np.uint64), scripted)
    return float(out[0])


def word(layer: int, value: float) -> int:
    """A word of a layer, for a value in it."""
    units = math.floor(value / ziggurat._UNITS[layer])
    return (units << SHIFT | layer) % 2**64


@pytest.mark.parametrize("layer", [0, 1, 2, 255, 510, 511])
@pytest.mark.parametrize("share", [-0.999, -0.5, -1e-9, 1e-9, 0.5, 0.999])
def test_a_point_below_the_density_is_its_value(layer: int, share: float) -> None:
    value = share * ENDS[layer + 1]
    assert drawn(word(layer, value)) == pytest.approx(value, rel=1e-12, abs=1e-16)


@pytest.mark.parametrize("layer", [1, 2, 255, 510, 511])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_point_at_the_edge_counts_where_the_density_is_above_it(layer: int, sign: int) -> None:
    value = sign * (ENDS[layer + 1] + 0.4 * (ENDS[layer] - ENDS[layer + 1]))
    lower, upper = (math.exp(-(ENDS[i] ** 2) / 2) for i in (layer, layer + 1))
    share = (math.exp(-value * value / 2) - lower) / (upper - lower)
    other = word(300, 0.25)
    for height, expected in ((share - 1e-6, value), (share + 1e-6, 0.25)):
        found = drawn(word(layer, value), int(height * 2**64), other)
        assert found == pytest.approx(expected, rel=1e-12)


def test_a_point_after_one_that_was_refused_may_be_at_an_edge_or_in_the_tail_too() -> None:
    def at_the_edge(layer: int) -> int:
        return word(layer, ENDS[layer] * (1 - 1e-9))

    high, low, beyond = (1 << 64) - 1, 0, word(0, ENDS[0] * (1 - 1e-9))
    refused = at_the_edge(300), high
    assert drawn(*refused, at_the_edge(100), low, 0) == pytest.approx(ENDS[100])
    assert drawn(*refused, at_the_edge(100), high, word(9, 0.5)) == pytest.approx(0.5)
    tail = ziggurat._TAIL + math.log(2) / ziggurat._TAIL
    assert drawn(*refused, beyond, 1 << 63, 1) == pytest.approx(tail)


@pytest.mark.parametrize("sign", [-1, 1])
def test_the_tail_is_that_of_marsaglia(sign: int) -> None:
    start = ziggurat._TAIL
    value = sign * (start + 1e-3)
    for first, second in ((2**63, 1), (1, 2**63), (0, 0)):
        beyond = -math.log((first + 0.5) / 2**64) / start
        if -2 * math.log((second + 0.5) / 2**64) > beyond**2:
            assert drawn(word(0, value), first, second) == pytest.approx(sign * (start + beyond))
        else:  # it comes to the pair after
            found = drawn(word(0, value), first, second, 2**62, 1)
            assert found == pytest.approx(sign * (start + math.log(4) / start), rel=1e-9)


def test_the_tail_ends_at_thirteen_deviations() -> None:
    start = ziggurat._TAIL
    beyond = math.sqrt(-2 * math.log(0.5 / 2**64))
    first = [int(math.exp(-start * share * beyond) * 2**64) for share in (0.999, 1.001)]
    assert drawn(word(0, start + 0.01), first[0], 0) == pytest.approx(13.33, abs=0.01)
    assert drawn(word(0, start + 0.01), first[1], 0, 1 << 63, 1) < start + 1  # the pair after


def test_the_tail_begins_where_the_lowest_layer_ends() -> None:
    units = int(ziggurat._TAIL / ziggurat._UNITS[0]) - 5
    values = [drawn(units + i << SHIFT, 1 << 63, 1) for i in range(10)]
    inside = [value for value in values if value < ziggurat._TAIL]
    assert 0 < len(inside) < 10
    assert values[: len(inside)] == inside
    assert min(values[len(inside) :]) > ziggurat._TAIL + 0.1


def new_schedule(cipher: Cipher, seed: int) -> NDArray[np.uint64]:
    return cipher.expand(np.random.default_rng(seed).integers(0, 1 << 64, 4, np.uint64))


@pytest.mark.parametrize("size", [0, 1, 2, 1023, 1024, 1025, PART + 5])
def test_what_is_filled_depends_on_key_and_place_alone(size: int) -> None:
    cipher = load_cipher()
    schedule = new_schedule(cipher, int.from_bytes(os.urandom(4), "big"))
    whole, part, other = np.empty(3 * PART), np.full(size + 2, 7.0), np.empty(PART)
    fill_normal(whole, schedule, cipher.keystream)
    fill_normal(part[1:-1], schedule, cipher.keystream)
    fill_normal(other, new_schedule(cipher, 3), cipher.keystream)
    assert part[0] == part[-1] == 7
    assert (part[1:-1] == whole[:size]).all()
    assert np.unique([*whole, *other]).size == 4 * PART


@pytest.mark.parametrize("size", [0, 1, 1024, 5000])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_get_the_values_that_are_filled(size: int, apart: bool, dtype: type) -> None:
    cipher = load_cipher()
    schedule, values, sums = new_schedule(cipher, 5), np.empty(3 * PART), np.full(size, 0.7, dtype)
    fill_normal(values, schedule, cipher.keystream)
    unit = 2.0**-10
    noise, total = 2.5 * values[2 * PART :][:size] / unit, sums.astype(float) / unit
    expected = np.rint(noise) + np.rint(total) if apart else np.rint(noise + total)
    add_normal(sums, schedule, cipher.keystream, 2, 2.5, unit, apart, 8.0)
    assert (sums == (expected * unit / 8).astype(dtype)).all()


def test_words_for_edges_are_taken_in_turn_and_never_twice() -> None:
    generator, asked = np.random.default_rng(0), []

    def watched(words: NDArray[np.uint64], _state: Any, first: int) -> None:
        asked.append((first, words.size // 2))
        words[:] = generator.integers(0, 1 << 64, words.size, np.uint64)
        if first % (1 << 32) < 1 << 31:  # three of four values are at an edge
            words[words % np.uint64(4) > 0] = word(511, ENDS[511] * 0.5)

    room = ziggurat._new_room.py_func()
    for start in (0, 1024):
        ziggurat._draw.py_func(np.empty(400), room, None, watched, 5, start)
    spans = sorted(asked)
    assert len(spans) > 10
    assert all(first + pairs <= after for (first, pairs), (after, _) in pairwise(spans))
    assert {first >> 32 for first, _ in asked} == {5}


@pytest.mark.slow
@pytest.mark.parametrize("load", [load_cipher, compile_chacha])
def test_ten_million_values_are_normal(load: Callable[[], Cipher]) -> None:
    cipher, values = load(), np.empty(10_000_000)
    fill_normal(values, new_schedule(cipher, 0), cipher.keystream)
    assert stats.kstest(values, "norm").pvalue > 1e-3
    # Every layer, and the tail by itself, which is a few of the values.
    edges = np.concatenate([[0.0], ziggurat._ENDS[:0:-1][1:], [np.inf]])
    counts, _ = np.histogram(abs(values), edges)
    chances = [2 * (stats.norm.sf(a) - stats.norm.sf(b)) for a, b in pairwise(edges)]
    assert stats.chisquare(counts, np.array(chances) * values.size).pvalue > 1e-3
    tail = abs(values[abs(values) > ziggurat._TAIL])
    beyond = stats.norm.sf(tail) / stats.norm.sf(ziggurat._TAIL)
    assert stats.kstest(beyond, "uniform").pvalue > 1e-3
    assert abs((values > 0).mean() - 0.5) < 4 * 0.5 / math.sqrt(values.size)
    for apart in (1, 2, 16, 512, 1024):
        correlation = np.corrcoef(values[:-apart], values[apart:])[0, 1]
        assert abs(correlation) < 4.5 / math.sqrt(values.size)
    squares = np.corrcoef(values[1:] ** 2, values[:-1] ** 2)[0, 1]
    assert abs(squares) < 4.5 / math.sqrt(values.size)
