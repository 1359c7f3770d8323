"""Live answers: all who watch one question share one poll and one answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from hearsay_server.limits import TooMany

_Seen = TypeVar("_Seen")
_Answer = TypeVar("_Answer")


class Feeds:
    """The questions that are watched, each polled by one task while somebody watches it."""

    def __init__(self, most: int) -> None:
        """Let at most `most` different questions be watched at once."""
        self._most = most
        self._feeds: dict[bytes, _Feed] = {}
        self._ended = False

    def end(self) -> None:
        """Let all who watch go, now and from now on."""
        self._ended = True
        for feed in self._feeds.values():
            feed.end()

    async def watch(
        self,
        key: bytes,
        interval: float,
        read: Callable[[], Awaitable[_Seen]],
        compute: Callable[[_Seen], Awaitable[_Answer]],
    ) -> AsyncIterator[_Answer]:
        """Yield the answer to the question of this key, then each that follows.

        `read` is polled, at the shortest interval of those who watch, and `compute` makes an
        answer of what was read when it has changed and is not empty. No two answers come within
        `interval` seconds.
        What either raises is raised to all who watch. Raises `TooMany` where too many other
        questions are watched already.
        """
        if self._ended:
            return
        feed = self._feeds.get(key)
        if feed is None or feed.over.done():
            if len(self._feeds) >= self._most and key not in self._feeds:
                detail = f"{len(self._feeds)} other questions are watched already"
                raise TooMany(detail, "watches", retry_after=1.0)
            feed = self._feeds[key] = _Feed(read, compute)
        feed.intervals.append(interval)
        feed.changed.set()
        seen = 0
        try:
            while True:
                if feed.number == seen:
                    await asyncio.wait({feed.coming, feed.over}, return_when="FIRST_COMPLETED")
                if feed.over.done():
                    if feed.failed is not None:
                        raise feed.failed
                    return
                seen = feed.number
                yield feed.answer
                await asyncio.wait({feed.over}, timeout=interval)
        finally:
            feed.intervals.remove(interval)
            if not feed.intervals:
                feed.end()
                if self._feeds.get(key) is feed:
                    del self._feeds[key]


class _Feed:
    """One watched question: its last answer, how many answers it had, and who watches it."""

    def __init__(
        self, read: Callable[[], Awaitable[Any]], compute: Callable[[Any], Awaitable[Any]]
    ) -> None:
        loop = asyncio.get_running_loop()
        self.intervals: list[float] = []
        self.number = 0
        self.answer: Any = None
        self.failed: Exception | None = None
        self.coming: asyncio.Future[None] = loop.create_future()
        self.over: asyncio.Future[None] = loop.create_future()
        self.changed = asyncio.Event()  # somebody joined, perhaps with a shorter interval
        self._polling = asyncio.create_task(self._poll(read, compute))

    def end(self) -> None:
        """Stop polling, and let all watchers go."""
        self._polling.cancel()
        if not self.over.done():
            self.over.set_result(None)

    async def _poll(
        self, read: Callable[[], Awaitable[Any]], compute: Callable[[Any], Awaitable[Any]]
    ) -> None:
        last: Any = None
        loop = asyncio.get_running_loop()
        try:
            while True:
                polled = loop.time()
                seen = await read()
                if seen and seen != last:
                    last = seen
                    self.answer = await compute(seen)
                    self.number += 1
                    self.coming.set_result(None)
                    self.coming = loop.create_future()
                while (wait := polled + min(self.intervals) - loop.time()) > 0:
                    self.changed.clear()
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.changed.wait(), wait)
        except Exception as error:
            self.failed = error
        finally:
            if not self.over.done():
                self.over.set_result(None)
