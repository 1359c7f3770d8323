"""Gaussian noise that nobody can predict, drawn while the step that needs it still runs."""

import math
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dpsgd.compiled import TOGETHER, add_rounded, box_muller
from dpsgd.shared import Values, bare, tensor_of
from dpsgd.team import in_all_threads
from ldp import Coins

_BLOCK = 70_000
"""Values drawn together: enough that threads seldom wait for Python's lock, few of memory."""
_LEAST = 1 << 16
"""Values for each thread, where several share a draw: fewer cost less than to meet for them."""
_SMALL = 1 << 48
"""Below this, a word has too few bits for the logarithm."""
_SPARE = 16
"""Words for those: a block needs one or two, and hardly ever so many."""
_MOST_THREADS = 8
"""Threads that share a draw at most: more would wait for Python's lock."""

_T = TypeVar("_T")


class NoiseSource(ABC):
    """Draw independent standard normal values. Nothing about its state is ever saved.

    In float64, whatever is trained: 24 bits would show. Angles and radii in float32 leave a
    pattern in every pair of values, by which one release of 30,000 tells neighbours apart.
    """

    dtype = torch.float64

    @abstractmethod
    def fill(self, out: Values) -> None:
        """Fill a flat tensor or array of type `dtype`."""

    def stream(self) -> Callable[[Values], None]:
        """Return what does as `fill`, for one thread that calls it several times in one draw."""
        return self.fill


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
    """Normal values by Box and Muller from coins: keystreams under keys of the system.

    Of 64 bits for each value, and more for those in the tails, which end at 13.3 standard
    deviations.
    """

    def __init__(self, coins: Coins) -> None:
        self._coins = coins
        # Compile here, not in a thread amid which the process may fork.
        words = np.empty(0, dtype=np.uint64)
        box_muller(words.view(np.float64), words, _SMALL)
        Rounding(1.0).release(np.empty(0, dtype=np.float32), np.empty(0), 1.0)

    def fill(self, out: Values) -> None:
        self.stream()(out)

    def stream(self) -> Callable[[Values], None]:
        fill_words = self._coins.stream()
        return lambda out: self._fill(out, fill_words)

    def _fill(self, out: Values, fill_words: Callable[[NDArray[np.uint64]], None]) -> None:
        values = np.asarray(out)
        if values.size % 2:
            pair = np.empty(2)
            self._fill(pair, fill_words)
            values[-1] = pair[0]
            values = values[:-1]
        for start in range(0, values.size, _BLOCK):
            block = values[start : start + _BLOCK]
            fill_words(block.view(np.uint64))
            done, spare = 0, _SPARE
            while done < block.size:
                # A copy is of one type, whatever the coins.
                more = np.array(self._coins.words(spare))
                done += box_muller(block[done:], more, _SMALL)
                spare = TOGETHER


class NoisePrefetcher:
    """Add fresh noise to sums of the given shapes.

    For small models, to draw it is most of what a private step adds. Where cores are idle, because
    torch was given fewer threads than there are or the model is on a GPU, a thread draws it while
    forward and backward run. Where none is, that thread would only be in their way, and torch's
    threads share the work when it is due, if there is enough, block by block.

    In a forked child it draws the child's own noise, in one thread.
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
        # Where each thread draws, kept: to get memory costs as much as to draw.
        self._rooms = [] if self._serial or self._idle_cores else self._make_rooms()
        self._blocks = _blocks(self._sizes, len(self._rooms[0])) if self._rooms else []
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
            del self._rooms[1:]
        if self._ahead is None and self._pool is not None:
            self._ahead = self._pool.submit(self._draw)

    def add_to(self, sums: Sequence[Tensor], add: Callable[[Values, Values], object]) -> None:
        """Call add(part, noise) for flat parts of the sums: each value once, with its own noise.

        On a CPU both are arrays that share memory with the sums, elsewhere tensors. Several threads
        may call `add` at once; this method is for one at a time.
        """
        self.begin()
        flat = [bare(summed.view(-1)) for summed in sums]
        if [len(part) for part in flat] != self._sizes:
            raise ValueError(f"expected sums of {self._sizes} values, got {[*map(len, flat)]}")
        if self._serial:
            for part, size in zip(flat, self._sizes, strict=True):
                noise = torch.empty(size, dtype=self._source.dtype, device=self._device)
                self._source.fill(noise)
                add(part, bare(noise))
        elif self._idle_cores:
            drawn, self._ahead = self._ahead, None
            assert drawn is not None
            for part, noise in zip(flat, torch.split(drawn.result(), self._sizes), strict=True):
                add(part, bare(noise.to(self._device)))
        else:
            self._share(flat, add)

    def _make_rooms(self) -> list[NDArray[np.float64]]:
        total = sum(self._sizes)
        workers = min(torch.get_num_threads(), _MOST_THREADS, max(1, total // _LEAST))
        rounds = max(1, math.ceil(total / (workers * _BLOCK)))
        size = 2 * max(1, math.ceil(total / (2 * workers * rounds)))  # as many for each of them
        return [np.empty(size) for _ in range(workers)]

    def _draw(self) -> Tensor:
        values = torch.empty(sum(self._sizes), dtype=self._source.dtype)
        self._source.fill(values)
        return values

    def _share(self, flat: list[Values], add: Callable[[Values, Values], object]) -> None:
        left, rooms = deque(self._blocks), deque(self._rooms)
        done = []

        def work() -> None:
            if (room := _taken(rooms)) is None:
                return
            fill = self._source.stream()
            while (block := _taken(left)) is not None:
                fill(room)
                start = 0
                for index, part in block:
                    stop = start + part.stop - part.start
                    add(flat[index][part], room[start:stop])
                    start = stop
                done.append(block)

        if len(rooms) > 1:
            in_all_threads(work)
        else:
            work()
        if len(done) < len(self._blocks):
            raise RuntimeError("the draw of noise was broken off: nothing may be released")


def _taken(queue: deque[_T]) -> _T | None:
    """Take the first of what is left; several threads may."""
    try:
        return queue.popleft()
    except IndexError:
        return None


def _blocks(sizes: Sequence[int], most: int) -> list[list[tuple[int, slice]]]:
    """Return blocks of so many values, as parts of tensors of these sizes with their indices."""
    blocks: list[list[tuple[int, slice]]] = [[]]
    room = most
    for index, size in enumerate(sizes):
        start = 0
        while start < size:
            if not room:
                blocks.append([])
                room = most
            part = slice(start, min(size, start + room))
            blocks[-1].append((index, part))
            room -= part.stop - start
            start = part.stop
    return blocks


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

    def noise(self, normal: Values, deviation: float) -> Tensor:
        """Make normal values noise of that deviation or a little more, in place."""
        noise = tensor_of(normal).mul_(deviation * self._widening)
        return self._round(noise) if self._apart else noise

    def finish(self, total: Tensor) -> Tensor:
        """Make a prepared sum, or several that were added up, with noise what is released."""
        return total if self._apart else self._round(total)

    def release(
        self, summed: Values, normal: Values, deviation: float, divisor: float = 1.0
    ) -> None:
        """Add noise of a deviation to a flat sum and divide, in place; normals serve only once."""
        if isinstance(summed, Tensor):
            noise = self.noise(normal, deviation)
            summed.copy_(self.finish(noise.add_(self.prepared(summed))).div_(divisor))
        else:
            widened = deviation * self._widening  # the same at one go
            add_rounded(summed, np.asarray(normal), widened, self.spacing, self._apart, divisor)

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
