"""Normal values against the density that the layers must add up to."""

import math
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats
from scipy.special import erfc

from dpsgd.noise import ziggurat
from dpsgd.noise.ziggurat import fill_normal, words_for

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
    for x in np.linspace(0, ziggurat._TAIL, 300, endpoint=False):
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


def drawn(*words: int) -> float:
    """Return the value of the first word, for which the others are taken in turn."""
    out = np.empty(1)
    fill_normal(out, np.array(words, np.uint64))
    return float(out[0])


def word(layer: int, value: float) -> int:
    """A word of a layer, for a value in it."""
    units = math.floor(value / ziggurat._UNITS[layer])
    return (units << SHIFT | layer) % 2**64


@pytest.mark.parametrize("layer", [0, 1, 2, 255, 510, 511])
@pytest.mark.parametrize("share", [-0.999, -0.5, -1e-9, 1e-9, 0.5, 0.999])
def test_a_point_below_the_density_is_its_value(layer: int, share: float) -> None:
    value = share * ENDS[layer + 1]
    assert drawn(word(layer, value), 0, 0) == pytest.approx(value, rel=1e-12, abs=1e-16)


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


def test_words_are_taken_in_turn_and_each_once() -> None:
    # The first and third value are at edges, and refused, for the next word but one of the rest.
    edge = word(300, ENDS[300] * (1 - 1e-9))
    rest = [(1 << 64) - 1, word(9, 0.5), (1 << 64) - 1, word(8, -0.5)]
    out = np.full(5, 7.0)
    fill_normal(out[1:4], np.array([edge, word(7, 0.25), edge, *rest], np.uint64))
    assert out == pytest.approx([7, 0.5, 0.25, -0.5, 7])


def test_words_that_are_too_few_are_an_error_and_no_noise() -> None:
    edge, high = word(300, ENDS[300] * (1 - 1e-9)), (1 << 64) - 1
    for words in ([edge], [edge, high], [edge, high, edge], [edge, high, edge, high]):
        with pytest.raises(IndexError, match="too few words"):
            drawn(*words)


@pytest.mark.parametrize("size", [1, 100, 3000, 1 << 15, 1 << 20])
def test_there_are_words_enough(size: int) -> None:
    # Chernoff's bound for pairs of words: a value takes one with chance p, and after a rejection
    # another with less than r, in the tail as at an edge.
    p = float(np.mean(1 - ziggurat._INNER / ziggurat._ENDS[:-1]))
    start = ziggurat._TAIL
    accepted = math.sqrt(math.pi / 2) * erfc(start / math.sqrt(2)) * start
    r = max(p, 1 - accepted * math.exp(start * start / 2))
    pairs = (words_for(size) - size) // 2
    z = np.linspace(1, 0.999 / r, 10_000)
    bounds = size * np.log(1 - p + p * z * (1 - r) / (1 - r * z)) - pairs * np.log(z)
    assert bounds.min() < -300 * math.log(2)


def test_another_process_takes_the_compiled_code_from_the_disk() -> None:
    drawn(word(3, 0.5))  # so that it is there
    code = """
import numpy as np
from dpsgd.noise.ziggurat import fill_normal
fill_normal(np.empty(1), np.zeros(300, np.uint64))
assert sum(fill_normal.stats.cache_hits.values()) == 1, fill_normal.stats
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_four_million_values_are_normal() -> None:
    values = np.empty(4_000_000)
    words = np.random.Generator(np.random.Philox(0)).integers(
        0, 1 << 64, words_for(values.size), np.uint64
    )
    fill_normal(values, words)
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
