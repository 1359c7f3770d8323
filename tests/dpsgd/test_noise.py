"""Noise: its distribution, that it never repeats, and the grid of the secure mode."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy import stats

from dpsgd.noise import GeneratorNoise, Grid, KeystreamNoise, NoisePrefetcher, NoiseSource
from ldp import Coins
from ldp.testing import SeededCoins


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_keystream_noise_is_normal(dtype: torch.dtype) -> None:
    values = torch.empty(300_001, dtype=dtype)
    KeystreamNoise(SeededCoins(5), dtype).fill(values)
    assert stats.kstest(values.numpy().astype(float), "norm").pvalue > 0.01
    beyond = (values.abs() > 4).sum().item()
    expected = 2 * stats.norm.sf(4) * values.numel()
    assert abs(beyond - expected) < 4 * math.sqrt(expected)


def test_keystream_noise_reaches_far_into_the_tails() -> None:
    class Least(Coins):
        def words(self, n: int) -> np.ndarray:
            return np.zeros(n, dtype=np.uint64)

    for dtype, end in ((torch.float32, 6.7), (torch.float64, 9.4)):
        values = torch.empty(2, dtype=dtype)
        KeystreamNoise(Least(), dtype).fill(values)
        assert values[0] == pytest.approx(end, abs=0.1)


SOURCES = {
    "keystream": lambda: KeystreamNoise(Coins()),
    "generator": lambda: GeneratorNoise(torch.device("cpu")),
}


@pytest.mark.parametrize("name", SOURCES)
def test_noise_repeats_neither_in_a_source_nor_across_seeds_of_torch(name: str) -> None:
    drawn = []
    for _ in range(2):
        torch.manual_seed(0)
        source: NoiseSource = SOURCES[name]()
        for _ in range(2):
            values = torch.empty(100)
            source.fill(values)
            drawn.append(values)
    together = torch.cat(drawn)
    assert together.unique().numel() == together.numel()


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Set torch's threads, for this test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


CORES = len(os.sched_getaffinity(0))


@pytest.mark.parametrize("busy", [max(1, CORES - 1), CORES, CORES + 2])
@pytest.mark.parametrize("name", SOURCES)
def test_every_value_of_every_sum_gets_noise_of_its_own(
    name: str, busy: int, threads: Callable[[int], None]
) -> None:
    threads(busy)
    sums = [torch.zeros(shape) for shape in [(3, 4), (), (200, 500), (0, 2), (7,)]]
    shapes = [summed.shape for summed in sums]
    prefetcher = NoisePrefetcher(SOURCES[name](), shapes, torch.device("cpu"))
    seen = []
    for begun in (True, False, True):
        if begun:
            prefetcher.begin()
            prefetcher.begin()
        prefetcher.add_to(sums, lambda part, noise: part.add_(noise))
        seen.append(torch.cat([summed.flatten() for summed in sums]))
        for summed in sums:
            summed.zero_()
    drawn = torch.cat(seen)
    assert drawn.numel() == 3 * 100_020
    assert drawn.count_nonzero() > drawn.numel() - 5  # a value may be 0, a block may not
    assert stats.kstest(drawn.numpy(), "norm").pvalue > 1e-4
    rounds = drawn.view(3, -1)
    shifted = rounds[:, : 1 << 15], rounds[:, 1 << 15 : 1 << 16]  # what blocks would repeat
    for first, second in [(rounds[0], rounds[1]), (rounds[1], rounds[2]), shifted]:
        correlation = np.corrcoef(first.flatten(), second.flatten())[0, 1]
        assert abs(correlation) < 5 / math.sqrt(first.numel())


def test_a_fault_in_a_thread_that_draws_is_not_swallowed(threads: Callable[[int], None]) -> None:
    class Broken(NoiseSource):
        def fill(self, out: torch.Tensor) -> None:
            if threading.current_thread() is not threading.main_thread():
                raise OSError("no coins")
            time.sleep(0.01)  # so that the other thread gets a block

    for busy in (max(1, CORES - 1), CORES + 1):
        threads(busy)
        prefetcher = NoisePrefetcher(Broken(), [torch.Size((1 << 20,))], torch.device("cpu"))
        with pytest.raises(OSError, match="no coins"):
            prefetcher.add_to([torch.zeros(1 << 20)], lambda part, noise: part.add_(noise))


def test_the_grid_moves_neighbours_apart_by_less_than_it_widens_the_noise() -> None:
    sensitivity, dimensions = 0.37, 10_000
    grid = Grid.for_sums(sensitivity, dimensions)
    assert math.log2(grid.spacing) % 1 == 0
    assert grid.spacing * math.sqrt(dimensions) <= sensitivity / 4096
    noise = torch.ones(dimensions, dtype=torch.float64)
    zero = torch.zeros(dimensions, dtype=torch.float64)
    assert (grid.release(zero, noise, 2.0) >= 2.0 * (1 + 1 / 4096) - grid.spacing).all()


def test_the_grid_releases_multiples_that_do_not_tell_the_sum() -> None:
    grid = Grid.for_sums(1.0, 100)
    torch.manual_seed(0)
    noise = torch.randn(100, dtype=torch.float64)
    summed = torch.randn(100, dtype=torch.float64)
    released = grid.release(summed, noise, 1.0) / grid.spacing
    assert torch.equal(released, released.round())
    moved = grid.release(summed + grid.spacing, noise, 1.0) / grid.spacing
    assert torch.equal(moved, released + 1)
