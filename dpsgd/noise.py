"""Gaussian noise that nobody can predict, drawn while the step that needs it still runs."""

import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

from ldp import Coins, InvalidInput

_BLOCK = 1 << 15
"""Values drawn together: what fits a core's cache."""


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
        for start in range(0, out.numel(), _BLOCK):
            self._fill_block(out[start : start + _BLOCK])

    def _fill_block(self, out: Tensor) -> None:
        pairs = (out.numel() + 1) // 2
        wide = self.dtype == torch.float64
        words = self._coins.words(2 * pairs if wide else pairs)
        bits = 64 if wide else 32
        signed = torch.from_numpy(words.view("<i8" if wide else "<i4"))
        first, second = signed[:pairs], signed[pairs:]
        # (0, 1], the middles of 2**bits cells: the logarithm is finite.
        uniform = first.to(self.dtype).mul_(2.0**-bits).add_(0.5 + 2.0 ** -(bits + 1))
        radius = uniform.log_().mul_(-2).sqrt_()
        angle = second.to(self.dtype).mul_(math.pi * 2.0 ** (1 - bits))
        torch.mul(radius, angle.cos(), out=out[:pairs])
        torch.mul(radius[: out.numel() - pairs], angle.sin_()[: out.numel() - pairs], out=out[pairs:])


class Noise:
    """Add noise to sums, flat parameter by parameter, prefetched where it is drawn on a CPU.

    With `grid`, sums and noise are rounded to one public grid before they meet: see `privatize`.
    """

    def __init__(self, source: NoiseSource, shapes: Sequence[torch.Size], device: torch.device):
        self._source = source
        self._shapes = shapes
        self._sizes = [shape.numel() for shape in shapes]
        self._device = device
        self._worker = None if device.type == "cuda" else _worker()
        self._next: Future[Tensor] | None = None

    def prefetch(self) -> None:
        """Begin to draw what the next step needs."""
        if self._next is None and self._worker is not None:
            self._next = self._worker.submit(self._draw)

    def draw(self) -> list[Tensor]:
        """Return standard normal values in the shapes of the parameters, never the same twice."""
        drawn, self._next = self._next, None
        values = self._draw() if drawn is None else drawn.result()
        parts = values.split(self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _draw(self) -> Tensor:
        where = self._device if isinstance(self._source, GeneratorNoise) else "cpu"
        values = torch.empty(sum(self._sizes), dtype=self._source.dtype, device=where)
        self._source.fill(values)
        return values.to(self._device)


def grid_for(sensitivity: float, dimensions: int) -> float:
    """Return the power of two to which the secure mode rounds.

    Rounding to it moves two sums apart by less than sensitivity / 4096 together.
    """
    return 2.0 ** math.floor(math.log2(sensitivity / (4096 * math.sqrt(max(1, dimensions)))))


GRID_SENSITIVITY = 1 + 1 / 4096
"""The sensitivity of sums that were rounded to the grid, over that before."""
