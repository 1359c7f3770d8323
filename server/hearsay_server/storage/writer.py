"""Group commit: many batches share one durable transaction, on the one thread that writes."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from hearsay.v1 import collector_pb2
from hearsay_server.clock import Clock, system
from hearsay_server.ingest.intake import Limits
from hearsay_server.ingest.judge import Outcome
from hearsay_server.storage.database import is_away
from hearsay_server.storage.store import Store
from ldp.errors import NotReady

_T = TypeVar("_T")

MAX_REQUEST = 256
"""Batches that one request may hold."""

_MAX_WAITING = 4096
_MAX_WAITING_BYTES = 64 << 20
_MAX_GROUP = 512

_LINGER = 0.02
"""Most seconds between the end of a commit and the next one, while batches wait."""


class Overloaded(NotReady):
    """More batches wait for the disk than the server is willing to hold."""


class Writer:
    """Feed the store from one thread, a group of waiting requests at a time.

    While a commit runs, arriving requests wait and go with the next commit. That begins once as
    many wait as did when the last one ended, and were in it: its callers may come again, and a
    commit costs much the same for one batch as for dozens. It waits for them at most `_LINGER`
    from the end of the last one; a caller who is alone never waits. Batches are decoded on that
    thread too, so a large one keeps no other call from being answered.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits,
        clock: Clock = system,
        *,
        committed: Callable[[float, Exception | None], None] = lambda seconds, error: None,
    ) -> None:
        """Start writing; must be called with an event loop running.

        `committed` is told of every commit how long it took, and why it failed if it did.
        """
        self._store = store
        self._limits = limits
        self._clock = clock
        self._committed = committed
        self._waiting: deque[_Request] = deque()
        self._wanted = 1  # requests with which the next commit begins
        self._enough = asyncio.Event()
        self._closing = False
        self._batches = self._bytes = 0  # that wait
        self._came: deque[float] = deque()  # when each request that waits did
        self._thread = ThreadPoolExecutor(1, "hearsay-writer")
        self._task = asyncio.create_task(self._run())

    @property
    def waiting(self) -> tuple[int, int]:
        """How many batches, of how many bytes, wait for the disk."""
        return self._batches, self._bytes

    @property
    def lag(self) -> float:
        """The seconds that the oldest waiting request has waited; 0 where none waits."""
        try:
            return time.monotonic() - self._came[0]
        except IndexError:
            return 0.0

    async def add(
        self, batches: Sequence[collector_pb2.Batch], caller: str = ""
    ) -> Sequence[Outcome]:
        """Return, once they are durable, the outcomes of the batches of one caller's request.

        Raises `Overloaded` at once, with nothing taken, where too many wait; and the store's error
        where the batches could not be stored.
        """
        size = sum(batch.ByteSize() for batch in batches)
        full = (
            self._batches + len(batches) > _MAX_WAITING or self._bytes + size > _MAX_WAITING_BYTES
        )
        if (full and self._batches) or self._task.done():  # a lone one must be taken once
            raise Overloaded(f"{self._batches} batches of {self._bytes} bytes wait already")
        future: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()
        self._batches += len(batches)
        self._bytes += size
        self._came.append(time.monotonic())
        self._waiting.append((batches, caller, size, future))
        self._look()
        return await future

    async def run(self, write: Callable[[], _T]) -> _T:
        """Run another write on the writing thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, write)

    async def write(self, function: Callable[..., _T], *arguments: object) -> _T:
        """Run a function of the database and of arguments there, as `Database.retrying` does."""
        database = self._store.database
        return await self.run(partial(database.retrying, partial(function, database, *arguments)))

    async def close(self) -> None:
        """Write all waiting batches, then stop. Nothing may be added any more."""
        self._closing = True
        self._begin_with(1)
        await asyncio.wait((self._task,))
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        wanted, until = 1, 0.0
        while await self._gathered(wanted, until):
            group = [self._waiting.popleft()]
            count = len(group[0][0])
            while count < _MAX_GROUP and self._waiting:
                group.append(self._waiting.popleft())
                count += len(group[-1][0])
            try:
                await self._commit(group)
            finally:
                for batches, _, size, _ in group:
                    self._batches -= len(batches)
                    self._bytes -= size
                    self._came.popleft()
            wanted, until = len(self._waiting) + len(group), loop.time() + _LINGER

    async def _gathered(self, wanted: int, until: float) -> bool:
        """Wait for so many requests or a full group; from `until` on, by the loop's clock, for one.

        Returns whether any waits; none does where the writer is closing.
        """
        self._enough.clear()
        self._begin_with(1 if self._closing else wanted)
        timer = asyncio.get_running_loop().call_at(until, self._begin_with, 1)
        await self._enough.wait()
        timer.cancel()
        return bool(self._waiting)

    def _begin_with(self, wanted: int) -> None:
        """Let the next commit begin once so many requests wait."""
        self._wanted = wanted
        self._look()

    def _look(self) -> None:
        """Let the next commit begin if enough waits."""
        if len(self._waiting) >= self._wanted or self._batches >= _MAX_GROUP or self._closing:
            self._enough.set()

    async def _commit(self, group: "Sequence[_Request]") -> None:
        """Write a group; where one request may be the cause of a failure, write each by itself."""
        begin = time.monotonic()
        failed: Exception | None = None
        try:
            await self._write(group)
        except Exception as error:
            if len(group) > 1 and not is_away(error):
                for request in group:
                    await self._commit([request])
                return
            failed = error
            for *_, future in group:
                if not future.done():
                    future.set_exception(error)
        self._committed(time.monotonic() - begin, failed)

    async def _write(self, group: "Sequence[_Request]") -> None:
        sent = [(caller, batch) for batches, caller, _, _ in group for batch in batches]
        outcomes = iter(await self.run(lambda: self._store.add(sent, self._clock(), self._limits)))
        for batches, *_, future in group:
            mine = [next(outcomes) for _ in batches]
            if not future.done():  # its caller may have gone away
                future.set_result(mine)


_Request = tuple[Sequence[collector_pb2.Batch], str, int, "asyncio.Future[Sequence[Outcome]]"]
