"""Noise: its distribution, that it never repeats, and the grid on which it is added."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from private import BATCH, make
from scipy import stats
from torch import Tensor

from dpsgd.noise import sources
from dpsgd.noise.grid import Grid
from dpsgd.noise.sources import GeneratorNoise, KeystreamNoise, NoiseSource
from forked import bytes_of_a_forked_child
from ldp import Coins
from ldp.testing import SeededCoins

FINE = Grid(2.0**-52)
"""A grid so fine that noise of deviation 1, added to zeros, is nearly the noise itself."""


def drawn(source: NoiseSource, *sizes: int) -> Tensor:
    sums = [torch.zeros(size, dtype=torch.float64) for size in sizes]
    source.add_to(sums, FINE, 1.0)
    return torch.cat(sums)


def test_keystream_noise_is_normal() -> None:
    values = drawn(KeystreamNoise(SeededCoins(5)), 300_001)
    assert stats.kstest(values.numpy(), "norm").pvalue > 0.01
    beyond = (values.abs() > 4).sum().item()
    expected = 2 * stats.norm.sf(4) * values.numel()
    assert abs(beyond - expected) < 4 * math.sqrt(expected)


def test_what_is_released_shows_no_pattern_of_the_noise() -> None:
    # The last bits of what a neighbour's sums leave, where noise is large, and the release so small
    # that float32 has all bits of it. Noise that was made in float32 ends in zeros there.
    grid = Grid(2.0**-26)
    multiples = np.random.default_rng(0).integers(-3 << 20, (3 << 20) + 1, 1 << 20)
    known = torch.from_numpy(multiples * 64 * grid.spacing)
    assert torch.equal(known.float().double(), known)

    def chance(released: Tensor) -> float:
        seen = (released.abs() < 0.25) & (known.abs() > 2)
        units = (released.double() - known)[seen] / grid.spacing
        assert torch.equal(units, units.round())
        counts = np.bincount(units.numpy().astype(int) % 64, minlength=64)
        assert counts.sum() > 2000
        return float(stats.chisquare(counts).pvalue)

    released, control = known.float(), known.float()
    KeystreamNoise(SeededCoins(8)).add_to([released], grid, 1.0)
    assert chance(released) > 1e-3
    narrow = torch.randn(1 << 20).double() / (1 + 1 / 4096)  # which widening undoes
    grid.release(control, narrow, 1.0)
    assert chance(control) < 1e-12


def test_sums_of_several_processes_add_up_to_one_release() -> None:
    grid, normal = Grid(0.5), torch.randn(10_000, dtype=torch.float64)
    sums = [torch.randn(10_000), torch.randn(10_000)]
    first, second = (grid.rounded(summed) for summed in sums)
    grid.release(first, normal, 3.0)
    terms = [sums[0].double(), sums[1].double(), normal * 3.0 * (1 + 1 / 4096)]
    assert torch.equal(first + second, sum((2 * term).round() for term in terms) / 2)


@pytest.mark.parametrize("rank", [0, 1])
def test_each_process_adds_a_sum_on_the_grid_and_the_first_has_the_noise(
    rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Two:
        size = 2

        def add_up(self, totals: list[Tensor]) -> None:
            given.extend(total.clone() for total in totals)

    given: list[Tensor] = []
    engine, module, *_ = make(module=torch.nn.Linear(20, 20, bias=False))
    run: Any = engine._run
    summed = torch.rand(20, 20)
    monkeypatch.setattr(run, "ranks", Two())
    monkeypatch.setattr(run._keeper, "take_sums", lambda: [summed])
    if rank > 0:
        monkeypatch.setattr(run, "_noise", None)
    run._release([0.4], run.clipping.grids([0.4]))
    (total,) = given
    grid = Grid.for_sums(1.0, 400, 0.4)
    assert torch.equal(total, grid.rounded(total))
    noise = total - grid.rounded(summed)
    expected = 0.4 if rank == 0 else 0.0
    assert abs(float(noise.std()) - expected) <= 4 * expected / math.sqrt(2 * 400)
    assert torch.equal(module.weight.grad, (total / BATCH).float())


@pytest.mark.parametrize("divisor", [8.0, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_compiled_releases_what_torch_does(dtype: torch.dtype, divisor: float) -> None:
    grid, summed = Grid(2.0**-20), torch.randn(10_000, dtype=dtype)
    normal = torch.randn(10_000, dtype=torch.float64)
    total = grid.rounded(normal * (0.7 * (1 + 1 / 4096))) + grid.rounded(summed)
    grid.release(summed, normal, 0.7, divisor)
    assert torch.equal(summed, (total * (1 / divisor)).to(dtype))


SOURCES = {
    "keystream": lambda: KeystreamNoise(Coins()),
    "generator": lambda: GeneratorNoise(torch.device("cpu")),
}


@pytest.mark.parametrize("name", SOURCES)
def test_noise_repeats_neither_in_a_source_nor_across_seeds_of_torch(name: str) -> None:
    seen = []
    for _ in range(2):
        torch.manual_seed(0)
        source: NoiseSource = SOURCES[name]()
        seen += [drawn(source, 100) for _ in range(2)]
    assert torch.cat(seen).unique().numel() == 400


@pytest.mark.parametrize("name", SOURCES)
def test_every_value_of_every_sum_gets_noise_of_its_own(name: str) -> None:
    part = sources._PART
    sums = [torch.zeros(3, 4), torch.zeros(()), torch.zeros(4, part + 1), torch.zeros(0, 2)]
    sums += [torch.zeros(7, dtype=torch.float64), torch.zeros(part)]
    source, seen = SOURCES[name](), []
    for _ in range(2):
        source.add_to([summed.zero_() for summed in sums], FINE, 1.0)
        seen.append(torch.cat([summed.flatten().double() for summed in sums]))
    together = torch.cat(seen)
    assert together.unique().numel() > 0.99 * together.numel()  # of float32, some are alike
    assert stats.kstest(together.numpy(), "norm").pvalue > 1e-4
    whole = seen[0][13 : 13 + 4 * part]
    for one, other in [(seen[0], seen[1]), (whole[:part], whole[part : 2 * part])]:
        assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(one.numel())


def test_a_forked_child_has_noise_of_its_own() -> None:
    source = KeystreamNoise(Coins())

    def four() -> bytes:
        return drawn(source, 4).numpy().tobytes()

    four()
    childs, ours = np.frombuffer(bytes_of_a_forked_child(four)), np.frombuffer(four())
    assert childs.size == 4
    assert not np.isin(childs, ours).any()


def test_a_seed_repeats_its_noise() -> None:
    one, again, other = (drawn(KeystreamNoise(SeededCoins(seed)), 50_000, 3) for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.isin(other, one).any()


def test_no_sum_goes_without_noise() -> None:
    with pytest.raises(RuntimeError, match="view"):
        KeystreamNoise(Coins()).add_to([torch.zeros(6, 4).t()], FINE, 1.0)


@pytest.mark.parametrize("deviation", [1e-9, 0.37, 1e3])
def test_the_grid_moves_neighbours_apart_by_less_than_it_widens_the_noise(
    deviation: float,
) -> None:
    sensitivity, dimensions = 0.37, 10_000
    grid = Grid.for_sums(sensitivity, dimensions, deviation)
    assert math.log2(grid.spacing) % 1 == 0
    assert grid.spacing * math.sqrt(dimensions) <= sensitivity / 4096
    assert grid.spacing <= deviation / 4096
    zero = torch.zeros(dimensions, dtype=torch.float64)
    grid.release(zero, torch.ones_like(zero), deviation)
    assert (zero >= deviation * (1 + 1 / 4096) - grid.spacing).all()


def test_the_grid_releases_multiples_that_do_not_tell_the_sum() -> None:
    grid = Grid.for_sums(1.0, 100, 1.0)
    torch.manual_seed(0)
    noise = torch.randn(100, dtype=torch.float64)
    summed = torch.randn(100, dtype=torch.float64)
    moved = summed + grid.spacing
    grid.release(summed, noise, 1.0)
    grid.release(moved, noise, 1.0)
    released = summed / grid.spacing
    assert torch.equal(released, released.round())
    assert torch.equal(moved / grid.spacing, released + 1)
