"""Noise: its distribution, that it never repeats, and the grid of the secure mode."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from dpsgd.compiled import TOGETHER, add_rounded, box_muller
from dpsgd.noise import (
    GeneratorNoise,
    Grid,
    KeystreamNoise,
    NoisePrefetcher,
    NoiseSource,
    Rounding,
    Values,
)
from ldp import Coins
from ldp.testing import SeededCoins


def test_keystream_noise_is_normal() -> None:
    values = torch.empty(300_001, dtype=torch.float64)
    KeystreamNoise(SeededCoins(5)).fill(values)
    assert stats.kstest(values.numpy(), "norm").pvalue > 0.01
    beyond = (values.abs() > 4).sum().item()
    expected = 2 * stats.norm.sf(4) * values.numel()
    assert abs(beyond - expected) < 4 * math.sqrt(expected)


class Words(Coins):
    """Coins that draw the given words, and then zeros."""

    def __init__(self, *words: int) -> None:
        self.given = list(words)

    def words(self, n: int) -> np.ndarray:
        drawn, self.given = self.given[:n], self.given[n:]
        return np.array(drawn + [0] * (n - len(drawn)), dtype=np.uint64)

    def stream(self) -> Callable[[np.ndarray], None]:
        return self.fill


def cosine_and_sine(word: int) -> tuple[float, float]:
    """Of the angle that a word stands for: an eighth of a turn, and where on it."""
    turn = ((word & (1 << 61) - 1) + 0.5) / 2**64
    pair = math.cos(2 * math.pi * turn), math.sin(2 * math.pi * turn)
    first, second = pair[::-1] if word >> 61 & 1 else pair
    return -first if word >> 63 & 1 else first, -second if word >> 62 & 1 else second


@pytest.mark.parametrize(
    ("word", "angle", "more"),
    [(1 << 63, 1 << 60, 0), (3 << 50, 5 << 61, 0), (7, 1 << 62, 1 << 63), (0, 3 << 60, 0)],
)
def test_keystream_noise_is_that_of_box_and_muller(word: int, angle: int, more: int) -> None:
    values = torch.empty(2, dtype=torch.float64)
    KeystreamNoise(Words(word, angle, more)).fill(values)
    uniform = ((word >> 1) + (0.5 if word >= 1 << 48 else (more + 0.5) / 2**64)) / 2**63
    expected = [math.sqrt(-2 * math.log(uniform)) * part for part in cosine_and_sine(angle)]
    assert values.tolist() == pytest.approx(expected, rel=1e-14, abs=1e-14)


def test_eighths_of_a_turn_cover_it_once() -> None:
    middles = [math.atan2(*cosine_and_sine((eighth << 61) + (1 << 60))) for eighth in range(8)]
    assert sorted(middles) == pytest.approx([math.pi * (i - 3.5) / 4 for i in range(8)])


def test_keystream_noise_is_exact_to_the_last_places_of_float64() -> None:
    # Words of every size, and angles at both ends of every eighth of a turn.
    shifts, eighths = np.arange(16), np.arange(8, dtype=np.uint64) << np.uint64(61)
    words = np.concatenate([Coins().words(1 << 12) >> np.uint64(shift) for shift in shifts])
    words[:3] = 2**64 - 1, 2**64 - 2**10, 2**64 - 2**11
    words = words[:-100]  # the last pairs are fewer than those before
    angles = Coins().words(words.size)
    angles[:16] = np.concatenate([eighths, eighths - np.uint64(1)])
    more = Coins().words(words.size)
    ends = np.arange(512, words.size, 512)
    together = zip(np.split(words, ends), np.split(angles, ends), strict=True)
    values = np.concatenate([half for pair in together for half in pair]).view(np.float64)
    least = 1 << 56
    assert box_muller(values, more, least) == values.size
    fraction = np.full(words.size, np.longdouble(0.5))
    small = words < least
    assert small.any()
    fraction[small] = (more[: small.sum()].astype(np.longdouble) + 0.5) / 2**64
    uniform = ((words >> np.uint64(1)).astype(np.longdouble) + fraction) / 2**63
    radius = np.sqrt(-2 * np.log(uniform))
    part = (angles & np.uint64((1 << 61) - 1)).astype(np.longdouble) + np.longdouble(0.5)
    turns = part * (2 * np.pi / np.longdouble(2**64))
    swap, minus, other = (angles >> np.uint64(bit) & np.uint64(1) for bit in (61, 63, 62))
    cosine = np.where(swap, np.sin(turns), np.cos(turns)) * np.where(minus, -1, 1)
    sine = np.where(swap, np.cos(turns), np.sin(turns)) * np.where(other, -1, 1)
    # Where the integer has more than 53 bits it is rounded, which is all that is left near 1.
    tolerance = 8e-15 + np.where(words > 1 << 53, 2.0**-52 / np.maximum(radius, 1e-8), 0)
    parts = np.split(values, np.arange(1024, values.size, 1024))
    first = np.concatenate([part[: part.size // 2] for part in parts])
    second = np.concatenate([part[part.size // 2 :] for part in parts])
    assert (abs(first - radius * cosine) <= tolerance).all()
    assert (abs(second - radius * sine) <= tolerance).all()


def test_more_words_for_the_tails_are_drawn_where_the_first_do_not_do() -> None:
    words = Coins().words(6 * TOGETHER + 10) | np.uint64(1 << 63)
    small = slice(2 * TOGETHER, 3 * TOGETHER)  # all radii of the second part
    words[small] >>= np.uint64(40)
    more = Coins().words(2 * TOGETHER)
    whole, parts = words.view(np.float64).copy(), words.view(np.float64).copy()
    assert box_muller(whole, more, 1 << 48) == whole.size
    assert box_muller(parts, more[: TOGETHER - 1], 1 << 48) == small.start
    assert (parts[: small.start] == whole[: small.start]).all()
    assert (parts[small.start :].view(np.uint64) == words[small.start :]).all()
    rest = parts[small.start :]
    assert box_muller(rest, more, 1 << 48) == rest.size
    assert (parts == whole).all()

    drawn = torch.empty(words.size, dtype=torch.float64)
    KeystreamNoise(Words(*words.tolist(), *[0] * 16, *more.tolist())).fill(drawn)
    assert (drawn.numpy() == whole).all()


def test_keystream_noise_reaches_far_into_the_tails() -> None:
    values = torch.empty(2, dtype=torch.float64)
    KeystreamNoise(Words()).fill(values)
    assert values[0] == pytest.approx(13.32, abs=0.01)


def test_values_in_the_tails_are_drawn_from_more_than_one_word() -> None:
    drawn = []
    for more in (0, 1 << 63):  # a word of 6 is 9.2 standard deviations
        values = torch.empty(2, dtype=torch.float64)
        KeystreamNoise(Words(6, 0, more)).fill(values)
        drawn.append(values[0].item())
    assert drawn[0] - drawn[1] == pytest.approx(math.log(3.5 / 3) / 9.2, rel=0.05)


@pytest.mark.parametrize("sums", [torch.zeros, torch.randn], ids=["zeros", "sums"])
def test_what_is_released_shows_no_pattern_of_the_noise(sums: Callable[[int], Tensor]) -> None:
    # The angle of each pair, in units of what angles in float32 are rounded to: noise that was
    # made in float32 is off by 0.225 on average, and by 0.25 from the sum of a neighbour.
    normal = torch.empty(1 << 16, dtype=torch.float64)
    KeystreamNoise(SeededCoins(8)).fill(normal)
    summed = sums(1 << 16) / 100
    released = summed.clone()
    Rounding.for_noise(1.0).release(released.numpy(), normal.numpy(), 1.0)
    assert released.dtype == torch.float32
    first, second = (released.double() - summed.double()).view(-1, 2, 512).unbind(1)
    angle = torch.atan2(second, first) % (2 * math.pi)
    units = angle[angle > 4.2] / (math.pi * 2.0**-31 * 256)
    off = (units - units.round()).abs()
    assert abs(off.mean() - 0.25) < 4 * math.sqrt(1 / 48 / off.numel())


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


def test_noise_is_compiled_before_it_is_drawn() -> None:
    source = KeystreamNoise(Coins())
    compiled = box_muller, add_rounded
    before = [len(function.signatures) for function in compiled]
    values = torch.empty(1 << 16, dtype=torch.float64)
    source.fill(values)
    zeros = np.zeros(1 << 16, dtype=np.float32)
    Rounding.for_noise(1.0).release(zeros, values.numpy(), 1.0, 256.0)
    assert [len(function.signatures) for function in compiled] == before


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


def add(part: Values, noise: Values) -> None:
    torch.as_tensor(part).add_(torch.as_tensor(noise))


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Set torch's threads, for this test; they share what is drawn, however little."""
    monkeypatch.setattr("dpsgd.noise._LEAST", 1)
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
    shapes = [(3, 4), (), (700, 801), (0, 2), (7,)]
    sums = [torch.zeros(shape, dtype=torch.float64) for shape in shapes]
    sizes = [summed.shape for summed in sums]
    prefetcher = NoisePrefetcher(SOURCES[name](), sizes, torch.device("cpu"))
    seen = []
    for begun in (True, False, True):
        if begun:
            prefetcher.begin()
            prefetcher.begin()
        prefetcher.add_to(sums, add)
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

    def drawn() -> np.ndarray:
        sums = np.zeros(size)  # by numpy, as a large operation of torch would hang in the child
        prefetcher.add_to(
            [torch.from_numpy(sums)], lambda part, noise: np.add(part, noise, out=part)
        )
        return sums[:: 1 << 18]

    drawn()
    prefetcher.begin()
    time.sleep(0.1)  # for it to be drawn

    read, write = os.pipe()
    if (child := os.fork()) == 0:
        signal.alarm(20)  # it may not wait for a thread that it does not have
        os.write(write, drawn().tobytes())
        os._exit(0)
    os.close(write)
    with open(read, "rb") as pipe:  # noqa: PTH123 - a descriptor, not a path
        childs = np.frombuffer(pipe.read())
    os.waitpid(child, 0)
    assert childs.size == 4
    assert not set(childs) & set(drawn().tolist())


def test_a_fault_in_a_thread_that_draws_is_not_swallowed(threads: Callable[[int], None]) -> None:
    class Broken(NoiseSource):
        def fill(self, out: Tensor) -> None:
            if threading.current_thread() is not threading.main_thread():
                raise OSError("no coins")
            time.sleep(0.01)  # so that the other thread gets a block

    for busy in (max(1, CORES - 1), CORES + 1):
        threads(busy)
        prefetcher = NoisePrefetcher(Broken(), [torch.Size((1 << 20,))], torch.device("cpu"))
        with pytest.raises(OSError, match="no coins"):
            prefetcher.add_to([torch.zeros(1 << 20)], add)


def test_an_interrupted_draw_leaves_no_thread_at_work(threads: Callable[[int], None]) -> None:
    working = []

    class Slow(NoiseSource):
        def fill(self, out: Tensor) -> None:
            if threading.current_thread() is threading.main_thread():
                time.sleep(0.05)  # so that the other threads get blocks
                raise KeyboardInterrupt
            working.append(1)
            time.sleep(0.1)
            working.pop()

    threads(CORES + 1)
    prefetcher = NoisePrefetcher(Slow(), [torch.Size((1 << 20,))], torch.device("cpu"))
    with pytest.raises(KeyboardInterrupt):
        prefetcher.add_to([torch.zeros(1 << 20)], add)
    assert not working


def test_a_draw_that_was_broken_off_is_not_taken_for_one(
    threads: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads(CORES + 1)
    size = torch.Size((1 << 20,))
    prefetcher = NoisePrefetcher(KeystreamNoise(Coins()), [size], torch.device("cpu"))
    monkeypatch.setattr("dpsgd.noise.in_all_threads", lambda work: None)
    with pytest.raises(RuntimeError, match="broken off"):
        prefetcher.add_to([torch.zeros(size)], add)


@pytest.mark.parametrize(
    "sums",
    [[torch.zeros(6, 4).t()], [torch.zeros(5, 6)], [torch.zeros(4, 6), torch.zeros(1)], []],
    ids=["not in order", "too long", "too many", "none"],
)
def test_no_sum_goes_without_noise(sums: list[Tensor]) -> None:
    size = torch.Size((4, 6))
    prefetcher = NoisePrefetcher(KeystreamNoise(Coins()), [size], torch.device("cpu"))
    with pytest.raises((RuntimeError, ValueError)):
        prefetcher.add_to(sums, add)


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
