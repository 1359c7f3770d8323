"""Randomising a million numbers, beside numpy's insecure generator on floats."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from pytest_benchmark.fixture import BenchmarkFixture

from ldp import Coins, HybridMechanism, OneBitMean, PiecewiseMechanism, SquareWave
from ldp.core.estimation import Cohorts
from ldp.estimating.distribution import reconstruct
from ldp.estimating.points import estimate_points, even_cuts
from ldp.mechanisms.numbers.mean import MeanMechanism
from ldp.mechanisms.numbers.square_wave import half_width
from ldp.planning import mean_design

N, EPSILON = 1_000_000, 1.0
MECHANISMS = [
    OneBitMean(EPSILON),
    PiecewiseMechanism(EPSILON),
    HybridMechanism(EPSILON),
    SquareWave(EPSILON),
    mean_design.plain(EPSILON),
]

Array = NDArray[np.float64]


def numbers() -> Array:
    return np.random.default_rng(1).uniform(-1, 1, N)


def insecure_window(values: Array, low: float, width: float, near: float, span: float) -> Array:
    """Draw from a window above low + values with probability near, else beside it."""
    generator = np.random.default_rng()
    inside = generator.random(values.size) < near
    place = generator.random(values.size)
    start = values + low
    beside = place * (span - width)
    beside += np.where(beside < start, 0.0, width)
    result: Array = np.where(inside, start + place * width, beside)
    return result


def insecure_onebit(values: Array) -> NDArray[np.bool_]:
    generator, e = np.random.default_rng(), math.exp(EPSILON)
    return generator.random(values.size) < 0.5 + values * (e - 1) / (2 * (e + 1))


def insecure_piecewise(values: Array) -> Array:
    s = math.exp(EPSILON / 2)
    c = (s + 1) / (s - 1)
    moved = values * (c + 1) / 2
    return insecure_window(moved, (c + 1) / 2, c - 1, s / (s + 1), 2 * c) - c


def insecure_square_wave(values: Array) -> Array:
    b, e = half_width(EPSILON), math.exp(EPSILON)
    near = 2 * b * e / (2 * b * e + 1)
    return insecure_window((values + 1) / 2, 0.0, 2 * b, near, 1 + 2 * b) - b


def insecure_hybrid(values: Array) -> Array:
    e = math.exp(EPSILON)
    bit = np.where(insecure_onebit(values), 1.0, -1.0) * (e + 1) / (e - 1)
    return np.where(
        np.random.default_rng().random(values.size) < math.exp(-EPSILON / 2),
        bit,
        insecure_piecewise(values),
    )


def insecure_mean_table(values: Array) -> NDArray[np.intp]:
    table, generator = mean_design.plain(EPSILON), np.random.default_rng()
    ends = np.cumsum(table.matrix(), axis=1)
    ends[:, -1] = 1  # one search in all rows, each a unit above the one before it
    ends += np.arange(table.steps + 1)[:, np.newaxis]
    place = (values + 1) / 2 * table.steps
    point = (place + generator.random(values.size)).astype(np.intp)
    return np.searchsorted(ends.ravel(), generator.random(values.size) + point)


FLOORS = {
    "onebit": insecure_onebit,
    "piecewise": insecure_piecewise,
    "hybrid": insecure_hybrid,
    "square_wave": insecure_square_wave,
    "mean_table": insecure_mean_table,
}


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.name)
def test_ours(benchmark: BenchmarkFixture, mechanism: MeanMechanism) -> None:
    benchmark.group = f"{mechanism.name}: {N} numbers"
    benchmark(mechanism.randomize_many, numbers(), Coins())


@pytest.mark.parametrize(("name", "floor"), FLOORS.items(), ids=FLOORS)
def test_numpy_floats_insecure(
    benchmark: BenchmarkFixture, name: str, floor: Callable[[Array], Array]
) -> None:
    benchmark.group = f"{name}: {N} numbers"
    benchmark(floor, numbers())


def test_reconstruct(benchmark: BenchmarkFixture) -> None:
    benchmark.group = "a curve from 1e5 reports by smoothed EM"
    wave = SquareWave(EPSILON)
    tally = wave.tally(wave.randomize_many(numbers()[:100_000], Coins()))
    benchmark(reconstruct, wave, tally)


@pytest.mark.parametrize("points", [26, 74, 257])
def test_shares_of_points_with_intervals(benchmark: BenchmarkFixture, points: int) -> None:
    benchmark.group = "shares of values from 1e6 reports at 4 levels, with intervals and quartiles"
    people = np.random.default_rng(2).integers(0, points, N)
    values = 2 * people / (points - 1) - 1
    levels = (0.5, 1.0, 2.0, 4.0)
    each = [
        (wave, wave.tally(wave.randomize_many(part, Coins())))
        for wave, part in zip(map(SquareWave, levels), np.array_split(values, 4), strict=True)
    ]
    cohorts = Cohorts(each)

    def answer() -> None:
        found = estimate_points(cohorts, points)
        found.bins(even_cuts(points, 10))
        found.quantiles([0.25, 0.5, 0.75])

    benchmark(answer)
