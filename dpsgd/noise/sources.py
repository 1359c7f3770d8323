"""Sources of Gaussian noise."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from dpsgd.noise.grid import Grid
from dpsgd.noise.ziggurat import fill_normal, words_for
from ldp import Coins

_PART = 1 << 15
"""Values drawn at once: enough to be worth a key, few enough to stay in a core's cache."""


class NoiseSource(ABC):
    """Draw independent standard normal values. Nothing about its state is ever saved.

    In float64, for every parameter type: what torch makes in float32 has a pattern in every pair of
    values, by which one release of 30,000 tells neighbours apart.
    """

    @abstractmethod
    def fill(self, out: Tensor) -> None:
        """Fill a flat tensor in float64."""

    def add_to(
        self, sums: Iterable[Tensor], grid: Grid, deviation: float, divisor: float = 1.0
    ) -> None:
        """Release contiguous sums in place, as `Grid.release` does, each value with its own noise.

        Raises `RuntimeError` for sums that are not contiguous.
        """
        for summed in sums:
            flat = summed.view(-1)
            most = _PART if summed.is_cpu else max(len(flat), 1)
            room = torch.empty(min(len(flat), most), dtype=torch.float64, device=summed.device)
            for part in torch.split(flat, most):
                normal = room[: len(part)]
                self.fill(normal)
                grid.release(part, normal, deviation, divisor)


class GeneratorNoise(NoiseSource):
    """The device's own generator of torch, seeded by the operating system alone.

    Neither mt19937 (of CPUs) nor Philox (of GPUs) is a cryptographic generator: enough of the noise
    tells the rest. On a GPU values come from 53 bits and end at 8.6 standard deviations.
    """

    def __init__(self, device: torch.device) -> None:
        self._generator = torch.Generator(device)
        self._generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)

    def fill(self, out: Tensor) -> None:
        out.normal_(generator=self._generator)


class KeystreamNoise(NoiseSource):
    """Normal values by the ziggurat from the AES-256 keystreams of `Coins`.

    Values end at 13.3 standard deviations. Nothing is kept between draws, so a forked child has
    noise of its own, and threads may share the object.
    """

    def __init__(self, coins: Coins) -> None:
        self._coins = coins

    def fill(self, out: Tensor) -> None:
        values = out.numpy() if out.is_cpu else np.empty(len(out))
        for start in range(0, len(values), _PART):
            part = values[start : start + _PART]
            fill_normal(part, self._coins.words(words_for(len(part))))
        if not out.is_cpu:
            out.copy_(torch.from_numpy(values))
