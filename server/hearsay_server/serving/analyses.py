"""Processes for analysts' questions, so that no analysis slows the calls of devices down.

Threads would: scipy's LAPACK routines hold the interpreter's lock, for seconds in a large domain.
Each question has a process of its own, forked from one that has numpy, scipy and the estimators
loaded. The process runs at a lower priority than the server, within limits of processor time and
memory that the kernel enforces, and is killed when the caller leaves.
"""

import asyncio
import contextlib
import logging
import math
import multiprocessing
import os
import resource
import signal
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from typing import Any, ParamSpec, Protocol, TypeVar

from hearsay_server.limits import TooMany
from hearsay_server.serving.metrics import Metrics
from ldp.errors import HearsayError, InvalidInput, StorageFailed

_P = ParamSpec("_P")
_T = TypeVar("_T")
_log = logging.getLogger("hearsay.server")

_NICE = 19
"""How far the processes' priority is below the server's: a sixtieth of its share of a full core."""

_LOADED = [
    "hearsay_server.__main__",
    "hearsay_server.answers.questions",
    "hearsay_server.surveys.planning",
    __name__,  # else each process would load what this module needs for the server
]
"""Modules that are loaded once, before the first process is forked."""


class TooLarge(InvalidInput):
    """A question took more memory than one question may, or ended without a word."""

    limit = "memory"


class TooLong(TooLarge):
    """A question took more processor time than one question may."""

    limit = "processor"


@dataclass(frozen=True)
class Bounds:
    """The limits of one question: seconds of processor time for each call, bytes of memory."""

    seconds: int
    memory: int


class Run(Protocol):
    """Runs `function(*args)` in the process and returns the result."""

    async def __call__(
        self, function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T: ...


class Analyses:
    """Lets `at_once` processes answer questions, while up to `waiting` more questions wait."""

    def __init__(
        self, name: str, at_once: int, waiting: int, bounds: Bounds, metrics: Metrics
    ) -> None:
        """Set the limits; `name` is the limit's in errors and metrics. No process is started yet.

        `name` is one of `KINDS` of the metrics.
        """
        self._name = name
        self._killed = metrics.questions_killed
        self._running = metrics.questions_running.labels(name)
        self._waiting = metrics.questions_waiting.labels(name)
        self._seconds = metrics.question_seconds.labels(name)
        self._most = at_once + waiting
        self._bounds = bounds
        self._held = 0
        self._slots = asyncio.Semaphore(at_once)
        self._threads = ThreadPoolExecutor(at_once, f"hearsay-{name}")

    @contextlib.asynccontextmanager
    async def process(self, *, begun: bool = False) -> AsyncIterator[Run]:
        """Yield a runner of functions in one process, which is killed when the context ends.

        Functions, arguments and results are pickled. Raises `TooMany` where too many questions
        wait already, unless this is a part of work that has `begun`. A call raises the function's
        own `HearsayError`, and `TooLarge` where it took too much time or memory.
        """
        if not begun:
            if self._held >= self._most:
                detail = f"{self._held} questions of {self._name} are being answered or wait"
                raise TooMany(detail, self._name, retry_after=1.0)
            self._held += 1
        try:
            with self._waiting.track_inprogress():
                await self._slots.acquire()
            with self._slot():
                worker = _Worker(self._bounds)
                in_thread = partial(asyncio.get_running_loop().run_in_executor, self._threads)

                async def run(
                    function: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs
                ) -> _T:
                    work = partial(function, *args, **kwargs)
                    try:
                        answer: _T = await in_thread(worker.call, work)
                    except TooLarge as error:
                        self._killed.labels(error.limit).inc()
                        raise
                    return answer

                try:
                    yield run
                finally:
                    worker.kill()
        finally:
            if not begun:
                self._held -= 1

    @contextlib.contextmanager
    def _slot(self) -> Iterator[None]:
        """Count and time a question that holds a slot, and release the slot."""
        try:
            with self._running.track_inprogress(), self._seconds.time():
                yield
        finally:
            self._slots.release()

    async def run(self, work: Callable[[], _T], *, begun: bool = False) -> _T:
        """Return the result of `work`, called in a process; raise as `process` and its calls."""
        async with self.process(begun=begun) as run:
            return await run(work)

    def close(self) -> None:
        """Take no more questions, and forget the waiting ones."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Worker:
    """A process that calls functions one after another, started by the first call."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._lock = threading.Lock()
        self._process: BaseProcess | None = None
        self._line: Connection | None = None
        self._killed = False

    def call(self, work: Callable[[], Any]) -> Any:
        """Run `work` in the process and return its result; blocks the thread."""
        try:
            if self._line is None:
                self._start()
            assert self._line is not None
            self._line.send(work)
            result, error = self._line.recv()
        except (EOFError, OSError) as error:
            self._raise_ended(error)
        if error is not None:
            raise error
        return result

    def kill(self) -> None:
        """End the process, whatever it does; safe from any thread, and a second time."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                self._process.kill()

    def _start(self) -> None:
        context = _context()
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._bounds), daemon=True)
        process.start()
        theirs.close()
        self._line = ours
        with self._lock:
            self._process = process
            if self._killed:
                process.kill()

    def _raise_ended(self, error: EOFError | OSError) -> None:
        if self._killed:
            raise asyncio.CancelledError
        if self._process is None:
            raise StorageFailed(f"no process for a question can be started: {error}") from error
        self._process.join()
        if self._process.exitcode == -signal.SIGXCPU:
            raise TooLong(
                f"this question takes more than {self._bounds.seconds} s of processor time, the "
                "most that one may (analysis_seconds): ask for fewer values or by another method"
            )
        _log.error("a process that answered a question ended with %s", self._process.exitcode)
        raise TooLarge(
            "the process that answered this question ended: it may have taken too much memory"
        )


@cache
def _context() -> ForkServerContext:
    """Return the context whose processes are forked from one that has loaded `_LOADED`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_LOADED)
    return context


def _serve(line: Connection, bounds: Bounds) -> None:
    """Call each function received and send back its result or error, until the line closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches us, too
    os.nice(_NICE)
    resource.setrlimit(resource.RLIMIT_DATA, (bounds.memory, bounds.memory))
    while True:
        try:
            work = line.recv()
        except EOFError:
            return
        spent = resource.getrusage(resource.RUSAGE_SELF)
        most = math.ceil(spent.ru_utime + spent.ru_stime) + bounds.seconds
        resource.setrlimit(resource.RLIMIT_CPU, (most, resource.RLIM_INFINITY))
        with contextlib.suppress(BrokenPipeError):  # the server is gone
            line.send(_called(work, bounds))


def _called(work: Callable[[], object], bounds: Bounds) -> tuple[object, Exception | None]:
    try:
        return work(), None
    except HearsayError as error:
        return None, error
    except MemoryError:
        return None, TooLarge(
            f"this question takes more than {bounds.memory >> 20} MiB of memory, the most that "
            "one may (analysis_memory_mib): ask for fewer values or by another method"
        )
    except Exception:
        return None, RuntimeError(f"in a process for analysis:\n{traceback.format_exc()}")
