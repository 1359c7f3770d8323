"""Gaussian noise that nobody can predict, drawn while the step that needs it still runs."""

import math
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpsgd.compiled import add_rounded
from dpsgd.keystream import load_aes
from dpsgd.shared import Values, bare, tensor_of
from dpsgd.team import in_all_threads
from dpsgd.ziggurat import FillWords, add_normal, fill_normal, take_drawn, words_needed
from ldp import Coins

_PART = 70_000
"""Values drawn at once: enough that threads seldom wait for Python's lock, few for one to end."""
_LEAST = 1 << 17
"""Values that several threads share: fewer cost less than to meet for them."""
_MOST_THREADS = 8
"""Threads that share a draw at most: more would wait for Python's lock."""

Add: TypeAlias = Callable[[Values, int], None]
"""Adds noise to a flat part of sums: add(part, number), where each number serves once."""


class NoiseSource(ABC):
    """Draw independent standard normal values. Nothing about its state is ever saved.

    In float64, whatever is trained: 24 bits would show. Angles and radii in float32, as
    torch has them, leave a pattern in every pair of values, by which one release of 30,000 tells
    neighbours apart.
    """

    dtype = torch.float64

    @abstractmethod
    def fill(self, out: Values) -> None:
        """Fill a flat tensor or array of type `dtype`."""

    def filler(self) -> Callable[[Values], None]:
        """Return what does as `fill`, once, in any thread: its key, if any, is drawn here."""
        return self.fill

    def adder(self, rounding: "Rounding", deviation: float, divisor: float) -> Add:
        """Return what releases parts of sums in place, as `Rounding.release`, in any thread."""

        def add(part: Values, _number: int) -> None:
            noise = torch.empty(len(part), dtype=self.dtype, device=tensor_of(part).device)
            self.fill(noise)
            rounding.release(part, bare(noise), deviation, divisor)

        return add


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
    """Normal values by the ziggurat from AES-256: for each draw a fresh key, of coins.

    Of 64 bits for each value, and of more for those in the tails, which end at 13.3 standard
    deviations. Without instructions for AES, OpenSSL serves, or the system. `sums` are the types
    that it is added to.
    """

    def __init__(self, coins: Coins, sums: Iterable[torch.dtype] = (torch.float32,)) -> None:
        self._coins = coins
        self._aes = load_aes()
        # Compile here, not in a thread amid which the process may fork.
        self.fill(np.empty(1))
        for dtype in sums:
            part = torch.empty(1, dtype=dtype, device="cpu").numpy()
            self.adder(Rounding(1.0), 1.0, 1.0)(part, 0)

    def fill(self, out: Values) -> None:
        self.filler()(out)

    def filler(self) -> Callable[[Values], None]:
        words_for = self._words_for()

        def fill(out: Values) -> None:
            values = np.asarray(out)
            for number, part in enumerate(_parts(values.size)):
                fill_normal(values[part], *words_for(part.stop - part.start, number))

        return fill

    def adder(self, rounding: "Rounding", deviation: float, divisor: float) -> Add:
        words_for, options = self._words_for(), rounding.compiled(deviation)
        return lambda part, number: add_normal(
            np.asarray(part), *words_for(len(part), number), *options, divisor
        )

    def _words_for(self) -> Callable[[int, int], tuple[Any, FillWords, int]]:
        """Return what tells compiled code of a part's size and number where its words are.

        Raises `RuntimeError` for a number that served: its noise would be there twice.
        """
        served: set[int] = set()
        schedule = None if self._aes is None else self._aes.expand(self._coins.words(4))

        def words_for(size: int, number: int) -> tuple[Any, FillWords, int]:
            if number in served:
                raise RuntimeError(f"noise of part {number} was drawn already")
            served.add(number)
            if self._aes is None:
                return self._drawn(size), take_drawn, 0
            return schedule, self._aes.keystream, number

        return words_for

    def _drawn(self, size: int) -> tuple[NDArray[np.uint64], ...]:
        fill_words = self._coins.stream()
        drawn = tuple(np.empty(words, dtype=np.uint64) for words in words_needed(size))
        for words in drawn:
            fill_words(words)
        return drawn


class NoisePrefetcher:
    """Add fresh noise to sums of the given shapes.

    For small models, to draw it is most of what a private step adds. Where cores are idle, because
    torch was given fewer threads than there are or the model is on a GPU, a thread draws it while
    forward and backward run. Where none is, that thread would only be in their way, and torch's
    threads share the work when it is due, if there is enough, part by part.

    In a forked child it draws the child's own noise, in one thread.
    """

    def __init__(
        self, source: NoiseSource, shapes: Sequence[torch.Size], device: torch.device
    ) -> None:
        self._source = source
        self._sizes = [shape.numel() for shape in shapes]
        # A GPU's generator draws behind our back anyway; no generator is for several threads.
        self._serial = isinstance(source, GeneratorNoise)
        self._idle_cores = device.type != "cpu" or _cores() > torch.get_num_threads()
        self._shared = not self._serial and sum(self._sizes) >= _LEAST
        cut = _whole if self._serial else _parts
        parts = [(i, part) for i, size in enumerate(self._sizes) for part in cut(size)]
        self._parts = sorted(parts, key=lambda part: part[1].start - part[1].stop)
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._ahead: Future[Tensor] | None = None
        draws_ahead = self._idle_cores and not self._serial
        self._pool = ThreadPoolExecutor(1, "dpsgd-noise") if draws_ahead else None

    def begin(self) -> None:
        """Begin to draw what the next sums need, if a core is idle."""
        if self._process != os.getpid():  # what the parent drew is the parent's, as its threads are
            self._start()
            self._shared = False
        if self._ahead is None and self._pool is not None:
            self._ahead = self._pool.submit(self._draw, self._source.filler())

    def add_to(
        self, sums: Sequence[Tensor], rounding: "Rounding", deviation: float, divisor: float = 1.0
    ) -> None:
        """Release sums in place, with noise of a deviation; for one thread at a time.

        Raises `ValueError` where the sums have other sizes than were given.
        """
        self.begin()
        flat = [bare(summed.view(-1)) for summed in sums]
        if [len(part) for part in flat] != self._sizes:
            raise ValueError(f"expected sums of {self._sizes} values, got {[*map(len, flat)]}")
        if self._ahead is None:
            self._share(flat, self._source.adder(rounding, deviation, divisor))
            return
        drawn, self._ahead = self._ahead, None
        for part, noise in zip(flat, torch.split(drawn.result(), self._sizes), strict=True):
            normal = bare(noise.to(tensor_of(part).device))
            rounding.release(part, normal, deviation, divisor)

    def _draw(self, fill: Callable[[Values], None]) -> Tensor:
        values = torch.empty(sum(self._sizes), dtype=self._source.dtype)
        fill(values)
        return values

    def _share(self, flat: list[Values], add: Add) -> None:
        left, places = deque(enumerate(self._parts)), count()
        done = []

        def work() -> None:
            if next(places) >= _MOST_THREADS:
                return
            while left:
                try:
                    number, (index, part) = left.popleft()
                except IndexError:  # another thread took the last
                    return
                add(flat[index][part], number)
                done.append(number)

        if self._shared:
            in_all_threads(work)
        else:
            work()
        if len(done) < len(self._parts):
            raise RuntimeError("the draw of noise was broken off: nothing may be released")


def _parts(size: int) -> list[slice]:
    """Return parts of so many values, alike in size."""
    step = math.ceil(size / max(1, math.ceil(size / _PART)))
    return [slice(start, min(size, start + step)) for start in range(0, size, step)] if size else []


def _whole(size: int) -> list[slice]:
    return [slice(0, size)] if size else []


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Rounding:
    """Add noise in float64, and round what comes of it to multiples of a public power of two.

    Every value that is released then stands for millions of values of the noise or more, and
    shows no pattern of how these or float64 are rounded. That is an argument and a test, not a
    proof; a proof, for exact normal values, is `Grid`'s.
    """

    spacing: float
    _widening: ClassVar[float] = 1.0
    _apart: ClassVar[bool] = False

    @classmethod
    def for_noise(cls, deviation: float) -> "Rounding":
        """Return the rounding for noise of a standard deviation."""
        return cls(2.0 ** (math.floor(math.log2(deviation)) - 26))

    def prepared(self, summed: Tensor) -> Tensor:
        """Return in float64 what noise may be added to; the sum stays as it is."""
        total = summed.to(torch.float64, copy=True)
        return self._round(total) if self._apart else total  # several then add up exactly

    def before_finish(self) -> "Rounding":
        """Return how to add noise to one of several prepared sums, which are then added up."""
        # By float64's own steps: the total alone is rounded, noise and all.
        return self if self._apart else replace(self, spacing=self.spacing * 2.0**-26)

    def finish(self, total: Tensor) -> Tensor:
        """Make a prepared sum, or several that were added up, with noise what is released."""
        return total if self._apart else self._round(total)

    def release(
        self, summed: Values, normal: Values, deviation: float, divisor: float = 1.0
    ) -> None:
        """Add noise of a deviation to a flat sum and divide, in place; normals serve only once."""
        if isinstance(summed, Tensor):
            noise = tensor_of(normal).mul_(deviation * self._widening)
            noise = self._round(noise) if self._apart else noise
            summed.copy_(self.finish(noise.add_(self.prepared(summed))).div_(divisor))
        else:
            add_rounded(summed, np.asarray(normal), *self.compiled(deviation), divisor)

    def compiled(self, deviation: float) -> tuple[float, float, bool]:
        """Return what compiled code needs to do as `release` does."""
        return deviation * self._widening, self.spacing, self._apart

    def _round(self, values: Tensor) -> Tensor:
        return values.div_(self.spacing).round_().mul_(self.spacing)


@dataclass(frozen=True)
class Grid(Rounding):
    """Round sums and noise to multiples of one public power of two before they meet.

    What is proved, for normal values without error: rounding moves the sums of neighbours apart
    by less than 1/4096 of their sensitivity, for which the noise is widened; multiples of the
    grid, rounded, plus a multiple, are the rounded sum of both. So the release is the Gaussian
    mechanism on a grid, rounded: no bit of it tells what floating-point addition did to the sum
    (Mironov, "On significance of the least significant bits for differential privacy", CCS 2012).
    What is not: that the normal values are exact (they have 53 bits and end at 13.3 standard
    deviations), that the sums of clipped gradients were added without error, and anything about
    timing.
    """

    _widening = 1 + 1 / 4096
    _apart = True

    @classmethod
    def for_sums(cls, sensitivity: float, dimensions: int) -> "Grid":
        """Return the grid for sums of so many dimensions."""
        return cls(2.0 ** math.floor(math.log2(sensitivity / (4096 * math.sqrt(dimensions)))))
