"""Gaussian noise that nobody can predict, drawn while the step that needs it still runs."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ldp import Coins

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
    """Keep the noise of the next step ready, for parameters of the given shapes.

    On a CPU it is drawn by a thread while forward and backward run: for small models that is most
    of a private step's cost.
    """

    def __init__(
        self, source: NoiseSource, shapes: Sequence[torch.Size], device: torch.device
    ) -> None:
        self._source = source
        self._shapes = shapes
        self._sizes = [shape.numel() for shape in shapes]
        self._device = device
        on_device = isinstance(source, GeneratorNoise)
        where = device if on_device else torch.device("cpu")
        self._values = torch.empty(sum(self._sizes), dtype=source.dtype, device=where)
        background = where.type == "cpu"  # a GPU draws at once, and behind our back anyway
        self._worker = ThreadPoolExecutor(1, "dpsgd-noise") if background else None
        self._next: Future[Tensor] | None = None

    def begin(self) -> None:
        """Begin to draw what the next step needs."""
        if self._next is None and self._worker is not None:
            self._next = self._worker.submit(self._fill)

    def draw(self) -> list[Tensor]:
        """Return standard normal values in the shapes of the parameters, never the same twice.

        They are good until `begin` or `draw` is called again.
        """
        drawn, self._next = self._next, None
        values = self._fill() if drawn is None else drawn.result()
        parts: tuple[Tensor, ...] = torch.split(values.to(self._device), self._sizes)
        return [part.view(shape) for part, shape in zip(parts, self._shapes, strict=True)]

    def _fill(self) -> Tensor:
        self._source.fill(self._values)
        return self._values


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
