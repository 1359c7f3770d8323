"""What is made once for all who ask for it, and kept for some seconds."""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

_MOST = 256
"""Values that are kept; the one that was made first goes first."""


class Lately:
    """Values by key: an address with its options, say, and the role of the caller.

    A key must say everything that its value depends on: whoever has the key gets the value.
    """

    def __init__(self, most: int = _MOST) -> None:
        """Keep `most` values at most; the one that was made first goes first."""
        self._most = most
        self._made: OrderedDict[tuple[str, ...], tuple[float, asyncio.Future[Any]]]
        self._made = OrderedDict()

    async def get(
        self, key: tuple[str, ...], seconds: float, make: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return a value that was begun at most so many seconds ago, or make it, once for all.

        An error of `make` is raised for all who wait, and is not kept.
        """
        now = time.monotonic()
        found = self._made.get(key)
        if found is None or (found[1].done() and now - found[0] >= seconds):
            found = (now, asyncio.ensure_future(make()))
            found[1].add_done_callback(_taken_note_of)
            self._made[key] = found
            self._made.move_to_end(key)
            while len(self._made) > self._most:
                self._made.popitem(last=False)
        try:
            # The one who came first may leave: the others wait on.
            return await asyncio.shield(found[1])
        except Exception:
            if self._made.get(key) is found:
                del self._made[key]
            raise


def _taken_note_of(made: asyncio.Future[Any]) -> None:
    """Look at an error that all who waited for it have left; asyncio would log it."""
    if not made.cancelled():
        made.exception()


@dataclass(frozen=True)
class Fragment:
    """A part of a page, and a tag that tells it from others of its address."""

    html: str
    tag: str


class Fragments:
    """The fragments of a site; they are kept as `Lately` keeps its values."""

    def __init__(self, lately: Lately) -> None:
        self._lately = lately

    async def get(
        self, key: tuple[str, ...], seconds: float, make: Callable[[], Awaitable[str]]
    ) -> Fragment:
        """Return a fragment that is at most so many seconds old, or make it."""

        async def made() -> Fragment:
            html = await make()
            return Fragment(html, hashlib.sha256(html.encode()).hexdigest()[:16])

        found: Fragment = await self._lately.get(("fragment", *key), seconds, made)
        return found
