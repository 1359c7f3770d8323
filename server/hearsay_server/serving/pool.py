"""A few threads for one kind of work, so that it holds up no other kind."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from hearsay_server.limits import TooMany

_T = TypeVar("_T")


class Pool:
    """Threads with a bounded line before them."""

    def __init__(self, name: str, threads: int, waiting: int) -> None:
        """Run so much at once, and let so much wait; `name` is that of the limit."""
        self._name = name
        self._most = threads + waiting
        self._held = 0
        self._executor = ThreadPoolExecutor(threads, f"hearsay-{name}")

    async def run(self, work: Callable[[], _T]) -> _T:
        """Do it on one of the threads; raise `TooMany` where too much waits already."""
        if self._held >= self._most:
            detail = f"{self._held} calls of {self._name} are under way already"
            raise TooMany(detail, self._name, retry_after=1.0)
        self._held += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._held -= 1

    def close(self) -> None:
        """Take no more, and forget what waits."""
        self._executor.shutdown(wait=False, cancel_futures=True)
