"""Group commit: many batches share one durable transaction, on the one thread that writes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hearsay.v1 import collector_pb2
from hearsay_server.intake import Cohort, Refused
from hearsay_server.store import Store
from ldp import Tally

_T = TypeVar("_T")

Outcome = bool | Refused
"""Whether a batch was new; or why it is not taken."""

MAX_REQUEST = 256
"""Batches that one request may hold."""

_MAX_WAITING = 4096
_MAX_WAITING_BYTES = 64 << 20
_MAX_GROUP = 512


class Overloaded(Exception):
    """More batches wait for the disk than the server is willing to hold."""


class Writer:
    """Feed the store from one thread, a group of waiting requests at a time.

    While a commit runs, what arrives waits and goes with the next one: the busier the server,
    the larger the group, without a timer. Batches are decoded on that thread too, so a large
    one keeps nobody else from being answered.
    """

    def __init__(
        self, store: Store, decode: Callable[[collector_pb2.Batch], Mapping[Cohort, Tally]]
    ) -> None:
        """Start writing; must be called with an event loop running."""
        self._store = store
        self._decode = decode
        self._waiting: asyncio.Queue[_Request] = asyncio.Queue()
        self._batches = self._bytes = 0  # that wait
        self._thread = ThreadPoolExecutor(1, "hearsay-writer")
        self._task = asyncio.create_task(self._run())

    async def add(self, batches: Sequence[collector_pb2.Batch]) -> Sequence[Outcome]:
        """Return, once they are durable, what became of the batches of one request.

        Raises `Overloaded` at once, with nothing taken, where too many wait; and what the store
        raised where they could not be stored.
        """
        size = sum(batch.ByteSize() for batch in batches)
        if (
            self._batches + len(batches) > _MAX_WAITING
            or self._bytes + size > _MAX_WAITING_BYTES
            or self._task.done()
        ):
            raise Overloaded(f"{self._batches} batches of {self._bytes} bytes wait already")
        future: asyncio.Future[Sequence[Outcome]] = asyncio.get_running_loop().create_future()
        self._batches += len(batches)
        self._bytes += size
        self._waiting.put_nowait((batches, size, future))
        return await future

    async def run(self, write: Callable[[], _T]) -> _T:
        """Run another write on the writing thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, write)

    async def close(self) -> None:
        """Write what waits, then stop. Nothing may be added any more."""
        drained = asyncio.create_task(self._waiting.join())
        await asyncio.wait((drained, self._task), return_when=asyncio.FIRST_COMPLETED)
        for task in (drained, self._task):
            task.cancel()
        self._thread.shutdown()

    async def _run(self) -> None:
        while True:
            group = [await self._waiting.get()]
            while sum(len(r[0]) for r in group) < _MAX_GROUP and not self._waiting.empty():
                group.append(self._waiting.get_nowait())
            try:
                await self._write(group)
            except Exception as error:
                for _, _, future in group:
                    if not future.done():
                        future.set_exception(error)
            finally:
                for batches, size, _ in group:
                    self._batches -= len(batches)
                    self._bytes -= size
                    self._waiting.task_done()

    async def _write(self, group: "Sequence[_Request]") -> None:
        every = [batch for batches, _, _ in group for batch in batches]
        outcomes = iter(await self.run(lambda: self._store.add(every, self._decode)))
        for batches, _, future in group:
            mine = [next(outcomes) for _ in batches]
            if not future.done():  # its caller may have gone away
                future.set_result(mine)


_Request = tuple[Sequence[collector_pb2.Batch], int, "asyncio.Future[Sequence[Outcome]]"]
