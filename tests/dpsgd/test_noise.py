"""Noise: its distribution, that it never repeats, and the grid of the secure mode."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from private import make
from scipy import stats
from torch import Tensor

from dpsgd.noise import parallel
from dpsgd.noise.addition import Grid, Rounding
from dpsgd.noise.compiled import add_rounded
from dpsgd.noise.keystream import load_cipher
from dpsgd.noise.sources import GeneratorNoise, KeystreamNoise, NoisePrefetcher, NoiseSource
from dpsgd.noise.ziggurat import PART, add_normal, fill_normal
from forked import bytes_of_a_forked_child
from ldp import Coins
from ldp.testing import SeededCoins


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Set torch's threads, for this test; they share what is drawn, however little."""
    monkeypatch.setattr("dpsgd.noise.sources._LEAST", 1)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


CORES = len(os.sched_getaffinity(0))


def test_keystream_noise_is_normal() -> None:
    values = torch.empty(300_001, dtype=torch.float64)
    KeystreamNoise(SeededCoins(5)).fill(values)
    assert stats.kstest(values.numpy(), "norm").pvalue > 0.01
    beyond = (values.abs() > 4).sum().item()
    expected = 2 * stats.norm.sf(4) * values.numel()
    assert abs(beyond - expected) < 4 * math.sqrt(expected)


@pytest.mark.parametrize(
    "dtype", [torch.float32, pytest.param(torch.float64, marks=pytest.mark.slow)]
)
def test_what_is_released_shows_no_pattern_of_the_noise(dtype: torch.dtype) -> None:
    # The last bits of what a neighbour's sums leave, where noise is large, and the release so small
    # that float32 has all bits of it. Noise that was made in float32 ends in zeros there.
    rounding = Rounding.for_noise(1.0)
    multiples = np.random.default_rng(0).integers(-3 << 20, (3 << 20) + 1, 1 << 20)
    known = torch.from_numpy(multiples * 64 * rounding.spacing)
    assert torch.equal(known.to(dtype).double(), known)

    def chance(released: Tensor) -> float:
        seen = (released.abs() < 0.25) & (known.abs() > 2)
        units = (released.double() - known)[seen] / rounding.spacing
        assert torch.equal(units, units.round())
        counts = np.bincount(units.numpy().astype(int) % 64, minlength=64)
        assert counts.sum() > 2000
        return float(stats.chisquare(counts).pvalue)

    released, control = known.to(dtype, copy=True), known.to(dtype, copy=True)
    KeystreamNoise(SeededCoins(8)).add_to([released], rounding, 1.0, 1.0)
    assert chance(released) > 1e-3
    rounding.release(control.numpy(), torch.randn(1 << 20).double().numpy(), 1.0)
    assert chance(control) < 1e-12


@pytest.mark.parametrize("way", [Rounding, Grid])
def test_sums_of_several_processes_are_rounded_as_one(way: type[Rounding]) -> None:
    torch.manual_seed(0)
    rounding = way(0.5)
    sums = [torch.randn(10_000), torch.randn(10_000)]
    first, second = (rounding.prepared(summed) for summed in sums)
    normal = torch.randn(10_000, dtype=torch.float64)
    scale, _, apart = rounding.options(3.0)
    rounding.before_finish().release(first.numpy(), normal.numpy(), 3.0)
    released = rounding.finish(first + second)
    terms = [sums[0].double(), sums[1].double(), normal * scale]
    expected = sum((2 * t).round() for t in terms) if apart else (2 * sum(terms)).round()
    assert torch.equal(released, expected / 2)


def test_noise_meets_sums_of_other_processes_before_it_is_rounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What this process adds up to is less than a step, and so is what the other's are: together,
    # with noise, they are seen, unless either was rounded before.
    class Two:
        size, rank = 2, 0

        def add_up(self, totals: list[Tensor]) -> None:
            for total in totals:
                total += 0.3

    engine, module, *_ = make(module=torch.nn.Linear(200, 200, bias=False), loss_reduction="sum")
    assert engine._run is not None
    monkeypatch.setattr(engine._run, "_ranks", Two())
    monkeypatch.setattr(Rounding, "for_noise", lambda deviation: Rounding(1.0))
    engine._run._release(0.4)
    released = module.weight.grad
    assert released is not None
    assert torch.equal(released, released.round())
    expected = stats.norm(0.3, 0.4).expect(np.round, -4, 4)
    assert abs(released.mean() - expected) < 4 * 0.5 / math.sqrt(released.numel())
    assert abs(expected) > 10 * 0.5 / math.sqrt(released.numel())


def test_what_was_prepared_fills_once() -> None:
    fill, values = KeystreamNoise(Coins()).filler(), np.zeros(10)
    fill(values)
    with pytest.raises(IndexError):
        fill(values)


def test_sums_of_several_types_get_noise_of_their_own() -> None:
    sums = [torch.zeros(9), torch.zeros(9, dtype=torch.float64), torch.zeros(9)]
    KeystreamNoise(Coins()).add_to(sums, *AS_IT_IS, 1.0)
    assert torch.cat([summed.double() for summed in sums]).float().unique().numel() == 27


def test_values_near_zero_are_no_finer_than_others() -> None:
    rounding = Rounding.for_noise(3.0)
    assert math.log2(rounding.spacing) % 1 == 0
    assert 3.0 * 2.0**-28 < rounding.spacing <= 3.0 * 2.0**-26
    normal = torch.logspace(-12, 0, 100, dtype=torch.float64)
    released = torch.zeros(100, dtype=torch.float64)
    rounding.release(released, normal.clone(), 3.0)
    assert torch.equal(released % rounding.spacing, torch.zeros_like(released))
    torch.testing.assert_close(released, 3 * normal, rtol=0, atol=rounding.spacing / 2)


@pytest.mark.parametrize("divisor", [8.0, 100.0])
@pytest.mark.parametrize("rounding", [Rounding(2.0**-20), Grid(2.0**-20)], ids=type)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_compiled_releases_what_torch_does(
    rounding: Rounding, dtype: torch.dtype, divisor: float
) -> None:
    # As several processes do it, whose sums are added up, and other devices.
    summed = torch.randn(10_000, dtype=dtype)
    normal = torch.randn(10_000, dtype=torch.float64)
    expected = summed.clone()
    rounding.release(expected, normal.clone(), 0.7, divisor)
    rounding.release(summed.numpy(), normal.numpy(), 0.7, divisor)
    last = 0.0 if divisor == 8.0 else torch.finfo(dtype).eps  # the quotient is rounded once more
    torch.testing.assert_close(summed, expected, rtol=last, atol=0.0)


@pytest.mark.parametrize(
    ("idle", "dtype"), [(0, torch.float64), pytest.param(1, torch.float32, marks=pytest.mark.slow)]
)
def test_noise_is_compiled_before_it_is_drawn(
    idle: int,
    dtype: torch.dtype,
    threads: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dpsgd.noise.sources.load_cipher", load_cipher.__wrapped__)  # compiled anew
    threads(max(1, CORES - idle))
    size = torch.Size((1 << 16,))
    compiled = [fill_normal, add_normal, add_rounded]

    def compilations() -> list[int]:
        works = parallel._compile_work.cache_info().misses
        return [len(function.signatures) for function in compiled] + [works]

    before = compilations()
    source = KeystreamNoise(Coins())
    prefetcher = NoisePrefetcher(source, [size], torch.device("cpu"), [dtype])
    prepared = compilations()
    assert prepared != before
    prefetcher.add_to([torch.zeros(size, dtype=dtype)], Rounding.for_noise(1.0), 1.0, 256.0)
    assert compilations() == prepared


def test_threads_that_are_asked_are_those_that_torch_has(
    threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if (real := parallel._load_parallel()) is None:
        pytest.skip("torch has another OpenMP interface than GNU's")
    asked: list[int] = []

    def watched(work: int, job: int, number: int, flags: int) -> None:
        asked.append(number)
        real(work, job, number, flags)

    monkeypatch.setattr(parallel, "_load_parallel", lambda: watched)
    threads(CORES)
    sums, device = [torch.zeros(1 << 16)], torch.device("cpu")
    prefetcher = NoisePrefetcher(KeystreamNoise(Coins()), [sums[0].shape], device)
    for busy in (CORES, CORES + 1, 1):
        threads(busy)
        prefetcher.add_to(sums, *AS_IT_IS)
    expected = [busy for busy in (CORES, CORES + 1) if busy > 1]
    assert asked == expected
    threads(CORES)
    monkeypatch.setattr("dpsgd.noise.sources._LEAST", 1 << 17)  # too few to share
    NoisePrefetcher(KeystreamNoise(Coins()), [sums[0].shape], device).add_to(sums, *AS_IT_IS)
    assert asked == expected


@pytest.mark.parametrize("rounding", [Rounding(2.0**-20), Grid(2.0**-20)], ids=type)
def test_noise_is_added_as_it_is_released(rounding: Rounding) -> None:
    drawn, released = torch.randn(PART, dtype=torch.float64).repeat(2, 1)
    normal = torch.empty(PART, dtype=torch.float64)
    KeystreamNoise(SeededCoins(3)).add_to([drawn], rounding, 0.7, 8.0)
    KeystreamNoise(SeededCoins(3)).fill(normal)
    rounding.release(released.numpy(), normal.numpy(), 0.7, 8.0)
    assert torch.equal(drawn, released)


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
            values = torch.empty(100, dtype=source.dtype)
            source.fill(values)
            drawn.append(values)
    together = torch.cat(drawn)
    assert together.unique().numel() == together.numel()


AS_IT_IS = Rounding(2.0**-52), 1.0
"""The noise itself: what to give `add_to` for it."""


@pytest.mark.parametrize(
    ("name", "busy"),
    [
        ("keystream", max(1, CORES - 1)),
        ("keystream", CORES),
        ("keystream", CORES + 2),
        ("generator", CORES),
        pytest.param("generator", max(1, CORES - 1), marks=pytest.mark.slow),
        pytest.param("generator", CORES + 2, marks=pytest.mark.slow),
    ],
)
def test_every_value_of_every_sum_gets_noise_of_its_own(
    name: str, busy: int, threads: Callable[[int], None]
) -> None:
    threads(busy)
    shapes = [(3, 4), (), (700, 801), (0, 2), (7,)]
    sums = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
    sizes = [summed.shape for summed in sums]
    prefetcher = NoisePrefetcher(SOURCES[name](), sizes, torch.device("cpu"))
    seen = []
    for begun in (True, False, True):
        if begun:
            prefetcher.begin()
            prefetcher.begin()
        prefetcher.add_to(sums, *AS_IT_IS)
        seen.append(torch.cat([summed.flatten() for summed in sums]))
        for summed in sums:
            summed.zero_()
    drawn = torch.cat(seen)
    assert drawn.numel() == 3 * 560_720
    assert drawn.unique().numel() > drawn.numel() - 5  # two may be alike, two blocks may not
    assert stats.kstest(drawn.numpy(), "norm").pvalue > 1e-4
    rounds = drawn.view(3, -1)
    shifted = rounds[:, : 1 << 18], rounds[:, 1 << 18 : 1 << 19]  # what blocks would repeat
    for first, second in [(rounds[0], rounds[1]), (rounds[1], rounds[2]), shifted]:
        correlation = np.corrcoef(first.flatten(), second.flatten())[0, 1]
        assert abs(correlation) < 5 / math.sqrt(first.numel())


@pytest.mark.parametrize("busy", [max(1, CORES - 1), CORES])
def test_a_forked_child_has_noise_of_its_own(busy: int, threads: Callable[[int], None]) -> None:
    threads(busy)
    size = torch.Size((1 << 20,))
    prefetcher = NoisePrefetcher(KeystreamNoise(Coins()), [size], torch.device("cpu"))

    def drawn() -> bytes:
        sums = np.zeros(size)  # by numpy, as a large operation of torch would hang in the child
        prefetcher.add_to([torch.from_numpy(sums)], *AS_IT_IS)
        return sums[:: 1 << 18].tobytes()

    drawn()
    prefetcher.begin()
    time.sleep(0.1)  # for it to be drawn
    childs, ours = np.frombuffer(bytes_of_a_forked_child(drawn)), np.frombuffer(drawn())
    assert childs.size == 4
    assert not np.isin(childs, ours).any()


def test_a_fault_in_the_thread_that_draws_ahead_is_not_swallowed(
    threads: Callable[[int], None],
) -> None:
    class Broken(NoiseSource):
        def fill(self, out: Tensor) -> None:
            if threading.current_thread() is not threading.main_thread():
                raise OSError("no coins")

    threads(max(1, CORES - 1))
    prefetcher = NoisePrefetcher(Broken(), [torch.Size((10,))], torch.device("cpu"))
    prefetcher.begin()
    with pytest.raises(OSError, match="no coins"):
        prefetcher.add_to([torch.zeros(10)], *AS_IT_IS)


@pytest.mark.parametrize("busy", [max(1, CORES - 1), CORES, CORES + 2])
def test_a_seed_repeats_its_noise_whichever_thread_draws_it(
    busy: int, threads: Callable[[int], None]
) -> None:
    threads(busy)
    drawn = []
    for seed in (1, 1, 2):
        sums = [torch.zeros(700, 801, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)]
        source = KeystreamNoise(SeededCoins(seed))
        prefetcher = NoisePrefetcher(source, [s.shape for s in sums], torch.device("cpu"))
        prefetcher.add_to(sums, *AS_IT_IS)
        drawn.append(torch.cat([summed.flatten() for summed in sums]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.isin(drawn[2], drawn[0]).any()


@pytest.mark.parametrize(
    "sums",
    [[torch.zeros(6, 4).t()], [torch.zeros(5, 6)], [torch.zeros(4, 6), torch.zeros(1)], []],
    ids=["not in order", "too long", "too many", "none"],
)
def test_no_sum_goes_without_noise(sums: list[Tensor]) -> None:
    size = torch.Size((4, 6))
    prefetcher = NoisePrefetcher(KeystreamNoise(Coins()), [size], torch.device("cpu"))
    with pytest.raises((RuntimeError, ValueError)):
        prefetcher.add_to(sums, *AS_IT_IS)


def test_the_grid_moves_neighbours_apart_by_less_than_it_widens_the_noise() -> None:
    sensitivity, dimensions = 0.37, 10_000
    grid = Grid.for_sums(sensitivity, dimensions)
    assert math.log2(grid.spacing) % 1 == 0
    assert grid.spacing * math.sqrt(dimensions) <= sensitivity / 4096
    noise = torch.ones(dimensions, dtype=torch.float64)
    zero = torch.zeros(dimensions, dtype=torch.float64)
    grid.release(zero, noise, 2.0)
    assert (zero >= 2.0 * (1 + 1 / 4096) - grid.spacing).all()


def test_the_grid_releases_multiples_that_do_not_tell_the_sum() -> None:
    grid = Grid.for_sums(1.0, 100)
    torch.manual_seed(0)
    noise = torch.randn(100, dtype=torch.float64)
    summed = torch.randn(100, dtype=torch.float64)
    moved = summed + grid.spacing
    grid.release(summed, noise.clone(), 1.0)
    grid.release(moved, noise, 1.0)
    released = summed / grid.spacing
    assert torch.equal(released, released.round())
    assert torch.equal(moved / grid.spacing, released + 1)
