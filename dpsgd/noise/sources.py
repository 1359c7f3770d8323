"""Sources of Gaussian noise, and drawing it ahead of the step that needs it."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from dpsgd.noise.addition import Rounding
from dpsgd.noise.keystream import Words, load_cipher
from dpsgd.noise.parallel import add_noise
from dpsgd.noise.shared import Values, bare, tensor_of
from dpsgd.noise.ziggurat import fill_normal
from ldp import Coins, InvalidInput

_LEAST = 1 << 17
"""The least number of values that several threads share; one thread draws fewer faster."""


class NoiseSource(ABC):
    """Draw independent standard normal values. Nothing about its state is ever saved.

    In float64, for every parameter type: 24 bits would show. Angles and radii in float32, as torch
    has them, leave a pattern in every pair of values, by which one release of 30,000 tells
    neighbours apart.
    """

    dtype = torch.float64

    @abstractmethod
    def fill(self, out: Values) -> None:
        """Fill a flat tensor or array of type `dtype`."""

    def filler(self) -> Callable[[Values], None]:
        """Return a one-shot `fill` for any thread, whose key, if any, is drawn here."""
        return self.fill

    def add_to(
        self,
        sums: Sequence[Tensor],
        rounding: Rounding,
        deviation: float,
        divisor: float,
        threads: int = 1,
    ) -> None:
        """Release flat sums in place, as `Rounding.release` does, each value with its own noise.

        `threads`, which may share the work, is 1 or as many as torch has.
        """
        for summed in sums:
            noise = torch.empty_like(summed, dtype=self.dtype)
            self.fill(noise)
            rounding.release(bare(summed), bare(noise), deviation, divisor)


class GeneratorNoise(NoiseSource):
    """The device's own generator of torch, seeded by the operating system.

    It is explicit: no seed that is set elsewhere has a say in it. Neither mt19937 (of CPUs) nor
    Philox (of GPUs) is a cryptographic generator: enough of the noise tells the rest. On a GPU
    values come from 53 bits and end at 8.6 standard deviations.
    """

    def __init__(self, device: torch.device) -> None:
        self._generator = torch.Generator(device)
        self._generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)

    def fill(self, out: Values) -> None:
        tensor_of(out).normal_(generator=self._generator)


class KeystreamNoise(NoiseSource):
    """Normal values by the ziggurat from AES-256 or ChaCha20, with a fresh key for each draw.

    Of 64 bits for each value, and of more for values in the tails, which end at 13.3 standard
    deviations.
    """

    def __init__(self, coins: Coins) -> None:
        self._coins = coins
        self._cipher = load_cipher()

    def fill(self, out: Values) -> None:
        self.filler()(out)

    def filler(self) -> Callable[[Values], None]:
        schedules = [self._fresh_schedule()]
        return lambda out: fill_normal(np.asarray(out), schedules.pop(), self._cipher.keystream)

    def add_to(
        self,
        sums: Sequence[Tensor],
        rounding: Rounding,
        deviation: float,
        divisor: float,
        threads: int = 1,
    ) -> None:
        options = (*rounding.options(deviation), divisor)
        for dtype in dict.fromkeys(summed.dtype for summed in sums):
            alike = [summed for summed in sums if summed.dtype == dtype]
            add_noise(alike, self._cipher, self._fresh_schedule(), options, threads)

    def _fresh_schedule(self) -> Words:
        return self._cipher.expand(self._coins.words(4))


class NoisePrefetcher:
    """Add fresh noise to sums of given shapes and types, drawn ahead if a core is idle.

    For small models, drawing it is most of a private step's extra time. Where cores are idle,
    because torch was given fewer threads than there are or the model is on a GPU, a thread draws it
    while forward and backward run. Where none is, that thread would only be in their way, and
    torch's threads share the work when it is due, if there is enough (`dpsgd.noise.parallel`).

    In a forked child it draws the child's own noise, in one thread.
    """

    def __init__(
        self,
        source: NoiseSource,
        shapes: Sequence[torch.Size],
        device: torch.device,
        types: Iterable[torch.dtype] = (torch.float32,),
    ) -> None:
        self._source = source
        self._sizes = [shape.numel() for shape in shapes]
        # A GPU's generator draws asynchronously anyway.
        idle_cores = device.type != "cpu" or _cores() > torch.get_num_threads()
        self._draws_ahead = idle_cores and not isinstance(source, GeneratorNoise)
        # Compile here, not in a thread amid which the process may fork.
        tried = [torch.zeros(1, dtype=dtype, device=device) for dtype in types]
        if self._draws_ahead:
            normal = torch.empty(1, dtype=source.dtype, device="cpu")
            source.fill(normal)
            for one in tried:
                Rounding(1.0).release(bare(one), bare(normal.to(device, copy=True)), 1.0)
        else:
            source.add_to(tried, Rounding(1.0), 1.0, 1.0)
        self._shared = sum(self._sizes) >= _LEAST
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._ahead: Future[Tensor] | None = None
        self._pool = ThreadPoolExecutor(1, "dpsgd-noise") if self._draws_ahead else None

    def begin(self) -> None:
        """Begin to draw the noise of the next sums, if a core is idle."""
        if self._process != os.getpid():  # the parent's draws and threads are its own
            self._start()
            self._shared = False
        if self._ahead is None and self._pool is not None:
            self._ahead = self._pool.submit(self._draw, self._source.filler())

    def add_to(
        self, sums: Sequence[Tensor], rounding: Rounding, deviation: float, divisor: float = 1.0
    ) -> None:
        """Release sums in place, with noise of a standard deviation; for one thread at a time.

        Raises `InvalidInput` where the sums have other sizes than were given.
        """
        self.begin()
        flat = [summed.view(-1) for summed in sums]
        if [len(part) for part in flat] != self._sizes:
            raise InvalidInput(f"expected sums of {self._sizes} values, got {[*map(len, flat)]}")
        if self._ahead is None:
            threads = torch.get_num_threads() if self._shared else 1
            self._source.add_to(flat, rounding, deviation, divisor, threads)
            return
        drawn, self._ahead = self._ahead, None
        for part, noise in zip(flat, torch.split(drawn.result(), self._sizes), strict=True):
            rounding.release(bare(part), bare(noise.to(part.device)), deviation, divisor)

    def _draw(self, fill: Callable[[Values], None]) -> Tensor:
        values = torch.empty(sum(self._sizes), dtype=self._source.dtype, device="cpu")
        fill(values)
        return values


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
