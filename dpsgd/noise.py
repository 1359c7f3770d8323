"""Gaussian noise that nobody can predict, drawn while the step that needs it still runs."""

import math
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ldp import Coins

_BLOCK = 1 << 15
"""Values drawn together: what fits a core's cache."""
_MOST_THREADS = 8
"""Threads that share a draw at most: more would wait for Python's lock."""


class NoiseSource(ABC):
    """Draw independent standard normal values. Nothing about its state is ever saved."""

    dtype = torch.float32

    @abstractmethod
    def fill(self, out: Tensor) -> None:
        """Fill a flat tensor of type `dtype`."""


class GeneratorNoise(NoiseSource):
    """The device's own generator of torch, seeded by the operating system.

    It is explicit: no seed that is set elsewhere has a say in it. Neither mt19937 (of CPUs) nor
    Philox (of GPUs) is a cryptographic generator: enough of the noise tells the rest.
    """

    def __init__(self, device: torch.device) -> None:
        self._generator = torch.Generator(device)
        self._generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)

    def fill(self, out: Tensor) -> None:
        out.normal_(generator=self._generator)


class KeystreamNoise(NoiseSource):
    """Normal values by Box and Muller from coins: keystreams under keys of the system.

    In float32 from words of 32 bits, which end at 6.7 standard deviations; in float64 from 64
    bits, which end at 9.4.
    """

    def __init__(self, coins: Coins, dtype: torch.dtype = torch.float32) -> None:
        self._coins = coins
        self.dtype = dtype

    def fill(self, out: Tensor) -> None:
        fill = self._fill_wide if self.dtype == torch.float64 else self._fill_narrow
        for start in range(0, out.numel(), _BLOCK):
            fill(out[start : start + _BLOCK])

    # A uniform value is a word's, plus a half, over the number of words: small ones, which make
    # the tails, keep all of their bits, and the logarithm is finite.

    def _fill_narrow(self, out: Tensor) -> None:
        # By numpy, which beats torch at float32, and keeps to the thread that called it.
        values = out.numpy()
        pairs = (values.size + 1) // 2
        words = self._coins.words(pairs).view("<u4")
        radius = words[:pairs].astype(np.float32)
        radius += np.float32(0.5)
        radius *= np.float32(2.0**-32)
        np.log(radius, out=radius)
        radius *= np.float32(-2)
        np.sqrt(radius, out=radius)
        angle = words[pairs:].astype(np.float32)
        angle *= np.float32(math.pi * 2.0**-31)
        rest = values.size - pairs
        np.cos(angle, out=values[:pairs])
        np.sin(angle[:rest], out=values[pairs:])
        values[:pairs] *= radius
        values[pairs:] *= radius[:rest]

    def _fill_wide(self, out: Tensor) -> None:
        pairs = (out.numel() + 1) // 2
        words = self._coins.words(2 * pairs)
        uniform = torch.from_numpy(words[:pairs].astype(np.float64)).add_(0.5).mul_(2.0**-64)
        radius = uniform.log_().mul_(-2).sqrt_()
        angle = torch.from_numpy(words[pairs:].astype(np.float64)).mul_(math.pi * 2.0**-63)
        rest = out.numel() - pairs
        torch.mul(radius, angle.cos(), out=out[:pairs])
        torch.mul(radius[:rest], angle[:rest].sin_(), out=out[pairs:])


class NoisePrefetcher:
    """Add fresh noise to sums of the given shapes.

    For small models, to draw it is most of what a private step adds. Where cores are idle, because
    torch was given fewer threads than there are or the model is on a GPU, a thread draws it while
    forward and backward run. Where none is, that thread would only be in their way, and threads
    share the work when it is due, block by block: no noise ever leaves a core's cache.
    """

    def __init__(
        self, source: NoiseSource, shapes: Sequence[torch.Size], device: torch.device
    ) -> None:
        self._source = source
        self._sizes = [shape.numel() for shape in shapes]
        self._device = device
        # A GPU's generator draws behind our back anyway; no generator is for several threads.
        self._serial = isinstance(source, GeneratorNoise)
        self._idle_cores = device.type != "cpu" or _cores() > torch.get_num_threads()
        self._helpers = 1 if self._idle_cores else min(torch.get_num_threads(), _MOST_THREADS) - 1
        self._pool: ThreadPoolExecutor | None = None
        if self._helpers and not self._serial:
            self._pool = ThreadPoolExecutor(self._helpers, "dpsgd-noise")
        self._ahead: Future[Tensor] | None = None

    def begin(self) -> None:
        """Begin to draw what the next sums need, if a core is idle."""
        if self._ahead is None and self._pool is not None and self._idle_cores:
            self._ahead = self._pool.submit(self._draw)

    def add_to(self, sums: Sequence[Tensor], add: Callable[[Tensor, Tensor], object]) -> None:
        """Call add(part, noise) for flat parts of the sums: each value once, with its own noise.

        Calls may come from several threads at once.
        """
        flat = [summed.view(-1) for summed in sums]
        if self._serial:
            for part in flat:
                noise = torch.empty(part.shape, dtype=self._source.dtype, device=self._device)
                self._source.fill(noise)
                add(part, noise)
        elif self._idle_cores:
            self.begin()
            drawn, self._ahead = self._ahead, None
            assert drawn is not None
            for part, noise in zip(flat, torch.split(drawn.result(), self._sizes), strict=True):
                add(part, noise.to(self._device))
        else:
            self._share(flat, add)

    def _draw(self) -> Tensor:
        values = torch.empty(sum(self._sizes), dtype=self._source.dtype)
        self._source.fill(values)
        return values

    def _share(self, flat: list[Tensor], add: Callable[[Tensor, Tensor], object]) -> None:
        blocks = deque(_blocks(flat))

        def work() -> None:
            noise = torch.empty(_BLOCK, dtype=self._source.dtype)
            while True:
                try:
                    parts = blocks.popleft()
                except IndexError:
                    return
                sizes = [len(part) for part in parts]
                drawn = noise[: sum(sizes)]
                self._source.fill(drawn)
                for part, own in zip(parts, torch.split(drawn, sizes), strict=True):
                    add(part, own)

        helpers = min(self._helpers, len(blocks) - 1)
        others = [self._pool.submit(work) for _ in range(helpers)] if self._pool else []
        work()
        for other in others:
            other.result()


def _blocks(flat: list[Tensor]) -> Iterator[list[Tensor]]:
    """Yield parts of the tensors, _BLOCK values at a time."""
    block: list[Tensor] = []
    room = _BLOCK
    for values in flat:
        while len(values):
            block.append(values[:room])
            values = values[room:]
            room -= len(block[-1])
            if not room:
                yield block
                block, room = [], _BLOCK
    if block:
        yield block


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Grid:
    """Round sums and noise to multiples of one public power of two before they meet.

    What is proved, for normal values without error: rounding moves the sums of neighbours apart
    by less than 1/4096 of their sensitivity, for which the noise is widened; multiples of the
    grid, rounded, plus a multiple, are the rounded sum of both. So the release is the Gaussian
    mechanism on a grid, rounded: no bit of it tells what floating-point addition did to the sum
    (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012).
    What is not: that the normal values are exact (they have 53 bits and end at 9.4 standard
    deviations), that the sums of clipped gradients were added without error, and anything about
    timing.
    """

    spacing: float

    @classmethod
    def for_sums(cls, sensitivity: float, dimensions: int) -> "Grid":
        """Return the grid for sums of so many dimensions."""
        return cls(2.0 ** math.floor(math.log2(sensitivity / (4096 * math.sqrt(dimensions)))))

    def release(self, summed: Tensor, noise: Tensor, deviation: float) -> Tensor:
        """Return the sum plus noise of a standard deviation of at least `deviation`."""
        multiples = self.multiples(summed).add_(self.noise(noise, deviation))
        return multiples.mul_(self.spacing).to(summed.dtype)

    def multiples(self, summed: Tensor) -> Tensor:
        """Return the sum, rounded, in whole units of `spacing`. Several of these add up exactly."""
        return (summed.to(torch.float64) / self.spacing).round_()

    def noise(self, normal: Tensor, deviation: float) -> Tensor:
        """Return noise of a standard deviation of at least `deviation`, in the same units."""
        return (normal * (deviation * (1 + 1 / 4096) / self.spacing)).round_()
