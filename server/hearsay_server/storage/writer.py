"""Group commit: many batches share one durable transaction, on the one thread that writes."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
"""Most seconds that a commit waits for more batches."""

_SLICE = 0.001
"""Seconds without a new batch after which a commit waits no longer."""


class Overloaded(NotReady):
    """More batches wait for the disk than the server is willing to hold."""


class Writer:
    """Feed the store from one thread, a group of waiting requests at a time.

    While a commit runs, arriving requests wait and go with the next commit. Where some did, more
    are on their way, and the next commit waits for them as long as a commit takes, so that half of
    the time remains for answering calls; a caller who is alone never waits. Batches are decoded on
    that thread too, so a large one keeps no other call from being answered.
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
        self._waiting: asyncio.Queue[_Request] = asyncio.Queue()
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
        self._waiting.put_nowait((batches, caller, size, future))
        return await future

    async def run(self, write: Callable[[], _T]) -> _T:
        """Run another write on the writing thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, write)

    async def close(self) -> None:
        """Write all waiting batches, then stop. Nothing may be added any more."""
        drained = asyncio.create_task(self._waiting.join())
        await asyncio.wait((drained, self._task), return_when=asyncio.FIRST_COMPLETED)
        for task in (drained, self._task):
            task.cancel()
        self._thread.shutdown()

    async def _run(self) -> None:
        took = 0.0
        while True:
            if not self._waiting.empty():
                await self._linger(min(took, _LINGER))
            group = [await self._waiting.get()]
            count = len(group[0][0])
            while count < _MAX_GROUP and not self._waiting.empty():
                group.append(self._waiting.get_nowait())
                count += len(group[-1][0])
            begin = time.monotonic()
            try:
                await self._commit(group)
            finally:
                took = time.monotonic() - begin
                for batches, _, size, _ in group:
                    self._batches -= len(batches)
                    self._bytes -= size
                    self._came.popleft()
                    self._waiting.task_done()

    async def _linger(self, seconds: float) -> None:
        """Wait at most `seconds` for more batches, as long as some come and the group has room."""
        end = time.monotonic() + seconds
        before = 0
        while before < self._batches < _MAX_GROUP and time.monotonic() < end:
            before = self._batches
            await asyncio.sleep(_SLICE)

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
