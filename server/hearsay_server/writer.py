"""Group commit: many batches share one durable transaction."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from hearsay_server.store import Incoming, Store

_MAX_WAITING = 4096
_MAX_GROUP = 512


class Overloaded(Exception):
    """More batches wait for the disk than the server is willing to hold."""


class Writer:
    """Feed the store from one thread, a group of waiting batches at a time.

    While a commit runs, what arrives waits and goes with the next one: the busier the server,
    the larger the group, without a timer.
    """

    def __init__(self, store: Store) -> None:
        """Start writing; must be called with an event loop running."""
        self._store = store
        self._waiting: asyncio.Queue[tuple[Incoming, asyncio.Future[bool]]] = asyncio.Queue(
            _MAX_WAITING
        )
        self._thread = ThreadPoolExecutor(1, "hearsay-writer")
        self._task = asyncio.create_task(self._run())

    async def add(self, batch: Incoming) -> bool:
        """Return, once the batch is durable, whether it was new.

        Raises `Overloaded` at once where too many wait, and what the store raised where the
        batch could not be stored.
        """
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        try:
            self._waiting.put_nowait((batch, future))
        except asyncio.QueueFull:
            raise Overloaded(f"{_MAX_WAITING} batches wait already") from None
        return await future

    async def close(self) -> None:
        """Write what waits, then stop. Nothing may be added any more."""
        await self._waiting.join()
        self._task.cancel()
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            group = [await self._waiting.get()]
            while len(group) < _MAX_GROUP and not self._waiting.empty():
                group.append(self._waiting.get_nowait())
            try:
                batches = [batch for batch, _ in group]
                answers = await loop.run_in_executor(self._thread, self._store.add, batches)
            except Exception as error:
                _answer_all(group, error)
            else:
                for (_, future), is_new in zip(group, answers, strict=True):
                    if not future.done():  # its caller may have gone away
                        future.set_result(is_new)
            for _ in group:
                self._waiting.task_done()


def _answer_all(group: Sequence[tuple[Incoming, asyncio.Future[bool]]], error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)
